"""Clients of every API alike: asynchronous ones, those that leave, those that wait long for their first token."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest

from callgate import formats
from gateway_server import Options, Running, gateway
from loopback import Asked, chunk, head
from patience import busy, until
from test_gateway_ways import HI, REPLIES, WEATHER, Got, answers, backend, over

PATHS = {
    "openai": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "ollama": "/api/chat",
    "generate": "/api/generate",
}


def body_of(shape: str, *, streams: bool) -> dict[str, Any]:
    """A request without tools."""
    messages = [{"role": "user", "content": HI}]
    said: dict[str, dict[str, Any]] = {
        "responses": {"input": HI},
        "generate": {"prompt": HI},
        "anthropic": {"messages": messages, "max_tokens": 50},
    }
    return {"model": "m", "stream": streams, **said.get(shape, {"messages": messages})}


# --- asynchronous -----------------------------------------------------------------------------------------------------


async def from_openai(g: Running, streams: bool) -> Got:
    async with openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0) as web:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": HI}]}
        asked["tools"] = [{"type": "function", "function": WEATHER}]
        if streams:
            async with web.chat.completions.stream(**asked) as events:
                async for _ in events:
                    pass
                choice: Any = (await events.get_final_completion()).choices[0]
        else:
            choice = (await web.chat.completions.create(**asked)).choices[0]
        calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()]
        return Got(choice.message.content or "", calls=calls, end=choice.finish_reason)


async def from_anthropic(g: Running, streams: bool) -> Got:
    async with anthropic.AsyncAnthropic(base_url=g.url, api_key="none", max_retries=0) as web:
        tool = {"name": "get_weather", "input_schema": WEATHER["parameters"]}
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": HI}], "max_tokens": 99, "tools": [tool]}
        if streams:
            async with web.messages.stream(**asked) as events:
                message: Any = await events.get_final_message()
        else:
            message = await web.messages.create(**asked)
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
        return Got(text, calls=calls, end={"tool_use": "tool_calls"}.get(message.stop_reason, message.stop_reason))


async def from_ollama(g: Running, streams: bool) -> Got:
    web = ollama.AsyncClient(host=g.url)
    try:
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": HI}], "stream": streams}
        answer = await web.chat(**asked, tools=[{"type": "function", "function": WEATHER}])
        out = Got(end="tool_calls")
        parts = [part async for part in answer] if streams else [answer]
        for part in parts:
            out.text += part.message.content or ""
            out.calls += [(c.function.name, dict(c.function.arguments)) for c in part.message.tool_calls or ()]
        return out
    finally:
        await web._client.aclose()


async def from_responses(g: Running, streams: bool) -> Got:
    async with openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0) as web:
        asked: Any = {"model": "m", "input": HI, "tools": [{"type": "function", **WEATHER}]}
        if streams:
            async with web.responses.stream(**asked) as events:
                async for _ in events:
                    pass
                response: Any = await events.get_final_response()
        else:
            response = await web.responses.create(**asked)
        calls = [(i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]
        return Got(response.output_text, calls=calls, end="tool_calls")


@pytest.mark.parametrize("wire", ["openai", "ollama", "anthropic", "responses"])
def test_asynchronous_clients_get_what_was_meant(wire: str) -> None:
    """All four at once, streamed and not, over one backend in pieces of 3 bytes."""
    reply = REPLIES["all"]
    meant = [(call.name, call.arguments) for call in reply.calls]
    clients = (from_openai, from_anthropic, from_ollama, from_responses)

    async def ask(g: Running) -> list[Got]:
        return await asyncio.gather(*(one(g, streams) for one in clients for streams in (True, False)))

    with over(wire, answers(wire, reply, 3)) as g:
        for got in asyncio.run(ask(g)):
            assert (got.text, got.calls, got.end) == (reply.content, meant, "tool_calls")


# --- who leaves -------------------------------------------------------------------------------------------------------

BEGUN = formats.dump("openai", REPLIES["text"], model="m")[:200]
SILENT = {"before the head": ["hang"], "before the first token": [head(), "hang"]}
SILENT["in mid-stream"] = [head(), chunk(BEGUN), "hang"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("shape", PATHS)
@pytest.mark.parametrize("moment", SILENT)
def test_a_client_of_any_api_that_leaves_cancels_its_backend_at_once(shape: str, streams: bool, moment: str) -> None:
    with gateway(SILENT[moment]) as g:

        async def leave() -> None:
            async with httpx.AsyncClient(timeout=60) as web:
                asked = web.post(f"{g.url}{PATHS[shape]}", json=body_of(shape, streams=streams))
                task = asyncio.ensure_future(asked)
                while not g.asked:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.05)
                task.cancel()

        asyncio.run(leave())
        left = time.monotonic()
        until(g.backend.dropped.is_set)
        assert time.monotonic() - left < 0.1 * max(4.0, busy())  # 0.1 s on an idle machine
        until(lambda: g.records)
        assert (g.records[0].error, g.records[0].shape) == ("Disconnected", shape)


# --- who waits --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", PATHS)
def test_a_long_prefill_is_bridged_in_every_api(shape: str) -> None:
    """Signs of life come before the first token, and leave nothing in what a client puts together."""

    def slow(asked: Asked) -> Any:
        return [0.4, *answers("openai", REPLIES["text"])(asked)]

    with gateway(slow, make=lambda port: backend(port, "openai"), options=Options(heartbeat=0.05)) as g:
        with httpx.stream("POST", f"{g.url}{PATHS[shape]}", json=body_of(shape, streams=True)) as answer:
            whole = answer.read().decode()
        first = whole.index("Höchste")
        signs = {"openai": ": callgate", "responses": ": callgate", "anthropic": "event: ping"}
        assert whole[:first].count(signs.get(shape, '"done":false')) >= 3
        if shape != "responses":  # which says the whole text again at its end
            assert whole[first:].count("Höchste") == 1


# --- several answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("wire", ["ollama", "anthropic", "responses"])
def test_several_answers_come_from_a_backend_that_gives_one(wire: str, streams: bool) -> None:
    """`n` over another API: asked for one after the other, each with a seed and a number of its own; the tokens of all
    are counted once."""
    replies = [REPLIES["all"], REPLIES["thought"], REPLIES["text"]]
    given = iter([*replies, *replies])

    def script(asked: Asked) -> Any:
        return answers(wire, replace(next(given), usage={"input": 5, "output": 7}), 5)(asked)

    with over(wire, script) as g, openai.OpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0) as web:
        tools: Any = [{"type": "function", "function": WEATHER}]
        asked: Any = {"model": "m", "messages": [{"role": "user", "content": HI}], "tools": tools, "n": 3, "seed": 4}
        if streams:
            with web.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
                whole: Any = events.get_final_completion()
        else:
            whole = web.chat.completions.create(**asked)
        assert [choice.index for choice in whole.choices] == [0, 1, 2]
        for choice, reply in zip(whole.choices, replies, strict=True):
            assert (choice.message.content or "", choice.finish_reason) == (reply.content, reply.finish)
            calls = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()]
            assert calls == [(call.name, call.arguments) for call in reply.calls]
        assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (15, 21)
        if wire == "ollama":
            assert [body["options"]["seed"] for body in g.asked] == [4, 5, 6]
        until(lambda: g.records)
        assert (g.records[0].tokens_in, g.records[0].tokens_out) == (15, 21)


def test_one_of_several_answers_that_breaks_off_ends_the_stream_with_an_error() -> None:
    given = iter([answers("ollama", REPLIES["text"]), lambda asked: [head(), "close"]])

    with over("ollama", lambda asked: next(given)(asked)) as g:
        body = {**body_of("openai", streams=True), "n": 2}
        text = httpx.post(f"{g.url}{PATHS['openai']}", json=body).text
        assert "Höchste" in text
        assert "[DONE]" not in text
        assert json.loads(text.rstrip().rpartition("data: ")[2])["error"]["message"]
