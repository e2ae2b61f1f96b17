"""Which number and which phrase of a request belongs to which parameter, by the words around them.

One law: a match is made from names, descriptions and the request alone; where they do not tell, several candidates are
returned and the model picks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations

from callgate.protocols import _ground as ground
from callgate.types import Schema

WINDOW = 5
"""Words on each side of a number that tell what it is."""
MAX_TOGETHER = 6
"""So many are matched as a whole, in every possible way (720); more of them in their order."""
CLEAR = 0.8
"""A match that is better than the next by this much is not left to the model."""

CONCEPTS: Mapping[str, frozenset[str]] = {
    name: frozenset(ground.stem(w) for w in words.split())
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
    words: tuple[ground.Word, ...]
    stems: frozenset[str]
    numbers: tuple[ground.Number, ...]

    @classmethod
    def of(cls, text: str) -> Asked:
        """Take a request apart."""
        numbers = tuple(ground.numbers(text)[: ground.MAX_NUMBERS])
        return cls(text, tuple(ground.words(text)), frozenset(ground.content(text)), numbers)

    def around(self, start: int, end: int, before: int, after: int) -> list[tuple[str, int]]:
        """The stems near a stretch of the text with their distance: negative before it, positive after."""
        real = [w for w in self.words if w.text[:1].isalnum() or w.text in ("$", "€", "£", "%")]
        left = [w for w in real if w.end <= start][-before:]
        right = [w for w in real if w.start >= end][:after]
        out = [(w.stem, -d) for d, w in enumerate(reversed(left), 1)]
        return out + [(w.stem, d) for d, w in enumerate(right, 1)]


def kin(a: str, b: str) -> bool:
    """Two stems that begin alike for five letters: calculat-e, calculat-ion."""
    return min(len(a), len(b)) >= 4 and a[:5] == b[:5]


def wants_expression(name: str, about: Schema) -> bool:
    """Whether a parameter takes an arithmetic expression."""
    words = f"{name} {about.get('description', '')}".lower()
    return "expression" in words or "formula" in words or "算式" in words or "表达式" in words


# --- numbers ------------------------------------------------------------------------------------------------------


def match_numbers(
    params: Sequence[str], required: set[str], abouts: Mapping[str, Schema], asked: Asked, *, has_list: bool
) -> dict[str, list[ground.Number]]:
    """For each parameter its number, or several where the words do not tell; optional ones only if the words do."""
    taken = {v for one in ground.number_lists(asked.text) if len(one) > 1 for v in one} if has_list else set()
    found = [n for n in asked.numbers if n.value not in taken]
    if not params or not found:
        return {}
    needed = [p for p in params if p in required]
    words_cost = 3.0 if sum(not n.weak for n in found) >= len(needed) else 1.0
    score = {
        p: [_number_score(p, abouts.get(p) or {}, n, asked) - (words_cost if n.weak else 0.0) for n in found]
        for p in params
    }
    chosen = _together(needed, len(found), score)
    left = [k for k in range(len(found)) if k not in chosen.values()]
    out = {p: [found[k]] for p, k in chosen.items() if score[p][k] > -2}
    for name in (p for p in params if p not in required):
        row = score[name]
        if left and row[best := max(left, key=row.__getitem__)] >= 1.2:
            out[name] = [found[best]]
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


def _number_score(name: str, about: Schema, number: ground.Number, asked: Asked) -> float:
    """How well the words around a number fit a parameter."""
    by_name = ground.content(name)
    by_words = ground.content(str(about.get("description", ""))) - by_name
    score = 0.0
    for near, distance in asked.around(number.start, number.end, WINDOW, WINDOW):
        weight = (1.0 if distance < 0 else 0.9) / abs(distance) ** 0.7
        if near in by_name or any(kin(near, b) for b in by_name):
            score += 3 * weight
        elif near in by_words:
            score += 1.2 * weight
        elif abs(distance) <= 2 and any(near in c and (c & by_name or c & by_words) for c in CONCEPTS.values()):
            score += 1.5 * weight
    ahead = asked.text[max(0, number.start - len(name) - 6) : number.start].lower()
    if re.search(rf"\b{re.escape(name.lower())}\s*(?:=|:|is|of|to)?\s*[$]?$", ahead):
        score += 4
    if asked.text[number.start : number.end].strip()[:1] in "$€£¥" and CONCEPTS["money"] & (by_name | by_words):
        score += 2
    if number.percent:
        score += 2 if CONCEPTS["rate"] & (by_name | by_words) else -1
    score -= 2.5 if about.get("type") == "integer" and not any(isinstance(v, int) for v in number.values) else 0
    return score - _odd(number, by_name, asked)


def _odd(number: ground.Number, by_name: set[str], asked: Asked) -> float:
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

_PLACE = ground.stem_set("city location place country region state area address destination origin venue town near")
_FROM = ground.stem_set("origin start source from begin depart pickup departure")
_TO = ground.stem_set("destination end target to arrive dropoff arrival")
_DATE = ground.stem_set("date day when deadline")
_TEXT = ground.stem_set("text sentence review message content body string sequence phrase comment")
_PERSON = ground.stem_set(
    "name person player artist author actor director company team recipient user title book movie song"
)
_PATH = ground.stem_set("path file url link email directory folder website dataset")


_CODE = ground.stem_set("id code number identifier key ticket order")
_WORTH = {"quoted": 1.0, "name": 0.8, "code": 0.5, "path": 0.4, "date": 0.0, "phrase": 0.0}
"""What each kind of phrase is worth before anything is known of its place."""


def match_texts(params: Sequence[str], abouts: Mapping[str, Schema], asked: Asked) -> dict[str, list[ground.Span]]:
    """For each required text parameter its phrase, or the phrases that may be it, the most fitting first."""
    spans = ground.spans(asked.text)
    if not params or not spans:
        return {}
    score = {p: {id(s): text_score(p, abouts.get(p) or {}, s, asked) for s in spans} for p in params}
    chosen = _texts_together(params, [s for s in spans if s.kind != "phrase"], score)
    rest = sorted(((score[p][id(s)], p, s) for p in params for s in spans), key=lambda t: -t[0])
    for value, name, span in rest:
        if value >= 1 and name not in chosen and not any(_overlap(span, other) for other in chosen.values()):
            chosen[name] = span
    return {p: _candidates(p, spans, score[p], chosen) for p in params}


def _texts_together(
    params: Sequence[str], strong: Sequence[ground.Span], score: Mapping[str, Mapping[int, float]]
) -> dict[str, ground.Span]:
    """Names, quoted texts, dates and paths matched as a whole, in their order where the words do not tell."""
    if not strong or len(params) > 4 or len(strong) > MAX_TOGETHER:
        return {}
    slots: list[ground.Span | None] = [*strong, *[None] * len(params)]

    def total(order: tuple[int, ...]) -> float:
        picked = [slots[i] for i in order]
        starts = [s.start for s in picked if s is not None]
        rising = sum(a < b for a, b in pairwise(starts))
        return 0.3 * rising + sum(score[p][id(s)] - 1 for p, s in zip(params, picked, strict=True) if s is not None)

    best = max(permutations(range(len(slots)), len(params)), key=total)
    picked = {p: slots[i] for p, i in zip(params, best, strict=True)}
    return {p: s for p, s in picked.items() if s is not None}


def _candidates(
    name: str, spans: Sequence[ground.Span], score: Mapping[int, float], chosen: Mapping[str, ground.Span]
) -> list[ground.Span]:
    own = chosen.get(name)
    others = [s for p, s in chosen.items() if p != name]
    if own is not None and score[id(own)] >= 2:
        return [own]
    free = [s for s in spans if not any(_overlap(s, o) for o in others)] or list(spans)
    ranked = sorted(free, key=lambda s: -score[id(s)])
    if len(ranked) > 1 and score[id(ranked[0])] >= 2 and score[id(ranked[0])] - score[id(ranked[1])] >= CLEAR:
        return ranked[:1]
    return ranked


def _overlap(a: ground.Span, b: ground.Span) -> bool:
    return a.start < b.end and b.start < a.end


def text_score(name: str, about: Schema, span: ground.Span, asked: Asked) -> float:
    """How well a phrase and the words around it fit a parameter."""
    by_name = ground.stems(name)
    by_words = ground.content(str(about.get("description", ""))) - by_name
    inside = ground.content(span.text)
    score = _WORTH[span.kind]
    for near, distance in asked.around(span.start, span.end, 3, 2):
        weight = (1.0 if distance < 0 else 0.7) / abs(distance)
        if near in by_name or any(kin(near, b) for b in by_name):
            score += 2 * weight
        elif near in by_words:
            score += 0.7 * weight
    if inside & by_name:
        score += 1.2 if inside - by_name else -2
    if inside and inside <= by_words:
        score -= 1.5  # the description speaks of the kind of thing, not of this one
    return score + _cues(by_name, by_words, span, asked)


def _cues(by_name: set[str], by_words: set[str], span: ground.Span, asked: Asked) -> float:
    """What a parameter's name says of its value: dates, places, people, files, texts."""
    before = next((w for w in reversed(asked.words) if w.end <= span.start and w.text[:1].isalnum()), None)
    word = before.text.lower() if before else ""
    score = 0.0
    if by_name & _CODE:
        score += 3 if span.kind == "code" else 0
    if "unit" in by_name:
        source = bool(by_name & _FROM)
        score += 2 if source and word[:1].isdigit() else 0
        score += 2 if not source and word == "many" else 0
    if by_name & _DATE or (by_words & _DATE and not by_name & (_PLACE | _PERSON)):
        score += 4 if span.kind == "date" else -0.5
    elif span.kind == "date":
        score -= 2
    if by_name & _PATH:
        score += 4 if span.kind == "path" else 0
    if by_name & _TEXT:
        score += 2 if span.kind == "quoted" else 0
    if (by_name | by_words) & _PLACE and span.kind == "name":
        score += 1.5 if word in ("in", "at", "near", "from", "to", "of", "around", "for") else 0.3
    if by_name & _FROM:
        score += 2 if word in ("from", "between") else 0
    if by_name & _TO:
        score += 2 if word == "to" else 0
    if (by_name | by_words) & _PERSON and span.kind in ("name", "quoted"):
        score += 0.6
    return score
