"""Runs for programs without an event loop: to their end, or as events.

Law: leaving the loop over the events ends the run, and what it had started is recorded (X6).
(tests/test_agent_streams.py::test_leaving_a_sync_stream_ends_the_run)
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from callgate.agent._result import RunResult
from callgate.agent._stream import Stream
from callgate.agent._views import OutputView, TextView
from callgate.errors import ConfigError
from callgate.events import Event

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultVar  # PEP 696: a plain `SyncStream` is a `SyncStream[Any]`

    Output = DefaultVar("Output", default=Any)
else:
    Output = TypeVar("Output")


def in_own_loop(name: str, work: Callable[[], Coroutine[Any, Any, RunResult[Any]]]) -> RunResult[Any]:
    """What the work gives. Raises ConfigError inside an event loop, which it would block."""
    refuse_in_a_loop(f"{name}_sync", f"await agent.{name}(…)")
    return asyncio.run(work())


def refuse_in_a_loop(name: str, better: str) -> None:
    """Raises ConfigError if an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise ConfigError(f"{name} would block the event loop that is running: write `{better}`")


class SyncStream(Generic[Output]):
    """`for event in agent.stream_sync(…)`. The run begins with the loop and goes on in a thread of its own, also while
    the program thinks about an event; leaving the loop cancels it."""

    def __init__(self, make: Callable[[], Stream[Output]]) -> None:
        self._make = make
        self._stream: Stream[Output] | None = None
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._leave: asyncio.Event | None = None
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def __iter__(self) -> Iterator[Event]:
        return self._events()

    def text_stream(self, *, final_only: bool = False) -> Iterator[str]:
        """The text, piece by piece, in place of the events; see `Stream.text_stream`."""
        view = TextView(final_only=final_only)
        for event in self:
            yield from view.feed(event)

    def outputs(self) -> Iterator[Any]:
        """The output while it is written, in place of the events; see `Stream.outputs`."""
        view = OutputView()
        for event in self:
            yield from view.feed(event)
        if self.result.ok:
            yield self.result.output

    @property
    def result(self) -> RunResult[Output]:
        """The result; there once the events have ended or the loop was left."""
        if self._stream is None:
            raise RuntimeError("there is no result yet: it is there when the events of a begun run have ended")
        return self._stream.result

    def close(self) -> None:
        """Ends the run, if it goes on, and waits until that is recorded."""
        if self._thread is None or not self._thread.is_alive():
            return
        if (leave := self._leave) is not None:
            self._loop.result().call_soon_threadsafe(leave.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- how ----------------------------------------------------------------------------------------------------

    def _events(self) -> Generator[Event, None, None]:
        if self._thread is not None:
            raise RuntimeError("the events of a run can be read once; result holds what it came to")
        context = contextvars.copy_context()
        # A daemon: a program that ends with a loop half read must not hang in it.
        self._thread = threading.Thread(target=context.run, args=(self._carry_out,), name="callgate run", daemon=True)
        self._thread.start()
        try:
            loop = self._loop.result()
            while events := asyncio.run_coroutine_threadsafe(self._batch(), loop).result():
                yield from events
        finally:
            self.close()
        if self._failure is not None:
            raise self._failure

    async def _batch(self) -> list[Event]:
        assert self._stream is not None
        return await self._stream.batch()

    def _carry_out(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:  # of the caller's own: a wrong argument, a tool that ends the program
            self._failure = error
            if not self._loop.done():
                self._loop.set_exception(error)

    async def _main(self) -> None:
        self._leave = asyncio.Event()
        self._stream = self._make()
        async with self._stream:
            self._loop.set_result(asyncio.get_running_loop())
            await self._leave.wait()
