"""Deltas become a `Reply`: records through a format, text through a dialect.

Law: what comes out does not depend on how the stream was cut, and a call counts only once its stream's end is known to
be sound (X1).
(tests/test_reply.py::test_nothing_is_a_call_before_the_end_is_known)

`read` is for what is there already, `Reader` for what is still arriving; the run reads every provider through
`TurnReader`, and so does a `Reader` with a wire. Raw text has no end that could be unsound and no second source of
calls: there a `Reader` passes on what its machine gives, and the reply is put together when it is asked for
(tests/test_reply_fast.py::test_text_is_read_as_a_turn_is).
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from callgate import formats
from callgate.errors import ConfigError, LimitExceeded
from callgate.reply._records import Chunk, bytes_of, is_record, record_of
from callgate.reply._settled import Settled
from callgate.reply._size import AnswerSize
from callgate.reply._text import TextMachine, Untouched, dialect_reader
from callgate.reply._tools import ToolLike, tool_specs
from callgate.reply._turn import TurnReader
from callgate.reply._wanted import ToolChoice, Wanted
from callgate.separation import separate
from callgate.types import Delta, Finish, FinishReason, Reply, ToolSpec

if TYPE_CHECKING:
    from callgate.dialects import Dialect
    from callgate.protocols import Machine
    from callgate.wire import Record

__all__ = ["AnswerSize", "Reader", "TurnReader", "read", "separate", "tool_specs"]


class Reader:
    """Reads one message of a model as it arrives: `feed` it, then `finish` it; both return deltas.

    `dialect` reads calls and reasoning out of the text (None leaves the text as it is), `wire` takes what an API sends
    (`formats.names()`) instead of text: its bytes, or its records as dicts or as the objects of the API's
    own Python client. `prompt_tail` is the end of the prompt where it matters for the first state.
    The last delta of `finish` is the one `Finish`.

    `tool_choice="none"`: the markup of calls is taken out of the text and no call comes out; `problems` names what was
    left out. `reasoning`: None lets the dialect's markers and `prompt_tail` decide; True, the text begins inside the
    reasoning (the server's template opened it and `prompt_tail` is not at hand; raises ConfigError for a dialect that
    has no reasoning); False, the model was told not to reason, so what it writes between those markers is text.
    `answer_from_reasoning`: a message with neither text nor calls has its reasoning as its text, given at its end.
    """

    def __init__(
        self,
        dialect: str | Dialect | None = None,
        *,
        wire: str | None = None,
        tools: Iterable[ToolLike] | None = (),
        prompt_tail: str | None = "",
        tool_choice: ToolChoice = "auto",
        reasoning: bool | None = None,
        answer_from_reasoning: bool = False,
    ) -> None:
        specs, tail = tool_specs(tools), _thinking(dialect) if reasoning else prompt_tail or ""
        self._wanted: Wanted | None = None
        if _choice(tool_choice) == "none" or reasoning is False or answer_from_reasoning:
            self._wanted = Wanted(
                calls=tool_choice != "none", reasoning=reasoning is not False, answer=answer_from_reasoning
            )
        self._settled = Settled()
        self._text: TextMachine = Untouched()
        self._wire: _Wire | None = None
        if wire is not None:
            self._wire = _Wire(wire, specs, dialect_reader(dialect, specs, tail))
        else:
            ends = partial(self._settled.add, sound=True)
            self._text = dialect_reader(dialect, specs, tail, ends) or self._text
        self._direct = wire is None and self._wanted is None
        """Text goes straight to the machine, and what comes out of it goes out as it is."""
        self._written: list[str] = []
        self._finish: Finish | None = None
        self._source: str | None = None
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._over = False

    def feed(self, chunk: Chunk) -> list[Delta]:
        """The next piece, cut anywhere: the deltas that are now certain."""
        if type(chunk) is str and self._direct:
            self._written.append(chunk)
            return self._text.feed(chunk)
        deltas = self._convert(chunk)
        return deltas if self._wanted is None else self._wanted.take(deltas)

    def _convert(self, chunk: object) -> list[Delta]:
        """What does not go straight to the machine: bytes, and whatever comes for a wire."""
        if self._over:
            raise ConfigError("Reader.feed: this reader is finished; make a new one for the next message")
        if self._wire is None:
            text = "".join(chunk) if isinstance(chunk, str) else self._decode(bytes_of(chunk))
            self._written.append(text)
            return self._text.feed(text)
        if type(chunk) is bytes:  # nearly always: no need to look at what else it may be
            return self._wire.feed(chunk)
        if is_record(chunk):
            return self._wire.take(record_of(chunk))
        return self._wire.feed(chunk.encode("utf-8", "replace") if isinstance(chunk, str) else bytes_of(chunk))

    def finish(self) -> list[Delta]:
        """The stream is over: everything still held, and the `Finish`. A second call gives nothing."""
        if self._over:
            return []
        if self._wire is not None:
            self._over = True
            last = self._wire.finish()
        else:
            rest = self._decode(b"", final=True)
            last = self._convert(rest) if rest else []
            self._over, self._direct = True, False
            last += [*self._text.finish(), self._end()]
        return last if self._wanted is None else self._wanted.take(last)

    def _end(self) -> Finish:
        """The end of a raw text: only a call that was cut tells that the text was."""
        settled, thoughts = self._settled, range(self._text.reasoned)
        settled.calls = [settled.in_thoughts(call, thoughts) for call in settled.calls]
        settled.bad = [settled.in_thoughts(call, thoughts) for call in settled.bad]
        if settled.any_mentioned:
            self._source = self._text.as_written("".join(self._written))
        problems = dict.fromkeys([*settled.problems, *self._text.problems])
        reason: FinishReason = "interrupted" if settled.bad else "tool_calls" if settled.calls else "stop"
        self._finish = Finish(reason, problems=tuple(problems))
        return self._finish

    @property
    def reply(self) -> Reply:
        """The whole message; before `finish` what has come so far."""
        return self._whole if self._wanted is None else self._wanted.reply(self._whole)

    @property
    def _whole(self) -> Reply:
        if self._wire is not None:
            return self._wire.reply
        finish = self._finish or Finish("interrupted", problems=tuple(self._settled.problems))
        return Reply(
            content=self._text.content,
            reasoning=self._text.thoughts.strip(),
            calls=list(self._settled.calls),
            incomplete=list(self._settled.bad),
            finish=finish.reason,
            problems=list(finish.problems),
            source=self._source,
        )


class _Wire:
    """Reads the bytes of one API; a limit that is exceeded ends the message as an error."""

    def __init__(self, name: str, tools: Iterable[ToolSpec], machine: Machine | None) -> None:
        form = formats.get(name)
        self._framing = form.framing()
        self._loader = form.Loader(tools=tuple(spec.name for spec in tools))
        self._turn = TurnReader(machine)
        self._failed = False

    def feed(self, chunk: bytes) -> list[Delta]:
        if self._failed:
            return []
        out: list[Delta] = []
        try:
            self._load(self._framing.feed(chunk), out)
        except LimitExceeded as error:
            self._fail(error, out)
        return self._turn.feed(out) if out else out

    def take(self, record: Mapping[str, object]) -> list[Delta]:
        """A record that somebody else has parsed."""
        if self._failed:
            return []
        out: list[Delta] = []
        try:
            out += self._loader.take(record)
        except LimitExceeded as error:
            self._fail(error, out)
        return self._turn.feed(out) if out else out

    def finish(self) -> list[Delta]:
        if self._failed:
            return []
        out: list[Delta] = []
        try:
            self._load(self._framing.finish(), out)
        except LimitExceeded as error:
            self._fail(error, out)
        else:
            out += self._loader.finish()
        return self._turn.feed(out)

    def _load(self, records: Iterable[Record], out: list[Delta]) -> None:
        for record in records:
            out += self._loader.feed(record)

    def _fail(self, error: LimitExceeded, out: list[Delta]) -> None:
        self._failed = True
        out += self._loader.fail(str(error))

    @property
    def reply(self) -> Reply:
        reply, others = self._turn.reply, self._loader.other_choices
        return replace(reply, other_choices=others) if others else reply


def read(
    source: Chunk | Iterable[Chunk],
    dialect: str | Dialect | None = None,
    *,
    wire: str | None = None,
    tools: Iterable[ToolLike] | None = (),
    prompt_tail: str | None = "",
    tool_choice: ToolChoice = "auto",
    reasoning: bool | None = None,
    answer_from_reasoning: bool = False,
) -> Reply:
    """Reads a model's raw output: text, or with `wire` an API's answer as bytes, dicts or objects of its client.

    The options are those of `Reader`.
    """
    reader = Reader(
        dialect,
        wire=wire,
        tools=tools,
        prompt_tail=prompt_tail,
        tool_choice=tool_choice,
        reasoning=reasoning,
        answer_from_reasoning=answer_from_reasoning,
    )
    # An answer as one object of a client can be iterated as well: over its fields.
    one = isinstance(source, (str, bytes, bytearray, memoryview)) or is_record(source)
    chunks = cast("Iterable[Any]", (source,) if one else source)
    if not isinstance(chunks, Iterable):
        raise ConfigError(f"read: a text, bytes or an iterable of them is needed, not {type(source).__name__}")
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader.reply


def _thinking(dialect: str | Dialect | None) -> str:
    """The end of a prompt that has begun the reasoning."""
    if dialect is None:
        raise ConfigError("Reader: reasoning=True needs a dialect, which tells how the reasoning ends")
    from callgate import dialects

    return dialects.thinking_tail(dialect)


def _choice(tool_choice: str) -> str:
    if tool_choice not in ("auto", "none"):
        raise ConfigError(f'Reader: tool_choice is "auto" or "none" here, not {tool_choice!r}')
    return tool_choice
