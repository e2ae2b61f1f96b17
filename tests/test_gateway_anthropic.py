"""The gateway to clients of Anthropic's Messages API: over a backend of the same API, and over others."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import httpx
import pytest

from callgate.apps.gateway.gate import ExchangeRecord
from callgate.providers import Provider, Served
from callgate.providers._http import HttpClient
from callgate.types import ModelInfo
from gateway_server import Options, Running, gateway
from loopback import chunk, head, refusal, say, sse, stream
from test_gateway_mend import GOOD, LEAKED, said
from test_gateway_openai import TEXT, call, record, wait_for

TOOL = {
    "name": "get_weather",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
}
HI = [{"role": "user", "content": "hi"}]
START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 5, "output_tokens": 1, "x": 1},
        "x": {"y": None},
    },
}
STOP = {"type": "message_stop"}


class Messages(Served):
    """A server of the Messages API."""

    async def info(self) -> ModelInfo:
        return ModelInfo(self.model, self.name, frozenset({"tools"}))

    async def catalogue(self) -> list[ModelInfo]:
        return [await self.info()]


def server(port: int) -> Provider:
    web = HttpClient(f"http://127.0.0.1:{port}", name="anthropic", headers={})
    return Messages(web, "m", wire="anthropic", path="/v1/messages")


def block(index: int, kind: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": kind},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def thinking(index: int, *pieces: str) -> list[dict[str, Any]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return block(
        index,
        {"type": "thinking", "thinking": "", "signature": ""},
        *deltas,
        {"type": "signature_delta", "signature": "c2ln"},
    )


def use(index: int, arguments: str, id: str = "toolu_1", name: str = "get_weather") -> list[dict[str, Any]]:
    halves = [arguments[: len(arguments) // 2], arguments[len(arguments) // 2 :]]
    deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves]
    return block(index, {"type": "tool_use", "id": id, "name": name, "input": {}}, *deltas)


def end(reason: str = "end_turn") -> dict[str, Any]:
    return {
        "type": "message_delta",
        "delta": {"stop_reason": reason, "stop_sequence": None},
        "usage": {"output_tokens": 7},
    }


def events(*parts: Any) -> bytes:
    flat = [event for part in parts for event in (part if isinstance(part, list) else [part])]
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in flat).encode()


def own(*parts: Any, options: Options | None = None) -> Any:
    """A gateway in front of a Messages API that streams these events."""
    return gateway(stream(events(START, *parts, STOP)), make=server, options=options)


def client(g: Running) -> anthropic.Anthropic:
    made = anthropic.Anthropic(base_url=g.url, api_key="none", max_retries=0)
    g.closing.append(made.close)
    return made


def post(g: Running, **body: Any) -> httpx.Response:
    whole = {"model": "m", "messages": HI, "max_tokens": 100, **body}
    return httpx.post(f"{g.url}/v1/messages", json=whole, timeout=10)


def blocks_of(message: Any) -> tuple[str, str, list[tuple[str, Any]]]:
    texts = "".join(b.text for b in message.content if b.type == "text")
    thoughts = "".join(b.thinking for b in message.content if b.type == "thinking")
    return texts, thoughts, [(b.name, b.input) for b in message.content if b.type == "tool_use"]


def accumulate(g: Running, **more: Any) -> tuple[str, str, list[tuple[str, Any]], str | None, ExchangeRecord]:
    """(text, thinking, calls, stop reason, the record) as the official client puts a stream together."""
    before = len(g.records)
    asked = {"model": "m", "messages": HI, "max_tokens": 100, "tools": [TOOL], **more}
    with client(g).messages.stream(**asked) as stream_:
        message = stream_.get_final_message()
    wait_for(lambda: len(g.records) > before)
    return (*blocks_of(message), message.stop_reason, g.records[-1])


# --- over its own API -------------------------------------------------------------------------------------------------


def test_what_nobody_mended_goes_on_as_it_came() -> None:
    parts = [
        {"type": "ping"},
        thinking(0, "hm", "m"),
        text(1, "Hel", "lo"),
        block(2, {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
        block(3, {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"x": 1}]}),
        text(4),
        use(5, '{"city": "Oslo"}'),
        use(6, '{"city": "Rome"}', "toolu_2"),
        end("tool_use"),
    ]
    with own(*parts) as g:
        assert post(g, stream=True, tools=[TOOL]).content == events(START, *parts, STOP)
        assert accumulate(g)[:4] == (
            "Hello",
            "hmm",
            [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})],
            "tool_use",
        )


def test_unknown_fields_of_a_request_reach_the_backend() -> None:
    body = {
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "metadata": {"user_id": "u"},
        "x": {"y": [None]},
        "tools": [TOOL, {"type": "web_search_20250305", "name": "web_search"}],
        "thinking": {"type": "enabled", "budget_tokens": 50},
    }
    with own(text(0, "a"), end()) as g:
        post(g, **body)
        assert g.asked == [{"model": "m", "messages": HI, "max_tokens": 100, **body}]


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_call_in_the_text_is_a_call(size: int) -> None:
    whole = f"I look.\n{LEAKED}"
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)] if size else [whole]
    with own(text(0, *pieces), end()) as g:
        content, _, calls, reason, seen = accumulate(g)
        assert (content, calls, reason) == ("I look.", [("get_weather", {"city": "Oslo"})], "tool_use")
        assert seen.mended == {"leaked": 1}
    with own(text(0, *f"<think>a</think>{LEAKED}"), end()) as g:
        assert accumulate(g)[:4] == ("", "a", [("get_weather", {"city": "Oslo"})], "tool_use")


@pytest.mark.parametrize("parts", [[text(0, "a <tool"), use(1, '{"city": "Oslo", "days": "3"}')]])
def test_text_that_might_have_begun_a_call_keeps_its_place(parts: Any) -> None:
    with own(*parts, end("tool_use")) as g:
        asked = post(g, stream=True, tools=[TOOL]).text
        assert asked.index("<tool") < asked.index("tool_use")
        assert accumulate(g)[:3] == ("a <tool", "", [("get_weather", {"city": "Oslo", "days": 3})])


def test_one_block_is_closed_before_the_next_opens() -> None:
    """Over every backend: chat completions mix the fragments of calls."""
    mixed = [
        record(call('{"city"', index=0)),
        record(call('{"city": ', index=1, id="call_b")),
        record({"content": "x"}),
        record(call(': "Oslo"}', index=0, id=None, name=None)),
        record(call('"Rome"}', index=1, id=None, name=None)),
    ]
    for mode in ("whole", "live"):
        with gateway(stream(sse(TEXT[0], *mixed, record({}, "tool_calls"))), options=Options(calls=mode)) as g:
            depth = 0
            for line in post(g, stream=True, tools=[TOOL]).text.split("\n"):
                depth += line.startswith("event: content_block_start") - line.startswith("event: content_block_stop")
                assert 0 <= depth <= 1
            assert accumulate(g)[:3] == (
                "x",
                "",
                [("get_weather", {"city": "Oslo"}), ("get_weather", {"city": "Rome"})],
            )


def test_calls_that_do_not_fit_are_asked_for_again_or_withheld() -> None:
    bad, good = (
        events(START, use(0, '{"town": 1}'), end("tool_use"), STOP),
        events(START, use(0, '{"city": "Rome"}'), end("tool_use"), STOP),
    )
    with gateway(stream(bad), stream(good), make=server) as g:
        _, _, calls, reason, seen = accumulate(g)
        assert (calls, reason, seen.retries) == ([("get_weather", {"city": "Rome"})], "tool_use", 1)
        assert g.asked[1]["messages"][: len(HI)] == HI
    with gateway(stream(bad), make=server) as g:
        _, _, calls, reason, seen = accumulate(g)
        assert (calls, reason) == ([], "refusal")
        assert [(c.tool, c.outcome) for c in seen.calls] == [("get_weather", "withheld")]


def test_a_word_that_no_other_api_has_goes_on() -> None:
    with own(text(0, "a"), end("pause_turn")) as g:
        assert accumulate(g)[3] == "pause_turn"


def test_streamed_and_unstreamed_answers_are_equal() -> None:
    cases: list[list[Any]] = [
        [text(0, f"I look.\n{LEAKED}"), end()],
        [text(0, "<think>a</think>b"), end()],
        [thinking(0, "x"), text(1, "b"), use(2, '{"city": 5}'), end("tool_use")],
        [text(0, "b"), use(1, '{"city": "O", "days": "2"}'), end("end_turn")],
    ]
    for parts in cases:
        with own(*parts) as g:
            streamed = accumulate(g)
        content = []
        for part in parts[:-1]:
            made = dict(part[0]["content_block"])
            for delta in (event["delta"] for event in part[1:-1]):
                if delta["type"] == "input_json_delta":
                    made["input"] = made["input"] or ""
                    made["input"] += delta["partial_json"]
                else:
                    key = {"text_delta": "text", "thinking_delta": "thinking"}.get(delta["type"], "signature")
                    made[key] = made.get(key, "") + delta[key]
            if isinstance(made.get("input"), str):
                made["input"] = json.loads(made["input"])
            content.append(made)
        whole = {**START["message"], "content": content, **parts[-1]["delta"]}  # type: ignore[dict-item]
        with gateway(refusal("200 OK", whole), make=server) as g:
            answer = client(g).messages.create(model="m", messages=HI, max_tokens=9, tools=[TOOL])  # type: ignore[call-overload]
            assert (*blocks_of(answer), answer.stop_reason) == streamed[:4]


def test_observing_changes_nothing() -> None:
    parts = [text(0, f"<think>a</think> {LEAKED}"), use(1, '{"town": 1}'), end("x")]
    with own(*parts, options=Options(observe=True)) as g:
        assert post(g, stream=True, tools=[TOOL]).content == events(START, *parts, STOP)


def test_a_history_is_mended_and_its_sound_part_is_not_touched() -> None:
    first = [
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"b": 1}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "a", "content": "1"}, {"type": "text", "text": "go"}],
        },
    ]
    orphan = {"role": "assistant", "content": [{"type": "tool_use", "id": "b", "name": "g", "input": {}}]}
    with own(text(0, "a"), end()) as g:
        answer = post(g, messages=[*first, orphan, {"role": "user", "content": "more"}])
        sent = g.asked[0]["messages"]
        assert sent[: len(first)] == first
        assert [m["role"] for m in sent[len(first) :]] == ["assistant", "user"]
        kinds = [part["type"] for part in sent[-1]["content"]]
        assert kinds == ["tool_result", "text"]
        assert answer.headers["x-callgate-mended"] == "history=1"


# --- over another API -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 4])
def test_over_chat_completions(size: int) -> None:
    with gateway(stream(said("<think>hm</think>Hello", size=size)), stream(GOOD)) as g:
        content, thought, calls, reason, seen = accumulate(g, system="short", stop_sequences=["x"])
        assert (content, thought, calls, reason) == ("Hello", "hm", [], "end_turn")
        assert [m["role"] for m in g.asked[0]["messages"]] == ["system", "user"]
        assert g.asked[0]["stop"] == ["x"]
        assert g.asked[0]["tools"][0]["function"]["name"] == "get_weather"
        assert (seen.shape, seen.wire) == ("anthropic", "openai")
        assert accumulate(g)[2:4] == ([("get_weather", {"city": "Oslo"})], "tool_use")
        answer = client(g).messages.create(model="m", messages=HI, max_tokens=9, tools=[TOOL])  # type: ignore[call-overload]
        assert blocks_of(answer)[2] == [("get_weather", {"city": "Oslo"})]


def test_a_call_that_is_demanded_is_asked_for() -> None:
    with gateway(stream(said("It is sunny.")), stream(GOOD)) as g:
        assert accumulate(g, tool_choice={"type": "any"})[2] == [("get_weather", {"city": "Oslo"})]
        assert g.asked[0]["tool_choice"] == "required"


@pytest.mark.parametrize("streams", [False, True])
def test_errors_are_anthropics(streams: bool) -> None:
    slow = refusal("429 Slow", {"error": {"message": "too fast"}}, Retry_After="77")
    with gateway(slow) as g:
        with pytest.raises(anthropic.RateLimitError) as caught:
            client(g).messages.create(model="m", messages=HI, max_tokens=9, stream=streams)  # type: ignore[call-overload]
        assert "too fast" in caught.value.message
        with pytest.raises(anthropic.NotFoundError):
            client(g).messages.create(model="other", messages=HI, max_tokens=9, stream=streams)  # type: ignore[call-overload]
        with pytest.raises(anthropic.BadRequestError):
            client(g).messages.create(model="m", messages=[{"role": "x"}], max_tokens=9)  # type: ignore[list-item]


@pytest.mark.parametrize("end_", ["close", "reset"])
def test_a_stream_that_was_cut_ends_in_an_error(end_: str) -> None:
    cut = events(START, text(0, "Hel")[:-1])
    for script, make in [
        ([head(), chunk(cut), 0.05, end_], {"make": server}),
        ([head(), chunk(sse(*TEXT, done=False)), 0.05, end_], {}),
    ]:
        with gateway(script, **make) as g:  # type: ignore[arg-type]
            with pytest.raises(anthropic.APIError):
                accumulate(g)
            shown = post(g, stream=True).text
            assert "Hel" in shown
            assert "message_stop" not in shown
            assert shown.rstrip().rpartition("event: ")[2].startswith("error")


def test_signs_of_life_are_pings() -> None:
    script = [0.4, head(), chunk(said("Hello")), chunk(b"")]
    with gateway(script, options=Options(heartbeat=0.1)) as g:
        assert post(g, stream=True).text.count("event: ping") >= 3
        assert accumulate(g)[0] == "Hello"


# --- tokens and models ------------------------------------------------------------------------------------------------


def test_tokens_are_counted_or_estimated() -> None:
    with gateway(refusal("200 OK", {"input_tokens": 4242}), make=server) as g:
        assert client(g).messages.count_tokens(model="m", messages=HI).input_tokens == 4242  # type: ignore[arg-type]
        assert g.backend.asked[-1].path == "/v1/messages/count_tokens"
    with gateway(stream(said("x"))) as g:
        few = client(g).messages.count_tokens(model="m", messages=HI).input_tokens  # type: ignore[arg-type]
        many = httpx.post(
            f"{g.url}/v1/messages/count_tokens",
            json={"model": "m", "messages": [{"role": "user", "content": "word " * 1000}], "tools": [TOOL]},
        ).json()
        assert 1 < few < 20
        assert 1000 < many["input_tokens"] < 1600
        assert many["callgate"] == {"estimated": True}
        with pytest.raises(anthropic.NotFoundError):
            client(g).messages.count_tokens(model="other", messages=HI)  # type: ignore[arg-type]


def test_models_are_listed() -> None:
    with gateway(stream(b"")) as g:
        assert [m.id for m in client(g).models.list()] == ["m"]
        assert client(g).models.retrieve("m").display_name == "m"


def test_what_is_switched_on_by_a_header_is_switched_on_at_the_backend_too() -> None:
    """`anthropic-beta` of a client goes to a backend of its API, with retries too; to another API it cannot go."""
    bad = [use(0, '{"town": 1}'), end("tool_use")]
    with own(*bad, options=Options(retries=2)) as g:
        client(g).beta.messages.create(
            model="m", messages=HI, max_tokens=9, tools=[TOOL], betas=["context-1m-2025-08-07", "files-api-2025-04-14"]
        )
        seen = [asked.headers for asked in g.backend.asked if asked.method == "POST"]
        assert [headers.get("anthropic-beta") for headers in seen] == ["context-1m-2025-08-07,files-api-2025-04-14"] * 3
        post(g)
        assert "anthropic-beta" not in g.backend.asked[-1].headers
    with gateway(stream(sse(say("a"), say(finish="stop")))) as g:
        whole = {"model": "m", "messages": HI, "max_tokens": 100}
        answer = httpx.post(f"{g.url}/v1/messages", json=whole, headers={"anthropic-beta": "x", "x-y": "z"})
        assert answer.headers["x-callgate-dropped"] == "anthropic-beta"
        assert not {"anthropic-beta", "x-y"} & g.backend.asked[-1].headers.keys()
