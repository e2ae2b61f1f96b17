"""Who decides about a call that the gate asks about.

Law: nobody's silence, mistake or failure is a yes; only a plain True, or an `Answer` that allows, is one.
(tests/test_agent.py::test_only_a_plain_yes_allows)
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from callgate.agent._shield import in_thread
from callgate.policy import Answer
from callgate.run.inputs import Pending
from callgate.types import EXTERNAL, ToolCall

if TYPE_CHECKING:
    from callgate.executor import Threads

LOGGER = logging.getLogger("callgate.agent")

Decision: TypeAlias = "bool | Answer | None"


class ApproveCall(Protocol):
    """Decides about a call, which is a copy with its final arguments. Only True, or an `Answer` that allows, is a
    yes."""

    def __call__(self, call: ToolCall, /) -> Decision | Awaitable[Decision]:
        """The decision; sync or async."""
        ...


class ApproveQuestion(Protocol):
    """The same, with the question beside the call: which rule asks, and why."""

    def __call__(self, call: ToolCall, pending: Pending, /) -> Decision | Awaitable[Decision]:
        """The decision; sync or async."""
        ...


Approve: TypeAlias = ApproveCall | ApproveQuestion
"""`approve(call)` or `approve(call, pending)`, sync or async."""


class Approver:
    """The answers that are there already, and the callback that gets others."""

    def __init__(
        self,
        threads: Threads,
        approve: Approve | None,
        answers: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
    ) -> None:
        self._threads = threads
        self._approve = approve
        self.answers = answers or {}
        self.results = results or {}
        """What the application's own calls came to, by call id."""

    @property
    def present(self) -> bool:
        """Whether there is a callback."""
        return self._approve is not None

    def may_answer(self, pending: Pending) -> bool:
        """Whether somebody is there."""
        if pending.rule == EXTERNAL:
            return pending.id in self.results or self._declined(pending)
        return self._approve is not None or pending.id in self.answers

    def _declined(self, pending: Pending) -> bool:
        return pending.id in self.answers and not as_answer(self.answers[pending.id]).allow

    async def answer(self, pending: Pending) -> Answer | None:
        """The decision about a call; None: nobody is there to make it."""
        # A call that the application carries out itself was decided before; what is missing is its result.
        if pending.rule == EXTERNAL:
            return as_answer(self.answers[pending.id]) if self._declined(pending) else None
        if pending.id in self.answers:
            return as_answer(self.answers[pending.id])
        approve: Any = self._approve
        if approve is None:
            return None
        given = (pending.call, pending) if takes_two(approve) else (pending.call,)
        # `cancelling()` (Python 3.11) tells a cancel of this task from a CancelledError that the callback raised by
        # itself, as a call in a task group or a time-out of its own may.
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        try:
            if inspect.iscoroutinefunction(approve):
                answer = await approve(*given)
            else:  # it may wait for a person, and nothing may block the loop (X5)
                answer = await in_thread(self._threads, lambda: approve(*given))
            return as_answer(await answer if inspect.isawaitable(answer) else answer)
        # The end of the program is not an answer.
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > cancels:
                raise  # it is the run that is cancelled, not the callback that gave up
            LOGGER.exception("asking about %s failed; denied", pending.name)
            return Answer(False, by="error")


def as_answer(value: object) -> Answer:
    """What a person or callback gave, as an `Answer`: it may be one already, or simply whether."""
    return value if isinstance(value, Answer) else Answer(value is True)


def takes_two(function: Callable[..., object]) -> bool:
    """Whether a callback wants its second argument."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in places and p.default is p.empty for p in parameters) == 2
