"""What real servers and models send, in pieces of 1 to 5 bytes through the gateway to official clients of every API:
each reported fault of a wire, each recorded stream, each row of the dialects."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import jsonschema
import ollama
import openai
import pytest

from callgate import Reply, read
from gateway_server import Options, Running, gateway
from loopback import Asked, chunk, head, say, sse, stream
from test_gateway_ways import CLIENTS, RAISED, asked_of, backend, over
from test_streams import STREAMS, wire_of
from test_wire_reports import ROWS as REPORTS
from test_wire_reports import WIRES

CASES = Path(__file__).parent / "conformance"
ANYTHING = {"type": "object"}
NAMES = ("tide_at", "calc", "file_put", "file_get", "cart_update", "clock_now", "list_ferries", "web_find", "city_info")
ERRORS = (openai.APIError, anthropic.APIError, ollama.ResponseError, openai.APIConnectionError)


def tools_of(names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Declared so that whatever the model wrote fits: only the wire is looked at."""
    return [{"name": name, "parameters": ANYTHING} for name in names]


def pieces(data: bytes, seed: str) -> Iterator[bytes]:
    """The bytes in pieces of 1 to 5, or of one hundredth where there are too many."""
    rng, at = random.Random(seed), 0
    most = 5 if len(data) <= 4000 else len(data) // 100
    while at < len(data):
        size = rng.randrange(1, most + 1)
        yield data[at : at + size]
        at += size


def bodies() -> dict[str, dict[str, bytes]]:
    """Wire -> name -> what a server sent."""
    out: dict[str, dict[str, bytes]] = {"openai": {}, "ollama": {}}
    for row in REPORTS:
        out[WIRES[row["input"]["protocol"]]][row["id"]] = row["input"]["body_text"].encode("utf-8")
    for path in STREAMS:
        out[wire_of(path)][path.stem] = path.read_bytes()
    return out


def let_through(reply: Reply) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in reply.calls if "mentioned" not in call.flags]


@pytest.mark.parametrize("shape", CLIENTS)
@pytest.mark.parametrize("wire", ["openai", "ollama"])
def test_every_reported_fault_and_recorded_stream_reaches_its_client_as_it_was_meant(wire: str, shape: str) -> None:
    found = bodies()[wire]
    names = (*NAMES, "get_weather", "add", "wipe_all")
    tools = [{"type": "function", "function": tool} for tool in tools_of(names)]

    def script(asked: Asked) -> Any:
        name = asked_of(asked)
        return stream(*pieces(found[name], name))

    with over(wire, script, Options(retries=0)) as g:
        for name, data in found.items():
            reply = read(data, wire=wire, dialect="auto", tools=tools)  # type: ignore[arg-type]
            if reply.finish in ("error", "interrupted"):
                with pytest.raises(ERRORS):
                    CLIENTS[shape](g, True, tools_of(names), "m", name)
                continue
            got = CLIENTS[shape](g, True, tools_of(names), "m", name)
            assert (got.text, got.calls) == (reply.content, let_through(reply)), name
            assert got.thought == reply.reasoning, name
            if shape != "ollama" or reply.finish == "length":
                assert got.end in (reply.finish, "max_tokens", "incomplete"), name


# --- every row of the dialects ----------------------------------------------------------------------------------------


def rows() -> dict[str, list[dict[str, Any]]]:
    """Dialect -> its rows. What the prompt had begun no gateway can know."""
    out: dict[str, list[dict[str, Any]]] = {}
    for name in ("dialects.jsonl", "dialects2.jsonl", "dialects_more.jsonl"):
        for line in (CASES / name).read_text("utf-8").splitlines():
            row = json.loads(line)
            if row.get("tools") and not row.get("prompt_tail"):
                out.setdefault(row["dialect"], []).append(row)
    return out


def test_every_row_of_the_dialects_lets_through_only_what_fits() -> None:
    """Whatever a model writes: calls that come out fit the client's schemas and are those that were read; text without
    any call is the text that was read; an answer of which something was kept back says so."""
    every = {f"{dialect} {n}": row for dialect, found in rows().items() for n, row in enumerate(found)}
    assert len(every) > 250

    def script(asked: Asked) -> Any:
        question = asked_of(asked)
        raw, rng, at, said = every[question]["raw"], random.Random(question), 0, []
        while at < len(raw):
            size = rng.randrange(1, 6)
            said.append(say(raw[at : at + size]))
            at += size
        return stream(sse(*said, say(finish="stop")))

    dialects = sorted(rows())
    with gateway(
        script,
        make=lambda port: [backend(port, "openai", name, name) for name in dialects],
        options=Options(retries=0),
    ) as g:
        for n, (question, row) in enumerate(every.items()):
            check(g, list(CLIENTS)[n % 4], question, row)


def check(g: Running, shape: str, question: str, row: dict[str, Any]) -> None:
    """One row, by the client of one API."""
    reply = read(row["raw"], dialect=row["dialect"], tools=row["tools"])
    tools = {tool["function"]["name"]: tool["function"].get("parameters", ANYTHING) for tool in row["tools"]}
    declared = [{"name": name, "parameters": schema} for name, schema in tools.items()]
    got = CLIENTS[shape](g, True, declared, row["dialect"], question)
    meant = [call for call in reply.calls if "mentioned" not in call.flags]
    for name, arguments in got.calls:
        assert jsonschema.Draft202012Validator(tools[name]).is_valid(arguments), (question, got)
    assert len(got.calls) <= len(meant) + len(reply.incomplete), (question, got)
    if not reply.calls and not reply.incomplete:
        assert (got.text, got.thought, got.calls) == (reply.content, reply.reasoning, []), question
    if not got.calls and meant and all(call.name in tools for call in meant):
        assert got.end not in ("stop", "end_turn"), (question, got)


def test_what_broke_off_in_the_middle_of_a_byte_is_an_error() -> None:
    data = '{"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"né'.encode()[:-1]
    with over("openai", lambda asked: [head(), chunk(b"data: " + data), "close"]) as g:
        for shape, client in CLIENTS.items():
            with pytest.raises(RAISED[shape]):
                client(g, True, tools_of(("a",)))
