"""The life of one started call: begun in a thread, a task or a process, watched, and always brought to an outcome.

One law: `attempt` returns by the deadline plus the grace, whatever the tool does; what still runs then is abandoned,
and what it returns later is told to `late`.

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
from typing import Any

from callgate.events import CallProgress
from callgate.executor._outcomes import Outcome, Raised, Refused, Returned, Stopped, TimedOut, Words
from callgate.executor._processes import run_in_process
from callgate.executor._threads import Threads
from callgate.tools import Tool, ToolContext
from callgate.types import ToolCall

MAX_REPORTS = 256
"""Reports of a generator on their way to the loop; then it waits."""
LOGGER = logging.getLogger("callgate.executor")


class TooManyHung(Exception):
    """So many threads hang that no sync tool is started any more."""


class NeverBegan(Exception):
    """The run was cancelled before a thread was free for the call."""


@dataclass(slots=True)
class Ground:
    """What the calls of one batch share."""

    threads: Threads
    stop: asyncio.Future[None]
    """Done when the run is cancelled."""
    grace: float
    on_event: Callable[[Any], None]
    tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    """Abandoned tasks, kept from the garbage collector until they end."""


class Life:
    """One call of a tool, started at most once by `attempt` each."""

    def __init__(self, ground: Ground, tool: Tool, call: ToolCall, *, context: ToolContext, timeout: float) -> None:
        self.late: Callable[[Outcome], None] | None = None
        """Told what an abandoned call came to after all."""
        self.words: Callable[[Any], Words] | None = None
        """Puts what a sync tool returned into words, in the tool's thread."""
        self._ground = ground
        self._tool = tool
        self._wanted = call
        self._context = replace(context, cancelled=lambda: self._cancelled, report=self._report)
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._cancelled = False
        self._over = False
        self._reported = 0

    async def attempt(self) -> Outcome:
        """Runs the tool once. Raises `TooManyHung` or `NeverBegan` if it was certainly not begun."""
        self._cancelled = self._over = False
        try:
            work = self._tool.prepare(self._wanted.arguments, self._context)
        except Exception as error:  # arguments that the tool's own types refuse: nothing was begun
            return Refused(error)
        try:
            if self._tool.spec.process:
                return await self._in_task(self._process())
            if self._tool.kind in ("async", "async_generator"):
                return await self._in_task(self._async(work))
            return await self._in_thread(work)
        finally:
            self._over = True

    # --- threads --------------------------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], Any]) -> Outcome:
        ended: asyncio.Future[Outcome] = self._loop.create_future()

        def done(value: Any, error: BaseException | None) -> None:
            outcome = self._returned(value) if error is None else Raised(error)
            with suppress(RuntimeError):  # the loop is gone; nobody waits any more
                self._loop.call_soon_threadsafe(self._arrived, ended, outcome)

        context = contextvars.copy_context()
        job = self._ground.threads.start(lambda: context.run(self._call, work), done)
        if job is None:
            raise TooManyHung
        while not ended.done():
            begun = job.begun
            left = self._timeout if begun is None else begun + self._timeout - time.monotonic()
            if left <= 0:
                break
            await self._wait(ended, left)
            if self._ground.stop.done() and not ended.done():
                if job.withdraw():
                    raise NeverBegan
                self._cancelled = True
                await asyncio.wait({ended}, timeout=self._ground.grace)
                break
        if ended.done():
            outcome = ended.result()
            if isinstance(outcome, Returned) and inspect.isawaitable(outcome.value):  # it gave a coroutine
                return await self._in_task(_awaited(outcome.value))
            return self._ended_without_value() if self._cancelled and _was_cancelled(outcome) else outcome
        self._cancelled = True
        job.abandon()
        LOGGER.warning(
            "%s hangs; its thread is abandoned (%d hang now)", self._tool.name, self._ground.threads.abandoned
        )
        return self._ended_without_value()

    def _returned(self, value: Any) -> Returned:
        if self.words is None or inspect.isawaitable(value):
            return Returned(value)
        try:
            return Returned(value, self.words(value))
        except Exception:  # whoever settles the call meets it again, where errors are dealt with
            return Returned(value)

    def _call(self, work: Callable[[], Any]) -> Any:
        value = work()
        if isinstance(value, GeneratorType):
            return self._iterate(value)
        return value

    def _iterate(self, iterator: Generator[Any, None, Any]) -> Any:
        last: Any = None
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
        if self._over and self.late is not None:
            self.late(outcome)
        if not ended.done():
            ended.set_result(outcome)

    # --- tasks ----------------------------------------------------------------------------------------------------

    async def _in_task(self, work: Any) -> Outcome:
        task: asyncio.Task[Outcome] = self._loop.create_task(_caught(work), name=f"tool {self._tool.name}")
        await self._wait(task, self._timeout)
        if not task.done():
            self._cancelled = True
            stopped = self._ground.stop.done()
            task.cancel()
            await asyncio.wait({task}, timeout=self._ground.grace)
            if task.done() and not _was_cancelled(task.result()):
                return task.result()  # it ended in its own way: what it says is the best that is known
            if not task.done():
                self._abandon(task)
            return self._ended_without_value(stopped=stopped)
        return task.result()

    def _abandon(self, task: asyncio.Task[Outcome]) -> None:
        LOGGER.warning("%s does not end when it is cancelled; it is abandoned", self._tool.name)
        self._ground.tasks.add(task)

        def ended(task: asyncio.Task[Outcome]) -> None:
            self._ground.tasks.discard(task)
            if self.late is not None and not task.cancelled():
                self.late(task.result())

        task.add_done_callback(ended)

    async def _async(self, work: Callable[[], Any]) -> Any:
        if self._tool.kind == "async":
            return await work()
        last: Any = None
        iterator: AsyncIterator[Any] = work()
        try:
            async for last in iterator:
                self._report(last)
                await asyncio.sleep(0)  # one that never waits must not keep the loop from cancelling it
        finally:
            close = getattr(iterator, "aclose", None)
            if close is not None:
                await close()
        return last

    async def _process(self) -> Any:
        return await run_in_process(self._tool, self._wanted.arguments, self._context, self._report)

    # --- both -----------------------------------------------------------------------------------------------------

    async def _wait(self, ended: asyncio.Future[Outcome], seconds: float) -> None:
        both: set[asyncio.Future[Any]] = {ended, self._ground.stop}
        await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def _ended_without_value(self, *, stopped: bool | None = None) -> Outcome:
        stopped = self._ground.stop.done() if stopped is None else stopped
        return Stopped() if stopped else TimedOut(self._timeout)

    def _report(self, value: Any) -> None:
        """Passes progress on, from any thread; after the end of the call there is none."""
        if not self._over:
            self._reported += 1
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._tell, value)

    def _tell(self, value: Any) -> None:
        self._reported -= 1
        if not self._over:
            self._ground.on_event(CallProgress(self._wanted.id, value))


async def _awaited(value: Any) -> Any:
    return await value


async def _caught(work: Any) -> Outcome:
    """Whatever a tool raises is its outcome; even KeyboardInterrupt, which the executor passes on when all is safe."""
    try:
        return Returned(await work)
    except BaseException as error:
        return Raised(error)


def _was_cancelled(outcome: Outcome) -> bool:
    return isinstance(outcome, Raised) and isinstance(outcome.error, (asyncio.CancelledError, GeneratorExit))
