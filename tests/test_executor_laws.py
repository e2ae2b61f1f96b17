"""The law of the executor, over random tools, calls and cancels."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batches import execute
from callgate.errors import Denied, NoEffect, NotFound, UpstreamError
from callgate.executor import Executor, Threads
from callgate.tools import Tool, Toolbox, ToolContext
from callgate.types import ToolCall, ToolResult, ToolSpec

TICK = 0.02
ERRORS = {
    "NoEffect": NoEffect,
    "NotFound": NotFound,
    "Denied": Denied,
    "UpstreamError": UpstreamError,
    "ValueError": ValueError,
    "OSError": OSError,
}
CERTAIN = {"ok", "failed", "not_found", "denied"}
WRITE_ENDS = CERTAIN | {"unknown_outcome", "not_started", "invalid_arguments"}
READ_ENDS = CERTAIN | {"timeout", "upstream_error", "cancelled", "not_started", "invalid_arguments"}


class World:
    """What the tools do to it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[str, str] = {}
        self.started: list[str] = []
        self.overlaps: list[tuple[str, str]] = []

    def enter(self, call_id: str, effect: str) -> None:
        with self.lock:
            self.started.append(call_id)
            self.overlaps += [(call_id, other) for other, e in self.running.items() if "write" in (effect, e)]
            self.running[call_id] = effect

    def leave(self, call_id: str) -> None:
        with self.lock:
            self.running.pop(call_id, None)


def tools_of(world: World) -> Toolbox:
    """One tool for each way to run and each effect; what it does is in its arguments."""

    def end(how: str) -> str:
        if how in ERRORS:
            raise ERRORS[how](how)
        return how

    def sync(effect: str) -> Any:
        def work(ticks: int, how: str, context: ToolContext) -> str:
            world.enter(context.call_id, effect)
            try:
                time.sleep(ticks * TICK)
                return end(how)
            finally:
                world.leave(context.call_id)

        return work

    def coroutine(effect: str) -> Any:
        async def work(ticks: int, how: str, context: ToolContext) -> str:
            world.enter(context.call_id, effect)
            try:
                await asyncio.sleep(ticks * TICK)
                return end(how)
            except asyncio.CancelledError:
                if how == "stubborn":
                    return "stopped"
                raise
            finally:
                world.leave(context.call_id)

        return work

    def steps(effect: str) -> Any:
        def work(ticks: int, how: str, context: ToolContext) -> Any:
            world.enter(context.call_id, effect)
            try:
                for n in range(ticks):
                    time.sleep(TICK)
                    yield n
                return end(how)
            finally:
                world.leave(context.call_id)

        return work

    made = []
    for effect in ("read", "write"):
        for name, maker in (("sync", sync), ("async", coroutine), ("steps", steps)):
            made.append(Tool.from_function(maker(effect), name=f"{name}_{effect}", effect=effect))
    return Toolbox(made)


names = st.sampled_from([f"{kind}_{effect}" for kind in ("sync", "async", "steps") for effect in ("read", "write")])
acts = st.tuples(
    names | st.just("nobody"),
    st.sampled_from([0, 0, 1, 2, 6]),
    st.sampled_from([*ERRORS, "fine", "fine", "fine", "stubborn"]),
)


async def carry_out(
    toolbox: Toolbox, calls: list[ToolCall], cancel_at: float | None, record: dict[str, str]
) -> tuple[list[ToolResult], list[str]]:
    told: list[str] = []

    async def before(call: ToolCall, spec: ToolSpec, key: str) -> None:
        assert call.id not in record, "recorded once"
        record[call.id] = key

    async def after(call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        told.append(call.id)

    executor = Executor(toolbox, timeout=4 * TICK, grace=2 * TICK, max_parallel=3, threads=Threads(max_threads=4))
    timed = await execute(executor, calls, run_id="r", before_write=before, after=after, cancel_after=cancel_at)
    return [result for result, _ in timed], told


@settings(max_examples=40, deadline=None)
@given(st.lists(acts, max_size=7), st.none() | st.floats(0, 8 * TICK))
def test_every_call_has_one_result_in_order_and_writes_stand_alone(
    wanted: list[tuple[str, int, str]], cancel_at: float | None
) -> None:
    world = World()
    calls = [ToolCall(f"c{n}", name, {"ticks": ticks, "how": how}) for n, (name, ticks, how) in enumerate(wanted)]
    record: dict[str, str] = {}
    results, told = asyncio.run(carry_out(tools_of(world), calls, cancel_at, record))
    assert [r.call_id for r in results] == [c.id for c in calls]
    assert sorted(told) == sorted(c.id for c in calls)
    assert len(world.started) == len(set(world.started)), "nothing ran twice"
    for call, result in zip(calls, results, strict=True):
        effect = call.name.rpartition("_")[2]
        if call.name == "nobody":
            assert result.status in ("unknown_tool", "not_started")
            continue
        assert result.status in (WRITE_ENDS if effect == "write" else READ_ENDS)
        if result.status == "not_started":
            assert call.id not in world.started
        if effect == "write":
            assert call.id in record or result.status == "not_started", "recorded before it started"
        if result.status == "ok":
            assert result.content in ("fine", "stubborn", "stopped"), "ok only if the tool said so"
    hanging = {
        c.id for c, r in zip(calls, results, strict=True) if r.status in ("timeout", "unknown_outcome", "cancelled")
    }
    assert all(other in hanging or me in hanging for me, other in world.overlaps), "a write overlaps nothing that lives"
