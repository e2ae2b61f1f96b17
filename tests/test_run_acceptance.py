"""The nine acceptance scenarios: each checks the final record of messages and how often each tool ran."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from callgate import Agent, Replay, RunResult, tool
from callgate.events import CallStarted
from patience import busy

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


@tool(effect="read")
def get_weather(city: str) -> dict[str, str]:
    "Weather in a city."
    RAN.append(("get_weather", city))
    return {"city": city, "sky": "rain"}


@tool(effect="write")
def add_row(value: int) -> str:
    "Add a row."
    RAN.append(("add_row", value))
    return f"row {value}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def record(result: RunResult) -> list[tuple[Any, ...]]:
    """The messages, briefly: (role, text) and what they call or answer."""
    return [
        (m.role, m.text, *([c.id, c.name, c.arguments] for c in m.calls), *([m.call_id] if m.call_id else []))
        for m in result.messages
    ]


def test_1_a_plain_answer_needs_no_tool() -> None:
    result = Agent(Replay(["It is noon."]), tools=[get_weather]).run_sync("time?")
    assert record(result) == [("user", "time?"), ("assistant", "It is noon.")]
    assert (result.reason, result.text, result.calls, RAN) == ("answered", "It is noon.", [], [])


def test_2_two_calls_of_one_tool_are_matched_with_their_results() -> None:
    script = [
        {"calls": [{"name": "get_weather", "arguments": {"city": c}} for c in ("Paris", "Rome")]},
        "Rain in both.",
    ]
    result = Agent(Replay(script), tools=[get_weather]).run_sync("weather?")
    assert record(result) == [
        ("user", "weather?"),
        (
            "assistant",
            "",
            ["call_1_1", "get_weather", {"city": "Paris"}],
            ["call_1_2", "get_weather", {"city": "Rome"}],
        ),
        ("tool", '{"city": "Paris", "sky": "rain"}', "call_1_1"),
        ("tool", '{"city": "Rome", "sky": "rain"}', "call_1_2"),
        ("assistant", "Rain in both."),
    ]
    assert sorted(RAN) == [("get_weather", "Paris"), ("get_weather", "Rome")]


def test_3_bad_arguments_go_back_with_the_reason_and_nothing_runs() -> None:
    script = [call("add_row", value="many"), call("add_row", value=2), "Added."]
    result = Agent(Replay(script), tools=[add_row]).run_sync("add")
    first, second = result.calls
    assert (first.result.status, second.result.status) == ("invalid_arguments", "ok")
    assert "/value" in first.result.content
    assert [(m.role, m.call_id) for m in result.messages] == [
        ("user", None), ("assistant", None), ("tool", first.call.id), ("assistant", None), ("tool", second.call.id),
        ("assistant", None),
    ]  # fmt: skip
    assert first.call.id != second.call.id
    assert (RAN, result.reason) == ([("add_row", 2)], "answered")


@pytest.mark.parametrize("asynchronous", [True, False])
def test_4_a_tool_that_times_out(asynchronous: bool) -> None:
    @tool(effect="read", timeout=0.05)
    async def slow_async() -> str:
        "Slow."
        RAN.append("slow")
        await asyncio.sleep(5)
        return "late"

    @tool(effect="read", timeout=0.05)
    def slow_sync() -> str:
        "Slow."
        RAN.append("slow")
        time.sleep(0.5)
        return "late"

    slow = slow_async if asynchronous else slow_sync
    began = time.monotonic()
    result = Agent(Replay([call(slow.name), "No luck."]), tools=[slow]).run_sync("go")
    assert time.monotonic() - began < 0.45 * busy()
    assert [r.result.status for r in result.calls] == ["timeout"]
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert (RAN, result.reason, result.text) == (["slow"], "answered", "No luck.")


def test_5_the_same_call_without_progress_is_warned_of_and_then_ends_the_run() -> None:
    model = Replay([call("get_weather", city="Paris")] * 9)
    result = Agent(model, tools=[get_weather], max_turns=9).run_sync("go")
    assert (result.reason, len(RAN), len(model.requests)) == ("repetition", 3, 4)
    assert [r.result.status for r in result.calls] == ["ok", "ok", "ok", "not_started"]
    tools = [m.text for m in result.messages if m.role == "tool"]
    assert ["same arguments" in text for text in tools] == [False, False, True, False]
    assert result.messages[-1].call_id == result.calls[-1].call.id


@pytest.mark.anyio
async def test_6_a_cancel_with_one_call_running_and_one_waiting() -> None:
    @tool(effect="write")
    async def long_write() -> str:
        "Long."
        RAN.append("long")
        await asyncio.sleep(5)
        return "done"

    model = Replay([{"calls": [{"name": "long_write"}, {"name": "add_row", "arguments": {"value": 1}}]}, "never"])
    async with Agent(model, tools=[long_write, add_row]).stream("go") as events:
        async for event in events:
            if isinstance(event, CallStarted):
                await asyncio.sleep(0.01)
                break
    result = events.result
    assert result.reason == "cancelled"
    assert [r.result.status for r in result.calls] == ["unknown_outcome", "not_started"]
    assert [(m.role, m.call_id) for m in result.messages] == [
        ("user", None), ("assistant", None), ("tool", "call_1_1"), ("tool", "call_1_2"),
    ]  # fmt: skip
    assert (RAN, len(model.requests)) == (["long"], 1)


def test_7_an_unknown_tool() -> None:
    result = Agent(Replay([call("get_wether", city="x"), "Sorry."]), tools=[get_weather]).run_sync("go")
    assert [r.result.status for r in result.calls] == ["unknown_tool"]
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    assert "get_weather" in result.messages[2].text
    assert (RAN, result.reason, result.text) == ([], "answered", "Sorry.")


def test_8_an_exception_of_a_tool_is_a_result() -> None:
    @tool(effect="read")
    def breaks() -> str:
        "Breaks."
        RAN.append("breaks")
        raise RuntimeError("the bay is closed")

    result = Agent(Replay([call("breaks"), "It is closed."]), tools=[breaks]).run_sync("go")
    assert [r.result.status for r in result.calls] == ["failed"]
    assert "the bay is closed" in result.messages[2].text
    assert (RAN, result.reason, result.text) == (["breaks"], "answered", "It is closed.")


def test_9_the_limit_of_turns_ends_the_run_and_its_last_calls_are_not_started() -> None:
    model = Replay([{"content": f"turn {n}", **call("add_row", value=n)} for n in range(9)])
    result = Agent(model, tools=[add_row], max_turns=3).run_sync("go")
    assert result.reason == "turn_limit"
    assert "max_turns" in str(result.error)
    assert [r.result.status for r in result.calls] == ["ok", "ok", "not_started"]
    assert RAN == [("add_row", 0), ("add_row", 1)]
    assert len(model.requests) == 3
    assert result.text == "turn 2"
    assert [m.role for m in result.messages] == ["user", *["assistant", "tool"] * 3]
