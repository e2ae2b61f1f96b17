"""Every resolved row: what each vendor's models and each kind of server come to, at one glance."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from inline_snapshot import snapshot

from callgate import Replay, providers
from callgate.apps.cli import cli
from callgate.apps.cli.models import asked
from callgate.errors import BadRequest, ConfigError
from callgate.formats import openai as api
from callgate.providers.openai import VENDORS
from callgate.types import Message, ModelInfo, Request, ToolCall
from loopback import HELLO, chunk, head, loopback, refusal, stream

CHATML = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>{% endfor %}"
HERMES = (
    CHATML
    + '{% if tools %}<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>{% endif %}'
)


def row(info: ModelInfo) -> str:
    protocol, why = asked(info)
    return f"{protocol}, {info.dialect or 'auto'}: {why}"


@pytest.mark.parametrize("vendor", VENDORS)
def test_every_vendor_opens(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key in the environment; without one it says which variable is missing."""
    entry = VENDORS[vendor]
    if entry.url_variable == "AZURE_OPENAI_ENDPOINT":
        monkeypatch.setenv(entry.url_variable, "https://x.openai.azure.com")
    if entry.key:
        monkeypatch.delenv(entry.key, raising=False)
        with pytest.raises(ConfigError, match=entry.key):
            providers.open(f"{vendor}:m")
        monkeypatch.setenv(entry.key, "secret-key-of-a-vendor")
    provider = providers.open(f"{vendor}:m")
    assert (provider.name, provider.model) == (vendor, "m")
    assert "secret-key" not in repr(provider)


def test_what_each_vendor_is_sent() -> None:
    history = (
        Message("assistant", "", "hm", (ToolCall("call_1", "f", {}),)),
        Message("tool", "ok", call_id="call_1", name="f"),
    )
    request = Request(history, options={"max_tokens": 9}, schema={"type": "object"})
    plain = api.build(request, "m")
    found: dict[str, Any] = {}
    for name, vendor in VENDORS.items():
        if vendor.api != "openai":
            continue  # test_providers_responses.py
        body = api.build(request, "m", vendor.quirks)
        found[name] = {
            "tools/schema": "/".join(sorted(vendor.abilities)),
            **{key: value for key, value in body.items() if plain.get(key) != value and key != "messages"},
            "absent": sorted(set(plain) - set(body)),
            **{
                k: v
                for m, p in zip(body["messages"], plain["messages"], strict=True)
                for k, v in m.items()
                if p.get(k) != v
            },
        }
    assert found == snapshot(
        {
            "openai": {"tools/schema": "schema/tools", "max_completion_tokens": 9, "absent": ["max_tokens"]},
            "azure": {"tools/schema": "schema/tools", "max_completion_tokens": 9, "absent": ["max_tokens"]},
            "cerebras": {"tools/schema": "schema/tools", "absent": []},
            "dashscope": {"tools/schema": "schema/tools", "absent": []},
            "deepseek": {
                "tools/schema": "tools",
                "response_format": {"type": "json_object"},
                "absent": [],
                "reasoning_content": "hm",
            },
            "fireworks": {"tools/schema": "schema/tools", "absent": []},
            "gemini": {"tools/schema": "schema/tools", "absent": [], "name": "f"},
            "groq": {"tools/schema": "schema/tools", "absent": []},
            "huggingface": {"tools/schema": "schema/tools", "absent": []},
            "mistral": {
                "tools/schema": "schema/tools",
                "absent": ["stream_options"],
                "tool_calls": [{"id": "74196fe72", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
                "tool_call_id": "74196fe72",
                "name": "f",
            },
            "moonshot": {"tools/schema": "tools", "absent": [], "reasoning_content": "hm"},
            "nvidia": {"tools/schema": "schema/tools", "absent": []},
            "openrouter": {"tools/schema": "schema/tools", "absent": [], "reasoning": "hm"},
            "together": {"tools/schema": "schema/tools", "absent": []},
            "xai": {"tools/schema": "schema/tools", "absent": []},
            "zhipu": {"tools/schema": "tools", "absent": []},
            "llama-server": {"tools/schema": "schema/tools", "absent": [], "reasoning_content": "hm"},
            "lmstudio": {"tools/schema": "schema/tools", "absent": []},
            "sglang": {"tools/schema": "schema/tools", "absent": [], "reasoning_content": "hm"},
            "vllm": {"tools/schema": "schema/tools", "absent": [], "reasoning_content": "hm"},
        }
    )


SERVERS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "llama.cpp, a template with tools": ({"data": [{"id": "qwen3"}]}, {"chat_template": HERMES}),
    "llama.cpp, a template without": ({"data": [{"id": "tiny"}]}, {"chat_template": CHATML}),
    "llama.cpp, a small model": ({"data": [{"id": "SmolLM2-135M"}]}, {"chat_template": CHATML}),
    "vLLM": ({"data": [{"id": "Qwen/Qwen3-Coder-30B", "owned_by": "vllm", "max_model_len": 262144}]}, None),
    "unknown": ({"data": [{"id": "banana"}]}, None),
}


@pytest.mark.anyio
async def test_every_kind_of_server_resolves() -> None:
    found: dict[str, str] = {}
    for name, (models, props) in SERVERS.items():
        answers = {"/v1/models": refusal("200 OK", models)}
        if props is not None:
            answers["/props"] = refusal("200 OK", props)
        async with loopback(lambda asked, a=answers: a.get(asked.path, refusal("404 X", b""))) as server:
            provider = providers.server(server.url)
            (info,) = await provider.catalogue()  # type: ignore[attr-defined]
            await provider.aclose()
        found[name] = row(info)
    assert found == snapshot(
        {
            "llama.cpp, a template with tools": "native, hermes: the server reads the model's calls itself",
            "llama.cpp, a template without": "constrained, auto: no tools field, but output is kept to a schema",
            "llama.cpp, a small model": "routed, auto: a small model, whose output is kept to a schema",
            "vLLM": "native, qwen_xml: the server reads the model's calls itself",
            "unknown": "native, auto: the server reads the model's calls itself",
        }
    )


@pytest.mark.anyio
async def test_the_only_model_of_a_server_needs_no_name() -> None:
    async with loopback(refusal("200 OK", {"data": [{"id": "the-one"}]})) as server:
        provider = providers.open(server.url)
        assert (await provider.info()).name == "the-one"
        await provider.aclose()


@pytest.mark.anyio
async def test_a_server_without_a_list_of_models_is_told_as_that() -> None:
    async with loopback(refusal("404 X", b"")) as server:
        provider = providers.server(server.url)
        with pytest.raises(BadRequest, match="no such path"):
            await provider.catalogue()
        await provider.aclose()


@pytest.mark.anyio
async def test_a_long_list_of_models_comes_in_many_pieces() -> None:
    body = json.dumps({"data": [{"id": f"model-{n}"} for n in range(5000)]}).encode()
    pieces = [piece for n in range(0, len(body), 9000) for piece in (chunk(body[n : n + 9000]), 0.001)]
    async with loopback([head(kind="application/json"), *pieces, chunk(b"")]) as server:
        provider = providers.server(server.url)
        assert len(await provider.models()) == 5000  # type: ignore[attr-defined]
        await provider.aclose()


@pytest.mark.anyio
async def test_a_server_that_hangs_on_questions_is_asked_for_the_answer_all_the_same(monkeypatch: Any) -> None:
    from callgate.providers import _http

    monkeypatch.setattr(_http, "_PROBE", 0.2)
    async with loopback(lambda asked: stream(HELLO) if asked.method == "POST" else ["hang"]) as server:
        provider = providers.open(f"{server.url}#m")
        assert (await provider.info()).capabilities == {"tools", "schema"}
        async with provider.stream(Request((Message("user", "hi"),))) as deltas:
            assert [d async for d in deltas]
        await provider.aclose()
    assert [asked.method for asked in server.asked] == ["GET", "POST"]


@pytest.mark.anyio
async def test_what_is_told_is_not_asked() -> None:
    async with loopback(["hang"]) as server:
        provider = providers.open(f"{server.url}#m", abilities={"schema"}, dialect="hermes")
        info = await provider.info()
    assert (info.capabilities, info.dialect, server.asked) == ({"schema"}, "hermes", [])


@pytest.mark.anyio
async def test_a_server_with_several_models_wants_a_name() -> None:
    async with loopback(refusal("200 OK", {"data": [{"id": "a"}, {"id": "b"}]})) as server:
        provider = providers.open(server.url)
        with pytest.raises(ConfigError, match="#NAME: a, b"):
            async with provider.stream(Request((Message("user", "hi"),))):
                pass
        await provider.aclose()


def test_the_command_names_what_does_not_answer() -> None:
    result = CliRunner().invoke(cli, ["models", "http://127.0.0.1:9/v1"])
    assert "Connection refused" in str(result.exception)


def test_the_command_lists_the_embedded_model() -> None:
    result = CliRunner().invoke(cli, ["models", "local", "--json"])
    if result.exit_code:
        assert "callgate model pull" in str(result.exception)
    else:
        assert json.loads(result.output)["protocol"] == "routed"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-5", 'write "local"'),
        ("openai:", "name must follow"),
        ("ollama:", "name must follow"),
        ("nosuch:m", "no vendor 'nosuch'"),
        ("http://#m", "base_url"),
        ("replay:x", "unknown|no vendor"),
        (None, "None is no provider"),
        (7, 'no provider and no name of a model; write "local"'),
        (Replay, "is no provider"),
    ],
)
def test_a_model_that_is_written_wrong_is_told_how_to_write_it(name: Any, words: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    with pytest.raises(ConfigError, match=words):
        providers.open(name)


@pytest.mark.parametrize("options", [{"colour": 1}, {"timeout": {"forever": 1}}])
def test_an_unknown_setting_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"colour|connect, first, idle, total"):
        providers.open("http://127.0.0.1:9/v1#m", **options)
