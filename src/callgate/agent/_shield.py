"""Work that is brought to its end although a cancel comes meanwhile: entries being written, and the end of a run.

One law: a cancel is never lost: it is told to the caller, who deals with it when the work is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Waits for the work to its end; cancels that come meanwhile are swallowed, for one is being dealt with."""
    value, _ = await to_its_end(work)
    return value


async def to_its_end(work: Coroutine[Any, Any, T]) -> tuple[T, bool]:
    """The result, and whether a cancel came meanwhile."""
    task = asyncio.ensure_future(work)
    cancelled = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    return task.result(), cancelled
