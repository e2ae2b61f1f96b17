"""An MCP server declares nothing: its hints, its errors and the size of its answers loosen no rule (G4)."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, UpstreamError, mcp
from callgate.errors import ConfigError
from callgate.types import ToolSpec

mcp_types = pytest.importorskip("mcp_types", reason="the extra `mcp` is not installed")

from callgate.mcp._definitions import Rules, tools_of  # noqa: E402 - needs the extra
from patience import busy  # noqa: E402

HOSTILE = [sys.executable, str(Path(__file__).parent / "mcp_servers" / "hostile.py")]
HINTS = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")


def spec_of(annotations: Any, rules: Rules, name: str = "find") -> ToolSpec:
    made = mcp_types.Tool(name=name, input_schema={"type": "object"}, annotations=annotations)
    tools, problems = tools_of([made], rules, lambda *_: None)
    assert problems == []
    return tools[0].spec


def all_hints() -> Iterator[Any]:
    for values in itertools.product((None, True, False), repeat=len(HINTS)):
        yield mcp_types.ToolAnnotations(**dict(zip(HINTS, values, strict=True)))


def test_hints_of_an_untrusted_server_change_nothing() -> None:
    rng = random.Random(7)
    for hints in all_hints():
        effects = dict(
            rng.sample([("find", "read"), ("f*", "read"), ("*", "write"), ("other", "read")], rng.randrange(3))
        )
        rules = Rules(prefix=rng.choice(["", "x_"]), effects=effects)
        assert spec_of(hints, rules) == spec_of(None, rules)
        spec = spec_of(hints, Rules())
        assert (spec.effect, spec.repeatable, spec.confirm) == ("write", False, False)
        trusted = spec_of(hints, Rules(hints=True))
        assert trusted.effect == ("read" if hints.read_only_hint else "write")
        assert trusted.repeatable == bool(hints.idempotent_hint and not hints.read_only_hint)
        override = spec_of(hints, Rules(hints=True, effects={"find": "write"}))
        assert override.effect == "write"


@pytest.mark.parametrize(
    ("effects", "effect"),
    [
        ({"find": "read"}, "read"),
        ({"fi*": "read"}, "read"),
        ({"*": "read", "find": "write"}, "write"),
        ({"f*": "write", "*": "read"}, "write"),
        ({"Find": "read"}, "write"),
    ],
)
def test_the_application_says_which_tools_read(effects: Any, effect: str) -> None:
    assert spec_of(None, Rules(effects=effects)).effect == effect


@pytest.mark.parametrize("wrong", [{"trust": "everything"}, {"trust": True}, {"effects": {"a": "delete"}}])
def test_a_wrong_word_of_trust_is_an_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        mcp.connect("x", **wrong)


@pytest.mark.parametrize("how", ["refused", "unknown"])
def test_an_error_after_a_call_was_sent_is_no_proof_that_nothing_happened(how: str, tmp_path: Path) -> None:
    done = tmp_path / "done"
    settings = {"command": HOSTILE[0], "args": [HOSTILE[1], how], "env": {"DONE": str(done)}}
    call = {"calls": [{"name": "good", "arguments": {"a": "x"}}]}
    with mcp.connect(settings) as server:
        result = Agent(Replay([call, call, "ok"]), [server.tools]).run_sync("go")
    assert result.calls[0].result.status == "unknown_outcome"
    assert done.read_text() == "x"
    with mcp.connect(settings, effects={"*": "read"}) as server:
        result = Agent(Replay([call, "ok"]), [server.tools]).run_sync("go")
    assert result.calls[0].result.status == "upstream_error"
    assert "no such thing" in result.calls[0].result.content


def test_a_message_that_is_nested_too_deep_ends_the_call_at_once() -> None:
    with mcp.connect([*HOSTILE, "nested"]) as server:
        started = time.monotonic()
        with pytest.raises(UpstreamError, match="MAX_DEPTH"):
            asyncio.run(server.tools["good"].prepare({})())
        assert time.monotonic() - started < 10 * busy()


# --- over HTTP ----------------------------------------------------------------------------------------------------


def body_of(how: str, request: dict[str, Any]) -> dict[str, Any]:
    """The JSON-RPC answer to a request."""
    match request["method"]:
        case "initialize":
            info = {"name": "web", "version": "1"}
            version = request["params"]["protocolVersion"]
            result: Any = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            result = {"tools": [{"name": "get", "inputSchema": {"type": "object"}}]}
        case "tools/call":
            result = {"content": [{"type": "text", "text": "small" if how == "small" else "x" * 40_000_000}]}
        case _:
            return {"jsonrpc": "2.0", "id": request["id"], "error": {"code": -32601, "message": "no"}}
    return {"jsonrpc": "2.0", "id": request["id"], "result": result}


@contextmanager
def web(how: str) -> Iterator[tuple[str, list[int]]]:
    """A server over HTTP that answers in plain JSON; and how many bytes of its last answer it could send."""
    sent: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_error(405)

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if "id" not in request:
                self.send_response(202)
                self.send_header("content-length", "0")
                self.end_headers()
                return
            called = request["method"] == "tools/call"
            text = json.dumps(body_of(how, request))
            if how == "nested" and called:
                deep = '"structuredContent": {"a": ' + "[" * 5000 + "]" * 5000 + '}, "content": []'
                text = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": "R"}).replace(
                    '"R"', "{" + deep + "}"
                )
            body = text.encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            if how == "gzip" and called:
                body = gzip.compress(body)
                self.send_header("content-encoding", "gzip")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            sent.append(0)
            try:
                for at in range(0, len(body), 65536):
                    self.wfile.write(body[at : at + 65536])
                    sent[-1] += len(body[at : at + 65536])
            except OSError:  # the client has had enough
                self.close_connection = True

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/mcp", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_plain_json_body_has_a_limit() -> None:
    with web("large") as (url, sent), mcp.connect(url) as server:
        with pytest.raises(UpstreamError, match="MAX_MESSAGE"):
            asyncio.run(server.tools["get"].prepare({})())
        assert sent[-1] < 2 * mcp.MAX_MESSAGE + 10_000_000  # what the sockets hold beside


@pytest.mark.parametrize("how", ["gzip", "nested"])
def test_compressed_and_deep_answers_are_refused_in_time(how: str) -> None:
    with web(how) as (url, _), mcp.connect(url) as server:
        started = time.monotonic()
        with pytest.raises(UpstreamError):
            asyncio.run(server.tools["get"].prepare({})())
        assert time.monotonic() - started < 10 * busy()


def test_an_ordinary_json_body_is_read() -> None:
    with web("small") as (url, _), mcp.connect(url) as server:
        assert asyncio.run(server.tools["get"].prepare({})()) == "small"
        assert replace(server.tools["get"].spec).effect == "write"
