"""One started call: begun in a thread, a task or a process, watched, and always brought to an outcome.

Law: `attempt` returns by the deadline plus the grace, whatever the tool does; what still runs then is abandoned, and
what it returns later goes to `late`.
(tests/test_executor_laws.py::test_every_call_has_one_result_in_order_and_writes_stand_alone)

A generator's yields are progress; its result is what it returns, or else what it yielded last.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import time
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from callgate.events import CallProgress
from callgate.executor._at_work import SHARED as AT_WORK
from callgate.executor._at_work import Mark
from callgate.executor._endings import (
    NeverBegan,
    NotBegun,
    Outcome,
    Raised,
    Refused,
    Returned,
    Stopped,
    TimedOut,
)
from callgate.executor._outcomes import render
from callgate.executor._processes import run_in_process
from callgate.executor._threads import Threads
from callgate.executor._tracebacks import traceback_of
from callgate.types import ToolCall

if TYPE_CHECKING:
    from callgate.tools import Tool, ToolContext

MAX_REPORTS = 256
"""Reports of a generator on their way to the loop; then it waits."""
LARGE_TEXT, LARGE_ITEMS = 100_000, 1_000
"""Characters of a text, items of a container, from which on a value is rendered in a thread: some milliseconds."""
LOGGER = logging.getLogger("callgate.executor")


@dataclass(slots=True)
class BatchContext:
    """What the calls of one batch share."""

    threads: Threads
    stop: asyncio.Future[None]
    """Done when the batch is cancelled."""
    grace: float
    on_event: Callable[[Any], None]
    obstacle: Callable[[], str | None]
    """Why no write may begin any more, or None; asked from any thread, at the last moment."""
    reason: str = "the run was cancelled"
    """Why the batch was cancelled."""
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Abandoned tasks, kept from the garbage collector until they end."""


class Invocation:
    """One call of a tool, started once by each `attempt`."""

    def __init__(
        self,
        batch: BatchContext,
        tool: Tool,
        call: ToolCall,
        *,
        context: ToolContext,
        timeout: float,
        limit: int,
        late: Callable[[Outcome], None],
    ) -> None:
        self._batch = batch
        self._tool = tool
        self._call = call
        # Live ones: a tool that asks `cancelled()` must see the cancel that comes while it runs.
        self._context = replace(context, cancelled=lambda: self._cancelled, report=self._report, extend=self._extend)
        self._timeout = timeout
        self._limit = limit
        self._late = late
        self._loop = asyncio.get_running_loop()
        self._write = tool.spec.effect == "write"
        self._cancelled = False
        self._over = False
        self._reported = 0
        self._begun = self._end = 0.0

    async def attempt(self) -> Outcome:
        """Runs the tool once."""
        self._cancelled = self._over = False
        try:
            # Binding and validating may raise for reasons of the tool's own types; it is not the tool that failed, and
            # it has not begun.
            work = self._tool.prepare(self._call.arguments, self._context)
        except Exception as error:  # arguments that the tool's own types refuse: nothing was begun
            return Refused(error)
        try:
            if self._tool.spec.process:
                outcome = await self._rendered(await self._in_task(self._process()))
            elif self._tool.kind in ("async", "async_generator"):
                outcome = await self._rendered(await self._in_task(self._async(work)))
            else:
                outcome = await self._in_thread(work)
        finally:
            self._over = True
        if isinstance(outcome, Raised) and isinstance(outcome.error, NeverBegan):
            return NotBegun(str(outcome.error))
        return outcome

    def _mark(self) -> Mark | None:
        return AT_WORK.begin(self._context.idempotency_key) if self._write else None

    def _check_obstacle(self) -> None:
        """The last look before a write begins: recording it, or the queue for a thread, may have taken long."""
        if self._write and (obstacle := self._batch.obstacle()) is not None:
            raise NeverBegan(obstacle)

    # --- threads --------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], object]) -> Outcome:
        ended: asyncio.Future[Outcome] = self._loop.create_future()
        mark = self._mark()

        def done(value: object, error: BaseException | None) -> None:
            outcome = self._returned(value) if error is None else Raised(error, traceback_of(error))
            if mark is not None and not (inspect.isawaitable(value) and not self._over):
                mark.end()  # before the loop hears of it: whoever sees the outcome may look it up
            with suppress(RuntimeError):  # the loop is gone; nobody waits any more
                self._loop.call_soon_threadsafe(self._arrived, ended, outcome)

        # Tracing and request ids live in context variables; a thread begins with an empty context.
        context = contextvars.copy_context()
        job = self._batch.threads.start(lambda: context.run(self._run, work), done)
        if job is None:
            return _never(mark, f"{self._batch.threads.abandoned} calls of this process hang already")
        while not ended.done():
            begun = job.begun
            left = self._timeout if begun is None else begun + self._timeout - time.monotonic()
            # Counted from the start in its thread: what waits in the queue for a place has not used up its time.
            if left <= 0:
                break
            await self._wait(ended, left)
            if self._batch.stop.done() and not ended.done():
                # It still lay in the queue, so it was certainly never begun.
                if job.withdraw():
                    return _never(mark, self._batch.reason)
                self._cancelled = True
                await asyncio.wait({ended}, timeout=self._batch.grace)
                break
        if ended.done():
            outcome = ended.result()
            if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):  # it gave a coroutine
                try:
                    return await self._in_task(_awaited(outcome.value))
                finally:
                    _end(mark)  # the task has its own
            return self._ended_without_value() if self._cancelled and _was_cancelled(outcome) else outcome
        self._cancelled = True
        job.abandon()
        LOGGER.warning(
            "%s hangs; its thread is abandoned (%d hang now)", self._tool.name, self._batch.threads.abandoned
        )
        return self._ended_without_value()

    def _returned(self, value: object) -> Returned:
        """Renders it here, in the tool's thread: a large value must not keep the loop (X5)."""
        if inspect.isawaitable(value):
            return Returned(value)
        try:
            return Returned(value, render(value, self._limit))
        except Exception:  # whoever settles the call meets it again, where errors are dealt with
            return Returned(value)

    async def _rendered(self, outcome: Outcome) -> Outcome:
        """A large value of a coroutine or process is rendered in a thread as well."""
        if isinstance(outcome, Returned) and _is_large(outcome.value):
            return await asyncio.to_thread(self._returned, outcome.value)
        return outcome

    def _run(self, work: Callable[[], object]) -> object:
        self._check_obstacle()
        value = work()
        if isinstance(value, GeneratorType):
            return self._iterate(value)
        return value

    def _iterate(self, iterator: Generator[object, None, object]) -> object:
        last: object = None
        while not self._cancelled:
            try:
                last = next(iterator)
            except StopIteration as stop:
                return last if stop.value is None else stop.value
            self._report(last)
            while self._reported >= MAX_REPORTS and not self._over and not self._cancelled:
                time.sleep(0.001)  # the loop is behind: the tool waits for it
        iterator.close()
        raise asyncio.CancelledError

    def _arrived(self, ended: asyncio.Future[Outcome], outcome: Outcome) -> None:
        if self._over:
            self._late(outcome)
        if not ended.done():
            ended.set_result(outcome)

    # --- tasks ----------------------------------------------------------------------------------------------------

    async def _in_task(self, work: Any) -> Outcome:
        try:
            self._check_obstacle()
        except NeverBegan as error:
            work.close()
            return Raised(error)
        mark = self._mark()
        task: asyncio.Task[Outcome] = self._loop.create_task(_caught(work), name=f"tool {self._tool.name}")
        task.add_done_callback(lambda _: _end(mark))
        self._begun = time.monotonic()
        self._end = self._begun + self._timeout
        while not task.done() and not self._batch.stop.done() and (left := self._end - time.monotonic()) > 0:
            await self._wait(task, left)
        if not task.done():
            self._cancelled = True
            stopped = self._batch.stop.done()
            # A CancelledError inside the tool; what it does with it is its own affair, for `grace` seconds.
            task.cancel()
            # Not `wait_for`: it would wait for a task that ignores its cancel.
            await asyncio.wait({task}, timeout=self._batch.grace)
            if task.done() and not _was_cancelled(task.result()):
                return task.result()  # it ended in its own way: what it says is the best that is known
            if not task.done():
                self._abandon(task)
            return self._ended_without_value(stopped=stopped)
        return task.result()

    def _abandon(self, task: asyncio.Task[Outcome]) -> None:
        LOGGER.warning("%s does not end when it is cancelled; it is abandoned", self._tool.name)
        # The loop holds tasks only weakly (https://docs.python.org/3/library/asyncio-task.html#asyncio.create_task).
        self._batch.tasks.add(task)

        def ended(task: asyncio.Task[Outcome]) -> None:
            self._batch.tasks.discard(task)
            if not task.cancelled():
                self._late(task.result())

        task.add_done_callback(ended)

    async def _async(self, work: Callable[[], Any]) -> Any:
        if self._tool.kind == "async":
            return await work()
        last: object = None
        iterator: AsyncIterator[object] = work()
        try:
            async for last in iterator:
                self._report(last)
                await asyncio.sleep(0)  # one that never waits must not keep the loop from cancelling it
        finally:
            # An abandoned async generator is finalized by the loop some time later: its `finally` would run in nobody's
            # time.
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()
        return last

    async def _process(self) -> object:
        return await run_in_process(self._tool, self._call.arguments, self._context, self._report)

    # --- both -----------------------------------------------------------------------------------------------------

    async def _wait(self, ended: asyncio.Future[Outcome], seconds: float) -> None:
        both: set[asyncio.Future[Any]] = {ended, self._batch.stop}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def _ended_without_value(self, *, stopped: bool | None = None) -> Outcome:
        stopped = self._batch.stop.done() if stopped is None else stopped
        return Stopped() if stopped else TimedOut(max(self._timeout, round(self._end - self._begun, 1)))

    def _extend(self, limit: float) -> None:
        """Begins the timeout anew, from any thread; the one who waits looks at the end again when its time is up."""
        self._end = max(self._end, min(time.monotonic() + self._timeout, self._begun + limit))

    def _report(self, value: object) -> None:
        """Passes progress on, from any thread; after the end of the call there is none."""
        if not self._over:
            # A plain number, changed from two threads: it only slows a tool down, and one lost makes no difference.
            self._reported += 1
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._emit, value)

    def _emit(self, value: object) -> None:
        self._reported -= 1
        if not self._over:
            self._batch.on_event(CallProgress(self._call.id, value))


def _is_large(value: object) -> bool:
    """Whether it may take long to render; looks into nothing, or a few items."""
    if isinstance(value, (str, bytes)):
        return len(value) > LARGE_TEXT
    if isinstance(value, dict):
        value = list(value.values()) if len(value) <= LARGE_ITEMS else value
    if isinstance(value, (list, tuple, dict)):
        return len(value) > LARGE_ITEMS or any(_holds_much(v) for v in value)
    return False


def _holds_much(value: object) -> bool:
    return isinstance(value, (str, bytes, list, tuple, dict)) and len(value) > LARGE_ITEMS


def _end(mark: Mark | None) -> None:
    if mark is not None:
        mark.end()


def _never(mark: Mark | None, reason: str) -> NotBegun:
    _end(mark)
    return NotBegun(reason)


async def _awaited(value: Any) -> object:
    return await value


async def _caught(work: Any) -> Outcome:
    """Whatever a tool raises is its outcome; even KeyboardInterrupt, which the executor passes on when all is safe."""
    try:
        return Returned(await work)
    except BaseException as error:
        return Raised(error, traceback_of(error))


def _was_cancelled(outcome: Outcome) -> bool:
    return isinstance(outcome, Raised) and isinstance(outcome.error, (asyncio.CancelledError, GeneratorExit))
