"""Connections that are read by httptools, watched.

Law: that of the room (callgate/apps/gateway/__init__.py).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from callgate.apps.gateway.asgi import TRANSPORT
from callgate.apps.gateway.watch import BUSY, CROWD, HASTE, LINGER, TOO_LONG, Watch

if TYPE_CHECKING:
    from callgate.apps.gateway.settings import Settings


class OfHttptools(HttpToolsProtocol):
    """httptools' parser, watched."""

    def __init__(self, *given: Any, settings: Settings, **named: Any) -> None:
        super().__init__(*given, **named)
        self.settings = settings
        self.watch = Watch(settings)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        crowded = len(self.connections) > self.settings.max_connections
        if len(self.connections) > self.settings.max_connections + CROWD:
            transport.write(BUSY)
            transport.close()
        self.watch.expect(transport, HASTE if crowded else self.settings.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        reading = before is not None and before.more_body and not before.response_complete
        super().data_received(data)
        if self.cycle is before and not reading and self.parser is not None and not self._is_dropping():
            # Still inside a head: it is neither whole, nor is this a body.
            if not self.watch.takes_head(len(data)):
                self._refuse_head()
            # Not while an answer runs: old clients send an empty line behind their bodies (RFC 9112, 2.2).
            elif before is None or before.response_complete:
                self.watch.expect(self.transport, self.settings.header_timeout)

    def _is_dropping(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete and self.cycle.more_body

    def _refuse_head(self) -> None:
        if not self.transport.is_closing():
            self.transport.write(TOO_LONG)
            self.transport.close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        cast("dict[str, object]", self.scope)[TRANSPORT] = self.transport

    def on_headers_complete(self) -> None:
        self.watch.calm()
        if sum(len(name) + len(value) + 4 for name, value in self.headers) + len(self.url) > self.settings.max_headers:
            self._refuse_head()
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle is None:
            return  # of a head that was refused
        if self.cycle.response_complete and not self.watch.drops(len(body)):
            self.transport.abort()
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.cycle is None:
            return
        if self.cycle.response_complete:  # the rest of a refused body has come: the next head may
            self.cycle.more_body = False
            self.watch.calm()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and not self.transport.is_closing():
            self.watch.dropped = 0
            self.watch.expect(self.transport, LINGER)
