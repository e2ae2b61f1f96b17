"""A run as a stream of events.

One law: leaving the block ends the run. What it had started is recorded, and nothing more is started (X6).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import Any, TypeAlias

from callgate.agent._driver import Driver
from callgate.agent._result import RunResult
from callgate.events import Event

HIGH_WATER = 1000
"""Events that may wait for a slow reader before the run waits too."""

Work: TypeAlias = "Callable[[Stream | None], Coroutine[Any, Any, RunResult]]"


class Stream:
    """`async with agent.stream(…) as events`, then `async for event in events`."""

    def __init__(self, work: Work, unbegun: RunResult | None = None) -> None:
        self._work = work
        self._unbegun = unbegun
        """The result if the block is left before the run has begun."""
        self._waiting: deque[Event] = deque()
        self._more = asyncio.Event()
        self._space = asyncio.Event()
        self._space.set()
        self._left = False
        self._task: asyncio.Task[RunResult] | None = None
        self.driver: Driver | None = None
        self._result: RunResult | None = None

    @property
    def result(self) -> RunResult:
        """The result; there once the events have ended or the block was left."""
        if self._result is None and self._task is not None and self._task.done():
            self._result = self._unbegun
        if self._result is None:
            raise RuntimeError("there is no result yet: it is there when the events of a begun run have ended")
        return self._result

    def cancel(self) -> None:
        """Ends the run; its last events still come."""
        if self.driver is not None:
            self.driver.cancel()
        elif self._task is not None:
            self._task.cancel()

    # --- for the driver -------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """One event more."""
        if self._left:
            return
        self._waiting.append(event)
        self._more.set()
        if len(self._waiting) >= HIGH_WATER:
            self._space.clear()

    async def room(self) -> None:
        """Waits while a slow reader is too far behind."""
        if not self._space.is_set():
            await self._space.wait()

    def finished(self, result: RunResult) -> None:
        """The run is over, in whatever way."""
        self._result = result

    # --- for the reader -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Stream:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="callgate run")
        self._task.add_done_callback(lambda task: self._more.set())
        return self

    async def _run(self) -> RunResult:
        self._result = await self._work(self)
        return self._result

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left = True
        self._space.set()
        assert self._task is not None
        if not self._task.done():
            self.cancel()
        cancelled = False
        while not self._task.done():
            try:
                await asyncio.wait({self._task})
            except asyncio.CancelledError:
                cancelled = True
        if not self._task.cancelled() and (failure := self._task.exception()) is not None and kind is None:
            raise failure
        if cancelled:
            raise asyncio.CancelledError

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._task is None:
                raise RuntimeError("enter the stream first: async with agent.stream(…) as events")
            if self._task.done():
                if not self._task.cancelled() and (failure := self._task.exception()) is not None:
                    raise failure
                raise StopAsyncIteration
            self._more.clear()
            await self._more.wait()
        event = self._waiting.popleft()
        if not self._space.is_set() and len(self._waiting) < HIGH_WATER // 2:
            self._space.set()
        return event
