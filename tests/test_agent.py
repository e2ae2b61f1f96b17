"""The driver: cancelling anywhere, resuming, many runs at once, and a run that never raises."""

from __future__ import annotations

import asyncio
import gc
import json
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Principal, Replay, ToolContext, tool
from callgate.errors import BadRequest, ConfigError, LedgerError, Unreachable
from callgate.events import CallFinished, Retrying, RunFinished, RunStarted, TextDelta
from callgate.ledger import memory
from callgate.types import Message
from patience import busy
from run_checks import valid

pytestmark = pytest.mark.anyio


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def make(ran: list[Any]) -> list[Any]:
    @tool(effect="read")
    async def look(n: int) -> str:
        "Look."
        ran.append(("look", n))
        await asyncio.sleep(0)
        return f"seen {n}"

    @tool(effect="write")
    async def put(n: int) -> str:
        "Put."
        ran.append(("put", n))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return f"put {n}"

    return [look, put]


SCRIPT: list[Any] = [
    {"content": "Let me see.", "chunks": 4, "calls": [call("look", n=1), call("look", n=2), call("put", n=1)]},
    {"calls": [call("put", n=2), call("look", n=3), call("put", n=3)]},
    {"content": "All is done.", "chunks": 3},
]


# --- cancelling ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_a_cancel_at_any_await_leaves_a_valid_history_and_a_whole_journal(where: str, tmp_path: Path) -> None:
    ended = 0
    for n in range(400 if where == "memory" else 60):
        ran: list[Any] = []
        ledger = "memory" if where == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
        agent = Agent(Replay(list(SCRIPT)), tools=make(ran), ledger=ledger, grace=0.05)
        # One principal a run: a write that a cancel left unknown makes the next identical one of its principal ask.
        task = asyncio.ensure_future(agent.run("go", run_id=f"r{n}", principal=Principal(f"u{n}")))
        if where == "sqlite":  # its awaits wait for a thread: moments instead of steps
            await asyncio.sleep(n * 0.0015)
        for _ in range(n if where == "memory" else 0):
            await asyncio.sleep(0)
        task.cancel()
        try:
            result = await task
        except asyncio.CancelledError:
            entries = await agent.ledger.read(f"r{n}")
            if not entries:
                continue  # cancelled before it began
            assert entries[-1].kind == "run_finished"
            why = "\n".join(f"{e.kind} {e.data}" for e in entries)
            assert entries[-1].data["reason"] in ("cancelled", "answered"), why  # the cancel may come a moment too late
            result = await agent.resume(f"r{n}")
            assert result.reason == entries[-1].data["reason"]
        else:
            ended += 1
        before = list(ran)
        valid(result.messages)
        entries = await agent.ledger.read(f"r{n}")
        proposed = [e.data["call"]["id"] for e in entries if e.kind == "call_proposed"]
        results = [e.data["call_id"] for e in entries if e.kind == "call_result"]
        ids = sorted(r.call.id for r in result.calls)
        assert sorted(proposed) == sorted(results) == ids, [(e.kind, e.data) for e in entries]
        writes = [what for what in ran if what[0] == "put"]
        assert len(writes) == len(set(writes))
        started = [r for r in result.calls if r.call.name == "put" and r.duration is not None]
        assert len(started) >= len(writes), "a write ran without a trace"
        await asyncio.sleep(0)
        assert ran == before, "something went on after the end"
        await agent.aclose()
        if ended == 3:
            break
    assert ended or where == "sqlite", "the run never reached its end"


async def test_leaving_the_stream_at_any_event_ends_the_run() -> None:
    for n in range(60):
        ran: list[Any] = []
        model = Replay(list(SCRIPT))
        async with Agent(model, tools=make(ran)).stream("go") as events:
            seen = 0
            async for _ in events:
                seen += 1
                if seen > n:
                    break
        valid(events.result.messages)
        after = (list(ran), len(model.requests))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (ran, len(model.requests)) == after
        if events.result.reason == "answered":
            assert ran[-1] == ("put", 3)
            return
        assert events.result.reason == "cancelled"
    raise AssertionError("the run never reached its end")


async def test_cancel_by_its_id_ends_a_run_that_is_awaited_elsewhere() -> None:
    begun = asyncio.Event()

    @tool(effect="read")
    async def forever() -> str:
        "Wait."
        begun.set()
        await asyncio.sleep(60)
        return "x"

    begun = asyncio.Event()
    agent = Agent(Replay([{"calls": [call("forever")]}]), tools=[forever])
    task = asyncio.ensure_future(agent.run("go", run_id="mine"))
    await begun.wait()
    assert await agent.cancel("mine")
    result = await task
    assert (result.reason, result.calls[0].result.status) == ("cancelled", "cancelled")
    assert not await agent.cancel("mine")


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_cancel_ends_a_run_that_waits_for_a_person(where: str, tmp_path: Path) -> None:
    ran: list[int] = []

    @tool(effect="write", confirm=True)
    def pay(amount: int) -> None:
        "Pay."
        ran.append(amount)

    model = Replay([{"calls": [call("pay", amount=3)]}, "Done."])
    agent = Agent(model, tools=[pay], ledger=where if where == "memory" else f"sqlite:{tmp_path / 'runs.db'}")
    parked = await agent.run("pay 3")
    assert parked.reason == "waiting"
    assert await agent.cancel(parked.run_id)
    assert not await agent.cancel(parked.run_id)
    assert not await agent.cancel("nobody")
    result = await agent.resume(parked.run_id, {parked.pending[0].id: True})
    assert (result.reason, [c.result.status for c in result.calls], ran) == ("cancelled", ["not_started"], [])
    valid(result.messages)
    assert not (await agent.ledger.verify()).problems
    await agent.aclose()


async def test_the_time_of_a_run_is_over_while_a_tool_runs_and_while_the_model_is_silent() -> None:
    @tool(effect="read")
    async def forever() -> str:
        "Wait."
        await asyncio.sleep(60)
        return "x"

    @tool(effect="read")
    def quick() -> str:
        "Quick."
        return "q"

    tools = [forever, quick]
    began = time.monotonic()
    script: list[Any] = [{"calls": [call("quick"), call("forever")]}]
    result = await Agent(Replay(script), tools=tools, run_timeout=0.2).run("go")
    assert result.reason == "time_limit"
    assert "run_timeout" in str(result.error)
    assert [r.result.status for r in result.calls] == ["ok", "cancelled"]
    slow = [{"content": "a b c", "chunks": 1, "delay": 0.15}]
    result = await Agent(Replay(slow), run_timeout=0.2).run("go")
    assert (result.reason, result.text) == ("time_limit", "a")
    assert time.monotonic() - began < 2 * busy()


# --- resuming -----------------------------------------------------------------------------------------------------


async def test_several_questions_are_answered_one_by_one(tmp_path: Path) -> None:
    sent: list[int] = []

    @tool(effect="write", confirm=True)
    def pay(amount: int) -> str:
        "Pay."
        sent.append(amount)
        return f"paid {amount}"

    where = f"sqlite:{tmp_path / 'runs.db'}"
    script = [{"calls": [call("pay", amount=1), call("pay", amount=2)]}]
    first = await Agent(Replay(script), tools=[pay], ledger=where).run("pay")
    assert (first.reason, [p.arguments for p in first.pending]) == ("waiting", [{"amount": 1}, {"amount": 2}])
    valid(first.messages)
    one, two = (p.id for p in first.pending)
    again = Agent(Replay(["Done."]), tools=[pay], ledger=where)
    second = await again.resume(first.run_id, answers={two: True})
    assert (second.reason, [p.id for p in second.pending], sent) == ("waiting", [one], [])
    nothing = await again.resume(first.run_id)
    assert (nothing.reason, sent) == ("waiting", [])
    third = await again.resume(first.run_id, answers={one: False})
    assert (third.reason, third.text, sent) == ("answered", "Done.", [2])
    assert [r.result.status for r in third.calls] == ["denied", "ok"]
    fourth = await again.resume(first.run_id, answers={one: True})
    assert (fourth.reason, fourth.text, sent) == ("answered", "Done.", [2])
    assert fourth.messages == third.messages
    await again.aclose()


async def test_only_a_plain_yes_allows() -> None:
    ran: list[int] = []

    @tool(effect="write", confirm=True)
    def pay() -> str:
        "Pay."
        ran.append(1)
        return "paid"

    def fails(call: Any) -> bool:
        raise RuntimeError("the terminal is gone")

    async def no(call: Any) -> str:
        return "no"

    for approve in (fails, no, lambda call: None, lambda call: "yes", lambda call: 1):
        result = await Agent(Replay([{"calls": [call("pay")]}, "ok"]), tools=[pay], approve=approve).run("go")
        assert ([r.result.status for r in result.calls], ran) == (["denied"], [])


async def test_an_approval_that_comes_too_late_counts_no_more() -> None:
    ran: list[int] = []

    @tool(effect="write", confirm=True)
    def pay() -> str:
        "Pay."
        ran.append(1)
        return "paid"

    agent = Agent(Replay([{"calls": [call("pay")]}, "ok"]), tools=[pay], approval_expires=0.01)
    first = await agent.run("go")
    await asyncio.sleep(0.05)
    result = await agent.resume(first.run_id, answers={first.pending[0].id: True})
    assert ([r.result.status for r in result.calls], ran) == (["denied"], [])
    assert "too late" in result.calls[0].result.content


async def test_permission_is_checked_afresh_when_the_answer_comes() -> None:
    ran: list[int] = []

    @tool(effect="write", confirm=True, permission="money")
    def pay() -> str:
        "Pay."
        ran.append(1)
        return "paid"

    agent = Agent(Replay([{"calls": [call("pay")]}, "ok"]), tools=[pay])
    first = await agent.run("go", principal=Principal("u", {"money"}))
    assert first.reason == "waiting"
    yes = {first.pending[0].id: True}
    with pytest.raises(ConfigError, match="belongs to u"):
        await agent.resume(first.run_id, yes, principal=Principal("v", {"money"}))
    result = await agent.resume(first.run_id, yes, principal=Principal("u"))
    assert ([r.result.status for r in result.calls], ran) == (["denied"], [])


async def test_the_clock_of_a_run_stands_still_while_a_person_thinks() -> None:
    @tool(effect="write", confirm=True)
    def pay() -> str:
        "Pay."
        return "paid"

    async def approve(call: Any) -> bool:
        await asyncio.sleep(0.3 * slow)
        return True

    slow = busy()
    agent = Agent(Replay([{"calls": [call("pay")]}, "ok"]), tools=[pay], approve=approve, run_timeout=0.25 * slow)
    result = await agent.run("go")
    assert (result.reason, result.calls[0].result.status) == ("answered", "ok")
    assert result.seconds < 0.2 * slow


async def test_a_run_that_is_not_there_cannot_be_resumed() -> None:
    with pytest.raises(LedgerError, match="no such run"):
        await Agent(Replay([])).resume("nowhere")


# --- it never raises ----------------------------------------------------------------------------------------------


async def test_a_started_run_never_raises() -> None:
    class Full(memory.Store):
        left = 0

        async def append(self, *a: Any, **k: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise LedgerError("disk full")
            return await super().append(*a, **k)

    for room in range(30):
        ran: list[Any] = []
        store = Full()
        store.left = room
        result = await Agent(Replay(list(SCRIPT)), tools=make(ran), ledger=store).run("go")
        if result.reason == "answered":
            break
        assert (result.reason, "disk full" in str(result.error)) == ("provider_error", True)
        valid(result.messages)
        journalled = [e.data["call_id"] for e in await store.read(result.run_id) if e.kind == "call_intent"]
        assert len([r for r in ran if r[0] == "put"]) <= len(journalled), "a write ran that was not recorded"
    else:
        raise AssertionError("the run never reached its end")
    for failure in (Unreachable("no server"), BadRequest("no"), ValueError("odd"), {"error": "half way"}):
        result = await Agent(Replay([failure] * 9), retries=0).run("go")
        assert result.reason == "provider_error"
        assert result.error
    result = await Agent(Replay([])).run("go")
    assert (result.reason, "no reply left" in str(result.error)) == ("provider_error", True)


async def test_what_the_caller_does_wrong_is_said_before_anything_starts() -> None:
    agent = Agent(Replay(["x"]))
    for wrong in (
        lambda: agent.run("a", principal="me"),  # type: ignore[arg-type]
        lambda: agent.run("a", history=[{"role": "wizard"}]),
        lambda: agent.run("a", history=[3]),  # type: ignore[list-item]
    ):
        with pytest.raises(ConfigError):
            await wrong()
    with pytest.raises(ConfigError):
        Agent(Replay([]), protocol="telepathy")
    with pytest.raises(ConfigError):
        Agent(Replay([]), policy=[3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match=r"await agent\.run"):
        agent.run_sync("a")


async def test_a_dropped_stream_is_asked_for_again_and_says_so() -> None:
    model = Replay([{"content": "half an ans", "finish": "interrupted"}, "a whole answer"])
    async with Agent(model).stream("go") as events:
        seen = [e async for e in events]
    assert next(type(e) for e in seen if not isinstance(e, TextDelta)) is RunStarted
    assert sum(isinstance(e, Retrying) for e in seen) == 1
    assert events.result.text == "a whole answer"
    assert [m.content for m in events.result.messages] == ["go", "a whole answer"]


# --- many at once -------------------------------------------------------------------------------------------------


async def test_two_principals_never_see_each_other() -> None:
    @tool(effect="read", permission="mail")
    async def inbox(context: ToolContext) -> str:
        "Mail."
        await asyncio.sleep(0.001)
        assert context.principal is not None
        return f"mail of {context.principal.id}"

    def reply(request: Any) -> Any:
        asker = request.messages[0].text
        results = [m.text for m in request.messages if m.role == "tool"]
        return f"{asker}: {results[0]}" if results else {"calls": [call("inbox")]}

    agent = Agent(Replay([reply] * 200), tools=[inbox])
    people = [Principal(f"u{n}", {"mail"} if n % 2 else set()) for n in range(100)]
    results = await asyncio.gather(*(agent.run(p.id, principal=p) for p in people))
    for person, result in zip(people, results, strict=True):
        said = f"mail of {person.id}" if person.grants else "permission"
        assert said in result.text
        assert result.messages[0].content == person.id
        assert len(result.calls) == 1
        seen = {m.text for m in result.messages if m.role == "tool"}
        assert not seen & {f"mail of {p.id}" for p in people if p is not person}


@pytest.mark.timeout(60)
async def test_a_thousand_runs_at_once() -> None:
    @tool(effect="read")
    async def wait(n: int) -> str:
        "Wait 50 ms."
        await asyncio.sleep(0.05)
        return f"waited {n}"

    def reply(request: Any) -> Any:
        n = int(request.messages[0].text)
        done = [m.text for m in request.messages if m.role == "tool"]
        return f"{n}: {done[0]}" if done else {"calls": [call("wait", n=n)]}

    agent = Agent(Replay([reply] * 3000), tools=[wait])
    gc.collect()
    tracemalloc.start()
    await asyncio.gather(*(agent.run(str(n)) for n in range(100)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100 * 100_000, "a run may take 100 kB"
    results = await asyncio.gather(*(agent.run(str(n)) for n in range(1000)))
    assert [r.text for r in results] == [f"{n}: waited {n}" for n in range(1000)]
    for result in results:
        kinds = [e.kind for e in await agent.ledger.read(result.run_id)]
        assert (kinds[0], kinds[-1], kinds.count("call_result")) == ("run_started", "run_finished", 1)


async def test_a_slow_reader_of_the_stream_slows_the_run_and_loses_nothing() -> None:
    words = [f"w{n} " for n in range(5000)]
    model = Replay([{"content": "".join(words), "chunks": [len(w) for w in words]}])
    async with Agent(model).stream("go") as events:
        await asyncio.sleep(0.05)
        assert len(events._waiting) <= 1100
        text = [e.text async for e in events if isinstance(e, TextDelta)]
    assert "".join(text) == "".join(words)


async def test_events_are_shown_only_when_they_are_recorded() -> None:
    @tool(effect="write")
    def put() -> str:
        "Put."
        return "ok"

    agent = Agent(Replay([{"calls": [call("put")]}, "done"]), tools=[put])
    async with agent.stream("go", run_id="r") as events:
        async for event in events:
            kinds = [e.kind for e in await agent.ledger.read("r")]
            if isinstance(event, CallFinished):
                assert "call_result" in kinds
            if isinstance(event, RunFinished):
                assert kinds[-1] == "run_finished"
    entries = await agent.ledger.read("r")
    order = [e.kind for e in entries if e.kind in ("call_judged", "call_intent", "call_result")]
    assert order == ["call_judged", "call_intent", "call_result"]
    assert json.dumps([dict(e.data) for e in entries])


def test_a_message_is_taken_as_a_prompt_and_parts_too() -> None:
    model = Replay(["a", "b"])
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    agent = Agent(model)
    agent.run_sync(Message("user", "hello"))
    agent.run_sync(parts)
    assert model.requests[0].messages[-1].text == "hello"
    assert model.requests[1].messages[-1].content == tuple(parts)


async def test_a_cancel_from_outside_is_never_taken_for_our_own() -> None:
    begun = asyncio.Event()

    @tool(effect="read")
    async def stubborn() -> str:
        "Takes its time to stop."
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(0.1)
        return "x"

    begun = asyncio.Event()
    for pause in (0.0, 0.05):
        begun.clear()
        agent = Agent(Replay([{"calls": [call("stubborn")]}]), tools=[stubborn])
        begun.clear()
        task = asyncio.ensure_future(agent.run("go", run_id="mine"))
        await begun.wait()
        assert await agent.cancel("mine")
        await asyncio.sleep(pause)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await agent.resume("mine")).reason == "cancelled"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await Agent(Replay([{"content": "slow", "delay": 5}])).run("go")
