"""JSON as it arrives: where a value ends, and the strict reading of a finished one.

One law: the scanner looks at each character once, whatever the cuts, and jumps over strings at the speed of the
regular expression engine.

The scanner finds ends, it does not validate: it knows strings, brackets and which characters can stand outside
strings. Whether the text is JSON is said by `load_object` at the end, once.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 200
"""Brackets open at once. Real arguments stay below ten; json.loads itself gives up near a thousand."""

# Possessive repeats (Python 3.11): nothing is remembered to backtrack into, however long the string is.
_IN_STRING: Final = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_IN_STRICT_STRING: Final = re.compile(r'[^"\\\x00-\x1f]*+(?:\\[^\x00-\x1f][^"\\\x00-\x1f]*+)*+')
_BETWEEN: Final = re.compile(r"[\s,:0-9.eE+\-truefalsnNIiy]*+")
_BARE: Final = re.compile(r"[0-9a-zA-Z.+\-]*+")
_CLOSER: Final = {"{": "}", "[": "]"}


class JsonScanner:
    """Finds the end of one JSON value.

    Theory of operation: a stack of open brackets, and whether we are in a string or behind its backslash. A value
    that starts with a bracket ends with its bracket, a string with its quote; a bare word or number ends before the
    first character that cannot belong to it, so at the end of the text only `finish` knows.
    """

    __slots__ = ("_inside", "_stack", "bare", "broken", "escaped", "in_string", "too_deep")

    def __init__(self, strict: bool = False) -> None:
        """`strict`: a control character in a string (JSON forbids it) breaks the value."""
        self._stack: list[str] = []
        self._inside = (_IN_STRICT_STRING if strict else _IN_STRING).match
        self.bare = False
        """A number or word outside all brackets: only what follows tells where it ends."""
        self.in_string = False
        self.escaped = False
        """The last character was a backslash in a string: the next one belongs to it."""
        self.broken = False
        """A character that JSON does not allow here was met; the position fed last is where."""
        self.too_deep = False

    @property
    def depth(self) -> int:
        """How many brackets are open."""
        return len(self._stack)

    def feed(self, text: str, start: int = 0) -> int | None:
        """The index after the value's last character, or None if the value goes on.

        When `broken` is set the index is that of the offending character.
        """
        i, n = start, len(text)
        stack = self._stack
        while True:
            if self.in_string:
                if self.escaped:
                    if i >= n:
                        return None
                    self.escaped = False
                    i += 1
                match = self._inside(text, i)
                assert match is not None
                i = match.end()
                if i >= n:
                    return None
                if text[i] == "\\" and i + 1 >= n:
                    self.escaped = True
                    return None
                if text[i] != '"':
                    self.broken = True
                    return i
                self.in_string = False
                i += 1
                if not stack:
                    return i
            elif self.bare:
                return self._end_of_bare(text, i)
            match = _BETWEEN.match(text, i) if stack else None
            if match is not None:
                i = match.end()
            if i >= n:
                return None
            char = text[i]
            if char == '"':
                self.in_string = True
            elif char in "{[":
                if len(stack) >= MAX_DEPTH:
                    self.broken = self.too_deep = True
                    return i
                stack.append(_CLOSER[char])
            elif stack:
                if char != stack[-1]:
                    self.broken = True
                    return i
                stack.pop()
                if not stack:
                    return i + 1
            elif not char.isspace():
                self.bare = True
                continue
            i += 1

    def _end_of_bare(self, text: str, i: int) -> int | None:
        match = _BARE.match(text, i)
        assert match is not None
        return None if match.end() >= len(text) else match.end()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse_constant).decode
DECODE_ERRORS: Final = (ValueError, RecursionError)
"""What `load` raises: not JSON, an integer of more digits than Python reads, nested too deeply."""


def load(text: str) -> Any:
    """Strict JSON; integers exact; NaN and Infinity refused. Raises one of `DECODE_ERRORS`."""
    return _decode(text)


def load_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, or None if it is none."""
    try:
        value = _decode(text)
    except DECODE_ERRORS:
        return None
    return value if isinstance(value, dict) else None


def quote(text: str) -> str:
    """`text` as the inside of a JSON string, without the quotes, as itself where JSON allows it."""
    return json.encoder.encode_basestring(text)[1:-1] if _SPECIAL.search(text) else text


_SPECIAL: Final = re.compile(r'["\\\x00-\x1f]')
