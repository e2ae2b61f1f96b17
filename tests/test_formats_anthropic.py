"""Anthropic's Messages API: its streams, its imitators' habits, and what must go back unchanged."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.lib.streaming._messages import accumulate_event
from anthropic.types import RawMessageStreamEvent
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from callgate import Reply, formats, read
from callgate.errors import ConfigError
from callgate.formats import anthropic as api
from callgate.types import CAME, Message, Request, ToolCall, ToolSpec
from test_formats_laws import deltas_of, replies, sound

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"


def body(*events: dict[str, Any]) -> bytes:
    return b"".join(map(api.frame, events))


def start(**usage: int) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, *pieces: str) -> list[dict[str, Any]]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": p} for p in pieces))


def call(index: int, name: str, *pieces: str, **more: Any) -> list[dict[str, Any]]:
    content = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}, **more}
    return block(index, content, *({"type": "input_json_delta", "partial_json": p} for p in pieces))


def thinking(index: int, *pieces: str, signature: str = SIGNATURE) -> list[dict[str, Any]]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    content = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, content, *deltas, {"type": "signature_delta", "signature": signature})


def end(reason: str | None, **usage: int) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


PING = {"type": "ping"}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix"}
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"encrypted_content": "Eqg"}]}
WHOLE = body(
    start(input_tokens=25, cache_read_input_tokens=100, cache_creation_input_tokens=7, output_tokens=1),
    PING,
    *thinking(0, "Let me", " see."),
    *block(1, REDACTED),
    *text(2, "I look", " it up."),
    *block(3, SEARCH, {"type": "input_json_delta", "partial_json": '{"query": "x"}'}),
    *block(4, FOUND),
    *text(5, " Found."),
    *call(6, "f", "", '{"a"', ": 1}"),
    *call(7, "g"),
    *end("tool_use", output_tokens=50),
)


def seen(reply: Reply) -> list[tuple[str, str, Any]]:
    return [(c.id, c.name, c.arguments) for c in reply.calls]


@pytest.mark.parametrize("size", [1, 2, 7, 10_000])
def test_the_stream_becomes_the_message(size: int) -> None:
    pieces = [WHOLE[n : n + size] for n in range(0, len(WHOLE), size)]
    reply = read(pieces, wire="anthropic")
    assert (reply.content, reply.reasoning) == ("I look it up. Found.", "Let me see.")
    assert seen(reply) == [("toolu_6", "f", {"a": 1}), ("toolu_7", "g", {})]
    assert (reply.finish, reply.raw_finish) == ("tool_calls", "tool_use")
    assert reply.usage == {"input": 132, "output": 50, "cached": 100, "cache_written": 7}
    assert [p for p in reply.problems if "web_search_tool_result" in p], "what is not shown is named"


def test_every_cut_is_interrupted_and_gives_no_call() -> None:
    last = WHOLE.index(b"event: message_delta")
    for cut in range(0, last, 3):
        reply = read(WHOLE[:cut], wire="anthropic")
        assert (reply.finish, reply.calls) == ("interrupted", [])


def test_every_cut_in_two_gives_the_same() -> None:
    want = read(WHOLE, wire="anthropic")
    for cut in range(1, len(WHOLE), 2):
        assert read([WHOLE[:cut], WHOLE[cut:]], wire="anthropic") == want


def answer(reply: Reply) -> Message:
    return Message("assistant", reply.content, reply.reasoning, tuple(reply.calls), extra=reply.extra)


def blocks(*messages: Message) -> list[Any]:
    built = api.build(Request((Message("user", "?"), *messages)), "m")
    return [block for m in built["messages"][1:] for block in m["content"]]


def test_thinking_goes_back_signed_and_in_its_place() -> None:
    back = blocks(answer(read(WHOLE, wire="anthropic")))
    assert back == [
        {"type": "thinking", "thinking": "Let me see.", "signature": SIGNATURE},
        REDACTED,
        {"type": "text", "text": "I look it up."},
        {**SEARCH, "input": {"query": "x"}},
        FOUND,
        {"type": "text", "text": " Found."},
        {"type": "tool_use", "id": "toolu_6", "name": "f", "input": {"a": 1}},
        {"type": "tool_use", "id": "toolu_7", "name": "g", "input": {}},
    ]


def test_thinking_of_an_answer_without_calls_goes_back_too() -> None:
    reply = read(body(start(), *thinking(0, "hm"), *text(1, "Yes."), *end("end_turn")), wire="anthropic")
    assert blocks(answer(reply))[0] == {"type": "thinking", "thinking": "hm", "signature": SIGNATURE}


def test_thinking_whose_text_is_withheld_goes_back_by_its_signature() -> None:
    reply = read(body(start(), *thinking(0), *call(1, "f", "{}"), *end("tool_use")), wire="anthropic")
    assert reply.reasoning == ""
    assert blocks(answer(reply))[0] == {"type": "thinking", "thinking": "", "signature": SIGNATURE}


def test_unsigned_thinking_is_not_sent_back() -> None:
    assert blocks(Message("assistant", "Yes.", "hm")) == [{"type": "text", "text": "Yes."}]


def test_an_answer_that_was_changed_keeps_its_blocks() -> None:
    """Text that was masked and a call that was dropped cost no block of the server's."""
    message = answer(read(WHOLE, wire="anthropic"))
    extra = message.calls[0].extra
    changed = Message("assistant", "***", calls=(ToolCall("other", "h", {}, extra=extra),))
    kinds = [(b["type"], b.get("text") or b.get("id")) for b in blocks(changed)]
    assert kinds == [
        ("thinking", None),
        ("redacted_thinking", None),
        ("text", "***"),
        ("server_tool_use", "srvtoolu_1"),
        ("web_search_tool_result", None),
        ("tool_use", "other"),
    ]


def test_citations_stay_with_their_text() -> None:
    cited = block(
        0,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "So."},
        {"type": "citations_delta", "citation": {"cited_text": "x"}},
    )
    reply = read(body(start(), *cited, *end("end_turn")), wire="anthropic")
    assert blocks(answer(reply)) == [{"type": "text", "text": "So.", "citations": [{"cited_text": "x"}]}]


ENDS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "refusal": (end("refusal"), "content_filter"),
    "max_tokens": (end("max_tokens"), "length"),
    "the context is full": (end("model_context_window_exceeded"), "length"),
    "a long turn pauses": (end("pause_turn"), "interrupted"),
    "a word that nobody knows": (end("tired"), "interrupted"),
    "no end": ([], "interrupted"),
    "only the reason": (end("tool_use")[:1], "tool_calls"),
    "only the stop": (end("tool_use")[1:], "tool_calls"),
    "overloaded": ([{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}], "error"),
    "an error after the end": ([*end("tool_use"), {"type": "error", "error": {"message": "late"}}], "error"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_is_told_truly(case: str) -> None:
    events, finish = ENDS[case]
    reply = read(body(start(), *text(0, "x"), *call(1, "f", "{}"), *events), wire="anthropic")
    assert reply.finish == finish
    assert bool(reply.calls) == (finish == "tool_calls")


def test_an_error_is_told_in_the_servers_words() -> None:
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}, "request_id": "r"}
    assert read(body(start(), error), wire="anthropic").error == "Overloaded (overloaded_error)"


def test_a_refusal_says_why() -> None:
    details = {"type": "refusal", "category": "bio", "explanation": "No."}
    delta = {"type": "message_delta", "delta": {"stop_reason": "refusal", "stop_details": details}, "usage": {}}
    assert "the model refused: No." in read(body(start(), delta), wire="anthropic").problems


def test_what_comes_after_the_end_does_not_count() -> None:
    reply = read(body(start(), *text(0, "x"), *end("end_turn"), *call(1, "f", "{}")), wire="anthropic")
    assert (reply.finish, reply.calls) == ("stop", [])
    assert "text or calls after message_stop were dropped" in reply.problems


def test_imitators_are_read() -> None:
    """Whole inputs in the start of a block, blocks without a start, [DONE] at the end."""
    events = [
        start(),
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
        *call(1, "f", input={"a": 1}),
        end("tool_use")[0],
    ]
    reply = read(body(*events) + b"data: [DONE]\n\n", wire="anthropic")
    assert (reply.content, seen(reply)) == ("Hi", [("toolu_1", "f", {"a": 1})])


def test_an_answer_that_is_not_streamed_is_read_alike() -> None:
    message = {
        "type": "message",
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
            {"type": "text", "text": "Hi"},
            {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 4},
    }
    reply = read(json.dumps(message).encode(), wire="anthropic")
    assert (reply.content, reply.reasoning, seen(reply)) == ("Hi", "hm", [("t", "f", {"a": 1})])
    back = blocks(answer(reply))
    assert back == message["content"], "and goes back as it came"
    whole = json.dumps({"type": "error", "error": {"type": "api_error", "message": "No"}}).encode()
    assert (read(whole, wire="anthropic").finish, read(whole, wire="anthropic").error) == ("error", "No")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@settings(deadline=None)
@given(data=st.data())
def test_events_of_a_wrong_shape_never_raise(data: st.DataObject) -> None:
    records = [json.loads(line[6:]) for line in WHOLE.split(b"\n") if line.startswith(b"data: ")]
    event: Any = data.draw(st.sampled_from(records))
    place = event
    while isinstance(place, dict) and place:
        key = data.draw(st.sampled_from(sorted(place)))
        if not isinstance(place[key], dict) or data.draw(st.booleans()):
            place[key] = data.draw(ANYTHING)
            break
        place = place[key]
    loader = api.Loader()
    for record in records:
        loader.take(record)
    loader.finish()


# --- Request -> body ----------------------------------------------------------------------------------------------

TOOL = ToolSpec("f", "Does f.", {"type": "object", "properties": {"a": {"type": "integer"}}})


def test_a_request_becomes_the_body() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    request = Request(
        (
            Message("system", "Be brief."),
            Message("user", ({"type": "text", "text": "What?"}, image)),
            Message("assistant", "", calls=(ToolCall("call 1", "f", {"a": 1}), ToolCall("b", "f", {}))),
            Message("tool", "one", call_id="call 1", name="f"),
            Message("tool", ({"type": "text", "text": "two"}, image), call_id="b", name="f"),
            Message("user", "And?"),
        ),
        (TOOL,),
        tool_choice="required",
        parallel=False,
        schema={"type": "object"},
        options={"temperature": 0.5, "stop": "X", "max_tokens": 99, "reasoning_effort": "minimal"},
    )
    source = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}
    sent = "toolu_" + api.build(request, "m")["messages"][1]["content"][0]["id"][6:]
    assert api.build(request, "m") == {
        "model": "m",
        "max_tokens": 99,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image", "source": source}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": sent, "name": "f", "input": {"a": 1}},
                    {"type": "tool_use", "id": "b", "name": "f", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": sent, "content": "one"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "b",
                        "content": [{"type": "text", "text": "two"}, {"type": "image", "source": source}],
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "tools": [{"name": "f", "description": "Does f.", "input_schema": TOOL.parameters}],
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
        "temperature": 0.5,
        "stop_sequences": ["X"],
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
        "stream": True,
    }


def test_what_the_api_cannot_do_is_refused_before_it_is_sent() -> None:
    with pytest.raises(ConfigError, match="seed"):
        api.build(Request((), options={"seed": 1}), "m")
    with pytest.raises(ConfigError, match="input_audio"):
        api.build(Request((Message("user", ({"type": "input_audio"},)),)), "m")


def test_structured_output_is_closed_and_never_a_free_form_object_in_disguise() -> None:
    closed = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}}
    sent = api.accept(Request((), schema=closed))
    assert sent.request.schema == {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "additionalProperties": False,
    }
    assert sent.notes == ("output: sent without minimum; callgate checks them",)
    free = api.accept(Request((), schema={"type": "object", "properties": {"d": {"type": "object"}}}))
    assert free.request.schema is None
    assert "free-form" in free.notes[0]


def test_the_stable_prefix_is_marked_for_the_cache() -> None:
    mark = {"type": "ephemeral"}
    request = Request((Message("system", "S"), Message("user", "one")), (TOOL,))
    body = api.build(request, "m", cache=True)
    assert body["system"] == [{"type": "text", "text": "S", "cache_control": mark}]
    assert body["messages"][-1]["content"] == [{"type": "text", "text": "one", "cache_control": mark}]
    assert "cache_control" not in body["tools"][0], "the system prompt's mark covers the tools"
    longer = api.build(
        Request((*request.messages, Message("assistant", "1"), Message("user", "two")), (TOOL,)), "m", cache=True
    )
    assert longer["system"] == body["system"]
    assert longer["messages"][0]["content"] == "one", "one mark moves along with the conversation"
    own = Request((Message("system", "S", extra={"cache_control": mark}), Message("user", "one")))
    assert api.build(own, "m", cache=True) == api.build(own, "m"), "a caller's own marks are left alone"


# --- what clients send --------------------------------------------------------------------------------------------

BODY: dict[str, Any] = {
    "model": "m",
    "max_tokens": 1024,
    "system": [{"type": "text", "text": "Brief.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
                {"type": "text", "text": "I look."},
                {**SEARCH, "input": {"query": "x"}},
                FOUND,
                {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}, "caller": {"type": "direct"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": True},
                {"type": "text", "text": "And?"},
                {"type": "document", "source": {"type": "file", "file_id": "file_1"}, "citations": {"enabled": True}},
            ],
        },
    ],
    "tools": [
        {"name": "f", "description": "Does f.", "input_schema": TOOL.parameters, "strict": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 5},
    ],
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "thinking": {"type": "enabled", "budget_tokens": 2000},
    "metadata": {"user_id": "u"},
    "output_config": {"effort": "high", "x_new": 1},
    "stream": True,
}


def test_what_anthropics_clients_send_is_kept_whatever_we_know_of_it() -> None:
    request = formats.get("anthropic").load_request(BODY)
    system, user, answer_, result, more = request.messages
    assert (system.role, system.content) == ("system", "Brief.")
    assert user.text == "Hi"
    assert (answer_.content, answer_.reasoning, answer_.calls[0].arguments) == ("I look.", "hm", {"a": 1})
    assert (result.role, result.call_id, result.name, result.content) == ("tool", "t1", "f", "no")
    assert more.text == "And?"
    assert (request.parallel, request.options["reasoning_effort"]) == (False, "high")
    want = {**BODY, "max_tokens": 2000 + api.build(Request(()), "m")["max_tokens"]}
    assert api.build(request, "m") == want, "the limit must leave room behind the thinking; the rest is as it came"


# --- deltas -> events, read by the official client -----------------------------------------------------------------


def accumulated(events: list[dict[str, Any]]) -> Any:
    """What the official package makes of these events."""
    message = None
    bufs: dict[int, bytes] = {}
    for event in events:
        checked = EVENT.validate_python(event)
        message = accumulate_event(event=checked, current_snapshot=message, json_bufs=bufs)
    return message


@settings(deadline=None)
@given(reply=replies("anthropic").filter(sound), sizes=st.lists(st.integers(1, 40), min_size=1))
def test_the_anthropic_package_accumulates_the_same(reply: Reply, sizes: list[int]) -> None:
    message = accumulated(api.Dumper(model="m").feed(deltas_of(reply, sizes)))
    texts = "".join(b.text for b in message.content if b.type == "text")
    thoughts = "".join(b.thinking for b in message.content if b.type == "thinking")
    found = [(b.id, b.name, b.input) for b in message.content if b.type == "tool_use"]
    assert (texts, thoughts) == (reply.content, reply.reasoning)
    assert found == [(c.id, c.name, c.arguments) for c in reply.calls]
    assert message.stop_reason == reply.raw_finish


def test_each_block_is_closed_and_counted() -> None:
    """Text between calls, and fragments that other APIs mix."""
    chunks = formats.get("openai").Loader()
    deltas = [
        *chunks.take(chunk({"content": "a"})),
        *chunks.take(chunk({"tool_calls": [part(0, "f", '{"x"'), part(1, "g", '{"y"')]})),
        *chunks.take(chunk({"content": "b"})),
        *chunks.take(chunk({"tool_calls": [part(0, None, ":1}"), part(1, None, ":2}")]})),
        *chunks.take(chunk({}, "tool_calls")),
        *chunks.finish(),
    ]
    events = [event for delta in deltas for event in api.Dumper.feed(DUMPER, [delta])]
    open_: list[int] = []
    for event in events:
        if event["type"] == "content_block_start":
            assert not open_
            open_.append(event["index"])
        elif event["type"] == "content_block_delta":
            assert open_ == [event["index"]]
        elif event["type"] == "content_block_stop":
            assert open_.pop() == event["index"]
    kinds = [b.type for b in accumulated(events).content]
    assert sorted(kinds) == ["text", "text", "tool_use", "tool_use"]


DUMPER = api.Dumper()


def chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def part(index: int, name: str | None, arguments: str) -> dict[str, Any]:
    return {"index": index, "id": f"c{index}" if name else None, "function": {"name": name, "arguments": arguments}}


def test_a_layout_is_no_field_of_another_api() -> None:
    message = answer(read(WHOLE, wire="anthropic"))
    assert CAME in message.calls[0].extra
    for wire in ("openai", "ollama"):
        built = formats.get(wire).build(Request((message,)), "m")
        assert "content_blocks" not in json.dumps(built)
        assert SIGNATURE not in json.dumps(built)
