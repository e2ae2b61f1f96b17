"""Resources and prompts of an MCP server, as tools where the application asks for them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, mcp

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

SERVERS = Path(__file__).parent / "mcp_servers"
LIBRARY = [sys.executable, str(SERVERS / "library.py")]
OURS = ("list_resources", "read_resource", "list_prompts", "get_prompt")


def call(server: mcp.Server, name: str, /, **arguments: Any) -> Any:
    return asyncio.run(server.tools[name].prepare(arguments)())


@pytest.fixture(scope="module")
def library() -> Iterator[mcp.Server]:
    with mcp.connect(LIBRARY, prefix="lib_", resources=True, prompts=True, outgoing="read_*") as server:
        yield server


def test_resources_are_listed_and_read(library: mcp.Server) -> None:
    listed = call(library, "lib_list_resources")
    assert {"uri": "shelf://all", "name": "shelf", "description": "All books.", "mime_type": "application/json"} in (
        listed["resources"]
    )
    assert [template["uri_template"] for template in listed["templates"]] == ["book://{title}"]
    assert call(library, "lib_read_resource", uri="book://Emma") == "The text of Emma."
    assert call(library, "lib_read_resource", uri="shelf://all") == '["Emma"]'
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    assert call(library, "lib_read_resource", uri="cover://emma") == [image]
    with pytest.raises(Exception, match="nothing"):
        call(library, "lib_read_resource", uri="nothing://here")


def test_prompts_are_listed_and_filled_in(library: mcp.Server) -> None:
    (row,) = call(library, "lib_list_prompts")
    assert (row["name"], row["description"]) == ("review", "Asks for a review.")
    assert [argument["name"] for argument in row["arguments"]] == ["title", "words"]
    filled = call(library, "lib_get_prompt", name="review", arguments={"title": "Emma"})
    assert filled == [{"role": "user", "content": "Review Emma in 100 words."}]


def test_they_are_reads_whose_results_are_untrusted(library: mcp.Server) -> None:
    specs = {spec.name: spec for spec in library.tools.specs}
    for name in OURS:
        spec = specs[f"lib_{name}"]
        assert (spec.effect, spec.untrusted, spec.outgoing) == ("read", True, name == "read_resource")
    model = Replay([{"calls": [{"name": "lib_read_resource", "arguments": {"uri": "book://Emma"}}]}, "ok"])
    (done,) = Agent(model, tools=[library.tools]).run_sync("x").calls
    assert (done.result.status, done.result.content) == ("ok", "The text of Emma.")


def test_nobody_gets_them_unasked_and_a_server_without_them_is_named() -> None:
    with mcp.connect(LIBRARY) as server:
        assert not set(OURS) & set(server.tools.names)
    with mcp.connect([sys.executable, str(SERVERS / "hostile.py"), "result"], resources=True, prompts=True) as server:
        assert server.tools.names == ("good",)
        assert server.problems == ["the server has no resources", "the server has no prompts"]


def test_a_tool_of_the_server_keeps_its_name() -> None:
    with mcp.connect([*LIBRARY, "clash"], resources=True) as server:
        assert call(server, "read_resource", uri="x") == "mine: x"
        assert any("the server has a tool of this name" in problem for problem in server.problems)
