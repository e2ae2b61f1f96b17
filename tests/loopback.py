"""A server on this machine that does exactly what a test says, byte by byte: also what no real library would."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

Step = bytes | float | str
"""Bytes are sent, a number is waited for, "reset" breaks the connection, "close" ends it, "hang" waits for ever."""


@dataclass
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Loopback:
    """Answers the nth request with the nth script, the last one again and again."""

    scripts: Sequence[Sequence[Step] | Callable[[Asked], Sequence[Step]]]
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    connections: int = 0
    dropped: asyncio.Event = field(default_factory=asyncio.Event)
    """A client went away before its script was over."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (asked := await _request(reader)) is not None:
                script = self.scripts[min(len(self.asked), len(self.scripts) - 1)]
                self.asked.append(asked)
                if not await self._play(script(asked) if callable(script) else script, reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.dropped.set()
        finally:
            writer.close()

    async def _play(self, script: Sequence[Step], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif isinstance(step, (int, float)):
                await asyncio.sleep(step)
            elif step == "reset":
                writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
                return False
            elif step == "hang":
                if not await reader.read(1):  # the client closed the connection
                    self.dropped.set()
                return False
            else:
                return False
        return True


async def _request(reader: asyncio.StreamReader) -> Asked | None:
    line = await reader.readline()
    if not line:
        return None
    method, path, _ = line.decode().split(" ", 2)
    headers: dict[str, str] = {}
    while (line := (await reader.readline()).decode().strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Asked(method, path, headers, body)


@asynccontextmanager
async def loopback(*scripts: Any) -> AsyncIterator[Loopback]:
    """The server while the block runs."""
    state = Loopback(scripts)
    server = await asyncio.start_server(state.serve, "127.0.0.1", 0)
    state.port = server.sockets[0].getsockname()[1]
    try:
        yield state
    finally:
        server.close()
        await server.wait_closed()


# --- answers ------------------------------------------------------------------------------------------------------


def head(status: str = "200 OK", *, kind: str = "text/event-stream", **headers: str) -> bytes:
    """A response head; the body is chunked unless a length is given."""
    lines = {"Content-Type": kind, **{name.replace("_", "-"): value for name, value in headers.items()}}
    if "Content-Length" not in lines and "Connection" not in lines:
        lines["Transfer-Encoding"] = "chunked"
    return f"HTTP/1.1 {status}\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in lines.items()).encode() + b"\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body; the empty one ends it."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def stream(*pieces: bytes, delay: float = 0.0) -> list[Step]:
    """A whole sound answer, piece by piece."""
    out: list[Step] = [head()]
    for piece in pieces:
        out += [chunk(piece), delay]
    return [*out, chunk(b"")]


def refusal(status: str, body: Any, *, kind: str = "application/json", **headers: str) -> list[Step]:
    """An answer that is an error."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return [head(status, kind=kind, Content_Length=str(len(data)), **headers), data]


def sse(*records: Any, done: bool = True) -> bytes:
    """Records of the chat completions API."""
    texts = [json.dumps(record) for record in records] + (["[DONE]"] if done else [])
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def say(text: str | None = None, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """One chunk of that API."""
    if text is not None:
        delta["content"] = text
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


HELLO = sse(say("Hel"), say("lo"), say(finish="stop"))
