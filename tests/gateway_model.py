"""A model behind the chat completions API that answers as a test says, for gateways that are processes of their own."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from loopback import Asked, Loopback, Step, chunk, head, say, sse

Script = Callable[[list[dict[str, Any]]], Sequence[Step]]
"""The messages so far -> the steps of the answer."""
MODEL = "scripted"


def text(*words: str, delay: float = 0.0) -> list[Step]:
    """An answer in words, one record each."""
    steps: list[Step] = [head()]
    for word in words:
        steps += [chunk(sse(say(word), done=False)), delay]
    return [*steps, chunk(sse(say(finish="stop"))), chunk(b"")]


def calls(*wanted: tuple[str, dict[str, Any]], content: str = "") -> list[Step]:
    """An answer that asks for calls."""
    records: list[Any] = [say(content)] if content else []
    for index, (name, arguments) in enumerate(wanted):
        function = {"name": name, "arguments": json.dumps(arguments)}
        call = {"index": index, "id": f"call_{name}_{index}", "type": "function", "function": function}
        records.append(say(tool_calls=[call]))
    return [head(), chunk(sse(*records, say(finish="tool_calls"))), chunk(b"")]


def results(messages: list[dict[str, Any]]) -> list[str]:
    """What the tools have answered since the last prompt."""
    last = max(n for n, message in enumerate(messages) if message["role"] == "user")
    return [str(message["content"]) for message in messages[last:] if message["role"] == "tool"]


def in_one_piece(steps: Sequence[Step]) -> Sequence[Step]:
    """The same answer without streaming; one that hangs comes to nothing."""
    if "hang" in steps:
        return ["hang"]
    message: dict[str, Any] = {"role": "assistant", "content": ""}
    found: dict[str, Any] = {"object": "chat.completion", "model": MODEL}
    lines = b"".join(step for step in steps if isinstance(step, bytes)).decode().split("\n")
    for line in lines:
        if not line.startswith("data: {"):
            continue
        record = json.loads(line[6:])
        found |= {"usage": record["usage"]} if "usage" in record else {}
        for choice in record["choices"]:
            message["content"] += choice["delta"].get("content", "")
            message["tool_calls"] = message.get("tool_calls", []) + choice["delta"].get("tool_calls", [])
            found["choices"] = [{"index": 0, "message": message, "finish_reason": choice["finish_reason"]}]
    data = json.dumps(found).encode()
    return [head(kind="application/json", Content_Length=str(len(data))), data]


class Model(Loopback):
    """The server."""

    def __init__(self, script: Script) -> None:
        super().__init__([])
        self._script = script

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from loopback import _request

        try:
            while (asked := await _request(reader)) is not None:
                self.asked.append(asked)
                if not await self._play(self._steps(asked), reader, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            self.dropped.set()
        finally:
            writer.close()

    def _steps(self, asked: Asked) -> Sequence[Step]:
        if asked.method == "GET":
            known = asked.path.endswith("/models")
            data = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]} if known else {}).encode()
            status = "200 OK" if known else "404 Not Found"
            return [head(status, kind="application/json", Content_Length=str(len(data))), data]
        steps = self._script(asked.json["messages"])
        return steps if asked.json.get("stream") else in_one_piece(steps)


@contextmanager
def model(script: Script) -> Iterator[Model]:
    """The server while the block runs, in a thread."""
    found = Model(script)
    up, stop = threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def main() -> None:
        server = await asyncio.start_server(found.serve, "127.0.0.1", 0)
        found.port = server.sockets[0].getsockname()[1]
        loops.append(asyncio.get_running_loop())
        up.set()
        await stop.wait()
        server.close()

    thread = threading.Thread(target=lambda: asyncio.run(main()), daemon=True)
    thread.start()
    assert up.wait(10)
    try:
        yield found
    finally:
        loops[0].call_soon_threadsafe(stop.set)
        thread.join(10)
