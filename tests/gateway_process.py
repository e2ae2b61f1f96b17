"""`callgate serve` as people use it: a real process on a real socket."""

from __future__ import annotations

import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

PATIENCE = 40.0
STARTING = 60.0
"""Seconds for the first line: a process imports a lot, and the machine may be busy."""


@dataclass
class Gateway:
    """A running gateway."""

    process: subprocess.Popen[str]
    line: str = ""
    """The first line of its stdout."""
    errors: list[str] = field(default_factory=list)
    """What it has written to stderr."""

    @property
    def url(self) -> str:
        return self.line.removeprefix("callgate ")

    @property
    def port(self) -> int:
        return int(self.url.rsplit(":", 1)[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Its exit status."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    @property
    def stderr(self) -> str:
        return "".join(self.errors)


NOWHERE = "http://127.0.0.1:9/v1"
"""A backend that is not there, for tests that ask nothing of one."""


@contextmanager
def gateway(home: Path, *words: str, backend: str = NOWHERE, **more: str) -> Iterator[Gateway]:
    """`callgate serve --port 0 WORDS… BACKEND`, until the block is left."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("CALLGATE_", "XDG_"))}
    process = subprocess.Popen(
        [sys.executable, "-m", "callgate", "serve", "--port", "0", *words, backend],
        cwd=home,
        env={**kept, "HOME": str(home), **more},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert process.stdout is not None
    assert process.stderr is not None
    found = Gateway(process)
    stderr = process.stderr
    reader = threading.Thread(target=lambda: found.errors.extend(stderr), daemon=True)
    reader.start()
    first: queue.Queue[str] = queue.Queue()
    stdout = process.stdout
    threading.Thread(target=lambda: [first.put(line) for line in stdout], daemon=True).start()
    try:
        try:
            found.line = first.get(timeout=STARTING).rstrip("\n")
        except queue.Empty:
            process.kill()
            raise AssertionError(f"the gateway did not begin: {found.stderr}") from None
        yield found
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)
        reader.join(PATIENCE)
        process.stdout.close()
        process.stderr.close()


def talk(port: int, *pieces: bytes, until: bytes | None = None, patience: float = 5.0) -> bytes:
    """What comes back for these bytes: until the server closes, until `until` is in it, or until the patience ends."""
    found = b""
    with socket.create_connection(("127.0.0.1", port)) as raw:
        raw.settimeout(patience)
        try:
            for piece in pieces:
                raw.sendall(piece)
            while until is None or until not in found:
                more = raw.recv(65536)
                if not more:
                    break
                found += more
        except (TimeoutError, ConnectionError):
            pass
    return found
