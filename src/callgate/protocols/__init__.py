"""How a model is asked for calls: the protocols, their ladder, and one turn of each.

    native       the server's own tools field                        constrained  one schema, a branch a tool
    routed       choose the tool, then fill in its arguments         json         JSON in the text
    marker       JSON between unlikely marks                         NAME         a dialect's own markup
    answer       no tools: a plain answer, the last step down

Law: asking is pure. A turn is a generator of steps (`steps`); the same history, tools and replies give the same
requests, to the byte.
(tests/test_protocols_prompts.py::test_what_does_not_change_comes_first)

To add a protocol: one row in `_rows.ROWS`, its text in `texts.TEXTS` in every language; a way of its own to go
through a turn is a function as `_routed.routed`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from callgate.errors import ConfigError
from callgate.protocols._attempts import Attempt, attempt
from callgate.protocols._routed import routed
from callgate.protocols._rows import IGNORED, LADDER, LEAKED, MANY_TOOLS, ROWS, able, is_small, row_of
from callgate.protocols._single import TurnSpec, single
from callgate.protocols._transcript import Transcript
from callgate.protocols.steps import Chosen, Machine, Query, Step, Turn
from callgate.protocols.texts import explain, language_of, reason, spoken
from callgate.types import EMPTY, Message, ModelInfo, Reply, Schema, ToolSpec

if TYPE_CHECKING:
    from callgate.dialects import Dialect

__all__ = [
    "IGNORED",
    "ROWS",
    "Attempt",
    "Chosen",
    "Machine",
    "Query",
    "Step",
    "Transcript",
    "Turn",
    "attempt",
    "check_written",
    "choose",
    "explain",
    "final",
    "ladder",
    "language_of",
    "reason",
    "symptom",
    "turn",
]


def choose(info: ModelInfo, tools: Sequence[ToolSpec], wanted: str = "auto", own: Mapping[str, Dialect] = EMPTY) -> str:
    """The protocol to begin with. What is `wanted` is taken, if it exists; "auto" goes by what the server can do.

    `own` are dialects of the application, by their names.
    """
    if wanted != "auto":
        if wanted not in ROWS and wanted not in own:
            _check_dialect(wanted)
        return wanted
    if not tools:
        return "native"
    known = info.extra.get("protocol")
    if isinstance(known, str):
        return known
    if "schema" in info.capabilities and is_small(info):
        return "routed"
    most = info.extra.get("max_tools")
    if "tools" in info.capabilities and not (isinstance(most, int) and len(tools) > most):
        return "native"
    if "schema" in info.capabilities:
        return "routed" if len(tools) > MANY_TOOLS else "constrained"
    return info.dialect or "json"


def _check_dialect(name: str) -> None:
    from callgate import dialects

    try:
        dialects.get(name)
    except ConfigError:
        near = get_close_matches(name, [*ROWS, *dialects.names()], n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "the dialects are in docs/dialects.md"
        raise ConfigError(f"protocol {name!r}: neither a protocol ({', '.join(ROWS)}) nor a dialect; {hint}") from None


def check_written(dialect: Dialect) -> None:
    """Raises ConfigError for a dialect of one's own in which no call can be asked for."""
    from callgate.protocols._own import own_writer  # only a dialect of one's own needs the words of dialects

    if own_writer(dialect) is None:
        raise ConfigError(
            f"protocol {dialect.name!r}: it can be read, but its data does not say how a call is written; give it as "
            "dialect= and ask by another protocol"
        )


def ladder(name: str, info: ModelInfo, *, why: str = "") -> str | None:
    """The next step down after a protocol that does not work here; "answer" is the last, None comes after it.

    `why` is the symptom: after "ignored" no other protocol that needs structured output is tried.
    """
    steps = LADDER.get(name, LADDER["markup"])
    for step in steps:
        row = ROWS[step]
        if able(row, info) and not (row.constraint and why == "ignored"):
            return step
    return None


def symptom(name: str, reply: Reply) -> str | None:
    """Why this reply is a reason to step down the ladder, whatever it says: "leaked" (the server's parser let a call
    through as text), "ignored" (structured output was not enforced); None: nothing of the kind."""
    if row_of(name).native and any(problem.startswith(LEAKED) for problem in reply.problems):
        return "leaked"
    if any(problem.startswith(IGNORED) for problem in reply.problems):
        return "ignored"
    return None


def turn(
    name: str,
    *,
    history: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    instructions: str = "",
    info: ModelInfo,
    options: Mapping[str, object] = EMPTY,
    dialect: str | None = None,
    output: Schema | None = None,
    tool_choice: str = "auto",
    parallel: bool | None = None,
    refused: Collection[str] = (),
    transcript: Transcript | None = None,
    own: Mapping[str, Dialect] = EMPTY,
) -> Turn:
    """One turn under a protocol, as steps.

    `output` is a schema for the final answer; `parallel` None leaves it to the model. The prompt's language is that of
    the first request, and stays so for the whole conversation. `refused` are the ids of calls in the history that never
    ran because their arguments or names were no good: `routed` asks for them again. `transcript` is the one that the
    run's last request was written in; it saves time and changes nothing. `own` are dialects of the application, by the
    names that `name` and `dialect` may have.
    """
    row = row_of(name)
    named = row.dialect or dialect or info.dialect or "auto"
    asking = TurnSpec(
        row=row,
        history=_seen(history, info),
        tools=tuple(tools) if row.reading != "text" and tool_choice != "none" else (),
        instructions=instructions,
        info=info,
        options=options,
        dialect=own.get(named, named),
        output=output,
        tool_choice=tool_choice,
        parallel=parallel,
        language=spoken(history),
        refused=frozenset(refused),
        transcript=Transcript() if transcript is None else transcript,
    )
    if row.name == "routed" and asking.tools:
        return (yield from routed(asking, single))
    return (yield from single(asking))


def _seen(history: Sequence[Message], info: ModelInfo) -> tuple[Message, ...]:
    """The history as the model can take it: images of results only if it is not known to be blind; their text says
    that they were there."""
    if info.extra.get("vision") is not False:
        return tuple(history)
    return tuple(
        replace(m, content=m.text) if m.role == "tool" and not isinstance(m.content, str) else m for m in history
    )


def final(
    output: Schema,
    *,
    history: Sequence[Message],
    instructions: str = "",
    info: ModelInfo,
    options: Mapping[str, object] = EMPTY,
) -> Turn:
    """Asks once more, without tools, for an answer that fits `output`: for a run whose model has answered in words."""
    return turn(
        "answer",
        history=history,
        instructions=instructions,
        info=info,
        options=options,
        output=output,
    )
