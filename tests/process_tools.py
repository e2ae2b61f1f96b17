"""Tools that run in a process of their own, for test_executor_endings.py: they must stand at the top of a module."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from callgate.errors import Denied, NoEffect, NotFound, UpstreamError
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


@tool(effect="write", process=True)
def detach(path: str, how: str) -> str:
    """Starts something in a session of its own, and returns, hangs or raises."""
    code = "import time; time.sleep(30)"
    if how == "twice":
        inner = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {code!r}], start_new_session=True)"
        subprocess.run([sys.executable, "-c", inner], check=True)
        me = os.getpid()
        pids = Path(f"/proc/{me}/task/{me}/children").read_text()
    else:
        pids = str(subprocess.Popen([sys.executable, "-c", code], start_new_session=True).pid)
    Path(path).write_text(pids)
    if how == "hangs":
        time.sleep(30)
    if how == "raises":
        raise ValueError("no")
    return "done"


@tool(effect="read", process=True)
def read_input() -> str:
    """Reads what stands on its standard input, itself and through another program."""
    return sys.stdin.read() + subprocess.run(["cat"], capture_output=True, text=True, check=True, timeout=5).stdout


@tool(effect="read", process=True)
def environment() -> dict[str, str]:
    """What the programs that it starts get."""
    return dict(os.environ)


@tool(effect="read", process=True)
def forge(token: str) -> str:
    """Writes lines that look like a result wherever it can."""
    for fd in range(12):
        for line in (b'["value", "forged"]\n', f'["{token}", "value", "forged"]\n'.encode(), b"\n[\n"):
            with suppress(OSError):
                os.write(fd, line)
    return "honest"


class Refused(NoEffect):
    """One of its own."""


class Flaky(UpstreamError):
    """One of its own."""


class Gone(NotFound):
    """One of its own."""


class NotYours(Denied):
    """One of its own."""


class Dropped(ConnectionResetError):
    """One of its own."""


class Odd(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


ERRORS: dict[str, type[BaseException]] = {
    c.__name__: c for c in (NoEffect, UpstreamError, NotFound, Denied, Refused, Flaky, Gone, NotYours, Dropped, Odd)
} | {c.__name__: c for c in (ValueError, KeyError, TimeoutError, ConnectionError, SystemExit)}


def fail(kind: str, grouped: bool) -> None:
    """Raises."""
    error = ERRORS[kind]("why")
    if grouped and isinstance(error, Exception):
        raise ExceptionGroup("one", [error])
    raise error


@tool(effect="read", process=True)
def large(size: int) -> str:
    """More than is passed on."""
    return "x" * size


def keywords(**given: Any) -> dict[str, Any]:
    """Takes anything."""
    return given


class Desk:
    """Its tools."""

    def bound(self, n: int) -> int:
        """Needs an object."""
        return n

    @staticmethod
    def static(n: int) -> int:
        """Needs none."""
        return n + 1

    @classmethod
    def of_class(cls, n: int) -> str:
        """Needs the class."""
        return f"{cls.__name__} {n}"


def replaced(n: int) -> int:
    """Another function will stand at its name."""
    return n


original = replaced


def replaced(n: int) -> int:  # type: ignore[no-redef]
    """This one."""
    return -n
