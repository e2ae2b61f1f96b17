"""The public interface as users' type checkers see it. Nothing here runs: mypy and pyright read it in strict mode.

Every name of DESIGN's contract is used once, with the type that it promises.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_type

from callgate import (
    Agent,
    Principal,
    Reader,
    Replay,
    RunResult,
    Tool,
    ToolCall,
    mend,
    read,
    separate,
    tool,
)
from callgate.events import Event
from callgate.limits import Limits
from callgate.policy import Answer
from callgate.types import BadCall, CallRecord, Delta, Message, Reply, ToolResult


@tool(effect="read", timeout=10)
def get_weather(city: str) -> dict[str, Any]:
    "Current weather in a city."
    return {"city": city}


@tool
async def send(to: str, text: str) -> str:
    "Sends a message."
    return to + text


def declaring() -> Tool:
    return get_weather


def reading(chunks: Iterable[bytes]) -> None:
    reply = read("text", dialect="hermes", tools=[get_weather], prompt_tail="<think>\n")
    assert_type(reply, Reply)
    assert_type(reply.content, str)
    assert_type(reply.calls, list[ToolCall])
    assert_type(reply.incomplete, list[BadCall])
    assert_type(reply.problems, list[str])
    assert_type(reply.raw_finish, str | None)
    assert_type(read(chunks, wire="openai"), Reply)
    reader = Reader(dialect="qwen_xml", tools=[get_weather])
    assert_type(reader.feed("a"), list[Delta])
    assert_type(reader.finish(), list[Delta])
    assert_type(separate("text", start_tag="<a>", end_tag="</a>"), tuple[str, str | None, list[str]])


def mending() -> None:
    mended = mend('{"a": 1}', {"type": "object"})
    assert_type(mended.repaired, bool)
    assert_type(mended.notes, list[str])


def approve(call: ToolCall) -> bool:
    return call.name == "send"


async def running() -> None:
    agent = Agent(
        Replay(["hello", {"calls": [{"name": "send", "arguments": {}}]}]),
        tools=[get_weather, send],
        instructions="Be brief.",
        options={"temperature": 0},
        policy={"rate": {"send": "1/s"}},
        ledger="memory",
        approve=approve,
        protocol="auto",
        max_turns=6,
        tool_timeout=30,
        run_timeout=120,
        limits=Limits(max_calls=50, approval_expires=None),
        grace=1.5,
    )
    assert_type(agent.limits.max_turns, int | None)
    result = await agent.run("hi", principal=Principal("u1", grants={"orders.read"}))
    assert_type(result, RunResult)
    assert_type(result.text, str)
    assert_type(result.messages, list[Message])
    assert_type(result.calls, list[CallRecord])
    assert_type(result.calls[0].result, ToolResult)
    assert_type(result.run_id, str)
    async with agent.stream("hi", history=result.messages) as events:
        async for event in events:
            assert_type(event, Event)
    assert_type(await agent.resume(result.run_id, answers={"call_1": True, "call_2": Answer(False)}), RunResult)
    assert_type(agent.run_sync("hi"), RunResult)
    assert_type(await agent.cancel(result.run_id), bool)
