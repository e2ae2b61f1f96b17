"""A server as a child process: JSON-RPC, one message a line, on its standard input and output.

One law: no line is longer than MAX_MESSAGE, and nothing of the process outlives the connection.

The SDK's own stdio transport takes lines of any length (and time that grows with their square).
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

MAX_MESSAGE: Final = 8_000_000
"""Bytes of one message of a server: larger than any sane list or result, small enough to hold."""
GRACE: Final = 2.0
"""Seconds that a process gets to end by itself, and again after SIGTERM."""
STDERR_LINES: Final = 20


class Talkative(Exception):
    """The server sent more in one message than is taken."""


@asynccontextmanager
async def pipes(
    command: tuple[str, ...], *, env: Mapping[str, str], cwd: str | None, closed: Callable[[str, tuple[str, ...]], None]
) -> AsyncIterator[tuple[Any, Any]]:
    """(messages from the server, messages to it) while the block lasts.

    `closed` gets the reason if it ends first, and the end of its standard error.
    """
    import anyio
    from mcp.client.stdio import get_default_environment
    from mcp.shared.message import SessionMessage

    process = await anyio.open_process(
        list(command), env={**get_default_environment(), **env}, cwd=cwd, start_new_session=hasattr(os, "killpg")
    )
    assert process.stdin is not None
    assert process.stderr is not None
    stdin, stderr = process.stdin, process.stderr
    heard: Any
    said: Any
    to_session, heard = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    said, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    errors: deque[str] = deque(maxlen=STDERR_LINES)
    told, ending = anyio.Event(), anyio.Event()

    async def listen() -> None:
        reason = "it closed its output"
        async with to_session:
            try:
                async for line in _lines(process.stdout):
                    await to_session.send(_parse(line))
            except Talkative as error:
                reason = str(error)
            except (anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
                pass
            with anyio.move_on_after(0.2):
                await told.wait()  # what it says last explains why
            if not ending.is_set():
                closed(reason, tuple(errors))

    async def speak() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async with to_send:
                async for message in to_send:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await stdin.send(text.encode() + b"\n")

    async def collect() -> None:
        try:
            await gather()
        finally:
            told.set()

    async def gather() -> None:
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
            async for chunk in stderr:
                errors.extend(
                    line.strip()[:200] for line in chunk.decode("utf-8", "replace").split("\n") if line.strip()
                )

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(listen)
        tasks.start_soon(speak)
        tasks.start_soon(collect)
        try:
            yield heard, said
        finally:
            ending.set()
            with anyio.CancelScope(shield=True):
                heard.close()
                said.close()
                await _end(process)
            tasks.cancel_scope.cancel()


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
            raise Talkative(f"it sent a message of more than {MAX_MESSAGE} bytes (MAX_MESSAGE)")


def _parse(line: bytes) -> Any:
    import mcp_types
    from mcp.shared.message import SessionMessage

    try:
        return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
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
