"""OpenAI's Responses API over HTTP, in both roles: the official client asks a server of ours, and our provider asks one
that speaks the official package's types. No hosted server is asked."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

from callgate import Agent, providers, read
from callgate.formats import responses as api
from callgate.providers import Recording
from callgate.types import BadCall, Delta, Finish, Message, Request
from loopback import Asked, chunk, head, loopback, refusal
from test_formats_responses import WHOLE, body, call, end, reasoning, reasoning_item, start, text
from test_providers_anthropic import DELTAS, FIRST, get_weather

PARAMS: TypeAdapter[Any] = TypeAdapter(ResponseCreateParamsStreaming)
TOOLS: list[Any] = [{"type": "function", "name": "get_weather", "parameters": {}, "strict": False}]
ASKS: dict[str, Any] = {"model": "m", "input": "Weather in Paris?", "tools": TOOLS}


def serve(*deltas: Delta) -> Any:
    """A server of the Responses API that answers with these deltas, streamed or whole as it is asked to."""

    def answer(asked: Asked) -> list[Any]:
        assert (asked.method, asked.path) == ("POST", "/v1/responses")
        request = api.load_request(asked.json)
        if not request.stream:
            data = b"".join(map(api.frame, api.Dumper(model="m").feed(list(deltas))))
            return refusal("200 OK", api.dump_whole(read(data, wire="responses"), model="m", created=1))
        records = [chunk(api.frame(record)) for record in api.Dumper(model="m", id="resp_7").feed(list(deltas))]
        return [head(), *records, chunk(b"")]

    return answer


def client(url: str) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=url, api_key="test", max_retries=0)


def seen(response: Any) -> list[Any]:
    out: list[Any] = []
    for item in response.output:
        match item.type:
            case "reasoning":
                out.append((item.type, "".join(part.text for part in item.summary)))
            case "message":
                out.append((item.type, "".join(part.text for part in item.content)))
            case "function_call":
                out.append((item.call_id, item.name, json.loads(item.arguments)))
    return out


WANT: list[Any] = [
    ("reasoning", "Let me see."),
    ("message", "I look it up. 日本語 🙂"),
    ("toolu_1", "get_weather", {"city": "Paris"}),
    ("toolu_2", "get_weather", {}),
]


@pytest.mark.anyio
async def test_the_official_client_reads_what_we_serve_streamed_and_whole() -> None:
    async with loopback(serve(*DELTAS)) as server, client(server.url) as official:
        async with official.responses.stream(**ASKS) as stream:
            pieces = [event.delta async for event in stream if event.type == "response.output_text.delta"]
            streamed = await stream.get_final_response()
        whole = await official.responses.create(**ASKS)
        raw = [event.type async for event in await official.responses.create(**ASKS, stream=True)]
    assert pieces == ["I look ", "it up. 日本語 🙂"], "text arrives as it is written"
    for response in (streamed, whole):
        assert seen(response) == WANT
        assert (response.status, response.output_text) == ("completed", "I look it up. 日本語 🙂")
        assert response.usage is not None
        assert (response.usage.input_tokens, response.usage.input_tokens_details.cached_tokens) == (25, 5)
    assert streamed.id == "resp_7"
    assert (raw[0], raw[-1]) == ("response.created", "response.completed")
    assert raw.count("response.function_call_arguments.delta") == 3


@pytest.mark.anyio
@pytest.mark.parametrize(("reason", "status"), [("length", "incomplete"), ("content_filter", "incomplete")])
async def test_the_official_client_is_told_why_an_answer_is_not_whole(reason: Any, status: str) -> None:
    cut: list[Delta] = [*DELTAS[:4], BadCall(0, "toolu_1", "get_weather", '{"city": '), Finish(reason)]
    async with loopback(serve(*cut)) as server, client(server.url) as official:
        events = [event async for event in await official.responses.create(**ASKS, stream=True)]
    last: Any = events[-1]
    assert (last.type, last.response.status) == (f"response.{status}", status)
    assert last.response.incomplete_details.reason == {"length": "max_output_tokens"}.get(reason, reason)


@pytest.mark.anyio
@pytest.mark.parametrize("reason", ["error", "interrupted"])
async def test_the_official_client_gets_no_final_response_where_an_answer_of_ours_failed(reason: Any) -> None:
    cut: list[Delta] = [*DELTAS[:4], BadCall(0, "toolu_1", "get_weather", '{"city": '), Finish(reason, error="boom")]
    async with loopback(serve(*cut)) as server, client(server.url) as official:
        async with official.responses.stream(**ASKS) as stream:
            events: list[Any] = [event async for event in stream]
            with pytest.raises(RuntimeError, match=r"response\.completed"):
                await stream.get_final_response()
    assert (events[-1].type, events[-1].response.error.message) == ("response.failed", "boom")


# --- our provider -------------------------------------------------------------------------------------------------

CALLS = body(*start(), *reasoning(0, "hm"), *call(1, "get_weather", '{"city": "Paris"}', call_id="call_abc"), end())
LAST = body(*start(), *text(0, "Rain."), end())


def vendor(*answers: Any) -> Any:
    """A server that checks each request by the official package's types and plays these answers in turn."""
    left = list(answers)

    def answer(asked: Asked) -> Any:
        if asked.method == "GET":
            return refusal("200 OK", {"data": [{"id": "m"}]})
        PARAMS.validate_python(asked.json, strict=True)
        piece = left.pop(0)
        if isinstance(piece, list):
            return piece
        return [head(), *(chunk(piece[n : n + 11]) for n in range(0, len(piece), 11)), chunk(b"")]

    return answer


@pytest.mark.anyio
async def test_a_run_over_the_responses_api_stores_nothing() -> None:
    async with loopback(vendor(CALLS, LAST)) as server:
        provider = providers.open("openai-responses:m", base_url=server.url, key="sk-test")
        result = await Agent(provider, tools=[get_weather], instructions="Be brief.").run("Weather in Paris?")
        await provider.aclose()
    assert (result.text, result.reason) == ("Rain.", "answered")
    bodies = [request.json for request in server.asked if request.method == "POST"]
    for sent in bodies:
        assert (sent["store"], sent["include"]) == (False, ["reasoning.encrypted_content"])
        assert "previous_response_id" not in sent
        assert sent["instructions"] == "Be brief."
    assert bodies[1]["input"][1:] == [
        reasoning_item(0, "hm"),
        {"type": "function_call", "call_id": "call_abc", "name": "get_weather", "arguments": '{"city": "Paris"}'},
        {"type": "function_call_output", "call_id": "call_abc", "output": "rain in Paris"},
    ]


@pytest.mark.anyio
async def test_a_model_without_reasoning_is_asked_without_its_encryption() -> None:
    no = {"message": "Encrypted content is not supported with this model.", "param": "include"}
    refused = refusal("400 X", {"error": {"type": "invalid_request_error", **no}})
    async with loopback(vendor(refused, LAST, LAST)) as server:
        provider = providers.open(f"{server.url}/responses#m", abilities={"tools"})
        agent = Agent(provider)
        assert [(await agent.run("hi")).text for _ in range(2)] == ["Rain.", "Rain."]
        await provider.aclose()
    assert ["include" in request.json for request in server.asked] == [True, False, False]
    assert "authorization" not in server.asked[0].headers


def test_an_address_names_its_api_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789")
    found = {}
    for path in ("", "/chat/completions", "/responses", "/responses/", "/messages"):
        provider: Any = providers.open(f"http://127.0.0.1:9/v1{path}#m")
        assert (provider.client.base_url, provider.client.secret) == ("http://127.0.0.1:9/v1", "")
        found[path] = provider.wire
    want = {"/responses": "responses", "/responses/": "responses", "/messages": "anthropic"}
    assert found == {path: want.get(path, "openai") for path in found}


def test_bare_bytes_are_played_by_the_api_that_they_look_like(tmp_path: Any) -> None:
    ollama = b'{"message": {"content": "x"}, "done": true}\n'
    openai_ = b'data: {"choices": [{"delta": {"content": "x"}}]}\n\n'
    files = {"responses": WHOLE, "anthropic": FIRST, "ollama": ollama, "openai": openai_}
    for wire, data in files.items():
        path = tmp_path / wire
        path.write_bytes(data)
        assert Recording.load(path).wire == wire


def test_bodies_are_what_the_official_package_sends() -> None:
    file = {"type": "file", "file": {"file_data": "data:application/pdf;base64,AA==", "filename": "a.pdf"}}
    messages = (Message("user", ({"type": "text", "text": "?"}, file)), Message("assistant", "x"), Message("user", "y"))
    request = Request(messages, options={"max_tokens": 9, "reasoning_effort": "low"}, schema={"type": "object"})
    assert PARAMS.validate_python(json.loads(json.dumps(api.build(request, "m", stateless=True))))
