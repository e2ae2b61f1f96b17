"""People: who decides about a call that the gate asks about.

One law: nobody's silence, mistake or failure is a yes; only a plain True, or an `Answer` that allows, is one.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from callgate.agent._shield import in_thread
from callgate.executor import Threads
from callgate.policy import Answer
from callgate.run import Pending

LOGGER = logging.getLogger("callgate.agent")

Approve: TypeAlias = Callable[..., Any]
"""`approve(call)` or `approve(call, pending)`, sync or async; the call is a copy with its final arguments."""


class People:
    """The answers that are there already, and the callback that gets others."""

    def __init__(self, threads: Threads, approve: Approve | None, answers: Mapping[str, Any] | None = None) -> None:
        self._threads = threads
        self._approve = approve
        self._answers = answers or {}

    def may_answer(self, pending: Pending) -> bool:
        """Whether somebody is there."""
        return self._approve is not None or pending.id in self._answers

    async def answer(self, pending: Pending) -> Answer | None:
        """The decision about a call; None: nobody is there to make it."""
        if pending.id in self._answers:
            return as_answer(self._answers[pending.id])
        approve = self._approve
        if approve is None:
            return None
        given = (pending.call, pending) if _takes_two(approve) else (pending.call,)
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        try:
            if inspect.iscoroutinefunction(approve):
                said = await approve(*given)
            else:  # it may wait for a person, and nothing may block the loop (X5)
                said = await in_thread(self._threads, lambda: approve(*given))
            return as_answer(await said if inspect.isawaitable(said) else said)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > cancels:
                raise  # it is the run that is cancelled, not the callback that gave up
            LOGGER.exception("asking about %s failed; denied", pending.name)
            return Answer(False, by="error")


def as_answer(value: Any) -> Answer:
    """What a person or callback said: an `Answer`, or simply whether."""
    return value if isinstance(value, Answer) else Answer(value is True)


def _takes_two(approve: Approve) -> bool:
    """Whether it needs the question beside the call."""
    try:
        parameters = inspect.signature(approve).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is p.empty for p in parameters) == 2
