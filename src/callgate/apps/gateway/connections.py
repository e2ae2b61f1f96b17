"""Connections as uvicorn makes them, watched; those that are read by h11, where httptools is not installed.

Law: that of the room (callgate/apps/gateway/__init__.py).
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from callgate.apps.gateway.asgi import TRANSPORT
from callgate.apps.gateway.watch import LINGER, Watch

if TYPE_CHECKING:
    from callgate.apps.gateway.settings import Settings


class OfH11(H11Protocol):
    """h11's parser, which bounds heads itself, watched for time."""

    def __init__(self, *given: Any, settings: Settings, **named: Any) -> None:
        super().__init__(*given, **named)
        self.settings = settings
        self.watch = Watch(settings)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.watch.expect(transport, self.settings.header_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self.watch.calm()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self.watch.calm()
            cast("dict[str, object]", self.scope)[TRANSPORT] = self.transport
        elif before is None or before.response_complete:
            self.watch.expect(self.transport, self.settings.header_timeout)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.more_body and not self.transport.is_closing():
            self.watch.expect(self.transport, LINGER)


def protocol_for(settings: Settings) -> type[asyncio.Protocol]:
    """What uvicorn makes its connections of: with httptools where it is installed, else with h11."""
    try:
        from callgate.apps.gateway.parsed import OfHttptools
    except ImportError:
        return cast("type[asyncio.Protocol]", partial(OfH11, settings=settings))
    return cast("type[asyncio.Protocol]", partial(OfHttptools, settings=settings))
