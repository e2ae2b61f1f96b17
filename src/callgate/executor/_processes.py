"""A tool in a process of its own: the one way to really stop a tool that hangs.

Law: when `run_in_process` ends, however it ends, the process and what it started are gone; on Linux also what it
started in a session of its own, unless the tool's process died by itself before.
(tests/test_executor_processes.py::test_a_deadline_kills_the_process_and_everything_it_started)

The tool is found again in the new process by its module's file and its name, so it must stand at the top of one; and
that file is run there once more, so what it *does* must stand under `if __name__ == "__main__"`. Arguments, progress
and result travel as JSON, one line each; what the tool prints goes to standard error, and its standard input is empty.
The environment is that of this process, unchanged. Context variables do not travel; of the `ToolContext` everything
does but `cancelled`, for which the process is killed.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from callgate import errors
from callgate.executor._endings import NeverBegan
from callgate.executor._tracebacks import REMOTE
from callgate.results import to_json

if TYPE_CHECKING:
    from callgate.tools import Tool, ToolContext

MAX_LINE = 256_000_000
"""Bytes of one line from the process: beyond any result that could be kept."""
LARGE = 1_000_000
"""Bytes of a line from which on it is parsed in a thread."""
MAX_TEXT = 100_000
"""Characters of an exception's message that travel."""
PORTABLE: dict[str, type[BaseException]] = {
    **{
        name: cls for name, cls in vars(errors).items() if isinstance(cls, type) and issubclass(cls, errors.ToolFailure)
    },
    "ConnectionError": ConnectionError,
    "TimeoutError": TimeoutError,
}
"""The exceptions that mean something on this side, and so do their subclasses."""
BOOT = (
    "import json, sys; order = json.loads(sys.stdin.buffer.readline()); sys.path[:] = order['path']; "
    "from callgate.executor._child import main; main(order)"
)
"""What the new process runs: the path comes with the order and not with the environment, which the tool passes on."""
KILL_ROUNDS = 20
"""How often the processes below are looked for again, while they still start others."""

finding = False
"""In the process of a tool: whether the file of the tool is being read."""


class ProcessDied(Exception):
    """The process ended without a result."""


class RemoteError(RuntimeError):
    """An exception of a class that means nothing here; its subclasses carry that class's name."""


async def run_in_process(
    tool: Tool, arguments: Mapping[str, object], context: ToolContext, report: Callable[[object], None]
) -> object:
    """The tool's result. What it raises there is raised here as the nearest class of `PORTABLE`, or as a RemoteError.
    Raises NeverBegan if it certainly was not begun."""
    if finding:
        raise RuntimeError(
            f"{tool.name} was called while the file of a process tool was being read; what that file does belongs "
            'under `if __name__ == "__main__"`'
        )
    order = _order(tool, arguments, context)
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        # A fresh interpreter and not a fork: a fork of a process with threads and an event loop may hang in a lock that
        # one of them held. `start_new_session`: a group of its own, so that all of it can be killed at once.
        sys.executable,
        "-c",
        BOOT,
        stdin=pipe,
        stdout=pipe,
        limit=MAX_LINE,
        start_new_session=True,
    )
    try:
        assert child.stdin is not None
        # On standard input and not on the command line: arguments are secrets, and `ps` shows command lines to
        # everybody.
        child.stdin.write(json.dumps(order).encode("ascii") + b"\n")
        with suppress(ConnectionError):
            await child.stdin.drain()
        return await _result(child, str(order["token"]), report)
    finally:
        _kill(child)
        if child.stdin is not None:
            child.stdin.close()
        # Or a zombie would stay; it was killed, so this takes no time.
        await asyncio.shield(child.wait())


async def _result(child: asyncio.subprocess.Process, token: str, report: Callable[[object], None]) -> object:
    assert child.stdout is not None
    began = False
    while line := await child.stdout.readline():
        kind, value = await _parsed(line, token)
        match kind:
            case "began":
                began = True
            case "progress":
                report(value)
            case "value":
                return value
            case "error" if began:
                raise _error(value)
            # Before "began": the module could not be read, or the function is not there.
            case "error":
                raise NeverBegan(f"its own process could not begin it: {value['class']}: {value['message']}")
    died = f"its process ended with status {await child.wait()} and no result"
    raise ProcessDied(died) if began else NeverBegan(died)


async def _parsed(line: bytes, token: str) -> tuple[str, Any]:
    """The kind and value of a line; "" for one that is not ours: whatever a tool writes there, it does not know the
    token."""
    try:
        data = await asyncio.to_thread(json.loads, line) if len(line) > LARGE else json.loads(line)
    except ValueError:
        return "", None
    # A tool or a library of it may write to the same pipe from C; what has no token is not ours.
    if not isinstance(data, list) or len(data) != 3 or data[0] != token:
        return "", None
    return str(data[1]), data[2]


def _error(described: Mapping[str, str]) -> BaseException:
    base = PORTABLE.get(described["base"], RemoteError)
    cls: type[BaseException] = type(
        described["class"], (base,), {REMOTE: described["trace"]}
    )  # its name is part of what the model reads
    return cls(described["message"])


# --- finding the tool ---------------------------------------------------------------------------------------------


def module_name(module: ModuleType) -> str:
    """The name to import it by: that of `python -m package.module` is not `__main__`, or its relative imports fail."""
    spec = getattr(module, "__spec__", None)
    return spec.name if spec is not None and module.__name__ == "__main__" else module.__name__


def _order(tool: Tool, arguments: Mapping[str, object], context: ToolContext) -> dict[str, object]:
    function: Any = tool.function
    module = sys.modules.get(function.__module__)
    file = getattr(module, "__file__", None)
    principal = context.principal
    raw = tool.description is None or not tool.description.schema
    return {
        "token": secrets.token_hex(16),
        "path": sys.path,
        "module": function.__module__ if module is None else module_name(module),
        "file": os.path.abspath(file) if file else None,
        "name": function.__qualname__,
        "tool": tool.name,
        "effect": tool.spec.effect,
        "schema": to_json(tool.spec.parameters) if raw else None,
        "arguments": to_json(arguments),
        # With its grants: the tool may ask for them itself.
        "principal": None if principal is None else {"id": principal.id, "grants": sorted(principal.grants)},
        "run_id": context.run_id,
        "call_id": context.call_id,
        "idempotency_key": context.idempotency_key,
    }


# --- ending it ----------------------------------------------------------------------------------------------------


def _kill(child: asyncio.subprocess.Process) -> None:
    """Kills the process last: while it lives, what it started stays below it and can be found."""
    _kill_below(child.pid)
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(child.pid, signal.SIGKILL)
        else:
            child.kill()


def _kill_below(pid: int) -> None:
    """Stops every process below this one before any is killed, so that none starts another meanwhile."""
    stopped: set[int] = set()
    for _ in range(KILL_ROUNDS):
        fresh = _below(pid) - stopped
        if not fresh:
            break
        for other in fresh:
            with suppress(ProcessLookupError, PermissionError):
                # Stopped, not yet killed: a supervisor among them would start a new worker for each that dies.
                os.kill(other, signal.SIGSTOP)
        stopped |= fresh
    for other in stopped:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(other, signal.SIGKILL)


def _below(pid: int) -> set[int]:
    """The processes below this one, where the system tells (Linux: /proc/PID/task/TID/children)."""
    found: set[int] = set()
    todo = [pid]
    while todo:
        for path in Path(f"/proc/{todo.pop()}/task").glob("*/children"):
            with suppress(OSError):  # it has ended meanwhile
                below = {int(word) for word in path.read_text().split()} - found
                found |= below
                todo += below
    return found
