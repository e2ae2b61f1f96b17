"""The gateway to clients of the chat completions API, over a backend of the same API."""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import Any

import httpx
import openai
import pytest

from callgate import formats
from callgate.apps.gateway.answer import machine
from callgate.apps.gateway.lane import Lane, Outcome, Reading
from callgate.apps.gateway.shapes import openai as shape
from gateway_server import Options, Running, gateway
from loopback import chunk, head, refusal, sse, stream

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
HI = [{"role": "user", "content": "hi"}]


def record(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    choice = {"index": index, "delta": delta, "finish_reason": finish, "logprobs": None, "odd": [1]}
    return {
        "id": "chatcmpl-x",
        "object": "chat.completion.chunk",
        "created": 5,
        "model": "m",
        "system_fingerprint": "fp",
        "x_field": {"a": 1.5},
        "choices": [choice],
        **more,
    }


def call(arguments: str, *, index: int = 0, id: str | None = "call_a", name: str | None = "get_weather") -> Any:
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "type": "function", "function": function} | ({"id": id} if id else {})]}


USAGE = {
    "id": "chatcmpl-x",
    "object": "chat.completion.chunk",
    "choices": [],
    "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5, "x_tokens": 7},
}
TEXT = (record({"role": "assistant", "content": ""}), record({"content": "Hel"}), record({"content": "lo"}))


def client(g: Running) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0)


def post(g: Running, **body: Any) -> httpx.Response:
    return httpx.post(f"{g.url}/v1/chat/completions", json={"model": "m", "messages": HI, **body}, timeout=10)


def records_of(text: str) -> list[Any]:
    datas = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return [json.loads(data) for data in datas if data != "[DONE]"]


def wait_for(condition: Any, seconds: float = 2.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


# --- as it came -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tools", [[], [TOOL]])
def test_unknown_fields_of_records_survive(tools: list[Any]) -> None:
    """What nobody mended goes on to the byte, unknown fields, ids and fingerprints included."""
    data = sse(*TEXT, record({}, "stop"), USAGE)
    with gateway(stream(data)) as g:
        answer = post(g, stream=True, stream_options={"include_usage": True}, **({"tools": tools} if tools else {}))
        assert answer.content == data
        assert answer.headers["x-callgate-backend"] == f"http://127.0.0.1:{g.backend.port}/v1"


def test_unknown_fields_of_a_request_reach_the_backend() -> None:
    body = {
        "messages": [{"role": "developer", "content": "short"}, {"role": "user", "content": [{"type": "x", "y": 1}]}],
        "seed": 7,
        "logit_bias": {"5": -1},
        "service_tier": "flex",
        "x_new": {"deep": [1, {"a": None}]},
        "stop": ["\n"],
        "temperature": 0.1,
        "tools": [{"type": "web_search", "web_search": {}}],
    }
    with gateway(stream(sse(*TEXT, record({}, "stop")))) as g:
        post(g, stream=True, **body)
        assert g.asked == [{"model": "m", "stream": True, **body}]


def test_calls_that_fit_go_on_in_their_own_records() -> None:
    calls = [
        record(call("")),
        record(call('{"city"', id=None, name=None)),
        record(call(': "Oslo"}', id=None, name=None)),
    ]
    data = sse(TEXT[0], *calls, record({}, "tool_calls"))
    with gateway(stream(data)) as g:
        answer = post(g, stream=True, tools=[TOOL])
        assert records_of(answer.text) == [TEXT[0], *calls, record({}, "tool_calls")]
        assert answer.text.endswith("data: [DONE]\n\n")


def test_several_choices_are_kept_apart() -> None:
    data = sse(
        record({"role": "assistant", "content": "a"}, index=0),
        record({"role": "assistant", "content": "b"}, index=1),
        record({"content": "A"}, index=0),
        record(call('{"city": 1}'), index=1),
        record({}, "stop", index=0),
        record({}, "tool_calls", index=1),
    )
    fixed = sse(record(call('{"city": "Rome"}')), record({}, "tool_calls"))
    with gateway(stream(data), stream(fixed)) as g:
        seen: dict[int, list[Any]] = {0: [], 1: []}
        for event in client(g).chat.completions.create(model="m", messages=HI, tools=[TOOL], n=2, stream=True):
            for choice in event.choices:
                seen[choice.index].append(choice)
        assert "".join(c.delta.content or "" for c in seen[0]) == "aA"
        assert "".join(c.delta.content or "" for c in seen[1]) == "b"
        assert [c.finish_reason for c in seen[0]][-1] == "stop"
        assert [c.finish_reason for c in seen[1]][-1] == "tool_calls"
        assert not any(c.delta.tool_calls for c in seen[0])
        made = [entry for c in seen[1] for entry in c.delta.tool_calls or ()]
        assert [json.loads(entry.function.arguments) for entry in made] == [{"city": "Rome"}]


def test_an_answer_in_one_piece_is_edited_too() -> None:
    message = {"role": "assistant", "content": "hello", "annotations": [], "x": 1}
    choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": {"content": []}}
    whole = {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice], "usage": {"y": 1}}
    with gateway(refusal("200 OK", whole)) as g:
        assert post(g).json() == whole
        assert g.asked == [{"model": "m", "messages": HI}]


# --- histories ----------------------------------------------------------------------------------------------------


def test_a_history_is_mended_and_its_sound_part_is_not_touched() -> None:
    good = {
        "role": "assistant",
        "content": None,
        "x": 1,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"b":1,  "a":2}'}}],
    }
    orphan = {
        "role": "assistant",
        "tool_calls": [{"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}],
    }
    before = [
        {"role": "system", "content": "s", "y": 2},
        *HI,
        good,
        {"role": "tool", "tool_call_id": "a", "content": "1"},
    ]
    messages = [
        *before,
        orphan,
        {"role": "user", "content": "more"},
        {"role": "tool", "tool_call_id": "?", "content": "2"},
    ]
    with gateway(stream(sse(*TEXT, record({}, "stop")))) as g:
        answer = post(g, stream=True, messages=messages)
        sent = g.asked[0]["messages"]
        assert sent[: len(before)] == before
        assert [m["role"] for m in sent[len(before) :]] == ["assistant", "tool", "user"]
        assert sent[len(before) + 1]["tool_call_id"] == "b"
        assert answer.headers["x-callgate-mended"] == "history=2"


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize(
    ("script", "status", "kind"),
    [
        (refusal("400 Bad Request", {"error": {"message": "no such field: x"}}), 400, openai.BadRequestError),
        (refusal("401 Unauthorized", {"error": {"message": "wrong key"}}), 502, openai.InternalServerError),
        (refusal("404 Not Found", {"error": {"message": "model 'm' not found"}}), 404, openai.NotFoundError),
        (refusal("429 Too Many", {"error": {"message": "slow"}}, Retry_After="77"), 429, openai.RateLimitError),
        (refusal("500 Oops", {"error": {"message": "tool call parser failed"}}), 500, openai.InternalServerError),
        ([b"garbage\r\n\r\n", "close"], 502, openai.InternalServerError),
    ],
)
def test_a_backends_failure_has_the_right_status(script: Any, status: int, kind: Any, streams: bool) -> None:
    with gateway(script) as g:
        with pytest.raises(kind) as caught:
            client(g).chat.completions.create(model="m", messages=HI, stream=streams)
        assert caught.value.status_code == status
        assert caught.value.body["message"]
        if status == 429:
            assert caught.value.response.headers["retry-after"] == "77"
        wait_for(lambda: g.records)
        assert (g.records[0].status, g.records[0].error is None) == (status, False)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"{", "body"),
        (b"[]", "body"),
        (b'{"model": 5, "messages": []}', "model"),
        (b'{"model": "m", "messages": [{"role": "user", "content": 5}]}', "messages[0].content"),
    ],
)
def test_a_request_that_is_none_is_refused_with_its_field(body: bytes, field: str) -> None:
    with gateway(stream(sse(*TEXT, record({}, "stop")))) as g:
        answer = httpx.post(f"{g.url}/v1/chat/completions", content=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == field
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("end", ["close", "reset"])
def test_a_stream_that_was_cut_ends_in_an_error(end: str) -> None:
    """Never a bare [DONE], and never a silent end."""
    script = [head(), chunk(sse(*TEXT, done=False)), 0.05, end]
    with gateway(script) as g:
        seen = []
        with pytest.raises(openai.APIError):  # noqa: PT012
            for event in client(g).chat.completions.create(model="m", messages=HI, stream=True):
                seen.append(event)
        assert "".join(c.delta.content or "" for e in seen for c in e.choices) == "Hello"
        text = post(g, stream=True).text
        assert "[DONE]" not in text
        assert records_of(text)[-1]["error"]["message"]


def test_a_call_in_a_stream_that_was_cut_is_never_seen() -> None:
    script = [head(), chunk(sse(TEXT[0], record(call('{"city": "Oslo"}')), done=False)), 0.05, "close"]
    with gateway(script) as g:
        assert "get_weather" not in post(g, stream=True, tools=[TOOL]).text


def test_the_backends_own_error_in_a_stream_goes_on_as_it_came() -> None:
    error = {"error": {"message": "out of memory", "type": "x", "code": 5}}
    with gateway(stream(sse(*TEXT, error, done=False))) as g:
        assert records_of(post(g, stream=True).text) == [*TEXT, error]


def test_every_exchange_ends_in_one_record() -> None:
    with gateway(stream(sse(*TEXT, record({}, "stop"), USAGE)), refusal("503 No", {"error": "x"})) as g:
        post(g, stream=True)
        post(g)
        httpx.post(f"{g.url}/v1/chat/completions", content=b"{")
        wait_for(lambda: len(g.records) == 3)
        first, second, third = g.records
        assert (first.shape, first.model, first.wire, first.status, first.finish) == (
            "openai",
            "m",
            "openai",
            200,
            "stop",
        )
        assert (first.tokens_in, first.tokens_out, first.streamed, first.error) == (3, 2, True, None)
        assert first.first_token is not None
        assert 0 < first.first_token <= first.seconds
        assert (second.status, second.error) == (503, "Overloaded")
        assert (third.status, third.error) == (400, "InvalidRequest")
        assert not g.gate.running


# --- time -------------------------------------------------------------------------------------------------------------


def test_the_first_byte_does_not_wait_for_the_first_token() -> None:
    script = [head(), chunk(sse(TEXT[0], done=False)), 3.0, chunk(sse(*TEXT[1:], record({}, "stop"))), chunk(b"")]
    with gateway(script) as g:
        began = time.monotonic()
        with httpx.stream(
            "POST", f"{g.url}/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True}
        ) as r:
            assert b"assistant" in next(r.iter_raw())
            assert time.monotonic() - began < 2.5


def test_a_long_prefill_is_bridged_with_comments() -> None:
    script = [0.5, head(), 0.5, chunk(sse(*TEXT, record({}, "stop"))), chunk(b"")]
    with gateway(script, options=Options(heartbeat=0.1)) as g:
        answer = post(g, stream=True)
        assert answer.text.count(": callgate\n\n") >= 4
        assert records_of(answer.text) == [*TEXT, record({}, "stop")]
        events = list(client(g).chat.completions.create(model="m", messages=HI, stream=True))
        assert "".join(c.delta.content or "" for e in events for c in e.choices) == "Hello"


def test_an_error_after_a_sign_of_life_is_an_event() -> None:
    script = [0.3, *refusal("400 No", {"error": {"message": "bad"}})]
    with gateway(script, options=Options(heartbeat=0.1)) as g:
        answer = post(g, stream=True)
        assert answer.status_code == 200
        assert "bad" in records_of(answer.text)[-1]["error"]["message"]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("script", [["hang"], [head(), "hang"], [head(), chunk(sse(TEXT[0], done=False)), "hang"]])
def test_a_client_that_leaves_cancels_its_backend_at_once(script: Any, streams: bool) -> None:
    with gateway(script) as g:

        async def leave() -> None:
            async with httpx.AsyncClient() as web:
                body = {"model": "m", "messages": HI, "stream": streams}
                task = asyncio.ensure_future(web.post(f"{g.url}/v1/chat/completions", json=body))
                while not g.asked:
                    await asyncio.sleep(0.005)
                await asyncio.sleep(0.1)
                task.cancel()

        asyncio.run(leave())
        left = time.monotonic()
        wait_for(g.backend.dropped.is_set)
        assert time.monotonic() - left < 0.5  # 0.1 s on a machine that is not busy
        wait_for(lambda: g.records)
        assert g.records[0].error == "Disconnected"


def test_a_server_that_stops_ends_its_streams_with_an_error() -> None:
    with gateway([head(), chunk(sse(*TEXT, done=False)), "hang"]) as g:
        seen: list[str] = []
        with httpx.stream(
            "POST", f"{g.url}/v1/chat/completions", json={"model": "m", "messages": HI, "stream": True}
        ) as r:
            for text in r.iter_text():
                seen.append(text)
                if "lo" in text:
                    exchange = next(iter(g.gate.running))
                    exchange._loop.call_soon_threadsafe(g.gate.stop, "the server is shutting down")  # type: ignore[attr-defined]
        assert records_of("".join(seen))[-1]["error"]["message"] == "the server is shutting down"


# --- models -----------------------------------------------------------------------------------------------------------


def test_models_are_listed_with_what_they_can_do() -> None:
    with gateway(stream(b"")) as g:
        listed = client(g).models.list().data
        assert [(m.id, m.capabilities) for m in listed] == [("m", ["schema", "tools"])]  # type: ignore[attr-defined]
        assert client(g).models.retrieve("m").id == "m"
        with pytest.raises(openai.NotFoundError):
            client(g).models.retrieve("other/model")


def test_a_model_that_nobody_has_is_a_404_in_form() -> None:
    with gateway(stream(b"")) as g:
        with pytest.raises(openai.NotFoundError) as caught:
            client(g).chat.completions.create(model="gpt-x", messages=HI)
        assert caught.value.body["code"] == "model_not_found"
        assert "m" in caught.value.body["message"]


# --- records that are alike -------------------------------------------------------------------------------------------


def test_a_record_is_known_only_by_all_that_is_not_its_text() -> None:
    """Whatever the texts and however the records are cut or joined: what comes out is what came in, and one field that
    differs is seen."""
    rng = random.Random(3)
    texts = [" word", "é", '"', "\\", "\n", "", "a\tb", '","content":"x', "}]}", "東京", " ", "🙂"]
    for _ in range(60):
        came = [record({"role": "assistant", "content": "a"})]
        for _ in range(rng.randrange(30)):
            made = record({"content": rng.choice(texts)})
            if rng.random() < 0.2:
                made |= rng.choice([{"x_new": 1}, {"system_fingerprint": "other"}, {"usage": None}])
            if rng.random() < 0.1:
                made["choices"][0]["delta"]["reasoning_content"] = "hm"
            came.append(made)
        came.append(record({}, "stop"))
        each, joined = [sse(one, done=False) for one in came], sse(*came, done=False)
        torn = [joined[at : at + 700] for at in range(0, len(joined), 700)]
        assert _edited(each) == _edited(each, quick=False)
        for out in (_edited(each), _edited([joined]), _edited(torn)):
            seen = records_of(out.decode())
            for key in ("content", "reasoning_content"):
                expected = "".join(one["choices"][0]["delta"].get(key) or "" for one in came)
                assert "".join(one["choices"][0]["delta"].get(key) or "" for one in seen) == expected
            extras = [
                key for one in came for key in one if key == "x_new" and one["choices"][0]["delta"]["content"].strip()
            ]
            assert [key for one in seen for key in one if key == "x_new"].count("x_new") >= len(extras)


def _edited(pieces: list[bytes], *, quick: bool = True) -> bytes:
    """What goes to the client of these pieces, with a tool declared."""
    ask = shape.load({"model": "m", "messages": HI, "tools": [TOOL], "stream": True})
    made = shape.editor(ask, lambda: Lane(Reading(lambda: machine("auto", ask.request.tools), rescue=True)))
    framing = formats.get("openai").framing()
    out = []
    for piece in [*pieces, b"data: [DONE]\n\n"]:
        found = made.same(piece) if quick and framing.between else None
        out.append(made.feed(framing.feed(piece)) if found is None else found)
    made.finish()
    return b"".join(out) + made.end({0: Outcome("stop")})


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_a_call_that_leaks_in_records_that_are_alike_is_found(size: int) -> None:
    leaked = 'Look: fine.\n<tool_call>{"name": "get_weather", "arguments": {"city": "東京"}}</tool_call>'
    texts = [leaked[at : at + size] for at in range(0, len(leaked), size)]
    pieces = [sse(record({"content": text}), done=False) for text in ["a", *texts]] + [sse(record({}, "stop"))]
    assert b"tool_call>" not in _edited(pieces)
    assert _edited(pieces) == _edited(pieces, quick=False)


def test_bytes_that_are_no_text_are_never_known_by_their_bytes() -> None:
    before = sse(record({"content": "ab"}), done=False)
    for odd in (b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80"):
        out = _edited([before, before, before.replace(b"ab", odd), before])
        assert "".join(one["choices"][0]["delta"].get("content", "") for one in records_of(out.decode())) == (
            "abab" + odd.decode("utf-8", "replace") + "ab"
        )
