"""Asks a tool's `lookup` what became of a write that was started.

Law: only what the lookup says for certain counts; silence, a failure or a time-out leave the outcome open.
(tests/test_executor_endings.py::test_a_lookup_settles_a_write_of_unknown_outcome)

`lookup(key, arguments)` gets the idempotency key that the write was started with, and its arguments. It returns the
result if the write took effect, raises `NoEffect` if it certainly did not and never will, and returns None (or raises
anything else) if that is open. A lookup whose parameters are named as those of the tool gets them by name instead,
and the key through `ToolContext`. It may be async.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from callgate.errors import NoEffect
from callgate.executor._endings import Outcome, Raised, Returned, single
from callgate.executor._outcomes import message_of
from callgate.executor._threads import Threads
from callgate.masking import DEFAULT as MASKING
from callgate.masking import declared
from callgate.types import ToolCall

if TYPE_CHECKING:
    from callgate.tools import Tool, ToolContext


async def ask(tool: Tool, call: ToolCall, context: ToolContext, *, threads: Threads, seconds: float) -> Outcome | None:
    """What the lookup said for certain; None if it has none or the outcome is still open."""
    if tool.lookup is None:
        return None
    outcome = await _run(functools.partial(_work, tool, call, context), threads, seconds)
    match outcome:
        case Returned(value) if value is not None:
            return outcome
        case Raised(error) if isinstance(single(error), NoEffect):
            return outcome
        case Raised(error):
            message = MASKING.with_secrets(declared(tool.spec.parameters, call.arguments)).text(message_of(error))
            context.logger.warning("lookup failed: %s: %s", type(error).__name__, message)
        case _:
            pass
    return None


async def _run(work: Callable[[], object], threads: Threads, seconds: float) -> Outcome | None:
    """The lookup in a thread, or the rest of it on the loop if it is async; None when its time is up."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[Outcome] = loop.create_future()

    def arrived(outcome: Outcome) -> None:
        if not ended.done():
            ended.set_result(outcome)

    def done(value: object, error: BaseException | None) -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(arrived, Returned(value) if error is None else Raised(error))

    context = contextvars.copy_context()
    job = threads.start(lambda: context.run(work), done)
    # Too many threads hang already: the outcome stays open, which is always true.
    if job is None:
        return None
    await asyncio.wait({ended}, timeout=seconds)
    if not ended.done():
        if not job.withdraw():
            job.abandon()
        return None
    outcome = ended.result()
    if not (isinstance(outcome, Returned) and inspect.isawaitable(outcome.value)):
        return outcome
    try:
        # A lookup only reads: if it is cut off, nothing is half done.
        return Returned(await asyncio.wait_for(outcome.value, seconds))
    except TimeoutError:
        return None
    except Exception as error:
        return Raised(error)


def _work(tool: Tool, call: ToolCall, context: ToolContext) -> object:
    lookup: Any = tool.lookup
    arguments = dict(call.arguments)
    try:
        parameters = list(inspect.signature(lookup).parameters.values())
    except (TypeError, ValueError):  # a builtin that does not tell
        return lookup(context.idempotency_key, arguments)
    if _by_name(parameters, tool):
        return tool.prepare_lookup(arguments, context)()
    given = (context.idempotency_key, arguments)
    free = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return lookup(*given)
    return lookup(*given[: len(free)])


def _by_name(parameters: list[inspect.Parameter], tool: Tool) -> bool:
    """Whether the lookup is written with the tool's own parameters."""
    properties = tool.spec.parameters.get("properties") or {}
    names = [p.name for p in parameters]
    # `lookup(key, arguments)` may be the lookup of a tool that has a parameter `key` itself.
    return names[:2] != ["key", "arguments"] and any(name in properties for name in names)
