"""The wish to end one run.

Law: a wish that comes before the run has begun is heard as well.
(tests/test_agent_cancelling.py::test_a_cancel_before_the_driver_exists_is_heard)
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Literal, TypeAlias, TypeVar

T = TypeVar("T")
StopReason: TypeAlias = Literal["cancel", "time"]


class StopSignal:
    """Made before anything of the run is; may be set from any thread. The first reason counts."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[StopReason] = self._loop.create_future()
        """Done when the run shall end; never fails."""

    @property
    def requested(self) -> bool:
        """Whether the run shall end."""
        return self.future.done()

    def request(self, reason: StopReason = "cancel") -> None:
        """Ends the run: what has not started never does, what runs gets to know, and all of it is recorded."""
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._set(reason)
        else:  # an agent may serve several loops
            self._loop.call_soon_threadsafe(self._set, reason)

    def _set(self, reason: StopReason) -> None:
        if not self.future.done():
            self.future.set_result(reason)

    async def unless(self, work: Coroutine[Any, Any, T]) -> T | None:
        """What the work gives; None, and the work is cancelled, when the run shall end first."""
        task = asyncio.ensure_future(work)
        try:
            both: set[asyncio.Future[Any]] = {task, self.future}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
