"""Markers: which one stands here, or could still be arriving.

One law: a marker is found in one pass of one regular expression, and what may still become one is told apart from
what cannot, so that text is held back no longer than it must be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

ABSENT: Final = -1
PARTIAL: Final = -2
_SUFFIX: Final = r"(?::\w{1,32})?"


def _whole(text: str, suffix: bool) -> str:
    if suffix and text.startswith("<") and text.endswith(">"):
        return re.escape(text[:-1]) + _SUFFIX + ">"
    return re.escape(text)


def _beginning(text: str, suffix: bool) -> str:
    """A pattern for every proper beginning of a marker, to be anchored at the end of the text."""
    last = r"(?::\w{0,32})?" if suffix and text.startswith("<") and text.endswith(">") else ""
    pattern = ""
    for n, char in enumerate(reversed(text[:-1])):
        tail = last if n == 0 else f"(?:{pattern})?"
        pattern = re.escape(char) + tail
    return pattern


class Marks:
    """A fixed set of markers, told apart by their place in the list."""

    __slots__ = ("_at", "_count", "_first", "texts")

    def __init__(self, texts: Iterable[str], suffix: bool = False) -> None:
        self.texts = tuple(texts)
        order = sorted(range(len(self.texts)), key=lambda i: -len(self.texts[i]))
        # the longer of two markers comes first: the group's number is its place in `texts`
        groups = [f"(?P<m{i}>{_whole(self.texts[i], suffix)})" for i in order]
        begins = [_beginning(text, suffix) for text in self.texts if len(text) > 1]
        tail = rf"|(?P<tail>(?:{'|'.join(begins)})\Z)" if begins else ""
        self._at = re.compile("|".join(groups) + tail).match if groups else None
        self._first = (
            re.compile(f"[{re.escape(''.join(sorted({t[0] for t in self.texts})))}]").search if groups else None
        )
        self._count = len(groups)

    def at(self, text: str, pos: int) -> tuple[int, int]:
        """(which, end) of the marker at `pos`; which is ABSENT or PARTIAL if there is none (yet)."""
        if self._at is None:
            return ABSENT, pos
        match = self._at(text, pos)
        if match is None:
            return (PARTIAL if pos >= len(text) else ABSENT), pos
        name = match.lastgroup
        assert name is not None
        return (PARTIAL, pos) if name == "tail" else (int(name[1:]), match.end())

    def find(self, text: str, pos: int) -> tuple[int, int, int]:
        """(which, start, end) of the next marker; PARTIAL if one may be beginning at `start`, ABSENT at the end."""
        if self._at is None or self._first is None:
            return ABSENT, len(text), len(text)
        while True:
            match = self._first(text, pos)
            if match is None:
                return ABSENT, len(text), len(text)
            pos = match.start()
            which, end = self.at(text, pos)
            if which != ABSENT:
                return which, pos, end
            pos += 1


@lru_cache(maxsize=1024)
def marks(texts: tuple[str, ...], suffix: bool = False) -> Marks:
    """The compiled set, made once."""
    return Marks(texts, suffix)
