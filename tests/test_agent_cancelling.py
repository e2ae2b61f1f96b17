"""Every row of the driver's table of states: when a stop is heard, and what it does."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.agent._stop import StopSignal
from callgate.types import ModelInfo, ToolCall

pytestmark = pytest.mark.anyio


def pays(ran: list[str]) -> Any:
    @tool(effect="write")
    async def pay() -> str:
        "Pay."
        ran.append("pay")
        await asyncio.sleep(0)
        return "paid"

    return pay


PAY = {"calls": [{"name": "pay", "arguments": {}}]}


class SlowInfo(Replay):
    """A server that takes long to tell of its model."""

    asked: asyncio.Event

    async def info(self) -> ModelInfo:
        if not self.asked.is_set():
            self.asked.set()
            await asyncio.sleep(30)
        return await super().info()


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_a_cancel_before_the_driver_exists_is_heard(where: str, tmp_path: Any) -> None:
    ran: list[str] = []
    model = SlowInfo([PAY, "done"])
    model.asked = asyncio.Event()
    ledger = where if where == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    async with Agent(model, tools=[pays(ran)], ledger=ledger) as agent:
        task = asyncio.ensure_future(agent.run("pay", run_id="r"))
        await model.asked.wait()
        assert await agent.cancel("r")
        result = await asyncio.wait_for(task, 5)
        assert (result.reason, result.calls, ran, model.requests) == ("cancelled", [], [], [])
        assert [e.kind for e in await agent.ledger.read("r")][-1] == "run_finished"
        assert not await agent.cancel("r")
        assert (await agent.resume("r")).reason == "cancelled"


async def test_a_cancel_at_any_turn_of_the_loop_is_true_or_came_too_late() -> None:
    """True means: the run ends as cancelled, or had just ended; nothing starts after it."""
    for n in range(400):
        ran: list[str] = []
        agent = Agent(Replay([PAY, PAY, "done"]), tools=[pays(ran)], grace=0.05)
        task = asyncio.ensure_future(agent.run("pay", run_id="r"))
        for _ in range(n):
            await asyncio.sleep(0)
        if task.done():
            assert (await task).reason == "answered"
            return
        heard = await agent.cancel("r")
        before = list(ran)
        result = await asyncio.wait_for(task, 5)
        assert ran in (before, [*before, "pay"][: len(before) + (not before)])
        if heard and not task.cancelled():
            assert result.reason in ("cancelled", "answered")
            assert sum(r.duration is not None for r in result.calls) == len(ran), "nothing ran without a trace"
    raise AssertionError("the run never reached its end")


async def test_nothing_is_asked_of_the_model_after_a_cancel() -> None:
    """The last call ends in the very round in which the cancel comes."""
    for n in range(30):
        model = Replay([PAY, "done"])
        agent = Agent(model, tools=[pays([])])
        async with agent.stream("pay", run_id="r") as events:
            async for event in events:
                if type(event).__name__ == "CallStarted":
                    for _ in range(n):
                        await asyncio.sleep(0)
                    asked = len(model.requests)
                    await agent.cancel("r")
                    assert len(model.requests) == asked
        await asyncio.sleep(0)
        assert len(model.requests) == asked or events.result.reason == "answered"


STOPS: dict[str, Callable[[Agent, asyncio.Task[Any]], Any]] = {
    "own": lambda agent, task: agent.cancel("r"),
    "foreign": lambda agent, task: _now(task.cancel()),
}


async def _now(value: Any) -> Any:
    return value


@pytest.mark.parametrize("order", [*itertools.product(STOPS, repeat=2), ("own",), ("foreign",)])
@pytest.mark.parametrize("place", ["model", "tool", "person", "info"])
async def test_two_stops_end_the_run_once_and_a_foreign_one_goes_on_its_way(order: tuple[str, ...], place: str) -> None:
    here = asyncio.Event()

    async def hang() -> None:
        here.set()
        await asyncio.sleep(30)

    class Model(Replay):
        async def info(self) -> ModelInfo:
            if place == "info":
                await hang()
            return await super().info()

        def stream(self, request: Any) -> Any:
            if place == "model":
                here.set()
            return super().stream(request)

    @tool(effect="write", confirm=place == "person")
    async def pay() -> str:
        "Pay."
        await hang()
        return "paid"

    async def approve(call: ToolCall) -> bool:
        await hang()
        return True

    model = Model([{**PAY, "delay": 30.0 if place == "model" else 0.0}, "done"])
    agent = Agent(model, tools=[pay], approve=approve, grace=0.05)
    task = asyncio.ensure_future(agent.run("pay", run_id="r"))
    await asyncio.wait_for(here.wait(), 5)
    raises = False
    for stop in order:
        raises |= bool(await STOPS[stop](agent, task)) and stop == "foreign"  # False: the run had ended already
        if place == "tool":
            await asyncio.sleep(0.01)
    if raises:
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        assert (await task).reason == "cancelled"
    entries = await agent.ledger.read("r")
    if entries:
        assert [e.kind for e in entries].count("run_finished") == 1
        assert entries[-1].data["reason"] == "cancelled"
        statuses = [e.data["result"]["status"] for e in entries if e.kind == "call_result"]
        assert statuses == {"model": [], "info": [], "tool": ["unknown_outcome"], "person": ["not_started"]}[place]
    else:
        assert place == "info", "only a run that has not begun leaves no trace"
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_a_cancel_from_within_the_run_leaves_nothing_behind_for_the_caller() -> None:
    """The run's own task cancels it, from a callback: no CancelledError may come out later."""
    for wanted in ("RunStarted", "CallStarted", "CallFinished", "TextDelta", "RunFinished"):
        agent = Agent(Replay([PAY, "done"]), tools=[pays([])])
        seen: list[str] = []
        async with agent.stream("pay", run_id="r") as events:
            async for event in events:
                seen.append(type(event).__name__)
                if seen[-1] == wanted:
                    events.cancel()
        assert seen[-1] == "RunFinished"
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_an_agent_hears_a_cancel_from_another_thread() -> None:
    started = threading.Event()

    @tool(effect="read")
    async def forever() -> str:
        "Wait."
        started.set()
        await asyncio.sleep(30)
        return "x"

    agent = Agent(Replay([{"calls": [{"name": "forever", "arguments": {}}]}]), tools=[forever])
    other = threading.Thread(target=lambda: started.wait(5) and asyncio.run(agent.cancel("r")))
    other.start()
    result = await asyncio.wait_for(agent.run("go", run_id="r"), 5)
    other.join()
    assert result.reason == "cancelled"


async def test_the_first_reason_counts() -> None:
    stop = StopSignal()
    stop.request("time")
    stop.request("cancel")
    assert stop.future.result() == "time"
    assert await stop.unless(asyncio.sleep(30, "late")) is None
