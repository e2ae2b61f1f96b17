"""The command line as people use it: real processes, a real pseudo-terminal, a server on this machine as the model."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from loopback import Asked, Loopback, loopback, refusal, say, sse, stream

CALLGATE = [sys.executable, "-m", "callgate"]
PATIENCE = 40.0

TOOLS = '''
from callgate import tool

@tool(effect="read")
def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b

@tool(effect="write", confirm=True)
def pay(amount: int) -> str:
    """Pays an amount."""
    return f"paid {amount}"
'''


def environment(home: Path, **more: str) -> dict[str, str]:
    """A new user's environment: nothing of ours is set, and every folder is under `home`."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CALLGATE_", "XDG_")) and k != "NO_COLOR"}
    return {**kept, "HOME": str(home), "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30", **more}


def run(home: Path, *words: str, given: str | None = None, **more: str) -> subprocess.CompletedProcess[str]:
    """Runs `callgate …` without a terminal."""
    return subprocess.run(
        [*CALLGATE, *words],
        cwd=home,
        env=environment(home, **more),
        input=given if given is not None else "",
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    )


class Served:
    """A server of the OpenAI API that answers the nth question with the nth script, the last one again and again."""

    def __init__(self, scripts: tuple[Any, ...]) -> None:
        self.scripts = scripts
        self.asked: list[Asked] = []
        self.pages: dict[str, Any] = {}
        self.loopback: Loopback | None = None

    def answer(self, asked: Asked) -> Any:
        """What the server does about one request."""
        if asked.method != "POST":  # who are you, which models have you got
            return self.pages.get(asked.path, refusal("404 Not Found", {"error": {"message": "not here"}}))
        self.asked.append(asked)
        return self.scripts[min(len(self.asked), len(self.scripts)) - 1]

    @property
    def url(self) -> str:
        """Where it is."""
        assert self.loopback
        return self.loopback.url

    @property
    def dropped(self) -> bool:
        """Whether a client went away before its answer was over."""
        assert self.loopback
        return self.loopback.dropped.is_set()


@contextmanager
def serving(*scripts: Any) -> Iterator[Served]:
    """A server beside the test, on a thread of its own."""
    ready = threading.Event()
    served = Served(scripts)
    found: list[Any] = []

    async def serve() -> None:
        stop = asyncio.Event()
        async with loopback(served.answer) as served.loopback:
            found.extend([asyncio.get_running_loop(), stop])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(PATIENCE)
    loop, stop = found
    try:
        yield served
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)


def calling(name: str, **arguments: Any) -> list[Any]:
    """An answer with one native call."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "c1", "type": "function", "function": function}
    return stream(sse(say(tool_calls=[call]), say(finish="tool_calls")))


def answering(*words: str, delay: float = 0.0) -> list[Any]:
    """A plain answer, word by word."""
    return stream(*(sse(say(word), done=False) for word in words), sse(say(finish="stop")), delay=delay)


class Person:
    """Somebody at a terminal with a running `callgate …`."""

    def __init__(
        self, home: Path, *words: str, patience: float = PATIENCE, stdin: str = "terminal", **more: str
    ) -> None:
        self._patience = patience
        self._here, there = pty.openpty()
        fcntl.ioctl(there, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))

        def take_terminal() -> None:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(
            [*CALLGATE, *words],
            cwd=home,
            env=environment(home, **more),
            stdin=there if stdin == "terminal" else subprocess.DEVNULL,
            stdout=there,
            stderr=there,
            start_new_session=True,
            preexec_fn=take_terminal,
        )
        os.close(there)
        self.seen = ""
        self._read = 0
        self._told = 0

    def __enter__(self) -> Person:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._here)

    def waits_for(self, pattern: str) -> str:
        """Reads until the pattern stands after what was waited for before; the match."""
        until = time.monotonic() + self._patience
        while True:
            plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]", "", self.seen)
            if found := re.compile(pattern).search(plain, self._read):
                self._read = found.end()
                return found.group()
            if time.monotonic() > until or not self._more(until):
                raise AssertionError(f"{pattern!r} did not come; the screen has:\n{plain[self._read :]}")

    def _more(self, until: float) -> bool:
        ready, _, _ = select.select([self._here], [], [], max(0.0, until - time.monotonic()))
        try:
            data = os.read(self._here, 65536) if ready else b""
        except OSError:  # the other side is closed
            return False
        self.seen += data.decode("utf-8", "replace")
        while self.seen.count("\x1b[6n") > self._told:  # the program asks where the cursor is
            self._told += 1
            os.write(self._here, b"\x1b[1;1R")
        return bool(data)

    def types(self, text: str) -> None:
        """Types on the keyboard."""
        os.write(self._here, text.encode())

    def leaves(self) -> int:
        """Waits for the end; the exit status."""
        while self._more(time.monotonic() + PATIENCE):
            pass
        return self.process.wait(PATIENCE)
