"""`callgate mcp serve`: a file's tools for any MCP client, behind the same gate and ledger."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from callgate import Agent, Replay, ledger, mcp
from callgate.apps.cli.mcp import command
from callgate.errors import Denied, NotFound, NotStarted
from callgate.tools import ToolContext
from patience import until

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

TOOLS = '''
from callgate import NotFound, ToolContext, tool

@tool(effect="read")
def find(number: str, days: int = 1) -> dict:
    """Finds one order."""
    print("this must not disturb the protocol")
    if number == "none":
        raise NotFound("no such order")
    return {"number": number, "days": days}

@tool(effect="read")
def count(to: int):
    """Counts, and says so."""
    for i in range(to):
        yield f"at {i}"
    return to

@tool(effect="write", permission="orders.cancel")
def cancel(number: str) -> str:
    """Cancels one order."""
    return f"cancelled {number}"

@tool(effect="write", permission="orders.delete")
def delete(number: str) -> str:
    """Deletes one order."""
    return "deleted"

@tool(effect="read")
def label(number: str):
    """Draws the label of one order."""
    return b"\\x89PNG\\r\\n\\x1a\\n"

@tool(effect="write", confirm=True)
def pay(number: str) -> str:
    """Pays one order."""
    return "paid"
'''


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    (folder / "orders.py").write_text(TOOLS, "utf-8")
    return folder


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[mcp.Server]:
    command_line = [sys.executable, "-m", "callgate", "mcp", "serve", str(place / "orders.py")]
    options = ["--ledger", f"sqlite:{place}/runs.db", "--principal", "u1", "--grant", "orders.cancel", "--name", "shop"]
    with mcp.connect([*command_line, *options], trust="hints") as server:
        yield server


def call(server: mcp.Server, name: str, context: ToolContext | None = None, /, **arguments: Any) -> Any:
    return asyncio.run(server.tools[name].prepare(arguments, context)())


def test_a_client_sees_the_tools_with_their_effects(served: mcp.Server) -> None:
    assert served.name.startswith("shop (")
    assert [(spec.name, spec.effect) for spec in served.tools.specs] == [
        ("find", "read"), ("count", "read"), ("cancel", "write"), ("delete", "write"), ("label", "read"),
        ("pay", "write"),
    ]  # fmt: skip
    assert served.tools["find"].spec.parameters["required"] == ["number"]


def test_a_call_is_mended_run_and_answered_with_its_value(served: mcp.Server) -> None:
    assert call(served, "find", number="7", days="2") == {"number": "7", "days": 2}
    heard: list[Any] = []
    assert call(served, "count", ToolContext(report=heard.append), to=2) == "2"
    assert heard == ["at 0", "at 1"]
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert image in call(served, "label", number="7")


REFUSED = [
    ("find", {}, "/number: missing", NotStarted),
    ("find", {"number": "7", "colour": "red"}, "/colour: unknown argument", NotStarted),
    ("find", {"number": "none"}, "no such order", NotFound),
    ("delete", {"number": "7"}, "orders.delete", Denied),
    ("pay", {"number": "7"}, "a person must approve it first", Denied),
]


@pytest.mark.parametrize(("name", "arguments", "words", "error"), REFUSED)
def test_the_gate_refuses_as_it_would_refuse_a_model(
    served: mcp.Server, name: str, arguments: dict[str, Any], words: str, error: type[Exception]
) -> None:
    with pytest.raises(error, match=words):
        call(served, name, **arguments)


def test_a_refusal_of_our_own_gate_is_one_for_an_agent_too(place: Path) -> None:
    line = [sys.executable, "-m", "callgate", "mcp", "serve", str(place / "orders.py"), "--ledger", "memory"]
    wanted = [("delete", "denied"), ("pay", "denied"), ("cancel", "ok")]
    with mcp.connect([*line, "--principal", "u", "--grant", "orders.cancel"]) as server:
        for name, status in wanted:
            model = Replay([{"calls": [{"name": name, "arguments": {"number": "7"}}]}, "ok"])
            (done,) = Agent(model, tools=[server.tools]).run_sync("x").calls
            assert (name, done.result.status) == (name, status)
            assert "unknown" not in done.result.content


def test_the_official_client_sees_a_refusal_and_its_status(place: Path) -> None:
    from mcp import Client, StdioServerParameters

    async def refused() -> Any:
        line = ["-m", "callgate", "mcp", "serve", str(place / "orders.py"), "--ledger", "memory"]
        async with Client(StdioServerParameters(command=sys.executable, args=line)) as client:
            return await client.call_tool("pay", {"number": "7"})

    result = asyncio.run(refused())
    assert result.is_error
    assert result.meta["callgate/status"] == "denied"
    assert "a person must approve it first" in result.content[0].text


def test_a_write_is_run_for_the_principal_and_is_in_the_ledger(served: mcp.Server, place: Path) -> None:
    assert call(served, "cancel", number="7") == "cancelled 7"

    async def kinds() -> list[Any]:
        store = ledger.open(f"sqlite:{place}/runs.db")
        try:
            rows = [entry for run in await store.runs() for entry in await store.read(run.run_id)]
            return [(entry.kind, entry.data) for entry in rows]
        finally:
            await store.aclose()

    rows = asyncio.run(kinds())
    assert any(kind == "call_intent" and "cancel" in str(data) for kind, data in rows)
    assert any(kind == "run_started" and data.get("principal") == "u1" for kind, data in rows)


def test_over_http_it_serves_several_clients(place: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "callgate", "mcp", "serve", str(place / "orders.py"), "--ledger", "memory"]
    process = subprocess.Popen([*line, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: listens(port), 15)
        with mcp.connect(f"http://127.0.0.1:{port}/mcp") as one, mcp.connect(f"http://127.0.0.1:{port}/mcp") as other:
            assert call(one, "find", number="1")["number"] == "1"
            assert call(other, "find", number="2")["number"] == "2"
    finally:
        process.kill()
        process.wait()


def test_a_port_in_use_is_one_clear_line(place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        line = [sys.executable, "-m", "callgate", "mcp", "serve", str(place / "orders.py"), "--ledger", "memory"]
        port = other.getsockname()[1]
        done = subprocess.run([*line, "--port", str(port)], capture_output=True, text=True, timeout=15, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"callgate: port {port}: Address already in use; choose another with --port\n"


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_list_shows_what_a_server_offers(place: Path) -> None:
    line = f"{sys.executable} -m callgate mcp serve {place / 'orders.py'} --ledger memory"
    result = CliRunner().invoke(command, ["list", line], catch_exceptions=False)
    assert result.exit_code == 0
    assert "read   find  Finds one order." in result.output
