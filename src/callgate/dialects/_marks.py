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


def _beginning(text: str, suffix: bool, least: int = 1) -> str:
    """A pattern for every proper beginning of a marker of at least `least` characters, to be anchored at the end."""
    pattern = r"(?::\w{0,32})?" if suffix and text.startswith("<") and text.endswith(">") else ""
    for char in reversed(text[least:-1]):
        pattern = f"(?:{re.escape(char)}{pattern})?"
    return re.escape(text[:least]) + pattern


class Marks:
    """A fixed set of markers, told apart by their place in the list."""

    __slots__ = ("_at", "_last", "_only", "alert", "first", "glance", "texts")

    def __init__(self, texts: Iterable[str], suffix: bool = False) -> None:
        self.texts = tuple(texts)
        order = sorted(range(len(self.texts)), key=lambda i: (-len(self.texts[i]), i))
        open_: dict[str, list[str]] = {text[0]: [] for text in self.texts}
        final: dict[str, list[str]] = {text[0]: [] for text in self.texts}
        for i in order:
            text = self.texts[i]
            here = open_[text[0]]
            # where one marker begins another, the longer one must be ruled out first
            longer = [t for t in self.texts if len(t) > len(text) and t.startswith(text)]
            here += [rf"(?:{_beginning(t, suffix, len(text))})\Z" for t in longer]
            here.append(f"(?P<m{i}>{_whole(text, suffix)})")
            final[text[0]].append(here[-1])
        for text in self.texts:
            if len(text) > 1:
                open_[text[0]].append(rf"(?:{_beginning(text, suffix)})\Z")
        # by the first character: in prose many a letter could begin a marker, and few markers begin with one
        self._at = {first: re.compile("|".join(each)).match for first, each in open_.items()}
        self._last = {first: re.compile("|".join(each)).match for first, each in final.items()}
        begun = "|".join(_beginning(text, suffix) for text in self.texts)
        whole = "|".join(_whole(text, suffix) for text in self.texts)
        self.glance = re.compile(f"(?:{whole})()|(?:{begun})\\Z" if self.texts else "(?!)").search
        """Finds the first marker (its `lastindex` is 1) or the beginning of one at the end of the text (None)."""
        firsts = "".join(sorted({text[0] for text in self.texts}))
        self.first = firsts
        self._only = firsts if len(firsts) == 1 else ""
        self.alert = re.compile(f"[{re.escape(firsts)}]" if firsts else "(?!)").search

    def at(self, text: str, pos: int, over: bool = False) -> tuple[int, int]:
        """(which, end) of the marker at `pos`; which is ABSENT, or PARTIAL while one may still be arriving."""
        match_at = (self._last if over else self._at).get(text[pos : pos + 1])
        match = None if match_at is None else match_at(text, pos)
        if match is None:
            return (PARTIAL if pos >= len(text) and self.texts and not over else ABSENT), pos
        name = match.lastgroup
        return (PARTIAL, pos) if name is None else (int(name[1:]), match.end())

    def find(self, text: str, pos: int, over: bool = False) -> tuple[int, int, int]:
        """(which, start, end) of the next marker; PARTIAL if one may be arriving at `start`, ABSENT at the end."""
        only = self._only
        while True:
            if only:
                pos = text.find(only, pos)
            else:
                match = self.alert(text, pos)
                pos = -1 if match is None else match.start()
            if pos < 0:
                return ABSENT, len(text), len(text)
            which, end = self.at(text, pos, over)
            if which != ABSENT:
                return which, pos, end
            pos += 1


@lru_cache(maxsize=2048)
def marks(texts: tuple[str, ...], suffix: bool = False) -> Marks:
    """The compiled set, made once; a marker listed twice counts where it stands first."""
    return Marks(texts, suffix)
