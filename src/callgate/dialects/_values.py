"""The value of a tagged parameter: raw text on its way to typed JSON.

Law: a value known to be a string goes out character by character; one that may be something else waits until that is
ruled out.
(tests/test_dialects_laws.py::test_arguments_go_out_while_they_are_written)
"""

from __future__ import annotations

import re
from typing import Final

from callgate.dialects._json import Sink, skip
from callgate.dialects._literals import literal_as_json
from callgate.jsonstream import DECODE_ERRORS, load, quote
from callgate.schema.introspect import allowed_types, property_schema
from callgate.types import ToolSpec

STRING_ONLY: Final = frozenset({"string"})
NOT_STRING: Final = frozenset({"null", "boolean", "integer", "number", "object", "array"})

_SCALAR_LIMIT: Final = 64
"""Characters a number, a boolean or a null may have; a longer value of such a union is a string."""
_NUMBER_SO_FAR: Final = re.compile(r"[-+]?[0-9.][0-9._eE+\-]*\Z|[-+]\Z")
_WORDS: Final = {"null": ("null", "None"), "boolean": ("true", "false", "True", "False")}
_TYPE_NAMES: Final = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null",
}  # fmt: skip


def types_of(tool: ToolSpec | None, name: str) -> frozenset[str]:
    """The JSON types a parameter may have; a string, if the schema does not tell (policy X)."""
    if tool is None:
        return STRING_ONLY
    found = property_schema(tool.parameters, name)
    return STRING_ONLY if found is None else allowed_types(found, tool.parameters)


def as_json(text: str, allowed: frozenset[str]) -> str | None:
    """`text` as JSON of a type other than string, or None if it has to be a string (policy X)."""
    text = text.strip()
    try:
        value: object = load(text)
        written: str | None = text
    except DECODE_ERRORS:
        written = literal_as_json(text)
        if written is None:
            return None
        try:
            value = load(written)
        except DECODE_ERRORS:
            return None
    if "string" not in allowed:
        return written
    kind = _TYPE_NAMES[type(value)]
    if kind in allowed and kind != "string":
        return written
    return written if kind == "integer" and "number" in allowed else None


class Value:
    """One value, fed with raw text, giving JSON to its sink."""

    __slots__ = ("_allowed", "_begun", "_open", "_parts", "_sink", "_size", "_trim", "carry")

    def __init__(self, sink: Sink, allowed: frozenset[str], *, trim: str = "none") -> None:
        self._sink = sink
        self._allowed = allowed
        self._trim = trim
        self._open = "string" in allowed and len(allowed) == 1
        """Certainly a string: it streams."""
        self._parts: list[str] = []
        self._size = 0
        self.carry = ""
        """A newline that what follows decides upon."""
        self._begun = False

    def text(self, text: str) -> None:
        """More of the value."""
        if not text:
            return
        if self._open and not (self._trim == "pair" and not self._begun):
            self._stream(text)
            return
        self._parts.append(text)
        self._size += len(text)
        if self._trim == "pair" and self._first() == "\n":
            return  # whether this newline stays is known at the end only
        if self._open or ("string" in self._allowed and self._ruled_out()):
            self._open = True
            held, self._parts = "".join(self._parts), []
            self._stream(held)

    def _first(self) -> str:
        return next((part[0] for part in self._parts if part), "")

    def _ruled_out(self) -> bool:
        """Whether the value can be nothing but a string any more."""
        text = "".join(self._parts) if self._size <= _SCALAR_LIMIT or len(self._parts) == 1 else None
        if text is None:  # long, and not ruled out before: an object or a list
            return False
        text = text.lstrip()
        if not text:
            return self._size > _SCALAR_LIMIT
        if text[0] in "{[(":
            return not self._allowed & {"object", "array"}
        text = text.rstrip()
        if len(text) <= _SCALAR_LIMIT:
            if self._allowed & {"integer", "number"} and _NUMBER_SO_FAR.match(text):
                return False
            for kind, words in _WORDS.items():
                if kind in self._allowed and any(word.startswith(text) for word in words):
                    return False
        return True

    def _stream(self, text: str) -> None:
        text = self.carry + text
        self.carry = ""
        if not self._begun:
            self._begun = True
            self._sink('"')
            if self._trim == "each" and text.startswith("\n"):
                text = text[1:]
        if self._trim == "each" and text.endswith("\n"):
            self.carry, text = "\n", text[:-1]
        if text:
            self._sink(quote(text))

    @property
    def streams(self) -> bool:
        """Certainly a string, begun, and going out."""
        return self._begun and self._sink is not skip

    def end(self) -> None:
        """The value is over."""
        if not self._open or (self._trim == "pair" and not self._begun):
            text = "".join(self._parts)
            if self._trim == "each":
                text = text.removeprefix("\n").removesuffix("\n")
            elif self._trim == "pair" and len(text) > 1 and text[0] == text[-1] == "\n":
                text = text[1:-1]
            written = None if self._open else as_json(text, self._allowed)
            self._sink(f'"{quote(text)}"' if written is None else written)
            return
        if not self._begun:
            self._sink('"')
        rest = self.carry
        if self._trim == "each":
            rest = rest.removesuffix("\n")
        self._sink(quote(rest) + '"')
