"""Bodies of HTTP: a request's as JSON; a response's decompressed, in pieces of bounded size, never too many at once.

Law: no piece is larger than `MAX_PIECE`, whatever the server compressed, and a body never grows beyond its limit.
(tests/test_providers_limits.py::test_a_compressed_bomb_is_given_up_and_stops_nobody)

We ask for bodies as they are (`Accept-Encoding: identity`). A proxy may compress them all the same (RFC 9110, section
12.5.3, lets it), so gzip and deflate are read, piece by piece; whatever else is refused.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from typing import Any

from callgate.errors import ConfigError, LimitExceeded

MAX_PIECE = 64 * 1024
"""Bytes that are handed on at once: some milliseconds of parsing."""
MAX_STREAM = 256 * 1024 * 1024
"""Bytes of one streamed answer: a million tokens, each in a record of its own. 100,000 tokens are below 30 MB."""
_TURN = 0.01
"""Seconds of work without waiting, after which the others of the event loop get their turn."""
_ZLIB_OR_GZIP = 47  # wbits: 32 finds the header out, 15 is the largest window


class Body:
    """Reads one response. Raises LimitExceeded beyond `limit` bytes, and ValueError for a body that is no body."""

    def __init__(self, response: Any, limit: int = MAX_STREAM) -> None:
        self._content = response.content
        self._limit = limit
        self._size = 0
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        self._turn = self._loop.time()
        coding = response.headers.get("Content-Encoding", "").strip().lower()
        if coding not in ("", "identity", "gzip", "x-gzip", "deflate"):
            raise ValueError(f"a body with Content-Encoding {coding[:40]!r}, which was not asked for")
        self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP) if coding not in ("", "identity") else None

    async def read(self) -> bytes:
        """The next piece; b"" at the end. Errors of the connection come as they are."""
        began = self._loop.time()
        if began - self._turn > _TURN:  # what has arrived already is read without a wait
            await asyncio.sleep(0)
            self._turn = began = self._loop.time()
        if self._inflate is None and not self._rest:  # as nearly always, and once a token
            piece: bytes = await self._content.readany()
            if self._loop.time() - began > _TURN:
                self._turn = self._loop.time()
            if len(piece) > MAX_PIECE:
                piece, self._rest = piece[:MAX_PIECE], piece[MAX_PIECE:]
        else:
            piece = await (self._plain() if self._inflate is None else self._inflated())
        self._size += len(piece)
        if self._size > self._limit:
            raise LimitExceeded(f"the body is larger than {self._limit} bytes (MAX_STREAM for answers, MAX_BODY else)")
        return piece

    async def _more(self) -> bytes:
        if self._rest:
            return self._rest
        waited = self._loop.time()
        data: bytes = await self._content.readany()
        if self._loop.time() - waited > _TURN:
            self._turn = self._loop.time()
        return data

    async def _plain(self) -> bytes:
        """More of what is kept already."""
        data = await self._more()
        piece, self._rest = (data, b"") if len(data) <= MAX_PIECE else (data[:MAX_PIECE], data[MAX_PIECE:])
        return piece

    async def _inflated(self) -> bytes:
        assert self._inflate is not None
        while data := await self._more():
            try:
                piece = self._inflate.decompress(data, MAX_PIECE)
            except zlib.error as error:
                raise ValueError(f"a body that is no gzip: {error}") from error
            self._rest = self._inflate.unconsumed_tail
            if self._inflate.eof:
                self._rest = self._inflate.unused_data
                self._inflate = zlib.decompressobj(_ZLIB_OR_GZIP)  # a gzip file may have several members
            if piece:
                return piece
        return b""


async def whole(response: Any, limit: int) -> bytes:
    """The whole body. Raises LimitExceeded if it is longer, ValueError if it is none."""
    body = Body(response, limit)
    pieces = []
    while piece := await body.read():
        pieces.append(piece)
    return b"".join(pieces)


async def beginning(response: Any, limit: int) -> bytes:
    """What a page of an error begins with; the rest is of no interest."""
    body = Body(response)
    pieces, size = [], 0
    while size < limit and (piece := await body.read()):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
SURROGATES = "the request held lone surrogates, which no encoding has: each was replaced by U+FFFD"


def dump(body: Any) -> tuple[bytes, bool]:
    """The body as JSON, and whether lone surrogates in it had to be replaced."""
    try:
        text = _encode(body)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"the request cannot be written as JSON: {error}") from error
    try:
        return text.encode("utf-8"), False
    except UnicodeEncodeError:
        mended = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # true pairs are joined
        return mended.encode("utf-8"), True
