"""Python-style and Gemma-style values, turned into JSON as they arrive.

Law: what goes out is JSON text of the same value, and strings go out character by character.
(tests/test_dialects_laws.py::test_generated_calls_are_read_exactly_however_they_are_cut)

Both styles are one grammar with other quotes: containers of `{ [ (`, keys, strings, words. It is read with a stack of
open brackets, not by recursion.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from callgate.dialects._marks import Match, marks
from callgate.dialects._take import Broken, Cut, Parse, Waiting, Wake, accept, char, peek
from callgate.jsonstream import MAX_DEPTH, quote

if TYPE_CHECKING:
    from callgate.dialects._json import Sink

WORD_LIMIT: Final = 4_096
"""Characters of an unquoted value."""

_CLOSER: Final = {"{": "}", "[": "]", "(": ")"}
_NAMES: Final = {
    "True": "true", "true": "true", "False": "false", "false": "false", "None": "null", "null": "null",
}  # fmt: skip
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?\Z")
_INTEGER: Final = re.compile(r"[+-]?(?:\d[\d_]*|0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+)\Z")
_FLOAT: Final = re.compile(r"[+-]?(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?\Z")
_WORD: Final = re.compile(r"[^,()\[\]{}\"'\n:=]*+")
_BARE: Final = re.compile(r"[^,)\]}\n]*+")
_KEY: Final = re.compile(r"[^,:=()\[\]{}\"'<>\n]*+")
_ESCAPES: Final = {
    "n": "\\n", "t": "\\t", "r": "\\r", "b": "\\b", "f": "\\f", "a": "\\u0007", "v": "\\u000b",
    "\\": "\\\\", "'": "'", '"': '\\"', "/": "/", "\n": "",
}  # fmt: skip
_HEX_DIGITS: Final = {"x": 2, "u": 4, "U": 8}
_HEX: Final = re.compile(r"[0-9a-fA-F]+\Z")
_OCTAL: Final = re.compile(r"[0-7]{1,3}")
_STRING_START: Final = re.compile(r"[rRuU]?(?:'''|\"\"\"|'|\")")
_PREFIXED: Final = re.compile(r"[rRuU](?:['\"]|\Z)")


@dataclass(frozen=True, slots=True)
class Style:
    """Which quotes, keys and words there are."""

    mark: str = ""
    """Gemma's string mark; "": Python's quotes."""
    bare_words: bool = False
    bare_keys: bool = False
    strings: frozenset[str] = frozenset()
    """Keys of the outermost object whose values are strings: a bare number is one, as it is written."""


PYTHON: Final = Style()


def value(r: Waiting, style: Style, sink: Sink) -> Parse[None]:
    """One value at the position, white space before it allowed. Raises Broken or Cut."""
    stack: list[tuple[str, bool]] = []
    key: str | None = ""
    while key is not None:
        here = yield from peek(r)
        if here == "":
            raise Cut
        if here in _CLOSER:
            keyed = _open(r, style, here, stack, sink)
            if (yield from peek(r)) != stack[-1][0]:
                key = (yield from _key(r, style, sink)) if keyed else key
                continue
        elif len(stack) == 1 and key in style.strings and (here.isdigit() or here in "+-."):
            yield from text_scalar(r, style, sink)
        else:
            yield from _scalar(r, style, here, sink)
        key = yield from _after_value(r, style, stack, sink)


def _open(r: Waiting, style: Style, here: str, stack: list[tuple[str, bool]], sink: Sink) -> bool:
    """Take an opening bracket; whether what stands in it has keys. Raises Broken."""
    if len(stack) >= MAX_DEPTH:
        raise Broken
    r.pos += 1
    # Gemma's outermost bracket is sometimes a round one
    keyed = here == "{" or (here == "(" and style.bare_keys and not stack)
    sink("{" if keyed else "[")
    stack.append((_CLOSER[here], keyed))
    return keyed


def _after_value(r: Waiting, style: Style, stack: list[tuple[str, bool]], sink: Sink) -> Parse[str | None]:
    """Close what closes. None: the whole value is over; else another one follows, under that key."""
    while stack:
        closer, keyed = stack[-1]
        here = yield from peek(r)
        if here == ",":
            r.pos += 1
            here = yield from peek(r)
            if here != closer:
                sink(", ")
                return (yield from _key(r, style, sink)) if keyed else ""
        if here == "":
            raise Cut
        if here != closer:
            raise Broken
        r.pos += 1
        stack.pop()
        sink("}" if keyed else "]")
    return None


def _key(r: Waiting, style: Style, sink: Sink) -> Parse[str]:
    """A key and its colon; the key, if it has no quotes."""
    text = ""
    here = yield from peek(r)
    if here == "":
        raise Cut
    if here in "\"'" or (style.mark and here == style.mark[0]):
        yield from _scalar(r, style, here, sink)
    elif style.bare_keys:
        text = yield from _word(r, _KEY)
        if not text:
            raise Broken
        sink(f'"{quote(text)}"')
    else:
        raise Broken
    here = yield from peek(r)
    if here != ":":
        raise Cut if here == "" else Broken
    r.pos += 1
    sink(": ")
    return text


def text_scalar(r: Waiting, style: Style, sink: Sink) -> Parse[None]:
    """An unquoted value of a string parameter: a number is the text that was written."""
    text = yield from _word(r, _BARE if style.bare_words or style.mark else _WORD)
    written = _NUMBER.match(text) or _INTEGER.match(text) or _FLOAT.match(text)
    sink(f'"{quote(text)}"' if written else word_as_json(text, bare=style.bare_words or bool(style.mark)))


def _scalar(r: Waiting, style: Style, here: str, sink: Sink) -> Parse[None]:
    if style.mark:
        if (yield from accept(r, marks((style.mark,)))) >= 0:
            yield from _marked_string(r, style.mark, sink)
            return
        if here == '"':
            yield from _quoted_string(r, sink)
            return
    else:
        while not r.over and _PREFIXED.match(r.buf, r.pos) and len(r.buf) - r.pos < 2:
            yield
        if here in "\"'" or _STRING_START.match(r.buf, r.pos):
            yield from _quoted_string(r, sink)
            return
    text = yield from _word(r, _BARE if style.bare_words or style.mark else _WORD)
    sink(word_as_json(text, bare=style.bare_words or bool(style.mark)))


def word_as_json(text: str, *, bare: bool) -> str:
    """An unquoted word as JSON text. Raises Broken for one that is no literal, unless bare words are strings."""
    if text in _NAMES:
        return _NAMES[text]
    if _NUMBER.match(text):
        return text
    try:
        if _INTEGER.match(text):
            return json.dumps(int(text, 0 if not text.lstrip("+-0").isdigit() else 10))
        if _FLOAT.match(text):
            return json.dumps(float(text))
    except ValueError:  # more digits than Python reads
        pass
    if bare:
        return f'"{quote(text)}"'
    raise Broken


def _word(r: Waiting, pattern: re.Pattern[str]) -> Parse[str]:
    taken = ""
    while True:
        match = pattern.match(r.buf, r.pos)
        assert match is not None
        taken += match.group()
        if len(taken) > WORD_LIMIT:
            raise Broken
        r.pos = match.end()
        if r.pos < len(r.buf):
            return taken.strip()
        if r.over:
            raise Cut
        yield


def _marked_string(r: Waiting, mark: str, sink: Sink) -> Parse[None]:
    """Raw text up to the next mark."""
    sink('"')
    markers = marks((mark,))
    while True:
        which, start, end = markers.find(r.buf, r.pos, r.over)
        if start > r.pos:
            sink(quote(r.buf[r.pos : start]))
            r.pos = start
        if which >= 0:
            r.pos = end
            sink('"')
            return
        if r.over:
            raise Cut
        yield


def _quoted_string(r: Waiting, sink: Sink) -> Parse[None]:
    """A Python string, raw newlines allowed."""
    raw = r.buf[r.pos] in "rR"
    if r.buf[r.pos] not in "\"'":
        r.pos += 1
    kind = yield from char(r)
    r.pos += 1
    ending = kind
    if (yield from char(r)) == kind:
        r.pos += 1
        if (yield from char(r)) != kind:
            sink('""')
            return
        r.pos += 1
        ending = kind * 3
    stops = marks((ending, "\\"))
    sink('"')
    while True:
        which, start, end = stops.find(r.buf, r.pos, r.over)
        if start > r.pos:
            sink(quote(r.buf[r.pos : start]))
            r.pos = start
        if which == 0:
            r.pos = end
            sink('"')
            return
        if which == 1 and (raw or (yield from _escape(r, sink))):
            if raw:
                sink("\\\\")
                r.pos += 1
            continue
        if r.over:
            raise Cut
        yield


def _escape(r: Waiting, sink: Sink) -> Parse[bool]:
    """A backslash and what belongs to it. False: the text ended in it."""
    while len(r.buf) - r.pos < 2:
        if r.over:
            return False
        yield
    kind = r.buf[r.pos + 1]
    if kind in _HEX_DIGITS:
        return (yield from _hex_escape(r, _HEX_DIGITS[kind], sink))
    if kind in "01234567":
        while len(r.buf) - r.pos < 4 and not r.over:
            yield
        match = _OCTAL.match(r.buf, r.pos + 1)
        assert match is not None
        r.pos = min(match.end(), r.pos + 4)
        sink(quote(chr(int(match.group(), 8))))
    elif kind in _ESCAPES:
        r.pos += 2
        sink(_ESCAPES[kind])
    else:  # Python keeps an escape that it does not know
        sink("\\\\")
        r.pos += 1
    return True


def _hex_escape(r: Waiting, size: int, sink: Sink) -> Parse[bool]:
    """An escape of so many hexadecimal digits; one that has others is text. False: the text ended in it."""
    need = 2 + size
    while len(r.buf) - r.pos < need and not r.over:
        yield
    digits = r.buf[r.pos + 2 : r.pos + need]
    if len(digits) == size and _HEX.match(digits) and int(digits, 16) < 0x110000:
        r.pos += need
        code = int(digits, 16)
        # half a surrogate pair stays an escape: as a character it could not be written out
        sink(f"\\u{code:04x}" if 0xD800 <= code < 0xE000 else quote(chr(code)))
        return True
    if r.over and len(r.buf) - r.pos < need:
        return False
    sink("\\\\")
    r.pos += 1
    return True


class Whole:
    """A text that is all there: a cursor for reading one value of it."""

    __slots__ = ("buf", "over", "pos")

    def __init__(self, text: str) -> None:
        self.buf = text
        self.pos = 0
        self.over = True

    def wait_ahead(self, begun: Match) -> None:
        """There is nothing to wait for."""

    def wait_until(self, wake: Wake, shape: re.Pattern[str], taken: str, limit: int) -> None:
        """There is nothing to wait for."""


def literal_as_json(text: str) -> str | None:
    """A whole Python literal as JSON text, or None if it is none."""
    cursor = Whole(text + "\n")
    parts: list[str] = []
    try:
        for _ in value(cursor, PYTHON, parts.append):
            return None
    except (Broken, Cut):
        return None
    return "".join(parts) if not text[cursor.pos :].strip() else None
