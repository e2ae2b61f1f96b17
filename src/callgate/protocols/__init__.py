"""How a model is asked for calls: the protocols, their ladder, and one turn of each.

    native       the server's own tools field                        constrained  one schema, a branch a tool
    routed       choose the tool, then fill in its arguments         json         JSON in the text
    marker       JSON between unlikely marks                         NAME         a dialect's own markup
    answer       no tools: a plain answer, the last step down

One law: asking is pure. A turn is a generator of steps (`_steps`); the same history, tools and replies give the same
requests, to the byte.

To add a protocol: one row in `_rows.ROWS`, its text in `_words.TEXTS` in every language; a way of its own to go
through a turn is a function as `_routed.routed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callgate.errors import ConfigError
from callgate.protocols._prompts import Prompt, conversation, system_text
from callgate.protocols._rows import IGNORED, LADDER, LEAKED, MANY_TOOLS, ROWS, Row, able, is_small, row_of
from callgate.protocols._schemas import engine_of, output_schema, reply_schema, token_limit
from callgate.protocols._steps import Chosen, Machine, Query, Score, Scores, Step, Turn
from callgate.protocols._words import Language, language_of, reason
from callgate.protocols._write import write_object, writer_of
from callgate.types import EMPTY, Message, ModelInfo, Reply, Request, Schema, ToolSpec

__all__ = [
    "IGNORED",
    "ROWS",
    "Chosen",
    "Machine",
    "Query",
    "Score",
    "Scores",
    "Step",
    "Turn",
    "choose",
    "final",
    "ladder",
    "language_of",
    "reason",
    "symptom",
    "turn",
    "ungrounded",
]


def choose(info: ModelInfo, tools: Sequence[ToolSpec], wanted: str = "auto") -> str:
    """The protocol to begin with. What is `wanted` is taken, if it exists; "auto" goes by what the server can do."""
    if wanted != "auto":
        if wanted not in ROWS:
            _check_dialect(wanted)
        return wanted
    if not tools:
        return "native"
    known = info.extra.get("protocol")
    if isinstance(known, str):
        return known
    if "schema" in info.capabilities and is_small(info):
        return "routed"
    if "tools" in info.capabilities:
        return "native"
    if "schema" in info.capabilities:
        return "routed" if len(tools) > MANY_TOOLS else "constrained"
    return info.dialect or "json"


def _check_dialect(name: str) -> None:
    from callgate import dialects

    try:
        dialects.get(name)
    except ConfigError as error:
        raise ConfigError(
            f"protocol {name!r}: neither a protocol ({', '.join(ROWS)}) nor a dialect: {error}"
        ) from error


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


@dataclass(slots=True, frozen=True)
class Asking:
    """Everything that one turn is made of."""

    row: Row
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    instructions: str
    info: ModelInfo
    options: Mapping[str, Any]
    dialect: str
    output: Schema | None
    tool_choice: str
    parallel: bool | None
    language: Language

    def prompt(self, row: Row | None = None) -> Prompt:
        """How this turn writes its prompt and the calls of its history."""
        row = row or self.row
        write = write_object if row.reading == "object" else writer_of(row.dialect or self.dialect)
        return Prompt(row, write, self.language, self.output, self.parallel is not False)


def turn(
    name: str,
    *,
    history: Sequence[Message],
    tools: Sequence[ToolSpec] = (),
    instructions: str = "",
    info: ModelInfo,
    options: Mapping[str, Any] = EMPTY,
    dialect: str | None = None,
    output: Schema | None = None,
    tool_choice: str = "auto",
    parallel: bool | None = None,
    language: Language | None = None,
    chooser: str = "auto",
) -> Turn:
    """One turn under a protocol, as steps.

    `output` is a schema for the final answer; `parallel` None leaves it to the model; `language` None goes by the
    conversation. `chooser` is for `routed`: "lexical", "likelihood", "names", or "auto": by words for small models, by
    a constrained choice of names for others.
    """
    row = row_of(name)
    asking = Asking(
        row=row,
        history=_seen(history, info),
        tools=tuple(tools) if row.reading != "text" and tool_choice != "none" else (),
        instructions=instructions,
        info=info,
        options=options,
        dialect=row.dialect or dialect or info.dialect or "auto",
        output=output,
        tool_choice=tool_choice,
        parallel=parallel,
        language=language or language_of(_first_request(history)),
    )
    if row.name == "routed" and asking.tools:
        from callgate.protocols._routed import routed

        return (yield from routed(asking, _single, chooser))
    return (yield from _single(asking))


def _seen(history: Sequence[Message], info: ModelInfo) -> tuple[Message, ...]:
    """The history as the model can take it: images of results only if it is not known to be blind; their text says
    that they were there."""
    if info.extra.get("vision") is not False:
        return tuple(history)
    return tuple(replace(m, content=m.text) if m.role == "tool" else m for m in history)


def ungrounded(tool: ToolSpec, arguments: Mapping[str, Any], said: str) -> list[str]:
    """The names of arguments that a model must have made up: their numbers and texts stand nowhere in what was said."""
    from callgate.protocols import _slots

    return _slots.ungrounded(tool, arguments, said)


def _first_request(history: Sequence[Message]) -> str:
    """What decides the language: the first words of the user, so that it never changes within a conversation."""
    return next((m.text for m in history if m.role == "user"), "")


def _single(asking: Asking) -> Turn:
    """A turn of one request."""
    reply = yield query(asking)
    assert isinstance(reply, Reply)
    return reply


def query(asking: Asking) -> Query:
    """The one request of a turn under a protocol that needs no more."""
    row, tools = asking.row, asking.tools
    prompt = asking.prompt()
    messages = conversation(prompt, asking.history, system_text(prompt, tools, asking.instructions))
    if row.native:
        return _native(asking, messages)
    if row.constraint and (tools or asking.output is not None):
        return _constrained(asking, messages)
    reads = bool(tools) or row.reading == "dialect"
    return Query(
        Request(messages, schema=_answer_schema(asking), options=asking.options),
        _dialect_reader(asking.dialect, tools, row.also) if reads else None,
    )


def _native(asking: Asking, messages: tuple[Message, ...]) -> Query:
    request = Request(
        messages,
        asking.tools,
        asking.tool_choice,
        asking.parallel if asking.tools else None,
        schema=_answer_schema(asking),
        options=asking.options,
    )
    return Query(request, _dialect_reader(asking.dialect, asking.tools), rescue=True)


def _dialect_reader(dialect: str, tools: tuple[ToolSpec, ...], also: Sequence[str] = ()) -> Callable[[], Machine]:
    """A machine for the dialect, which knows the calls of the others too."""

    def make() -> Machine:
        from callgate import dialects

        if not also:
            return dialects.reader(dialect, tools=tools)
        first = dialects.get(dialect)
        calls = (*first.calls, *(call for name in also for call in dialects.get(name).calls))
        return dialects.reader(first.but(calls=calls), tools=tools)

    return make


def _answer_schema(asking: Asking) -> dict[str, Any] | None:
    """With no tools left to call, a wanted output can be enforced by the server itself."""
    if asking.output is None or asking.tools or "schema" not in asking.info.capabilities:
        return None
    return output_schema(asking.output, engine_of(asking.info))


def _constrained(asking: Asking, messages: tuple[Message, ...]) -> Query:
    """One object, held to the schema. With no room set by the caller, room for the longest reply that fits."""
    tools = asking.tools
    named = tuple(t for t in tools if t.name == asking.tool_choice)
    schema = reply_schema(
        named or tools,
        engine_of(asking.info),
        answer=asking.tool_choice == "auto",
        output=asking.output,
        parallel=asking.parallel is not False,
    )
    options = (
        asking.options if "max_tokens" in asking.options else {**asking.options, "max_tokens": token_limit(schema)}
    )
    return Query(
        Request(messages, schema=schema, options=options),
        lambda: _object_reader(tools),
    )


def _object_reader(tools: tuple[ToolSpec, ...]) -> Machine:
    from callgate.protocols._object import ObjectReader

    return ObjectReader(free=_dialect_reader("bare_json", tools))


def final(
    output: Schema,
    *,
    history: Sequence[Message],
    instructions: str = "",
    info: ModelInfo,
    options: Mapping[str, Any] = EMPTY,
    language: Language | None = None,
) -> Turn:
    """Asks once more, without tools, for an answer that fits `output`: for a run whose model has answered in words."""
    return turn(
        "answer",
        history=history,
        instructions=instructions,
        info=info,
        options=options,
        output=output,
        language=language,
    )
