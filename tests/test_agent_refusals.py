"""Runs keep to themselves: what one run's model did changes nothing for the next."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.errors import BadRequest, Overloaded

pytestmark = pytest.mark.anyio


@tool(effect="read")
def look(n: int = 0) -> str:
    "Look."
    return f"seen {n}"


LEAK = '<tool_call>{"name": "look", "arguments": {"n": 1}}</tool_call>'
CALL = {"calls": [{"name": "look", "arguments": {"n": 1}}]}
NATIVE = "native"


def protocols_of(model: Replay) -> list[str]:
    return ["native" if request.tools else "other" for request in model.requests]


ANSWERS: dict[str, list[Any]] = {
    "a leaked call": [LEAK, "done"],
    "a quoted call": [f"I will not run `{LEAK}`."],
    "unreadable answers": ["", "", "", "", "", "", "done"],
    "a dropped stream": [{"content": "half", "finish": "interrupted"}, "done"],
}


@pytest.mark.parametrize("first", ANSWERS)
async def test_what_an_answer_caused_is_not_remembered(first: str) -> None:
    model = Replay([*ANSWERS[first], *["fine"] * 20])
    agent = Agent(model, tools=[look])
    await agent.run("go")
    before = len(model.requests)
    result = await agent.run("again")
    assert protocols_of(model)[before] == "native"
    assert not any("earlier run" in problem for problem in result.problems)


@pytest.mark.parametrize("status", [400, 422, None])
async def test_only_a_refusal_of_the_server_is_remembered(status: int | None) -> None:
    def reply(request: Any) -> Any:
        if request.tools:
            raise BadRequest("this model does not support tools", status=status)
        return '{"answer": "fine"}'

    model = Replay([reply] * 20)
    agent = Agent(model, tools=[look], retries=0)
    first = await agent.run("go")
    assert first.ok
    assert first.protocol != NATIVE
    asked = len(model.requests)
    second = await agent.run("again")
    assert (second.ok, second.protocol) == (True, first.protocol)
    assert len(model.requests) == asked + 1, "it is not tried in vain again"
    noted = [problem for problem in second.problems if "earlier run" in problem]
    assert len(noted) == 1
    assert "does not support tools" in noted[0]
    assert not any("earlier run" in problem for problem in first.problems)
    assert not any("earlier run" in p for p in (await Agent(model, tools=[look], retries=0).run("go")).problems)


@pytest.mark.parametrize("worked", [True, False])
async def test_a_failure_of_the_server_is_not_remembered_nor_a_refusal_that_nothing_worked_after(worked: bool) -> None:
    error = Overloaded("down", status=500) if worked else BadRequest("no tools here", status=400)
    model = Replay([error, *(["fine"] if worked else [BadRequest("no", status=400)] * 6), *["fine"] * 6])
    agent = Agent(model, tools=[look], retries=0)
    assert (await agent.run("go")).ok == worked
    before = len(model.requests)
    await agent.run("again")
    assert protocols_of(model)[before] == NATIVE
