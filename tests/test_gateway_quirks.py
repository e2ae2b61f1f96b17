"""What real servers and models send, in pieces of 1 to 5 bytes through the gateway to official clients of every API:
each reported fault of a wire, each recorded stream, each row of the dialects."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import jsonschema
import ollama
import openai
import pytest

from callgate import Reply, formats, read
from gateway_server import Options, Running, gateway
from loopback import Asked, chunk, head, say, sse, stream
from test_gateway_clients import PATHS, body_of
from test_gateway_ways import CLIENTS, RAISED, REPLIES, WEATHER, asked_of, backend, over
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


# --- what no server should send ---------------------------------------------------------------------------------------

ODD = [None, True, 0, -1, "x", "", [], {}, [[]], [None], {"a": 1}, 10**30, "\u2028", [{"type": "text"}], 1.5]


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*at, key)
        yield from places(value[key], (*at, key))


def mangled(value: Any, rng: random.Random) -> Any:
    """The value with one to three of its parts replaced or gone."""
    value = json.loads(json.dumps(value))
    for _ in range(rng.choice([1, 1, 2, 3])):
        found = list(places(value))
        if not found:
            break
        *before, last = rng.choice(found)
        inner = value
        for key in before:
            inner = inner[key]
        if isinstance(inner, dict) and rng.random() < 0.2:
            del inner[last]
        else:
            inner[last] = json.loads(json.dumps(rng.choice(ODD)))
    return value


def mangled_stream(wire: str, rng: random.Random) -> bytes:
    """A whole answer of which some records are mangled, lost or there twice."""
    out = []
    for line in formats.dump(wire, REPLIES["all"], model="m").decode().split("\n"):
        head_, brace, rest = line.partition("{")
        text = brace + rest
        if brace and rng.random() < 0.3:
            text = json.dumps(mangled(json.loads(text), rng), ensure_ascii=rng.random() < 0.5)
        if rng.random() > 0.03:
            out += [head_ + text] * (1 if rng.random() > 0.03 else 2)
    return "\n".join(out).encode()


@pytest.mark.parametrize("mode", ["whole", "live"])
@pytest.mark.parametrize("wire", ["openai", "ollama", "anthropic", "responses"])
def test_a_backend_that_mangles_its_records_never_makes_the_gateway_fail(wire: str, mode: Any) -> None:
    """Whatever stands in them: the client gets an answer or an error of its API, and a stream has its end."""
    rng = random.Random(wire)

    def script(asked: Asked) -> Any:
        if asked.json.get("stream", wire == "ollama"):
            return stream(mangled_stream(wire, rng))
        body = json.dumps(mangled(formats.get(wire).dump_whole(REPLIES["all"], model="m"), rng)).encode()
        return [head(kind="application/json", Content_Length=str(len(body))), body]

    ends = {"openai": ("[DONE]", '"error"'), "anthropic": ("message_stop", "event: error")}
    with over(wire, script, Options(calls=mode)) as g, httpx.Client(timeout=30) as web:
        for n in range(150):
            shape = list(PATHS)[n % len(PATHS)]
            body = body_of(shape, streams=n % 3 != 0)
            if shape == "openai":
                body["tools"] = [{"type": "function", "function": WEATHER}]
            elif shape == "anthropic":
                body["tools"] = [{"name": "get_weather", "input_schema": WEATHER["parameters"]}]
            answer = web.post(f"{g.url}{PATHS[shape]}", json=body)
            assert "its log has more" not in answer.text, (n, shape)
            if body["stream"] and answer.status_code == 200 and shape in ends:
                assert any(end in answer.text for end in ends[shape]), (n, shape, answer.text[-500:])
