"""Sets of texts that a grammar can spell out: regular expressions, ranges of numbers, and what two of them share.

Law: the rules of a language write its texts and no others, and never lead where no text ends.
(tests/test_protocols_grammar.py::test_the_rules_of_a_pattern_write_what_it_matches_and_nothing_else)

Theory of operation. A language is a value; `derivative` is what may follow after one character (Brzozowski 1964), so
its states are the languages that are reached from it. That is all that an intersection or a complement needs, which no
translation of a pattern's syntax can write: lookaheads, a pattern with a length, a multiple within bounds.
1. Characters that no set of the language tells apart are one class, so a state has few ways out.
2. States from which no text ends are left out: an engine that goes there can write nothing any more.
3. More than `MAX_STATES` are given up: the caller leaves the keyword to the check of the arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

MAX_STATES = 3000
"""Rules of one language; an engine's grammar of some thousand rules still costs less than a token."""

Ranges: TypeAlias = tuple[tuple[int, int], ...]


class TooLarge(ValueError):
    """The language has more states than a grammar should."""


@dataclass(slots=True, frozen=True)
class Never:
    """No text at all."""


@dataclass(slots=True, frozen=True)
class Empty:
    """The empty text alone."""


@dataclass(slots=True, frozen=True)
class Chars:
    """One character of these ranges."""

    ranges: Ranges


@dataclass(slots=True, frozen=True)
class Then:
    """One text after the other."""

    first: Language
    rest: Language


@dataclass(slots=True, frozen=True)
class Either:
    """A text of one of them."""

    parts: frozenset[Language]


@dataclass(slots=True, frozen=True)
class Both:
    """A text of all of them."""

    parts: frozenset[Language]


@dataclass(slots=True, frozen=True)
class Not:
    """Every other text."""

    of: Language


@dataclass(slots=True, frozen=True)
class Times:
    """So many texts in a row; `most` None: any number."""

    of: Language
    least: int
    most: int | None


@dataclass(slots=True, frozen=True)
class Multiple:
    """Decimal numbers that are multiples of `step` when their point is moved `places` to the right."""

    step: int
    places: int
    left: int = 0
    """The remainder so far."""
    behind: int | None = None
    """Digits behind the point so far; None: before it."""


Language: TypeAlias = Never | Empty | Chars | Then | Either | Both | Not | Times | Multiple

NEVER, EMPTY = Never(), Empty()
ALPHABET: Ranges = ((9, 10), (13, 13), (32, 126), (160, 0xD7FF), (0xF900, 0xFFFD), (0x10000, 0xEFFFF))
"""What is ever written: no control characters but those with an escape of their own, no halves of a pair, nothing for
private use."""
ANY = Chars(ALPHABET)
ALL = Times(ANY, 0, None)


# --- made so that equal languages are mostly equal values -----------------------------------------------------------


def chars(*ranges: tuple[int, int]) -> Language:
    """One character of these ranges."""
    found = overlap(joined(ranges), ALPHABET)
    return Chars(found) if found else NEVER


def literal(text: str) -> Language:
    """This text."""
    return sequence([chars((ord(c), ord(c))) for c in text])


def then(first: Language, rest: Language) -> Language:
    """One after the other."""
    if NEVER in (first, rest):
        return NEVER
    if first == EMPTY:
        return rest
    if rest == EMPTY:
        return first
    if isinstance(first, Then):
        return Then(first.first, then(first.rest, rest))
    return Then(first, rest)


def sequence(parts: Sequence[Language]) -> Language:
    """All of them, one after the other."""
    out: Language = EMPTY
    for part in reversed(parts):
        out = then(part, out)
    return out


def either(parts: Iterable[Language]) -> Language:
    """A text of one of them."""
    flat: set[Language] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, Either) else {part}
    flat -= {NEVER}
    if ALL in flat:
        return ALL
    if not flat:
        return NEVER
    return next(iter(flat)) if len(flat) == 1 else Either(frozenset(flat))


def both(parts: Iterable[Language]) -> Language:
    """A text of all of them."""
    flat: set[Language] = set()
    for part in parts:
        flat |= part.parts if isinstance(part, Both) else {part}
    flat -= {ALL}
    if NEVER in flat:
        return NEVER
    if not flat:
        return ALL
    return next(iter(flat)) if len(flat) == 1 else Both(frozenset(flat))


def negated(of: Language) -> Language:
    """Every other text."""
    if isinstance(of, Not):
        return of.of
    if of == NEVER:
        return ALL
    return NEVER if of == ALL else Not(of)


def times(of: Language, least: int, most: int | None) -> Language:
    """So many in a row."""
    if most == 0 or of == EMPTY:
        return EMPTY
    if of == NEVER:
        return EMPTY if least == 0 else NEVER
    return of if (least, most) == (1, 1) else Times(of, least, most)


def optional(of: Language) -> Language:
    """It, or nothing."""
    return either([of, EMPTY])


# --- what a language is ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=20_000)
def ends(language: Language) -> bool:
    """Whether the empty text is in it."""
    match language:
        case Empty():
            return True
        case Then(first, rest):
            return ends(first) and ends(rest)
        case Either(parts):
            return any(map(ends, parts))
        case Both(parts):
            return all(map(ends, parts))
        case Not(of):
            return not ends(of)
        case Times(of, least, _):
            return least == 0 or ends(of)
        case Multiple(step, places, left, behind):
            return bool(left * 10 ** (places - (behind or 0)) % step == 0)
        case _:
            return False


@lru_cache(maxsize=50_000)
def derivative(language: Language, char: int) -> Language:
    """What may follow after this character."""
    match language:
        case Chars(ranges):
            return EMPTY if any(low <= char <= high for low, high in ranges) else NEVER
        case Then(first, rest):
            after = then(derivative(first, char), rest)
            return either([after, derivative(rest, char)]) if ends(first) else after
        case Either(parts):
            return either(derivative(part, char) for part in parts)
        case Both(parts):
            return both(derivative(part, char) for part in parts)
        case Not(of):
            return negated(derivative(of, char))
        case Times(of, least, most):
            left = times(of, max(0, least - 1), None if most is None else most - 1)
            return then(derivative(of, char), left)
        case Multiple():
            return _next_digit(language, char)
        case _:
            return NEVER


def _next_digit(number: Multiple, char: int) -> Language:
    if char == ord("."):
        return Multiple(number.step, number.places, number.left, 0) if number.behind is None else NEVER
    if char == ord("-"):
        return number
    digit = char - ord("0")
    if not 0 <= digit <= 9:
        return NEVER
    if number.behind == number.places:  # beyond the places of the step only zeros leave a multiple
        return number if digit == 0 else NEVER
    behind = None if number.behind is None else number.behind + 1
    return Multiple(number.step, number.places, (number.left * 10 + digit) % number.step, behind)


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Sorted, without overlap."""
    out: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if out and low <= out[-1][1] + 1:
            out[-1] = (out[-1][0], max(out[-1][1], high))
        elif low <= high:
            out.append((low, high))
    return tuple(out)


def overlap(one: Ranges, other: Ranges) -> Ranges:
    """What both hold."""
    return joined((max(a, c), min(b, d)) for a, b in one for c, d in other if max(a, c) <= min(b, d))


def others(ranges: Ranges) -> Ranges:
    """The rest of the alphabet."""
    out, at = [], 0
    for low, high in (*ranges, (0x110000, 0x110000)):
        out.append((at, low - 1))
        at = high + 1
    return overlap(joined(r for r in out if r[0] <= r[1]), ALPHABET)


def _sets(language: Language, out: set[Ranges]) -> None:
    """Every set of characters in it."""
    match language:
        case Chars(ranges):
            out.add(ranges)
        case Then(first, rest):
            _sets(first, out)
            _sets(rest, out)
        case Either(parts) | Both(parts):
            for part in parts:
                _sets(part, out)
        case Not(of) | Times(of, _, _):
            _sets(of, out)
        case Multiple():
            out |= {((ord(c), ord(c)),) for c in "0123456789.-"}
        case _:
            pass


def classes(language: Language) -> list[Ranges]:
    """Rule 1: the alphabet, cut so that no set of the language tells two characters of a class apart."""
    found: set[Ranges] = set()
    _sets(language, found)
    parts: list[Ranges] = [ALPHABET]
    for ranges in found:
        rest = others(ranges)
        parts = [piece for part in parts for piece in (overlap(part, ranges), overlap(part, rest)) if piece]
    return parts


@dataclass(slots=True, frozen=True)
class State:
    """One rule: whether a text may end here, and where each set of characters leads."""

    end: bool
    ways: tuple[tuple[Ranges, int], ...]


@lru_cache(maxsize=512)
def states(language: Language) -> tuple[State, ...]:
    """The rules of a language, the first one to begin with; none: it holds no text.

    Raises TooLarge.
    """
    parts = classes(language)
    order: list[Language] = [language]
    number = {language: 0}
    raw: list[tuple[bool, dict[int, list[tuple[int, int]]]]] = []
    for here in order:  # grows while it is gone through
        ways: dict[int, list[tuple[int, int]]] = {}
        for part in parts:
            after = derivative(here, part[0][0])
            if after == NEVER:
                continue
            if after not in number:
                if len(order) == MAX_STATES:
                    raise TooLarge
                number[after] = len(order)
                order.append(after)
            ways.setdefault(number[after], []).extend(part)
        raw.append((ends(here), ways))
    return _alive(raw)


def _alive(raw: Sequence[tuple[bool, dict[int, list[tuple[int, int]]]]]) -> tuple[State, ...]:
    """Rule 2."""
    into: list[list[int]] = [[] for _ in raw]
    for at, (_, ways) in enumerate(raw):
        for to in ways:
            into[to].append(at)
    alive, todo = set[int](), [at for at, (end, _) in enumerate(raw) if end]
    while todo:
        at = todo.pop()
        if at not in alive:
            alive.add(at)
            todo += into[at]
    if 0 not in alive:
        return ()
    names = {at: new for new, at in enumerate(sorted(alive))}
    return tuple(
        State(end, tuple((joined(ranges), names[to]) for to, ranges in ways.items() if to in alive))
        for at, (end, ways) in enumerate(raw)
        if at in alive
    )


def holds(language: Language, text: str) -> bool:
    """Whether a text is in it."""
    for char in text:
        language = derivative(language, ord(char))
    return ends(language)
