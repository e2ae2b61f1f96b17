"""What the gateway costs: CPU a streamed chunk and a request, beside proxies that do less, and LiteLLM's.

`python bench/gateway.py`: every proxy runs as a process of its own in front of the same scripted backend; what is
measured is the processor time of that process alone. `copy` is a bare Starlette application that copies bytes, `json`
one that reads and writes each record with json. LiteLLM's proxy is measured where it is installed (it wants other
versions of what callgate needs, so it has an environment of its own): `python -m venv .venv-litellm`, then
`.venv-litellm/bin/pip install 'litellm[proxy]'`; or `--litellm PATH`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
STREAMS = 50
CHUNKS = 200
PACE = 0.02
"""Seconds between two chunks of a paced stream: 50 tokens a second."""
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": "Current weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
    for name in ("get_weather", "get_forecast", "find_city")
]


def record(delta: dict[str, object], finish: str | None = None) -> bytes:
    """One record as vLLM writes it."""
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**head, 'choices': [choice]})}\n\n".encode()


# --- the backend ------------------------------------------------------------------------------------------------------

FIRST, MORE = record({"role": "assistant", "content": ""}), record({"content": " word"})
LAST = record({}, "stop") + b"data: [DONE]\n\n"
MESSAGE = {"role": "assistant", "content": "Hello."}
WHOLE = json.dumps(
    {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": MESSAGE, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7},
    }
).encode()
LISTED = json.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}).encode()


async def backend() -> None:
    """A server that answers at once: `max_tokens` chunks, with a pause between them where the seed asks for one."""
    server = await asyncio.start_server(_serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def _plain(data: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(data), data)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while head := await reader.readuntil(b"\r\n\r\n"):
            found = re.search(rb"(?i)content-length: *(\d+)", head)
            body = json.loads(await reader.readexactly(int(found[1]))) if found else {}
            if head.startswith(b"GET"):
                writer.write(_plain(LISTED))
            elif body.get("stream"):
                await _stream(writer, int(body.get("max_tokens", 1)), paced=body.get("seed") == 1)
            else:
                writer.write(_plain(WHOLE))
            await writer.drain()
    writer.close()


async def _stream(writer: asyncio.StreamWriter, chunks: int, *, paced: bool) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    writer.write(_chunk(FIRST))
    for _ in range(chunks):
        writer.write(_chunk(MORE))
        await writer.drain()
        await asyncio.sleep(PACE if paced else 0)
    writer.write(_chunk(LAST) + _chunk(b""))


# --- the proxies ------------------------------------------------------------------------------------------------------


def proxy(kind: str, target: str) -> None:
    """A bare Starlette application in front of the backend."""
    import aiohttp
    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response, StreamingResponse
    from starlette.routing import Route

    web: list[aiohttp.ClientSession] = []

    async def answer(request: Request) -> Response:
        if not web:
            web.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        body = await request.body()
        came = await web[0].post(target + request.url.path, data=body, headers={"Content-Type": "application/json"})
        media = came.headers["Content-Type"]
        if media.startswith("application/json"):
            return Response(await came.read(), media_type=media)
        pieces = came.content.iter_any()
        return StreamingResponse(pieces if kind == "copy" else _each(pieces), media_type=media)

    app = Starlette(routes=[Route("/v1/chat/completions", answer, methods=["POST"])])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", access_log=False))

    async def main() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(f"callgate http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", flush=True)
        await task

    import uvloop

    uvloop.run(main())


async def _each(pieces: object) -> object:
    """Each record, read and written with json."""
    rest = b""
    async for piece in pieces:  # type: ignore[attr-defined]
        *records, rest = (rest + piece).split(b"\n\n")
        out = []
        for one in records:
            data = one.removeprefix(b"data: ")
            out.append(one if data == b"[DONE]" else b"data: " + json.dumps(json.loads(data)).encode())
        if out:
            yield b"\n\n".join(out) + b"\n\n"


@contextlib.contextmanager
def running(command: list[str], *, says: str = "callgate ") -> Iterator[tuple[str, int]]:
    """(the first line's address, the process id) of a process while the block runs."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield line.removeprefix(says).strip(), process.pid
    finally:
        process.terminate()
        process.wait(10)


@contextlib.contextmanager
def litellm(program: Path, target: str) -> Iterator[tuple[str, int]]:
    """LiteLLM's proxy in front of the backend."""
    port = 41_873
    parameters = {"model": "openai/m", "api_base": f"{target}/v1", "api_key": "none"}
    config = {"model_list": [{"model_name": "m", "litellm_params": parameters}]}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(json.dumps(config), "utf-8")
        # It listens on this machine for the time of the measurement, so it needs no key of its own.
        keyless = {"LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true"}
        environment = {**os.environ, **keyless, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
        process = subprocess.Popen(
            [str(program), "--config", str(path), "--port", str(port), "--host", "127.0.0.1", "--telemetry", "False"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
        try:
            _wait(port)
            yield f"http://127.0.0.1:{port}", process.pid
        finally:
            process.terminate()
            process.wait(10)


def _wait(port: int) -> None:
    import socket

    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.2)
    sys.exit("bench: LiteLLM's proxy does not come up")


# --- the load ---------------------------------------------------------------------------------------------------------


def cpu(pid: int) -> float:
    """Seconds of processor time that the threads of a process have used, to the nanosecond (proc(5), schedstat)."""
    spent = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # a thread that has ended meanwhile
            spent += int((task / "schedstat").read_text("utf-8").split()[0])
    return spent / 1e9


def memory(pid: int) -> float:
    """Megabytes that it holds."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text("utf-8"))
    return int(found[1]) / 1024 if found else 0.0


class Load:
    """Asks a proxy, with as little work of its own as can be."""

    def __init__(self, url: str) -> None:
        self._host, _, port = url.removeprefix("http://").partition(":")
        self._port = int(port)

    async def ask(self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter], **more: object) -> float:
        """One request; seconds until the first chunk with text, or until the answer."""
        reader, writer = connection
        messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
        body = json.dumps({"model": "m", "messages": messages, "tools": TOOLS, **more}).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nAuthorization: Bearer x\r\n"
        began = time.perf_counter()
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        got = await reader.readuntil(b"\r\n\r\n")
        if not got.startswith(b"HTTP/1.1 200"):
            sys.exit(f"bench: {got[:200]!r} {await reader.read(500)!r}")
        length = re.search(rb"(?i)content-length: *(\d+)", got)
        if length:
            await reader.readexactly(int(length[1]))
            return time.perf_counter() - began
        first, seen = 0.0, b""
        while True:
            size = int(await reader.readline(), 16)
            piece = await reader.readexactly(size + 2)
            if not first and b" word" in piece:
                first = time.perf_counter() - began
            if size == 0:
                if b"[DONE]" not in seen:
                    sys.exit("bench: a stream was not whole")
                return first
            seen = seen[-20:] + piece

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection to the proxy."""
        return await asyncio.open_connection(self._host, self._port, limit=1 << 20)

    async def requests(self, count: int) -> None:
        """Unstreamed answers, one after the other."""
        connection = await self.connect()
        for _ in range(count):
            await self.ask(connection)
        connection[1].close()

    async def streams(self, count: int, chunks: int, *, paced: bool = False) -> None:
        """Streams side by side."""
        connections = [await self.connect() for _ in range(count)]
        more: dict[str, object] = {"stream": True, "max_tokens": chunks, **({"seed": 1} if paced else {})}
        await asyncio.gather(*(self.ask(connection, **more) for connection in connections))
        for _, writer in connections:
            writer.close()

    async def first(self, count: int) -> list[float]:
        """Seconds to the first chunk, one stream after the other."""
        connection = await self.connect()
        seconds = [await self.ask(connection, stream=True, max_tokens=3) for _ in range(count)]
        connection[1].close()
        return seconds


@dataclass
class Row:
    """What was measured of one proxy; each list has one value a round."""

    request: list[float] = field(default_factory=list)
    """Milliseconds of processor time."""
    burst: list[float] = field(default_factory=list)
    """Microseconds a chunk."""
    paced: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    """Milliseconds until the first chunk."""
    memory: list[float] = field(default_factory=list)
    stream: list[float] = field(default_factory=list)
    """Kilobytes that one stream more holds."""


def spent(pid: int, work: Callable[[], object]) -> float:
    """Processor time of a process during some work."""
    before = cpu(pid)
    work()
    return cpu(pid) - before


def measure(url: str, pid: int, row: Row, *, slow: bool) -> None:
    """One round."""
    load = Load(url)
    count, chunks = (20, 100) if slow else (300, CHUNKS)
    asyncio.run(load.requests(5))
    request = spent(pid, lambda: asyncio.run(load.requests(count))) / count
    row.request.append(request * 1e3)
    streams = 10 if slow else STREAMS
    begun = spent(pid, lambda: asyncio.run(load.streams(streams, 1)))
    whole = spent(pid, lambda: asyncio.run(load.streams(streams, chunks)))
    row.burst.append(max(0.0, whole - begun) / (streams * (chunks - 1)) * 1e6)
    whole = spent(pid, lambda: asyncio.run(load.streams(streams, chunks, paced=True)))
    row.paced.append(max(0.0, whole - begun) / (streams * (chunks - 1)) * 1e6)
    row.first.append(statistics.median(asyncio.run(load.first(10 if slow else 60))) * 1e3)
    row.memory.append(memory(pid))
    row.stream.append(_held(load, pid, 10 if slow else 200))


def _held(load: Load, pid: int, streams: int) -> float:
    """Kilobytes a stream that is open."""

    async def look() -> float:
        before = memory(pid)
        task = asyncio.create_task(load.streams(streams, 75, paced=True))
        await asyncio.sleep(1.0)
        held = memory(pid) - before
        await task
        return held * 1024 / streams

    return asyncio.run(look())


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--litellm", type=Path, default=HERE.parent / ".venv-litellm/bin/litellm")
    parser.add_argument("--as", dest="part", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.part:
        if given.part[0] == "backend":
            asyncio.run(backend())
        proxy(given.part[0], given.part[1])
        return
    me = [sys.executable, str(Path(__file__).resolve())]
    with running([*me, "--as", "backend"], says="") as (port, _), contextlib.ExitStack() as stack:
        target = f"http://127.0.0.1:{port}"
        serve = [sys.executable, "-m", "callgate", "serve", "--port", "0", f"{target}/v1"]
        found = {
            "copy": stack.enter_context(running([*me, "--as", "copy", target])),
            "json": stack.enter_context(running([*me, "--as", "json", target])),
            "callgate": stack.enter_context(running(serve)),
        }
        if given.litellm.exists():
            found["litellm"] = stack.enter_context(litellm(given.litellm, target))
        rows = {name: Row() for name in found}
        for _ in range(given.rounds):
            for name, (url, pid) in found.items():
                measure(url, pid, rows[name], slow=name == "litellm")
    show(rows)


def show(rows: dict[str, Row]) -> None:
    """Medians of the rounds."""
    print(
        "CPU of the proxy, tools declared    request   chunk, burst   chunk, paced   streams a core   first chunk"
        "    memory   a stream"
    )
    for name, row in rows.items():
        mean = statistics.median
        streams = int(1e6 * PACE / mean(row.paced)) if mean(row.paced) else 0  # of 50 chunks a second
        print(
            f"{name:34}{mean(row.request):8.2f} ms{mean(row.burst):12.1f} µs{mean(row.paced):12.1f} µs{streams:15}"
            f"{mean(row.first):11.2f} ms{mean(row.memory):8.0f} MB{mean(row.stream):8.0f} kB"
        )
    if "litellm" not in rows:
        print("LiteLLM's proxy is not here: python -m venv .venv-litellm, then pip install 'litellm[proxy]' in it")


if __name__ == "__main__":
    main()
