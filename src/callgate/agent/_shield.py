"""Work that must not be disturbed, and work that must not disturb.

Law: a cancel is never lost, and nothing here blocks the event loop.
(tests/test_agent_scheduler.py::test_work_is_brought_to_its_end_and_the_cancel_goes_on_its_way)
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from callgate.executor import Threads

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """Brings the work to its end although a cancel may come meanwhile: the result, and that cancel, for the caller to
    deal with. It is the very one, for cancel scopes know theirs by it."""
    # Not `asyncio.shield`: that raises the cancel at once, and nobody would see the work to its end.
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and (failure := task.exception()) is not None:
        raise cancelled from failure
    return task.result(), cancelled


async def in_thread(threads: Threads, work: Callable[[], T]) -> T:
    """What the function gives, called in a thread that nobody has to wait for when the program ends."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()

    def arrived(value: Any, error: BaseException | None) -> None:
        if not ended.done():
            ended.set_exception(error) if error is not None else ended.set_result(value)

    def done(value: object, error: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is gone: nobody waits any more
            loop.call_soon_threadsafe(arrived, value, error)

    context = contextvars.copy_context()
    # Not `asyncio.to_thread`: `asyncio.run` joins its threads at the end, and a callback that hangs would hold the
    # program.
    job = threads.start(lambda: context.run(work), done)
    if job is None:
        raise RuntimeError("too many threads hang in tools")
    try:
        return await ended
    except asyncio.CancelledError:
        # A thread cannot be stopped; it is counted among the hanging ones until it ends.
        if not job.withdraw():
            job.abandon()
        raise
