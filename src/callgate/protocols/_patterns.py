"""Regular expressions of JSON Schema (ECMA-262) as languages, lookaheads and anchors included.

Law: a text of the language matches the pattern; what cannot be read as a language is refused, never guessed.
(tests/test_protocols_grammar.py::test_the_rules_of_a_pattern_write_what_it_matches_and_nothing_else)

A pattern is read from its end: what follows a part is the language of the rest of the text, and that is all that an
anchor or a lookahead says something about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from callgate.protocols._language import (
    ALL,
    EMPTY,
    Language,
    Ranges,
    TooLarge,
    both,
    chars,
    either,
    holds,
    joined,
    negated,
    others,
    states,
    then,
    times,
)

MAX_REPEATS = 2000
"""A counter above this is taken as this: it is the most that an engine's grammar could write."""

MAX_WRITTEN_OUT = 16
"""So often a part with an anchor or a lookahead in it is repeated."""


FORMATS: Mapping[str, str] = {
    "date": r"^[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|"
    r"02-(?:0[1-9]|1[0-9]|2[0-8]))$",
    "time": r"^(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])$",
    "uuid": r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$",
    "ipv4": r"^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)\.){3}(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)$",
    "ipv6": r"^(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}$",
    "email": r"^[A-Za-z0-9]+(?:[._%+-][A-Za-z0-9]+)*@[A-Za-z0-9]+(?:[.-][A-Za-z0-9]+)*\.[A-Za-z]{2,12}$",
    "hostname": r"^[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*(?:\.[A-Za-z0-9]+(?:-[A-Za-z0-9]+)*)*$",
    "uri": r"^[a-z][a-z0-9+.-]{1,11}:(?://)?(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-F]{2})+(?:#[A-Za-z0-9._~/-]*)?$",
    "uri-reference": r"^(?:[A-Za-z0-9._~/?@!$&'()*+,;=-]|%[0-9A-F]{2})+$",
    "duration": r"^P(?:[0-9]{1,4}W|[0-9]{1,4}Y(?:[0-9]{1,2}M(?:[0-9]{1,2}D)?)?|[0-9]{1,3}M(?:[0-9]{1,2}D)?|[0-9]{1,4}D|"
    r"T[0-9]{1,3}H(?:[0-9]{1,2}M(?:[0-9]{1,2}S)?)?|T[0-9]{1,3}M(?:[0-9]{1,2}S)?|T[0-9]{1,4}S)$",
    "json-pointer": r"^(?:/[A-Za-z0-9_.-]*)*$",
    "regex": r"^[A-Za-z0-9 _-]+$",
}
"""Formats as patterns: what they match is of the format, though not all that is."""
FORMATS = {**FORMATS, "date-time": FORMATS["date"][:-1] + "T" + FORMATS["time"][1:]}


class Unreadable(ValueError):
    """A pattern with something that is no language: a back reference, a word boundary, a look behind."""


Follow: TypeAlias = Callable[[Language], Language]
"""From the language of the rest to that of a part and the rest."""


@dataclass(slots=True, frozen=True)
class _Part:
    """A part of a pattern: a plain language, or one that says something about what follows it."""

    plain: Language | None
    follow: Follow

    @classmethod
    def of(cls, language: Language) -> _Part:
        """A part that is only what it holds."""
        return cls(language, lambda rest: then(language, rest))


_DIGIT: Ranges = ((48, 57),)
_WORD: Ranges = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Ranges = (
    *((9, 13), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029)),
    *((0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000), (0xFEFF, 0xFEFF)),
)
_CLASSES: dict[str, Ranges] = {
    "d": _DIGIT,
    "w": _WORD,
    "s": _SPACE,
    "D": others(_DIGIT),
    "W": others(_WORD),
    "S": others(_SPACE),
}
_PROPERTIES: dict[str, Ranges] = {
    # A part of each: what is written must match, it need not be all that could.
    "L": ((65, 90), (97, 122), (0x4E00, 0x9FA5)),
    "Letter": ((65, 90), (97, 122), (0x4E00, 0x9FA5)),
    "Alphabetic": ((65, 90), (97, 122), (0x4E00, 0x9FA5)),
    "Lu": ((65, 90),),
    "Uppercase": ((65, 90),),
    "Ll": ((97, 122),),
    "Lowercase": ((97, 122),),
    "N": _DIGIT,
    "Nd": _DIGIT,
    "P": ((33, 35), (37, 42), (44, 47), (58, 59), (63, 64), (91, 93), (95, 95)),
    "Z": ((32, 32),),
    "Zs": ((32, 32),),
    "Script=Han": ((0x4E00, 0x9FA5),),
    "Han": ((0x4E00, 0x9FA5),),
    "Script=Latin": ((65, 90), (97, 122)),
    "Script=Greek": ((0x3B1, 0x3C9),),
    "Script=Cyrillic": ((0x410, 0x44F),),
}
_CONTROLS = {"n": 10, "t": 9, "r": 13, "f": 12, "v": 11, "0": 0}


def language_of_pattern(pattern: str, *, exact: bool = False) -> Language:
    """The texts in which the pattern is found somewhere, as JSON Schema means it; some of them, unless it must be
    `exact`. Raises Unreadable."""
    reader = _Reader(pattern, exact=exact)
    found = reader.alternatives(top=True)
    if reader.at < len(pattern):
        raise Unreadable(pattern)
    return found.follow(ALL)


class _Reader:
    """Reads one pattern; `at` is where it stands."""

    def __init__(self, pattern: str, *, exact: bool) -> None:
        self._text = pattern
        self._exact = exact or "(?!" in pattern or "[^" in pattern
        self.at = 0

    def _peek(self, ahead: int = 1) -> str:
        return self._text[self.at : self.at + ahead]

    def _take(self, text: str) -> bool:
        if self._text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def _next(self) -> str:
        if self.at >= len(self._text):
            raise Unreadable(self._text)
        self.at += 1
        return self._text[self.at - 1]

    # --- parts --------------------------------------------------------------------------------------------------------

    def alternatives(self, *, top: bool = False) -> _Part:
        """Up to a closing bracket or the end."""
        found = [self._sequence(top=top)]
        while self._take("|"):
            found.append(self._sequence(top=top))
        if all(part.plain is not None for part in found):
            return _Part.of(either(part.plain for part in found if part.plain is not None))
        return _Part(None, lambda rest: either(part.follow(rest) for part in found))

    def _sequence(self, *, top: bool) -> _Part:
        anchored = top and self._take("^")
        parts: list[_Part] = [] if anchored or not top else [_Part.of(ALL)]
        while self._peek() not in ("", "|", ")"):
            parts.append(self._repeated(self._atom(first=top and anchored and not parts)))
        if not all(part.plain is not None for part in parts):
            return _Part(None, lambda rest: _all(parts, rest))
        return _Part(_all(parts, EMPTY), lambda rest: _all(parts, rest))

    def _atom(self, *, first: bool) -> _Part:
        match char := self._next():
            case "(":
                return self._group(first=first)
            case "[":
                return _Part.of(chars(*self._set()))
            case ".":
                return _Part.of(chars(*others(((10, 10), (13, 13)))))
            case "$":
                return _Part(None, lambda rest: both([EMPTY, rest]))
            case "^" if first:  # "^^a" is "^a"
                return _Part.of(EMPTY)
            case "\\":
                return _Part.of(chars(*self._escape()))
            case "^" | "*" | "+" | "?":
                raise Unreadable(self._text)
            case _:
                return _Part.of(chars((ord(char), ord(char))))

    def _group(self, *, first: bool) -> _Part:
        """A group, or a look ahead. `first`: nothing stands before it, so it may be anchored itself."""
        ahead = next((mark for mark in ("?=", "?!") if self._take(mark)), None)
        if ahead is None and self._take("?") and not self._take(":"):
            self._name()
        inner = self.alternatives(top=False) if not (first and self._peek() == "^") else self._anchored()
        if not self._take(")"):
            raise Unreadable(self._text)
        if ahead is None:
            return inner
        wanted = inner.follow(ALL)
        return _Part(None, lambda rest: both([negated(wanted) if ahead == "?!" else wanted, rest]))

    def _anchored(self) -> _Part:
        self._take("^")
        return self.alternatives()

    def _name(self) -> None:
        """The name of a group; a look behind is no language of what follows."""
        self._take("P")
        if not self._take("<") or self._peek() in ("=", "!"):
            raise Unreadable(self._text)
        while self._next() != ">":
            pass

    def _repeated(self, part: _Part) -> _Part:
        counts = self._counts()
        if counts is None:
            return part
        self._take("?")  # lazy or not, the same texts match
        if part.plain is None:
            return self._written_out(part, *counts)
        return _Part.of(times(part.plain, *counts))

    def _written_out(self, part: _Part, least: int, most: int | None) -> _Part:
        """A part that speaks of what follows it, repeated: each time it speaks of something else."""
        if most is None or most > MAX_WRITTEN_OUT:
            raise Unreadable(self._text)

        def follow(rest: Language) -> Language:
            for count in range(most, 0, -1):
                again = part.follow(rest)
                rest = again if count <= least else either([again, rest])
            return rest

        return _Part(None, follow)

    def _counts(self) -> tuple[int, int | None] | None:
        for mark, counts in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(mark):
                return counts
        close = self._text.find("}", self.at)
        if self._peek() != "{" or close < 0:
            return None
        low, comma, high = self._text[self.at + 1 : close].partition(",")
        if not low.isdigit() or not (high.isdigit() or not high):
            return None  # a brace that counts nothing is one
        self.at = close + 1
        least = min(int(low), MAX_REPEATS)
        return least, (min(int(high), MAX_REPEATS) if high else None) if comma else least

    # --- characters ---------------------------------------------------------------------------------------------------

    def _escape(self) -> Ranges:
        """The characters of an escape; the stroke is behind."""
        char = self._next()
        if char in _CLASSES:
            return _CLASSES[char]
        if char in _CONTROLS:
            return ((_CONTROLS[char], _CONTROLS[char]),)
        if char in "pP":
            return self._property(negative=char == "P")
        if char == "u" and self._take("{"):
            return self._code(self._text.find("}", self.at) - self.at, closed=True)
        if char in "ux":
            return self._code(4 if char == "u" else 2)
        if char.isalnum():  # \b, \B, \1, \k: no characters
            raise Unreadable(self._text)
        return ((ord(char), ord(char)),)

    def _code(self, digits: int, *, closed: bool = False) -> Ranges:
        try:
            code = int(self._peek(digits), 16)
        except ValueError:
            raise Unreadable(self._text) from None
        self.at += digits + closed
        return ((code, code),)

    def _property(self, *, negative: bool) -> Ranges:
        if not self._take("{") or (close := self._text.find("}", self.at)) < 0:
            raise Unreadable(self._text)
        name, self.at = self._text[self.at : close], close + 1
        found = _PROPERTIES.get(name.removeprefix("General_Category=").removeprefix("gc="))
        # What a property does not hold is not known from a part of what it holds.
        if found is None or negative or self._exact:
            raise Unreadable(self._text)
        return found

    def _set(self) -> Ranges:
        """The characters between square brackets; the opening one is behind."""
        negative = self._take("^")
        found: list[tuple[int, int]] = []
        while not self._take("]"):
            low = self._member()
            if self._peek() == "-" and self._peek(2) != "-]" and len(low) == 1 and low[0][0] == low[0][1]:
                self.at += 1
                high = self._member()
                if len(high) != 1 or high[0][1] < low[0][0]:
                    raise Unreadable(self._text)
                low = ((low[0][0], high[0][1]),)
            found += low
        ranges = joined(found)
        return others(ranges) if negative else ranges

    def _member(self) -> Ranges:
        char = self._next()
        if char != "\\":
            return ((ord(char), ord(char)),)
        return ((8, 8),) if self._take("b") else self._escape()


def _all(parts: list[_Part], rest: Language) -> Language:
    for part in reversed(parts):
        rest = part.follow(rest)
    return rest


def language_of_patterns(patterns: tuple[str, ...]) -> Language:
    """The texts in which all of them are found. Raises Unreadable."""
    return both(language_of_pattern(pattern) for pattern in patterns)


def examples(pattern: str, count: int) -> list[str]:
    """The shortest texts that match a pattern, each once."""
    try:
        found = states(language_of_pattern(pattern))
    except (Unreadable, TooLarge, RecursionError):
        return []
    out: list[str] = []
    edge = [("", 0)] if found else []
    for text, at in edge:  # grows while it is gone through
        if found[at].end and text:
            out.append(text)
        if len(out) == count or len(edge) > 20 * count + 200:
            break
        edge += [(text + chr(low), to) for ranges, to in found[at].ways for low, _ in ranges[-2:]]
        edge += [(text + chr(low + 1), to) for ranges, to in found[at].ways for low, high in ranges[-1:] if low < high]
    return list(dict.fromkeys(out))


def matches(pattern: str, text: str) -> bool:
    """Whether the pattern is found in a text; not, if it cannot be read."""
    try:
        return holds(language_of_pattern(pattern), text)
    except Unreadable:
        return False
