"""What the providers of an HTTP API share: a request goes out in a format, its stream comes back in the same.

Law: an answer that broke off after its first byte ends in a `Finish` that says so; it is never an exception, and this
package never asks for it again.
(tests/test_providers_limits.py::test_an_answer_that_broke_off_is_asked_for_again_by_the_run_only)
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from callgate import formats
from callgate.errors import BadRequest, ConfigError, EndedEarly, LimitExceeded
from callgate.formats import Accepted
from callgate.providers._http import HttpClient, Network, Stream, Timeouts
from callgate.providers._parameters import LeftOut, named
from callgate.providers._recording import Recorder
from callgate.types import EMPTY, Delta, Finish, Request
from callgate.wire import Record

MAX_RECORD = 8 * 1024 * 1024
"""Bytes of one record, or of an answer in one JSON body: reading JSON cannot be interrupted, and longer ones would keep
everything else on the event loop waiting for tenths of a second."""


class Served:
    """One model of one server."""

    def __init__(
        self, client: HttpClient, model: str, *, wire: str, path: str, record: str | Path | None = None
    ) -> None:
        self.name = client.name
        self.model = model
        self.client = client
        self._wire = wire
        self._format = formats.get(wire)
        self._path = path
        self._record = Path(record) if record is not None else None
        self._left_out = LeftOut()
        self._headers: Mapping[str, str] = EMPTY

    def sending(self, headers: Mapping[str, str]) -> Self:
        """The same server and model, with these headers in every request: what one client of a gateway says there."""
        found = copy.copy(self)
        found._headers = headers
        return found

    @property
    def secrets(self) -> tuple[str, ...]:
        """The key and the secret headers of this server, as far as they are known by now."""
        return self.client.secrets

    def accept(self, request: Request) -> Accepted:
        """The request as the server accepts it; plugs with quirks have their own."""
        return Accepted(request, {})

    def body(self, request: Request) -> dict[str, Any]:
        """The body of an accepted request; plugs with quirks have their own."""
        return self._format.build(request, self.model)

    def doubts(self, request: Request, finish: Finish) -> tuple[str, ...]:
        """What the end of an answer tells of how the server took the request."""
        return ()

    async def prepare(self) -> None:
        """What must be known before a request can be written."""

    async def refine(self, error: Exception) -> Exception:
        """The error with what the server can tell about it (which models it has)."""
        return error

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[list[Delta]]]:
        """The deltas of one answer."""
        return self._stream(request)

    @property
    def wire(self) -> str:
        """The format that the server speaks."""
        return self._wire

    @asynccontextmanager
    async def raw(self, body: Mapping[str, Any], *, path: str = "") -> AsyncIterator[Stream]:
        """The bytes of the answer to a body that is written already, for those who pass records on; `path`: another one
        of the same API. What fails before the first of them is raised."""
        await self.prepare()
        opened, stream = await self._open(dict(body), path)
        try:
            yield stream
        finally:
            await opened.__aexit__(None, None, None)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[list[Delta]]]:
        await self.prepare()
        sent = self.accept(request)
        body = self.body(sent.request)
        opened, stream = await self._open(body)
        sent = replace(sent, notes=(*sent.notes, *stream.notes, *self._left_out.notes))
        recorder = Recorder.start(self._record, wire=self._wire, model=self.model, body=body, secret=self.client.secret)
        deltas = self._deltas(stream, sent, recorder)
        try:
            if recorder is not None:
                stream.taps.append(recorder.piece)
            yield deltas
        finally:
            await deltas.aclose()
            if recorder is not None:
                recorder.close()
            await opened.__aexit__(None, None, None)

    async def _open(self, body: dict[str, Any], path: str = "") -> tuple[AbstractAsyncContextManager[Stream], Stream]:
        """The stream of the answer. A parameter that the server refuses by name is left out once, where that is safe,
        and from then on."""
        while True:
            self._left_out.apply(body)
            opened = self.client.stream(path or self._path, body, model=self.model, headers=self._headers)
            try:
                return opened, await opened.__aenter__()
            except Exception as error:
                if isinstance(error, BadRequest) and self._left_out.learn(error, body):
                    continue
                refined = await self.refine(named(error, body))
                if refined is error:
                    raise
                raise refined from error

    async def _deltas(
        self, stream: Stream, sent: Accepted, recorder: Recorder | None
    ) -> AsyncGenerator[list[Delta], None]:
        framing = self._format.framing(limit=MAX_RECORD)
        loader = self._format.Loader(tools=tuple(tool.name for tool in sent.request.tools))
        error: Exception | None = None
        try:
            while not loader.over and (piece := await stream.read()):
                records = framing.feed(piece)
                deltas = _loaded(loader, records)
                stream.progress(begun=bool(deltas) or _has_calls(records), records=len(records))
                if deltas:
                    yield sent.back(deltas)
        except EndedEarly as broke:
            error = broke
            if recorder is not None:
                recorder.broke(str(broke))
        except LimitExceeded as broke:
            yield self._ended(loader.fail(str(broke)), sent)
            return
        try:
            deltas = _loaded(loader, framing.finish())
        except LimitExceeded as broke:
            deltas, error = [], broke
        end = loader.finish() if error is None else loader.fail(str(error), interrupted=isinstance(error, EndedEarly))
        yield sent.back(deltas) + self._ended(end, sent)
        if loader.over and error is None:
            await stream.drain()

    def _ended(self, deltas: list[Delta], sent: Accepted) -> list[Delta]:
        """The last deltas, with our names and all that is to be said. Servers quote keys back, also inside a stream."""
        deltas = sent.back(deltas)
        last = deltas[-1]
        assert isinstance(last, Finish)
        if more := (*sent.notes, *self.doubts(sent.request, last)):
            last = deltas[-1] = replace(last, problems=tuple(dict.fromkeys([*last.problems, *more])))
        if last.error is None and not last.problems:
            return deltas
        error = None if last.error is None else self.client.hide(last.error)
        deltas[-1] = replace(last, error=error, problems=tuple(self.client.hide(p) for p in last.problems))
        return deltas

    def warm(self) -> None:
        """Loads what the first request needs, in the caller's thread."""
        self.client.warm()

    async def aclose(self) -> None:
        """Closes the connections of this event loop."""
        await self.client.aclose()


def _loaded(loader: formats.Loader, records: list[Record]) -> list[Delta]:
    return [delta for record in records for delta in loader.feed(record)]


def _has_calls(records: list[Record]) -> bool:
    """Whether a call has begun: its arguments are held back until they are whole."""
    return any('"tool_calls"' in record.data for record in records)


_NETWORK = ("retries", "backoff", "max_wait", "proxy", "verify", "cert")


def refuse_unknown(who: str, options: Mapping[str, Any]) -> None:
    """Raises ConfigError if anything is left of a provider's options."""
    if options:
        named = ", ".join(sorted(options))
        known = f"besides its own a provider takes base_url, key, headers, timeout, {', '.join(_NETWORK)}"
        model = "what the model takes (temperature …) goes into options= of Agent or Request"
        raise ConfigError(f"{who}: unknown options {named}; {known}; {model}")


def network_of(options: dict[str, Any]) -> Network:
    """Takes the settings of the network out of a provider's options."""
    known = {key: options.pop(key) for key in _NETWORK if key in options}
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
