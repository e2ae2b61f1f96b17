"""The gateway to clients of Ollama's API: over a backend of the same API, and over others."""

from __future__ import annotations

import json
from typing import Any

import httpx
import ollama
import pytest

from callgate import providers
from callgate.apps.gateway.gate import ExchangeRecord
from callgate.providers import Provider
from gateway_server import Options, Running, gateway
from loopback import chunk, head, refusal, stream
from test_gateway_mend import GOOD, LEAKED, said
from test_gateway_openai import HI, TOOL, wait_for

SHOWN = {"/api/tags": {"models": [{"name": "m", "model": "m"}]}, "/api/show": {"capabilities": ["tools", "thinking"]}}


def record(message: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "created_at": "2026-01-01T00:00:00Z", "x": [1], "message": message, "done": False, **more}


def text(content: str, **more: Any) -> dict[str, Any]:
    return record({"role": "assistant", "content": content, **more})


def call(arguments: Any, name: str = "get_weather") -> dict[str, Any]:
    return text("", tool_calls=[{"function": {"name": name, "arguments": arguments}}])


DONE = text("") | {"done": True, "done_reason": "stop", "prompt_eval_count": 3, "eval_count": 2, "eval_duration": 7}


def lines(*records: Any) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def own(*records: Any, options: Options | None = None) -> Any:
    """A gateway in front of an Ollama server that streams these records."""
    return gateway(stream(lines(*records)), make=server, shown=SHOWN, options=options)


def server(port: int) -> Provider:
    """An Ollama server on this port."""
    return providers.open("ollama:m", base_url=f"http://127.0.0.1:{port}")


def client(g: Running) -> ollama.Client:
    made = ollama.Client(host=g.url)
    g.closing.append(made._client.close)
    return made


def post(g: Running, path: str = "/api/chat", **body: Any) -> httpx.Response:
    return httpx.post(f"{g.url}{path}", json={"model": "m", "messages": HI, **body}, timeout=10)


def accumulate(g: Running, **more: Any) -> tuple[str, str, list[tuple[str, Any]], str | None, ExchangeRecord]:
    """(content, thinking, calls, done reason, the record's end) as the official client gives a stream, which drops the
    gateway's own field."""
    content, thinking, reason = "", "", None
    before = len(g.records)
    calls: list[tuple[str, Any]] = []
    for part in client(g).chat(model="m", messages=HI, stream=True, **{"tools": [TOOL], **more}):
        content += part.message.content or ""
        thinking += part.message.thinking or ""
        calls += [(c.function.name, dict(c.function.arguments)) for c in part.message.tool_calls or ()]
        reason = part.done_reason or reason
    wait_for(lambda: len(g.records) > before)
    return content, thinking, calls, reason, g.records[-1]


# --- over its own API -------------------------------------------------------------------------------------------------


def test_what_nobody_mended_goes_on_as_it_came() -> None:
    came = lines(text("Hel"), text("lo", thinking=""), call({"city": "Oslo"}), DONE)
    with own(text("Hel"), text("lo", thinking=""), call({"city": "Oslo"}), DONE) as g:
        answer = post(g, tools=[TOOL])
        assert answer.content == came
        assert answer.headers["content-type"] == "application/x-ndjson"


def test_unknown_fields_of_a_request_reach_the_backend() -> None:
    body = {"messages": HI, "options": {"num_ctx": 9, "x": 1}, "keep_alive": "5m", "x": {"y": None}, "think": False}
    with own(text("a"), DONE) as g:
        post(g, **body)
        assert g.asked[-1] == {"model": "m", **body}


def test_a_context_that_the_gateway_was_told_stands_in_every_request_that_names_none() -> None:
    """Ollama loads a model with 4,096 tokens of context unless `num_ctx` says more, and cuts prompts in silence."""
    told = Options(options={"num_ctx": 16384, "temperature": 0.5})
    with own(text("Hi"), DONE, options=told) as g:
        post(g)
        post(g, options={"num_ctx": 9})
        httpx.post(f"{g.url}/v1/chat/completions", json={"model": "m", "messages": HI, "temperature": 0})
        httpx.post(f"{g.url}/api/generate", json={"model": "m", "prompt": "hi"})
        chats = [asked.json for asked in g.backend.asked if asked.path in ("/api/chat", "/api/generate")]
        assert [chat["options"] for chat in chats] == [
            {"num_ctx": 16384, "temperature": 0.5},
            {"num_ctx": 9, "temperature": 0.5},
            {"num_ctx": 16384, "temperature": 0},
            {"num_ctx": 16384, "temperature": 0.5},
        ]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_call_in_the_text_is_a_call(size: int) -> None:
    whole = f"I look.\n{LEAKED}"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)] if size else [whole]
    with own(*map(text, pieces), DONE) as g:
        content, _, calls, reason, end = accumulate(g)
        assert (content, calls, reason) == ("I look.", [("get_weather", {"city": "Oslo"})], "stop")
        assert end.mended == {"leaked": 1}
        assert json.loads(post(g, tools=[TOOL]).text.splitlines()[-1])["callgate"] == {"mended": {"leaked": 1}}


def test_reasoning_in_the_content_is_moved() -> None:
    with own(text("<think>hm"), text("</think>Sunny."), DONE) as g:
        assert accumulate(g)[:2] == ("Sunny.", "hm")


def test_arguments_that_do_not_fit_are_mended_or_asked_for_again() -> None:
    with own(call({"city": "Oslo", "days": "3"}), DONE) as g:
        _, _, calls, _, end = accumulate(g)
        assert (calls, end.mended) == ([("get_weather", {"city": "Oslo", "days": 3})], {"arguments": 1})
    with gateway(
        stream(lines(call({"town": 1}), DONE)),
        stream(lines(text('{"tool": "get_weather", "args": {"city": "Rome"}}'), DONE)),
        make=server,
        shown=SHOWN,
    ) as g:
        _, _, calls, _, end = accumulate(g)
        assert (calls, end.retries) == ([("get_weather", {"city": "Rome"})], 1)
    with own(call({"town": 1}), DONE) as g:
        _, _, calls, reason, end = accumulate(g)
        assert (calls, reason) == ([], "content_filter")
        assert [(c.tool, c.outcome) for c in end.calls] == [("get_weather", "withheld")]


def test_streamed_and_unstreamed_answers_are_equal() -> None:
    for content, calls in [(f"I look.\n{LEAKED}", []), ("<think>a</think>b", []), ("", call({"city": 5})["message"])]:
        message = {"role": "assistant", "content": content} | (calls or {})
        whole = record(message) | {"done": True, "done_reason": "stop", "eval_count": 2}
        with own(record(message), DONE) as g:
            streamed = accumulate(g)
        with gateway(refusal("200 OK", whole), make=server, shown=SHOWN) as g:
            answer = client(g).chat(model="m", messages=HI, tools=[TOOL])
            made = [(c.function.name, dict(c.function.arguments)) for c in answer.message.tool_calls or ()]
            assert ((answer.message.content or ""), answer.message.thinking or "", made) == streamed[:3]


def test_a_stream_that_was_cut_ends_in_an_error() -> None:
    script = [head(kind="application/x-ndjson"), chunk(lines(text("Hel"))), 0.05, "close"]
    with gateway(script, make=server, shown=SHOWN) as g, pytest.raises(ollama.ResponseError):
        accumulate(g)


def test_observing_changes_nothing() -> None:
    came = [text("<think>a"), text(f"</think>b {LEAKED}"), call({"town": 1}), DONE]
    with own(*came, options=Options(observe=True)) as g:
        assert post(g, tools=[TOOL]).content == lines(*came)


def test_a_prompt_goes_to_its_own_path() -> None:
    came = [
        {"model": "m", "response": "Hi", "done": False},
        {"model": "m", "response": "", "done": True, "context": [1]},
    ]
    with own(*came) as g:
        parts = list(client(g).generate(model="m", prompt="hi", raw=True, suffix="x", stream=True))
        assert "".join(part.response for part in parts) == "Hi"
        assert parts[-1].context == [1]
        asked = g.backend.asked[-1]
        assert (asked.path, asked.json["raw"], asked.json["suffix"]) == ("/api/generate", True, "x")


# --- over another API -------------------------------------------------------------------------------------------------


def test_over_chat_completions() -> None:
    with gateway(stream(said("Hello", size=2)), stream(GOOD)) as g:
        content, _, calls, reason, _ = accumulate(g, options={"num_predict": 5, "num_ctx": 7}, keep_alive="1m")
        assert (content, calls, reason) == ("Hello", [], "stop")
        assert g.asked[0]["max_tokens"] == 5
        assert not {"num_ctx", "keep_alive", "options"} & g.asked[0].keys()
        assert accumulate(g)[2] == [("get_weather", {"city": "Oslo"})]
        last = json.loads(post(g).text.splitlines()[-1])
        assert last["done"] is True
        assert last["eval_duration"] > 0
        answer = client(g).chat(model="m:latest", messages=HI, tools=[TOOL])
        assert answer.message.tool_calls is not None
        assert answer.message.tool_calls[0].function.name == "get_weather"


def test_what_has_no_word_is_named() -> None:
    with gateway(stream(said("Hello"))) as g:
        answer = post(g, keep_alive="5m", options={"num_ctx": 7, "mirostat": 1}, x=1)
        assert answer.headers["x-callgate-dropped"] == "keep_alive, num_ctx, options, x"


def test_a_prompt_over_chat_completions() -> None:
    with gateway(stream(said("<think>a</think>Hello", size=3))) as g:
        answer = client(g).generate(model="m", prompt="hi", system="short")
        assert (answer.response, answer.thinking, answer.done_reason) == ("Hello", "a", "stop")
        assert [m["role"] for m in g.asked[0]["messages"]] == ["system", "user"]
        parts = list(client(g).generate(model="m", prompt="hi", stream=True))
        assert "".join(part.response for part in parts) == "Hello"


def test_a_model_is_loaded_without_a_question() -> None:
    with gateway(stream(said("x"))) as g:
        assert client(g).chat(model="m", messages=[]).done_reason == "load"
        assert client(g).generate(model="m", prompt="").done_reason in ("load", "stop")
        assert len(g.asked) <= 1


def test_signs_of_life_say_nothing() -> None:
    script = [0.4, head(), chunk(said("Hello")), chunk(b"")]
    with gateway(script, options=Options(heartbeat=0.1)) as g:
        assert post(g).text.count('"content":""') >= 3
        assert accumulate(g)[0] == "Hello"


@pytest.mark.parametrize("streams", [False, True])
def test_errors_are_ollamas(streams: bool) -> None:
    with gateway(refusal("429 Slow", {"error": {"message": "too fast"}})) as g:
        with pytest.raises(ollama.ResponseError) as caught:
            list(client(g).chat(model="m", messages=HI, stream=streams))
        assert caught.value.status_code == 429
        assert "too fast" in caught.value.error
        with pytest.raises(ollama.ResponseError) as caught:
            client(g).chat(model="other", messages=HI)
        assert caught.value.status_code == 404


# --- models -----------------------------------------------------------------------------------------------------------


def test_models_are_listed_and_shown() -> None:
    with gateway(stream(b"")) as g:
        assert [m.model for m in client(g).list().models] == ["m"]
        shown = client(g).show("m")
        assert "tools" in (shown.capabilities or ())
        assert client(g).show("m:latest").capabilities == shown.capabilities
        with pytest.raises(ollama.ResponseError):
            client(g).show("other")
        assert client(g).ps().models == []
        assert httpx.get(f"{g.url}/api/version").json()["version"].count(".") == 2
