"""All ways round: each client's API over each backend's, streamed and not, cut into pieces of any size."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anthropic
import jsonschema
import ollama
import openai
import pytest

from callgate import formats, read
from callgate.apps.gateway.gate import ExchangeRecord
from callgate.providers import Provider, Served
from callgate.providers._http import HttpClient
from callgate.types import ModelInfo, Reply, ToolCall
from gateway_server import Options, Running, gateway
from loopback import Asked, chunk, head, refusal, say, sse, stream
from test_gateway_openai import wait_for

CASES = Path(__file__).parent / "conformance"
WIRES = ("anthropic", "ollama", "openai", "responses")
PATHS = {"anthropic": "/v1/messages", "openai": "/v1/chat/completions", "responses": "/v1/responses"}
WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "Weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
}
HI = "How is the weather?"


@dataclass
class Got:
    """What a client has at the end."""

    text: str = ""
    thought: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)
    end: str = ""
    ids: list[str] = field(default_factory=list)

    @property
    def meant(self) -> tuple[str, str, list[tuple[str, Any]], str]:
        return self.text, self.thought, self.calls, self.end


# --- backends ---------------------------------------------------------------------------------------------------------


class Backend(Served):
    """A server of any API that has tools."""

    async def info(self) -> ModelInfo:
        return ModelInfo(self.model, self.name, frozenset({"tools"}), None, self.dialect)

    async def catalogue(self) -> list[ModelInfo]:
        return [await self.info()]

    dialect: str | None = None


def backend(port: int, wire: str, model: str = "m", dialect: str | None = None) -> Provider:
    web = HttpClient(f"http://127.0.0.1:{port}", name=wire, headers={})
    made = Backend(web, model, wire=wire, path=PATHS.get(wire, "/api/chat"))
    made.dialect = dialect
    return made


def answers(wire: str, reply: Reply, size: int = 0) -> Callable[[Asked], Any]:
    """What such a server sends, streamed in pieces of so many bytes or whole, as it was asked."""

    def script(asked: Asked) -> Any:
        streams = asked.json.get("stream", wire == "ollama")
        if streams:
            data = formats.dump(wire, reply, model="m")
            return stream(*([data[at : at + size] for at in range(0, len(data), size)] if size else [data]))
        body = json.dumps(formats.get(wire).dump_whole(reply, model="m")).encode()
        return [head(kind="application/json", Content_Length=str(len(body))), body]

    return script


def asked_of(asked: Asked) -> str:
    """The question, whatever the API."""
    body = asked.json
    last = (body.get("messages") or body.get("input"))[-1]
    content = last["content"]
    return content if isinstance(content, str) else str(content[-1]["text"])


def over(wire: str, script: Callable[[Asked], Any], options: Options | None = None) -> Any:
    """A gateway in front of such a server; the script looks at the question."""
    return gateway(script, make=lambda port: backend(port, wire), options=options)


def last_record(g: Running, before: int) -> ExchangeRecord:
    wait_for(lambda: len(g.records) > before)
    return g.records[-1]


# --- clients ----------------------------------------------------------------------------------------------------------


def of(g: Running, name: str) -> Any:
    """The official client of an API; one for each gateway."""
    if name not in g.clients:
        if name == "openai":
            web: Any = openai.OpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0)
        elif name == "anthropic":
            web = anthropic.Anthropic(base_url=g.url, api_key="none", max_retries=0)
        else:
            web = ollama.Client(host=g.url)
        g.clients[name] = web
        g.closing.append(web._client.close)
    return g.clients[name]


def of_openai(g: Running, streams: bool, tools: list[Any], model: str = "m", question: str = HI) -> Got:
    web = of(g, "openai")
    out = Got()
    asked: Any = {"model": model, "messages": [{"role": "user", "content": question}]}
    asked["tools"] = [{"type": "function", "function": tool} for tool in tools]
    if not streams:
        choice = web.chat.completions.create(**asked).choices[0]
        out.text, out.thought = choice.message.content or "", getattr(choice.message, "reasoning_content", None) or ""
        calls: Any = choice.message.tool_calls or ()
        out.calls = [(c.function.name, json.loads(c.function.arguments)) for c in calls]
        out.ids, out.end = [c.id for c in calls], choice.finish_reason
        return out
    made: dict[int, list[str]] = {}
    for event in web.chat.completions.create(**asked, stream=True):
        for choice in event.choices:
            if choice.index:
                continue
            out.text += choice.delta.content or ""
            out.thought += getattr(choice.delta, "reasoning_content", None) or ""
            out.end = choice.finish_reason or out.end
            for entry in choice.delta.tool_calls or ():
                parts = made.setdefault(entry.index, ["", "", ""])
                for n, more in enumerate((entry.id, entry.function.name, entry.function.arguments)):
                    parts[n] += more or ""
    assert list(made) == list(range(len(made)))
    out.calls, out.ids = [(m[1], json.loads(m[2])) for m in made.values()], [m[0] for m in made.values()]
    return out


def of_anthropic(g: Running, streams: bool, tools: list[Any], model: str = "m", question: str = HI) -> Got:
    web = of(g, "anthropic")
    asked: Any = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 99}
    asked["tools"] = [
        {"name": t["name"], "description": t.get("description", ""), "input_schema": t["parameters"]} for t in tools
    ]
    if streams:
        with web.messages.stream(**asked) as events:
            message: Any = events.get_final_message()
    else:
        message = web.messages.create(**asked)
    out = Got(end={"end_turn": "stop", "tool_use": "tool_calls"}.get(message.stop_reason, message.stop_reason))
    for block in message.content:
        if block.type == "text":
            out.text += block.text
        elif block.type == "thinking":
            out.thought += block.thinking
        elif block.type == "tool_use":
            out.calls.append((block.name, block.input))
            out.ids.append(block.id)
    return out


def of_ollama(g: Running, streams: bool, tools: list[Any], model: str = "m", question: str = HI) -> Got:
    web = of(g, "ollama")
    asked: Any = {"model": model, "messages": [{"role": "user", "content": question}], "stream": streams}
    asked["tools"] = [{"type": "function", "function": tool} for tool in tools]
    answer = web.chat(**asked)
    out = Got()
    for part in answer if streams else [answer]:  # type: ignore[list-item]
        out.text += part.message.content or ""
        out.thought += part.message.thinking or ""
        out.calls += [(c.function.name, dict(c.function.arguments)) for c in part.message.tool_calls or ()]
        out.end = part.done_reason or out.end
    out.end = "tool_calls" if out.calls and out.end == "stop" else out.end
    return out


def of_responses(g: Running, streams: bool, tools: list[Any], model: str = "m", question: str = HI) -> Got:
    web = of(g, "openai")
    asked: Any = {"model": model, "input": question, "tools": [{"type": "function", **tool} for tool in tools]}
    if streams:
        with web.responses.stream(**asked) as events:
            seen: list[Any] = list(events)
        ends = ("response.completed", "response.incomplete")  # the client's own helper knows only the first
        response: Any = next(event.response for event in reversed(seen) if event.type in ends)
        text = "".join(e.delta for e in seen if e.type == "response.output_text.delta")
        assert text == response.output_text
        numbers = [e.sequence_number for e in seen if hasattr(e, "sequence_number")]
        assert numbers == sorted(set(numbers))
    else:
        response = web.responses.create(**asked)
    if response.status == "incomplete":
        assert response.incomplete_details.reason
    out = Got(response.output_text, end={"completed": "stop"}.get(response.status, response.status))
    for item in response.output:
        if item.type == "reasoning":
            out.thought += "".join(part.text for part in item.summary)
        elif item.type == "function_call":
            out.calls.append((item.name, json.loads(item.arguments)))
            out.ids.append(item.call_id)
    out.end = "tool_calls" if out.calls and out.end == "stop" else out.end
    return out


CLIENTS = {"openai": of_openai, "anthropic": of_anthropic, "ollama": of_ollama, "responses": of_responses}


# --- all ways round ---------------------------------------------------------------------------------------------------

TWO = [
    ToolCall("call_aaaaaaaa1", "get_weather", {"city": "Oslo"}, 0),
    ToolCall("b2", "get_weather", {"city": '"é🙂'}, 1),
]
REPLIES = {
    "text": Reply("Höchste Zeit, 東京 🙂!", raw_finish="stop", usage={"input": 5, "output": 7}),
    "thought": Reply("Sunny.", "Let me see.\nWell.", raw_finish="stop"),
    "call": Reply(calls=TWO[:1], finish="tool_calls", raw_finish="tool_calls"),
    "all": Reply("I look.", "Hm.", calls=TWO, finish="tool_calls", raw_finish="tool_calls"),
}


@pytest.mark.parametrize("wire", WIRES)
def test_what_a_client_puts_together_is_what_was_meant(wire: str) -> None:
    def script(asked: Asked) -> Any:
        name, size = asked_of(asked).split()
        return answers(wire, REPLIES[name], int(size))(asked)

    rng = random.Random(wire)
    with over(wire, script) as g:
        for shape, name in itertools.product(CLIENTS, REPLIES):
            reply = REPLIES[name]
            meant = (reply.content, reply.reasoning, [(c.name, c.arguments) for c in reply.calls], reply.finish)
            for streams, size in [(False, 0), (True, 0), (True, rng.randrange(1, 6))]:
                before = len(g.records)
                got = CLIENTS[shape](g, streams, [WEATHER], "m", f"{name} {size}")
                assert got.meant == meant, (shape, name, streams, size)
                assert len(set(got.ids)) == len(got.ids)
                if wire == shape == "openai":
                    assert got.ids == [call.id for call in reply.calls]
                seen = last_record(g, before)
                assert (seen.error, seen.shape, seen.wire) == (None, shape, wire)
                assert not set(seen.mended) - {"ids"}, seen.mended


LEAKED = '<think>Hm.</think>I look.\n<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'


@pytest.mark.parametrize("mode", ["whole", "live"])
@pytest.mark.parametrize("wire", WIRES)
def test_what_leaks_into_the_text_is_a_call_on_every_way(wire: str, mode: Any) -> None:
    with over(wire, answers(wire, Reply(LEAKED, raw_finish="stop"), 3), Options(calls=mode)) as g:
        for shape, streams in itertools.product(CLIENTS, (True, False)):
            before = len(g.records)
            got = CLIENTS[shape](g, streams, [WEATHER])
            assert got.meant == ("I look.", "Hm.", [("get_weather", {"city": "Oslo"})], "tool_calls"), (shape, streams)
            assert dict(last_record(g, before).mended) == {"leaked": 1, "reasoning": 1}


RAISED: dict[str, type[Exception]] = {
    "openai": openai.APIError,
    "anthropic": anthropic.APIError,
    "ollama": ollama.ResponseError,
    "responses": openai.APIError,
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_stream_that_was_cut_never_looks_whole(wire: str) -> None:
    """At tenths of its bytes: the client raises, and sees no call of it."""
    data = formats.dump(wire, REPLIES["all"], model="m")

    def script(asked: Asked) -> Any:
        return [head(), chunk(data[: len(data) * int(asked_of(asked)) // 10]), "close"]

    with over(wire, script) as g:
        for shape, tenth in itertools.product(CLIENTS, (0, 1, 3, 6, 9)):
            before = len(g.records)
            with pytest.raises(RAISED[shape]):
                CLIENTS[shape](g, True, [WEATHER], "m", str(tenth))
            seen = last_record(g, before)
            assert seen.error is not None
            assert seen.calls == ()


@pytest.mark.parametrize("wire", WIRES)
def test_the_backends_failure_is_the_clients_error(wire: str) -> None:
    failed = Reply("Hel", finish="error", error="out of memory")
    with over(wire, answers(wire, failed)) as g:
        for shape, streams in itertools.product(CLIENTS, (True, False)):
            with pytest.raises(RAISED[shape], match="out of memory"):
                CLIENTS[shape](g, streams, [WEATHER])


# --- what models write ------------------------------------------------------------------------------------------------


def _fits(call: ToolCall, tools: list[Any]) -> bool:
    schema = next(t["function"].get("parameters", {}) for t in tools if t["function"]["name"] == call.name)
    return jsonschema.Draft202012Validator(schema).is_valid(call.arguments)


def rows() -> list[dict[str, Any]]:
    """Cases of the dialects with calls that are meant and sound."""
    found = []
    for name in ("dialects.jsonl", "dialects2.jsonl", "dialects_more.jsonl"):
        for line in (CASES / name).read_text("utf-8").splitlines():
            row = json.loads(line)
            known = {tool["function"]["name"] for tool in row.get("tools", ())}
            if not row.get("tools") or row.get("prompt_tail") or row["expect"].get("incomplete"):
                continue
            reply = read(row["raw"], dialect=row["dialect"], tools=row["tools"])
            fit = all(c.name in known and not c.flags and _fits(c, row["tools"]) for c in reply.calls)
            if reply.calls and fit:
                found.append(row)
    return found


def test_what_models_write_reaches_every_client() -> None:
    """Cases of the dialects, in pieces of 1 to 5 characters, to the clients in turn; all of them with `make long`."""
    every = rows()
    assert len(every) > 100
    found = {row["id"]: row for row in (every if os.environ.get("CALLGATE_FUZZ") else every[::4])}
    rng = random.Random(7)

    def script(asked: Asked) -> Any:
        body = asked.json
        row = found[body["messages"][-1]["content"]]
        raw, pieces = row["raw"], []
        while raw:
            size = rng.randrange(1, 6)
            pieces.append(raw[:size])
            raw = raw[size:]
        if not body.get("stream"):
            return answers("openai", Reply(row["raw"], raw_finish="stop"))(asked)
        return stream(sse(*(say(piece) for piece in pieces), say(finish="stop")))

    dialects = sorted({row["dialect"] for row in found.values()})
    with gateway(script, make=lambda port: [backend(port, "openai", name, name) for name in dialects]) as g:
        for n, (question, row) in enumerate(found.items()):
            tools = [tool["function"] for tool in row["tools"]]
            shape = list(CLIENTS)[n % len(CLIENTS)]
            got = CLIENTS[shape](g, n % 5 != 0, tools, row["dialect"], question)
            expect = row["expect"]
            calls = [(call["name"], call["arguments"]) for call in expect["calls"]]
            assert got.meant == (expect["content"], expect["reasoning"], calls, "tool_calls"), (question, shape)


# --- several backends -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
def test_the_next_backend_is_asked_before_the_first_byte_only(streams: bool) -> None:
    """A backend that fails hands over to the next one; one that broke off after its first byte does not."""
    reply = REPLIES["call"]

    def two(port: int) -> list[Provider]:
        first = Backend(HttpClient(f"http://127.0.0.1:{port}", name="a", headers={}), "m", wire="openai", path="/first")
        return [first, backend(port, "openai")]

    def failing(asked: Asked) -> Any:
        failed = refusal("500 Oops", {"error": {"message": "tool call parser failed"}})
        return failed if asked.path == "/first" else answers("openai", reply)(asked)

    def breaking(asked: Asked) -> Any:
        data = formats.dump("openai", Reply("Hello there"), model="m")
        return [head(), chunk(data[:250]), 0.01, "close"] if asked.path == "/first" else answers("openai", reply)(asked)

    with gateway(failing, make=two) as g:
        assert of_openai(g, streams, [WEATHER]).calls == [("get_weather", {"city": "Oslo"})]
        wait_for(lambda: g.records)
        assert g.records[0].backend_errors == (("a:m", "Overloaded"),)
    with gateway(breaking, make=two) as g:
        with pytest.raises(openai.APIError):
            of_openai(g, True, [WEATHER])
        assert {asked.path for asked in g.backend.asked} == {"/first"}
