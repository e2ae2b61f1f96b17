"""Work that the first of many runs does while the others wait for it, in whatever threads and event loops they are.

Law: it is done once. (tests/test_agent_threads.py::test_what_the_first_run_loads_is_loaded_once)
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future


class Once:
    """One piece of work."""

    over = False
    """It was done; nobody waits any more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Future[None] | None = None

    async def run(self, work: Callable[[], Awaitable[object]]) -> None:
        """Does the work, or waits for whoever does it."""
        mine = Future[None]()
        with self._lock:
            end = self._end
            if end is None:
                self._end = mine
        if end is not None:
            # Shielded: a cancel of this waiter would go through to the future that all wait for.
            await asyncio.shield(asyncio.wrap_future(end))
            return
        try:
            await work()
        finally:  # also after a cancel: the others then load what is missing themselves
            self.over = True
            mine.set_result(None)
