"""How long a test waits for what must come: longer where many share the machine, so that nobody's load fails a test.

Bounds on time in tests are those of an idle machine, times `busy()`. What comes at once on an idle machine is waited
for with `until`, never with a sleep of a fixed length.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Callable

MOST = 8.0
"""Beyond that a test is slow, and not the machine."""


def busy() -> float:
    """How many times slower than alone a process may be here: programs that want to run, for each processor."""
    if not hasattr(os, "getloadavg"):  # Windows
        return 1.0
    return min(MOST, max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)))


def until(what: Callable[[], object], seconds: float = 10.0) -> None:
    """Waits until it is true. Raises AssertionError if that takes longer than `seconds` would on an idle machine."""
    began = time.monotonic()
    while not what():
        assert time.monotonic() - began < seconds * busy(), "it did not happen in time"
        time.sleep(0.005)


async def eventually(what: Callable[[], object], seconds: float = 10.0) -> None:
    """`until` for a running loop; `what` may also give something to await."""
    began = time.monotonic()
    while True:
        found = what()
        if await found if inspect.isawaitable(found) else found:
            return
        assert time.monotonic() - began < seconds * busy(), "it did not happen in time"
        await asyncio.sleep(0.002)
