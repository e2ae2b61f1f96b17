"""Deltas become a `Reply`: records through a format, text through a dialect.

One law: what comes out does not depend on how the stream was cut, and a call counts only once the end of its stream is
known to be sound (X1).

`read` is for what is there already, `Reader` for what is still arriving; the run reads every provider through
`TurnReader`, which both stand on.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate import formats
from callgate.errors import ConfigError, LimitExceeded
from callgate.separation import separate
from callgate.types import (
    SOUND,
    BadCall,
    CallDelta,
    Delta,
    Finish,
    FinishReason,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    ToolSpec,
)

if TYPE_CHECKING:
    from callgate.dialects import Dialect
    from callgate.protocols._steps import Machine

__all__ = ["Reader", "TurnReader", "read", "separate", "tool_specs"]

ToolLike: TypeAlias = Any
"""A `Tool`, a `ToolSpec`, a plain function, an OpenAI-style JSON dict or the bare function dict in it."""

_HALF = re.compile("[\ud800-\udfff]")
_HIGH = re.compile("[\ud800-\udbff]")

_RESCUED = "a call came as text in the content; it was read with the model's dialect"


class TurnReader:
    """Reads one message of a provider: its deltas in, the deltas of the whole house out.

    Theory of operation. Deltas of a wire and deltas that `machine` reads out of the text flow into one message:
    1. Text goes through the machine if there is one; everything else passes.
    2. Calls of both sources share one numbering, in the order in which they first appear.
    3. A call is only *proposed* until `Finish` comes; then each index gets its one `ToolCall` or `BadCall`, in order.
       After an unsound end every one of them is a `BadCall` ("unsound_end").
    4. A call without an id gets `call_<n>`; so does the second of two calls that carry one id.
    5. `Finish` tells the truth: a sound end with calls is "tool_calls", without is "stop".
    6. A character that a server cut into UTF-16 halves, one in each of two records, is put together; a half that stays
       alone becomes U+FFFD, for no text with it could be sent or stored.
    """

    def __init__(
        self, machine: Machine | None = None, *, rescue: bool = False, id_prefix: str = "call_", hold: bool = True
    ) -> None:
        """`rescue`: the server should have read the calls itself, so a call in the text is a problem worth naming.
        `hold=False` is for raw text, which has no end that could be unsound: calls come out when they are complete.
        """
        self._machine = machine
        self._rescue = rescue
        self._prefix = id_prefix
        self._hold = hold
        self._numbers: dict[tuple[str, int], int] = {}
        self._settled: list[ToolCall | BadCall] = []
        self._ids: set[str] = set()
        self._given: set[str] = set()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._strip = False
        self._calls: list[ToolCall] = []
        self._bad: list[BadCall] = []
        self._problems: list[str] = []
        self._finish: Finish | None = None
        self._halves: dict[type[TextDelta | ReasoningDelta], str] = {}

    @property
    def finished(self) -> bool:
        """Whether `Finish` has come."""
        return self._finish is not None

    @property
    def reply(self) -> Reply:
        """The whole message; before its `Finish` what has come so far, as interrupted."""
        finish = self._finish or Finish("interrupted", problems=tuple(self._problems))
        reasoning = "".join(self._reasoning)
        return Reply(
            content="".join(self._text),
            reasoning=reasoning.strip() if self._strip else reasoning,
            calls=list(self._calls),
            incomplete=list(self._bad),
            finish=finish.reason,
            raw_finish=finish.raw,
            error=finish.error,
            usage=finish.usage,
            problems=list(finish.problems),
        )

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        """What of these is now certain. After `Finish` nothing counts any more."""
        out: list[Delta] = []
        text: list[str] = []
        for delta in deltas:
            if self._finish is not None:
                return out
            if isinstance(delta, (TextDelta, ReasoningDelta)) and (self._halves or not delta.text.isascii()):
                delta = self._mended(delta)  # noqa: PLW2901
            if self._machine is not None and isinstance(delta, TextDelta):
                text.append(delta.text)  # what came in one piece is read in one piece
                continue
            if text:
                self._read(text, out)
            if isinstance(delta, Finish):
                self._end(delta, out)
            else:
                self._take((delta,), "wire", out)
        if text:
            self._read(text, out)
        return out

    def _mended(self, delta: TextDelta | ReasoningDelta) -> TextDelta | ReasoningDelta:
        """Rule 6."""
        kind = type(delta)
        text = self._halves.pop(kind, "") + delta.text
        if not self._hold or _HALF.search(text) is None:  # raw text is the caller's, to the character
            return delta if text is delta.text else kind(text)
        if _HIGH.match(text, len(text) - 1):
            self._halves[kind] = text[-1]
            text = text[:-1]
        return kind(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def _read(self, text: list[str], out: list[Delta]) -> None:
        assert self._machine is not None
        self._take(self._machine.feed(text[0] if len(text) == 1 else "".join(text)), "text", out)  # rule 1
        text.clear()

    def _take(self, deltas: Iterable[Delta], source: str, out: list[Delta]) -> None:
        for delta in deltas:
            match delta:
                case TextDelta("") | ReasoningDelta(""):
                    pass
                case TextDelta(text):
                    self._text.append(text)
                    out.append(delta)
                case ReasoningDelta(text):
                    self._reasoning.append(text)
                    self._strip = self._strip or source == "text"
                    out.append(delta)
                case CallDelta(index):
                    number = self._number(source, index)  # rule 2
                    out.append(delta if number == index else CallDelta(number, delta.id, delta.name, delta.arguments))
                case ToolCall() | BadCall():
                    if source == "text" and self._rescue and _RESCUED not in self._problems:
                        self._problems.append(_RESCUED)
                    number = self._number(source, delta.index)
                    call = delta if number == delta.index else replace(delta, index=number)
                    if self._hold:
                        self._settled.append(call)  # rule 3
                    else:
                        out.append(self._count(call, sound=True))
                case Finish():
                    raise AssertionError("a machine never emits Finish")

    def _number(self, source: str, index: int) -> int:
        return self._numbers.setdefault((source, index), len(self._numbers))

    def _end(self, finish: Finish, out: list[Delta]) -> None:
        for kind in self._halves:  # rule 6
            if kind is TextDelta and self._machine is not None:
                self._read(["\ufffd"], out)
            else:
                self._take((kind("\ufffd"),), "wire", out)
        if self._machine is not None:
            self._take(self._machine.finish(), "text", out)
        if not self._hold and self._bad:
            finish = replace(finish, reason="interrupted")  # only a cut call tells that raw text was cut
        sound = finish.reason in SOUND
        self._settled.sort(key=lambda call: call.index)
        self._ids.update(call.id for call in self._settled if call.id)
        out.extend(self._count(call, sound=sound) for call in self._settled)
        reason: FinishReason = finish.reason
        if sound:
            reason = "tool_calls" if self._calls else "stop"  # rule 5
        problems = [*self._problems, *finish.problems]
        if self._machine is not None:
            problems += self._machine.problems
        told = tuple(dict.fromkeys(problems)) if problems else ()
        self._finish = Finish(reason, finish.usage, finish.raw, finish.error, told)
        out.append(self._finish)

    def _count(self, call: ToolCall | BadCall, *, sound: bool) -> ToolCall | BadCall:
        if isinstance(call, ToolCall) and sound:
            made = self._id(call)
            call = call if made == call.id else replace(call, id=made)
            self._given.add(call.id)
            self._calls.append(call)
            return call
        if isinstance(call, ToolCall):
            call = BadCall(call.index, call.id or None, call.name, _dump(call.arguments), "unsound_end")
        elif not sound and call.reason == "malformed":
            call = replace(call, reason="unsound_end")
        self._bad.append(call)
        return call

    def _id(self, call: ToolCall) -> str:
        taken = self._given
        if call.id and call.id not in taken:
            return call.id
        if call.id:
            self._problems.append(f"two calls had the id {call.id!r}; the later one got another")
        number = call.index + 1
        while (made := f"{self._prefix}{number}") in taken or made in self._ids:
            number += 1
        return made  # rule 4


def _dump(arguments: Mapping[str, Any]) -> str:
    import json

    return json.dumps(arguments, ensure_ascii=False)


class Reader:
    """Reads one message of a model as it arrives: `feed` it, then `finish` it; both return deltas.

    `dialect` reads calls and reasoning out of the text (None leaves the text as it is), `wire` takes bytes of an API
    ("openai", "ollama") instead of text, `prompt_tail` is the end of the prompt where it matters for the first state.
    The last delta of `finish` is the one `Finish`.
    """

    def __init__(
        self,
        dialect: str | Dialect | None = None,
        *,
        wire: str | None = None,
        tools: Iterable[ToolLike] | None = (),
        prompt_tail: str | None = "",
    ) -> None:
        machine: Machine | None = None
        if dialect is not None:
            from callgate import dialects

            machine = dialects.reader(dialect, tools=tool_specs(tools), prompt_tail=prompt_tail or "")
        self._turn = TurnReader(machine, hold=wire is not None)
        self._wire = _Wire(wire, tools) if wire is not None else None
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._over = False

    def feed(self, chunk: str | bytes | bytearray | memoryview[Any]) -> list[Delta]:
        """The next piece, cut anywhere: the deltas that are now certain."""
        if self._over:
            raise ConfigError("Reader.feed: this reader is finished; make a new one for the next message")
        if self._wire is None:
            return self._turn.feed([TextDelta(chunk if isinstance(chunk, str) else self._decode(_bytes(chunk)))])
        return self._turn.feed(
            self._wire.feed(chunk.encode("utf-8", "replace") if isinstance(chunk, str) else _bytes(chunk))
        )

    def finish(self) -> list[Delta]:
        """The stream is over: everything still held, and the `Finish`. A second call gives nothing."""
        if self._over:
            return []
        self._over = True
        if self._wire is not None:
            return self._turn.feed(self._wire.finish())
        out = self._turn.feed([TextDelta(rest)]) if (rest := self._decode(b"", final=True)) else []
        return out + self._turn.feed([Finish("stop")])

    @property
    def reply(self) -> Reply:
        """The whole message; before `finish` what has come so far."""
        return self._turn.reply if self._wire is None else self._wire.complete(self._turn.reply)


def _bytes(chunk: object) -> bytes:
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    raise ConfigError(f"Reader.feed: a chunk is str or bytes, not {type(chunk).__name__}")


class _Wire:
    """Bytes of one API to deltas; a limit that is exceeded ends the message as an error."""

    def __init__(self, name: str, tools: Iterable[ToolLike] | None) -> None:
        form = formats.get(name)
        self._framing = form.framing()
        self._loader = form.Loader(tools=tuple(spec.name for spec in tool_specs(tools)))
        self._failed = False

    def feed(self, chunk: bytes) -> list[Delta]:
        return self._guarded(lambda: self._framing.feed(chunk))

    def finish(self) -> list[Delta]:
        if self._failed:
            return []
        out = self._guarded(self._framing.finish)
        return out if self._failed else out + self._loader.finish()

    def _guarded(self, frame: Callable[[], list[Any]]) -> list[Delta]:
        if self._failed:
            return []
        out: list[Delta] = []
        try:
            for record in frame():
                out += self._loader.feed(record)
        except LimitExceeded as error:
            self._failed = True
            out += self._loader.fail(str(error))
        return out

    def complete(self, reply: Reply) -> Reply:
        others = self._loader.other_choices
        return replace(reply, other_choices=others) if others else reply


def read(
    source: str | bytes | Iterable[str] | Iterable[bytes],
    dialect: str | Dialect | None = None,
    *,
    wire: str | None = None,
    tools: Iterable[ToolLike] | None = (),
    prompt_tail: str | None = "",
) -> Reply:
    """What a model said, from its raw output: text, or with `wire` the bytes of an API's answer."""
    reader = Reader(dialect, wire=wire, tools=tools, prompt_tail=prompt_tail)
    chunks: Iterable[Any] = (source,) if isinstance(source, (str, bytes, bytearray, memoryview)) else source
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader.reply


def tool_specs(tools: Iterable[ToolLike] | ToolLike | None) -> tuple[ToolSpec, ...]:
    """What `tools=` takes everywhere, as the specs that dialects and policy see. One tool is a list of one; None is no
    tools, as in the clients.
    """
    if tools is None:
        return ()
    if isinstance(tools, Mapping) or not isinstance(tools, Iterable):
        tools = (tools,)
    specs: list[ToolSpec] = []
    for tool in tools:
        if isinstance(tool, ToolSpec):
            specs.append(tool)
        elif isinstance(tool, Mapping):
            specs.append(_from_dict(tool))
        elif isinstance(spec := getattr(tool, "spec", None), ToolSpec):
            specs.append(spec)
        elif isinstance(several := getattr(tool, "specs", None), Sequence):
            specs.extend(several)
        elif callable(tool):
            from callgate.tools import Tool

            specs.append(Tool.from_function(tool).spec)
        else:
            raise ConfigError(f"tools: {type(tool).__name__} is no tool; give a function, a Tool or a JSON dict")
    return tuple(specs)


def _from_dict(tool: Mapping[str, Any]) -> ToolSpec:
    """An OpenAI-style tool, or the function object in it, or an MCP or Anthropic tool object."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(f"tools: this dict has no name: {str(dict(tool))[:120]}")
    parameters = next(
        (function[key] for key in ("parameters", "input_schema", "inputSchema") if function.get(key) is not None),
        {"type": "object", "properties": {}},
    )
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"tools: {name}.parameters must be a JSON Schema object, not {type(parameters).__name__}")
    return ToolSpec(name, str(function.get("description") or ""), parameters)
