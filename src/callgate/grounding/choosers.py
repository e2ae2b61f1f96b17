"""Choosing a tool for a request by words: BM25 ranks the tools, a fitted logistic tells whether any is needed.

Law: "none" is always a possible choice, and every choice says how sure it is.
(tests/test_grounding.py::test_what_no_tool_is_for_fits_badly)

The weights of `fitness` were fitted on the development third of BFCL v4 (docs/asking.md), never on what is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callgate.grounding import extract, numerals, wording

if TYPE_CHECKING:
    from callgate.types import ToolSpec

K1, B = 2.0, 0.3
"""The usual constants of BM25."""
NAME_WEIGHT, DESCRIPTION_WEIGHT, PARAMETER_WEIGHT, EXAMPLE_WEIGHT = 3, 2, 1, 3
"""How often a word counts, by where it stands."""
COMMON = wording.word_set(
    """
    calculat comput determin retriev provid return given specif certain valu number input output function comput
    us perform creat mak generat information data detail list nam type current bas includ
    """
)
"""Stems that most tools share: they tell little."""

ACTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(wording.stem(w) for w in verbs.split())
    for name, verbs in {
        "look": "find search look lookup get show list check fetch retrieve query view see tell browse explore suggest",
        "book": "book reserve schedule appointment reservation booking",
        "buy": "buy purchase order pay checkout",
        "play": "play listen stream hear",
        "add": "add create insert new register save append record",
        "remove": "delete remove cancel drop erase",
        "change": "update change modify set edit rename adjust",
        "send": "send email message notify post share reply",
    }.items()
}
"""Kinds of action, by the verbs of a tool's name and of a request: to look for a room is not to book it."""
FITTING_ACTION, OTHER_ACTION = 1.2, 0.55
"""A tool that does what the request's verb says gains; one that acts where nothing of the kind is asked loses."""


KINDS: Mapping[str, tuple[str, ...]] = {
    "货币": ("美元", "欧元", "日元", "英镑", "港币", "韩元", "人民币", "卢布", "汇率"),
    "天气": ("下雨", "下雪", "气温", "温度", "多冷", "多热", "带伞"),
    "时间": ("几点",),
}
"""Chinese kinds, by the words of a request that belong to them: a request says 美元, a tool says 货币."""

SAME: Mapping[str, str] = {
    wording.stem(word): wording.stem(group.split()[0])
    for group in (
        "movie film cinema",
        "song music track tune listen",
        "restaurant eat dine dinner lunch hungry",
        "hotel accommodation lodging",
        "therapist counselor counsellor psychologist psychiatrist counseling",
        "doctor physician",
        "lawyer attorney",
        "flight fly plane",
        "car vehicle automobile",
        "email mail",
        "photo picture image",
        "weather forecast rain",
        "event concert",
        "multiply product",
        "sort arrange",
        "price cost",
    )
    for word in group.split()
}
"""English words that name the same kind of thing: users and authors of tools take different ones."""
MISSING = 0.85
"""What a tool's score is worth for each of its required texts that nothing in the request can be."""

ALIKE = 0.5
"""Two requests that share half of their words, values aside, ask for the same."""
EVIDENCE_WEIGHT = 6.0


@dataclass(slots=True, frozen=True)
class Ranked:
    """The tools for a request, the best first, with a score each and how well the best one fits (0..1)."""

    tools: tuple[ToolSpec, ...]
    scores: tuple[float, ...]
    fit: float

    @property
    def margin(self) -> float:
        """How far the best is ahead of the second, 0..1."""
        if len(self.scores) < 2 or self.scores[0] <= 0:
            return 1.0 if self.scores and self.scores[0] > 0 else 0.0
        return 1 - max(self.scores[1], 0.0) / self.scores[0]


def rank(request: str, tools: Sequence[ToolSpec]) -> Ranked:
    """BM25 over names, descriptions, parameters and example requests."""
    wanted = _wanted(request)
    documents = [_document(tool) for tool in tools]
    shown = [evidence(request, tool) for tool in tools]
    scores = [
        s * _action_fit(request, t) * MISSING ** _texts_missing(request, t) + EVIDENCE_WEIGHT * e + 1e-3
        for s, t, e in zip(_bm25(wanted, documents), tools, shown, strict=True)
    ]
    order = sorted(range(len(tools)), key=lambda i: -scores[i])
    best = [tools[i] for i in order]
    spoken = shown[order[0]] if best else 0.0
    fit = 0.0 if spoken < 0 or not best else max(fitness(request, best[0]), spoken)
    return Ranked(tuple(best), tuple(scores[i] for i in order), fit)


def _wanted(request: str) -> set[str]:
    """The stems of a request, and the kinds of things that it names."""
    return _content(request) | {kind for kind, terms in KINDS.items() if any(t in request for t in terms)}


def _content(text: str) -> set[str]:
    """The telling stems of a text, each kind of thing under one name."""
    return {SAME.get(stem, stem) for stem in wording.content(text)}


def _document(tool: ToolSpec) -> Counter[str]:
    """The stems of everything that describes a tool, with their weights."""
    out: Counter[str] = Counter()
    properties: Mapping[str, object] = tool.parameters.get("properties") or {}
    for weight, text in (
        (NAME_WEIGHT, tool.name),
        (DESCRIPTION_WEIGHT, tool.description),
        *((PARAMETER_WEIGHT, f"{n} {_words_of(s)}") for n, s in properties.items()),
        *((EXAMPLE_WEIGHT, str(e.get("request", ""))) for e in tool.examples),
    ):
        for word in _content(text):
            out[word] += weight
    return out


def _words_of(schema: object) -> str:
    if not isinstance(schema, Mapping):
        return ""
    return " ".join([str(schema.get("description", "")), *(str(v) for v in schema.get("enum") or ())])


def _description_of(schema: object) -> str:
    return str(schema.get("description", "")) if isinstance(schema, Mapping) else ""


def _bm25(wanted: set[str], documents: Sequence[Counter[str]]) -> list[float]:
    sizes = [sum(d.values()) for d in documents]
    mean = sum(sizes) / len(sizes) if sizes else 1.0
    scores = [0.0] * len(documents)
    for word in wanted:
        hits = [_count(word, d) for d in documents]
        having = sum(h > 0 for h in hits)
        rarity = math.log(1 + (len(documents) - having + 0.5) / (having + 0.5))
        if word in COMMON:
            rarity *= 0.3
        for i, count in enumerate(hits):
            if count:
                scores[i] += rarity * count * (K1 + 1) / (count + K1 * (1 - B + B * sizes[i] / (mean or 1)))
    return scores


def evidence(request: str, tool: ToolSpec) -> float:
    """What speaks for a tool beside its description: the request holds an expression that it takes, or is like one of
    its examples; 0..1. -1: it takes an expression and there is none."""
    properties: Mapping[str, object] = tool.parameters.get("properties") or {}
    found = 0.0
    if any(numerals.wants_expression(n, s) for n, s in properties.items() if isinstance(s, Mapping)):
        found = 0.95 if numerals.expression(request) else -1.0
    asked = _frame(request)
    for example in tool.examples:
        known = _frame(str(example.get("request", "")))
        if (asked & known) - STOPPED:
            found = max(found, len(asked & known) / len(asked | known))
    return found if found >= ALIKE or found < 0 else 0.0


STOPPED = frozenset(wording.stem(word) for word in wording.STOP)


def _frame(text: str) -> set[str]:
    """What a request says beside its values: its words without numbers, names and quoted texts."""
    for value in [*extract.names(text), *extract.quoted(text), *extract.dates(text)]:
        text = text.replace(value, " ")
    return {w.stem for w in wording.words(text) if w.text.isalpha()} - {"a", "an", "the", "pleas", "i", "to"}


def _texts_missing(request: str, tool: ToolSpec) -> int:
    """How many of a tool's required texts nothing in the request can be. Chinese has no capitals that would tell."""
    if wording.is_han(request):
        return 0
    properties: Mapping[str, object] = tool.parameters.get("properties") or {}
    needed = [properties.get(name) for name in tool.parameters.get("required") or ()]
    texts = len([s for s in needed if isinstance(s, Mapping) and s.get("type") == "string" and "enum" not in s])
    return max(0, texts - _proper(request))


def _action_fit(request: str, tool: ToolSpec) -> float:
    own = _actions(tool.name)
    if not own:
        return 1.0
    asked = _actions(request)
    if own & asked:
        return FITTING_ACTION
    return 1.0 if own == {"look"} else OTHER_ACTION


def _actions(text: str) -> set[str]:
    stems = wording.stems(text)
    return {name for name, verbs in ACTIONS.items() if verbs & stems}


def _count(word: str, document: Counter[str]) -> float:
    """A word counts in full, a kindred one (converting, conversion) by half."""
    if word in document:
        return document[word]
    return 0.5 * max((n for w, n in document.items() if wording.kin(word, w)), default=0)


# --- "none" -------------------------------------------------------------------------------------------------------

FEATURES = ("bias", "name", "covered", "described", "parameters", "numbers", "names", "talk", "explained")
WEIGHTS = (-3.88, 1.39, 0.25, 0.47, 1.27, 1.63, 1.76, -1.5, 1.57)
"""All but that of "talk" are fitted: no set of the leaderboard greets."""
GREETINGS = wording.stem_set(
    """
    hello hi hey thank thanks bye goodbye joke poem story morning evening sorry yes no ok okay
    """
)
ENOUGH_TERMS = 2
"""Chinese terms of a description that a request has to share: pairs of characters overlap, so a longer description has
many that no request ever has, and would be punished for its length."""


@dataclass(slots=True, frozen=True)
class _Described:
    """The telling stems of a tool, by where they stand."""

    name: set[str]
    described: set[str]
    about: set[str]
    values: set[str]
    examples: set[str]
    kinds: tuple[Any, ...]
    """The types of the required parameters."""

    @classmethod
    def of(cls, tool: ToolSpec) -> _Described:
        """What a tool says of itself."""
        own = {w for w in _content(tool.name) if not w.isdigit()}
        properties: Mapping[str, object] = tool.parameters.get("properties") or {}
        required = [properties[n] for n in tool.parameters.get("required") or () if n in properties]
        return cls(
            (own - COMMON) or own,
            _content(tool.description) - COMMON,
            _content(" ".join(f"{n} {_description_of(properties[n])}" for n in properties)) - COMMON,
            _content(" ".join(_words_of(s) for s in properties.values())),
            _content(" ".join(str(e.get("request", "")) for e in tool.examples)) - COMMON,
            tuple(s.get("type") if isinstance(s, Mapping) else None for s in required),
        )

    @property
    def all(self) -> set[str]:
        """Every stem."""
        return self.name | self.described | self.about | self.values | self.examples


def features(request: str, tool: ToolSpec) -> tuple[float, ...]:
    """What the fit is judged by; see FEATURES."""
    wanted = _wanted(request)
    telling = {w for w in wanted if w not in COMMON and not w[:1].isdigit()}
    own = _Described.of(tool)
    han = wording.is_han(request)  # names of functions are English, and Chinese has no capitals: both tell nothing then
    name = own.described if han and tool.name.isascii() else own.name
    enough = ENOUGH_TERMS if han else None
    return (
        1.0,
        _share(name, wanted, enough),
        _covered(request, telling, own.all) if han else _share(telling, own.all),
        _share(own.described, wanted, enough),
        _share(own.about, wanted, enough),
        _filled(len(numerals.numbers(request)), sum(k in ("integer", "number") for k in own.kinds)),
        0.5 if han else _filled(_proper(request), sum(k == "string" for k in own.kinds)),
        float(bool(wanted & GREETINGS) or not telling),
        math.log1p(len(telling & own.all) if han else _hits(telling, own.all)),
    )


def _filled(found: int, wanted: int) -> float:
    """How many of the wanted values there are; nothing wanted tells nothing."""
    return min(found, wanted) / wanted if wanted else 0.5


def _proper(request: str) -> int:
    return len(extract.names(request)) + len(extract.quoted(request)) + len(extract.dates(request))


def _covered(request: str, telling: set[str], known: set[str]) -> float:
    """The share of a Chinese request's terms that the tool's words explain."""
    explained = len(telling & known)
    known = known | {term for kind, terms in KINDS.items() if kind in known for term in terms}
    rest = {w for w in telling - known if not "\u4e00" <= w[:1] <= "\u9fff"} | wording.unexplained(request, known)
    return explained / (explained + len(rest)) if explained else 0.0


WHOLLY = 0.5
"""How well a tool fits at least that has every telling word of the request: "money", of a transfer of money. Short
requests give the fitted weights little to go by."""


def fitness(request: str, tool: ToolSpec) -> float:
    """How likely the request needs this tool, by its words alone; 0..1."""
    found = features(request, tool)
    fit = 1 / (1 + math.exp(-sum(w * f for w, f in zip(WEIGHTS, found, strict=True))))
    wholly = found[FEATURES.index("covered")] == 1 and not found[FEATURES.index("talk")]
    return max(fit, WHOLLY) if wholly else fit


def _share(of: set[str], found: set[str], enough: int | None = None) -> float:
    """The share of stems that are found; finding `enough` of them is finding all."""
    if not of:
        return 0.0
    return min(1.0, _hits(of, found) / min(len(of), enough or len(of)))


def _hits(of: set[str], found: set[str]) -> int:
    """How many stems are found, as they are or in a kindred word."""
    return sum(w in found or any(wording.kin(w, f) for f in found) for w in of)
