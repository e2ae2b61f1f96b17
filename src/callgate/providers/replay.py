"""A scripted model, for tests, examples and documentation, and the player of recorded streams.

Law: the same script gives the same deltas, and nothing leaves the process.
(tests/test_providers_replay.py::test_a_reply_can_be_cut)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, cast, get_args

from callgate import formats
from callgate.errors import ConfigError, LimitExceeded
from callgate.types import (
    SOUND,
    BadCall,
    CallDelta,
    Delta,
    Finish,
    FinishReason,
    ModelInfo,
    ReasoningDelta,
    Request,
    TextDelta,
    ToolCall,
)

Scripted: TypeAlias = "str | bytes | Iterable[bytes] | Mapping[str, Any] | Exception | Callable[[Request], Any]"
_KEYS = frozenset(
    {"content", "reasoning", "calls", "finish", "raw_finish", "error", "usage", "problems", "delay", "chunks"}
)
_CALL_KEYS = frozenset({"name", "arguments", "id", "extra"})


class Replay:
    """Answers with the given replies, one a request, in order.

    A reply is text; a dict with any of `content`, `reasoning`, `calls` (native ones: name, arguments as dict or text,
    id), `finish`, `error`, `usage`, and for tests `delay` (seconds between deltas) and `chunks` (characters a delta, or
    a list of lengths); bytes of a recorded stream, whole or in pieces (with `wire=`); an exception, raised before the
    first byte; or a function of the request that returns one of these. `requests` holds what was asked.
    """

    def __init__(
        self,
        replies: Iterable[Scripted],
        *,
        wire: str | None = None,
        model: str = "replay",
        info: ModelInfo | None = None,
    ) -> None:
        self.name = "replay"
        self.model = model
        self.requests: list[Request] = []
        if isinstance(replies, (str, bytes, Mapping)):
            raise ConfigError("Replay: replies must be a list, one item a request")
        self._replies = list(replies)
        self._format = formats.get(wire) if wire is not None else None
        capabilities = frozenset({"tools", "schema", "thinking"})
        self._info = info or ModelInfo(model, "replay", capabilities)
        for reply in self._replies:
            self._check(reply)

    def _check(self, reply: Any) -> None:
        if isinstance(reply, Mapping):
            if unknown := set(reply) - _KEYS:
                raise ConfigError(f"Replay: unknown keys {sorted(unknown)}; a reply has {sorted(_KEYS)}")
            for call in reply.get("calls") or ():
                if not isinstance(call, Mapping) or "name" not in call or set(call) - _CALL_KEYS:
                    raise ConfigError(f"Replay: a call has name, arguments and maybe id, not {call!r}")
            if (finish := reply.get("finish")) is not None and finish not in get_args(FinishReason):
                raise ConfigError(f"Replay: finish {finish!r}: unknown; there are {', '.join(get_args(FinishReason))}")
        elif isinstance(reply, (str, Exception)) or callable(reply):
            return
        elif self._format is None:
            forms = f"a text, a dict with {', '.join(sorted(_KEYS))}, an error to raise or a function of the request"
            raise ConfigError(
                f"Replay: {type(reply).__name__} is no reply; give {forms}; "
                "a recorded stream needs wire='openai' or 'ollama'"
            )

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncIterator[AsyncIterator[list[Delta]]]:
        number = len(self.requests)
        self.requests.append(request)
        reply: Any = None
        if number < len(self._replies):
            reply = self._replies[number]
            if callable(reply) and not isinstance(reply, Exception):
                reply = reply(request)
                self._check(reply)
        if isinstance(reply, Exception):
            raise reply
        stream = self._play(reply, request)
        try:
            yield stream
        finally:
            await stream.aclose()

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[list[Delta]]]:
        """The next reply of the script."""
        return self._open(request)

    async def _play(self, reply: Any, request: Request) -> AsyncGenerator[list[Delta], None]:
        delay = 0.0
        if reply is None:
            error = f"Replay: no reply left; all {len(self._replies)} were given before this request"
            steps: Iterable[list[Delta]] = [[Finish("error", error=error)]]
        elif isinstance(reply, (str, Mapping)):
            script: Mapping[str, Any] = {"content": reply} if isinstance(reply, str) else reply
            delay = float(script.get("delay") or 0)
            steps = [[delta] for delta in _deltas(script)]
        else:
            steps = self._decoded(reply, request)
        for deltas in steps:
            await asyncio.sleep(delay)
            yield deltas

    def _decoded(self, reply: bytes | Iterable[bytes], request: Request) -> Iterator[list[Delta]]:
        assert self._format is not None
        framing = self._format.framing()
        loader = self._format.Loader(tools=tuple(tool.name for tool in request.tools))
        try:
            for chunk in (reply,) if isinstance(reply, (bytes, bytearray)) else reply:
                if deltas := [d for record in framing.feed(bytes(chunk)) for d in loader.feed(record)]:
                    yield deltas
            yield [d for record in framing.finish() for d in loader.feed(record)] + loader.finish()
        except LimitExceeded as error:
            yield loader.fail(str(error))

    async def info(self) -> ModelInfo:
        """The info it was given; else a model that can do everything."""
        return self._info

    async def catalogue(self) -> list[ModelInfo]:
        """The one model of the script."""
        return [self._info]

    async def aclose(self) -> None:
        """Nothing to give back."""


def _deltas(script: Mapping[str, Any]) -> list[Delta]:
    """A scripted reply as a server that does it well would stream it."""
    cut = script.get("chunks")
    out: list[Delta] = [ReasoningDelta(piece) for piece in _pieces(script.get("reasoning") or "", cut)]
    out += [TextDelta(piece) for piece in _pieces(script.get("content") or "", cut)]
    error = script.get("error")
    calls = list(script.get("calls") or ())
    reason = script.get("finish") or ("error" if error else _reason_of(script.get("raw_finish"), calls))
    settled: list[Delta] = []
    for index, call in enumerate(calls):
        arguments = call.get("arguments", {})
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        first, *rest = _pieces(text, cut) or [""]
        out.append(CallDelta(index, call.get("id"), call["name"], first))
        out += [CallDelta(index, None, None, piece) for piece in rest]
        settled.append(_settle(index, call, text, sound=reason in SOUND))
    raw = script.get("raw_finish", None if reason == "interrupted" else reason)  # a stream that breaks says nothing
    problems = tuple(script.get("problems") or ())
    error = str(error) if error else None
    return [*out, *settled, Finish(cast("FinishReason", reason), script.get("usage"), raw, error, problems)]


def _reason_of(raw: str | None, calls: list[Any]) -> FinishReason:
    """What a script without `finish` means: the server's word if it gives one, else a sound end."""
    return formats.reason_of(raw)[0] if raw is not None else "tool_calls" if calls else "stop"


def _settle(index: int, call: Mapping[str, Any], text: str, *, sound: bool) -> ToolCall | BadCall:
    call_id, name = call.get("id"), call["name"]
    if not sound:
        return BadCall(index, call_id, name, text, "unsound_end")
    if not isinstance(name, str) or not name:
        return BadCall(index, call_id, None, text, "malformed")
    arguments, reason = formats.arguments(text)
    if arguments is None:
        return BadCall(index, call_id, name, text, reason or "malformed")
    return ToolCall(call_id or "", name, arguments, index, extra=call.get("extra") or {})


def _pieces(text: str, cut: int | Iterable[int] | None) -> list[str]:
    if not text:
        return []
    if cut is None:
        return [text]
    if isinstance(cut, int):
        size = max(1, cut)
        return [text[n : n + size] for n in range(0, len(text), size)]
    out, start = [], 0
    for length in cut:
        out.append(text[start : start + length])
        start += length
    return [piece for piece in [*out, text[start:]] if piece]


def open(name: str, **options: Any) -> Replay:  # noqa: A001 - the room's verb
    """A replay is made with its script: `Replay([...])`; recorded files are played by `callgate replay`."""
    raise ConfigError("replay: has no name to open; write Replay([...]) in Python or `callgate replay FILE`")
