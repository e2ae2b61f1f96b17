"""A tool in a process of its own: the one way to really stop a tool that hangs.

One law: when `run_in_process` ends, however it ends, the process and everything it started are gone.

The tool is found again in the new process by its module's file and its name, so it must stand at the top of one; and
that file is run there once more, so what it *does* must stand under `if __name__ == "__main__"`. Arguments, progress
and result travel as JSON, one line each; what the tool prints goes to standard error. Context variables do
not travel; of the `ToolContext` everything does but `cancelled`, for which the process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from callgate import errors
from callgate.results import to_json
from callgate.tools import Tool, ToolContext

MAX_LINE = 256_000_000
"""Bytes of one line from the process: beyond any result that could be kept."""


IN_CHILD = "CALLGATE_CHILD"
"""Set in the process of a tool until the tool was found."""


class ProcessDied(Exception):
    """The process ended without a result."""


async def run_in_process(
    tool: Tool, arguments: Mapping[str, Any], context: ToolContext, report: Callable[[Any], None]
) -> Any:
    """The tool's result; what it raises there is raised here, as one of `errors.ToolFailure` or a RuntimeError."""
    if IN_CHILD in os.environ:
        raise RuntimeError(
            f"{tool.name} was called while the file of a process tool was being read; what that file does belongs "
            'under `if __name__ == "__main__"`'
        )
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "callgate.executor._child",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=MAX_LINE,
        start_new_session=True,
        env={**os.environ, IN_CHILD: "1", "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(json.dumps(_order(tool, arguments, context)).encode("ascii") + b"\n")
        with suppress(ConnectionError):
            await child.stdin.drain()
        while line := await child.stdout.readline():
            kind, value = json.loads(line)
            if kind == "progress":
                report(value)
            elif kind == "value":
                return value
            else:
                raise _error(value)
        raise ProcessDied(f"its process ended with status {await child.wait()} and no result")
    finally:
        _kill(child)
        if child.stdin is not None:
            child.stdin.close()
        await asyncio.shield(child.wait())


def check_findable(tool: Tool) -> None:
    """Raises ToolError for a tool that another process could not find again."""
    name = getattr(tool.function, "__qualname__", None)
    if name is None or "<" in name or getattr(tool.function, "__module__", None) is None:
        raise errors.ToolError(
            f"tool {tool.name}: process=True needs a plain function at the top of a module, not a method or a closure"
        )


def _order(tool: Tool, arguments: Mapping[str, Any], context: ToolContext) -> dict[str, Any]:
    function: Any = tool.function
    module = sys.modules.get(function.__module__)
    principal = context.principal
    return {
        "path": sys.path,
        "module": function.__module__,
        "file": os.path.abspath(module.__file__) if module is not None and module.__file__ else None,
        "name": function.__qualname__,
        "arguments": to_json(arguments),
        "principal": None if principal is None else {"id": principal.id, "grants": sorted(principal.grants)},
        "run_id": context.run_id,
        "call_id": context.call_id,
        "idempotency_key": context.idempotency_key,
    }


def _error(told: Mapping[str, str]) -> BaseException:
    cls = getattr(errors, told["class"], None)
    if isinstance(cls, type) and issubclass(cls, errors.ToolFailure):
        return cls(told["message"])
    if told["class"] in ("TimeoutError", "ConnectionError"):
        return {"TimeoutError": TimeoutError, "ConnectionError": ConnectionError}[told["class"]](told["message"])
    return RuntimeError(f"{told['class']}: {told['message']}")


def _kill(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()
