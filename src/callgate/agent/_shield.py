"""Work that is brought to its end although a cancel comes meanwhile: entries being written, and the end of a run.

One law: a cancel is never lost: it is told to the caller, who deals with it when the work is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def to_its_end(work: Coroutine[Any, Any, T]) -> tuple[T, asyncio.CancelledError | None]:
    """The result, and the cancel that came meanwhile: the very one, for cancel scopes know theirs by it."""
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
