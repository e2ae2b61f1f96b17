"""How started calls end when they do not end by themselves: deadlines, cancelling, lookups, processes."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest

from batches import execute
from callgate import Agent, Replay
from callgate.errors import LedgerError, NoEffect
from callgate.executor import Caller, Executor
from callgate.keys import idempotency_key
from callgate.tools import Tool, Toolbox, ToolContext
from callgate.types import ToolCall, ToolResult, ToolSpec
from patience import busy, eventually

pytestmark = pytest.mark.anyio


def call(name: str, number: int = 1, **arguments: Any) -> ToolCall:
    return ToolCall(f"c{number}", name, arguments, index=number - 1)


def make(function: Any, effect: str = "write", **declared: Any) -> Tool:
    return Tool.from_function(function, effect=effect, **declared)


async def run(*tools: Tool, calls: list[ToolCall] | None = None, **options: Any) -> list[ToolResult]:
    given = {k: options.pop(k) for k in ("timeout", "grace", "max_parallel") if k in options}
    executor = Executor(Toolbox(tools), **{"grace": 0.2, "timeout": 5, **given})
    wanted = calls or [call(t.name, i) for i, t in enumerate(tools, 1)]
    return [result for result, _ in await execute(executor, wanted, **options)]


# --- deadlines ----------------------------------------------------------------------------------------------------


async def test_a_sync_write_that_takes_too_long_is_of_unknown_outcome_at_its_deadline() -> None:  # B163
    rows: list[int] = []
    late: list[ToolResult] = []

    def add() -> str:
        time.sleep(0.3)
        rows.append(1)
        return "added"

    begun = time.monotonic()
    (result,) = await run(make(add, timeout=0.1), on_late=lambda call, result: late.append(result))
    assert time.monotonic() - begun < 0.25 * busy()
    assert result.status == "unknown_outcome"
    assert "may have taken effect" in result.content
    await eventually(lambda: late)
    assert rows == [1]
    assert [(r.status, r.content) for r in late] == [("ok", "added")]


async def test_a_read_that_takes_too_long_times_out() -> None:
    async def slow() -> None:
        await asyncio.sleep(5)

    def hang() -> None:
        time.sleep(0.5)

    begun = time.monotonic()
    results = await run(make(slow, "read", timeout=0.1), make(hang, "read", timeout=0.1))
    assert time.monotonic() - begun < 0.4 * busy()
    assert [r.status for r in results] == ["timeout", "timeout"]


async def test_a_tool_that_will_not_be_cancelled_is_abandoned_after_the_grace() -> None:
    end = asyncio.Event()

    async def stubborn() -> str:
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        return "after all"

    late: list[str] = []
    begun = time.monotonic()
    (result,) = await run(make(stubborn, timeout=0.1), on_late=lambda call, result: late.append(result.content))
    assert time.monotonic() - begun < 0.6 * busy()
    assert result.status == "unknown_outcome"
    end.set()
    await eventually(lambda: late)
    assert late == ["after all"]


async def test_waiting_for_a_free_thread_does_not_count_against_the_deadline() -> None:
    from callgate.executor import Threads

    def nap() -> str:
        time.sleep(0.15)
        return "done"

    executor = Executor(Toolbox([make(nap, "read", timeout=0.3)]), threads=Threads(max_threads=1))
    timed = await execute(executor, [call("nap", i) for i in (1, 2, 3, 4)])
    assert [r.status for r, _ in timed] == ["ok"] * 4


# --- cancelling ---------------------------------------------------------------------------------------------------


async def cancelled_after(seconds: float, *tools: Tool, **options: Any) -> list[ToolResult]:
    return await run(*tools, cancel_after=seconds, **options)


async def test_what_has_not_started_never_does_and_what_runs_is_told() -> None:
    log: list[str] = []

    def first(context: ToolContext) -> None:
        while not context.cancelled():
            time.sleep(0.005)
        log.append("first saw it")
        raise NoEffect("stopped in time")

    def second() -> None:
        log.append("second ran")

    results = await cancelled_after(0.05, make(first), make(second))
    assert [r.status for r in results] == ["failed", "not_started"]
    assert log == ["first saw it"]


async def test_a_cancelled_read_is_cancelled_and_a_cancelled_write_is_of_unknown_outcome() -> None:
    async def wait() -> None:
        await asyncio.sleep(5)

    assert [r.status for r in await cancelled_after(0.05, make(wait, "read"))] == ["cancelled"]
    assert [r.status for r in await cancelled_after(0.05, make(wait, "write"))] == ["unknown_outcome"]


async def test_what_a_tool_says_when_it_is_cancelled_is_its_result() -> None:  # B171
    async def term() -> str:
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            return "Status: cancelled"
        return "done"

    (result,) = await cancelled_after(0.05, make(term))
    assert (result.status, result.content) == ("ok", "Status: cancelled")


async def test_a_sync_generator_stops_between_its_yields() -> None:
    closed: list[bool] = []

    def steps() -> Any:
        try:
            while True:
                time.sleep(0.005)
                yield "step"
        finally:
            closed.append(True)

    (result,) = await cancelled_after(0.05, make(steps, "read"))
    assert (result.status, closed) == ("cancelled", [True])


async def test_a_hanging_thread_is_abandoned_after_the_grace() -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait(5)

    begun = time.monotonic()
    (result,) = await cancelled_after(0.05, make(hang, "read"))
    assert time.monotonic() - begun < 0.5 * busy()
    assert result.status == "cancelled"
    release.set()


@pytest.mark.parametrize("how", ["task", "scope"])
async def test_cancelling_the_task_records_every_call_before_it_raises(how: str) -> None:
    ran: list[str] = []
    stops: list[Callable[[], Any]] = []

    async def wait() -> None:
        asyncio.get_running_loop().call_later(0.02, stops[0])
        await asyncio.sleep(5)

    def never() -> None:
        ran.append("never")

    agent = Agent(Replay([calls_of("wait", "never")]), tools=[make(wait), make(never)], grace=0.2)
    work = agent.run("go", run_id="r")
    if how == "task":
        task = asyncio.create_task(work)
        stops.append(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with anyio.CancelScope() as scope:
            stops.append(scope.cancel)
            await work
        assert scope.cancelled_caught
    entries = await agent.ledger.read("r")
    ends = [(e.data["tool"], e.data["result"]["status"]) for e in entries if e.kind == "call_result"]
    assert (sorted(ends), ran) == ([("never", "not_started"), ("wait", "unknown_outcome")], [])
    assert (entries[-1].kind, entries[-1].data["reason"]) == ("run_finished", "cancelled")


def calls_of(*names: str) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": {}} for name in names]}


# --- writes -------------------------------------------------------------------------------------------------------


async def test_a_write_is_recorded_before_it_starts_and_a_read_is_not() -> None:
    log: list[str] = []

    async def before(call: ToolCall, spec: ToolSpec, key: str) -> None:
        log.append(f"record {call.name} {key == idempotency_key('r', call.id)}")

    def pay() -> None:
        log.append("pay")

    def look() -> None:
        log.append("look")

    await run(make(pay), make(look, "read"), before_write=before, run_id="r")
    assert log == ["record pay True", "pay", "look"]


async def test_what_cannot_be_recorded_is_not_run_nor_anything_after_it() -> None:
    ran: list[str] = []

    async def before(call: ToolCall, spec: ToolSpec, key: str) -> None:
        raise LedgerError("the disk is full")

    def pay() -> None:
        ran.append("pay")

    def look() -> None:
        ran.append("look")

    results = await run(make(pay), make(look, "read"), before_write=before)
    assert [r.status for r in results] == ["not_started", "not_started"]
    assert "the disk is full" in results[0].content
    assert ran == []


async def test_a_result_that_cannot_be_recorded_stops_what_follows() -> None:
    async def after(call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        raise LedgerError("the disk is full")

    ran: list[str] = []

    def pay(n: int) -> None:
        ran.append(f"pay {n}")

    results = await run(make(pay), calls=[call("pay", 1, n=1), call("pay", 2, n=2)], after=after)
    assert ([r.status for r in results], ran) == (["ok", "not_started"], ["pay 1"])


async def test_an_answer_from_the_ledger_is_the_result_and_nothing_runs() -> None:
    ran: list[str] = []

    async def before(call: ToolCall, spec: ToolSpec, key: str) -> ToolResult:
        return ToolResult(call.id, "ok", "paid before", replayed=True)

    def pay() -> None:
        ran.append("pay")

    (result,) = await run(make(pay), before_write=before)
    assert (result.content, result.replayed, ran) == ("paid before", True, [])


def _found(key: str, arguments: dict[str, Any]) -> str:
    return f"found {key[:4]} {arguments['n']}"


def _open(key: str, arguments: dict[str, Any]) -> None:
    return None


def _never_happened(key: str, arguments: dict[str, Any]) -> None:
    raise NoEffect("no trace of it, and none will come")


def _broken(key: str, arguments: dict[str, Any]) -> None:
    raise OSError("the service is down")


def _hangs(key: str, arguments: dict[str, Any]) -> None:
    time.sleep(0.5)


async def _found_async(key: str, arguments: dict[str, Any]) -> str:
    await asyncio.sleep(0)
    return f"found {key[:4]} {arguments['n']}"


def _found_by_name(n: int, context: ToolContext) -> str:
    return f"found {context.idempotency_key[:4]} {n}"


@pytest.mark.parametrize(
    ("lookup", "status"),
    [
        (_found, "ok"),
        (_found_async, "ok"),
        (_found_by_name, "ok"),
        (_never_happened, "failed"),
        (_open, "unknown_outcome"),
        (_broken, "unknown_outcome"),
        (_hangs, "unknown_outcome"),
        (None, "unknown_outcome"),
    ],
)
async def test_a_lookup_settles_a_write_of_unknown_outcome(lookup: Callable[..., Any] | None, status: str) -> None:
    def pay(n: int) -> None:
        raise ConnectionError("lost")

    tool = make(pay, lookup=lookup, timeout=0.2)
    (result,) = await run(tool, calls=[call("pay", 1, n=7)], run_id="r")
    assert result.status == status
    if status == "ok":
        assert result.content == f"found {idempotency_key('r', 'c1')[:4]} 7"
    asked = await Executor(Toolbox([tool])).look_up(
        call("pay", 1, n=7), Caller(ToolContext(run_id="r")), idempotency_key("r", "c1")
    )
    assert (asked.status if asked else "unknown_outcome") == status


async def test_only_unknown_outcomes_are_looked_up() -> None:
    asked: list[str] = []

    def lookup(key: str, arguments: dict[str, Any]) -> str:
        asked.append(key)
        return "found"

    def fine() -> str:
        return "done"

    def refused() -> None:
        raise NoEffect("no")

    results = await run(make(fine, lookup=lookup), make(refused, lookup=lookup))
    assert ([r.status for r in results], asked) == (["ok", "failed"], [])


# --- what tools get up to ---


async def test_the_deadline_holds_for_a_function_that_gives_a_coroutine_or_a_generator() -> None:
    async def inner(n: int) -> int:
        await asyncio.sleep(n)
        return n

    def steps(n: int) -> Any:
        yield n
        return n + 1

    tools = [
        Tool.from_function(lambda n: inner(n), name="coroutine", effect="read"),
        Tool.from_function(lambda n: steps(n), name="generator", effect="read"),
    ]
    calls = [call("coroutine", 1, n=0), call("coroutine", 2, n=9), call("generator", 3, n=1)]
    results = await run(*tools, calls=calls, timeout=0.1)
    assert [(r.status, r.value) for r in results] == [("ok", 0), ("timeout", None), ("ok", 2)]


async def test_a_tool_that_reports_without_end_neither_fills_the_memory_nor_stops_the_loop() -> None:
    def flood() -> Any:
        while True:
            yield "x"

    async def flood_async() -> Any:
        while True:
            yield "x"

    for function in (flood, flood_async):
        seen = 0

        def heard(event: Any) -> None:
            nonlocal seen
            seen += 1

        begun = time.monotonic()
        (result,) = await run(make(function, "read"), timeout=0.2, on_event=heard)
        assert result.status == "timeout"
        assert time.monotonic() - begun < 1.5 * busy()
        assert seen > 1


async def test_a_cancel_that_came_before_starts_nothing() -> None:
    ran: list[str] = []

    def pay() -> None:
        ran.append("pay")

    (result,) = await run(make(pay), cancel_after=0)
    assert (result.status, ran) == ("not_started", [])


async def test_whoever_cancels_does_not_wait_for_a_slow_lookup() -> None:
    async def pay() -> None:
        await asyncio.sleep(9)

    def lookup(key: str, arguments: dict[str, Any]) -> None:
        time.sleep(2)

    begun = time.monotonic()
    (result,) = await cancelled_after(0.05, make(pay, lookup=lookup), grace=0.2)
    assert result.status == "unknown_outcome"
    assert time.monotonic() - begun < 1 * busy()
