"""One exchange over HTTP: a client's request read, carried out, and ended in the form of its API.

Law: every exchange that began ends in exactly one record, whatever became of it.
(tests/test_gateway_openai.py::test_every_exchange_ends_in_one_record)

Theory of operation. The exchange is the ASGI call's own task; a second one listens whether the client leaves.
1. A client that leaves cancels the exchange, and with it the request to the backend: at once, also before the first
   token and for answers that are not streamed.
2. What goes wrong before the first byte is an answer with a status; later it is an event of the client's API.
3. `stop` (a server that shuts down) is a failure like any other.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from typing import cast

from pydantic_core import from_json

from callgate.apps.gateway.answer import Answer, Broken
from callgate.apps.gateway.ask import Ask
from callgate.apps.gateway.client import Client, Receive, Scope, Send
from callgate.apps.gateway.failures import failure_of, passes_on
from callgate.apps.gateway.gate import CALLER, RECORD_ID, Caller, ExchangeRecord, Gate, Seen
from callgate.apps.gateway.refusals import Refusal
from callgate.apps.gateway.shapes import Failure, Shape, Value
from callgate.errors import CallgateError, InvalidRequest

PASSED_ON = frozenset({b"anthropic-beta", b"openai-beta"})
"""Headers that belong to the request of an API: they switch on what its body asks for."""
MAX_HEADER = 1000
LEFT = 499
"""The status of a client that left, as nginx calls it."""
_log = logging.getLogger("callgate.gateway")


class TooLarge(CallgateError):
    """The body of a request is larger than it may be."""


class Exchange:
    """Carries one request of one client out."""

    def __init__(self, gate: Gate, shape: Shape, scope: Scope, receive: Receive, send: Send) -> None:
        self._gate = gate
        self._shape = shape
        self._receive = receive
        self._client = Client(send)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        caller = scope.get(CALLER)
        self._caller: Caller | None = caller  # type: ignore[assignment]
        given = scope.get(RECORD_ID)
        self._id = given if isinstance(given, str) else secrets.token_hex(12)
        self._headers = cast("Iterable[tuple[bytes, bytes]]", scope.get("headers") or ())
        self._seen = Seen()
        self._ask: Ask | None = None
        self._task: asyncio.Task[object] | None = None
        self._left = False
        self._stopped = ""
        self._error: str | None = None

    def stop(self, reason: str) -> None:
        """Ends it at once with an error in its client's shape (rule 3)."""
        self._stopped = self._stopped or reason
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        """From the request to its record."""
        self._gate.running.add(self)
        self._task = asyncio.current_task()
        try:
            await self._guarded()
        finally:
            self._client.quiet()
            self._gate.running.discard(self)
            self._gate.finished(self._record())

    async def _guarded(self) -> None:
        watch: asyncio.Task[None] | None = None
        try:
            body = await self._body()
            watch = self._loop.create_task(self._watch())
            await self._carry_out(body)
        except asyncio.CancelledError:
            if self._task is None or not (self._left or self._stopped):
                raise
            self._task.uncancel()
            await self._cut()
        except Refusal as refusal:  # of the server around us, which tells it: the body came too slowly, or is too long
            self._error, self._client.status = type(refusal).__name__, refusal.status
            raise
        except Exception as error:
            await self._fail(error)
        finally:
            if watch is not None:
                watch.cancel()

    async def _body(self) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._left = True
                raise asyncio.CancelledError
            piece = message.get("body", b"")
            assert isinstance(piece, bytes)
            size += len(piece)
            if size > self._gate.settings.max_body:
                raise TooLarge(f"the body is larger than {self._gate.settings.max_body} bytes (--max-body)")
            pieces.append(piece)
            if not message.get("more_body"):
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _watch(self) -> None:
        """Rule 1."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        if self._task is not None:
            self._task.cancel()

    async def _carry_out(self, data: bytes) -> None:
        ask = self._ask = self._read(data)
        having = await self._gate.backends.having(ask.model)
        for n, backend in enumerate(having):
            answer = Answer(self._shape, ask, self._client, self._gate.settings, self._seen)
            answer.caller = self._caller
            if ask.stream and n == 0:
                self._client.streams(
                    self._shape.media, self._shape.heartbeat(answer.head), self._gate.settings.heartbeat
                )
            try:
                await answer.at(backend)
            except CallgateError as error:
                if self._seen.begun or n == len(having) - 1 or not passes_on(error):
                    raise
                self._seen.failed += ((backend.address, type(error).__name__),)
            else:
                return

    def _read(self, data: bytes) -> Ask:
        """What is asked. Raises InvalidRequest, or Forbidden."""
        try:
            value = from_json(data)
        except ValueError as error:
            raise InvalidRequest("body", f"it is no JSON: {str(error)[:200]}") from error
        if not isinstance(value, dict):
            raise InvalidRequest("body", "an object is needed")
        principal = self._caller.principal if self._caller is not None else None
        ask = self._shape.load(value, principal.id if principal is not None else "")
        if passed := _passed_on(self._headers):
            ask = replace(ask, headers=passed)
        if self._caller is not None and ask.model and not self._caller.may_use(ask.model):
            raise Forbidden(f"this key may not use the model {ask.model[:200]!r}")
        return ask

    async def _fail(self, error: Exception) -> None:
        """Rule 2."""
        self._error = type(error).__name__ if not isinstance(error, Broken) else "EndedEarly"
        if not isinstance(error, CallgateError):
            _log.exception("the gateway failed in an exchange with %s", self._seen.backend or "no backend")
        failure = failure_of(error)
        if isinstance(error, TooLarge):
            failure = Failure(413, "too_large", str(error))
        elif isinstance(error, Forbidden):
            failure = Failure(403, "permission", str(error), param="model")
        await self._tell(failure, error.value if isinstance(error, Broken) else None)

    async def _cut(self) -> None:
        if self._left:
            self._error = "Disconnected"
            if not self._client.started:
                self._client.status = LEFT
            return
        self._error = "Stopped"
        await self._tell(Failure(503, "stopped", self._stopped, retry_after=1.0), None)

    async def _tell(self, failure: Failure, value: Value | None) -> None:
        client = self._client
        with suppress(OSError):  # it is gone already
            if client.ended:
                return
            if not client.started:
                if failure.retry_after is not None:
                    client.headers["retry-after"] = str(max(1, round(failure.retry_after)))
                await client.answer(failure.status, self._shape.failure(failure) if value is None else value)
                return
            await client.write(self._shape.failure_event(failure, value))
            await client.end()

    def _record(self) -> ExchangeRecord:
        seen, ask = self._seen, self._ask
        principal = self._caller.principal if self._caller is not None else None
        usage = seen.usage or {}
        return ExchangeRecord(
            self._id,
            self._shape.name,
            ask.model if ask is not None else "",
            seen.backend,
            seen.wire,
            seen.protocol,
            principal.id if principal is not None else None,
            ask is not None and ask.stream,
            self._client.status,
            seen.finish,
            usage.get("input"),
            usage.get("output"),
            seen.first_token,
            self._loop.time() - self._began,
            seen.calls,
            dict(seen.mended),
            seen.retries,
            self._error,
            seen.failed,
        )


def _passed_on(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """What the client says in headers that are part of its API."""
    out: dict[str, str] = {}
    for name, value in headers:
        if name in PASSED_ON and value.isascii() and len(value) <= MAX_HEADER:
            key, text = name.decode(), value.decode()
            out[key] = f"{out[key]},{text}" if key in out else text
    return out


class Forbidden(CallgateError):
    """The caller's key does not allow this."""
