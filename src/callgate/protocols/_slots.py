"""Slots: each argument's schema, narrowed to what the request offers for it.

One law: narrowing never admits a value that the tool's own schema refuses, and a slot with nothing to copy keeps the
schema it had.

A small model reads a request badly but picks well among what stands in it. So numbers are matched to numeric parameters by
the words around them, lists are found whole, texts are offered as phrases to pick from, and optional parameters that the
request does not mention are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from callgate.protocols import _ground as ground
from callgate.protocols._schemas import ENGINES, Engine, bounded
from callgate.types import Schema, ToolSpec

WINDOW = 5
"""Words on each side of a number that tell what it is."""
MAX_ASSIGNED = 6
"""Numbers that are matched to parameters in every possible way; beyond that, in their order."""
CLEAR = 0.75
"""A match that is better than the next by this much is not left to the model."""


@dataclass(slots=True, frozen=True)
class Request:
    """A request, taken apart once."""

    text: str
    words: tuple[ground.Word, ...]
    stems: frozenset[str]
    numbers: tuple[ground.Number, ...]

    @classmethod
    def of(cls, text: str) -> Request:
        """Take a request apart."""
        return cls(text, tuple(ground.words(text)), frozenset(ground.content(text)), tuple(ground.numbers(text)))


def narrow(tool: ToolSpec, text: str, engine: Engine = ENGINES["llamacpp"]) -> dict[str, Any]:
    """The tool's arguments schema, narrowed to the request."""
    whole = bounded(tool.parameters, engine)
    if whole.get("type") != "object" or not whole["properties"]:
        return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    request = Request.of(text)
    originals: Mapping[str, Schema] = tool.parameters.get("properties") or {}
    required = set(tool.parameters.get("required") or ())
    numeric = _numeric_slots(whole["properties"], originals, required, request)
    lists = _list_slots(whole["properties"], originals, required, request)
    made: dict[str, Any] = {}
    for name, schema in whole["properties"].items():
        about = originals.get(name) or {}
        if name in numeric or name in lists:
            made[name] = numeric.get(name) or lists[name]
        elif name in required:
            made[name] = _needed(name, schema, about, request)
        elif (slot := _wanted(name, schema, about, request, tool)) is not None:
            made[name] = slot
    return {"type": "object", "properties": made, "required": list(made), "additionalProperties": False}


def ungrounded(arguments: Mapping[str, Any], text: str) -> list[str]:
    """The names of arguments whose value does not stand in the request."""
    request = Request.of(text)
    known = {v for n in request.numbers for v in n.values}
    out = []
    for name, value in arguments.items():
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if (number and value not in known) or (isinstance(value, str) and value.lower() not in text.lower()):
            out.append(name)
    return out


# --- numbers ------------------------------------------------------------------------------------------------------


def _numeric_slots(
    properties: Mapping[str, Any], originals: Mapping[str, Schema], required: set[str], request: Request
) -> dict[str, Any]:
    """The numeric parameters that take a number of the request."""
    params = [n for n, s in properties.items() if s.get("type") in ("integer", "number") and "enum" not in s]
    params.sort(key=lambda n: n not in required)
    found = [n for n in request.numbers if not _in_list(n, originals, request)]
    if not params or not found:
        return {}
    strong = [n for n in found if not n.weak]
    needed = [p for p in params if p in required]
    if len(strong) >= len(needed):
        found = strong if strong else found
    table = {
        p: [_closeness(p, originals.get(p) or {}, n, i, k, request) for k, n in enumerate(found)]
        for i, p in enumerate(params)
    }
    chosen = _assign(params, needed, found, table)
    out: dict[str, Any] = {}
    for name, k in chosen.items():
        if name not in required and table[name][k] < 1:
            continue
        out[name] = _fixed_number(found[k], properties[name], originals.get(name) or {})
    return {k: v for k, v in out.items() if v is not None}


def _in_list(number: ground.Number, originals: Mapping[str, Schema], request: Request) -> bool:
    """Whether the number belongs to a list that some list parameter will take."""
    if not any((s or {}).get("type") == "array" for s in originals.values()):
        return False
    return any(number.value in one and len(one) > 1 for one in ground.number_lists(request.text))


def _closeness(name: str, about: Schema, number: ground.Number, order: int, place: int, request: Request) -> float:
    """How well the words around a number fit a parameter."""
    by_name = ground.content(name)
    by_words = ground.content(str(about.get("description", ""))) - by_name
    at = next((i for i, w in enumerate(request.words) if w.end > number.start), 0)
    score = 0.0
    for distance in range(1, WINDOW + 1):
        for side, i in ((1.0, at - distance), (0.9, at + distance)):
            if not 0 <= i < len(request.words):
                continue
            near = request.words[i].stem
            if near in by_name or any(_kin(near, b) for b in by_name):
                score += 3 * side / distance**0.7
            elif near in by_words:
                score += 1.2 * side / distance**0.7
    text = request.text[max(0, number.start - len(name) - 4) : number.start].lower()
    if re.search(rf"\b{re.escape(name.lower())}\s*(?:=|:|is|of)?\s*$", text):
        score += 4
    if about.get("type") == "integer" and not isinstance(number.value, int):
        score -= 2
    year = isinstance(number.value, int) and 1000 <= number.value <= 2100
    if "year" in by_name:
        score += 2 if year else -1
    return score + (0.3 if order == place else 0.0)


def _kin(a: str, b: str) -> bool:
    return min(len(a), len(b)) >= 4 and (a.startswith(b[:5]) and b.startswith(a[:5]))


def _assign(
    params: Sequence[str], needed: Sequence[str], found: Sequence[ground.Number], table: Mapping[str, Sequence[float]]
) -> dict[str, int]:
    """The best match of required parameters to numbers as a whole; then the optional ones take what is left."""
    places = range(len(found))
    chosen: dict[str, int] = {}
    if needed and len(found) >= len(needed) and len(found) <= MAX_ASSIGNED and len(needed) <= MAX_ASSIGNED:
        best = max(permutations(places, len(needed)), key=lambda order: _total(needed, order, table))
        chosen = dict(zip(needed, best, strict=True))
    elif needed:
        chosen = {p: min(i, len(found) - 1) for i, p in enumerate(needed[: len(found)])}
    left = [k for k in places if k not in chosen.values()]
    for name in params:
        if name in chosen or not left or name in needed:
            continue
        best_one = max(left, key=lambda k: table[name][k])
        if table[name][best_one] >= 1:
            chosen[name] = best_one
            left.remove(best_one)
    return chosen


def _total(needed: Sequence[str], order: Sequence[int], table: Mapping[str, Sequence[float]]) -> float:
    rising = sum(a < b for a, b in zip(order, order[1:], strict=False))
    return sum(table[p][k] for p, k in zip(needed, order, strict=True)) + 0.25 * rising - 0.05 * sum(order)


def _fixed_number(number: ground.Number, schema: Mapping[str, Any], about: Schema) -> dict[str, Any] | None:
    values = list(number.values)
    words = str(about.get("description", "")).lower()
    if number.other is not None and number.other == number.value / 100 and _wants_fraction(about, words):
        values.reverse()
    if number.other is not None and "million" in words:
        values.sort()
    kept = [v for v in values if schema["type"] == "number" or isinstance(v, int)]
    kept = [v for v in kept if _in_range(v, schema)]
    if not kept:
        return None
    return {"type": schema["type"], "enum": kept[:1]}


def _wants_fraction(about: Schema, words: str) -> bool:
    if "percent" in words or "%" in words:
        return False
    return about.get("type") in ("number", "float") and ("rate" in words or "decimal" in words or "probab" in words)


def _in_range(value: float, schema: Mapping[str, Any]) -> bool:
    return not (value < schema.get("minimum", value) or value > schema.get("maximum", value))


# --- lists --------------------------------------------------------------------------------------------------------


def _list_slots(
    properties: Mapping[str, Any], originals: Mapping[str, Schema], required: set[str], request: Request
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind, lists in (("number", ground.number_lists(request.text)), ("text", ground.text_lists(request.text))):
        params = [n for n, s in properties.items() if s.get("type") == "array" and _item_kind(s) == kind]
        params = [n for n in params if n in required or _mentioned(n, originals.get(n) or {}, request)]
        left: list[list[Any]] = list(lists)
        for name in params:
            fitting = [one for one in left if _list_fits(one, properties[name])]
            if not fitting:
                continue
            best = fitting[0] if kind == "number" or len(fitting) == 1 else max(fitting, key=len)
            left.remove(best)
            out[name] = _fixed_list(best, properties[name])
    return out


def _item_kind(schema: Mapping[str, Any]) -> str:
    kind = (schema.get("items") or {}).get("type")
    return {"integer": "number", "number": "number", "string": "text"}.get(str(kind), "other")


def _list_fits(one: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    items = schema["items"]
    if not schema.get("minItems", 0) <= len(one) <= schema.get("maxItems", len(one)):
        return False
    if "enum" in items:
        return all(_same(v, items["enum"]) is not None for v in one)
    return all(not (items["type"] == "integer" and not isinstance(v, int)) for v in one)


def _fixed_list(one: Sequence[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """An array of exactly these items, in their order, as far as a schema can say it."""
    return {"type": "array", "enum": [list(one)], **({"items": schema["items"]} if "items" in schema else {})}


def _same(value: Any, options: Sequence[Any]) -> Any:
    return next((o for o in options if str(o).lower() == str(value).lower()), None)


# --- texts, choices, flags ----------------------------------------------------------------------------------------


def _needed(name: str, schema: Mapping[str, Any], about: Schema, request: Request) -> dict[str, Any]:
    """A required argument: what the request offers for it, else the schema as it was."""
    if "enum" in schema:
        named = [v for v in schema["enum"] if _value_named(v, request)]
        return {**schema, "enum": named} if named else dict(schema)
    if schema.get("type") == "string":
        return _text(name, schema, about, request)
    return dict(schema)


def _text(name: str, schema: Mapping[str, Any], about: Schema, request: Request) -> dict[str, Any]:
    """A text: one of the values that the description names, if the request says it; else a phrase of the request."""
    offered = [v for v in offers(about) if _value_named(v, request)]
    phrases = ground.phrases(request.text)
    kept = [p for p in dict.fromkeys([*offered, *phrases]) if _text_fits(p, schema)]
    return {"type": "string", "enum": kept} if kept else dict(schema)


def _text_fits(text: str, schema: Mapping[str, Any]) -> bool:
    if "format" in schema or "pattern" in schema:
        return False
    return schema.get("minLength", 0) <= len(text) <= schema.get("maxLength", len(text))


def _wanted(
    name: str, schema: Mapping[str, Any], about: Schema, request: Request, tool: ToolSpec
) -> dict[str, Any] | None:
    """An optional argument: only if the request mentions it, or one of the values that its description names."""
    if "enum" in schema:
        named = [v for v in schema["enum"] if _value_named(v, request)]
        return {**schema, "enum": named} if named else None
    match schema.get("type"):
        case "boolean":
            return {"type": "boolean", "enum": [True]} if _mentioned(name, about, request) else None
        case "string":
            named = [v for v in offers(about) if _value_named(v, request) and v != about.get("default")]
            return {"type": "string", "enum": named[:1]} if named else None
        case _:
            return None


_EMPTY_NAMES = ground.word_set(
    """
    includ is get show return enabl allow with has flag type option format list specific
    """
)


def _mentioned(name: str, about: Schema, request: Request) -> bool:
    """Whether the request says what the parameter is named for."""
    telling = ground.content(name) - _EMPTY_NAMES
    return bool(telling) and any(t in request.stems or any(_kin(t, s) for s in request.stems) for t in telling)


_OFFER = re.compile(r"['\"‘“]([^'\"’”\n]{1,40})['\"’”]")
_LISTED = re.compile(
    r"(?:e\.g\.?,?|such as|like|can be|could be|either|options?(?: are| include)?:?|example:?|例如|如)\s*([^.()（）]{2,200})",
    re.I,
)


def offers(about: Schema) -> list[str]:
    """The values that a description names: in quotes, or in a list after "e.g.", "such as", "can be"."""
    text = str(about.get("description", ""))
    out = [m.group(1).strip() for m in _OFFER.finditer(text)]
    for match in _LISTED.finditer(text):
        parts = re.split(r",|\bor\b|\band\b|/|、|或", match.group(1))
        out += [p.strip().strip("'\"‘’“”").removesuffix("etc").strip() for p in parts]
    return [v for v in dict.fromkeys(out) if v and len(v.split()) <= 3]


def _value_named(value: Any, request: Request) -> bool:
    """Whether a fixed value stands in the request, as a word or by its stem."""
    text = str(value)
    if isinstance(value, bool):
        return False
    parts = ground.content(text)
    if not parts:
        return bool(text) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", request.text, re.I) is not None
    return all(p in request.stems or any(_kin(p, s) for s in request.stems) for p in parts)
