"""The table of protocols: how a model is asked for calls, how its answer is read, how results go back.

Law: everything that tells two protocols apart is a field of `Row`; nothing else asks for a protocol's name.
(tests/test_protocols_prompts.py::test_the_request_of_each_protocol)
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from callgate.types import ModelInfo

LEAKED = "a call came as text"
"""Begins the problem that `reply.TurnReader(rescue=True)` notes on a server that did not read its model's calls."""
IGNORED = "structured output ignored"
"""Begins the problem of a reply that is not in the form its schema asks for."""

Reading = Literal["dialect", "object", "text"]


@dataclass(slots=True, frozen=True)
class Row:
    """One way of asking."""

    name: str
    summary: str
    prompt: str | None = None
    """Which generated text goes into the system message (`_words.TEXTS`); None: none."""
    native: bool = False
    """The tools go to the server in its own field."""
    constraint: bool = False
    """The answer is held to a schema by the engine."""
    reading: Reading = "dialect"
    """`dialect`: calls in the text of `dialect`; `object`: one object, a call or an answer; `text`: no calls."""
    dialect: str | None = None
    """None: the caller's or the model's own, else what is seen ("auto")."""
    also: tuple[str, ...] = ()
    """Further dialects in which its answer may be written."""
    results: Literal["tool", "user"] = "user"
    """The role in which results go back."""
    needs: str | None = None
    """The capability of the model that this needs."""


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("native", "the server's own tools field", native=True, results="tool", needs="tools"),
        Row(
            "constrained",
            "one schema: a branch a tool and one for an answer",
            prompt="object",
            constraint=True,
            reading="object",
            needs="schema",
        ),
        Row(
            "routed",
            "first the tool, then its arguments under its own schema",
            prompt="arguments",
            constraint=True,
            reading="object",
            needs="schema",
        ),
        Row("json", "JSON in the text, as the prompt describes it", prompt="json", dialect="bare_json"),
        Row(
            "marker",
            "JSON between unlikely marks in the text",
            prompt="marker",
            dialect="heredoc_tool",
            also=("bracket_tool",),
        ),
        Row("answer", "no tools: a plain answer", reading="text"),
    )
}
MARKUP = Row("markup", "a model family's own markup in the text", prompt="markup")
"""The row behind every dialect's name."""

MANY_TOOLS = 10
"""With more tools than this a model that is not trained on tools chooses badly among them: `routed`."""
SMALL = 1e9
"""Parameters below which a model is asked in the small steps of `routed`; measured on one of 0.135e9."""
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s?([bm])(?![a-z0-9])", re.IGNORECASE)

LADDER: dict[str, tuple[str, ...]] = {
    "native": ("constrained", "json", "marker", "answer"),
    "routed": ("constrained", "json", "marker", "answer"),
    "constrained": ("json", "marker", "answer"),
    "json": ("marker", "answer"),
    "marker": ("answer",),
    "answer": (),
    "markup": ("json", "marker", "answer"),
}


@functools.lru_cache(maxsize=128)
def row_of(name: str) -> Row:
    """The row of a protocol; any other name is a dialect's."""
    return ROWS.get(name) or replace(MARKUP, name=name, dialect=name)


def is_small(info: ModelInfo) -> bool:
    """Whether the model has fewer parameters than `SMALL`: by what the server states, else by the model's name; what
    tells nothing is not small."""
    stated = info.extra.get("parameters")
    if isinstance(stated, int) and stated > 0:
        return stated < SMALL
    for text in (info.name, str(info.extra.get("name", ""))):
        if found := _SIZE.findall(text.replace("_", "-")):
            return all(float(n) * (1e9 if unit in "bB" else 1e6) < SMALL for n, unit in found)
    return False


def able(row: Row, info: ModelInfo) -> bool:
    """Whether the model's server can do what the row needs, as far as is known."""
    return row.needs is None or row.needs in info.capabilities
