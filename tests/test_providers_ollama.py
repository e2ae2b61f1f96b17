"""Ollama over HTTP: requests and answers as its API is published."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import errors, providers
from callgate.providers import ollama
from callgate.reply import TurnReader
from callgate.types import Message, Request, ToolSpec
from loopback import Asked, chunk, head, loopback, refusal

pytestmark = pytest.mark.anyio

QWEN = """{{- if .Tools }}<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>{{ end }}"""
SHOW = {
    "template": QWEN,
    "capabilities": ["completion", "tools", "thinking"],
    "model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40960},
}
RECORDS = [
    {"model": "qwen3", "message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
    {"model": "qwen3", "message": {"role": "assistant", "content": "Hi"}, "done": False},
    {
        "model": "qwen3",
        "message": {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}],
        },
        "done": False,
    },
    {"model": "qwen3", "message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 3},
]


def ndjson(*records: Any, size: int = 17) -> list[Any]:
    body = "".join(json.dumps(record) + "\n" for record in records).encode()
    pieces = [chunk(body[n : n + size]) for n in range(0, len(body), size)]
    return [head(kind="application/x-ndjson"), *pieces, chunk(b"")]


def by_path(**answers: Any) -> Any:
    """Answers by the last part of the path."""
    return lambda asked: answers[asked.path.rpartition("/")[2]]


def model(server: Any, name: str = "qwen3", **options: Any) -> Any:
    url = server.url.removesuffix("/v1")
    return providers.open(f"ollama:{name}", base_url=url, **{"backoff": 0.01, **options})


async def test_a_whole_turn() -> None:
    tools = (ToolSpec("f", "does", {"type": "object", "properties": {"a": {"type": "integer"}}}),)
    async with loopback(ndjson(*RECORDS)) as server:
        provider = model(server)
        turn = TurnReader()
        request = Request((Message("user", "hi"),), tools=tools, options={"think": True, "temperature": 0})
        async with provider.stream(request) as deltas:
            async for some in deltas:
                turn.feed(some)
        await provider.aclose()
    reply = turn.reply
    assert (reply.content, reply.reasoning, reply.finish) == ("Hi", "hm", "tool_calls")
    assert [(c.id, c.name, c.arguments) for c in reply.calls] == [("call_1", "f", {"a": 1})]
    asked: Asked = server.asked[0]
    assert (asked.method, asked.path) == ("POST", "/api/chat")
    assert asked.json["think"] is True
    assert asked.json["options"] == {"temperature": 0}
    assert asked.json["tools"][0]["function"]["name"] == "f"
    assert "authorization" not in asked.headers


async def test_what_a_model_can_do_is_asked_once() -> None:
    async with loopback(refusal("200 OK", SHOW)) as server:
        provider = model(server)
        info = await provider.info()
        assert await provider.info() is info
        await provider.aclose()
    # the context in force is asked for until the model is loaded: only then does the server know it
    assert [asked.path for asked in server.asked] == ["/api/show", "/api/ps", "/api/ps"]
    assert server.asked[0].json == {"model": "qwen3"}
    assert info.capabilities == {"tools", "thinking", "schema"}
    assert (info.context_length, info.dialect, info.chat_template) == (40960, "hermes", QWEN)


async def test_an_old_server_is_read_by_its_template() -> None:
    answers = [refusal("200 OK", {"template": template}) for template in ("{{ .Tools }}", "x")]
    async with loopback(*answers) as server:
        provider = model(server)
        assert "tools" in (await provider.info()).capabilities
        await provider.aclose()
        provider = model(server)
        assert (await provider.info()).capabilities == {"schema"}
        await provider.aclose()


async def test_a_missing_model_lists_what_is_there_and_how_to_get_it() -> None:
    answers = by_path(
        chat=refusal("404 X", {"error": "model 'nope' not found"}),
        tags=refusal("200 OK", {"models": [{"model": "qwen3:latest"}, {"model": "phi4"}]}),
    )
    async with loopback(answers) as server:
        provider = model(server, "nope")
        with pytest.raises(errors.ModelMissing, match=r"ollama pull nope.*it has: qwen3:latest, phi4") as caught:
            async with provider.stream(Request((Message("user", "hi"),))):
                pass
        await provider.aclose()
    assert caught.value.available == ("qwen3:latest", "phi4")


async def test_a_model_without_tools_is_a_bad_request_in_the_servers_words() -> None:
    async with loopback(refusal("400 X", {"error": "registry/x does not support tools"})) as server:
        provider = model(server)
        with pytest.raises(errors.BadRequest, match="does not support tools"):
            async with provider.stream(Request((Message("user", "hi"),))):
                pass
        await provider.aclose()


async def test_an_error_in_the_stream_ends_it() -> None:
    async with loopback(ndjson(*RECORDS[:3], {"error": "runner stopped"})) as server:
        provider = model(server)
        turn = TurnReader()
        async with provider.stream(Request((Message("user", "hi"),))) as deltas:
            async for some in deltas:
                turn.feed(some)
        await provider.aclose()
    assert (turn.reply.finish, turn.reply.error, turn.reply.calls) == ("error", "runner stopped", [])


async def test_the_catalogue_shows_every_model() -> None:
    answers = by_path(
        tags=refusal("200 OK", {"models": [{"model": "a"}, {"model": "b"}]}), show=refusal("200 OK", SHOW)
    )
    async with loopback(answers) as server:
        provider = providers.server("ollama", base_url=server.url.removesuffix("/v1"))
        assert [info.name for info in await provider.catalogue()] == ["a", "b"]
        await provider.aclose()


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("", "http://127.0.0.1:11434"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("0.0.0.0:8080", "http://127.0.0.1:8080"),
        ("example.org", "http://example.org:11434"),
        ("https://example.org", "https://example.org:443"),
        ("http://h:1/prefix/", "http://h:1/prefix"),
        ("[::1]:99", "http://[::1]:99"),
    ],
)
def test_the_variable_means_what_ollama_means_by_it(host: str, address: str) -> None:
    assert ollama.address(host) == address


@pytest.mark.parametrize(
    "answer", [None, [], "x", {}, {"models": None}, {"models": {}}, {"models": [1, {}, {"name": ""}]}]
)
@pytest.mark.parametrize("kind", ["ollama", "openai"])
async def test_a_list_of_models_of_any_shape(kind: str, answer: Any) -> None:
    async with loopback(refusal("200 OK", answer)) as server:
        url = server.url
        provider = providers.server("ollama", base_url=url) if kind == "ollama" else providers.server(url)
        assert await provider.catalogue() == []
        assert (await provider.info()).dialect is None
        await provider.aclose()
