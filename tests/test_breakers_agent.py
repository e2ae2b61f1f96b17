"""Ways to break a run from outside that once worked: each name says what holds now."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.errors import ConfigError
from callgate.types import Ask, ModelInfo
from run_checks import call, calls

pytestmark = pytest.mark.anyio


def put(ran: list[int]) -> Any:
    """A write that tells that it ran."""

    @tool(effect="write", name="put")
    async def put(n: int) -> str:
        ran.append(n)
        return "done"

    return put


async def test_a_write_does_not_start_when_the_cancel_came_while_it_was_recorded(tmp_path: Path) -> None:
    ran: list[int] = []
    model = Replay([calls(call("put", n=1), call("put", n=2)), "never"])
    async with Agent(model, tools=[put(ran)], ledger=f"sqlite:{tmp_path}/runs.db") as agent:
        append, intended = agent.ledger.append, asyncio.Event()

        async def slow(run_id: str, entries: Any, **named: Any) -> Any:
            if any(entry.kind == "call_intent" for entry in entries):
                intended.set()
                await asyncio.sleep(0.02)
            return await append(run_id, entries, **named)

        agent.ledger.append = slow  # type: ignore[method-assign]
        work = asyncio.ensure_future(agent.run("go", run_id="r"))
        await intended.wait()
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        result = await agent.resume("r")
        verified = await agent.ledger.verify()
    assert ran == []
    assert result.reason == "cancelled"
    assert [record.result.status for record in result.calls] == ["not_started", "not_started"]
    assert verified.problems == ()
    assert len(model.requests) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_runs_tools_in_threads_of_its_own() -> None:
    @tool(effect="read")
    def look() -> str:
        return "seen"

    def status() -> str:
        agent = Agent(Replay([calls(call("look")), "ok"]), tools=[look], run_timeout=5)
        return agent.run_sync("go").calls[0].result.status

    assert status() == "ok"
    pid = os.fork()
    if pid == 0:  # the child ends here whatever happens
        code = 1
        try:
            code = 0 if status() == "ok" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_the_spelling_of_a_number_does_not_make_another_write() -> None:
    ran: list[int] = []
    spelt = [{"name": "put", "arguments": text} for text in ('{"n": 1}', '{"n": 1.0}', '{"n": 1e0}', '{"n": "1"}')]
    result = Agent(Replay([calls(one) for one in spelt] + ["ok"]), tools=[put(ran)], repeat_stop=0).run_sync("go")
    assert ran == [1]
    assert [record.result.replayed for record in result.calls] == [False, True, True, True]
    again = Agent(Replay([calls(one) for one in spelt] + ["ok"]), tools=[put(ran)]).run_sync("go")
    assert again.reason == "repetition"


ODD = [
    {"role": "user", "content": ["plain text as a part"]},
    {"role": "assistant", "content": None},
    {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": '{"n": NaN}'}},
    {"role": "function", "name": "look", "content": {"seen": 1}},
    {"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "look", "arguments": "{"}}]},
    {"role": "tool", "tool_call_id": 7, "content": None},
    {"role": "tool", "tool_call_id": "gone", "content": "an orphan"},
]


def test_whatever_a_history_from_elsewhere_holds_goes_out_valid_and_is_told() -> None:
    model = Replay(["fine"])
    result = Agent(model).run_sync("go", history=ODD)
    sent = model.requests[0].messages
    assert (result.reason, result.messages[:-1]) == ("answered", list(sent))
    assert [(m.role, m.text) for m in sent] == [
        ("user", "plain text as a part"),
        ("assistant", ""),
        ("tool", '{"seen": 1}'),
        ("assistant", ""),
        ("tool", "[the arguments of this call could not be read: {]\n"),
        ("user", "go"),
    ]
    asked = [one for m in sent for one in m.calls]
    assert [one.id for one in asked] == [m.call_id for m in sent if m.role == "tool"]
    json.dumps([one.arguments for one in asked], allow_nan=False)
    assert len(result.problems) == 3
    assert Agent(Replay(["fine"])).run_sync("go", history=None).text == "fine"


@pytest.mark.parametrize("error", [asyncio.CancelledError, OSError, BaseExceptionGroup("g", [OSError()])])
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_callback_that_gives_up_in_whatever_way_is_a_no(error: Any, kind: str) -> None:
    def approve(call: Any) -> bool:
        raise error

    async def later(call: Any) -> bool:
        raise error

    ran: list[int] = []
    model = Replay([calls(call("put", n=1)), "ok"])
    ask = [lambda call, spec, context: Ask("test", "a person decides")]
    agent = Agent(model, tools=[put(ran)], policy=ask, approve=approve if kind == "sync" else later)
    result = await agent.run("go")
    assert (result.reason, ran, [r.result.status for r in result.calls]) == ("answered", [], ["denied"])


@pytest.mark.parametrize("failing", range(7))
async def test_a_ledger_that_fails_in_whatever_way_ends_the_run_with_a_reason(failing: int) -> None:
    ran: list[int] = []
    agent = Agent(Replay([calls(call("put", n=1)), calls(call("put", n=2)), "ok"]), tools=[put(ran)])
    append, left = agent.ledger.append, failing

    async def fails(*given: Any, **named: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise OSError("the disk is gone")
        return await append(*given, **named)

    agent.ledger.append = fails  # type: ignore[method-assign]
    result = await agent.run("go")
    assert (result.reason, "the disk is gone" in str(result.error)) == ("provider_error", True)
    known = [record.call.arguments["n"] for record in result.calls if record.result.status == "ok"]
    assert ran == known, "only what was recorded before was started"
    assert [one.id for m in result.messages for one in m.calls] == [m.call_id for m in result.messages if m.call_id]


@pytest.mark.parametrize(
    "wrong", [{"approve": 5}, {"max_turns": "six"}, {"max_turns": -1}, {"run_timeout": True}, {"dialect": "nobody's"}]
)
def test_a_wrong_setting_is_refused_when_the_agent_is_made(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Agent(Replay([]), **wrong)


@pytest.mark.parametrize("prompt", [{"role": "user", "content": "go"}, [{"type": "text", "text": "go"}], "go"])
def test_a_prompt_is_a_text_a_message_or_parts(prompt: Any) -> None:
    model = Replay(["fine"])
    assert Agent(model, instructions=None).run_sync(prompt).text == "fine"  # type: ignore[arg-type]
    assert [(m.role, m.text) for m in model.requests[0].messages] == [("user", "go")]


@pytest.mark.parametrize("prompt", [None, 5, ["go"], b"go"])
def test_anything_else_is_no_prompt(prompt: Any) -> None:
    with pytest.raises(ConfigError):
        Agent(Replay(["fine"])).run_sync(prompt)


async def test_a_stream_that_is_left_before_the_run_began_has_a_result_too() -> None:
    model = Replay(["never"])
    async with Agent(model).stream("go") as events:
        pass
    assert (events.result.reason, events.result.calls, model.requests) == ("cancelled", [], [])
    assert [m.text for m in events.result.messages] == ["go"]
    async with Agent(model).stream("go") as events:
        events.cancel()
        assert [event async for event in events] == []
        assert events.result.reason == "cancelled"
        assert model.requests == []


@pytest.mark.parametrize("name", [None, "", 5])
def test_a_call_without_a_name_is_asked_for_again(name: Any) -> None:
    result = Agent(Replay([calls({"name": name, "arguments": {}}), "ok"])).run_sync("go")
    assert (result.reason, result.text, result.requests) == ("answered", "ok", 2)


async def test_a_server_that_never_tells_of_its_model_does_not_hold_a_run_for_ever() -> None:
    class Silent(Replay):
        async def info(self) -> ModelInfo:
            await asyncio.sleep(60)
            raise AssertionError

    result = await asyncio.wait_for(Agent(Silent(["fine"]), run_timeout=0.1).run("go"), 5)
    assert result.text == "fine"


def test_calls_that_cannot_run_count_for_the_limit_of_a_turn_too() -> None:
    ran: list[int] = []
    many = [call("put", n="no number") for _ in range(16)]
    result = Agent(Replay([calls(*many, call("put", n=1)), "never"]), tools=[put(ran)]).run_sync("go")
    assert (result.reason, ran, len(result.calls)) == ("call_limit", [], 17)
