"""Slots: each argument's schema, narrowed to what the request offers for it.

Law: narrowing never admits a value that the tool's own schema refuses, and a slot with nothing to copy keeps the
schema it had. (tests/test_grounding_laws.py::test_every_offered_value_is_valid_under_the_tools_own_schema)

A small model reads a request badly but picks well among a few things that stand in it. So numbers and names are
matched to parameters by the words around them (`matching`), lists are found whole, other texts are offered as phrases
to pick from, and optional parameters that the request does not mention are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callgate.grounding import dates, extract, numerals, spelt, wording
from callgate.grounding.matching import Asked, match_numbers, match_texts, text_score
from callgate.schema.compiled import CompiledSchema, compile_schema

if TYPE_CHECKING:
    from callgate.types import Schema, ToolSpec

MAX_OFFERED = 24
"""Phrases that the model picks from; the least fitting are not offered."""

_EMPTY_NAMES = wording.word_set(
    "includ is get show return enabl allow with has flag type option format list specific num"
)


def narrow(tool: ToolSpec, whole: Mapping[str, object], text: str) -> dict[str, Any]:
    """The tool's arguments schema, narrowed to the request. `whole` is that schema bounded for the engine."""
    if whole.get("type") != "object" or not whole["properties"]:
        return _closed({})
    return _Narrowing(Asked.of(text, _terms(tool)), compile_schema(tool.parameters), "").object(whole, tool.parameters)


_EXAMPLE = re.compile(r"(?:例如|比如|譬如|如[:：]?|e\.g\.).*", re.DOTALL)


def _terms(tool: ToolSpec) -> frozenset[str]:
    """The Chinese terms in which a tool and its parameters are described, without their examples."""
    properties = tool.parameters.get("properties") or {}
    abouts = [str(s.get("description", "")) for s in properties.values() if isinstance(s, Mapping)]
    return frozenset(t for text in (tool.description, *abouts) for t in wording.han_terms(_EXAMPLE.sub("", text)))


def _closed(properties: dict[str, object]) -> dict[str, object]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(slots=True, frozen=True)
class _Narrowing:
    """One object of a schema, held against a request."""

    asked: Asked
    compiled: CompiledSchema
    """The tool's own schema: it has the last word on every value."""
    at: str
    """The JSON pointer of this object's schema."""

    def object(self, whole: Mapping[str, Any], original: Schema) -> dict[str, Any]:
        """The object with its properties narrowed; those that are not asked for are left out."""
        given = original.get("properties") or {}
        abouts: dict[str, Schema] = {k: v for k, v in given.items() if isinstance(v, Mapping)}
        required: set[str] = set(original.get("required") or ())
        properties: Mapping[str, Any] = whole["properties"]
        found = _text_slots(properties, abouts, required, self.asked)
        found |= _numeric_slots(properties, abouts, required, self.asked)
        found |= _list_slots(properties, abouts, required, self.asked)
        made: dict[str, Any] = {}
        for name, schema in properties.items():
            slot = self._valid(name, found.get(name))
            if slot is None and name in required:
                slot = self._needed(name, schema, abouts.get(name) or {})
            elif slot is None:
                slot = self._valid(name, _wanted(name, schema, abouts.get(name) or {}, self.asked))
            if slot is not None:
                made[name] = slot
        return _closed(made)

    def _needed(self, name: str, schema: Mapping[str, Any], about: Schema) -> dict[str, Any]:
        """A required argument that no word of the request decides."""
        if "enum" in schema:
            named = [v for v in schema["enum"] if _value_named(v, self.asked)]
            offered = self._valid(name, {**schema, "enum": named}) or self._valid(name, dict(schema))
            return offered or dict(schema)
        if schema.get("type") == "object" and schema.get("properties"):
            inner = _Narrowing(self.asked, self.compiled, self._pointer(name))
            return inner.object(schema, about)
        return dict(schema)

    def _valid(self, name: str, slot: dict[str, Any] | None) -> dict[str, Any] | None:
        """The slot with those of its values that the tool's own schema takes; None: there is none."""
        if slot is None or "enum" not in slot:
            return slot
        pointer = self._pointer(name)
        values = [value for value in slot["enum"] if self.compiled.valid_at(pointer, value)]
        return {**slot, "enum": values} if values else None

    def _pointer(self, name: str) -> str:
        return f"{self.at}/properties/{name.replace('~', '~0').replace('/', '~1')}"


# --- values that must stand in the request ------------------------------------------------------------------------


def ungrounded(tool: ToolSpec, arguments: Mapping[str, object], text: str) -> list[str]:
    """The names of arguments with a number or a text that does not stand in what was said, to the letter, or that the
    schema refuses. What the schema itself offers (the members of an enum, a default) needs no such ground."""
    compiled = compile_schema(tool.parameters)
    properties = tool.parameters.get("properties") or {}
    known = _Known.of(text)
    out = []
    for name, value in arguments.items():
        about = properties.get(name)
        about = about if isinstance(about, Mapping) else {}
        pointer = f"/properties/{name.replace('~', '~0').replace('/', '~1')}"
        valid = name not in properties or compiled.valid_at(pointer, value)
        if not valid or not (
            known.holds(value, about) or (isinstance(value, str) and known.writes(value, name, about))
        ):
            out.append(name)
    return out


@dataclass(slots=True, frozen=True)
class _Known:
    """What was said, as values."""

    text: str
    numbers: frozenset[float | int]
    days: frozenset[tuple[int, int, int]]

    @classmethod
    def of(cls, text: str) -> _Known:
        """Take a text apart."""
        numbers = frozenset(v for n in numerals.numbers(text) if not n.ordinal for v in n.values)
        days = frozenset(d for date in extract.dates(text) if (d := dates.date_parts(date)) is not None)
        return cls(text, numbers, days)

    def holds(self, value: object, about: Schema) -> bool:
        """Whether a value stands in the text, or is offered by its schema."""
        if "enum" in about or "const" in about or ("default" in about and about["default"] == value):
            return True
        match value:
            case bool() | None:
                return True
            case str():
                return wording.stands(value, self.text) or dates.date_parts(value) in self.days
            case int() | float():
                return value in self.numbers
            case list():
                return all(self.holds(item, _inner(about, "items")) for item in value)
            case dict():
                inner = _inner(about, "properties")
                return all(self.holds(item, _inner(inner, key)) for key, item in value.items())
            case _:
                return True

    def writes(self, value: str, name: str, about: Schema) -> bool:
        """Whether a text is the arithmetic that the request asks for in words."""
        return numerals.wants_expression(name, about) and value == numerals.expression(self.text)


def _inner(schema: Schema, key: str) -> Schema:
    found = schema.get(key)
    return found if isinstance(found, Mapping) else {}


# --- numbers ------------------------------------------------------------------------------------------------------


def _numeric_slots(
    properties: Mapping[str, Any], abouts: Mapping[str, Schema], required: set[str], asked: Asked
) -> dict[str, object]:
    """The numeric parameters that take a number of the request: one, or where the words do not tell, one of several."""
    params = [n for n, s in properties.items() if s.get("type") in ("integer", "number") and "enum" not in s]
    has_list = any(s.get("type") == "array" for s in properties.values())
    chosen = match_numbers(params, required, abouts, asked, has_list=has_list)
    out: dict[str, object] = {}
    for name, candidates in chosen.items():
        about = abouts.get(name) or {}
        values = [v for n in candidates if (v := _number_value(n, properties[name], about)) is not None]
        if values:
            out[name] = {"type": properties[name]["type"], "enum": list(dict.fromkeys(values))}
    return out


def _number_value(number: spelt.Number, schema: Mapping[str, Any], about: Schema) -> float | int | None:
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
) -> dict[str, object]:
    wanted = {n: s for n, s in properties.items() if _wants_list(n, s, abouts.get(n) or {}, required, asked)}
    numbers = {n: schema for n, schema in wanted.items() if _item_kind(schema) == "number"}
    texts = {n: schema for n, schema in wanted.items() if n not in numbers}
    found = {n: _listed(n, abouts.get(n) or {}, schema, asked) for n, schema in texts.items()}
    named = {n: {"type": "array", "enum": lists} for n, lists in found.items() if lists}
    # A request that lists things lists all of them, so a parameter that stands alone gets the longest row.
    alone = len(texts) == 1
    rows = _row_slots({n: s for n, s in texts.items() if n not in named}, extract.text_lists(asked.text), longest=alone)
    return _row_slots(numbers, numerals.number_lists(asked.text), longest=False) | named | rows


def _wants_list(name: str, schema: Mapping[str, Any], about: Schema, required: set[str], asked: Asked) -> bool:
    """Whether a list is to be filled in: it must be, or the request speaks of it or of one of its values."""
    if _item_kind(schema) not in ("number", "text"):
        return False
    return name in required or _mentioned(name, asked) or _offers_named(schema, about, asked)


def _row_slots(params: Mapping[str, Any], lists: Iterable[Sequence[object]], *, longest: bool) -> dict[str, object]:
    """For each list parameter a row of the request that fits it; a row is given once."""
    left = list(lists)
    out: dict[str, object] = {}
    for name, schema in params.items():
        fitting = [one for one in left if _list_fits(one, schema)]
        if fitting:
            best = max(fitting, key=len) if longest else fitting[0]
            left.remove(best)
            out[name] = {"type": "array", "enum": [[_as_item(v, schema) for v in best]]}
    return out


def _offers_named(schema: Mapping[str, Any], about: Schema, asked: Asked) -> bool:
    """Whether the request says one of the values that the list may hold."""
    return any(_value_named(v, asked) for v in schema["items"].get("enum") or offers(about))


def _listed(name: str, about: Schema, schema: Mapping[str, Any], asked: Asked) -> list[list[str]]:
    """Lists for a parameter without a row in the request: the values that its description names and the request says;
    where there is no row at all, each fitting phrase alone."""
    options = schema["items"].get("enum") or offers(about)
    named = [v for v in options if _value_named(v, asked)]
    if named or "enum" in schema["items"]:
        return [named] if named else []
    if extract.text_lists(asked.text):
        return []
    spans = match_texts([name], {name: about}, asked).get(name, [])
    return [[s.text] for s in spans[:MAX_OFFERED]]


def _item_kind(schema: Mapping[str, Any]) -> str:
    """What a list holds: "number", "text" or "other"; "none" for what is no list."""
    if schema.get("type") != "array":
        return "none"
    kind = (schema.get("items") or {}).get("type")
    return {"integer": "number", "number": "number", "string": "text"}.get(str(kind), "other")


def _list_fits(one: Sequence[object], schema: Mapping[str, Any]) -> bool:
    if not schema.get("minItems", 0) <= len(one) <= schema.get("maxItems", len(one)):
        return False
    if schema["items"]["type"] == "integer" and not all(isinstance(v, int) for v in one):
        return False
    return all(_as_item(v, schema) is not None for v in one)


def _as_item(value: Any, schema: Mapping[str, Any]) -> Any:
    options = schema["items"].get("enum")
    if options is None:
        return value
    return next((o for o in options if wording.stem(str(o)) == wording.stem(str(value))), None)


# --- texts --------------------------------------------------------------------------------------------------------


def _text_slots(
    properties: Mapping[str, Any], abouts: Mapping[str, Schema], required: set[str], asked: Asked
) -> dict[str, Any]:
    """The required texts: one phrase where the words around it tell, else some to pick from, the most fitting first."""
    free = {n: s for n, s in properties.items() if n in required and _is_free_text(s)}
    certain = {name: _certain_texts(name, abouts.get(name) or {}, asked) for name in free}
    out: dict[str, object] = {name: {"type": "string", "enum": values} for name, values in certain.items() if values}
    params = [name for name in free if name not in out]
    for name, spans in match_texts(params, abouts, asked).items():
        values = [_written(s, abouts.get(name) or {}, asked) for s in spans[:MAX_OFFERED]]
        if fitting := _of_length(dict.fromkeys(values), properties[name]):
            out[name] = {"type": "string", "enum": fitting}
    return out


def _of_length(values: Iterable[str], schema: Mapping[str, Any]) -> list[str]:
    low, high = schema.get("minLength", 0), schema.get("maxLength", 10_000)
    return [value for value in values if low <= len(value) <= high]


def _is_free_text(schema: Mapping[str, object]) -> bool:
    """Whether a parameter takes any text; one with a format or with options is narrowed elsewhere."""
    return schema.get("type") == "string" and "enum" not in schema and "format" not in schema


def _certain_texts(name: str, about: Schema, asked: Asked) -> list[str]:
    """What a text parameter must hold by its own description: the request's arithmetic, or one of the values named."""
    if numerals.wants_expression(name, about) and (expression := numerals.expression(asked.text)):
        return [expression]
    return _named_offers(name, about, asked)


def _named_offers(name: str, about: Schema, asked: Asked) -> list[str]:
    """Those of the values that the description names that the request says; the most fitting alone if that is clear."""
    named = []
    for value in offers(about):
        if _value_named(value, asked):
            at = asked.text.lower().find(wording.stem(value))
            span = extract.Span(value, at, at + len(value), "phrase")
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


_STATE = re.compile(r"\s*,\s*(?:[A-Z]{2}\b|[A-Z][a-z]+(?:\s[A-Z][a-z]+)?)")


def _written(span: extract.Span, about: Schema, asked: Asked) -> str:
    """A phrase as the parameter wants it written: a date in the form that its description names, a city with the state
    behind it."""
    words = str(about.get("description", ""))
    if span.kind == "name" and re.search(r"\bstate\b|\bcountry\b", words) and re.search(r"\bcity\b", words):
        behind = _STATE.match(asked.text, span.end)
        return span.text + behind.group() if behind and asked.text.startswith(span.text, span.start) else span.text
    if span.kind != "date":
        return span.text
    parts = dates.date_parts(span.text)
    for pattern, form in _FORMATS:
        if parts is not None and pattern.search(words):
            year, month, day = parts
            return form.format(y=year, m=month, d=day)
    return span.text


# --- choices, flags, the rest -------------------------------------------------------------------------------------


def _wanted(name: str, schema: Mapping[str, Any], about: Schema, asked: Asked) -> dict[str, object] | None:
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
                named = extract.unit_asked(asked.text)
            named = named or _behind_its_words(name, asked)
            return {"type": "string", "enum": named[:1]} if named else None
        case _:
            return None


def _behind_its_words(name: str, asked: Asked) -> list[str]:
    """The names and quoted texts that stand right behind what the parameter is called: "directed by Jordan Peele"."""
    telling = wording.content(name) - _EMPTY_NAMES
    out = []
    for span in extract.spans(asked.text, asked.known):
        if span.kind in ("name", "quoted"):
            before = [w for w in asked.words if w.end <= span.start and w.text[:1].isalnum()][-2:]
            near = [w for w in before if w.text.lower() not in wording.STOP][-1:]
            out += [span.text for w in near if w.stem in telling]
    return out


def _mentioned(name: str, asked: Asked) -> bool:
    """Whether the request says what the parameter is named for."""
    telling = wording.content(name) - _EMPTY_NAMES
    return bool(telling) and any(t in asked.stems or any(wording.kin(t, s) for s in asked.stems) for t in telling)


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


def _value_named(value: object, asked: Asked) -> bool:
    """Whether a fixed value stands in the request, as a word or by its stem."""
    if isinstance(value, bool):
        return False
    text = str(value)
    if match := re.fullmatch(r"(\d+)([A-Za-z])", text):  # 24h is said as "24 hour"
        return re.search(rf"\b{match[1]}[\s-]?{match[2]}", asked.text, re.IGNORECASE) is not None
    return wording.named(text, asked.text)
