"""MCP servers as toolboxes: a real one, killed and restarted, and hostile ones."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, NoEffect, Replay, UpstreamError, mcp, mend
from callgate.errors import ConfigError, Unreachable
from callgate.mcp import ServerError
from callgate.tools import ToolContext
from patience import busy, until

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

SERVERS = Path(__file__).parent / "mcp_servers"
ORDERS = [sys.executable, str(SERVERS / "orders.py")]


def hostile(how: str, **options: Any) -> mcp.Server:
    return mcp.connect([sys.executable, str(SERVERS / "hostile.py"), how], **options)


def call(server: mcp.Server, name: str, context: ToolContext | None = None, /, **arguments: Any) -> Any:
    return asyncio.run(server.tools[name].prepare(arguments, context)())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture(scope="module")
def orders() -> Iterator[mcp.Server]:
    with mcp.connect(ORDERS, prefix="o_", effects={"slow": "write"}, trust="hints") as server:
        yield server


def test_a_servers_tools_are_a_toolbox_with_its_effects(orders: mcp.Server) -> None:
    assert orders.tools.names == ("o_find", "o_cancel", "o_slow", "o_label")
    assert [spec.effect for spec in orders.tools.specs] == ["read", "write", "write", "read"]
    assert [spec.repeatable for spec in orders.tools.specs] == [False, True, False, False]
    assert orders.tools["o_find"].spec.description == "Finds one order."
    assert orders.name.startswith("orders (")
    assert mend({"number": 7}, orders.tools["o_find"].compiled).errors[0][0] == "/number"
    assert mend({"number": "7", "x": 1}, orders.tools["o_find"].compiled).errors[0][0] == "/x"


def test_calls_return_structured_values_texts_and_errors(orders: mcp.Server) -> None:
    assert call(orders, "o_find", number="7")["number"] == "7"
    assert call(orders, "o_cancel", number="7") == "cancelled"
    with pytest.raises(ServerError, match="cancel"):
        call(orders, "o_cancel", number="bad")


def test_images_of_a_server_reach_the_model(orders: mcp.Server) -> None:
    model = Replay([{"calls": [{"name": "o_label", "arguments": {"number": "7"}}]}, "Here it is."])
    result = Agent(model, tools=[orders.tools]).run_sync("The label of 7").calls[0].result
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert "label 7" in result.content
    assert "[image/png]" in result.content
    assert "iVBOR" not in result.content
    assert result.parts == (image,)
    assert image in tuple(model.requests[-1].messages[-1].content)


def test_progress_is_reported(orders: mcp.Server) -> None:
    heard: list[Any] = []
    assert call(orders, "o_slow", ToolContext(report=heard.append), seconds=0.01) == "slept"
    assert heard == ["half"]


def test_a_cancelled_call_ends_at_once_and_the_connection_lives(orders: mcp.Server) -> None:
    async def cancelled() -> None:
        work = orders.tools["o_slow"].prepare({"seconds": 30})
        await asyncio.wait_for(work(), 0.2)

    start = time.monotonic()
    with pytest.raises(TimeoutError):
        asyncio.run(cancelled())
    assert time.monotonic() - start < 5 * busy()
    assert call(orders, "o_cancel", number="1") == "cancelled"


def test_calls_overlap(orders: mcp.Server) -> None:
    async def several() -> Any:
        return await asyncio.gather(*(orders.tools["o_slow"].prepare({"seconds": 0.5})() for _ in range(5)))

    start = time.monotonic()
    assert asyncio.run(several()) == ["slept"] * 5
    assert time.monotonic() - start < 2.4 * busy()


def test_a_killed_server_is_started_again_by_the_next_call(orders: mcp.Server) -> None:
    pid = call(orders, "o_find", number="7")["pid"]
    os.kill(pid, signal.SIGKILL)
    until(lambda: gone(pid))
    time.sleep(0.3)
    assert call(orders, "o_find", number="8")["pid"] != pid


def test_a_call_that_kills_the_server_is_never_sent_again(orders: mcp.Server) -> None:
    with pytest.raises(UpstreamError):
        call(orders, "o_cancel", number="die")
    assert call(orders, "o_cancel", number="7") == "cancelled"


def test_closing_ends_the_process_and_every_later_call() -> None:
    with hostile("renamed") as server:
        work = server.tools["good"].prepare({})
    with pytest.raises(NoEffect):
        asyncio.run(work())


@pytest.mark.anyio
async def test_it_works_inside_a_loop_too() -> None:
    async with hostile("result") as server:
        assert await server.tools["good"].prepare({"a": "x"})() == {
            "content": "x",
            "structuredContent": {"a": ["b"]},
        }


def test_over_http_a_restarted_server_is_found_again() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start() -> subprocess.Popen[bytes]:
        process = subprocess.Popen([*ORDERS, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(lambda: listens(port), 15)
        return process

    process = start()
    try:
        with mcp.connect(f"http://127.0.0.1:{port}/mcp") as server:
            first = call(server, "find", number="1")
            assert first["number"] == "1"
            process.kill()
            process.wait()
            with pytest.raises((UpstreamError, NoEffect)):
                call(server, "find", number="2")
            process = start()
            assert call(server, "find", number="3")["pid"] != first["pid"]
    finally:
        process.kill()
        process.wait()


# --- hostile ------------------------------------------------------------------------------------------------------


def test_references_are_never_followed() -> None:
    with hostile("references") as server:
        assert server.tools.names == ("good", "remote", "file", "loop", "recursive")
        told = "\n".join(server.problems)
        assert "'remote'" in told
        assert "leaves the document" in told
        assert "'loop'" in told
        assert mend({"a": {"a": {}}}, server.tools["recursive"].compiled).ok
        assert mend({"a": 1}, server.tools["remote"].compiled).ok


def test_bad_schemas_and_names_are_left_out_and_cost_the_others_nothing() -> None:
    with hostile("schemas") as server:
        assert server.tools.names == ("good", "bomb")
        told = "\n".join(server.problems)
        for word in (
            "MAX_SCHEMA",
            "'deep'",
            "'broken'",
            "'two words'",
            "'twice': left out; the server lists it 2 times",
        ):
            assert word in told
        start = time.monotonic()
        assert mend({"a": "a" * 5000 + "!"}, server.tools["bomb"].compiled).outcome == "invalid"
        assert time.monotonic() - start < 2 * busy()


def test_long_descriptions_are_cut_and_too_many_tools_left_out() -> None:
    with hostile("talkative") as server:
        assert len(server.tools["talkative"].spec.description) == mcp.MAX_DESCRIPTION
        assert "MAX_DESCRIPTION" in server.problems[0]
    with hostile("many") as server:
        assert len(server.tools) == mcp.MAX_TOOLS
    with hostile("endless") as server:
        assert len(server.tools) == mcp.MAX_PAGES


@pytest.mark.parametrize("how", ["renamed", "changed"])
def test_a_tool_runs_only_under_the_definition_that_was_shown(how: str) -> None:
    with hostile(how) as server:
        shown = server.tools["good"]
        assert asyncio.run(shown.prepare({})()) == "called good"
        until(lambda: server.tools.get("good") is not shown)
        with pytest.raises(NoEffect, match=r"changed the definition|does not offer"):
            asyncio.run(shown.prepare({})())
        (now,) = server.tools
        assert asyncio.run(now.prepare({})()) == f"called {now.name}"


@pytest.mark.parametrize(
    ("how", "words"),
    [("flood", "MAX_MESSAGE"), ("silent", "no answer within 3 s"), ("dead", "cannot find my configuration")],
)
def test_a_server_that_cannot_be_used_is_an_error_in_time(how: str, words: str) -> None:
    start = time.monotonic()
    with pytest.raises(Unreachable, match=words):
        hostile(how, connect_timeout=3 if how == "silent" else 15).open()
    assert time.monotonic() - start < 15 * busy()


@pytest.mark.parametrize("server", ["", [], {}, {"args": ["x"]}])
def test_what_names_no_server_is_an_error_of_the_caller(server: Any) -> None:
    with pytest.raises(ConfigError):
        mcp.connect(server)


def test_a_missing_program_is_an_error_that_names_it() -> None:
    with pytest.raises(Unreachable, match="no-such-program"):
        mcp.connect("no-such-program --secret x").open()
