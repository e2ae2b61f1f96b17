"""The gateway as an ASGI application: its routes, what stands before them, and what it opens and closes.

Law: whatever a request is, it gets exactly one answer, in the form of the API that it asked.
(tests/test_gateway_server.py::test_health_is_told_and_unknown_paths_are_errors_in_form)
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse
from starlette.routing import BaseRoute, Router

from callgate import __version__
from callgate.apps.gateway import keyring, openapi
from callgate.apps.gateway.access import Access
from callgate.apps.gateway.accesslog import AccessLog
from callgate.apps.gateway.agents import Agents
from callgate.apps.gateway.answer import warm
from callgate.apps.gateway.asgi import Receive, Scope, Send, Visit
from callgate.apps.gateway.backends import Backends, network
from callgate.apps.gateway.gate import ExchangeRecord, Gate
from callgate.apps.gateway.metrics import Metrics
from callgate.apps.gateway.operations import PLAIN, Operation, routes_of
from callgate.apps.gateway.routes import proxy_routes
from callgate.apps.gateway.runs import Runs
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from starlette.requests import Request

    from callgate.apps.gateway.settings import Settings

LOGGER = logging.getLogger("callgate.gateway")
SWEEP = 1.0
"""Seconds between two looks for clients that take nothing."""
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class Health:
    """The process is alive."""

    status: str
    version: str


@dataclass(frozen=True)
class Ready:
    """Whether it takes requests."""

    status: str


class App:
    """One gateway. `await app.open()` before its first request, `await app.aclose()` after its last."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stopping = False
        """No new requests are taken any more."""
        self.metrics = Metrics()
        self.gate = Gate(
            settings, Backends(settings.backends, network(settings)), [self.metrics.exchanged, self._exchanged]
        )
        self.agents = (
            Agents(settings, self.gate.backends, lambda: self.access.keys, self.metrics)
            if settings.agent_mode
            else None
        )
        self._operations = self._all_operations()
        self.log = AccessLog(settings.access_log) if settings.access_log is not None else None
        self._routes: dict[str, BaseRoute] = {}
        routes: list[BaseRoute] = [*routes_of(self._operations), *proxy_routes(self.gate)]
        self._router = Router(routes, redirect_slashes=False, default=_nowhere)
        self.access = Access(self._routed, settings, keyring.make(settings.keys, settings.keys_file))
        self.access.observers.append(self._visited)
        self._sweeping: asyncio.Task[None] | None = None
        self._warming: asyncio.Future[None] | None = None

    def _all_operations(self) -> list[Operation]:
        own = [
            Operation("GET", "/healthz", "health", "Whether the process is alive.", self._health, Health, free=True),
            Operation(
                "GET", "/readyz", "ready", "Whether it takes requests.", self._ready, Ready, errors=(503,), free=True
            ),
            Operation("GET", "/metrics", "metrics", "The numbers, for Prometheus.", self._metrics, media=PLAIN),
        ]
        if self.agents is not None:
            runs = Runs(self.agents, self.settings.heartbeat)
            self.gate.sinks.append(runs.exchanged)
            own += runs.operations()
        own.append(Operation("GET", "/openapi.json", "document", "This document.", self._document, dict, errors=()))
        return own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http":
            self.metrics.running += 1
            try:
                await self.access(scope, receive, send)
            finally:
                self.metrics.running -= 1

    async def _routed(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self  # with it Starlette raises 404 and 405, and we give them the API's form
        await self._router(scope, receive, send)

    # --- its life -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Opens what is needed to answer."""
        self._sweeping = asyncio.create_task(self._sweep(), name="callgate slow clients")
        self._warming = asyncio.ensure_future(asyncio.to_thread(warm))

    async def aclose(self) -> None:
        """Gives everything back."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        if self._warming is not None:
            await self._warming
        if self.agents is not None:
            await self.agents.aclose()
        await self.gate.aclose()
        if self.log is not None:
            self.log.close()

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """What goes on without a request: runs."""
        return self.agents.tasks if self.agents is not None else set()

    async def stop(self, reason: str) -> None:
        """Ends every request that still runs, with an error in its client's form, and leaves runs to be resumed."""
        self.gate.stop(reason)
        if self.agents is not None:
            await self.agents.stop()

    def reload(self) -> None:
        """Reads the keys again, and opens the access log anew. What is wrong with them is logged, and the old ones
        stay in force."""
        try:
            keys = keyring.make(self.settings.keys, self.settings.keys_file)
            keys.keep_usage(self.access.keys)
            self.access.keys = keys
            if self.log is not None:
                self.log.reopen()
        except ConfigError as error:
            LOGGER.error("the keys stay as they were: %s", error)
        else:
            LOGGER.warning("the keys were read again: %d", len(keys.callers))

    async def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(min(SWEEP, self.settings.slow_client / 4))
            self.access.cut_slow(loop.time())

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self.open()
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self.aclose()
        await send({"type": "lifespan.shutdown.complete"})

    # --- what is told of it -------------------------------------------------------------------------------------------

    def _exchanged(self, record: ExchangeRecord) -> None:
        """The caller pays for its tokens, also if it has left meanwhile."""
        visit = self.access.visits.get(record.id)
        if visit is None:
            return
        visit.exchange = record
        if visit.caller is not None:
            visit.caller.charge((record.tokens_in or 0) + (record.tokens_out or 0))

    def _visited(self, visit: Visit) -> None:
        seconds = asyncio.get_running_loop().time() - visit.began
        # The route and not the path: paths are what clients write.
        route = getattr(visit.scope.get("route"), "path", None) or visit.scope.get("callgate.route") or "none"
        self.metrics.visited(visit, str(route), seconds)
        if self.log is not None:
            self.log.visited(visit, seconds)

    async def _health(self, request: Request) -> JSONResponse:
        """The process is alive."""
        return JSONResponse({"status": "ok", "version": __version__})

    async def _ready(self, request: Request) -> JSONResponse:
        """It takes requests."""
        if self.stopping:
            return JSONResponse({"status": "stopping"}, 503)
        return JSONResponse({"status": "ready"})

    async def _document(self, request: Request) -> JSONResponse:
        """What of the API is our own."""
        return JSONResponse(openapi.document(self._operations, keys=self.settings.has_keys))

    async def _metrics(self, request: Request) -> PlainTextResponse:
        """The numbers, for Prometheus."""
        return PlainTextResponse(self.metrics.text(), media_type=PROMETHEUS)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    raise HTTPException(404, "there is nothing at this path")


def make_app(settings: Settings) -> App:
    """The application for these settings; nothing is opened yet."""
    return App(settings)
