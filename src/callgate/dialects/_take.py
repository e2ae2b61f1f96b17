"""The smallest acts of a grammar: skip white space, look at the next character, accept a marker, read up to one.

Law: an answer depends on the characters alone, and while it could still change the grammar waits.
(tests/test_dialects_laws.py::test_noise_of_markers_is_read_the_same_for_every_cut)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable
from typing import Final, Protocol, TypeAlias, TypeVar

from callgate.dialects._marks import ABSENT, PARTIAL, Marks, Match

T = TypeVar("T")
Parse: TypeAlias = Generator[None, None, T]

_SPACE: Final = re.compile(r"\s*+")
CALLS: Final = 1_024
"""Calls in one message; more is a model in a loop."""
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


Wake: TypeAlias = Callable[[str], object]


class Waiting(Cursor, Protocol):
    """A cursor that can be told what a grammar waits for, so that it need not go on before that comes."""

    def wait_ahead(self, begun: Match) -> None:
        """As long as `begun` matches the text from the cursor on."""
        ...

    def wait_until(self, wake: Wake, shape: re.Pattern[str], taken: str, limit: int) -> None:
        """Until `wake` finds something in a chunk, and as long as the text behind `taken` keeps shape and limit."""
        ...


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


def look(r: Waiting, markers: Marks, *, swallow: bool = True) -> Parse[int]:
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
        r.wait_ahead(markers.begun)
        yield


def accept(r: Waiting, markers: Marks, *, swallow: bool = True) -> Parse[int]:
    """Take the marker that stands here; ABSENT if none."""
    which = yield from look(r, markers, swallow=swallow)
    if which != ABSENT:
        _, r.pos = markers.at(r.buf, r.pos, r.over)
    return which


def require(r: Waiting, markers: Marks) -> Parse[int]:
    """Which marker stands here, not taken. Raises Cut at the end of the text, Broken if there is none."""
    which = yield from look(r, markers)
    if which == ABSENT:
        raise Cut if r.over and r.pos >= len(r.buf) else Broken
    return which


def nothing_here(r: Cursor) -> Cut | Broken:
    """Why what has to stand here does not: the text is over, or something else stands here."""
    return Cut() if r.over and r.pos >= len(r.buf) else Broken()


def is_half(r: Cursor, closers: Iterable[str], others: Iterable[str]) -> bool:
    """Whether the text ends in a closer here that has begun, and in nothing else (policy T)."""
    rest = r.buf[r.pos :]
    return bool(rest) and _begins(closers, rest) and not _begins(others, rest)


def _begins(texts: Iterable[str], rest: str) -> bool:
    return any(text.startswith(rest) for text in texts)


def until(
    r: Waiting,
    markers: Marks,
    *,
    limit: int = NAME_LIMIT,
    shape: re.Pattern[str] = ANYTHING,
    closers: tuple[str, ...] = (),
) -> Parse[str]:
    """Take the text before the next marker; the marker stays. `closers`: markers that half of is enough (policy T).

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
        if r.over and closers and is_half(r, closers, (text for text in markers.texts if text not in closers)):
            return taken
        if r.over:  # a marker's beginning at the end of the text is the end
            r.pos = len(r.buf)
            raise Cut
        if which == ABSENT:
            r.wait_until(markers.alert, shape, taken, limit)
        else:
            r.wait_ahead(markers.begun)
        yield
