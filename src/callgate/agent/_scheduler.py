"""Turns taken among many runs on one event loop.

Law: however many runs have something to do, at most `STEPS` steps of them are taken in one round of the event loop; the
others wait for a later round, first come, first served.
(tests/test_agent_scheduler.py::test_no_round_of_the_loop_has_more_steps_than_it_may_and_none_overtakes)
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

STEPS = 8
"""Steps a round. One takes some 0.3 ms, so a round stays far below what anybody notices, and 1,000 runs cannot make
one of a second."""


class Scheduler:
    """Lets runs pass. One for each loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._passed = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Waits, if this round has had its steps."""
        if self._passed < STEPS and not self._waiting:
            if not self._passed:
                self._loop.call_soon(self._next_round)
            self._passed += 1
            return
        mine = self._loop.create_future()
        self._waiting.append(mine)
        await mine

    def _next_round(self) -> None:
        self._passed = 0
        while self._waiting and self._passed < STEPS:
            first = self._waiting.popleft()
            if not first.done():  # not cancelled meanwhile
                first.set_result(None)
                self._passed += 1
        if self._passed:
            self._loop.call_soon(self._next_round)


# Weak: every `run_sync` has a loop of its own, and a program may call it ten thousand times.
_SCHEDULERS: WeakKeyDictionary[asyncio.AbstractEventLoop, Scheduler] = WeakKeyDictionary()


def scheduler() -> Scheduler:
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    found = _SCHEDULERS.get(loop)
    if found is None:
        found = _SCHEDULERS[loop] = Scheduler(loop)
    return found
