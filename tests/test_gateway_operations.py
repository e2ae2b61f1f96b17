"""How the gateway is operated: TLS, what keys allow, slow clients, and its end while answers are being written."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from gateway_model import MODEL, Model, Script, calls, model, text
from gateway_process import Gateway, gateway
from loopback import chunk, head, say, sse

# Every test here starts a process, on a machine that may be busy.
pytestmark = pytest.mark.timeout(90)
PATIENCE = 15.0
BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_time", "delete_all")
]


@contextmanager
def server(home: Path, script: Script, *words: str) -> Iterator[tuple[Gateway, Model]]:
    with model(script) as found, gateway(home, *words, backend=found.url) as served:
        yield served, found


def ask(served: Gateway, key: str = "", **more: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.post(f"{served.url}/v1/chat/completions", json={**BODY, **more}, headers=headers, timeout=PATIENCE)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def started(served: Gateway, **more: Any) -> socket.socket:
    """A stream that has begun, as its raw connection."""
    raw = socket.create_connection(("127.0.0.1", served.port))
    body = json.dumps({**BODY, "stream": True, **more}).encode()
    lines = f"Host: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    raw.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n" + lines.encode() + body)
    raw.settimeout(PATIENCE)
    return raw


def read(raw: socket.socket, mark: bytes = b"") -> bytes:
    """What comes, until the mark, or until the end."""
    found = b""
    while not mark or mark not in found:
        more = raw.recv(65536)
        if not more:
            break
        found += more
    return found


# --- TLS --------------------------------------------------------------------------------------------------------------


def test_tls_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(tmp_path / "key.pem"), "-out", str(tmp_path / "cert.pem"), "-days", "2"]
    subprocess.run([*made, *files, *subject], check=True, capture_output=True, timeout=PATIENCE)
    words = ["--certificate", "cert.pem", "--certificate-key", "key.pem"]
    with server(tmp_path, lambda _: text("hello"), *words) as (served, _):
        assert served.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        with httpx.Client(verify=trusted, timeout=PATIENCE) as client:
            answer = client.post(f"{served.url}/v1/chat/completions", json=BODY)
            assert answer.json()["choices"][0]["message"]["content"] == "hello"
            # A page that it served itself is of the same origin, https and all.
            own = {"origin": served.url}
            assert client.get(f"{served.url}/healthz", headers=own).status_code == 200
        with pytest.raises((httpx.HTTPError, OSError)):  # who speaks in the clear is not understood
            httpx.get(f"http://127.0.0.1:{served.url.rsplit(':', 1)[1]}/healthz")
        assert served.stop() == 0
    assert "Traceback" not in served.stderr


# --- what a key allows ------------------------------------------------------------------------------------------------

KEYS = f"""
[[keys]]
name = "small"
key = "cg-small-0001"
models = ["other*"]

[[keys]]
name = "frugal"
key = "cg-frugal-001"
tokens = "10/day"

[[keys]]
name = "careful"
key = "cg-careful-01"
tools = ["get_*"]

[[keys]]
name = "single"
key = "cg-single-001"
streams = 1

[[keys]]
name = "strict"
key = "cg-strict-001"
[keys.policy.approval]
tools = ["delete_*"]
# {MODEL}
"""


def test_a_key_allows_models_tokens_tools_and_streams(tmp_path: Path) -> None:
    (tmp_path / "keys.toml").write_text(KEYS)
    used = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}

    def script(messages: list[dict[str, Any]]) -> Any:
        match messages[-1]["content"]:
            case "hang":
                return [head(), chunk(sse(say("half"), done=False)), "hang"]
            case "call":
                return calls(("get_time", {}), ("delete_all", {}))
            case _:
                last = {"object": "chat.completion.chunk", "choices": [], "usage": used}
                return [head(), chunk(sse(say("hello"), say(finish="stop"), last)), chunk(b"")]

    with server(tmp_path, script, "--keys", "keys.toml") as (served, _):
        small = ask(served, "cg-small-0001")
        assert small.status_code == 403
        listed = httpx.get(f"{served.url}/v1/models", headers={"x-api-key": "cg-small-0001"}).json()
        assert listed["data"] == []

        assert ask(served, "cg-frugal-001").status_code == 200
        refused = ask(served, "cg-frugal-001")
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) > 60

        for key in ("cg-careful-01", "cg-strict-001"):  # who has nobody to ask is not let through
            answer = ask(served, key, tools=TOOLS, messages=[{"role": "user", "content": "call"}]).json()
            names = [call["function"]["name"] for call in answer["choices"][0]["message"]["tool_calls"]]
            assert names == ["get_time"]

        headers = {"authorization": "Bearer cg-single-001"}
        asked = {**BODY, "stream": True, "messages": [{"role": "user", "content": "hang"}]}
        with httpx.stream("POST", f"{served.url}/v1/chat/completions", json=asked, headers=headers) as first:
            pieces = first.iter_bytes()  # held: its end would close the connection
            assert next(pieces)
            assert ask(served, "cg-single-001").status_code == 429
        until(lambda: ask(served, "cg-single-001").status_code == 200)


# --- slow clients -----------------------------------------------------------------------------------------------------


def test_a_client_that_takes_nothing_holds_the_backend_back_and_is_cut_off(tmp_path: Path) -> None:
    sent = threading.Event()
    piece = chunk(sse(say("x" * 60_000), done=False))

    first = iter([True])

    def script(_: Any) -> Any:
        if next(first, False):
            return [head(), chunk(sse(say("hello"), say(finish="stop"))), chunk(b"")]
        return Endless(sent, piece)

    with server(tmp_path, script, "--slow-client", "1.5", "--access-log", "access.log") as (served, found):
        httpx.post(f"{served.url}/v1/chat/completions", json=BODY).raise_for_status()  # what is loaded once is loaded
        before = memory(served)
        raw = started(served)
        assert read(raw, b"data: ")
        until(found.dropped.is_set)  # the backend is told
        assert not sent.is_set()  # and was never asked for all of it
        assert memory(served) - before < 20_000_000
        raw.settimeout(PATIENCE)
        rest = b""
        with suppress(ConnectionError):
            rest = read(raw)
        assert b"[DONE]" not in rest  # a cut does not look complete
        raw.close()
        until(lambda: (tmp_path / "access.log").read_text().count("\n") == 2)
        line = json.loads((tmp_path / "access.log").read_text().split("\n")[1])
        assert line["left"] is True


class Endless(list[Any]):
    """The steps of an answer of 120 MB."""

    def __init__(self, sent: threading.Event, piece: bytes) -> None:
        super().__init__()
        self._sent, self._piece = sent, piece

    def __iter__(self) -> Iterator[Any]:
        yield head()
        for _ in range(2000):
            yield self._piece
        self._sent.set()


def memory(served: Gateway) -> int:
    """Bytes that the process holds."""
    pages = Path(f"/proc/{served.process.pid}/statm").read_text().split()[1]
    return int(pages) * 4096


# --- its end ----------------------------------------------------------------------------------------------------------


def test_a_stream_that_runs_has_its_grace(tmp_path: Path) -> None:
    go = tmp_path / "go"

    def script(_: Any) -> Any:
        return Waiting(go)

    with server(tmp_path, script, "--grace", "30") as (served, _):
        raw = started(served)
        read(raw, b"one")
        served.process.send_signal(signal.SIGTERM)
        until(lambda: not accepts(served.port))  # no new requests
        assert served.process.poll() is None
        go.touch()
        rest = read(raw)
        assert b"two" in rest
        assert b"[DONE]" in rest
        raw.close()
        assert served.process.wait(PATIENCE) == 0
    assert "Traceback" not in served.stderr


class Waiting(list[Any]):
    """An answer whose second half comes when a file is there."""

    def __init__(self, go: Path) -> None:
        super().__init__()
        self._go = go

    def __iter__(self) -> Iterator[Any]:
        yield head()
        yield chunk(sse(say("one"), done=False))
        while not self._go.exists():
            yield 0.02
        yield chunk(sse(say("two"), say(finish="stop")))
        yield chunk(b"")


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def hanging(_: Any) -> Any:
    return [head(), chunk(sse(say("half"), done=False)), "hang"]


@pytest.mark.parametrize("hurry", [False, True])
def test_what_still_runs_after_the_grace_ends_with_an_error(tmp_path: Path, hurry: bool) -> None:
    """Or at once, with a second signal."""
    with server(tmp_path, hanging, "--grace", "60" if hurry else "0.3") as (served, _):
        raw = started(served)
        whole = ask_in_thread(served)
        read(raw, b"half")
        served.process.send_signal(signal.SIGTERM)
        if hurry:
            until(lambda: not accepts(served.port))
            served.process.send_signal(signal.SIGTERM)
        rest = read(raw)
        assert b"shutting down" in rest
        assert b"[DONE]" not in rest
        raw.close()
        answer = whole()
        assert answer.status_code == 503
        assert "shutting down" in answer.json()["error"]["message"]
        assert served.process.wait(PATIENCE) == 0
    assert "Traceback" not in served.stderr


def ask_in_thread(served: Gateway) -> Callable[[], httpx.Response]:
    """An answer in one piece that is waited for; it has reached the server when this returns."""
    found: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: found.append(ask(served)))
    thread.start()
    until(lambda: "callgate_requests_running 2" in running(served) or "callgate_requests_running 3" in running(served))

    def result() -> httpx.Response:
        thread.join(PATIENCE)
        return found[0]

    return result


def running(served: Gateway) -> str:
    return httpx.get(f"{served.url}/metrics").text


def test_a_killed_server_leaves_a_stream_that_does_not_look_complete(tmp_path: Path) -> None:
    with server(tmp_path, hanging) as (served, found):
        raw = started(served)
        read(raw, b"half")
        served.stop(signal.SIGKILL)
        rest = b""
        with suppress(ConnectionError):
            rest = read(raw)
        raw.close()
        assert b"[DONE]" not in rest
        assert not rest.endswith(b"0\r\n\r\n")  # nor does its HTTP
        until(found.dropped.is_set)
