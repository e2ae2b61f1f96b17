"""`mend`: a call's arguments against its schema: read, repaired, coerced, checked.

Strict first, then repair, then coercion of the fields that fail; all of it is reported (`repaired`, `coerced`,
`notes`), and what cannot be done faithfully is not done.

Law: valid input is never touched.
(tests/test_schema_laws.py::test_valid_input_comes_back_identical)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from callgate.schema._coerce import fit
from callgate.schema._explain import explain
from callgate.schema._loose import MAX_DEPTH, CutOff, Unreadable
from callgate.schema._place import escape
from callgate.schema._quote import show
from callgate.schema._read import SLOW, Read, half_characters, read_text, scan
from callgate.schema.compiled import CompiledSchema

if TYPE_CHECKING:
    from callgate.types import Schema

Outcome: TypeAlias = Literal["ok", "invalid", "malformed", "incomplete"]


@dataclass(slots=True)
class Mended:
    """What became of the arguments. Made once a call, so slotted only (a frozen one costs 0.4 us more)."""

    outcome: Outcome
    """"ok": fits the schema. "invalid": read, but does not fit. "malformed": cannot be read. "incomplete": cut off."""
    value: object = None
    """The arguments; None unless they could be read."""
    repaired: bool = False
    """The text was no strict JSON and was read all the same. No write runs on it."""
    coerced: list[str] = field(default_factory=list)
    """JSON pointers of the values that were converted."""
    errors: list[tuple[str, str]] = field(default_factory=list)
    """(JSON pointer, message): what is wrong, for the model."""
    notes: list[str] = field(default_factory=list)
    """What was odd and what was done about it."""

    @property
    def ok(self) -> bool:
        """Whether the arguments may be used."""
        return self.outcome == "ok"

    def explain(self) -> str:
        """The errors for a model: one line what happened, one line an error."""
        head = _HEADS[self.outcome]
        lines = [f"{pointer or '/'}: {message}" for pointer, message in self.errors]
        return "\n".join([head, *lines]) if lines else head


_HEADS = {
    "ok": "The arguments are valid.",
    "invalid": "The arguments do not fit the tool's schema. Nothing was run. Call again with these corrected:",
    "malformed": "The arguments cannot be read as a JSON object. Nothing was run. Call again with valid JSON:",
    "incomplete": "The arguments were cut off. Nothing was run. Call again, with the whole JSON object.",
}


def mend(arguments: str | Mapping[str, object] | object, schema: Schema | bool | CompiledSchema) -> Mended:
    """The arguments of a call, read and checked against its schema.

    `arguments` is the model's text or a value that is read already. Never raises for what a model can send; a schema
    that is none raises ConfigError.
    """
    compiled = schema if isinstance(schema, CompiledSchema) else CompiledSchema(schema)
    if not isinstance(arguments, str):
        return _value(arguments, compiled)
    value = scan(arguments)
    if value is not SLOW and compiled.accepts(value):
        return Mended("ok", value, False, [], [], [*compiled.notes])
    return _text(arguments, compiled)


def _text(text: str, compiled: CompiledSchema) -> Mended:
    if not text.strip():
        return _checked(Read({}) if "object" in compiled.types else Read(None), compiled)
    container = "{" if compiled.wants_object else None
    try:
        read = read_text(text, container=container)
    except CutOff:
        return Mended("incomplete", errors=[("", "the text ends inside the object")], notes=list(compiled.notes))
    except Unreadable as error:
        return Mended("malformed", errors=[("", str(error))], notes=list(compiled.notes))
    return _checked(read, compiled)


def _value(value: object, compiled: CompiledSchema) -> Mended:
    if isinstance(value, Mapping) and type(value) is not dict:
        value = dict(value)
    for pointer, problem in odd_parts(value):
        if pointer is None:
            return Mended("malformed", errors=[("", problem)], notes=list(compiled.notes))
        return Mended("invalid", value, errors=[(pointer, problem)], notes=list(compiled.notes))
    if isinstance(value, str) and compiled.wants_object:
        return _text(value, compiled)
    return _checked(Read(value), compiled, survey=False)


def _checked(read: Read, compiled: CompiledSchema, *, survey: bool = True) -> Mended:
    value, repaired = read.value, bool(read.liberties)
    notes = [*compiled.notes, *read.notes, *(f"repaired: {what}" for what in read.liberties)]
    if value is None and "object" in compiled.types and not _wants_null(compiled):
        value = {}
    if compiled.wants_object and not isinstance(value, dict):
        return Mended("malformed", errors=[("", f"expected an object, got {show(value)}")], notes=notes)
    if survey:
        for pointer, problem in odd_parts(value):
            return Mended("invalid", value, repaired, errors=[(pointer or "", problem)], notes=notes)
    coerced: list[str] = []
    if not compiled.valid(value):
        done = fit(value, compiled)
        value, coerced = done.value, done.coerced
        notes += [f"{pointer}: null dropped, the parameter is optional" for pointer in done.dropped]
        if not done.cost or not compiled.valid(value):
            return Mended("invalid", value, repaired, coerced, explain(value, compiled), notes)
    refused = compiled.refusals(value)
    return Mended("invalid" if refused else "ok", value, repaired, coerced, refused, notes)


def _wants_null(compiled: CompiledSchema) -> bool:
    return "null" in compiled.types and len(compiled.types) < 7


_KINDS = (str, bool, int, float, dict, list)


def _json_kind(item: object) -> type | None:
    """Which of JSON's types a value is of; subclasses count, tuples are lists. None: of none."""
    if item is None:
        return bool
    kind = type(item)
    if kind in _KINDS:
        return kind
    if kind is tuple:
        return list
    return next((known for known in _KINDS if isinstance(item, known)), None)


def odd_parts(value: object) -> Iterator[tuple[str | None, str]]:
    """What no JSON text can hold: (pointer, problem); pointer None for nesting beyond MAX_DEPTH."""
    todo: list[tuple[Any, tuple[object, ...], int]] = [(value, (), 0)]
    while todo:
        item, path, depth = todo.pop()
        kind = _json_kind(item)
        if kind is not dict and kind is not list:
            if problem := _odd_leaf(item, kind):
                yield _pointer(path), problem
            continue
        if depth >= MAX_DEPTH:
            yield None, f"nested deeper than {MAX_DEPTH} levels (MAX_DEPTH)"
            return
        if kind is list:
            todo += [(child, (path, i), depth + 1) for i, child in enumerate(item)]
            continue
        for key in item:
            if type(key) is not str or half_characters(key):
                yield _pointer(path), f"the key {key!r} is no text"
                return
        todo += [(child, (path, key), depth + 1) for key, child in item.items()]


def _odd_leaf(item: Any, kind: type | None) -> str | None:
    """Why a value without parts is no JSON; None: it is."""
    if kind is str:
        return "holds half of a surrogate pair, which is no text" if half_characters(item) else None
    if kind is float:
        return f"{item} is no JSON number" if item - item != 0.0 else None  # true of NaN and of both infinities
    return f"{type(item).__name__} is no JSON value" if kind is None else None


def _pointer(path: tuple[Any, ...]) -> str:
    parts: list[str] = []
    while path:
        path, key = path
        parts.append(f"/{escape(str(key))}")
    return "".join(reversed(parts))
