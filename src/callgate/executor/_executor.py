"""What all batches of one agent share: its tools and how they are run; and the question what became of a write.

Law: that of the room (callgate/executor/__init__.py).
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate.errors import NoEffect, ToolError
from callgate.executor import _lookup as lookup
from callgate.executor._at_work import SHARED as AT_WORK
from callgate.executor._endings import Raised, Returned, single
from callgate.executor._outcomes import result_of
from callgate.executor._processes import module_name
from callgate.executor._threads import SHARED, Threads
from callgate.limits import DEFAULTS
from callgate.masking import DEFAULT as MASKING
from callgate.masking import Masking, declared
from callgate.types import ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from callgate.tools import Tool, Toolbox, ToolContext

LOGGER = logging.getLogger("callgate.executor")
Ask: TypeAlias = Callable[[ToolCall, str, Mapping[str, object]], Awaitable[bool | None]]
"""(the call that runs, question, details) → the answer of a person."""


@dataclass(slots=True, frozen=True)
class Caller:
    """On whose behalf tools are run."""

    about: ToolContext
    """What every tool of the run may know: the principal, the run, the application's own things."""
    secrets: set[str] = field(default_factory=set, compare=False, repr=False)
    """Declared secrets that the run has met: they are masked in whatever goes to the model."""

    ask: Callable[[ToolCall, str, Mapping[str, object]], Awaitable[bool | None]] | None = field(
        default=None, compare=False
    )
    """Asks a person about a call that runs; None: nobody is there."""

    def masking(self, spec: ToolSpec, call: ToolCall) -> Masking:
        """The rules for what this call tells the model: declared secrets, of this call and those before it."""
        # Of this call and all before it: a tool may return what another one was given.
        self.secrets.update(declared(spec.parameters, call.arguments))
        return MASKING.with_secrets(self.secrets) if self.secrets else MASKING

    def context(self, tool: Tool, call: ToolCall, key: str) -> ToolContext:
        """What the tool may know of its call."""
        ask = self.about.ask if self.ask is None else functools.partial(self.ask, call)
        logger = LOGGER.getChild(tool.name)
        return replace(self.about, call_id=call.id, idempotency_key=key, logger=logger, ask=ask)


class Executor:
    """Tools, and how they are run. One may serve many runs at once."""

    def __init__(
        self,
        toolbox: Toolbox,
        *,
        timeout: float = DEFAULTS.tool_timeout,
        max_parallel: int = DEFAULTS.max_parallel,
        grace: float = DEFAULTS.grace,
        max_result: int = DEFAULTS.max_result,
        threads: Threads | None = None,
    ) -> None:
        self.toolbox = toolbox
        self.timeout = timeout
        self.max_parallel = max(1, max_parallel)
        self.grace = grace
        self.max_result = max_result
        self.threads = threads or SHARED
        for tool in toolbox:
            if tool.spec.process:
                _check_findable(tool)

    @property
    def abandoned(self) -> int:
        """How many threads of this process hang in tools that were given up."""
        return self.threads.abandoned

    def rendered(self, call: ToolCall, caller: Caller, value: object) -> ToolResult:
        """The result of a call that somebody else carried out: of what it returned, or of the exception it raised."""
        tool = self.toolbox[call.name]
        outcome = Raised(value) if isinstance(value, Exception) else Returned(value, None)
        limit = tool.spec.max_result or self.max_result
        masking = caller.masking(tool.spec, call)
        return result_of(call, tool.spec, outcome, limit=limit, masking=masking)

    async def look_up(
        self, call: ToolCall, caller: Caller, key: str, *, seconds: float | None = None
    ) -> ToolResult | None:
        """What the tool's `lookup` says of a write whose outcome is unknown; None if it has none or does not know.

        `key` is the idempotency key that the write was started with. The lookup may take `seconds`, or else as long as
        the tool. While the write is still being carried out in this process, "it never happened" is not believed: it
        may happen in the next moment.
        """
        tool = self.toolbox.get(call.name)
        if tool is None or tool.lookup is None:
            return None
        # Looked at before and after the lookup: the call may end while the lookup asks, and then its word is about the
        # moment before.
        alive = key in AT_WORK
        seconds = seconds or tool.spec.timeout or self.timeout
        context = caller.context(tool, call, key)
        outcome = await lookup.ask(tool, call, context, threads=self.threads, seconds=seconds)
        if outcome is None:
            return None
        if isinstance(outcome, Raised) and isinstance(single(outcome.error), NoEffect) and (alive or key in AT_WORK):
            LOGGER.warning("%s: its lookup finds no trace of a call that still runs; its outcome stays open", tool.name)
            return None
        limit = tool.spec.max_result or self.max_result
        return result_of(call, tool.spec, outcome, limit=limit, masking=caller.masking(tool.spec, call))


def _check_findable(tool: Tool) -> None:
    """Raises ToolError for a tool that another process could not find again, as far as this can be known here."""
    function: Any = tool.function
    if function is None:
        return
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    owner = getattr(function, "__self__", None)
    if name is None or module is None or "<" in name or not (owner is None or isinstance(owner, (type, ModuleType))):
        raise ToolError(
            f"tool {tool.name}: process=True needs a plain function at the top of a module, not a method or a closure"
        )
    home = sys.modules.get(module)
    if home is None:
        return
    if module == "__main__" and module_name(home) == module and not Path(getattr(home, "__file__", "")).is_file():
        raise ToolError(
            f"tool {tool.name}: process=True needs a function in a file; this program came from standard input, an "
            "interpreter or a notebook, which another process cannot read"
        )
    found: Any = home
    for part in name.split("."):
        found = getattr(found, part, None)
    found = found.function if isinstance(found, type(tool)) else found
    if found is None or inspect.unwrap(found) != inspect.unwrap(function):
        raise ToolError(
            f"tool {tool.name}: process=True looks the function up as {module}.{name}, and something else stands there"
        )
