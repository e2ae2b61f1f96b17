"""The smallest acts of a grammar: skip white space, look at the next character, accept a marker, read up to one.

One law: what they answer depends on the characters alone; while it could still change they wait.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final, Protocol, TypeAlias, TypeVar

from callgate.dialects._marks import ABSENT, PARTIAL, Marks

T = TypeVar("T")
Parse: TypeAlias = Generator[None, None, T]

_SPACE: Final = re.compile(r"\s*+")
NAME_LIMIT: Final = 256
"""Characters of a name, an id or a key: beyond it the text is something else."""


ANYTHING: Final = re.compile(r"[\s\S]*+")
WORD: Final = re.compile(r"\s*+[\w.\-:/@$#]*+\s*+")
"""One word with white space around it."""
BLANK: Final = re.compile(r"\s*+")


class Cursor(Protocol):
    """Text with a position. `over`: nothing more will come."""

    buf: str
    pos: int
    over: bool


class Cut(Exception):
    """The text ended inside the grammar. Never leaves the reader."""


class Broken(Exception):
    """The text is not what the grammar allows. Never leaves the reader."""


def known(answer: T) -> Parse[T]:
    """An answer that needs no more text."""
    return answer
    yield


def spaces(r: Cursor) -> Parse[str]:
    """Take white space; what it was."""
    taken = ""
    while True:
        match = _SPACE.match(r.buf, r.pos)
        assert match is not None
        end = match.end()
        if end > r.pos:
            taken += r.buf[r.pos : end]
            r.pos = end
        if r.pos < len(r.buf) or r.over:
            return taken
        yield


def peek(r: Cursor) -> Parse[str]:
    """Take white space; the character after it, or "" at the end of the text."""
    while True:
        match = _SPACE.match(r.buf, r.pos)
        assert match is not None
        r.pos = match.end()
        if r.pos < len(r.buf):
            return r.buf[r.pos]
        if r.over:
            return ""
        yield


def ready(r: Cursor) -> str:
    """What `peek` would answer if that is already certain, else "": then `peek` has to be asked."""
    pos = r.pos
    if pos < len(r.buf):
        char = r.buf[pos]
        if not char.isspace():
            return char
    return ""


def char(r: Cursor) -> Parse[str]:
    """The next character, or "" at the end of the text."""
    while r.pos >= len(r.buf):
        if r.over:
            return ""
        yield
    return r.buf[r.pos]


def look(r: Cursor, markers: Marks, *, swallow: bool = True) -> Parse[int]:
    """Which marker stands here, not taken; ABSENT if none.

    A marker cut off by the end of the text is taken as that end, unless `swallow` is false: then it is text.
    """
    while True:
        which, _ = markers.at(r.buf, r.pos)
        if which != PARTIAL:
            return which
        if r.over:
            if swallow:
                r.pos = len(r.buf)
                return ABSENT
            return markers.at(r.buf, r.pos, True)[0]
        yield


def accept(r: Cursor, markers: Marks, *, swallow: bool = True) -> Parse[int]:
    """Take the marker that stands here; ABSENT if none."""
    which = yield from look(r, markers, swallow=swallow)
    if which != ABSENT:
        _, r.pos = markers.at(r.buf, r.pos, r.over)
    return which


def require(r: Cursor, markers: Marks) -> Parse[int]:
    """Which marker stands here, not taken. Raises Cut at the end of the text, Broken if there is none."""
    which = yield from look(r, markers)
    if which == ABSENT:
        raise Cut if r.over and r.pos >= len(r.buf) else Broken
    return which


def until(r: Cursor, markers: Marks, *, limit: int = NAME_LIMIT, shape: re.Pattern[str] = ANYTHING) -> Parse[str]:
    """Take the text before the next marker; the marker stays.

    Raises Broken where the text leaves `shape` (a pattern of all its beginnings) or the limit, with the position
    there; Cut at the end of the text.
    """
    taken = ""
    while True:
        which, start, _ = markers.find(r.buf, r.pos)
        if r.over and which == PARTIAL and markers.at(r.buf, start, True)[0] != ABSENT:
            which = markers.at(r.buf, start, True)[0]
        whole = taken + r.buf[r.pos : start]
        match = shape.match(whole)
        stop = min(match.end() if match is not None else 0, limit)
        if stop < len(whole):
            r.pos += stop - len(taken)
            raise Broken
        taken = whole
        r.pos = start
        if which >= 0:
            return taken
        if r.over:  # a marker's beginning at the end of the text is the end
            r.pos = len(r.buf)
            raise Cut
        yield
