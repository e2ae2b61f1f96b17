"""What one run may have otherwise than its agent."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.errors import ConfigError
from callgate.limits import Limits
from callgate.types import Deny

pytestmark = pytest.mark.anyio


@tool(effect="read")
def look(at: str) -> str:
    "Looks."
    return f"saw {at}"


@tool(effect="read")
def hear(at: str) -> str:
    "Hears."
    return f"heard {at}"


def calls(*names: str) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": {"at": str(n)}} for n, name in enumerate(names)]}


async def test_whatever_is_given_to_a_run_holds_for_it_alone() -> None:
    own, other = Replay(["a", "c"]), Replay(["b"])
    agent = Agent(own, tools=[look], instructions="Agent.", options={"temperature": 0, "top_p": 0.5})
    await agent.run("1")
    result = await agent.run(
        "2",
        model=other,
        instructions="Run.",
        options={"temperature": 1},
        tools=["look", hear],
        limits=Limits(max_turns=3),
    )
    assert result.text == "b"
    await agent.run("3")
    (asked,) = other.requests
    assert asked.messages[0].text == "Run."
    assert dict(asked.options) == {"temperature": 1, "top_p": 0.5}
    assert [t.name for t in asked.tools] == ["look", "hear"]
    for request in own.requests:
        assert request.messages[0].text == "Agent."
        assert dict(request.options) == {"temperature": 0, "top_p": 0.5}
        assert [t.name for t in request.tools] == ["look"]


async def test_rules_of_a_run_only_add_up() -> None:
    def no_zero(call: Any, spec: Any, context: Any) -> Any:
        return Deny("zero", "not 0") if call.arguments["at"] == "0" else True

    def no_one(call: Any, spec: Any, context: Any) -> Any:
        return Deny("one", "not 1") if call.arguments["at"] == "1" else True

    model = Replay([calls("look", "look", "look"), "x", calls("look", "look", "look"), "x"])
    agent = Agent(model, tools=[look], policy=[no_zero])
    strict = await agent.run("?", policy=[no_one])
    assert [c.result.status for c in strict.calls] == ["denied", "denied", "ok"]
    assert [c.result.status for c in (await agent.run("?")).calls] == ["denied", "ok", "ok"]


async def test_limits_of_a_run_hold_for_it_and_its_tools() -> None:
    agent = Agent(Replay([calls("look"), calls("look"), "x"]), tools=[look], max_turns=1)
    assert (await agent.run("?")).reason == "turn_limit"
    long = {"calls": [{"name": "look", "arguments": {"at": "x" * 900}}]}
    agent = Agent(Replay([long, "x"]), tools=[look], max_turns=1)
    result = await agent.run("?", limits=Limits(max_turns=5, max_result=300))
    assert (result.reason, len(result.calls[0].result.content) <= 300) == ("answered", True)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"limits": 5}, "limits"),
        ({"options": 5}, "options"),
        ({"tools": "look"}, "tools"),
        ({"tools": ["nope"]}, "nope"),
        ({"model": 5}, "model"),
        ({"policy": {"rate": {"nope": "1/s"}}}, "nope"),
        ({"instructions": 5}, "instructions"),
        ({"tool_choice": "nope"}, "nope"),
        ({"principal": "ann"}, "principal"),
    ],
)
async def test_what_a_run_cannot_have_is_refused_before_it_starts(given: Any, reason: str) -> None:
    model = Replay(["x"])
    with pytest.raises(ConfigError, match=reason):
        await Agent(model, tools=[look]).run("?", **given)
    assert model.requests == []


async def test_a_misspelt_name_is_named() -> None:
    with pytest.raises(TypeError, match="'optoins'"):
        await Agent(Replay([])).run("?", optoins={})


# --- the choice of a tool -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["required", "look"])
async def test_a_tool_is_demanded_of_the_first_turn_only(choice: str) -> None:
    model = Replay([calls("look"), "done"])
    result = await Agent(model, tools=[look, hear], tool_choice=choice, parallel=False).run("?")
    assert (result.text, [r.tool_choice for r in model.requests]) == ("done", [choice, "auto"])
    assert [r.parallel for r in model.requests] == [False, False]


async def test_the_choice_of_a_run_wins_and_none_offers_nothing() -> None:
    model = Replay(["a", "b"])
    agent = Agent(model, tools=[look], tool_choice="required")
    await agent.run("?", tool_choice="none")
    assert [len(r.tools) for r in model.requests] == [0]


@pytest.mark.parametrize("name", ["tool_choice", "parallel_tool_calls"])
def test_an_option_that_would_hold_for_every_request_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Agent(Replay([]), options={name: "required"})


# --- too many calls -----------------------------------------------------------------------------------------------


async def test_of_too_many_reads_the_first_run_and_the_others_are_told() -> None:
    model = Replay([calls(*["look"] * 50), "done"])
    result = await Agent(model, tools=[look]).run("?")
    statuses = [c.result.status for c in result.calls]
    assert (result.text, statuses) == ("done", ["ok"] * 16 + ["not_started"] * 34)
    assert "16 calls and this one had 50" in result.calls[-1].result.content
    assert len(model.requests[1].messages) == 1 + 1 + 50


async def test_they_may_be_refused_and_a_batch_with_a_write_runs_nothing() -> None:
    ran: list[str] = []

    @tool(effect="write")
    def put(at: str) -> None:
        "Puts."
        ran.append(at)

    refused = await Agent(Replay([calls(*["look"] * 50)]), tools=[look], too_many="refuse").run("?")
    mixed = await Agent(Replay([calls(*["look"] * 20, "put")]), tools=[look, put]).run("?")
    for result in (refused, mixed):
        assert (result.reason, {c.result.status for c in result.calls}) == ("call_limit", {"not_started"})
    assert ran == []


async def test_the_rest_is_not_run_by_a_run_that_goes_on() -> None:
    @tool(effect="read", confirm=True)
    def peek(at: str) -> str:
        "Peeks."
        return at

    agent = Agent(Replay([calls(*["peek"] * 5), "done"]), tools=[peek], max_calls_per_turn=2)
    first = await agent.run("?")
    assert [p.arguments["at"] for p in first.pending] == ["0", "1"]
    result = await agent.resume(first.run_id, {p.id: True for p in first.pending})
    assert [c.result.status for c in result.calls] == ["ok", "ok", *["not_started"] * 3]
