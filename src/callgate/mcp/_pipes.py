"""A server as a child process: JSON-RPC, one message a line, on its standard input and output.

The SDK's own stdio transport takes lines of any length (and time that grows with their square).

Law: no line is longer than MAX_MESSAGE, and nothing of the process outlives the connection.
(tests/test_mcp.py::test_a_server_that_cannot_be_used_is_an_error_in_time)
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from callgate.mcp._encoding import sound_json

MAX_MESSAGE: Final = 8_000_000
"""Bytes of one message of a server: larger than any sane list or result, small enough to hold."""
MAX_DEPTH: Final = 190
"""Levels of nesting of one message; pydantic takes no more, and without its id the call would wait for ever."""
GRACE: Final = 2.0
"""Seconds that a process gets to end by itself, and again after SIGTERM."""
STDERR_LINES: Final = 20


class MessageTooLarge(Exception):
    """The server sent more in one message, or nested it deeper, than is taken."""


Closed = Callable[[str, tuple[str, ...]], None]


@asynccontextmanager
async def pipes(
    command: tuple[str, ...], *, env: Mapping[str, str], cwd: str | None, closed: Closed
) -> AsyncIterator[tuple[object, object]]:
    """(messages from the server, messages to it) while the block lasts.

    `closed` gets the reason if it ends first, and the end of its standard error.
    """
    import anyio
    from mcp.client.stdio import get_default_environment

    process = await anyio.open_process(
        list(command), env={**get_default_environment(), **env}, cwd=cwd, start_new_session=hasattr(os, "killpg")
    )
    child = _Child(process, closed)
    async with anyio.create_task_group() as tasks:
        for work in (child.read, child.write, child.read_errors):
            tasks.start_soon(work)
        try:
            yield child.incoming, child.outgoing
        finally:
            child.ending = True
            with anyio.CancelScope(shield=True):
                child.incoming.close()
                child.outgoing.close()
                await _end(process)
            tasks.cancel_scope.cancel()


class _Child:
    """The three streams of one process, and the session's two."""

    def __init__(self, process: Any, closed: Closed) -> None:
        import anyio

        self.process = process
        self.closed = closed
        self.ending = False
        self.incoming: Any
        self.outgoing: Any
        self._to_session, self.incoming = anyio.create_memory_object_stream[object](0)
        self.outgoing, self._to_send = anyio.create_memory_object_stream[Any](0)
        self._errors: deque[str] = deque(maxlen=STDERR_LINES)
        self._errors_read = anyio.Event()
        self._over = (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError)

    async def read(self) -> None:
        """Its messages, until it closes its output or sends too large a one."""
        import anyio

        reason = "it closed its output"
        async with self._to_session:
            try:
                async for line in _lines(self.process.stdout):
                    await self._to_session.send(_parse(line))
            except MessageTooLarge as error:
                reason = str(error)
            except self._over:
                pass
            with anyio.move_on_after(0.2):
                await self._errors_read.wait()  # its last line explains why
            if not self.ending:
                self.closed(reason, tuple(self._errors))

    async def write(self) -> None:
        """Our messages."""
        with suppress(*self._over):
            async with self._to_send:
                async for message in self._to_send:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await self.process.stdin.send(text.encode() + b"\n")

    async def read_errors(self) -> None:
        """Its standard error: the last lines are kept."""
        with suppress(*self._over):
            async for chunk in self.process.stderr:
                self._errors.extend(
                    line.strip()[:200] for line in chunk.decode("utf-8", "replace").split("\n") if line.strip()
                )
        self._errors_read.set()


async def _lines(stream: Any) -> AsyncIterator[bytes]:
    """The stream's lines; each byte is looked at once."""
    import anyio

    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            chunk = await stream.receive(65536)
        except anyio.EndOfStream:
            return
        *whole, rest = chunk.split(b"\n")
        for part in whole:
            yield b"".join([*pieces, part])
            pieces, size = [], 0
        pieces.append(rest)
        size += len(rest)
        if size > MAX_MESSAGE:
            raise MessageTooLarge(f"it sent a message of more than {MAX_MESSAGE} bytes (MAX_MESSAGE)")


def _parse(line: bytes) -> object:
    import mcp_types
    from mcp.shared.message import SessionMessage

    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(sound_json(line), by_name=False))
    except ValueError as error:
        if "recursion limit" in str(error):
            raise MessageTooLarge(f"it sent a message nested deeper than {MAX_DEPTH} levels (MAX_DEPTH)") from None
        return error


async def _end(process: Any) -> None:
    import anyio

    with suppress(Exception):
        await process.stdin.aclose()
    for ending in (None, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if ending is not None:
            _signal(process, ending)
        with anyio.move_on_after(GRACE):
            await process.wait()
            break
    _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))  # whatever it has started
    with suppress(Exception):
        await process.aclose()


def _signal(process: Any, ending: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, ending)
        else:
            process.send_signal(ending)
