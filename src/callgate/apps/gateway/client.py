"""The client's side of one exchange: the response as it goes out, signs of life while nothing does.

Law: a stream that is quiet for `heartbeat` seconds says that it lives, also before its first token.
(tests/test_gateway_openai.py::test_a_long_prefill_is_bridged_with_comments)
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import TypeAlias

Scope: TypeAlias = "MutableMapping[str, object]"
Message: TypeAlias = "MutableMapping[str, object]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"


class Client:
    """Writes one response. A stream begins with its first bytes, or with the first sign of life."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._media = b""
        self._beat = b""
        self._interval = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None
        self._last = 0.0
        self.started = False
        self.ended = False
        self.status = 200
        self.headers: dict[str, str] = {}
        """Headers that are known by now; what is put here before the first byte goes out."""

    def streams(self, media: str, beat: bytes, interval: float) -> None:
        """From now on signs of life are sent."""
        self._media, self._beat, self._interval = media.encode(), beat, interval
        self._last = self._loop.time()
        self._timer = self._loop.call_later(interval, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        if now - self._last >= self._interval:
            self._last = now
            self._beating = self._loop.create_task(self.write(self._beat))
        self._timer = self._loop.call_later(max(self._last + self._interval - now, 0.01), self._look)

    async def write(self, data: bytes) -> None:
        """Bytes of a stream."""
        if self.ended:
            return
        self._last = self._loop.time()
        if not self.started:
            await self._start(self._media, self.status, (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self) -> None:
        """The stream is whole."""
        self.quiet()
        if not self.ended:
            self.ended = True
            if self._beating is not None and not self._beating.done():
                await self._beating
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def answer(self, status: int, value: Mapping[str, object]) -> None:
        """A whole response of JSON."""
        self.quiet()
        self.ended, self.status = True, status
        data = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        length = (b"content-length", str(len(data)).encode())
        await self._start(b"application/json", status, length)
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def _start(self, media: bytes, status: int, *more: tuple[bytes, bytes]) -> None:
        self.started = True
        more_headers = [(k.encode("ascii"), _plain(v)) for k, v in self.headers.items()]
        headers = [(b"content-type", media), *more, *more_headers]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    def quiet(self) -> None:
        """No more signs of life."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _plain(text: str) -> bytes:
    """What may stand in a header (RFC 9110, 5.5): visible ASCII, no line ends of a stranger."""
    return "".join(c if " " <= c <= "~" else "?" for c in text[:500]).encode("ascii")
