"""MCP servers as they are: odd definitions, results in two forms, progress, refusals. After public reports."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, mcp
from callgate.errors import ConfigError
from callgate.mcp._results import value_of
from callgate.tools import ToolContext
from patience import busy

mcp_types = pytest.importorskip("mcp_types", reason="the extra `mcp` is not installed")

CANNED = str(Path(__file__).parent / "mcp_servers" / "canned.py")
OBJECT = {"type": "object", "properties": {}}


def canned(tools: list[Any], results: dict[str, Any] | None = None, **more: Any) -> list[str]:
    return [sys.executable, CANNED, json.dumps({"tools": tools, "results": results or {}, **more})]


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": name, "inputSchema": OBJECT, **more}


def text(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}]}


def run(server: mcp.Server, *names: str, **limits: Any) -> list[tuple[str, str]]:
    calls = {"calls": [{"name": name, "arguments": {}} for name in names]}
    result = Agent(Replay([calls, "ok"]), tools=[server.tools], **limits).run_sync("x")
    return [(call.result.status, call.result.content) for call in result.calls]


# --- definitions --------------------------------------------------------------------------------------------------

ODD: list[Any] = [
    None,
    7,
    [],
    {},
    {"name": None, "inputSchema": OBJECT},
    {"name": 7, "inputSchema": OBJECT},
    {"name": "odd", "inputSchema": None},
    {"name": "odd", "inputSchema": "none"},
    {"name": "odd", "inputSchema": {"type": "string"}},
    {"name": "odd", "inputSchema": {"type": ["object", "null"], "properties": {"a": {}}}},
    {"name": "odd", "inputSchema": {"type": "object", "required": "a"}},
    {"name": "odd", "inputSchema": {"type": "object", "properties": []}},
    {"name": "odd", "inputSchema": {"type": "object", "properties": {"a": 3}}},
    {"name": "odd", "inputSchema": {"anyOf": [{"required": ["a"]}, {"required": ["b"]}]}},
    {"name": "odd", "inputSchema": {"$schema": 7}},
    {"name": "odd"},
    tool("odd", description=["a"]),
    tool("odd", annotations="read"),
    tool("odd", annotations={"readOnlyHint": "yes"}),
    tool("odd", outputSchema={"$id": "r.v1", "description": "x"}),
    tool("odd", outputSchema=[]),
    tool("odd", icons="none"),
    tool("odd", _meta=3),
    tool("odd", execution="now", title=7),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: json.dumps(odd)[:60])
def test_one_odd_definition_costs_only_itself(odd: Any) -> None:
    with mcp.connect(canned([tool("first"), odd, tool("last")], {"last": text("L"), "odd": text("O")})) as server:
        assert {"first", "last"} <= set(server.tools.names)
        assert run(server, "last")[0] == ("ok", "L")
        if "odd" in server.tools and "anyOf" not in server.tools["odd"].spec.parameters:
            assert run(server, "odd") == [("ok", "O")]
        elif "odd" not in server.tools:
            assert any("left out" in problem for problem in server.problems)


def test_what_nobody_uses_of_a_definition_does_not_make_it_useless() -> None:
    odd = [tool("typed", outputSchema={"$id": "r"}), tool("iconic", icons="x"), tool("described", description=["a"])]
    odd.append({"name": "either", "inputSchema": {"anyOf": [{"required": ["a"]}]}})
    with mcp.connect(canned(odd)) as server:
        assert server.tools.names == ("typed", "iconic", "described", "either")
        assert [problem.split(":")[0] for problem in server.problems] == ["'described'"]
        assert server.tools["either"].spec.parameters["anyOf"] == [{"required": ["a"]}]


def test_a_page_that_is_no_list_offers_nothing_and_says_so() -> None:
    with mcp.connect(canned([], **{"tools/list": {"tools": "none"}})) as server:
        assert server.tools.names == ()
        assert "holds no list" in server.problems[0]


def test_many_lists_with_odd_items_never_cost_the_good_ones() -> None:
    rng = random.Random(15)
    for _ in range(4):
        listed = [tool(f"t{number}") for number in range(5)]
        for odd in rng.choices(ODD, k=5):
            listed.insert(rng.randrange(len(listed) + 1), odd)
        with mcp.connect(canned(listed)) as server:
            assert {f"t{number}" for number in range(5)} <= set(server.tools.names)


# --- results ------------------------------------------------------------------------------------------------------


def result(structured: Any, *texts: str) -> Any:
    content = [mcp_types.TextContent(type="text", text=words) for words in texts]
    return mcp_types.CallToolResult(content=content, structured_content=structured)


@pytest.mark.parametrize(
    ("structured", "texts", "value"),
    [
        ({"a": 1}, ["Two found"], {"content": "Two found", "structuredContent": {"a": 1}}),
        ({"a": 1, "b": [True]}, ['{"b": [true],\n "a": 1}'], {"a": 1, "b": [True]}),
        ({"a": True}, ['{"a": 1}'], {"content": '{"a": 1}', "structuredContent": {"a": True}}),
        ({"result": "done"}, ["done"], "done"),
        ({"result": 3}, ["3"], 3),
        ({"result": 3}, ["three"], {"content": "three", "structuredContent": 3}),
        ({"result": ["x", {"a": 1}]}, ["x", '{"a":1}'], ["x", {"a": 1}]),
        ({"result": ["x", "y"]}, ["x", "z"], {"content": "x\nz", "structuredContent": ["x", "y"]}),
        ({"a": 1}, [], {"a": 1}),
        (None, ["x", "y"], "x\ny"),
        ({"a": 1}, ["[" * 100_000], {"content": "[" * 100_000, "structuredContent": {"a": 1}}),
    ],
)
def test_text_and_structured_content_both_reach_the_model_unless_one_is_the_other(
    structured: Any, texts: list[str], value: Any
) -> None:
    assert value_of(result(structured, *texts)) == value


def test_nothing_of_a_result_in_two_forms_is_lost_to_the_model() -> None:
    rng = random.Random(15)
    values: list[Any] = [{"n": 1}, {"result": [1, 2]}, {"result": "1"}, {"a": "1"}, {}, None]
    for _ in range(300):
        structured = rng.choice(values)
        texts = [json.dumps(rng.choice(values)) for _ in range(rng.randrange(3))]
        seen = json.dumps(value_of(result(structured, *texts)))
        for words in texts:
            parsed = json.loads(words)
            inner = parsed["result"] if isinstance(parsed, dict) and list(parsed) == ["result"] else parsed
            assert json.dumps(words)[1:-1] in seen or json.dumps(inner) in seen
        if structured is not None:
            assert json.dumps(structured.get("result", structured)) in seen


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ({"content": [{"type": "text", "text": "Two: alpha"}], "structuredContent": {"hits": 2}}, "alpha"),
        ({"structuredContent": {"hits": 2}}, '{"hits": 2}'),
        ({"structuredContent": [1, 2]}, "[1, 2]"),
        ({"content": "plain"}, "plain"),
        ({"content": [{"type": "hologram", "data": "xyz"}]}, "xyz"),
        ({"content": [{"type": "text"}]}, "text"),
        ({"content": ["a", None]}, "a"),
        ({"content": [{"type": "text", "text": "T"}], "isError": None, "_meta": 7}, "T"),
        ({}, "(no output)"),
    ],
)
def test_a_result_in_an_odd_form_is_a_result(answer: Any, content: str) -> None:
    odd = tool("odd", outputSchema={"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]})
    with mcp.connect(canned([odd], {"odd": answer})) as server:
        ((status, seen),) = run(server, "odd")
        assert status == "ok"
        assert content in seen


# --- progress -----------------------------------------------------------------------------------------------------


def test_progress_extends_the_deadline_of_a_call() -> None:
    line = canned([tool("build")], {"build": {"progress": [8, 0.2], **text("built")}})
    with mcp.connect(line, effects={"build": "read"}, timeout=0.8) as server:
        assert run(server, "build") == [("ok", "built")]
    with mcp.connect(line, effects={"build": "read"}) as server:
        assert run(server, "build", tool_timeout=0.8) == [("ok", "built")]


def test_progress_extends_it_only_to_the_absolute_limit() -> None:
    line = canned([tool("build")], {"build": {"progress": [400, 0.05], **text("built")}})
    started = time.monotonic()
    with mcp.connect(line, effects={"build": "read"}, timeout=0.5, max_timeout=1) as server:
        ((status, content),) = run(server, "build")
    assert (status, content) == ("timeout", "build timed out after 1 s.")
    assert time.monotonic() - started < 10 * busy()


def test_without_progress_the_deadline_is_that_of_the_call() -> None:
    line = canned([tool("build")], {"build": {"progress": [1, 5], **text("built")}})
    with mcp.connect(line, effects={"build": "read"}, timeout=0.4) as server:
        assert run(server, "build") == [("timeout", "build timed out after 0.4 s.")]


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "1"])
def test_an_absolute_limit_that_is_no_time_is_an_error(seconds: Any) -> None:
    with pytest.raises(ConfigError, match="max_timeout"):
        mcp.connect("x", max_timeout=seconds)


# --- what a stranger says of a refusal ------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["denied", "not_started", "invalid_arguments", "unknown_tool", "not_found", 7])
def test_a_stranger_that_says_it_refused_proves_nothing(status: Any) -> None:
    answer = {**text("refused"), "isError": True, "_meta": {"callgate/status": status}}
    with mcp.connect(canned([tool("wipe")], {"wipe": answer})) as server:
        assert run(server, "wipe")[0][0] == "unknown_outcome"
    with mcp.connect(canned([tool("wipe")], {"wipe": answer}), trust="hints") as server:
        expected = {"denied": "denied", "not_found": "not_found", 7: "unknown_outcome"}.get(status, "not_started")
        assert run(server, "wipe")[0][0] == expected


# --- requests of a server -------------------------------------------------------------------------------------------


def test_a_server_that_asks_for_the_model_is_refused_with_words() -> None:
    params = {"messages": [], "maxTokens": 5}
    answer = {"asks": [{"method": "sampling/createMessage", "params": params}]}
    with mcp.connect(canned([tool("think")], {"think": answer})) as server:
        ((status, content),) = run(server, "think")
        assert status == "ok"
        assert "Sampling not supported" in content
        assert any("(sampling)" in problem for problem in server.problems)


def test_half_characters_in_arguments_are_not_sent_and_told() -> None:
    with mcp.connect(canned([tool("good")], {"good": text("G")})) as server:
        started = time.monotonic()
        with pytest.raises(Exception, match="half"):
            asyncio.run(server.tools["good"].prepare({"a": "\ud800"}, ToolContext())())
        assert time.monotonic() - started < 5 * busy()
        assert run(server, "good") == [("ok", "G")]
