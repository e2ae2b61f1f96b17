"""Reads the fields of a request's body, each with its place, and keeps those that nobody asked for.

Law: a field of a wrong type is an `InvalidRequest` that names its place, and a field that is not read is kept as it is.
(tests/test_formats_requests.py::test_errors_name_the_field_that_is_wrong)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from callgate.errors import InvalidRequest
from callgate.jsonstream import DECODE_ERRORS, load
from callgate.types import EMPTY, Message, Part, ToolCall

T = TypeVar("T")
_KINDS: Mapping[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "an integer",
    list: "a list",
    dict: "an object",
}
MAX_DEPTH = 64
"""Nesting of a body. Real ones stay below 20; what is deeper only means to exhaust whoever reads it recursively."""


def kind_of(value: object) -> str:
    """What a value is, in the words of JSON."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return "a number"
    return next((words for kind, words in _KINDS.items() if isinstance(value, kind)), type(value).__name__)


class Fields:
    """One object of a body: fields are taken out of it one by one, and `rest` is what is left."""

    def __init__(self, value: object, place: str = "") -> None:
        self.place = place
        if not isinstance(value, Mapping):
            raise self.wrong("", f"an object is needed, not {kind_of(value)}")
        self._rest: dict[str, object] = dict(value)

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    def at(self, name: str) -> str:
        """The place of a field: "messages[2].content"."""
        return f"{self.place}.{name}".strip(".")

    def wrong(self, name: str, reason: str) -> InvalidRequest:
        """The error for a field."""
        return InvalidRequest(self.at(name) or "body", reason)

    def peek(self, name: str) -> object:
        """A field's value; it stays."""
        return self._rest.get(name)

    def take(self, name: str) -> object:
        """A field of any type; None: it is null or not there."""
        return self._rest.pop(name, None)

    def rest(self) -> dict[str, object]:
        """The fields that nobody took."""
        return self._rest

    def _typed(self, name: str, kind: type[T]) -> T | None:
        value = self.take(name)
        if value is None or (isinstance(value, kind) and not (kind is not bool and isinstance(value, bool))):
            return value
        raise self.wrong(name, f"{_KINDS[kind]} is needed, not {kind_of(value)}")

    def text(self, name: str) -> str | None:
        """A text."""
        return self._typed(name, str)

    def needed(self, name: str) -> str:
        """A text that must be there and not be empty."""
        value = self.text(name)
        if not value:
            raise self.wrong(name, "missing" if value is None else "empty")
        return value

    def flag(self, name: str) -> bool | None:
        """True or false."""
        return self._typed(name, bool)

    def integer(self, name: str) -> int | None:
        """A whole number."""
        return self._typed(name, int)

    def number(self, name: str) -> int | float | None:
        """A number."""
        value = self.peek(name)
        if not isinstance(value, float):
            return self._typed(name, int)
        self.take(name)
        return value

    def inner(self, name: str) -> Fields | None:
        """An object, with its place."""
        value = self._typed(name, dict)
        return None if value is None else Fields(value, self.at(name))

    def mapping(self, name: str) -> dict[str, object] | None:
        """An object as it is: a schema."""
        value = self._typed(name, dict)
        return None if value is None else dict(value)

    def items(self, name: str) -> list[object]:
        """A list; empty if it is null or not there."""
        return self._typed(name, list) or []

    def objects(self, name: str) -> list[Fields]:
        """The objects of a list, each with its place."""
        return [Fields(value, f"{self.at(name)}[{n}]") for n, value in enumerate(self.items(name))]


def root(body: object) -> Fields:
    """The body of a request. Raises InvalidRequest for one that is no object or nested beyond MAX_DEPTH."""
    _measure(body)
    fields = Fields(body)
    fields.text("model")
    return fields


def _measure(value: object) -> None:
    """Without recursion: a body of brackets alone must not exhaust the stack."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        following: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                following += item.values()
            elif isinstance(item, list):
                following += item
        if not following:
            return
        level = following
    raise InvalidRequest("body", f"nested deeper than {MAX_DEPTH} levels")


def content_of(fields: Fields, name: str = "content") -> str | tuple[Part, ...]:
    """Text, or parts in the OpenAI form; null is empty text. Parts of any type pass."""
    value = fields.take(name)
    if value is None or isinstance(value, str):
        return value or ""
    if not isinstance(value, list):
        raise fields.wrong(name, f"a string or a list of parts is needed, not {kind_of(value)}")
    parts: list[Part] = []
    for n, part in enumerate(value):
        entry = Fields({"type": "text", "text": part} if isinstance(part, str) else part, f"{fields.at(name)}[{n}]")
        if not isinstance(entry.peek("type"), str):
            raise entry.wrong("type", f"a string is needed, not {kind_of(entry.peek('type'))}")
        if entry.peek("type") == "text" and not isinstance(entry.peek("text"), str):
            raise entry.wrong("text", f"a string is needed, not {kind_of(entry.peek('text'))}")
        parts.append(entry.rest())
    return tuple(parts)


def options_of(fields: Fields, known: Mapping[str, str]) -> dict[str, object]:
    """The sampling options of a body, by our names: `known` gives for each of theirs ours. Null ones are left out."""
    out: dict[str, object] = {}
    for theirs, ours in known.items():
        if theirs not in fields:
            continue
        reader = _READERS.get(ours)
        value = reader(fields, theirs) if reader is not None else fields.take(theirs)
        if value is not None:
            out[ours] = value
    return out


_READERS = {
    "temperature": Fields.number,
    "top_p": Fields.number,
    "top_k": Fields.integer,
    "min_p": Fields.number,
    "presence_penalty": Fields.number,
    "frequency_penalty": Fields.number,
    "max_tokens": Fields.integer,
    "seed": Fields.integer,
    "n": Fields.integer,
    "top_logprobs": Fields.integer,
}


def call_of(fields: Fields, *, id: str, index: int, extra: Mapping[str, object] = EMPTY) -> ToolCall:
    """The call whose `name` and `arguments` stand in `fields`.

    Arguments that are no object (a model's slip that a client sends back) are kept as they came, as a field of the
    provider's own that overrides the empty ones.
    """
    name = fields.needed("name")
    given = fields.take("arguments")
    value = given
    if isinstance(given, str):
        try:
            value = load(given) if given.strip() else {}
        except DECODE_ERRORS:
            value = None
    inner = {key: value for key, value in fields.rest().items() if value is not None}
    if not isinstance(value, dict):
        if given is not None:
            inner["arguments"] = given
        value = {}
    whole = {**extra, "function": inner} if inner else dict(extra)
    return ToolCall(id, name, value, index, extra=whole or EMPTY)


def answered(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, each result with the name of the tool that its call names."""
    names = {call.id: call.name for message in messages for call in message.calls}
    out = []
    for message in messages:
        name = names.get(message.call_id or "") if message.role == "tool" and message.name is None else None
        out.append(message if name is None else _named(message, name))
    return tuple(out)


def _named(message: Message, name: str) -> Message:
    return Message("tool", message.content, call_id=message.call_id, name=name, extra=message.extra)
