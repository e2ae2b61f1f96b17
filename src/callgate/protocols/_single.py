"""A turn, and its one request under a protocol that asks once.

Law: that of the room (callgate/protocols/__init__.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from callgate.protocols._engines import engine_of
from callgate.protocols._object import ObjectReader
from callgate.protocols._prompts import Prompt
from callgate.protocols._schemas import held_to, output_schema, reply_schema, token_limit
from callgate.protocols._write import Write, write_object, writer_of
from callgate.protocols.steps import Machine, Query, Turn
from callgate.types import Message, ModelInfo, Reply, Request, Schema, ToolSpec

if TYPE_CHECKING:
    from callgate.dialects import Dialect
    from callgate.protocols._rows import Row
    from callgate.protocols._transcript import Transcript
    from callgate.protocols.texts import Language


@dataclass(slots=True, frozen=True)
class TurnSpec:
    """Everything that one turn is made of."""

    row: Row
    history: tuple[Message, ...]
    tools: tuple[ToolSpec, ...]
    instructions: str
    info: ModelInfo
    options: Mapping[str, Any]
    dialect: str | Dialect
    output: Schema | None
    tool_choice: str
    parallel: bool | None
    language: Language
    transcript: Transcript = field(compare=False)
    """What was written for the last request."""
    refused: frozenset[str] = frozenset()
    """The ids of calls in the history that never ran because their arguments or names were no good."""

    def prompt(self, row: Row | None = None) -> Prompt:
        """How this turn writes its prompt and the calls of its history."""
        row = row or self.row
        write = write_object if row.reading == "object" else self._writer(row)
        demand = "" if self.tool_choice in ("auto", "none") else self.tool_choice
        return Prompt(row, write, self.language, self.output, self.parallel is not False, demand)

    def _writer(self, row: Row) -> Write:
        if isinstance(self.dialect, str):
            return writer_of(row.dialect or self.dialect)
        if row.dialect not in (None, self.dialect.name):
            return writer_of(row.dialect)
        from callgate.protocols._own import own_writer  # only a dialect of one's own needs the words of dialects

        return own_writer(self.dialect) or writer_of(self.dialect.name)


def single(asking: TurnSpec) -> Turn:
    """A turn of one request."""
    reply = yield query(asking)
    assert isinstance(reply, Reply)
    return reply


def query(asking: TurnSpec) -> Query:
    """The one request of a turn under a protocol that needs no more."""
    row, tools = asking.row, asking.tools
    prompt, transcript = asking.prompt(), asking.transcript
    messages = transcript.conversation(prompt, asking.history, transcript.system(prompt, tools, asking.instructions))
    if row.native:
        return _native(asking, messages)
    if row.constraint and (tools or asking.output is not None):
        return _constrained(asking, messages)
    reads = bool(tools) or row.reading == "dialect"
    schema = _answer_schema(asking)
    held = held_to(schema, engine_of(asking.info)) if schema is not None else {}
    return Query(
        Request(messages, schema=schema, options=_bounded(asking, messages), extra=held),
        _dialect_reader(asking.dialect, tools, row.also) if reads else None,
    )


MAX_ANSWER_TOKENS = 4096
"""Of an answer in text, where nothing else is set: a model that repeats itself must come to an end."""
MIN_ANSWER_TOKENS = 256
_LIMITS = frozenset({"max_tokens", "max_completion_tokens", "num_predict"})


def _bounded(asking: TurnSpec, messages: Sequence[Message]) -> Mapping[str, Any]:
    """The options, with room for what the context leaves."""
    if _LIMITS & asking.options.keys():
        return asking.options
    left = (asking.info.context_length or 2**31) - asking.transcript.tokens(messages)
    return {**asking.options, "max_tokens": max(MIN_ANSWER_TOKENS, min(MAX_ANSWER_TOKENS, left))}


def _native(asking: TurnSpec, messages: tuple[Message, ...]) -> Query:
    schema = _answer_schema(asking)
    request = Request(
        messages,
        asking.tools,
        asking.tool_choice,
        asking.parallel if asking.tools else None,
        schema=schema,
        options=asking.options,
        extra=held_to(schema, engine_of(asking.info)) if schema is not None else {},
    )
    return Query(request, _dialect_reader(asking.dialect, asking.tools), rescue=True)


def _dialect_reader(
    dialect: str | Dialect, tools: tuple[ToolSpec, ...], also: Sequence[str] = ()
) -> Callable[[], Machine]:
    """A machine for the dialect, which knows the calls of the others too."""

    def make() -> Machine:
        from callgate import dialects

        if not also:
            return dialects.reader(dialect, tools=tools)
        first = dialects.get(dialect) if isinstance(dialect, str) else dialect
        calls = (*first.calls, *(call for name in also for call in dialects.get(name).calls))
        return dialects.reader(first.but(calls=calls), tools=tools)

    return make


def _answer_schema(asking: TurnSpec) -> dict[str, object] | None:
    """With no tools left to call, a wanted output can be enforced by the server itself."""
    if asking.output is None or asking.tools or "schema" not in asking.info.capabilities:
        return None
    return output_schema(asking.output, engine_of(asking.info))


def _constrained(asking: TurnSpec, messages: tuple[Message, ...]) -> Query:
    """One object, held to the schema. With no room set by the caller, room for the longest reply that fits."""
    tools = asking.tools
    named = tuple(t for t in tools if t.name == asking.tool_choice)
    engine = engine_of(asking.info)
    schema = reply_schema(
        named or tools,
        engine,
        answer=asking.tool_choice == "auto",
        output=asking.output,
        parallel=asking.parallel is not False,
    )
    options = (
        asking.options if "max_tokens" in asking.options else {**asking.options, "max_tokens": token_limit(schema)}
    )
    return Query(
        Request(messages, schema=schema, options=options, extra=held_to(schema, engine)),
        lambda: _object_reader(tools),
    )


def _object_reader(tools: tuple[ToolSpec, ...]) -> Machine:
    return ObjectReader(free=_dialect_reader("bare_json", tools))
