"""What a user meets of `routed` on a tiny model, through the real run."""

from __future__ import annotations

import asyncio

from callgate import Agent, Replay, tool
from callgate.events import CallProposed, TurnStarted
from callgate.types import ModelInfo

TINY = ModelInfo("tiny-135M", "test", frozenset({"schema"}))


@tool(effect="read")
def get_version() -> str:
    """Version of the program."""
    return "4.2"


@tool(effect="read")
def get_weather(city: str) -> str:
    """Weather of a city."""
    return f"sunny in {city}"


def test_a_tool_without_arguments_runs_and_costs_one_request() -> None:
    """The arguments are known; only the answer is the model's."""
    model = Replay(["The version is 4.2."], info=TINY)
    result = Agent(model, tools=[get_version], protocol="routed").run_sync("What is the version?")
    assert [(c.call.name, c.result.status, c.result.content) for c in result.calls] == [("get_version", "ok", "4.2")]
    assert (result.reason, result.text, len(model.requests)) == ("answered", "The version is 4.2.", 1)


def test_each_such_call_has_an_id_of_its_own_and_its_turn_is_announced() -> None:
    model = Replay(["The version is 4.2.", "4.2"], info=TINY)
    agent = Agent(model, tools=[get_version], protocol="routed")
    seen: list[object] = []

    async def watch() -> None:
        result = await agent.run("What is the version?")
        async with agent.stream("What is the version?", history=result.messages) as events:
            seen.extend([event async for event in events])

    asyncio.run(watch())
    assert [type(e).__name__ for e in seen if isinstance(e, (TurnStarted, CallProposed))] == [
        "TurnStarted",
        "CallProposed",
        "TurnStarted",
    ]
    (proposed,) = [e for e in seen if isinstance(e, CallProposed)]
    assert proposed.call.id not in ("", "call_1_1")


def test_a_refused_call_is_never_told_as_the_answer() -> None:
    model = Replay(['{"town": "Oslo"}', '{"city": "Oslo"}', "It is sunny in Oslo."], info=TINY)
    agent = Agent(model, tools=[get_weather], protocol="routed")
    result = agent.run_sync("How is the weather in Oslo?")
    assert [c.result.status for c in result.calls] == ["invalid_arguments", "ok"]
    assert result.text == "It is sunny in Oslo."
    assert "town" in model.requests[1].messages[-1].text


def test_a_question_of_ours_is_an_answer_though_the_model_was_cut_off() -> None:
    """The request allows one token: its end is always the limit."""

    @tool(effect="read", grounded=True)
    def pay(amount: int) -> str:
        """Pay an amount for a bill."""
        return "paid"

    model = Replay([{"content": '{"amount": 4}', "finish": "stop"}, {"content": "I", "finish": "length"}], info=TINY)
    result = Agent(model, tools=[pay], protocol="routed").run_sync("Pay the amount of the quarterly bill.")
    assert (result.reason, result.calls) == ("answered", [])
    assert "amount" in result.text
