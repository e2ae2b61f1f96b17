"""Clients that mean no good, over real sockets: the gateway answers or hangs up, and goes on for everybody else."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from gateway_process import Gateway, gateway, talk
from patience import busy

POST = b"POST /healthz HTTP/1.1\r\nHost: localhost\r\n"
QUICK = ("--header-timeout", "0.7", "--body-timeout", "0.7", "--max-body", "100k")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway(tmp_path_factory.mktemp("gateway"), *QUICK) as found:
        yield found
        assert httpx.get(f"{found.url}/healthz").status_code == 200
    assert "Traceback" not in found.stderr


def memory(served: Gateway) -> int:
    """Bytes of the process in memory."""
    for line in Path(f"/proc/{served.process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


@pytest.mark.parametrize(
    "raw",
    [
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nG",
        POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n12345",
        POST + b"Content-Length: 5, 6\r\n\r\n12345",
        POST + b"Content-Length: +5\r\n\r\n12345",
        POST + b"Content-Length: 5\x0b\r\n\r\n12345",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nX: y\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n folded: x\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: a\rY: b\r\n\r\n",
        b"GET /healthz HTTP/9.9\r\nHost: localhost\r\n\r\n",
        b"GET /h\xc3\xa4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"CONNECT other:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\0" * 100,
    ],
)
def test_what_two_readers_could_read_differently_is_refused(served: Gateway, raw: bytes) -> None:
    answer = talk(served.port, raw, patience=2.0, until=b"\r\n\r\n")
    if answer:  # or it hung up at once
        status = int(answer.split(b" ", 2)[1])
        assert 400 <= status < 500, answer
    assert answer.count(b"HTTP/1.1") <= 1  # what was smuggled is no request of its own


def test_a_head_without_an_end_is_refused(served: Gateway) -> None:
    line = b"X-Filler: " + b"x" * 1000 + b"\r\n"
    answer = talk(served.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", *([line] * 200))
    assert answer.startswith(b"HTTP/1.1 431 ") or answer == b""
    whole = talk(served.port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + line * 100 + b"\r\n")
    assert whole.startswith(b"HTTP/1.1 431 ") or whole == b""
    url = talk(served.port, b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert url.startswith(b"HTTP/1.1 431 ") or url == b""


def test_who_is_silent_in_a_head_or_a_body_is_hung_up_on(served: Gateway) -> None:
    began = time.monotonic()
    assert talk(served.port) == b""
    assert talk(served.port, b"GET /healthz HT") == b""
    answer = talk(served.port, b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n123")
    assert time.monotonic() - began < 6
    assert answer.startswith((b"HTTP/1.1 408 ", b"HTTP/1.1 404 ", b"HTTP/1.1 400 ")) or answer == b""


def test_an_empty_line_behind_a_body_is_no_head(served: Gateway) -> None:
    """RFC 9112, 2.2."""
    with socket.create_connection(("127.0.0.1", served.port)) as raw:
        for _ in range(3):
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n\r\n")
            raw.settimeout(5)
            seen = b""
            while b"version" not in seen:
                seen += raw.recv(65536)
            assert seen.startswith(b"HTTP/1.1 200")


def test_a_body_without_an_end_is_refused_and_costs_no_memory(served: Gateway) -> None:
    before = memory(served)
    head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
    piece = b"x" * 65536
    chunk = b"10000\r\n" + piece + b"\r\n"
    pieces = [(head + b"Transfer-Encoding: chunked\r\n\r\n", chunk), (head + b"Content-Length: 99999\r\n\r\n", b"{")]
    pieces.append((head + b"Content-Length: 999999999\r\n\r\n", piece))
    for first, more in pieces:
        answer = talk(served.port, first, *([more] * 1000), patience=3.0)
        # Where there is no such path it is 404; in any case the connection ended, and soon.
        assert answer[:12] in (b"", b"HTTP/1.1 413", b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.1 408")
    assert memory(served) - before < 30_000_000


def test_garbage_ends_its_own_connection_only(served: Gateway) -> None:
    rand = random.Random(18)
    with httpx.Client() as client:
        for _ in range(60):
            raw = rand.randbytes(rand.randrange(1, 2000))
            if rand.random() < 0.5:
                raw = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + raw
            with socket.create_connection(("127.0.0.1", served.port)) as hostile:
                hostile.sendall(raw)
                if rand.random() < 0.5:
                    hostile.shutdown(socket.SHUT_WR)
        assert client.get(f"{served.url}/healthz").status_code == 200


def test_a_client_that_half_closes_leaves_nothing_behind(served: Gateway) -> None:
    before = len(os.listdir(f"/proc/{served.process.pid}/fd"))
    for _ in range(50):
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            raw.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + 5
    while len(os.listdir(f"/proc/{served.process.pid}/fd")) > before + 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_pipelined_requests_are_answered_in_their_order(served: Gateway) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    two = b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    answer = talk(served.port, one + two + one + last)
    statuses = [part[9:12] for part in answer.split(b"HTTP/1.1")[1:] for part in [b"HTTP/1.1" + part]]
    assert statuses == [b"200", b"404", b"200", b"200"]


async def _knock(port: int, count: int) -> Counter[bytes]:
    """How so many connections begin to be answered, 500 of them at once."""
    gate = asyncio.Semaphore(500)
    seen: Counter[bytes] = Counter()

    async def one() -> None:
        async with gate:
            found = b""
            with contextlib.suppress(ConnectionError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                try:
                    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    async with asyncio.timeout(15 * busy()):  # none hangs
                        found = await reader.read(4096)
                finally:
                    writer.close()
            seen[found[:12]] += 1

    await asyncio.gather(*(one() for _ in range(count)))
    return seen


def test_10_000_connections_are_refused_cleanly(tmp_path: Path) -> None:
    """Each of them is answered 503 or closed; none hangs, and afterwards everything is as before."""
    with gateway(tmp_path, "--max-connections", "50", "--header-timeout", "90") as served:
        with contextlib.ExitStack() as held:
            for _ in range(60):
                held.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            time.sleep(0.2)

            seen = asyncio.run(_knock(served.port, 10_000))
            assert set(seen) <= {b"HTTP/1.1 503", b""}
            assert seen[b"HTTP/1.1 503"]
            assert sum(seen.values()) == 10_000
        deadline = time.monotonic() + 5
        while True:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{served.url}/healthz").status_code == 200:
                    break
            assert time.monotonic() < deadline
        assert served.stop() == 0
    assert "Traceback" not in served.stderr
