"""Choosing a tool for a request: by words, by the model's likelihood, by a constrained choice of names; groups first.

One law: "none" is always a possible choice, and every choice says how sure it is.

The weights of `fitness` were fitted on the development third of BFCL v4 (docs/asking.md), never on what is reported.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.protocols import _ground as ground
from callgate.protocols._match import kin, wants_expression
from callgate.types import ToolSpec

K1, B = 2.0, 0.3
"""The usual constants of BM25."""
NAME_WEIGHT, DESCRIPTION_WEIGHT, PARAMETER_WEIGHT, EXAMPLE_WEIGHT = 3, 2, 1, 3
"""How often a word counts, by where it stands."""
COMMON = ground.word_set(
    """
    calculat comput determin retriev provid return given specif certain valu number input output function comput
    us perform creat mak generat information data detail list nam type current bas includ
    """
)
"""Stems that most tools share: they tell little."""

ACTIONS: Mapping[str, frozenset[str]] = {
    name: frozenset(ground.stem(w) for w in verbs.split())
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
    wanted = ground.content(request)
    documents = [_document(tool) for tool in tools]
    shown = [evidence(request, tool) for tool in tools]
    scores = [
        s * _action_fit(request, t) + EVIDENCE_WEIGHT * e + 1e-3
        for s, t, e in zip(_bm25(wanted, documents), tools, shown, strict=True)
    ]
    order = sorted(range(len(tools)), key=lambda i: -scores[i])
    best = [tools[i] for i in order]
    spoken = shown[order[0]] if best else 0.0
    fit = 0.0 if spoken < 0 or not best else max(fitness(request, best[0]), spoken)
    return Ranked(tuple(best), tuple(scores[i] for i in order), fit)


def _document(tool: ToolSpec) -> Counter[str]:
    """The stems of everything that describes a tool, with their weights."""
    out: Counter[str] = Counter()
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    for weight, text in (
        (NAME_WEIGHT, tool.name),
        (DESCRIPTION_WEIGHT, tool.description),
        *((PARAMETER_WEIGHT, f"{n} {_words_of(s)}") for n, s in properties.items()),
        *((EXAMPLE_WEIGHT, str(e.get("request", ""))) for e in tool.examples),
    ):
        for word in ground.content(text):
            out[word] += weight
    return out


def _words_of(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return ""
    return " ".join([str(schema.get("description", "")), *(str(v) for v in schema.get("enum") or ())])


def _said_of(schema: Any) -> str:
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
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    found = 0.0
    if any(wants_expression(n, s) for n, s in properties.items() if isinstance(s, Mapping)):
        found = 0.95 if ground.expression(request) else -1.0
    asked = _frame(request)
    for example in tool.examples:
        told = _frame(str(example.get("request", "")))
        if (asked & told) - STOPPED:
            found = max(found, len(asked & told) / len(asked | told))
    return found if found >= ALIKE or found < 0 else 0.0


STOPPED = frozenset(ground.stem(word) for word in ground.STOP)


def _frame(text: str) -> set[str]:
    """What a request says beside its values: its words without numbers, names and quoted texts."""
    for value in [*ground.names(text), *ground.quoted(text), *ground.dates(text)]:
        text = text.replace(value, " ")
    return {w.stem for w in ground.words(text) if w.text.isalpha()} - {"a", "an", "the", "pleas", "i", "to"}


def _action_fit(request: str, tool: ToolSpec) -> float:
    own = _actions(tool.name)
    if not own:
        return 1.0
    asked = _actions(request)
    if own & asked:
        return FITTING_ACTION
    return 1.0 if own == {"look"} else OTHER_ACTION


def _actions(text: str) -> set[str]:
    stems = ground.stems(text)
    return {name for name, verbs in ACTIONS.items() if verbs & stems}


def _count(word: str, document: Counter[str]) -> float:
    """A word counts in full, a kindred one (converting, conversion) by half."""
    if word in document:
        return document[word]
    return 0.5 * max((n for w, n in document.items() if kin(word, w)), default=0)


# --- "none" -------------------------------------------------------------------------------------------------------

FEATURES = ("bias", "name", "covered", "described", "parameters", "numbers", "names", "talk")
WEIGHTS = (-4.46, 1.45, 1.75, 2.41, 3.96, 1.77, 2.18, -1.5)
GREETINGS = ground.word_set(
    """
    hello hi hey thank thanks bye goodbye joke poem story morning evening sorry yes no ok okay
    """
)


def features(request: str, tool: ToolSpec) -> tuple[float, ...]:
    """What the fit is judged by; see FEATURES."""
    wanted = ground.content(request)
    telling = {w for w in wanted if w not in COMMON and not w[:1].isdigit()}
    own = {w for w in ground.content(tool.name) if not w.isdigit()}
    name = (own - COMMON) or own
    described = ground.content(tool.description) - COMMON
    properties: Mapping[str, Any] = tool.parameters.get("properties") or {}
    required = [n for n in tool.parameters.get("required") or () if n in properties]
    about = ground.content(" ".join(f"{n} {_said_of(properties[n])}" for n in properties)) - COMMON
    values = ground.content(" ".join(_words_of(s) for s in properties.values()))
    examples = ground.content(" ".join(str(e.get("request", "")) for e in tool.examples)) - COMMON
    kinds = [properties[n].get("type") if isinstance(properties[n], Mapping) else None for n in required]
    numeric = sum(k in ("integer", "number") for k in kinds)
    found = len(ground.numbers(request))
    texts = sum(k == "string" for k in kinds)
    proper = len(ground.names(request)) + len(ground.quoted(request)) + len(ground.dates(request))
    han = ground.is_han(request)  # names of functions are English, and Chinese has no capitals: both tell nothing then
    return (
        1.0,
        _share(described if han and tool.name.isascii() else name, wanted),
        _share(telling, name | described | about | values | examples),
        _share(described, wanted),
        _share(about, wanted),
        min(found, numeric) / numeric if numeric else 0.5,
        min(proper, texts) / texts if texts and not han else 0.5,
        float(bool(wanted & GREETINGS) or not telling),
    )


def fitness(request: str, tool: ToolSpec) -> float:
    """How likely the request needs this tool, by its words alone; 0..1."""
    total = sum(w * f for w, f in zip(WEIGHTS, features(request, tool), strict=True))
    return 1 / (1 + math.exp(-total))


def _share(of: set[str], found: set[str]) -> float:
    if not of:
        return 0.0
    return sum(w in found or any(kin(w, f) for f in found) for w in of) / len(of)
