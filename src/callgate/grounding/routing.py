"""Routing: which calls a request needs, in order, and the part of the request that each is for.

Law: a request is cut only where a new request begins, and what a call is for stands in the request.
(tests/test_grounding_laws.py::test_a_request_is_cut_only_where_a_new_one_begins)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from callgate.grounding import choosers, extract, wording

if TYPE_CHECKING:
    from callgate.types import ToolSpec

NONE_BELOW = 0.46
"""A fit below this means that no tool is needed (fitted on the development third of BFCL)."""
PART_NEEDS = 0.6
"""A part of a request must fit its tool so well to count as a need of its own."""
MAX_SAME = 4
"""Calls of one tool that one row of names asks for."""


@dataclass(slots=True, frozen=True)
class Need:
    """A part of the request, and the tool that it needs."""

    text: str
    tool: ToolSpec
    fit: float


def plan(request: str, tools: Sequence[ToolSpec], before: ToolSpec | None = None) -> list[Need]:
    """The calls that the request needs, in order, each with the part of the request that it is for. `before` is the
    tool of the request before: a short follow-up goes to it."""
    if not tools:
        return []
    if before is not None and _follows_up(request):
        return [Need(request, before, 0.5)]
    parts: list[Need] = []
    for text in _parts(request):
        ranked = choosers.rank(text, tools)
        if ranked.fit >= PART_NEEDS and ranked.tools[0].name not in [n.tool.name for n in parts]:
            parts.append(Need(text, ranked.tools[0], ranked.fit))
    if len(parts) > 1:
        return [need for part in parts for need in _each(part)]
    whole = choosers.rank(request, tools)
    return _each(Need(request, whole.tools[0], whole.fit)) if whole.fit >= NONE_BELOW else []


def next_need(needs: Sequence[Need], called: Sequence[str]) -> Need | None:
    """The first need that no call was for; `called` are the names of the calls that were taken, in order."""
    left = list(called)
    for need in needs:
        if need.tool.name not in left:
            return need
        left.remove(need.tool.name)
    return None


# --- parts --------------------------------------------------------------------------------------------------------

_CUTS = re.compile(
    r"([.?!;](?=\s|$)\s*|[。？！；]\s*|\s*,?\s+(?:and also|and then|and|then|also)\s+|，?(?:然后|并且|另外|还有))"
)
"""A stop cuts only before a blank: 3.5 is one number."""
_ASKS = re.compile(
    r"\s*(?:please\s+|also\s+|then\s+)*(?:what|who|when|where|which|why|how|is|are|does|do|did|can|could|will|would|"
    r"i\s+(?:want|need|would)|i'd|let|tell|show|give|get|find|search|look|check|calculate|compute|convert|solve|"
    r"determine|translate|send|create|add|book|order|buy|play|set|list|fetch|remind|delete|cancel|update|open|call|"
    r"write|read|summari[sz]e|compare|estimate|predict|analy[sz]e|generate|make|track)\b",
    re.IGNORECASE,
)


def _parts(request: str) -> list[str]:
    """The request, cut where a new request begins. "a width of 7 and a length of 10" is one."""
    pieces = _CUTS.split(request)
    parts = [pieces[0]]
    for mark, piece in zip(pieces[1::2], pieces[2::2], strict=True):
        if _ASKS.match(piece) or re.match("，?(?:然后|并且|另外|还有)|[。？！；]", mark):
            parts.append(piece)
        else:
            parts[-1] += mark + piece
    return [part.strip() for part in parts if len(part.strip()) > 3]


_FOLLOW_UP = re.compile(r"^\s*(?:and|what about|how about|also|那么?|还有)\b", re.IGNORECASE)


def _follows_up(request: str) -> bool:
    return bool(_FOLLOW_UP.match(request)) and len(request.split()) <= 7


# --- one tool, several calls --------------------------------------------------------------------------------------


def _each(need: Need) -> list[Need]:
    """A need for each of several names where the tool takes one: 北京和上海的天气 is two calls."""
    tool = need.tool
    properties = tool.parameters.get("properties") or {}
    required = [properties[n] for n in tool.parameters.get("required") or () if isinstance(properties.get(n), dict)]
    if [s.get("type") for s in required] != ["string"] or "enum" in required[0]:
        return [need]
    row = _row(need.text, tool)
    if not row:
        return [need]
    start, end, names = row
    return [Need(need.text[:start] + name + need.text[end:], tool, need.fit) for name in names]


def _row(text: str, tool: ToolSpec) -> tuple[int, int, list[str]] | None:
    """The one row of names in a text: where it stands, and its names."""
    terms = wording.han_terms(tool.description)
    names = {n for n in extract.names(text, terms) if not n.startswith("I'")}
    if not names:
        return None
    either = "|".join(re.escape(n) for n in sorted(names, key=len, reverse=True))
    # "Boston, MA" is one place: a row has a word for "and", or the comma that Chinese keeps for rows.
    joined = rf"(?:{either})(?:\s*[,、，]\s*(?:{either}))*(?:\s*(?:,\s*and\s|、|和|与|及)\s*|\s+and\s+)(?:{either})"
    match = re.search(joined, text)
    if match is None or (match.group() in names):
        return None
    found = re.findall(either, match.group())
    return (match.start(), match.end(), found) if 1 < len(found) <= MAX_SAME else None
