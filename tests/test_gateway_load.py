"""Many streams at once: nothing is lost, nothing is out of order, and what was held is given back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import Any

from callgate import formats
from callgate.types import Finish, TextDelta
from gateway_server import Running, gateway
from loopback import Asked, Step, chunk, head
from patience import until
from test_gateway_clients import PATHS, body_of

STREAMS = 500
WORDS = 8
PAUSE = 0.15
"""Seconds between two words of a stream: all of them are open at once, and none has ever two words waiting."""
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
SHAPES = ("openai", "anthropic", "ollama", "responses", "generate")


def counted(asked: Asked) -> list[Step]:
    """The words 0 to 7, each with the number of the stream and in a record of its own, and then the end."""
    body = asked.json
    name = str(body["messages"][-1]["content"])
    dumper = formats.get("openai").Dumper(model="m", id="c", created=1)
    steps: list[Step] = [head()]
    for number in range(WORDS):
        records = dumper.feed([TextDelta(f"<{name}:{number}>")])
        steps += [PAUSE, chunk(b"".join(b"data: %s\n\n" % json.dumps(r).encode() for r in records))]
    records = dumper.feed([Finish("stop", None, "stop")])
    last = b"".join(b"data: %s\n\n" % json.dumps(r).encode() for r in records)
    return [*steps, chunk(last + b"data: [DONE]\n\n"), chunk(b"")]


async def follow(g: Running, number: int) -> str:
    """The whole answer to one stream's request, as bytes of HTTP."""
    shape = SHAPES[number % len(SHAPES)]
    body: dict[str, Any] = body_of(shape, streams=True)
    if shape == "openai":
        body["tools"] = [TOOL]
    text = json.dumps(body).replace("How is the weather?", f"s{number}").encode()
    port = int(g.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = (
        f"POST {PATHS[shape]} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(text)}\r\n\r\n"
    )
    writer.write(lines.encode() + text)
    try:
        return (await reader.read()).decode()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


def deltas_of(shape: str, whole: str) -> str:
    """What of an answer are deltas: the Responses API says its text once more at the end."""
    if shape != "responses":
        return whole
    return "".join(part for part in whole.split("\n\n") if "response.output_text.delta" in part)


def test_500_slow_streams_lose_nothing_and_keep_their_order() -> None:
    with gateway(counted) as g:

        async def all_of_them() -> list[str]:
            return await asyncio.gather(*(follow(g, number) for number in range(STREAMS)))

        answers = asyncio.run(all_of_them())
        for number, whole in enumerate(answers):
            shape = SHAPES[number % len(SHAPES)]
            text = deltas_of(shape, whole)
            assert re.findall(r"<(\w+):(\d+)>", text) == [(f"s{number}", str(n)) for n in range(WORDS)], whole[:2000]
            assert whole.rstrip().endswith("0"), "the body of the answer is whole"
        until(lambda: len(g.records) == STREAMS)
        assert {record.error for record in g.records} == {None}
        assert not g.gate.running
