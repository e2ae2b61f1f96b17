"""Waiting for servers as they are: slow first tokens, keep-alive comments, models that load, limits named in words."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from pydantic import BaseModel

from callgate import Agent, RunResult, protocols, providers, read, tool
from callgate.errors import BadRequest, ConfigError, RateLimited
from callgate.formats import accepted
from callgate.formats._sent_schema import OPENAI
from callgate.providers._failures import refusal as error_of
from callgate.types import Message, ModelInfo, Reply, Request, ToolSpec
from loopback import HELLO, Loopback, chunk, head, loopback, refusal, say, sse, stream

pytestmark = pytest.mark.anyio

LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
BODY = {"object": "chat.completion", "choices": [{"index": 0, "message": {"content": "OK"}, "finish_reason": "stop"}]}


@tool(effect="read")
def clock() -> str:
    """The time."""
    return "noon"


async def ask(server: Loopback, text: str = "x", timeout: Any = None, history: Any = (), **more: Any) -> RunResult:
    """One run against this server."""
    options = {"timeout": timeout} if timeout else {}
    provider = providers.open(f"{server.url}#m", abilities={"tools", "schema"}, **options)
    output = more.pop("output", None)
    try:
        return await Agent(provider, **more).run(text, history=history, output=output)
    finally:
        await provider.aclose()


async def test_the_first_token_may_take_as_long_as_first_says() -> None:
    """Headers, comments and a chunk that only names the role are no token."""
    script = [head(), 0.3, chunk(b": wait\n\n"), chunk(sse(say(role="assistant"), done=False)), 0.6, *stream(HELLO)[1:]]
    async with loopback(script) as server:
        result = await ask(server, "x", {"first": 10, "idle": 0.4})
    assert result.text == "Hello"


async def test_comments_are_no_progress() -> None:
    script = [head(), chunk(sse(say("Hel"), done=False)), *([chunk(b": keep-alive\n\n"), 0.05] * 60)]
    async with loopback(script) as server:
        result = await ask(server, "x", {"idle": 0.3}, retries=0)
        assert len(server.asked) == 1
    assert "timeout.idle" in (result.error or "")


async def test_a_loading_model_is_waited_for_as_long_as_first_says() -> None:
    began = time.monotonic()

    def answer(_: Any) -> Any:
        return refusal("503 X", LOADING) if time.monotonic() - began < 2 else stream(HELLO)

    async with loopback(answer) as server:
        assert (await ask(server, "x")).text == "Hello"
        assert len(server.asked) > 3
    async with loopback(refusal("503 X", LOADING)) as server:
        result = await ask(server, "x", {"first": 0.2}, retries=0)
    assert "Loading model" in (result.error or "")


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Rate limit reached. Please try again in 20s.", 20),
        ("Please try again in 1m2.5s. Visit x", 62.5),
        ("try again in 350ms", 0.35),
        ('"retryDelay": "34s"', 34),
        ("Please retry after 5 seconds", 5),
        ("Wait 2 minutes", 120),
        ("too many requests", None),
    ],
)
def test_a_wait_that_stands_only_in_the_words_is_kept(words: str, seconds: float | None) -> None:
    error = error_of(429, {"error": {"message": words}}, provider="p")
    assert isinstance(error, RateLimited)
    assert error.retry_after == (None if seconds is None else pytest.approx(seconds))
    assert error_of(429, words, provider="p", retry_after=1.0).retry_after == 1.0  # type: ignore[attr-defined]


@pytest.mark.parametrize("words", ["No user query found in messages.", "Jinja Exception: roles must alternate"])
async def test_what_a_template_refuses_is_named_and_not_asked_again(words: str) -> None:
    async with loopback(refusal("500 X", {"error": {"message": words}})) as server:
        result = await ask(server, "x")
        assert len(server.asked) == 1
    assert "chat template" in (result.error or "")


async def test_a_budget_spent_on_thinking_is_named_and_not_asked_again() -> None:
    async with loopback(stream(sse(say(reasoning_content="hm hm"), say(finish="length")))) as server:
        result = await ask(server, "x", tools=[clock])
        assert len(server.asked) == 1
    assert result.reason == "token_limit"
    assert "max_tokens" in (result.error or "")


async def test_an_explicit_run_timeout_counts_the_wait_for_the_first_token() -> None:
    slow = [head(), 0.7, *stream(HELLO)[1:]]
    async with loopback(slow) as server:
        assert (await ask(server, "x", run_timeout=0.3)).reason == "time_limit"
        result = await ask(server, "x")
    assert (result.text, result.seconds < 0.5) == ("Hello", True)


@pytest.mark.parametrize("behind", ["data: [DONE]\n\n", "\n\ndata: [DONE]\n\n", "\ndata:[DONE]", ""])
@pytest.mark.parametrize("indent", [None, 1])
def test_a_whole_body_with_the_end_of_a_stream_behind_it(behind: str, indent: int | None) -> None:
    reply = read((json.dumps(BODY, indent=indent) + behind).encode(), wire="openai")
    assert (reply.content, reply.finish, reply.error) == ("OK", "stop", None)


def thinking(*contents: str, finish: str) -> Reply:
    thought = "The user asks for three bullets. First I think about filters."
    records = [say(reasoning_content=thought[:30]), say(reasoning_content=thought[30:])]
    return read(sse(*records, *(say(c) for c in contents), say(finish=finish)), wire="openai")


def test_a_thought_that_was_cut_off_is_not_the_answer() -> None:
    """Some servers send it once more as content; content that only begins like the thought is kept."""
    thought = "The user asks for three bullets. First I think about filters."
    for contents in ((thought,), (thought[:7], thought[7:]), tuple(thought)):
        cut = thinking(*contents, finish="length")
        assert (cut.content, cut.reasoning, len(cut.problems)) == ("", thought, 1)
        assert thinking(*contents, finish="stop").content == thought
        assert thinking(*contents, "!", finish="length").content == thought + "!"
    assert thinking("The user", " is here", finish="length").content == "The user is here"


class Free(BaseModel):
    city: str
    scores: dict[str, int]


async def test_a_free_form_output_is_not_sent_as_an_empty_object() -> None:
    async with loopback(stream(sse(say('{"city": "a", "scores": {"x": 1}}'), say(finish="stop")))) as server:
        result = await ask(server, output=Free)
        sent = server.asked[0].json["response_format"]["json_schema"]
    assert result.output == Free(city="a", scores={"x": 1})
    assert not sent["strict"]
    assert sent["schema"]["properties"]["scores"]["additionalProperties"] == {"type": "integer"}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_goes_back_in_the_field_it_came_in(field: str) -> None:
    """To a server of which only the address is known; also from histories that are dicts, with what calls carry."""
    call = {"index": 0, "id": "c1", "function": {"name": "clock", "arguments": "{}"}, "extra_content": {"g": "sig"}}
    first = stream(sse(say(**{field: "I must look."}), say(tool_calls=[call]), say(finish="tool_calls")))
    async with loopback(first, stream(HELLO)) as server:
        result = await ask(server, "time?", tools=[clock], protocol="native")
        sent = server.asked[1].json["messages"][1]
        assert (sent[field], sent["tool_calls"][0]["extra_content"]) == ("I must look.", {"g": "sig"})
        await ask(server, "and now?", history=result.messages)
        assert server.asked[2].json["messages"][1][field] == "I must look."
        dicts = [{"role": "user", "content": "time?"}, sent, {"role": "tool", "tool_call_id": "c1", "content": "noon"}]
        await ask(server, "and now?", history=dicts)
        again = server.asked[3].json["messages"][1]
    assert (again[field], again["tool_calls"][0]["extra_content"]) == ("I must look.", {"g": "sig"})


async def test_ollama_is_told_not_to_cut_and_its_count_is_compared() -> None:
    lines = [{"message": {"role": "assistant", "content": "I have no tools."}, "done": False}]
    end = {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    body = "".join(json.dumps(r) + "\n" for r in [*lines, {**end, "prompt_eval_count": 4096, "eval_count": 5}])
    script = [head(kind="application/x-ndjson"), chunk(body.encode()), chunk(b"")]

    async with loopback(script) as server:
        base = server.url.removesuffix("/v1")
        provider = providers.open("ollama:m", base_url=base, num_ctx=8192)
        async with provider.stream(Request((Message("user", "word " * 12000),))) as deltas:
            found = [d async for some in deltas for d in some]
        sent = server.asked[-1].json
        await provider.aclose()
    assert (sent["truncate"], sent["options"]) == (False, {"num_ctx": 8192})
    assert "num_ctx" in found[-1].problems[0]  # type: ignore[union-attr]


async def test_a_history_is_fitted_to_the_context_that_the_options_ask_for() -> None:
    """`num_ctx` is a line of [options], too: Ollama loads the model at that size, whatever it could hold."""
    shown = {"capabilities": ["completion"], "model_info": {"general.architecture": "a", "a.context_length": 131072}}
    end = {"message": {"role": "assistant", "content": "Yes."}, "done": True, "done_reason": "stop"}

    def answer(asked: Any) -> Any:
        if asked.path == "/api/show":
            return refusal(200, shown)
        if asked.path == "/api/ps":
            return refusal(200, {"models": []})
        return [head(kind="application/x-ndjson"), chunk(json.dumps(end).encode() + b"\n"), chunk(b"")]

    history = [Message(role, f"{n} " + "word " * 150) for n in range(30) for role in ("user", "assistant")]
    sent = []
    async with loopback(answer) as server:
        for options in ({}, {"num_ctx": 2048}):
            provider = providers.open("ollama:m", base_url=server.url.removesuffix("/v1"))
            await Agent(provider, options=options).run("Do you remember?", history=history)
            await provider.aclose()
            sent.append(server.asked[-1].json)
    assert len(sent[0]["messages"]) == 61
    assert 1 < len(sent[1]["messages"]) < 20
    assert sent[1]["options"]["num_ctx"] == 2048


def test_refused_parameters_are_told_from_refused_forms() -> None:
    error = error_of(422, {"detail": [{"loc": ["body", "stream_options", "include_usage"], "msg": "no"}]}, provider="p")
    assert isinstance(error, BadRequest)
    assert error.named == ("stream_options.include_usage",)


async def test_ollama_behind_v1_is_asked_what_its_model_can_do() -> None:
    """Its list names itself as the owner; the size that it states makes a model small, whatever it is called."""
    shown = {"capabilities": ["completion"], "model_info": {"general.parameter_count": 134_515_008}}
    listed = {"data": [{"id": "smol", "owned_by": "library"}]}

    def answer(asked: Any) -> Any:
        if asked.path == "/api/show":
            return refusal("200 OK", shown)
        return refusal("200 OK", listed) if asked.path == "/v1/models" else refusal("404 X", {})

    async with loopback(answer) as server:
        provider = providers.open(f"{server.url}#smol")
        info = await provider.info()
        await provider.aclose()
    assert info.capabilities == {"schema"}
    assert protocols.choose(info, [clock.spec]) == "routed"


async def test_the_size_that_llama_server_states_counts() -> None:
    listed = {"data": [{"id": "m", "meta": {"n_params": 134_515_008}}]}

    def answer(asked: Any) -> Any:
        return refusal("200 OK", {"chat_template": "tools"} if asked.path == "/props" else listed)

    async with loopback(answer) as server:
        provider = providers.open(f"{server.url}#m")
        info = await provider.info()
        await provider.aclose()
    assert protocols.choose(info, [clock.spec]) == "routed"


def test_more_tools_than_a_vendor_takes_are_asked_for_in_another_way() -> None:
    tools = [ToolSpec(f"t{i}") for i in range(129)]
    info = ModelInfo("m", capabilities=frozenset({"tools", "schema"}), extra={"max_tools": 128})
    assert protocols.choose(info, tools) == "routed"
    assert protocols.choose(info, tools[:128]) == "native"
    with pytest.raises(ConfigError, match="at most 128"):
        accepted(Request((), tuple(tools)), OPENAI, max_tools=128)
