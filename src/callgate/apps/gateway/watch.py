"""Connections of clients that mean no good: heads without an end, silence, bodies that nobody asked for.

Law: whatever a connection sends or does not send, it holds bounded memory for a bounded time.
(tests/test_gateway_hostile.py::test_a_head_without_an_end_is_refused)

uvicorn's protocols bound neither the size of a head (httptools) nor the time that it may take. These subclasses do:
(1) a head has so many bytes and so many seconds, counted from its first byte; (2) a connection over the limit is
answered 503 and has little time to ask; (3) what still comes of a body after its answer is dropped, for a moment and
up to a size, so that a client can read why it was refused (RFC 9112, 9.6), and then the connection is broken.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from callgate.apps.gateway.settings import Settings

LINGER = 2.0
"""Seconds for the rest of a body that was refused."""
LINGER_BYTES = 16 * 1024 * 1024
HASTE = 2.0
"""Seconds that a connection over the limit has to ask."""
CROWD = 1024
"""Connections over the limit that are still asked what they want; more are closed unheard."""
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 1\r\n"
    b"content-length: 20\r\nconnection: close\r\n\r\nToo many connections"
)
TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 28\r\nconnection: close\r\n\r\nThe request head is too long"
)


class Watch:
    """The time and size of what a connection may send just now."""

    def __init__(self, settings: Settings) -> None:
        self.max_head = settings.max_headers
        self.seconds = settings.header_timeout
        self.head = 0
        """Bytes of a head that is not whole yet."""
        self.dropped = 0
        """Bytes of a body that nobody reads any more."""
        self._timer: asyncio.TimerHandle | None = None

    def expect(self, transport: asyncio.Transport, seconds: float) -> None:
        """Something must have come by then, or the connection is broken."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, transport.abort)

    def calm(self) -> None:
        """It came."""
        self.head = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def takes_head(self, size: int) -> bool:
        """Whether a head may have so many bytes more."""
        self.head += size
        return self.head <= self.max_head

    def drops(self, size: int) -> bool:
        """Whether so much more of an unread body is borne."""
        self.dropped += size
        return self.dropped <= LINGER_BYTES
