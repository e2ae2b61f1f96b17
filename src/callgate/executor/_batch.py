"""Calls that are carried out together.

Law: that of the room (callgate/executor/__init__.py).

The rules that the comments cite are numbered there.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from callgate.errors import UpstreamError
from callgate.events import CallProgress, CallStarted
from callgate.executor._endings import Outcome, Raised, single
from callgate.executor._invocation import LOGGER, BatchContext, Invocation
from callgate.executor._outcomes import message_of, not_started, result_of
from callgate.executor._tracebacks import harmless, is_surprise
from callgate.masking import Masking
from callgate.results import unknown_outcome
from callgate.types import ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from callgate.executor._executor import Caller, Executor
    from callgate.tools import Tool

TOOL_LOGGER = logging.getLogger("callgate.tools")

RETRY_PAUSE = 0.2
"""Seconds before the first retry; doubled each time, with jitter so that parallel reads do not knock in step."""


class Observer(Protocol):
    """The one for whom a batch runs: it records, shows, and may keep a write from starting."""

    def key_of(self, call: ToolCall) -> str:
        """The idempotency key of a call."""
        ...

    def on_event(self, event: CallStarted | CallProgress) -> None:
        """A call has started, or reports progress."""
        ...

    def admit(self, call: ToolCall, spec: ToolSpec) -> ToolResult | None:
        """Counts a call that is about to start; its result, if it is one too many. `after` with None for its seconds
        means that it did not start after all."""
        ...

    async def before_write(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult | None:
        """Records a write before it starts. A result instead of None is the call's, and the tool is not run; an
        exception means that nothing is started any more."""
        ...

    def obstacle(self) -> str | None:
        """Why a recorded write may not begin after all; None: it may. Called from any thread."""
        ...

    async def after(self, call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        """The one result of a call; `seconds` is None if it never started."""
        ...

    def on_late(self, call: ToolCall, result: ToolResult) -> None:
        """What an abandoned write came to after all."""
        ...


def plan(calls: Sequence[ToolCall], specs: Mapping[str, ToolSpec]) -> list[list[ToolCall]]:
    """The calls in batches: those of one batch may overlap, a batch begins when the one before it has ended."""
    batches: list[list[ToolCall]] = []
    for call in calls:
        if batches and _may_join(call, batches[-1], specs):
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches


def _may_join(call: ToolCall, batch: Sequence[ToolCall], specs: Mapping[str, ToolSpec]) -> bool:
    spec = specs.get(call.name)
    if spec is None or spec.effect == "write":
        return False
    others = [specs.get(other.name) for other in batch]
    return all(other is not None and other.effect != "write" and other.name not in spec.after for other in others)


class Batch:
    """One batch of calls. The task that awaits `carry_out` must not be cancelled meanwhile: await it in a task of its
    own and call `cancel`, as the agent's driver does."""

    def __init__(self, executor: Executor, caller: Caller, observer: Observer) -> None:
        self._executor = executor
        self._caller = caller
        self._observer = observer
        stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._context = BatchContext(executor.threads, stop, executor.grace, observer.on_event, observer.obstacle)
        # Of this batch alone: a run with slow tools takes no place of another's.
        self._slots = asyncio.Semaphore(executor.max_parallel)
        self._propagate: BaseException | None = None
        """A KeyboardInterrupt or SystemExit from a tool: passed on when every call has its result."""

    @property
    def _stopped(self) -> bool:
        return self._context.stop.done()

    def cancel(self, reason: str = "the run was cancelled") -> None:
        """Stops the batch, in three grades (rule 4). The first reason counts."""
        if not self._stopped:
            self._context.reason = reason
            self._context.stop.set_result(None)

    async def carry_out(self, calls: Sequence[ToolCall]) -> None:
        """Brings each call to its one result, which the observer gets."""
        specs = {spec.name: spec for spec in self._executor.toolbox.specs}
        for batch in plan(calls, specs):  # rule 1
            if len(batch) == 1:
                await self._one(batch[0])
            else:
                # `gather` leaves the others unwatched when one raises; `_one` raises nothing, so all of them end here.
                await asyncio.gather(*(self._in_slot(call) for call in batch))
        # Only now: asyncio lets a KeyboardInterrupt through its loop at once, and calls beside it would have no result.
        if self._propagate is not None:
            raise self._propagate

    async def _in_slot(self, call: ToolCall) -> None:
        async with self._slots:
            await self._one(call)

    async def _one(self, call: ToolCall) -> None:
        """Exactly one result, and the observer has it. Raises nothing."""
        start: float | None = None
        try:
            tool = self._executor.toolbox.get(call.name)
            # Before `CallStarted`: what is refused was never started, and nobody should see that it was.
            early = await self._may_start(call, tool)
            if early is not None or tool is None:
                result = early or not_started(call, "there is no such tool")
            else:
                self._observer.on_event(CallStarted(call.id, call.name))
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
        seconds = None if start is None or result.status == "not_started" else round(monotonic() - start, 6)
        await self._deliver(call, result, seconds)

    async def _may_start(self, call: ToolCall, tool: Tool | None) -> ToolResult | None:
        """None if the call may start now; else its result."""
        if self._stopped:
            return not_started(call, self._context.reason)
        if tool is None:
            return ToolResult(call.id, "unknown_tool", f"unknown tool {call.name!r}")
        # JSON descriptions may be offered to the model; to run them is the application's own affair.
        if tool.function is None:
            return not_started(call, "there is only a description of it here, and no function")
        over = self._observer.admit(call, tool.spec)
        if over is not None or tool.spec.effect != "write":
            return over
        return await self._record(call, tool.spec)

    async def _record(self, call: ToolCall, spec: ToolSpec) -> ToolResult | None:
        """The write is recorded (rule 2); its result, if it may not start."""
        try:
            early = await self._observer.before_write(call, spec, self._observer.key_of(call))
        except Exception as error:
            self.cancel("an earlier write could not be recorded")
            return not_started(call, f"it could not be recorded: {message_of(error)}")
        if early is None and self._stopped:  # the cancel came while it was recorded (X6)
            return not_started(call, self._context.reason)
        return early

    async def _started(self, call: ToolCall, tool: Tool) -> ToolResult:
        spec = tool.spec
        limit = spec.max_result or self._executor.max_result
        key = self._observer.key_of(call)
        masking = self._caller.masking(spec, call)  # from now on, for results of calls beside it too
        invocation = Invocation(
            self._context,
            tool,
            call,
            context=self._caller.context(tool, call, key),
            timeout=spec.timeout or self._executor.timeout,
            limit=limit,
            late=functools.partial(self._ended_late, call, spec, limit),
        )
        outcome = await self._attempts(invocation, spec, call)
        if isinstance(outcome, Raised) and isinstance(outcome.error, (KeyboardInterrupt, SystemExit)):
            self._propagate = outcome.error
            self.cancel("the program is being stopped")
        result = _with_error(result_of(call, spec, outcome, limit=limit, masking=masking), spec, outcome, masking)
        if result.status == "unknown_outcome":  # rule 5
            seconds = self._executor.grace if self._stopped else None  # whoever cancels does not wait long
            known = await self._executor.look_up(call, self._caller, key, seconds=seconds)
            return result if known is None else replace(known, error=result.error)
        return result

    async def _attempts(self, invocation: Invocation, spec: ToolSpec, call: ToolCall) -> Outcome:
        """Rule 6."""
        outcome = await invocation.attempt()
        for number in range(1, spec.retries + 1 if spec.effect == "read" else 1):
            if not (isinstance(outcome, Raised) and isinstance(single(outcome.error), UpstreamError)):
                break
            # A wait that a cancel ends: `asyncio.sleep` would sit it out.
            pause = RETRY_PAUSE * 2 ** (number - 1) * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, no secret
            await asyncio.wait({self._context.stop}, timeout=pause)
            if self._stopped:
                break
            after = message_of(single(outcome.error), self._caller.masking(spec, call))
            self._observer.on_event(CallProgress(call.id, {"attempt": number + 1, "after": after}))
            outcome = await invocation.attempt()
        return outcome

    def _ended_late(self, call: ToolCall, spec: ToolSpec, limit: int, outcome: Outcome) -> None:
        if spec.effect != "write":
            return
        masking = self._caller.masking(spec, call)
        result = _with_error(result_of(call, spec, outcome, limit=limit, masking=masking), spec, outcome, masking)
        if result.status != "unknown_outcome":
            self._observer.on_late(call, result)

    async def _deliver(self, call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        try:
            if result.call_id != call.id:  # the observer's, or of an earlier call
                result = replace(result, call_id=call.id)
            await self._observer.after(call, result, seconds)
        except Exception:
            LOGGER.exception("the result of %s could not be recorded", call.name)
            self.cancel("the result of an earlier call could not be recorded")


def _with_error(result: ToolResult, spec: ToolSpec, outcome: Outcome, masking: Masking) -> ToolResult:
    """The result with the traceback of the tool, which is logged if it is a surprise."""
    if not isinstance(outcome, Raised) or not outcome.trace:
        return result
    text = harmless(outcome.trace, masking)
    if is_surprise(outcome.error):
        TOOL_LOGGER.error("%s raised (call %r)\n%s", spec.name, result.call_id, text)
    return replace(result, error=text)
