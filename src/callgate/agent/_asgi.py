"""An agent as an ASGI application: a POST is a run, and its answer the run's events (server-sent events).

Law: who asks and with what is the application's word (`prepare`) and never the client's, whose body gives a prompt and
nothing else; a client that leaves cancels its run.
(tests/test_agent_asgi.py::test_a_client_gives_a_prompt_and_nothing_else)

It speaks plain ASGI (https://asgi.readthedocs.io), so that it can be mounted in FastAPI, Starlette, Quart or Django
without any of them.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from callgate.errors import CallgateError, ConfigError, Denied
from callgate.events import CallFinished, Event, dump_event

if TYPE_CHECKING:
    from callgate.agent._request import RunOptions
    from callgate.agent._stream import Stream

Scope: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[MutableMapping[str, Any]]]"
Send: TypeAlias = "Callable[[MutableMapping[str, Any]], Awaitable[None]]"
Asgi: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"
Options: TypeAlias = "RunOptions[Any] | Mapping[str, Any]"
Prepare: TypeAlias = "Callable[[Scope, dict[str, Any]], Options | Awaitable[Options | None] | None]"
"""`prepare(scope, body)`, sync or async: what the run is given beside its prompt (`principal`, `deps`, `history` …).
`callgate.errors.Denied` refuses the client."""

MAX_BODY = 1_000_000
"""Bytes of a request: a prompt of a person with room to spare; what is larger is 413."""
KEEP_ALIVE = 15.0
"""Seconds of silence after which a comment is sent: proxies cut connections that say nothing for half a minute."""
HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # nginx would hold the events back until the answer is whole
]


class Refusal(Exception):
    """The request is answered with an error and no run starts."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AgentApp:
    """`app(scope, receive, send)`."""

    def __init__(self, open_stream: Callable[[str, Mapping[str, Any]], Stream[Any]], prepare: Prepare | None) -> None:
        if prepare is not None and not callable(prepare):
            raise ConfigError(f"prepare: a function of the scope and the body is needed, not {prepare!r}")
        self._open = open_stream
        self._prepare = prepare

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request. The lifespan of the server is that of the application that mounts this."""
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise ConfigError(f"the agent answers HTTP and not {scope['type']!r}")
        try:
            stream = await self._begin(scope, receive)
        except Refusal as refusal:
            await _refuse(send, refusal)
            return
        await _answer(stream, receive, send)

    async def _begin(self, scope: Scope, receive: Receive) -> Stream[Any]:
        if scope.get("method") != "POST":
            raise Refusal(405, "a run is begun by POST")
        body = await _body(receive)
        prompt = body.get("prompt")
        if not isinstance(prompt, str) or not prompt:
            raise Refusal(400, "prompt: a text is needed")
        try:
            return self._open(prompt, await self._options(scope, body))
        except Denied as error:
            raise Refusal(403, str(error) or "denied") from error

    async def _options(self, scope: Scope, body: dict[str, Any]) -> Mapping[str, Any]:
        if self._prepare is None:
            return {}
        made = self._prepare(scope, body)
        if inspect.isawaitable(made):
            made = await made
        return cast("Mapping[str, Any]", made or {})


async def _body(receive: Receive) -> dict[str, Any]:
    """The request's JSON object."""
    parts: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Refusal(400, "the client left")
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > MAX_BODY:
            raise Refusal(413, f"a request may have {MAX_BODY} bytes")
        more = message.get("more_body", False)
    try:
        body = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise Refusal(400, "the body is no JSON") from error
    if not isinstance(body, dict):
        raise Refusal(400, 'an object is needed: {"prompt": "…"}')
    return body


async def _answer(stream: Stream[Any], receive: Receive, send: Send) -> None:
    """The run's events; a failure before the first one is an error of the request."""
    async with stream as events:
        gone = asyncio.ensure_future(_left(receive, events))
        started = False
        try:
            async with aclosing(_records(events)) as records:
                async for record in records:
                    if not started:
                        started = True
                        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
                    await send({"type": "http.response.body", "body": record, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except CallgateError as error:  # nothing has started: a run that has, never raises
            await _refuse(send, Refusal(500, type(error).__name__))
            raise
        finally:
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone


async def _records(events: Stream[Any]) -> AsyncGenerator[bytes, None]:
    """The events as records of the wire, with a comment wherever it is silent for long."""
    while True:
        waiting = asyncio.ensure_future(events.batch())
        try:
            while not (await asyncio.wait({waiting}, timeout=KEEP_ALIVE))[0]:
                yield b": still here\n\n"
        finally:
            waiting.cancel()
        batch = waiting.result()
        if not batch:
            return
        yield b"".join(record_of(event) for event in batch)


def record_of(event: Event) -> bytes:
    """One event as a record: its name, and itself as JSON. Where a tool raised is not for clients (X8)."""
    if isinstance(event, CallFinished) and event.result.error is not None:
        event = replace(event, result=replace(event.result, error=None))
    value = dump_event(event)
    # JSON has no line ends of its own, so one `data` line holds it all.
    return f"event: {value['type']}\ndata: {json.dumps(value, ensure_ascii=False)}\n\n".encode("utf-8", "replace")


async def _left(receive: Receive, events: Stream[Any]) -> None:
    """Ends the run when the client leaves (X6)."""
    while (await receive())["type"] != "http.disconnect":
        pass
    events.cancel()


async def _refuse(send: Send, refusal: Refusal) -> None:
    body = json.dumps({"error": {"message": str(refusal)}}, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


async def _lifespan(receive: Receive, send: Send) -> None:
    """For an agent that is an application of its own: `uvicorn shop:app`."""
    for event in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{event}.complete"})
