"""Markers: which one stands here, or could still be arriving.

Law: text is held back only while it can still become a marker.
(tests/test_dialects_laws.py::test_noise_of_markers_is_read_the_same_for_every_cut)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import pairwise
from typing import Final, TypeAlias

Texts: TypeAlias = tuple[str, ...]
Atom: TypeAlias = tuple[str, str]
"""A part of a shape: the pattern of the whole, and of what may stand of it when the text has come no further."""
Match: TypeAlias = Callable[[str, int], "re.Match[str] | None"]

ABSENT: Final = -1
PARTIAL: Final = -2
SPECIAL: Final = re.compile(r"\A(?:</?[|｜]|\]<\]|\[unused\d)|[|｜]>\s*\Z")
"""The shape of special tokens: `<|…|>`, `<｜…｜>` and their like."""
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


def _alternatives(texts: Texts, suffix: bool) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """By a marker's first character: patterns for markers and their beginnings; and without the beginnings.

    Group `m3` is the marker of index 3; a beginning has no group.
    """
    open_: dict[str, list[str]] = {text[0]: [] for text in texts}
    final: dict[str, list[str]] = {text[0]: [] for text in texts}
    for i in sorted(range(len(texts)), key=lambda i: (-len(texts[i]), i)):
        text = texts[i]
        here = open_[text[0]]
        # where one marker begins another, the longer one must be ruled out first
        longer = [t for t in texts if len(t) > len(text) and t.startswith(text)]
        here += [rf"(?:{_beginning(t, suffix, len(text))})\Z" for t in longer]
        here.append(f"(?P<m{i}>{_whole(text, suffix)})")
        final[text[0]].append(here[-1])
    for text in texts:
        if len(text) > 1:
            open_[text[0]].append(rf"(?:{_beginning(text, suffix)})\Z")
    return open_, final


class Shape:
    """How a model nearly always writes something: one search instead of a grammar's many steps.

    `whole` matches it where it is complete; its end has to decide, so that nothing behind it changes the match. `begun`
    matches a text that ends in it. What has another shape is left to the grammar, from its first character on.
    `calm`, where it is certain already that this is markup: a pattern of chunks that need not be looked at closer, for
    nothing in them could complete it, and what they spoil is told soon enough.
    """

    __slots__ = ("begun", "calm", "whole")

    def __init__(self, *atoms: Atom, calm: str = "") -> None:
        begun = ""
        for whole, beginning in reversed(atoms):
            begun = f"(?:{whole}{begun}|{beginning})" if begun else f"(?:{beginning})"
        self.whole: Match = re.compile("".join(whole for whole, _ in atoms)).match
        self.begun: Match = re.compile(rf"{begun}\Z").match
        self.calm = re.compile(calm).fullmatch if calm else None


SPACES: Final[Atom] = (r"\s*+", r"\s*+")
NOTHING: Final = Shape(("(?!)", "(?!)"))
"""What no text is."""


def text_atom(texts: Iterable[str], suffix: bool = False, *, group: str = "?:") -> Atom:
    """One of these texts. None may be the beginning of another, unless what follows tells them apart."""
    every = tuple(texts)
    whole = "|".join(_whole(text, suffix) for text in every)
    begun = "|".join(_beginning(text, suffix) for text in every)
    return f"({group}{whole})", f"(?:{begun})?"


def are_distinct(texts: Iterable[str]) -> bool:
    """Whether none of these texts is the beginning of another."""
    ordered = sorted(texts)
    return bool(ordered) and all(not b.startswith(a) for a, b in pairwise(ordered))


class Marks:
    """A fixed set of markers, told apart by their place in the list."""

    __slots__ = ("_at", "_last", "_only", "alert", "begun", "closed", "first", "glance", "texts")

    def __init__(self, texts: Iterable[str], suffix: bool = False) -> None:
        self.texts = tuple(texts)
        open_, final = _alternatives(self.texts, suffix)
        # by the first character: in prose many a letter could begin a marker, and few markers begin with one
        self._at = {first: re.compile("|".join(each)).match for first, each in open_.items()}
        self._last = {first: re.compile("|".join(each)).match for first, each in final.items()}
        begun = "|".join(_beginning(text, suffix) for text in self.texts)
        whole = "|".join(_whole(text, suffix) for text in self.texts)
        self.glance = re.compile(f"(?:{whole})()|(?:{begun})\\Z" if self.texts else "(?!)").search
        """Finds the first marker (its `lastindex` is 1) or the beginning of one at the end of the text (None)."""
        self.begun: Match = re.compile(rf"(?:{begun})\Z" if self.texts else "(?!)").match
        """Matches the beginning of one that the text ends in."""
        self.closed = NOTHING
        """White space, one of them, white space, and what follows."""
        if are_distinct(self.texts):
            self.closed = Shape(SPACES, text_atom(self.texts, suffix, group=""), SPACES, (r"(?=\S)", ""))
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
