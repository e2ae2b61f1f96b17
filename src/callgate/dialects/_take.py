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


class Cursor(Protocol):
    """Text with a position. `over`: nothing more will come."""

    buf: str
    pos: int
    over: bool


class Cut(Exception):
    """The text ended inside the grammar. Never leaves the reader."""


class Broken(Exception):
    """The text is not what the grammar allows. Never leaves the reader."""


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


def char(r: Cursor) -> Parse[str]:
    """The next character, or "" at the end of the text."""
    while r.pos >= len(r.buf):
        if r.over:
            return ""
        yield
    return r.buf[r.pos]


def look(r: Cursor, markers: Marks) -> Parse[int]:
    """Which marker stands here, not taken; ABSENT if none."""
    while True:
        which, _ = markers.at(r.buf, r.pos)
        if which != PARTIAL:
            return which
        if r.over:
            return ABSENT
        yield


def accept(r: Cursor, markers: Marks) -> Parse[int]:
    """Take the marker that stands here; ABSENT if none."""
    which = yield from look(r, markers)
    if which != ABSENT:
        _, r.pos = markers.at(r.buf, r.pos)
    return which


def until(r: Cursor, markers: Marks, *, limit: int = NAME_LIMIT, bad: re.Pattern[str] | None = None) -> Parse[str]:
    """Take the text before the next marker; the marker stays.

    Raises Broken at a bad character or beyond the limit, with the position there; Cut at the end of the text.
    """
    taken = ""
    while True:
        which, start, _ = markers.find(r.buf, r.pos)
        piece = r.buf[r.pos : start]
        match = bad.search(piece) if bad is not None else None
        stop = match.start() if match is not None else len(piece)
        stop = min(stop, limit - len(taken))
        if stop < len(piece):
            r.pos += stop
            raise Broken
        taken += piece
        r.pos = start
        if which >= 0:
            return taken
        if r.over:
            r.pos = len(r.buf)
            raise Cut
        yield
