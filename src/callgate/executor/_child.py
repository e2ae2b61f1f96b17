"""The other side of `_processes`: one tool, run once, in this process.

Law: on the pipe there is nothing but our lines, whatever the tool prints or writes.
(tests/test_executor_processes.py::test_nothing_that_a_tool_writes_is_taken_for_its_result)

The process begins with the order on its standard input, which then becomes /dev/null: a tool that reads it, or starts
something that does, gets an end instead of a wait. It ends when it is killed, or when the one who ordered it is gone.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import ModuleType
from typing import Any, BinaryIO, TypeAlias

from callgate.executor import _processes
from callgate.executor._endings import single
from callgate.executor._processes import MAX_LINE, MAX_TEXT, PORTABLE
from callgate.executor._tracebacks import traceback_of
from callgate.results import to_json, with_parts
from callgate.tools import Tool, ToolContext
from callgate.types import Principal

Send: TypeAlias = "Callable[[str, Any], None]"
SUBREAPER = 36
"""PR_SET_CHILD_SUBREAPER of linux/prctl.h: what the tool starts stays below this process, also when it is detached, so
that all of it can be found and killed."""


def main(order: Mapping[str, object]) -> None:
    """Runs the tool of the order, and writes the lines."""
    # The read end stays open: when the parent dies, the system closes its end, and the read at the end of `main`
    # returns.
    alive = os.dup(0)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    pipe = os.fdopen(os.dup(1), "wb")
    # `print` and C's stdout go to standard error from here on; the pipe is known to us alone.
    os.dup2(2, 1)
    _adopt()

    def send(kind: str, value: object) -> None:
        _send(pipe, order, kind, value)

    try:
        value = _carry_out(order, send)
    except BaseException as error:
        send("error", _described(single(error)))
    else:
        send("value", value)
    os.read(alive, 1)  # until the other side has killed us, or is dead itself
    # Not `sys.exit`: it would join the threads that the tool left, and run the exit handlers of libraries half gone.
    os._exit(0)  # threads that the tool left behind must not keep the process


def _adopt() -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def _carry_out(order: Mapping[str, Any], send: Send) -> object:
    tool = _find(order)
    who = order["principal"]
    context = ToolContext(
        principal=Principal(who["id"], who["grants"]) if who else None,
        run_id=order["run_id"],
        call_id=order["call_id"],
        idempotency_key=order["idempotency_key"],
        cancelled=lambda: False,
        report=lambda value: send("progress", value),
        logger=logging.getLogger(f"callgate.tools.{tool.name}"),
    )
    work = tool.prepare(order["arguments"], context)
    send("began", None)  # whatever fails before this certainly had no effect
    return with_parts(_run(tool, work, send))


def _send(pipe: BinaryIO, order: Mapping[str, object], kind: str, value: object) -> None:
    line = json.dumps([order["token"], kind, to_json(value)]).encode("ascii") + b"\n"
    # A write has happened, so it stays `ok`, and only its value is left out; a read can say that it failed.
    if len(line) > MAX_LINE:
        text = f"a result of {len(line)} bytes is too large to be passed on (at most {MAX_LINE})"
        if kind == "value" and order["effect"] == "write":
            line = json.dumps([order["token"], kind, f"done; {text}"]).encode("ascii") + b"\n"
        elif kind == "value":
            line = json.dumps(
                [order["token"], "error", {"class": "ValueError", "base": "", "message": text, "trace": ""}]
            ).encode()
            line += b"\n"
        else:
            return
    pipe.write(line)
    pipe.flush()


def _described(error: BaseException) -> dict[str, str]:
    """Its class, the nearest one that the other process knows, and what it says."""
    try:
        message = str(error)[:MAX_TEXT]
    except Exception:
        message = ""
    # The class itself may exist only in this process; its nearest ancestor that both know decides what it means.
    base = next((cls.__name__ for cls in type(error).__mro__ if PORTABLE.get(cls.__name__) is cls), "")
    return {"class": type(error).__name__, "base": base, "message": message, "trace": traceback_of(error)}


def _find(order: Mapping[str, Any]) -> Tool:
    _processes.finding = True
    try:
        found: Any = _module(order["module"], order["file"])
        for part in order["name"].split("."):
            found = getattr(found, part)
    finally:
        _processes.finding = False
    if isinstance(found, Tool):
        return found
    if order["schema"] is not None:  # a tool made of raw JSON Schema: arguments are passed as they are
        return Tool.from_schema(order["tool"], "", order["schema"], found)
    return Tool.from_function(found)


def _module(name: str, file: str | None) -> ModuleType:
    """The module as the other process knows it: imported by name, or read from its file if it was a script there."""
    if name != "__main__":
        with suppress(ModuleNotFoundError):
            return importlib.import_module(name)
    if file is None:
        raise ImportError(f"the module {name} has no file")
    name = "__callgate_child__" if name == "__main__" else name
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _run(tool: Tool, work: Any, send: Send) -> object:
    match tool.kind:
        case "sync":
            return work()
        case "async":
            return asyncio.run(work())
        case "generator":
            return _iterate(work(), send)
        case _:
            return asyncio.run(_iterate_async(work(), send))


def _iterate(iterator: Any, send: Send) -> object:
    last = None
    while True:
        try:
            last = next(iterator)
        except StopIteration as stop:
            return last if stop.value is None else stop.value
        send("progress", last)


async def _iterate_async(iterator: Any, send: Send) -> object:
    last = None
    async for last in iterator:
        send("progress", last)
    return last
