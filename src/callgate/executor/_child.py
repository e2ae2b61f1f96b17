"""The other side of `_processes`: one tool, run once, in this process.

One law: on the pipe there is nothing but our lines, whatever the tool prints.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import logging
import os
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any, BinaryIO

from callgate.executor._processes import IN_CHILD
from callgate.results import to_json, with_parts
from callgate.tools import Tool, ToolContext
from callgate.types import Principal


def main() -> None:
    """Reads the order from standard input, runs the tool, writes its lines."""
    pipe = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    order = json.loads(sys.stdin.buffer.readline())
    sys.path[:] = order["path"]

    def tell(kind: str, value: Any) -> None:
        _tell(pipe, kind, value)

    try:
        tool = _find(order)
        principal = order["principal"]
        context = ToolContext(
            principal=Principal(principal["id"], principal["grants"]) if principal else None,
            run_id=order["run_id"],
            call_id=order["call_id"],
            idempotency_key=order["idempotency_key"],
            cancelled=lambda: False,
            report=lambda value: tell("progress", value),
            logger=logging.getLogger(f"callgate.tools.{tool.name}"),
        )
        value = _run(tool, tool.prepare(order["arguments"], context), tell)
    except BaseException as error:
        tell("error", {"class": type(error).__name__, "message": str(error)})
    else:
        tell("value", with_parts(value))
    os._exit(0)  # threads that the tool left behind must not keep the process


def _tell(pipe: BinaryIO, kind: str, value: Any) -> None:
    pipe.write(json.dumps([kind, to_json(value)]).encode("ascii") + b"\n")
    pipe.flush()


def _find(order: dict[str, Any]) -> Tool:
    found: Any = _module(order["module"], order["file"])
    for part in order["name"].split("."):
        found = getattr(found, part)
    del os.environ[IN_CHILD]
    return found if isinstance(found, Tool) else Tool.from_function(found)


def _module(name: str, file: str | None) -> ModuleType:
    """The module as the other process knows it: imported by name, or read from its file if it was a script there."""
    if name != "__main__":
        with suppress(ImportError):
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


def _run(tool: Tool, work: Any, tell: Any) -> Any:
    match tool.kind:
        case "sync":
            return work()
        case "async":
            return asyncio.run(work())
        case "generator":
            return _iterate(work(), tell)
        case _:
            return asyncio.run(_iterate_async(work(), tell))


def _iterate(iterator: Any, tell: Any) -> Any:
    last = None
    while True:
        try:
            last = next(iterator)
        except StopIteration as stop:
            return last if stop.value is None else stop.value
        tell("progress", last)


async def _iterate_async(iterator: Any, tell: Any) -> Any:
    last = None
    async for last in iterator:
        tell("progress", last)
    return last


if __name__ == "__main__":
    main()
