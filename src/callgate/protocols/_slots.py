"""Slots: each argument's schema, narrowed to what the request offers for it.

One law: narrowing never admits a value that the tool's own schema refuses, and a slot with nothing to copy keeps the
schema it had.

A small model reads a request badly but picks well among a few things that stand in it. So numbers and names are
matched to parameters by the words around them (`_match`), lists are found whole, other texts are offered as phrases to
pick from, and optional parameters that the request does not mention are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from callgate.protocols import _ground as ground
from callgate.protocols._match import Asked, kin, match_numbers, match_texts, text_score, wants_expression
from callgate.protocols._schemas import ENGINES, Engine, bounded
from callgate.types import Schema, ToolSpec

MAX_OFFERED = 24
"""Phrases that the model picks from; the least fitting are not offered."""

_EMPTY_NAMES = ground.word_set(
    "includ is get show return enabl allow with has flag type option format list specific num"
)


def narrow(tool: ToolSpec, text: str, engine: Engine = ENGINES["llamacpp"]) -> dict[str, Any]:
    """The tool's arguments schema, narrowed to the request."""
    whole = bounded(tool.parameters, engine)
    if whole.get("type") != "object" or not whole["properties"]:
        return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    return _narrow_object(whole, tool.parameters, Asked.of(text))


def _narrow_object(whole: Mapping[str, Any], original: Schema, asked: Asked) -> dict[str, Any]:
    said = original.get("properties") or {}
    abouts: dict[str, Schema] = {k: v for k, v in said.items() if isinstance(v, Mapping)}
    required: set[str] = set(original.get("required") or ())
    properties: Mapping[str, Any] = whole["properties"]
    lists = _list_slots(properties, abouts, required, asked)
    numeric = _numeric_slots(properties, abouts, required, asked)
    texts = _text_slots(properties, abouts, required, asked)
    made: dict[str, Any] = {}
    for name, schema in properties.items():
        slot = lists.get(name) or numeric.get(name) or texts.get(name)
        if slot is None and name in required:
            slot = _needed(schema, abouts.get(name) or {}, asked)
        elif slot is None:
            slot = _wanted(name, schema, abouts.get(name) or {}, asked)
        if slot is not None:
            made[name] = slot
    return {"type": "object", "properties": made, "required": list(made), "additionalProperties": False}


def ungrounded(tool: ToolSpec, arguments: Mapping[str, Any], text: str) -> list[str]:
    """The names of arguments with a number or a text that does not stand in what was said. What the schema itself
    offers (the members of an enum, a default) needs no such ground."""
    numbers = {v for n in ground.numbers(text) for v in n.values}
    lowered = text.lower()
    properties = tool.parameters.get("properties") or {}

    def stands(value: Any) -> bool:
        match value:
            case bool() | None:
                return True
            case str():
                return value.strip().lower() in lowered
            case int() | float():
                return value in numbers
            case list():
                return all(map(stands, value))
            case dict():
                return all(map(stands, value.values()))
            case _:
                return True

    out = []
    for name, value in arguments.items():
        about = properties.get(name)
        about = about if isinstance(about, Mapping) else {}
        offered = "enum" in about or "const" in about or ("default" in about and about["default"] == value)
        if not offered and not stands(value):
            out.append(name)
    return out


# --- numbers ------------------------------------------------------------------------------------------------------


def _numeric_slots(
    properties: Mapping[str, Any], abouts: Mapping[str, Schema], required: set[str], asked: Asked
) -> dict[str, Any]:
    """The numeric parameters that take a number of the request: one, or where the words do not tell, one of several."""
    params = [n for n, s in properties.items() if s.get("type") in ("integer", "number") and "enum" not in s]
    has_list = any(s.get("type") == "array" for s in properties.values())
    chosen = match_numbers(params, required, abouts, asked, has_list=has_list)
    out: dict[str, Any] = {}
    for name, candidates in chosen.items():
        values = [
            v for n in candidates if (v := _number_value(n, properties[name], abouts.get(name) or {})) is not None
        ]
        if values:
            out[name] = {"type": properties[name]["type"], "enum": list(dict.fromkeys(values))}
    return out


def _number_value(number: ground.Number, schema: Mapping[str, Any], about: Schema) -> float | int | None:
    """The value of a number for a parameter: 5% is 5 or 0.05, whichever its description wants."""
    values = list(number.values)
    words = str(about.get("description", "")).lower()
    if number.other is not None and "million" in words:
        values.sort()
    elif number.other is not None and number.percent and _wants_fraction(about, words):
        values.reverse()
    fitting = [v for v in values if schema["type"] == "number" or isinstance(v, int)]
    fitting = [v for v in fitting if schema.get("minimum", v) <= v <= schema.get("maximum", v)]
    return fitting[0] if fitting else None


def _wants_fraction(about: Schema, words: str) -> bool:
    if re.search(r"decimal|fraction|\b0\.\d", words):
        return True
    return about.get("type") == "number" and "percent" not in words and "%" not in words


# --- lists --------------------------------------------------------------------------------------------------------


def _list_slots(
    properties: Mapping[str, Any], abouts: Mapping[str, Schema], required: set[str], asked: Asked
) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for kind, lists in (("number", ground.number_lists(asked.text)), ("text", ground.text_lists(asked.text))):
        params = [n for n, s in properties.items() if s.get("type") == "array" and _item_kind(s) == kind]
        params = [
            n for n in params if n in required or _mentioned(n, asked) or _offers_named(abouts.get(n) or {}, asked)
        ]
        left: list[list[Any]] = list(lists)
        for name in params:
            if kind == "text" and (named := _listed(name, abouts.get(name) or {}, properties[name], asked)):
                out[name] = {"type": "array", "enum": named}
                continue
            fitting = [one for one in left if _list_fits(one, properties[name])]
            if not fitting:
                continue
            best = fitting[0] if kind == "number" or len(params) > 1 else max(fitting, key=len)
            left.remove(best)
            out[name] = {"type": "array", "enum": [[_as_item(v, properties[name]) for v in best]]}
    return out


def _offers_named(about: Schema, asked: Asked) -> bool:
    return any(_value_named(v, asked) for v in offers(about))


def _listed(name: str, about: Schema, schema: Mapping[str, Any], asked: Asked) -> list[list[str]]:
    """Lists for a parameter without a row in the request: the values that its description names and the request says;
    where there is no row at all, each fitting phrase alone."""
    options = schema["items"].get("enum") or offers(about)
    named = [v for v in options if _value_named(v, asked)]
    if named or "enum" in schema["items"]:
        return [named] if named else []
    if ground.text_lists(asked.text):
        return []
    spans = match_texts([name], {name: about}, asked).get(name, [])
    return [[s.text] for s in spans[:MAX_OFFERED]]


def _item_kind(schema: Mapping[str, Any]) -> str:
    kind = (schema.get("items") or {}).get("type")
    return {"integer": "number", "number": "number", "string": "text"}.get(str(kind), "other")


def _list_fits(one: Sequence[Any], schema: Mapping[str, Any]) -> bool:
    if not schema.get("minItems", 0) <= len(one) <= schema.get("maxItems", len(one)):
        return False
    if schema["items"]["type"] == "integer" and not all(isinstance(v, int) for v in one):
        return False
    return all(_as_item(v, schema) is not None for v in one)


def _as_item(value: Any, schema: Mapping[str, Any]) -> Any:
    options = schema["items"].get("enum")
    if options is None:
        return value
    return next((o for o in options if ground.stem(str(o)) == ground.stem(str(value))), None)


# --- texts --------------------------------------------------------------------------------------------------------


def _text_slots(
    properties: Mapping[str, Any], abouts: Mapping[str, Schema], required: set[str], asked: Asked
) -> dict[str, Any]:
    """The required texts: one phrase where the words around it tell, else some to pick from, the most fitting first."""
    params = []
    out: dict[str, Any] = {}
    for name, schema in properties.items():
        about = abouts.get(name) or {}
        if name not in required or schema.get("type") != "string" or "enum" in schema or "format" in schema:
            continue
        if wants_expression(name, about) and (expression := ground.expression(asked.text)):
            out[name] = {"type": "string", "enum": [expression]}
            continue
        if named := _named_offers(name, about, asked):
            out[name] = {"type": "string", "enum": named}
        else:
            params.append(name)
    for name, spans in match_texts(params, abouts, asked).items():
        values = [_written(s, abouts.get(name) or {}) for s in spans[:MAX_OFFERED]]
        schema = properties[name]
        low, high = schema.get("minLength", 0), schema.get("maxLength", 10_000)
        if fitting := [v for v in dict.fromkeys(values) if low <= len(v) <= high]:
            out[name] = {"type": "string", "enum": fitting}
    return out


def _named_offers(name: str, about: Schema, asked: Asked) -> list[str]:
    """Those of the values that the description names that the request says; the most fitting alone if that is clear."""
    if "languag" in ground.content(name) and not any(_value_named(v, asked) for v in offers(about)):
        return [] if ground.names(asked.text) else ["English" if asked.text.isascii() else "Chinese"]
    named = []
    for value in offers(about):
        if _value_named(value, asked):
            at = asked.text.lower().find(ground.stem(value))
            span = ground.Span(value, at, at + len(value), "phrase")
            named.append((text_score(name, about, span, asked), value))
    named.sort(key=lambda pair: -pair[0])
    if len(named) > 1 and named[0][0] - named[1][0] >= 1:
        return [named[0][1]]
    return [value for _, value in named]


_FORMATS = (
    (re.compile(r"YYYY-MM-DD", re.I), "{y:04d}-{m:02d}-{d:02d}"),
    (re.compile(r"YYYY/MM/DD", re.I), "{y:04d}/{m:02d}/{d:02d}"),
    (re.compile(r"MM-DD-YYYY", re.I), "{m:02d}-{d:02d}-{y:04d}"),
    (re.compile(r"MM/DD/YYYY", re.I), "{m:02d}/{d:02d}/{y:04d}"),
    (re.compile(r"DD-MM-YYYY", re.I), "{d:02d}-{m:02d}-{y:04d}"),
    (re.compile(r"DD/MM/YYYY", re.I), "{d:02d}/{m:02d}/{y:04d}"),
)


def _written(span: ground.Span, about: Schema) -> str:
    """A phrase as the parameter wants it written: a date in the form that its description names."""
    if span.kind != "date":
        return span.text
    parts = ground.date_parts(span.text)
    words = str(about.get("description", ""))
    for pattern, form in _FORMATS:
        if parts is not None and pattern.search(words):
            year, month, day = parts
            return form.format(y=year, m=month, d=day)
    return span.text


# --- choices, flags, the rest -------------------------------------------------------------------------------------


def _needed(schema: Mapping[str, Any], about: Schema, asked: Asked) -> dict[str, Any]:
    """A required argument that no word of the request decides."""
    if "enum" in schema:
        named = [v for v in schema["enum"] if _value_named(v, asked)]
        return {**schema, "enum": named} if named else dict(schema)
    if schema.get("type") == "object" and schema.get("properties"):
        return _narrow_object(schema, about, asked)
    if schema.get("type") == "integer" and "week" in asked.stems and "day" in str(about.get("description", "")):
        return {**schema, "enum": [7]}
    return dict(schema)


def _wanted(name: str, schema: Mapping[str, Any], about: Schema, asked: Asked) -> dict[str, Any] | None:
    """An optional argument: only if the request mentions it, or one of the values that its description names."""
    if "enum" in schema:
        named = [v for v in schema["enum"] if _value_named(v, asked)]
        return {**schema, "enum": named} if named else None
    match schema.get("type"):
        case "boolean":
            return {"type": "boolean", "enum": [True]} if _mentioned(name, asked) else None
        case "string":
            named = [v for v in offers(about) if _value_named(v, asked) and v != about.get("default")]
            if not named and "unit" in name.lower():
                named = ground.unit_asked(asked.text)
            return {"type": "string", "enum": named[:1]} if named else None
        case _:
            return None


def _mentioned(name: str, asked: Asked) -> bool:
    """Whether the request says what the parameter is named for."""
    telling = ground.content(name) - _EMPTY_NAMES
    return bool(telling) and any(t in asked.stems or any(kin(t, s) for s in asked.stems) for t in telling)


_OFFER = re.compile(r"['\"‘“]([^'\"’”\n]{1,40})['\"’”]")
_LISTED = re.compile(
    r"(?:e\.g\.?,?|such as|like|can be|could be|either|options?(?: are| include)?:?|example:?|例如|如)"
    r"\s*([^.()（）]{2,200})",
    re.IGNORECASE,
)


def offers(about: Schema) -> list[str]:
    """The values that a description names: in quotes, or in a list after "e.g.", "such as", "can be"."""
    text = str(about.get("description", ""))
    out = [m.group(1).strip() for m in _OFFER.finditer(text)]
    for match in _LISTED.finditer(text):
        parts = re.split(r",|\bor\b|\band\b|/|、|或", match.group(1))
        out += [p.strip().strip("'\"‘’“”").removesuffix("etc").strip() for p in parts]
    return [v for v in dict.fromkeys(out) if v and len(v.split()) <= 3]


def _value_named(value: Any, asked: Asked) -> bool:
    """Whether a fixed value stands in the request, as a word or by its stem."""
    if isinstance(value, bool):
        return False
    text = str(value)
    if match := re.fullmatch(r"(\d+)([A-Za-z])", text):  # 24h is said as "24 hour"
        return re.search(rf"\b{match[1]}[\s-]?{match[2]}", asked.text, re.IGNORECASE) is not None
    parts = ground.content(text)
    if not parts:
        return bool(text) and re.search(rf"(?<!\w){re.escape(text)}(?!\w)", asked.text, re.IGNORECASE) is not None
    return all(p in asked.stems or any(kin(p, s) for s in asked.stems) for p in parts)
