"""Turns taken among many runs on one event loop.

One law: however many runs have something to do, at most `STEPS` steps of them are taken in one round of the event loop;
whoever comes later waits for a later round, first come, first served.
"""

from __future__ import annotations

import asyncio
from collections import deque
from weakref import WeakKeyDictionary

STEPS = 8
"""Steps a round. One takes some 0.3 ms, so a round stays far below what anybody notices, and 1,000 runs cannot make
one of a second."""


class Pace:
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


_PACES: WeakKeyDictionary[asyncio.AbstractEventLoop, Pace] = WeakKeyDictionary()


def pace() -> Pace:
    """That of the running loop."""
    loop = asyncio.get_running_loop()
    found = _PACES.get(loop)
    if found is None:
        found = _PACES[loop] = Pace(loop)
    return found
