"""Questions of an MCP server to the person: through `approve`, through `elicit`, or refused with words."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, mcp
from callgate.mcp._questions import _yes

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")

LIBRARY = [sys.executable, str(Path(__file__).parent / "mcp_servers" / "library.py")]


def run(server: mcp.Server, name: str, **options: Any) -> tuple[str, str]:
    call = {"calls": [{"name": name, "arguments": {"title": "Emma"}}]}
    (done,) = Agent(Replay([call, "ok"]), [server.tools], **options).run_sync("x").calls
    return done.result.status, done.result.content


@pytest.mark.parametrize(
    ("yes", "end"), [(True, "burnt Emma"), (False, "decline: kept Emma"), ("yes", "decline: kept Emma")]
)
def test_a_question_of_yes_or_no_goes_to_the_person_of_the_run(yes: Any, end: str) -> None:
    asked: list[Any] = []

    def approve(call: Any, pending: Any) -> Any:
        asked.append((call.name, call.arguments["question"], pending.reason, pending.rule))
        return yes

    with mcp.connect(LIBRARY) as server:
        assert run(server, "burn", approve=approve) == ("ok", end)
        words = f"MCP server {server.name} asks: Really burn Emma?"
    assert asked == [("burn", words, words, "question")]


def test_where_nobody_is_a_question_is_refused_with_words() -> None:
    with mcp.connect(LIBRARY) as server:
        assert run(server, "burn") == ("ok", "cancel: kept Emma")
        assert any("nobody is there to answer" in problem for problem in server.problems)


def test_a_form_needs_the_application() -> None:
    def approve(_: Any) -> bool:
        raise AssertionError("asked about what yes or no cannot answer")

    with mcp.connect(LIBRARY) as server:
        assert "more than yes or no" in run(server, "send", approve=approve)[1]


def test_the_application_fills_a_form_in() -> None:
    asked: list[mcp.Question] = []

    def elicit(question: mcp.Question) -> Any:
        asked.append(question)
        return {"street": "Elm", "floor": 2}

    async def decline(question: mcp.Question) -> None:
        asked.append(question)

    def fail(question: mcp.Question) -> Any:
        raise RuntimeError("the screen is dark")

    with mcp.connect(LIBRARY, elicit=elicit) as server:
        assert run(server, "send") == ("ok", "sent to Elm, 2")
    with mcp.connect(LIBRARY, elicit=decline) as server:
        assert "was decline" in run(server, "send")[1]
    with mcp.connect(LIBRARY, elicit=fail) as server:
        assert "dark" not in run(server, "send")[1]
    assert [(question.tool, question.message) for question in asked] == [("send", "Where to?")] * 2
    assert set(asked[0].schema["properties"]) == {"street", "floor"}


def test_a_person_may_take_longer_than_the_tool() -> None:
    def approve(_: Any) -> bool:
        time.sleep(2)
        return True

    with mcp.connect(LIBRARY, timeout=1) as server:
        assert run(server, "burn", approve=approve) == ("ok", "burnt Emma")


def test_a_question_that_may_belong_to_several_calls_is_refused() -> None:
    asked: list[Any] = []

    def approve(call: Any) -> bool:
        asked.append(call)
        time.sleep(1)
        return True

    async def both() -> Any:
        with_person = Agent(Replay([{"calls": [{"name": "burn", "arguments": {"title": "A"}}]}, "ok"]), [server.tools],
                            approve=approve)  # fmt: skip
        alone = Agent(Replay([{"calls": [{"name": "burn", "arguments": {"title": "B"}}]}, "ok"]), [server.tools])
        first = asyncio.create_task(with_person.run("x"))
        await asyncio.sleep(0.5)
        return [(await alone.run("x")).calls[0].result.content, (await first).calls[0].result.content]

    with mcp.connect(LIBRARY) as server:
        refused, burnt = asyncio.run(both())
        assert any("several calls run" in problem for problem in server.problems)
    assert refused == "cancel: kept B"
    assert burnt == "burnt A"
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("schema", "filled"),
    [
        ({}, {}),
        ({"properties": {}}, {}),
        ({"properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}, {"ok": True}),
        ({"properties": {"ok": {"type": "boolean"}, "why": {"type": "string"}}, "required": ["ok"]}, {"ok": True}),
        ({"properties": {"ok": {"type": "boolean"}, "why": {"type": "string"}}, "required": ["why"]}, None),
        ({"properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}}, None),
        ({"properties": {"why": {"type": "string"}}}, None),
        ({"properties": {"why": 3}, "required": ["x"]}, None),
    ],
)
def test_a_yes_fills_in_only_what_it_says(schema: dict[str, Any], filled: Any) -> None:
    assert _yes(schema) == filled


@pytest.mark.parametrize(("yes", "action"), [(True, "accept"), (False, "decline"), (None, "cancel")])
def test_a_server_of_the_older_kind_asks_in_the_middle_of_a_call(yes: bool | None, action: str) -> None:
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}
    ask = {"method": "elicitation/create", "params": {"message": "Sure?\x1b[2J", "requestedSchema": schema}}
    tool = {"name": "burn", "inputSchema": {"type": "object", "properties": {"title": {"type": "string"}}}}
    spec = json.dumps({"tools": [tool], "results": {"burn": {"asks": [ask]}}})
    with mcp.connect([sys.executable, str(Path(LIBRARY[1]).with_name("canned.py")), spec]) as server:
        status, content = run(server, "burn", approve=None if yes is None else lambda _: yes)
    told = json.loads(content)
    assert (status, told["action"]) == ("ok", action)
    assert told.get("content") == ({"sure": True} if yes else None)
