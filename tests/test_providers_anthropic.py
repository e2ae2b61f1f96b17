"""Anthropic's Messages API over HTTP, in both roles: the official client asks a server of ours, and our provider asks
one that speaks the official package's types. No hosted server is asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anthropic
import pytest
from anthropic.types.message_create_params import MessageCreateParamsStreaming
from pydantic import TypeAdapter

from callgate import Agent, Replay, providers, read
from callgate.errors import ConfigError, RefusedKey
from callgate.formats import anthropic as api
from callgate.types import BadCall, CallDelta, Delta, Finish, Message, ModelInfo, ReasoningDelta, Request, TextDelta
from callgate.types import ToolCall as Call
from loopback import Asked, chunk, head, loopback, refusal
from test_formats_anthropic import SIGNATURE, body, call, end, start, text, thinking

PARAMS: TypeAdapter[Any] = TypeAdapter(MessageCreateParamsStreaming)
USAGE = {"input": 25, "output": 9, "cached": 5}
DELTAS: list[Delta] = [
    ReasoningDelta("Let me see."),
    TextDelta("I look "),
    TextDelta("it up. 日本語 🙂"),
    CallDelta(0, "toolu_1", "get_weather", '{"city": '),
    CallDelta(0, None, None, '"Paris"}'),
    CallDelta(1, "toolu_2", "get_weather", "{}"),
    Call("toolu_1", "get_weather", {"city": "Paris"}, 0),
    Call("toolu_2", "get_weather", {}, 1),
    Finish("tool_calls", USAGE, "tool_use"),
]
TOOLS: list[Any] = [{"name": "get_weather", "input_schema": {"type": "object", "properties": {}}}]


def serve(*deltas: Delta) -> Any:
    """A server of the Messages API that answers with these deltas, streamed or whole as it is asked to."""

    def answer(asked: Asked) -> list[Any]:
        assert (asked.method, asked.path) == ("POST", "/v1/messages")
        request = api.load_request(asked.json)
        if not request.stream:
            data = b"".join(map(api.frame, api.Dumper(model="m").feed(list(deltas))))
            return refusal("200 OK", api.dump_whole(read(data, wire="anthropic"), model="m"))
        records = [chunk(api.frame(record)) for record in api.Dumper(model="m", id="msg_7").feed(list(deltas))]
        return [head(), *records, chunk(b"")]

    return answer


def client(url: str) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="test", max_retries=0)


def asks(**more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Weather in Paris?"}]
    return {"model": "m", "max_tokens": 99, "messages": messages, "tools": TOOLS, **more}


def seen(message: Any) -> list[Any]:
    values = {"thinking": "thinking", "text": "text", "tool_use": "input"}
    return [(block.type, getattr(block, values[block.type])) for block in message.content]


WANT = [
    ("thinking", "Let me see."),
    ("text", "I look it up. 日本語 🙂"),
    ("tool_use", {"city": "Paris"}),
    ("tool_use", {}),
]


@pytest.mark.anyio
async def test_the_official_client_reads_what_we_serve_streamed_and_whole() -> None:
    async with loopback(serve(*DELTAS)) as server, client(server.url) as official:
        async with official.messages.stream(**asks()) as stream:
            pieces = [event.text async for event in stream if event.type == "text"]
            streamed = await stream.get_final_message()
        whole = await official.messages.create(**asks())
        raw = [event.type async for event in await official.messages.create(**asks(), stream=True)]
    assert "".join(pieces) == "I look it up. 日本語 🙂"
    assert len(pieces) == 2, "text arrives as it is written"
    for message in (streamed, whole):
        assert seen(message) == WANT
        assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 9)
        assert (message.usage.input_tokens, message.usage.cache_read_input_tokens) == (20, 5)
    assert streamed.id == "msg_7"
    assert (raw[0], raw[-2:]) == ("message_start", ["message_delta", "message_stop"])


@pytest.mark.anyio
@pytest.mark.parametrize("reason", ["error", "interrupted"])
async def test_the_official_client_raises_where_an_answer_of_ours_failed(reason: Any) -> None:
    cut: list[Delta] = [*DELTAS[:4], BadCall(0, "toolu_1", "get_weather", '{"city": '), Finish(reason, error="boom")]
    async with loopback(serve(*cut)) as server, client(server.url) as official:
        with pytest.raises(anthropic.APIStatusError, match="boom"):
            async with official.messages.stream(**asks()) as stream:
                await stream.get_final_message()


# --- our provider -------------------------------------------------------------------------------------------------


def get_weather(city: str) -> str:
    "Current weather in a city."
    return f"rain in {city}"


FIRST = body(
    start(input_tokens=9),
    *thinking(0, "The user wants", " the weather."),
    *text(1, "I look."),
    *call(2, "get_weather", '{"ci', 'ty": "Paris"}'),
    *end("tool_use", output_tokens=7),
)
LAST = body(start(input_tokens=30, cache_read_input_tokens=9), *text(0, "Rain."), *end("end_turn", output_tokens=2))
ENTRY = {
    "id": "claude-x",
    "type": "model",
    "display_name": "X",
    "max_tokens": 64_000,
    "max_input_tokens": 200_000,
    "capabilities": {
        "structured_outputs": {"supported": True},
        "image_input": {"supported": True},
        "thinking": {"supported": True, "types": {"adaptive": {"supported": True}}},
    },
}
MODELS = refusal("200 OK", {"data": [ENTRY, {"id": "claude-old"}], "has_more": False})


def vendor(*answers: bytes, models: Any = MODELS) -> Any:
    """A server that checks each request by the official package's types and plays these answers in turn."""
    left = list(answers)

    def answer(asked: Asked) -> Any:
        if asked.method == "GET":
            return models
        PARAMS.validate_python({**asked.json, "stream": True}, strict=True)
        piece = left.pop(0)
        return [head(), *(chunk(piece[n : n + 11]) for n in range(0, len(piece), 11)), chunk(b"")]

    return answer


@pytest.mark.anyio
async def test_a_run_over_the_messages_api() -> None:
    async with loopback(vendor(FIRST, LAST)) as server:
        provider = providers.open("anthropic:claude-x", base_url=server.url, key="sk-ant-key-of-a-test")
        agent = Agent(provider, tools=[get_weather], instructions="Be brief.")
        result = await agent.run("Weather in Paris?")
        await provider.aclose()
    assert (result.text, result.reason) == ("Rain.", "answered")
    asked = [request for request in server.asked if request.method == "POST"]
    assert all(request.headers["x-api-key"] == "sk-ant-key-of-a-test" for request in asked)
    assert asked[0].headers["anthropic-version"]
    first, second = (request.json for request in asked)
    mark = {"type": "ephemeral"}
    assert first["max_tokens"] == 32_000, "the model's own limit, and not more than an answer needs"
    assert first["system"][-1]["cache_control"] == mark
    assert [m["role"] for m in second["messages"]] == ["user", "assistant", "user"]
    signed = {"type": "thinking", "thinking": "The user wants the weather.", "signature": SIGNATURE}
    assert second["messages"][1]["content"][0] == signed, "signed thinking goes back as it came"
    (found,) = second["messages"][2]["content"]
    assert (found["type"], found["tool_use_id"], found["content"]) == ("tool_result", "toolu_2", "rain in Paris")
    assert found["cache_control"] == mark
    assert result.usage["cached"] == 9


@pytest.mark.anyio
async def test_what_a_model_can_do_is_asked_once() -> None:
    async with loopback(vendor(LAST, LAST)) as server:
        provider: Any = providers.open("anthropic:claude-x", base_url=server.url)
        info = await provider.info()
        assert (await provider.info()) is info
        assert [request.path for request in server.asked] == ["/v1/models"]
        assert info.capabilities == {"tools", "schema", "thinking", "vision"}
        assert info.context_length == 200_000
        old = (await provider.catalogue())[1]
        assert (old.name, old.capabilities) == ("claude-old", {"tools"})
        sent = provider.accept(Request((Message("user", "?"),), options={"think": True, "max_tokens": 5}))
        assert provider.body(sent.request)["thinking"] == {"type": "adaptive"}
        await provider.aclose()


@pytest.mark.anyio
async def test_a_local_server_of_the_api_needs_no_name_no_key_and_says_nothing_of_its_model() -> None:
    """llama.cpp and its like: a list in OpenAI's form, or none."""
    async with loopback(vendor(LAST, models=refusal("200 OK", {"data": [{"id": "the-one"}]}))) as server:
        provider = providers.open(f"{server.url}/messages")
        assert await provider.info() == ModelInfo("the-one", "anthropic", frozenset({"tools"}))
        assert (await Agent(provider).run("hi")).text == "Rain."
        await provider.aclose()
    assert "x-api-key" not in server.asked[-1].headers
    async with loopback(vendor(LAST, models=refusal("404 X", b""))) as server:
        provider = providers.open(f"{server.url}/messages#m", headers={"anthropic-version": "2023-06-01"})
        assert (await Agent(provider).run("hi")).text == "Rain."
        await provider.aclose()
    assert server.asked[-1].headers["anthropic-version"] == "2023-06-01"


REFUSALS: dict[str, tuple[list[Any], str]] = {
    "key": (refusal("401 X", {"error": {"message": "invalid sk-ant-0123456789"}}), "refused the key"),
    "credit": (refusal("400 X", {"error": {"message": "Your credit balance is too low to access the API"}}), "credit"),
}


@pytest.mark.anyio
@pytest.mark.parametrize("case", REFUSALS)
async def test_a_refused_key_is_told(case: str) -> None:
    script, words = REFUSALS[case]
    async with loopback(script) as server:
        provider = providers.open("anthropic:m", base_url=server.url, key="sk-ant-0123456789")
        with pytest.raises(RefusedKey, match=words) as caught:
            async with provider.stream(Request((Message("user", "?"),))):
                pass
        await provider.aclose()
    assert "0123456789" not in str(caught.value)


@pytest.mark.anyio
async def test_an_overloaded_server_is_asked_again() -> None:
    busy = refusal("529 X", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})
    async with loopback(busy, [head(), chunk(LAST), chunk(b"")]) as server:
        provider = providers.open("anthropic:m", base_url=server.url, abilities={"tools"}, backoff=0.01)
        assert (await Agent(provider).run("hi")).text == "Rain."
        await provider.aclose()
    assert len(server.asked) == 2


def test_the_key_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        providers.open("anthropic:claude-x")
    with pytest.raises(ConfigError, match="colour"):
        providers.open("anthropic:m", key="k", colour=1)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
    provider: Any = providers.open("anthropic:claude-x")
    assert provider.client.base_url == "https://api.anthropic.com/v1"
    other: Any = providers.open("http://127.0.0.1:9/v1/messages#m")
    assert (provider.client.secret, other.client.secret) == ("sk-ant-0123456789", ""), "not for other servers"


def test_a_recording_of_the_api_can_be_scripted() -> None:
    assert Agent(Replay([FIRST, LAST], wire="anthropic"), tools=[get_weather]).run_sync("?").text == "Rain."


def test_bodies_are_what_the_official_package_sends() -> None:
    image: Mapping[str, Any] = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    messages = (Message("user", ({"type": "text", "text": "?"}, image)),)
    built = api.build(Request(messages, options={"stop": "x", "think": True}, schema={"type": "object"}), "m")
    assert PARAMS.validate_python(json.loads(json.dumps(built)))
