"""No NoEffect while our own thread, task or process is alive."""

from __future__ import annotations

import asyncio
import threading
import time
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batches import Watcher, execute
from callgate.errors import NoEffect
from callgate.executor import Caller, Executor, Threads
from callgate.executor._at_work import AtWork
from callgate.keys import idempotency_key
from callgate.tools import Tool, Toolbox, ToolContext
from callgate.types import ToolCall, ToolResult
from patience import eventually

Kind = Literal["sync", "async", "steps"]
Ending = Literal["pays", "no effect", "breaks"]
LOOKS: tuple[str, ...] = ("NoEffect", "group", "async NoEffect")


class Bank:
    """Where the tool pays, at the moment that a test chooses."""

    def __init__(self, kind: Kind, ending: Ending, look: str) -> None:
        self.release = threading.Event()
        self.ended = threading.Event()
        self.paid: list[str] = []
        self.ending, self.look = ending, look
        work: Any = {"sync": self.sync, "async": self.asynchronous, "steps": self.steps}[kind]
        lookup: Any = self.lookup_async if look == "async NoEffect" else self.lookup
        self.tool = Tool.from_function(work, name="pay", effect="write", lookup=lookup)

    def end(self, key: str) -> str:
        try:
            if self.ending == "no effect":
                raise NoEffect("the account is closed")
            if self.ending == "breaks":
                raise ConnectionError("lost")
            self.paid.append(key)
            return "paid"
        finally:
            self.ended.set()

    def sync(self, context: ToolContext) -> str:
        self.release.wait(5)
        return self.end(context.idempotency_key)

    async def asynchronous(self, context: ToolContext) -> str:
        while not self.release.is_set():
            try:
                await asyncio.sleep(0.002)
            except asyncio.CancelledError:  # it ignores cancels
                continue
        return self.end(context.idempotency_key)

    def steps(self, context: ToolContext) -> Any:
        yield "begun"
        self.release.wait(5)
        return self.end(context.idempotency_key)

    def lookup(self, key: str) -> str:
        if key in self.paid:
            return "paid (found)"
        error = NoEffect("no trace of it")
        raise ExceptionGroup("one", [error]) if self.look == "group" else error

    async def lookup_async(self, key: str) -> str:
        await asyncio.sleep(0)
        return self.lookup(key)


async def abandoned(bank: Bank, cancel: bool) -> tuple[ToolResult, Watcher, Executor, ToolCall]:
    call = ToolCall("c1", "pay", {})
    executor = Executor(Toolbox([bank.tool]), timeout=5 if cancel else 0.02, grace=0.02, threads=Threads(max_threads=8))
    watcher = Watcher("r")
    ((result, _),) = await execute(executor, [call], watcher=watcher, cancel_after=0.02 if cancel else None)
    return result, watcher, executor, call


async def story(kind: Kind, ending: Ending, look: str, cancel: bool) -> None:
    bank = Bank(kind, ending, look)
    result, watcher, executor, call = await abandoned(bank, cancel)
    assert result.status == "unknown_outcome", "the call is alive: no lookup can know that it never happens"
    key = idempotency_key("r", "c1")
    other = Executor(Toolbox([bank.tool]), threads=Threads(max_threads=8))  # of another agent of this process
    for asking in (executor, other):
        known = await asking.look_up(call, Caller(ToolContext(run_id="r2")), key, seconds=1)
        assert known is None
    assert bank.paid == []
    bank.release.set()
    await asyncio.to_thread(bank.ended.wait, 5)
    asked = partial(executor.look_up, call, Caller(ToolContext(run_id="r")), key, seconds=1)
    await eventually(asked)  # the call has ended: now the lookup knows
    known = await asked()
    assert known is not None
    assert (known.status == "ok") == bool(bank.paid)
    if ending != "breaks":
        await eventually(lambda: watcher.late)
        assert [r.status for r in watcher.late] == ["ok" if bank.paid else "failed"]


@settings(max_examples=36, deadline=None)
@given(
    st.sampled_from(["sync", "async", "steps"]),
    st.sampled_from(["pays", "no effect", "breaks"]),
    st.sampled_from(LOOKS),
    st.booleans(),
)
def test_no_effect_is_not_believed_while_the_call_is_alive(kind: Kind, ending: Ending, look: str, cancel: bool) -> None:
    if kind == "steps" and cancel:  # a generator that is cancelled ends between its yields
        return
    asyncio.run(story(kind, ending, look, cancel))


def test_a_write_that_ended_by_itself_is_looked_up_and_believed_at_once() -> None:
    def pay() -> None:
        raise ConnectionError("lost before it was sent")

    def lookup(key: str) -> None:
        raise NoEffect("no trace of it")

    tool = Tool.from_function(pay, effect="write", lookup=lookup)
    ((result, _),) = asyncio.run(execute(Executor(Toolbox([tool])), [ToolCall("c1", "pay", {})]))
    assert result.status == "failed"


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), max_size=30))
def test_marks_count_every_execution_once(steps: list[tuple[str, int]]) -> None:
    marks = AtWork()
    open_marks: dict[str, list[Any]] = {"a": [], "b": []}
    for key, end in steps:
        if end and open_marks[key]:
            mark = open_marks[key].pop()
            mark.end()
            mark.end()
        else:
            open_marks[key].append(marks.begin(key))
        assert {k for k in "ab" if k in marks} == {k for k in "ab" if open_marks[k]}


@pytest.mark.anyio
async def test_three_agents_in_a_row_pay_once_although_the_lookup_finds_nothing(tmp_path: Any) -> None:
    """The tool sleeps beyond its timeout and pays then; its lookup truly finds nothing meanwhile."""
    from callgate import Agent, Replay

    paid: list[str] = []

    def pay(amount: int, context: ToolContext) -> str:
        time.sleep(0.4)
        paid.append(context.idempotency_key)
        return "paid"

    def lookup(key: str, arguments: Any) -> str:
        if key in paid:
            return "paid (found)"
        raise NoEffect("no trace of it")

    tool = Tool.from_function(pay, effect="write", timeout=0.1, lookup=lookup)
    asks = {"calls": [{"name": "pay", "arguments": {"amount": 5}}]}
    where = f"sqlite:{tmp_path / 'runs.db'}"
    async with Agent(Replay([asks, asks, asks, "done"]), tools=[tool], ledger=where) as agent:
        result = await agent.run("pay 5", run_id="r")
        assert {r.result.status for r in result.calls} <= {"unknown_outcome", "ok"}

        async def is_settled() -> bool:
            write = await agent.ledger.write("r", result.calls[0].call.id)
            return write is not None and write.result is not None and write.result.status == "ok"

        await eventually(is_settled)  # by the late result
        assert len(paid) == 1
