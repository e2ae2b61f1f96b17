"""A gateway in this process, on a real port, in front of backends that a test scripts."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import uvicorn
from starlette.routing import Router

from callgate.apps.gateway.backends import Backends
from callgate.apps.gateway.gate import ExchangeRecord, Gate
from callgate.apps.gateway.routes import proxy_routes
from callgate.providers import Provider
from loopback import Loopback


@dataclass(frozen=True)
class Options:
    """The settings that the proxy reads."""

    protocol: str = "auto"
    calls: Literal["whole", "live"] = "whole"
    retries: int = 2
    observe: bool = False
    heartbeat: float = 10.0
    max_body: int = 1 << 25
    kept_responses: int = 100
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass
class Running:
    """A gateway that listens."""

    url: str
    gate: Gate
    backend: Loopback
    records: list[ExchangeRecord] = field(default_factory=list)
    closing: list[Callable[[], None]] = field(default_factory=list)
    """What is closed with it: clients that do not close themselves."""
    clients: dict[str, Any] = field(default_factory=dict)
    """Clients that are made once: reading certificates takes most of a request's time."""

    @property
    def asked(self) -> list[Any]:
        """The bodies that the scripted backend was sent to its chat."""
        return [asked.json for asked in self.backend.asked if asked.method == "POST"]


class _Backend(Loopback):
    """A scripted backend that also lists its model."""

    def __init__(self, scripts: Sequence[Any], model: str, shown: dict[str, Any]) -> None:
        super().__init__(scripts)
        self._listed = {"/v1/models": {"object": "list", "data": [{"id": model, "object": "model"}]}, **shown}

    def script(self, asked: Any, number: int) -> Any:
        found = self._listed.get(asked.path.partition("?")[0])
        if found is None and asked.method == "GET":
            return [b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"]
        if found is not None:
            data = json.dumps(found).encode()
            return [
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data),
                data,
            ]
        script = self.scripts[min(number, len(self.scripts) - 1)]
        return script(asked) if callable(script) else script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from loopback import _request

        self.connections += 1
        try:
            while (asked := await _request(reader)) is not None:
                posts = sum(one.method == "POST" and one.path not in self._listed for one in self.asked)
                script = self.script(asked, posts)
                self.asked.append(asked)
                if not await self._play(script, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.dropped.set()
        finally:
            writer.close()


def _openai(port: int) -> str:
    return f"http://127.0.0.1:{port}/v1"


@contextmanager
def gateway(
    *scripts: Any,
    model: str = "m",
    options: Options | None = None,
    backends: Sequence[str | Provider] = (),
    make: Callable[[int], str | Provider | list[Provider]] = _openai,
    shown: dict[str, Any] | None = None,
) -> Iterator[Running]:
    """A gateway while the block runs: in front of a scripted backend, or of `backends`. `make` gives the
    scripted one's address, or who asks it, from its port."""
    ready: list[Running] = []
    up = threading.Event()
    stop: list[Any] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        scripted = _Backend(scripts, model, shown or {})
        server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        scripted.port = server.sockets[0].getsockname()[1]
        records: list[ExchangeRecord] = []
        made = make(scripted.port)
        addresses = list(backends) or (made if isinstance(made, list) else [made])
        gate = Gate(options or Options(), Backends(addresses, {}), [records.append])
        config = uvicorn.Config(Router(proxy_routes(gate)), port=0, log_level="error", lifespan="off")
        web = uvicorn.Server(config)
        web.install_signal_handlers = lambda: None  # type: ignore[method-assign]
        task = loop.create_task(web._serve() if hasattr(web, "_serve") else web.serve())
        while not web.started:
            await asyncio.sleep(0.005)
        port = web.servers[0].sockets[0].getsockname()[1]
        ready.append(Running(f"http://127.0.0.1:{port}", gate, scripted, records))

        def end() -> None:
            web.should_exit = web.force_exit = True

        stop.append(lambda: loop.call_soon_threadsafe(end))
        up.set()
        await task
        await gate.aclose()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert up.wait(10)
    try:
        yield ready[0]
    finally:
        for close in ready[0].closing:
            close()
        stop[0]()
        thread.join(10)
