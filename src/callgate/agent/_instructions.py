"""What the model is told before everything else: texts, and functions of the run that make them.

Law: a function of the instructions is called once for each start of a run, with the run's own dependencies.
(tests/test_agent_deps.py::test_instructions_are_made_for_each_run_from_its_own_context)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from callgate.agent._shield import in_thread
from callgate.errors import ConfigError
from callgate.tools import ToolContext

if TYPE_CHECKING:
    from callgate.executor import Threads

Deps = TypeVar("Deps")
Instruction: TypeAlias = "str | Callable[[ToolContext[Deps]], str | Awaitable[str]]"
Instructions: TypeAlias = "Instruction[Deps] | Sequence[Instruction[Deps]] | None"
"""A text, a function of the run's context (sync or async) that gives one, or several of these, which are joined."""


def checked_instructions(given: object) -> tuple[Any, ...]:
    """The instructions as texts and functions of one parameter. Raises ConfigError for anything else."""
    parts = tuple(given) if isinstance(given, (list, tuple)) else () if given is None else (given,)
    for part in parts:
        if isinstance(part, str):
            continue
        if not callable(part):
            raise ConfigError(f"instructions: texts and functions are needed, not {type(part).__name__}")
        try:
            inspect.signature(part).bind(None)
        except TypeError:
            name = getattr(part, "__name__", part)
            raise ConfigError(f"instructions: {name} must take one parameter, the run's ToolContext") from None
        except ValueError:  # a builtin: its signature cannot be read
            continue
    return parts


async def joined(parts: Sequence[Any], context: ToolContext[Any], threads: Threads) -> str:
    """The text of all parts. What a function raises is raised here: it is the application's, and no run has begun."""
    texts = [part if isinstance(part, str) else await _called(part, context, threads) for part in parts]
    return "\n\n".join(text for text in texts if text)


async def _called(function: Callable[..., Any], context: ToolContext[Any], threads: Threads) -> str:
    if inspect.iscoroutinefunction(function):
        text = await function(context)
    else:  # it may read a file or a database, and nothing may block the loop (X5)
        text = await in_thread(threads, lambda: function(context))
    text = await text if inspect.isawaitable(text) else text
    if text is not None and not isinstance(text, str):
        raise ConfigError(f"instructions: {function!r} gave {type(text).__name__} and not a text")
    return text or ""
