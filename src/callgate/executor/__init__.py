"""The executor: runs the calls that the gate allowed, and brings each to exactly one result.

One law: `execute` gives one result for every call, in the order of the calls, whatever the tools do; and a write that
was once started is never started by it again.

Theory of operation. (1) `plan` cuts the calls into batches: neighbouring reads overlap, a write stands alone, and the
order of the calls is kept (X3); a tool that names others in `after` begins a new batch behind them. (2) Before a write
starts, `before_write` must have recorded it (X4); what that gives back instead of None is the call's result, and the
tool is not run. (3) Sync tools run in threads, others in tasks, `process` tools in a process of their own; each has a
real deadline (X5). (4) A cancel has three grades: what has not started never does; what runs is told (`cancelled()`,
`CancelledError`); what has not ended after `grace` seconds is abandoned, counted and reported (X6). (5) A write of
which nobody knows how it ended is looked up (`lookup`), at once and at most once; unless that tells, its outcome is
unknown. (6) Only reads are tried again, only after `UpstreamError`, only as often as the tool says.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, TypeAlias

from callgate.errors import UpstreamError
from callgate.events import CallProgress, CallStarted
from callgate.executor import _lookup as lookup
from callgate.executor._life import LOGGER, Ground, Life, NeverBegan, TooManyHung
from callgate.executor._outcomes import Outcome, Raised, message_of, not_started, result_of, single, words_of
from callgate.executor._processes import check_findable
from callgate.executor._threads import SHARED, Threads
from callgate.keys import idempotency_key
from callgate.masking import is_masked
from callgate.results import unknown_outcome
from callgate.tools import Tool, Toolbox, ToolContext
from callgate.types import EMPTY, Principal, ToolCall, ToolResult, ToolSpec

__all__ = ["Batch", "Caller", "Executor", "Hooks", "Threads", "plan"]

RETRY_PAUSE = 0.2
"""Seconds before the first retry; doubled each time, with jitter so that parallel reads do not knock in step."""

BeforeWrite: TypeAlias = "Callable[[ToolCall, ToolSpec, str], Awaitable[ToolResult | None]]"
After: TypeAlias = "Callable[[ToolCall, ToolResult, float | None], Awaitable[None]]"
Timed: TypeAlias = "tuple[ToolResult, float | None]"


def plan(calls: Sequence[ToolCall], specs: Mapping[str, ToolSpec]) -> list[list[ToolCall]]:
    """The calls in batches: those of one batch may overlap, a batch begins when the one before it has ended."""
    batches: list[list[ToolCall]] = []
    for call in calls:
        spec = specs.get(call.name)
        fits = bool(batches) and spec is not None and spec.effect == "read"
        for other in batches[-1] if fits else ():
            other_spec = specs.get(other.name)
            if other_spec is None or other_spec.effect == "write" or (spec is not None and other.name in spec.after):
                fits = False
        if fits:
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches


class Executor:
    """Runs tools. One may serve many runs at once."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        timeout: float = 30.0,
        max_parallel: int = 8,
        grace: float = 2.0,
        max_result: int = 8000,
        threads: Threads | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.timeout = timeout
        self.max_parallel = max(1, max_parallel)
        self.grace = grace
        self.max_result = max_result
        self.threads = threads or SHARED
        for tool in toolbox:
            if tool.spec.process:
                check_findable(tool)

    @property
    def abandoned(self) -> int:
        """How many threads of this process hang in tools that were given up."""
        return self.threads.abandoned

    async def execute(
        self,
        calls: Sequence[ToolCall],
        *,
        run_id: str = "",
        principal: Principal | None = None,
        on_event: Callable[[Any], None] | None = None,
        before_write: BeforeWrite | None = None,
        after: After | None = None,
        on_late: Callable[[ToolCall, ToolResult], None] | None = None,
        cancel: asyncio.Event | None = None,
        key: Callable[[ToolCall], str] | None = None,
        extra: Mapping[str, Any] = EMPTY,
    ) -> list[Timed]:
        """Runs the calls; (result, seconds or None) for each, in their order.

        `on_event` gets `CallStarted` and `CallProgress`. `before_write(call, spec, key)` records a write before it
        starts; an exception from it means that nothing is started any more. `after(call, result, seconds)` is awaited
        for every call as it ends. `on_late` is told what an abandoned write came to after all. `cancel` stops the
        batch in the three grades and lets it give its results; cancelling the task does the same, and then raises
        CancelledError, when `after` has seen every call. `key` gives other idempotency keys; `extra` is for injection.
        """
        hooks = Hooks(
            on_event or (lambda event: None),
            before_write,
            after,
            on_late,
            key or (lambda call: idempotency_key(run_id, call.id)),
        )
        batch = Batch(self, Caller(run_id, principal, extra), hooks, cancel)
        work = asyncio.get_running_loop().create_task(batch.run(calls))
        watch = asyncio.get_running_loop().create_task(_watch(cancel, batch)) if cancel is not None else None
        cancelled: asyncio.CancelledError | None = None
        try:
            while not work.done():
                try:
                    await asyncio.wait({work})
                except asyncio.CancelledError as error:
                    cancelled = error
                    batch.cancel()
        finally:
            if watch is not None:
                watch.cancel()
        results = work.result()
        if batch.propagate is not None:
            raise batch.propagate
        if cancelled is not None:
            raise cancelled  # the very one: cancel scopes know theirs by it
        return results

    async def look_up(
        self,
        call: ToolCall,
        *,
        run_id: str = "",
        principal: Principal | None = None,
        key: str | None = None,
        extra: Mapping[str, Any] = EMPTY,
        seconds: float | None = None,
    ) -> ToolResult | None:
        """What the tool's `lookup` says of a write whose outcome is unknown; None if it has none or does not know.

        `key` is the idempotency key that the write was started with (that of run and call, if not given). The lookup
        may take `seconds`, or else as long as the tool.
        """
        tool = self.toolbox.get(call.name)
        if tool is None or tool.lookup is None:
            return None
        context = ToolContext(
            principal=principal,
            run_id=run_id,
            call_id=call.id,
            idempotency_key=key or idempotency_key(run_id, call.id),
            logger=LOGGER.getChild(tool.name),
            extra=extra,
        )
        seconds = seconds or tool.spec.timeout or self.timeout
        outcome = await lookup.ask(tool, call, context, threads=self.threads, seconds=seconds)
        limit = tool.spec.max_result or self.max_result
        return None if outcome is None else result_of(call, tool.spec, outcome, limit=limit)


async def _watch(cancel: asyncio.Event, batch: Batch) -> None:
    await cancel.wait()
    batch.cancel()


@dataclass(slots=True, frozen=True)
class Caller:
    """On whose behalf a batch runs."""

    run_id: str
    principal: Principal | None
    extra: Mapping[str, Any] = field(default_factory=lambda: EMPTY)


@dataclass(slots=True, frozen=True)
class Hooks:
    """What the caller of `execute` wants to hear, and when."""

    on_event: Callable[[Any], None]
    before_write: BeforeWrite | None
    after: After | None
    on_late: Callable[[ToolCall, ToolResult], None] | None
    key: Callable[[ToolCall], str]


class Batch:
    """Calls that are carried out together. Whoever awaits `carry_out` itself must not be cancelled meanwhile: `execute`
    is for those who may be."""

    def __init__(
        self, executor: Executor, caller: Caller, hooks: Hooks, cancelled: asyncio.Event | None = None
    ) -> None:
        self.propagate: BaseException | None = None
        """A KeyboardInterrupt or SystemExit from a tool: passed on when every call has its result."""
        self._executor = executor
        self._caller = caller
        self._hooks = hooks
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ground = Ground(executor.threads, stop, executor.grace, hooks.on_event)
        self._room = asyncio.Semaphore(executor.max_parallel)
        self._why = "the run was cancelled"
        self._cancelled = cancelled

    @property
    def _stopped(self) -> bool:
        """Whether nothing may start any more; knows of a cancel before the watch has passed it on."""
        if self._cancelled is not None and self._cancelled.is_set():
            self.cancel()
        return self._ground.stop.done()

    def cancel(self, why: str = "the run was cancelled") -> None:
        """Stops the batch, in three grades."""
        if not self._ground.stop.done():
            self._why = why
            self._ground.stop.set_result(None)

    async def carry_out(self, calls: Sequence[ToolCall]) -> None:
        """Brings each call to its result, which the hook `after` gets."""
        await self.run(calls)
        if self.propagate is not None:
            raise self.propagate

    async def run(self, calls: Sequence[ToolCall]) -> list[Timed]:
        """One (result, seconds) a call, in order."""
        specs = {spec.name: spec for spec in self._executor.toolbox.specs}
        results: list[Timed] = []
        for batch in plan(calls, specs):
            if len(batch) == 1:
                results.append(await self._one(batch[0]))
            else:
                results += await asyncio.gather(*(self._in_room(call) for call in batch))
        return results

    async def _in_room(self, call: ToolCall) -> Timed:
        async with self._room:
            return await self._one(call)

    async def _one(self, call: ToolCall) -> Timed:
        """Exactly one result, and `after` has seen it. Raises nothing."""
        start: float | None = None
        try:
            tool = self._executor.toolbox.get(call.name)
            early = await self._may_start(call, tool)
            if early is not None or tool is None:
                result = early or not_started(call, "there is no such tool")
            else:
                self._hooks.on_event(CallStarted(call.id, call.name))
                start = monotonic()
                result = await self._started(call, tool)
        except Exception as error:  # ours or a callback's, never the tool's
            LOGGER.exception("the executor failed at %s", call.name)
            self.cancel("an earlier call could not be carried out")
            result = (
                not_started(call, f"an error before it: {message_of(error)}")
                if start is None
                else unknown_outcome(call, "an error inside callgate")
            )
        seconds = None if start is None else monotonic() - start
        await self._tell_after(call, result, seconds)
        return result, seconds

    async def _may_start(self, call: ToolCall, tool: Tool | None) -> ToolResult | None:
        """None if the call may start now; else its result."""
        if self._stopped:
            return not_started(call, self._why)
        if tool is None:
            return ToolResult(call.id, "unknown_tool", f"unknown tool {call.name!r}")
        if tool.function is None:
            return not_started(call, "there is only a description of it here, and no function")
        if is_masked(call.arguments):
            return not_started(call, "its arguments contain a masked secret, so they are not what was asked for")
        if tool.spec.effect != "write" or self._hooks.before_write is None:
            return None
        try:
            early = await self._hooks.before_write(call, tool.spec, self._hooks.key(call))
        except Exception as error:
            self.cancel("an earlier write could not be recorded")
            return not_started(call, f"it could not be recorded: {message_of(error)}")
        if early is None and self._stopped:  # the cancel came while it was recorded (X6)
            return not_started(call, self._why)
        return early

    async def _started(self, call: ToolCall, tool: Tool) -> ToolResult:
        spec = tool.spec
        limit = spec.max_result or self._executor.max_result
        key = self._hooks.key(call)
        context = ToolContext(
            principal=self._caller.principal,
            run_id=self._caller.run_id,
            call_id=call.id,
            idempotency_key=key,
            logger=LOGGER.getChild(tool.name),
            extra=self._caller.extra,
        )
        life = Life(self._ground, tool, call, context=context, timeout=spec.timeout or self._executor.timeout)
        life.late = lambda outcome: self._late(call, spec, outcome, limit)
        life.words = lambda value: words_of(value, limit)
        try:
            outcome = await self._attempts(life, spec, call)
        except TooManyHung:
            return not_started(call, f"{self._executor.abandoned} calls of this process hang already")
        except NeverBegan:
            return not_started(call, self._why)
        if isinstance(outcome, Raised) and isinstance(outcome.error, (KeyboardInterrupt, SystemExit)):
            self.propagate = outcome.error
            self.cancel("the program is being stopped")
        result = result_of(call, spec, outcome, limit=limit)
        if result.status == "unknown_outcome":
            c = self._caller
            seconds = self._executor.grace if self._ground.stop.done() else None  # whoever cancels does not wait long
            found = await self._executor.look_up(
                call, run_id=c.run_id, principal=c.principal, key=key, extra=c.extra, seconds=seconds
            )
            return found or result
        return result

    async def _attempts(self, life: Life, spec: ToolSpec, call: ToolCall) -> Outcome:
        outcome = await life.attempt()
        for number in range(1, spec.retries + 1 if spec.effect == "read" else 1):
            if not (isinstance(outcome, Raised) and isinstance(single(outcome.error), UpstreamError)):
                break
            pause = RETRY_PAUSE * 2 ** (number - 1) * (0.5 + random.random())  # noqa: S311 - jitter, no secret
            await asyncio.wait({self._ground.stop}, timeout=pause)
            if self._ground.stop.done():
                break
            told = {"attempt": number + 1, "after": message_of(outcome.error)}
            self._hooks.on_event(CallProgress(call.id, told))
            outcome = await life.attempt()
        return outcome

    def _late(self, call: ToolCall, spec: ToolSpec, outcome: Outcome, limit: int) -> None:
        """An abandoned call has ended after all."""
        if self._hooks.on_late is None or spec.effect != "write":
            return
        result = result_of(call, spec, outcome, limit=limit)
        if result.status != "unknown_outcome":
            self._hooks.on_late(call, result)

    async def _tell_after(self, call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        if self._hooks.after is None:
            return
        try:
            if result.call_id != call.id:  # a callback's, or of an earlier call
                result = replace(result, call_id=call.id)
            await self._hooks.after(call, result, seconds)
        except Exception:
            LOGGER.exception("the result of %s could not be recorded", call.name)
            self.cancel("the result of an earlier call could not be recorded")
