"""Which number and which phrase of a request belongs to which parameter, by the words around them.

Law: a match is made from names, descriptions and the request alone; where they do not tell, several candidates are
returned and the model picks.
(tests/test_grounding.py::test_where_words_do_not_decide_the_model_picks_among_phrases_of_the_request)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import TYPE_CHECKING

from callgate.grounding import extract, numerals, spelt, wording

if TYPE_CHECKING:
    from callgate.types import Schema

WINDOW = 5
"""Words on each side of a number that tell what it is."""
MAX_TOGETHER = 6
"""So many are matched as a whole, in every possible way (720); more of them in their order."""
CLEAR = 0.8
"""A match that is better than the next by this much is not left to the model."""

CONCEPTS: Mapping[str, frozenset[str]] = {
    name: frozenset(wording.stem(w) for w in words.split())
    for name, words in {
        "time": "time duration second seconds minute minutes hour hours hr day days week weeks month months year years "
        "s min period term long",
        "length": "distance length height width radius diameter side base depth meter meters metre m km kilometer "
        "kilometers mile miles feet foot ft inch inches cm mm displacement far size",
        "money": "price amount cost budget principal investment salary income deposit payment value dollar dollars usd "
        "euro euros $ fee loan revenue money initial balance",
        "rate": "rate interest percent percentage % yield probability discount growth tax",
        "mass": "weight mass kg kilogram kilograms pound pounds lb gram grams g",
        "angle": "angle degree degrees",
        "heat": "temperature celsius fahrenheit kelvin degree degrees",
        "speed": "speed velocity mph kmh km/h m/s meters/second",
        "trial": "trial trials experiment experiments times tosses toss flip flips roll rolls attempt sample size draw",
        "success": "success successes heads head favorable event outcomes",
        "acceleration": "acceleration accelerating accelerate gravity m/s^2 meters/second^2 m/s2",
        "people": "people person guests adults adult passengers travelers children child players",
    }.items()
}
"""Words that speak of one kind of quantity."""


@dataclass(slots=True, frozen=True)
class Asked:
    """A request, taken apart once."""

    text: str
    words: tuple[wording.Word, ...]
    stems: frozenset[str]
    numbers: tuple[spelt.Number, ...]
    known: frozenset[str] = frozenset()
    """Chinese terms that the tool is described in: they are no values."""

    @classmethod
    def of(cls, text: str, known: frozenset[str] = frozenset()) -> Asked:
        """Take a request apart."""
        numbers = tuple(numerals.numbers(text)[: numerals.MAX_NUMBERS])
        return cls(text, tuple(wording.words(text)), frozenset(wording.content(text)), numbers, known)

    def around(self, start: int, end: int, before: int, after: int) -> list[tuple[str, int]]:
        """The stems near a stretch of the text with their distance: negative before it, positive after."""
        real = [w for w in self.words if w.text[:1].isalnum() or w.text in ("$", "€", "£", "%")]
        left = [w for w in real if w.end <= start][-before:]
        right = [w for w in real if w.start >= end][:after]
        out = [(w.stem, -d) for d, w in enumerate(reversed(left), 1)]
        return out + [(w.stem, d) for d, w in enumerate(right, 1)]


# --- numbers ------------------------------------------------------------------------------------------------------


def match_numbers(
    params: Sequence[str], required: set[str], abouts: Mapping[str, Schema], asked: Asked, *, has_list: bool
) -> dict[str, list[spelt.Number]]:
    """For each parameter its number, or several where the words do not tell; optional ones only if the words do."""
    found = _free_numbers(asked, has_list=has_list)
    if not params or not found:
        return {}
    needed = [p for p in params if p in required]
    score = _number_scores({p: abouts.get(p) or {} for p in params}, len(needed), found, asked)
    chosen = _together(needed, len(found), score)
    out = {p: [found[k]] for p, k in chosen.items() if score[p][k] > -2}
    left = [k for k in range(len(found)) if k not in chosen.values()]
    optional = [p for p in params if p not in required]
    return out | {p: [found[k]] for p, k in _optional_numbers(optional, left, score).items()}


def _number_scores(
    params: Mapping[str, Schema], needed: int, found: Sequence[spelt.Number], asked: Asked
) -> dict[str, list[float]]:
    """How well each number fits each parameter. "one" and "a second" are rarely values: numbers in such words count for
    less, and for hardly anything where those in digits are enough."""
    cost = 3.0 if sum(not n.weak for n in found) >= needed else 1.0
    return {
        p: [_number_score(p, about, n, asked) - (cost if n.weak else 0.0) for n in found] for p, about in params.items()
    }


def _free_numbers(asked: Asked, *, has_list: bool) -> list[spelt.Number]:
    """The numbers of a request that belong to no row, where a list parameter takes the rows."""
    rows = [one for one in numerals.number_lists(asked.text) if len(one) > 1] if has_list else []
    taken = {value for one in rows for value in one}
    return [n for n in asked.numbers if n.value not in taken]


def _optional_numbers(optional: Sequence[str], left: list[int], score: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """What is left over, for the optional parameters that the words clearly speak of, each the best that is there."""
    out: dict[str, int] = {}
    for name in optional:
        best = max(left, key=score[name].__getitem__, default=None)
        if best is not None and score[name][best] >= 1.2:
            out[name] = best
            left.remove(best)
    return out


def _together(needed: Sequence[str], count: int, score: Mapping[str, Sequence[float]]) -> dict[str, int]:
    """The best match as a whole. With too few numbers, the parameters that fit best get them."""
    places = range(count)
    if not needed or not count:
        return {}
    if len(needed) > MAX_TOGETHER or count > MAX_TOGETHER + 2:
        return {p: i for i, p in enumerate(needed[:count])}
    if len(needed) > count:
        orders = permutations(needed, count)
        best_names = max(orders, key=lambda names: sum(score[p][k] for k, p in enumerate(names)))
        return {p: k for k, p in enumerate(best_names)}

    def total(order: tuple[int, ...]) -> float:
        rising = sum(a < b for a, b in pairwise(order))
        return sum(score[p][k] for p, k in zip(needed, order, strict=True)) + 0.3 * rising - 0.02 * sum(order)

    best = max(permutations(places, len(needed)), key=total)
    return dict(zip(needed, best, strict=True))


def _number_score(name: str, about: Schema, number: spelt.Number, asked: Asked) -> float:
    """How well the words around a number fit a parameter."""
    by_name = wording.content(name)
    by_words = wording.content(str(about.get("description", ""))) - by_name
    score = _near_score(number, by_name, by_words, asked)
    ahead = asked.text[max(0, number.start - len(name) - 6) : number.start].lower()
    if re.search(rf"\b{re.escape(name.lower())}\s*(?:=|:|is|of|to)?\s*[$]?$", ahead):
        score += 4  # the request names the parameter itself
    score += _sign_score(number, by_name | by_words, asked)
    if about.get("type") == "integer" and not any(isinstance(v, int) for v in number.values):
        score -= 2.5
    return score - _odd(number, by_name, asked)


def _near_score(number: spelt.Number, by_name: set[str], by_words: set[str], asked: Asked) -> float:
    """What the words around a number say: the parameter's name most, its description less, a word of the same kind of
    quantity only at the number's side ("5 meters" for `radius`)."""
    kinds = [concept for concept in CONCEPTS.values() if concept & by_name or concept & by_words]
    score = 0.0
    for near, distance in asked.around(number.start, number.end, WINDOW, WINDOW):
        weight = (1.0 if distance < 0 else 0.9) / abs(distance) ** 0.7
        if near in by_name or any(wording.kin(near, b) for b in by_name):
            score += 3 * weight
        elif near in by_words:
            score += 1.2 * weight
        elif abs(distance) <= 2 and any(near in concept for concept in kinds):
            score += 1.5 * weight
    return score


def _sign_score(number: spelt.Number, words: set[str], asked: Asked) -> float:
    """What the signs of a number say: a currency for money, a percent sign for a rate and against all else."""
    score = 0.0
    if asked.text[number.start : number.end].strip()[:1] in "$€£¥" and CONCEPTS["money"] & words:
        score += 2
    if number.percent:
        score += 2 if CONCEPTS["rate"] & words else -1
    return score


def _odd(number: spelt.Number, by_name: set[str], asked: Asked) -> float:
    """What speaks against a number: it is part of a date, or a year where none is wanted."""
    year = isinstance(number.value, int) and 1000 <= number.value <= 2100
    calendar = {"year", "month", "day", "date"} & by_name
    cost = 0.0
    if "year" in by_name:
        cost -= 2 if year else -1
    elif year and re.search(r"\b(?:in|of|since|year)\s$", asked.text[max(0, number.start - 7) : number.start]):
        cost += 1.5
    if number.in_date and not calendar:
        cost += 3
    return cost


# --- texts --------------------------------------------------------------------------------------------------------

_PLACE = wording.stem_set("city location place country region state area address destination origin venue town near")
_FROM = wording.stem_set("origin start source from begin depart pickup departure")
_TO = wording.stem_set("destination end target to arrive dropoff arrival")
_DATE = wording.stem_set("date day when deadline")
_TEXT = wording.stem_set("text sentence review message content body string sequence phrase comment")
_PERSON = wording.stem_set(
    "name person player artist author actor director company team recipient user title book movie song"
)
_PATH = wording.stem_set("path file url link email directory folder website dataset")


_CODE = wording.stem_set("id code number identifier key ticket order")
_WORTH = {"quoted": 1.0, "name": 0.8, "code": 0.5, "path": 0.4, "date": 0.0, "phrase": 0.0}
"""What each kind of phrase is worth before anything is known of its place."""


def match_texts(params: Sequence[str], abouts: Mapping[str, Schema], asked: Asked) -> dict[str, list[extract.Span]]:
    """For each required text parameter its phrase, or the phrases that may be it, the most fitting first."""
    spans = extract.spans(asked.text, asked.known)
    if not params or not spans:
        return {}
    score = {p: {id(s): text_score(p, abouts.get(p) or {}, s, asked) for s in spans} for p in params}
    chosen = _texts_together(params, [s for s in spans if s.kind != "phrase"], score)
    rest = [(score[p][id(s)], p, s) for p in params for s in spans]
    for value, name, span in sorted(rest, key=lambda row: -row[0]):
        if value >= 1 and name not in chosen and not _overlaps(span, chosen.values()):
            chosen[name] = span
    return {p: _candidates(p, spans, score[p], chosen) for p in params}


def _texts_together(
    params: Sequence[str], strong: Sequence[extract.Span], score: Mapping[str, Mapping[int, float]]
) -> dict[str, extract.Span]:
    """Names, quoted texts, dates and paths matched as a whole, in their order where the words do not tell."""
    if not strong or len(params) > 4 or len(strong) > MAX_TOGETHER:
        return {}
    slots: list[extract.Span | None] = [*strong, *[None] * len(params)]
    cost = 0.5 if len(params) > 1 and all("\u4e00" <= s.text[0] <= "\u9fff" for s in strong) else 1.0
    """What a doubtful match costs; Chinese has no little words around a name, so there the order has to tell."""

    def total(order: tuple[int, ...]) -> float:
        picked = [slots[i] for i in order]
        starts = [s.start for s in picked if s is not None]
        rising = sum(a < b for a, b in pairwise(starts))
        return 0.3 * rising + sum(score[p][id(s)] - cost for p, s in zip(params, picked, strict=True) if s is not None)

    best = max(permutations(range(len(slots)), len(params)), key=total)
    picked = {p: slots[i] for p, i in zip(params, best, strict=True)}
    return {p: s for p, s in picked.items() if s is not None}


def _candidates(
    name: str, spans: Sequence[extract.Span], score: Mapping[int, float], chosen: Mapping[str, extract.Span]
) -> list[extract.Span]:
    own = chosen.get(name)
    others = [s for p, s in chosen.items() if p != name]
    if own is not None and score[id(own)] >= 2:
        return [own]
    free = [s for s in spans if not _overlaps(s, others)] or list(spans)
    ranked = sorted(free, key=lambda s: -score[id(s)])
    if len(ranked) > 1 and score[id(ranked[0])] >= 2 and score[id(ranked[0])] - score[id(ranked[1])] >= CLEAR:
        return ranked[:1]
    return ranked


def _overlaps(span: extract.Span, others: Iterable[extract.Span]) -> bool:
    return any(span.start < other.end and other.start < span.end for other in others)


def text_score(name: str, about: Schema, span: extract.Span, asked: Asked) -> float:
    """How well a phrase and the words around it fit a parameter."""
    by_name = wording.stems(name)
    by_words = wording.content(str(about.get("description", ""))) - by_name
    inside = wording.content(span.text)
    score = _WORTH[span.kind]
    for near, distance in asked.around(span.start, span.end, 3, 2):
        weight = (1.0 if distance < 0 else 0.7) / abs(distance)
        if near in by_name or any(wording.kin(near, b) for b in by_name):
            score += 2 * weight
        elif near in by_words:
            score += 0.7 * weight
    if inside & by_name:
        score += 1.2 if inside - by_name else -2
    if inside and inside <= by_words:
        score -= 1.5  # the description speaks of the kind of thing, not of this one
    return score + _cues(by_name, by_words, span, asked)


@dataclass(slots=True, frozen=True)
class _Cue:
    """What a kind of parameter says of its value."""

    means: frozenset[str]
    """Stems of names that are of this kind."""
    score: Callable[[extract.Span, str], float]
    """What a phrase is worth for it, by the phrase and the word before it."""
    by_description: bool = False
    """Whether the description may say it too, not the name alone."""


_PLACE_BEFORE = frozenset({"in", "at", "near", "from", "to", "of", "around", "for"})
_CUES = (
    _Cue(_CODE, lambda span, before: 3 if span.kind == "code" else 0),
    _Cue(_PATH, lambda span, before: 4 if span.kind == "path" else 0),
    _Cue(_TEXT, lambda span, before: 2 if span.kind == "quoted" else 0),
    _Cue(_FROM, lambda span, before: 2 if before in ("from", "between") else 0),
    _Cue(_TO, lambda span, before: 2 if before == "to" else 0),
    _Cue(_PERSON, lambda span, before: 0.6 if span.kind in ("name", "quoted") else 0, by_description=True),
    _Cue(
        _PLACE,
        lambda span, before: 0 if span.kind != "name" else 1.5 if before in _PLACE_BEFORE else 0.3,
        by_description=True,
    ),
)


def _cues(by_name: set[str], by_words: set[str], span: extract.Span, asked: Asked) -> float:
    """What a parameter's name says of its value: dates, units, places, people, files, texts."""
    found = next((w for w in reversed(asked.words) if w.end <= span.start and w.text[:1].isalnum()), None)
    before = found.text.lower() if found else ""
    both = by_name | by_words
    score = sum(cue.score(span, before) for cue in _CUES if cue.means & (both if cue.by_description else by_name))
    return score + _date_cue(by_name, by_words, span) + _unit_cue(by_name, before)


def _date_cue(by_name: set[str], by_words: set[str], span: extract.Span) -> float:
    """A date belongs where one is asked for and nowhere else. Descriptions speak of days by the way ("weather of the
    day in a city"), so they count only where the name is no other kind of thing."""
    wanted = by_name & _DATE or (by_words & _DATE and not by_name & (_PLACE | _PERSON))
    if span.kind == "date":
        return 4 if wanted else -2
    return -0.5 if wanted else 0


def _unit_cue(by_name: set[str], before: str) -> float:
    """`from_unit` stands behind a number, `to_unit` behind "how many"."""
    if "unit" not in by_name:
        return 0
    return 2 if (before[:1].isdigit() if by_name & _FROM else before == "many") else 0
