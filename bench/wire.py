"""The wire's benchmark: `python bench/wire.py [records deltas ndjson run import]`.

CPU time of reading streams, beside what people use: httpx-sse, the SSE decoder and the typed stream of the openai
package, the ollama package; then a whole run of two turns against a server on this machine (in a process of its own,
so that its work does not count), beside a hand-written loop on the same HTTP library and other frameworks.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import openai
from ollama import ChatResponse
from openai._streaming import SSEDecoder as OpenAIDecoder
from openai.types.chat import ChatCompletionChunk

from _measure import Measured, Table, main, measure
from _peers import library
from _rivals import RIVALS, serve
from _streams import ollama, openai_call, openai_text, pieces_of, records_of, sse
from callgate import formats
from callgate.formats._json import parser
from callgate.types import Finish, TextDelta, ToolCall
from callgate.wire import SSE

SSE_PEER = library("httpx_sse._decoders", "httpx-sse")
"""None where it cannot be had: then its rows are left out."""
TEXT = sse(openai_text(300))
CALL = sse(openai_call(100))
LINES = ollama(300)
CUTS: dict[str, Callable[[bytes], list[bytes]]] = {"1-256-byte pieces": pieces_of, "a record a piece": records_of}


def ours_records(pieces: list[bytes]) -> list[Any]:
    framing, parse = SSE(), parser()
    out = [parse(r.data) for piece in pieces for r in framing.feed(piece) if r.data != "[DONE]"]
    assert not framing.finish()
    return out


def httpx_sse_records(pieces: list[bytes]) -> list[Any]:
    """As httpx-sse does it over the text of a response."""
    decode, lines, decoder = (
        codecs.getincrementaldecoder("utf-8")().decode,
        SSE_PEER.SSELineDecoder(),
        SSE_PEER.SSEDecoder(),
    )
    out = []
    for piece in pieces:
        for line in lines.decode(decode(piece)):
            event = decoder.decode(line.rstrip("\n"))
            if event is not None and event.data != "[DONE]":
                out.append(json.loads(event.data))
    return out


def openai_records(pieces: list[bytes]) -> list[Any]:
    return [json.loads(e.data) for e in OpenAIDecoder().iter_bytes(iter(pieces)) if e.data != "[DONE]"]


def ours_deltas(wire: str, pieces: list[bytes]) -> list[Any]:
    form = formats.get(wire)
    framing, loader = form.framing(), form.Loader()
    out: list[Any] = []
    for piece in pieces:
        for record in framing.feed(piece):
            out += loader.feed(record)
    return out + loader.finish()


class Bytes(httpx.SyncByteStream):
    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.pieces)


CLIENT = openai.OpenAI(api_key="x", base_url="http://127.0.0.1:9")
REQUEST = httpx.Request("POST", "http://127.0.0.1:9")


def openai_typed(pieces: list[bytes]) -> list[Any]:
    response = httpx.Response(200, stream=Bytes(pieces), request=REQUEST)
    return list(openai.Stream(cast_to=ChatCompletionChunk, response=response, client=CLIENT))


def ollama_typed(pieces: list[bytes]) -> list[Any]:
    """As `ollama.Client.chat(stream=True)` does it."""
    response = httpx.Response(200, stream=Bytes(pieces), request=REQUEST)
    return [ChatResponse(**json.loads(line)) for line in response.iter_lines()]


def _check() -> None:
    """A reader that reads nothing would be fast."""
    for cut in CUTS.values():
        pieces = cut(TEXT)
        assert ours_records(pieces) == openai_records(pieces)
        assert SSE_PEER is None or ours_records(pieces) == httpx_sse_records(pieces)
        deltas = ours_deltas("openai", pieces)
        text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        assert text == "".join(c.choices[0].delta.content or "" for c in openai_typed(pieces) if c.choices)
        assert isinstance(ours_deltas("openai", cut(CALL))[-2], ToolCall)
        deltas = ours_deltas("ollama", cut(LINES))
        assert isinstance(deltas[-1], Finish)
        assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "".join(
            r.message.content or "" for r in ollama_typed(cut(LINES))
        )


def _cost(measured: Measured, name: str, parts: int) -> str:
    return f"{measured.micros(name, parts):.2f} µs"


def table_records() -> Table:
    """Bytes to parsed records."""
    _check()
    table = Table(f"bytes → records (SSE and JSON; {TEXT.count(b'data:')} events)")
    for name, cut in CUTS.items():
        pieces, parts = cut(TEXT), TEXT.count(b"data:")
        works = {"ours": ours_records, "openai": openai_records}
        works |= {"httpx-sse": httpx_sse_records} if SSE_PEER else {}
        measured = measure({key: partial(work, pieces) for key, work in works.items()})
        cost = _cost(measured, "ours", parts)
        if SSE_PEER is None:
            table.note("httpx-sse: not measured, it cannot be had here")
        else:
            table.at_least(f"httpx-sse + json, {name}", measured.ratio("httpx-sse", "ours"), 1.5, cost=cost)
        table.at_least(f"openai's decoder + json, {name}", measured.ratio("openai", "ours"), 2, cost=cost)
    return table


def table_deltas() -> Table:
    """Bytes to deltas, chat completions."""
    _check()
    table = Table("bytes → deltas (chat completions)")
    for what, body in (("text", TEXT), ("a call", CALL)):
        for name, cut in CUTS.items():
            pieces = cut(body)
            works = {"ours": partial(ours_deltas, "openai", pieces), "openai": partial(openai_typed, pieces)}
            measured = measure(works)
            cost = _cost(measured, "ours", body.count(b"data:"))
            table.at_least(f"openai's typed stream, {what}, {name}", measured.ratio("openai", "ours"), 15, cost=cost)
    return table


def table_ndjson() -> Table:
    """Bytes to deltas, Ollama."""
    _check()
    table = Table("bytes → deltas (Ollama)")
    for name, cut in CUTS.items():
        pieces = cut(LINES)
        works = {"ours": partial(ours_deltas, "ollama", pieces), "ollama": partial(ollama_typed, pieces)}
        measured = measure(works)
        cost = _cost(measured, "ours", LINES.count(b"\n"))
        table.at_least(f"the ollama package, {name}", measured.ratio("ollama", "ours"), 3, cost=cost)
    return table


def table_run() -> Table:
    """A run of two turns: 20 call deltas, the tool, 50 text deltas."""
    table = Table("a run of two turns (20 call deltas, 50 text deltas), warm, memory ledger")
    goals = {"the openai package by hand": 5.0, "pydantic-ai": 12.0, "LangChain": 12.0}
    with serve() as url, asyncio.Runner() as runner:
        made: dict[str, Any] = {}
        for name, make in RIVALS.items():
            try:
                made[name] = make(url)
            except ImportError as error:
                table.note(f"{name}: not measured, {error.name} is not installed")
        for name, work in made.items():
            assert "ferry" in runner.run(work()), name
        measured = measure({name: (lambda work=work: runner.run(work())) for name, work in made.items()})
        for work in made.values():
            runner.run(work.close())
    ours = f"{measured.seconds('callgate') * 1e3:.2f} ms"
    table.at_most("callgate, beside a bare loop on aiohttp", measured.ratio("callgate", "a bare loop"), 1.5, cost=ours)
    for name, goal in goals.items():
        if name not in made:
            continue
        table.at_least(f"{name}, beside callgate", measured.ratio(name, "callgate"), goal, cost=ours)
    return table


def _cpu(code: str) -> float:
    """CPU milliseconds of a fresh interpreter after `code`, the least of five."""
    line = f"{code}\nimport resource; u = resource.getrusage(resource.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"
    runs = [subprocess.run([sys.executable, "-c", line], capture_output=True, check=True) for _ in range(5)]
    return min(float(run.stdout) for run in runs) * 1e3


def table_import() -> Table:
    """What `import callgate` costs."""
    table = Table("import (CPU of a fresh interpreter, beyond Python and asyncio)")
    bare = _cpu("import asyncio")
    table.at_most("import callgate", _cpu("import asyncio, callgate") - bare, 100, unit="ms")
    names = "import asyncio, callgate; [getattr(callgate, n) for n in callgate.__all__]"
    table.fact("and every name of its face", _cpu(names) - bare, unit="ms")
    table.fact("the openai package", _cpu("import asyncio, openai") - bare, unit="ms")
    return table


if __name__ == "__main__":
    main(
        {
            "records": table_records,
            "deltas": table_deltas,
            "ndjson": table_ndjson,
            "run": table_run,
            "import": table_import,
        }
    )
