"""What the providers of an HTTP API share: a request goes out in a format, its stream comes back in the same.

One law: an answer that broke off after its first byte is told as its `Finish`; it is never an exception, and never
asked for again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callgate import formats
from callgate.errors import ConfigError, EndedEarly, LimitExceeded
from callgate.providers._http import Mouth, Network, Stream, Timeouts
from callgate.providers._recording import Recorder
from callgate.types import Delta, Finish, Request

if TYPE_CHECKING:
    from callgate.protocols._steps import Score, Scores


class Served:
    """One model of one server."""

    def __init__(self, mouth: Mouth, model: str, *, wire: str, path: str, record: str | Path | None = None) -> None:
        self.name = mouth.name
        self.model = model
        self.mouth = mouth
        self._wire = wire
        self._format = formats.get(wire)
        self._path = path
        self._record = Path(record) if record is not None else None

    def body(self, request: Request) -> dict[str, Any]:
        """The body of a request; plugs with quirks have their own."""
        return self._format.build(request, self.model)

    async def prepare(self) -> None:
        """What must be known before a request can be written."""

    async def refine(self, error: Exception) -> Exception:
        """The error with what the server can tell about it (which models it has)."""
        return error

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[list[Delta]]]:
        """The deltas of one answer."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[list[Delta]]]:
        await self.prepare()
        body = self.body(request)
        opened = self.mouth.stream(self._path, body, model=self.model)
        try:
            stream = await opened.__aenter__()
        except Exception as error:
            refined = await self.refine(error)
            if refined is error:
                raise
            raise refined from error
        recorder = Recorder.start(self._record, wire=self._wire, model=self.model, body=body, secret=self.mouth.secret)
        deltas = self._deltas(stream, request, recorder)
        try:
            if recorder is not None:
                stream.taps.append(recorder.piece)
            yield deltas
        finally:
            await deltas.aclose()
            if recorder is not None:
                recorder.close()
            await opened.__aexit__(None, None, None)

    async def _deltas(
        self, stream: Stream, request: Request, recorder: Recorder | None
    ) -> AsyncGenerator[list[Delta], None]:
        framing = self._format.framing()
        loader = self._format.Loader(tools=tuple(tool.name for tool in request.tools))
        error: Exception | None = None
        try:
            while not loader.over and (piece := await stream.read()):
                deltas = [delta for record in framing.feed(piece) for delta in loader.feed(record)]
                if deltas:
                    yield deltas
        except EndedEarly as broke:
            error = broke
            if recorder is not None:
                recorder.broke(str(broke))
        except LimitExceeded as broke:
            yield self._masked(loader.fail(str(broke)))
            return
        try:
            deltas = [delta for record in framing.finish() for delta in loader.feed(record)]
        except LimitExceeded as broke:
            deltas, error = [], broke
        end = loader.finish() if error is None else loader.fail(str(error), interrupted=isinstance(error, EndedEarly))
        yield deltas + self._masked(end)
        if loader.over and error is None:
            await stream.drain()

    def _masked(self, deltas: list[Delta]) -> list[Delta]:
        """Servers quote keys back, also inside a stream."""
        last = deltas[-1]
        assert isinstance(last, Finish)
        if last.error is None and not last.problems:
            return deltas
        error = None if last.error is None else self.mouth.hide(last.error)
        deltas[-1] = replace(last, error=error, problems=tuple(self.mouth.hide(p) for p in last.problems))
        return deltas

    async def score(self, request: Score) -> Scores:
        """Not over HTTP: servers disagree on what their log-probabilities are."""
        raise ConfigError(f"{self.name}: cannot score; the embedded engine can (model='local')")

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        await self.mouth.aclose()


def network_of(options: dict[str, Any]) -> Network:
    """Takes the settings of the network out of a provider's options."""
    known = {
        key: options.pop(key) for key in ("retries", "backoff", "max_wait", "proxy", "verify", "cert") if key in options
    }
    timeout = options.pop("timeout", None)
    if timeout is None:
        clocks = Timeouts()
    elif isinstance(timeout, Timeouts):
        clocks = timeout
    elif isinstance(timeout, Mapping):
        try:
            clocks = replace(Timeouts(), **timeout)
        except TypeError as error:
            raise ConfigError(f"timeout: {error}; there are connect, first, idle, total") from error
    else:
        clocks = Timeouts(connect=min(10.0, float(timeout)), first=float(timeout), idle=float(timeout))
    return Network(timeout=clocks, **known)
