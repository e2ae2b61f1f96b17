"""The application's checks of prompts and answers, and what it makes of results.

Law: nobody's mistake accepts anything: a check that fails refuses, and a result whose transform fails is withheld.
(tests/test_agent_checks.py::test_a_check_that_fails_refuses)
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate.agent._approver import takes_two
from callgate.agent._shield import in_thread
from callgate.checks import AskAgain, Change, Decision, Refuse
from callgate.errors import ConfigError
from callgate.results import compress
from callgate.types import ToolCall, ToolResult

if TYPE_CHECKING:
    from callgate.executor import Executor
    from callgate.tools import ToolContext

LOGGER = logging.getLogger("callgate.agent")
WITHHELD = "The result is withheld: it could not be made ready to be shown."

Outcome: TypeAlias = "Decision | Awaitable[Decision]"
Check: TypeAlias = "Callable[[str], Outcome] | Callable[[str, ToolContext[Any]], Outcome]"
"""`check(text)` or `check(text, context)`, sync or async: None accepts; else `Change`, `Refuse` or `AskAgain`."""
Made: TypeAlias = "ToolResult | None"
OnResult: TypeAlias = "Callable[[ToolCall, ToolResult], Made] | Callable[[ToolCall, ToolResult], Awaitable[Made]]"
"""`on_result(call, result)`, sync or async: the result to go on with; None: as it is."""


@dataclass(frozen=True)
class Checks:
    """The functions that see texts and results before anybody else does."""

    prompt: Check | None = None
    answer: Check | None = None
    on_result: OnResult | None = None
    names: frozenset[str] = field(init=False)
    """What is checked: "prompt", "answer"."""

    def __post_init__(self) -> None:
        for name, function in (
            ("check_prompt", self.prompt),
            ("check_answer", self.answer),
            ("on_result", self.on_result),
        ):
            if function is not None and not callable(function):
                raise ConfigError(f"{name}: a function is needed, not {function!r}")
        given = {"prompt": self.prompt, "answer": self.answer}
        object.__setattr__(self, "names", frozenset(name for name, function in given.items() if function is not None))

    async def decide(self, what: str, text: str, context: ToolContext[Any], executor: Executor) -> Decision:
        """What the application says to a text."""
        function: Any = self.prompt if what == "prompt" else self.answer
        try:
            given = (text, context) if takes_two(function) else (text,)
            decision = await _called(executor, function, *given)
        except Exception as error:
            LOGGER.exception("check_%s failed", what)
            return Refuse(f"check_{what} failed: {type(error).__name__}")
        if decision is None or isinstance(decision, (Change, Refuse, AskAgain)):
            return decision
        LOGGER.error("check_%s gave %r", what, type(decision))
        return Refuse(f"check_{what} must give None, Change, Refuse or AskAgain, not {type(decision).__name__}")

    async def transformed(self, call: ToolCall, result: ToolResult, executor: Executor) -> ToolResult:
        """What the application makes of a result; id and status stay, since what became of a call is no matter of
        taste."""
        if self.on_result is None:
            return result
        try:
            made: Any = await _called(executor, self.on_result, call, result)
            if made is None:
                return result
            if not isinstance(made, ToolResult) or not isinstance(made.content, str):
                raise TypeError(f"on_result must give a ToolResult or None, not {type(made).__name__}")
        except Exception:
            LOGGER.exception("on_result failed for %s", call.name)
            return ToolResult(call.id, result.status, WITHHELD, replayed=result.replayed, error=result.error)
        spec = executor.toolbox.get(call.name)
        text, size = compress(
            made.content, spec.spec.max_result or executor.max_result if spec else executor.max_result
        )
        return replace(made, call_id=result.call_id, status=result.status, content=text, size=size or made.size)


async def _called(executor: Executor, function: Callable[..., Any], *given: object) -> Any:
    if inspect.iscoroutinefunction(function):
        return await function(*given)
    # It may ask a service, and nothing may block the loop (X5).
    made = await in_thread(executor.threads, lambda: function(*given))
    return await made if inspect.isawaitable(made) else made
