"""JSON as it arrives: where a value ends, and the strict reading of a finished one.

Law: the end of a value does not depend on the cuts; each character is looked at a bounded number of times, and strings
are jumped over at the speed of `str.find`. (tests/test_jsonstream.py::test_the_end_of_a_value_is_found_for_every_cut)

The scanner finds ends, it does not validate: it knows strings, brackets and which characters can stand outside
strings. Whether the text is JSON is said by `load_object` at the end, once.
"""

from __future__ import annotations

import json
import json.scanner
import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 200
"""Brackets open at once. Real arguments stay below ten; json.loads itself gives up near a thousand."""

_CONTROL: Final = re.compile(r"[\x00-\x1f]")
# Possessive (`*+`): what was passed is never tried again, so a long run costs its length once.
_BETWEEN: Final = re.compile(r"[\s,:0-9.eE+\-truefalsnNIiy]*+")
_BARE: Final = re.compile(r"[0-9a-zA-Z.+\-]*+")
_BARE_FIRST: Final = re.compile(r"[0-9a-zA-Z.+\-]").match
_CLOSER: Final = {"{": "}", "[": "]"}


class JsonScanner:
    """Finds the end of one JSON value.

    Theory of operation: a stack of open brackets, and whether we are in a string or behind its backslash. A value
    that starts with a bracket ends with its bracket, a string with its quote; a bare word or number ends before the
    first character that cannot belong to it, so at the end of the text only `finish` knows.
    """

    __slots__ = ("_stack", "_strict", "bare", "broken", "end", "escaped", "in_string", "too_deep")

    def __init__(self, strict: bool = False) -> None:
        """`strict`: a control character in a string (JSON forbids it) breaks the value."""
        self._stack: list[str] = []
        self._strict = strict
        self.bare = False
        """A number or word outside all brackets: only what follows tells where it ends."""
        self.in_string = False
        self.escaped = False
        """The last character was a backslash in a string: the next one belongs to it."""
        self.broken = False
        """A character that JSON does not allow here was met; the position fed last is where."""
        self.too_deep = False
        self.end: int | None = None
        """For who feeds ahead of a grammar: where the value ended in the text that the grammar gets next."""

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
                i = self._to_quote(text, i)
                if self.in_string:
                    return i if self.broken else None
                if not stack:
                    return i
            elif self.bare:
                return self._end_of_bare(text, i)
            if stack:
                i = _BETWEEN.match(text, i).end()  # type: ignore[union-attr]
            if i >= n:
                return None
            char = text[i]
            if char == '"':
                self.in_string = True
            elif stack or char in "{[":
                self._bracket(char)
                if not stack:
                    return i + 1
            elif not char.isspace():
                self.bare = _BARE_FIRST(char) is not None
                self.broken = not self.bare
            if self.broken:
                return i
            i += 1

    def _bracket(self, char: str) -> None:
        """Opens or closes one level; `broken` if the character is neither an opener nor the closer that is due."""
        if char in "{[":
            self.too_deep = len(self._stack) >= MAX_DEPTH
            self.broken = self.too_deep
            if not self.broken:
                self._stack.append(_CLOSER[char])
        elif char == self._stack[-1]:
            self._stack.pop()
        else:
            self.broken = True

    def _to_quote(self, text: str, i: int) -> int:
        """The index after the quote that ends the string, or the end of the text; in strict reading a bad one."""
        if self.escaped:
            if i >= len(text):
                return i
            self.escaped = False
            i += 1
        start, n = i, len(text)
        while True:
            at = text.find('"', i)
            end = n if at < 0 else at
            if self._strict and (match := _CONTROL.search(text, i, end)) is not None:
                self.broken = True
                return match.start()
            slashes = end
            while slashes > start and text[slashes - 1] == "\\":
                slashes -= 1
            # An even number of backslashes escapes itself, and the quote behind them is a real one.
            odd = (end - slashes) & 1
            if at < 0:
                self.escaped = bool(odd)
                return n
            i = start = at + 1
            if not odd:
                self.in_string = False
                return i

    def _end_of_bare(self, text: str, i: int) -> int | None:
        match = _BARE.match(text, i)
        assert match is not None
        return None if match.end() >= len(text) else match.end()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_scan_once = json.scanner.make_scanner(json.JSONDecoder(parse_constant=_refuse_constant))  # type: ignore[arg-type]
_SPACE: Final = " \t\n\r"
DECODE_ERRORS: Final = (ValueError, RecursionError)
"""What `load` raises: not JSON, an integer of more digits than Python reads, nested too deeply."""


def load(text: str) -> Any:
    """Strict JSON; integers exact; NaN and Infinity refused. Raises one of `DECODE_ERRORS`."""
    if text[:1] in _SPACE:
        text = text.lstrip(_SPACE)
    try:
        value, end = _scan_once(text, 0)
    except StopIteration as stop:
        raise ValueError(f"no JSON value at {stop.value}") from None
    if end != len(text) and text[end:].strip(_SPACE):
        raise ValueError(f"more text after the JSON value, at {end}")
    return value


class _Twice(Exception):
    """One object has a key twice."""


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        raise _Twice(next(key for key, _ in pairs if key in seen or seen.add(key)))  # type: ignore[func-returns-value]
    return value


_scan_unique = json.scanner.make_scanner(
    json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_unique)  # type: ignore[arg-type]
)


def repeated_key(text: str, value: Mapping[str, object]) -> str | None:
    """The first key that one object of this JSON text has twice: readers differ about which one counts.

    `value` is what the text was read as: with no more colons than it has keys, nothing can stand there twice.
    """
    # Counting is much cheaper than reading again; a colon inside a string only makes it read again for nothing.
    if text.count(":") == len(value):
        return None
    try:
        _scan_unique(text.lstrip(_SPACE), 0)
    except _Twice as twice:
        return str(twice)
    except (*DECODE_ERRORS, StopIteration):
        return None
    return None


def load_object(text: str) -> dict[str, Any] | None:
    """The JSON object that `text` is, or None if it is none."""
    try:
        value = load(text)
    except DECODE_ERRORS:
        return None
    return value if isinstance(value, dict) else None


_encode: Final = json.encoder.encode_basestring
needs_quoting: Final = re.compile(r'["\\\x00-\x1f]').search
"""Finds the first character that JSON does not take as itself in a string."""


def quote(text: str) -> str:
    """`text` as the inside of a JSON string, without the quotes, as itself where JSON allows it."""
    # Most pieces are single tokens; the search is cheaper than the encoder and the slice behind it.
    if len(text) < 64 and needs_quoting(text) is None:
        return text
    return _encode(text)[1:-1]
