"""Tools that run in a process of their own, for test_executor_endings.py: they must stand at the top of a module."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from callgate.errors import NoEffect
from callgate.tools import Inject, ToolContext, tool


@tool(effect="read", process=True)
def identify(n: int, context: ToolContext) -> dict[str, Any]:
    """Where it runs, and for whom."""
    sys.stdout.write("noise on standard output\n")
    who = context.principal.id if context.principal else None
    return {"pid": os.getpid(), "n": n, "principal": who, "key": context.idempotency_key}


@tool(effect="read", process=True)
def count(n: int) -> Iterator[int]:
    """Progress, and a result."""
    yield from range(n)
    return n


@tool(effect="read", process=True)
def photo() -> list[Any]:
    """An image, as bytes."""
    return ["a photo", b"\x89PNG\r\n\x1a\n"]


@tool(effect="read", process=True)
async def later(text: str) -> str:
    """Async."""
    return text


@tool(effect="write", process=True)
def spin(path: str, run_id: Inject[str]) -> None:
    """Never ends by itself, nor does what it starts."""
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    with open(path, "w") as file:
        file.write(f"{os.getpid()} {child.pid}")
    while True:
        time.sleep(0.01)


@tool(effect="write", process=True)
def refuse(why: str) -> None:
    """Says that nothing changed."""
    raise NoEffect(why)


@tool(effect="read", process=True)
def die(status: int) -> None:
    """Takes its process with it."""
    os._exit(status)
