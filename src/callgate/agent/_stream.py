"""A run as a stream of events.

Law: leaving the block ends the run. What it had started is recorded, and nothing more is started (X6).
(tests/test_agent.py::test_leaving_the_stream_at_any_event_ends_the_run)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

from callgate.agent._result import RunResult
from callgate.agent._stop import StopSignal
from callgate.agent._views import OutputView, TextView
from callgate.events import Event

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultVar  # PEP 696: a plain `Stream` is a `Stream[Any]`

    Output = DefaultVar("Output", default=Any)
else:
    Output = TypeVar("Output")

HIGH_WATER = 1000
"""Events that may wait for a slow reader before the run waits too."""

Work: TypeAlias = "Callable[[Stream[Output] | None], Coroutine[Any, Any, RunResult[Output]]]"


class Stream(Generic[Output]):
    """`async with agent.stream(…) as events`, then `async for event in events`."""

    def __init__(self, work: Work[Output], unbegun: RunResult[Output] | None = None) -> None:
        self._work = work
        self._unbegun = unbegun
        """The result if the block is left before the run has begun."""
        self._waiting: deque[Event] = deque()
        self._more = asyncio.Event()
        self._space = asyncio.Event()
        self._space.set()
        self._left = False
        self._task: asyncio.Task[RunResult[Output]] | None = None
        self.stop: StopSignal | None = None
        """Set when the run has begun."""
        self._result: RunResult[Output] | None = None

    @property
    def result(self) -> RunResult[Output]:
        """The result; there once the events have ended or the block was left."""
        if self._result is None and self._task is not None and self._task.done():
            self._result = self._unbegun
        if self._result is None:
            raise RuntimeError("there is no result yet: it is there when the events of a begun run have ended")
        return self._result

    def cancel(self) -> None:
        """Ends the run; its last events still come."""
        if self.stop is not None:
            self.stop.request()
        elif self._task is not None:
            self._task.cancel()

    async def text_stream(self, *, final_only: bool = False) -> AsyncIterator[str]:
        """The text, piece by piece, in place of the events. With `final_only` only that of the final answer, which is
        known when its turn has ended."""
        view = TextView(final_only=final_only)
        async for event in self:
            for piece in view.feed(event):
                yield piece

    async def outputs(self) -> AsyncIterator[Any]:
        """The output while it is written, as growing JSON values, in place of the events; last of all, if the run was
        answered, `result.output` in its type."""
        view = OutputView()
        async for event in self:
            for value in view.feed(event):
                yield value
        if self.result.ok:
            yield self.result.output

    # --- for the driver -------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """One event more."""
        if self._left:
            return
        self._waiting.append(event)
        self._more.set()
        # Not at every event: to stop and wake the driver at each token would cost more than the token.
        if len(self._waiting) >= HIGH_WATER:
            self._space.clear()

    async def backpressure(self) -> None:
        """Waits while a slow reader is too far behind."""
        if not self._space.is_set():
            await self._space.wait()

    def finished(self, result: RunResult[Output]) -> None:
        """The run is over, in whatever way."""
        self._result = result

    # --- for the reader -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._run(), name="callgate run")
        self._task.add_done_callback(lambda task: self._more.set())
        return self

    async def _run(self) -> RunResult[Output]:
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

    async def batch(self) -> list[Event]:
        """The events that are there, at least one; none when the run has ended."""
        try:
            events = [await anext(self)]
        except StopAsyncIteration:
            return []
        while self._waiting:
            events.append(await anext(self))
        return events

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
