"""Half characters over MCP, in both roles and both transports."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import mcp
from callgate.mcp._encoding import sound_json
from patience import until

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

CANNED = str(Path(__file__).parent / "mcp_servers" / "canned.py")
TOOLS = '''
from callgate import tool

@tool(effect="read", description="Half \\ud83d of a sign.")
def find(number: str) -> str:
    return "a \\ud83d b"

@tool(effect="read")
def fail(number: str) -> str:
    """Fails."""
    raise ValueError("half \\ud83d")

@tool(effect="read")
def count(number: str):
    """Counts."""
    yield "half \\ud83d"
    return {"half \\ud83d": "\\ud83d"}
'''

characters = st.characters() | st.integers(0xD800, 0xDFFF).map(chr) | st.sampled_from(list('\\ud"\n'))
texts = st.lists(characters, max_size=12).map("".join)


@given(texts, st.booleans())
@settings(deadline=None)
def test_only_half_characters_change(text: str, ascii_only: bool) -> None:
    data = json.dumps({"a": [text]}, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    found = json.loads(sound_json(data))["a"][0]
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if ascii_only:
        assert found == joined
    found.encode()
    if text.isascii() or not any("\ud800" <= c <= "\udfff" for c in text):
        assert sound_json(data) == data
        assert found == text


def call(server: mcp.Server, name: str, **arguments: Any) -> Any:
    return asyncio.run(server.tools[name].prepare(arguments)())


def test_a_server_that_sends_half_characters_is_read() -> None:
    halves = {"type": "object", "properties": {"a": {"description": "\ud83d"}}}
    tools = [
        {"name": "good", "description": "half \ud83d", "inputSchema": halves},
        {"name": "\udc00", "inputSchema": {}},
    ]
    result = {"content": [{"type": "text", "text": "a \ud83d b"}]}
    spec = json.dumps({"tools": tools, "results": {"good": result}})
    with mcp.connect([sys.executable, CANNED, spec]) as server:
        assert server.tools.names == ("good",)
        assert server.tools["good"].spec.description == "half \ufffd"
        assert call(server, "good") == "a \ufffd b"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def served(tmp_path: Path, transport: str) -> Iterator[mcp.Server]:
    (tmp_path / "halves.py").write_text(TOOLS, "utf-8")
    line = [sys.executable, "-m", "callgate", "mcp", "serve", str(tmp_path / "halves.py"), "--ledger", "memory"]
    if transport == "stdio":
        with mcp.connect(line, connect_timeout=20) as server:
            yield server
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*line, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), 15)
        with mcp.connect(f"http://127.0.0.1:{port}/mcp") as server:
            yield server
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("transport", ["stdio", "http"])
def test_our_own_server_sends_no_half_characters(tmp_path: Path, transport: str) -> None:
    with served(tmp_path, transport) as server:
        assert server.tools.names == ("find", "fail", "count")
        assert server.tools["find"].spec.description == "Half ? of a sign."
        assert call(server, "find", number="1") == "a ? b"
        with pytest.raises(mcp.ServerError, match="half"):
            call(server, "fail", number="1")
        assert call(server, "count", number="1") == {"half ?": "?"}
