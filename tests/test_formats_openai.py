"""The chat completions API as servers really send it: each case is one habit of a server."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import Reply, read
from callgate.formats import openai as api
from callgate.formats._calls import MAX_CALLS
from callgate.types import BadCall, CallDelta, Message, Request, ToolCall, ToolSpec
from callgate.wire import Record


def body(*records: Any, done: bool = True) -> bytes:
    texts = [record if isinstance(record, str) else json.dumps(record) for record in records]
    return "".join(f"data: {text}\n\n" for text in [*texts, *(["[DONE]"] if done else [])]).encode()


def chunk(delta: Any = None, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": {} if delta is None else delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def part(arguments: Any = ..., *, name: str | None = None, **entry: Any) -> dict[str, Any]:
    function = {} if name is None else {"name": name}
    if arguments is not ...:
        function["arguments"] = arguments
    return {**entry, "function": function}


def calls(*parts: Any, finish: str | None = "tool_calls", tools: Any = ()) -> Reply:
    """The reply to these tool call entries, one delta each (a list: several in one delta)."""
    records = [chunk({"tool_calls": p if isinstance(p, list) else [p]}) for p in parts]
    return read(body(*records, chunk(finish=finish)), wire="openai", tools=tools)


def seen(reply: Reply) -> list[tuple[str, Any]]:
    return [(call.name, call.arguments) for call in reply.calls]


CALLS: dict[str, tuple[list[Any], list[tuple[str, Any]]]] = {
    "one call in one piece": ([part('{"a":1}', name="f", index=0, id="x")], [("f", {"a": 1})]),
    "arguments as an object": ([part({"a": 1}, name="f", index=0, id="x")], [("f", {"a": 1})]),
    "arguments encoded twice": ([part('"{\\"a\\":1}"', name="f", index=0, id="x")], [("f", {"a": 1})]),
    "no arguments field": ([part(name="f", index=0, id="x")], [("f", {})]),
    "arguments null": ([part(None, name="f", index=0, id="x")], [("f", {})]),
    "arguments the text null": ([part("null", name="f", index=0, id="x")], [("f", {})]),
    "two parallel calls, interleaved": (
        [
            part("", name="f", index=0, id="x"),
            part("", name="g", index=1, id="y"),
            part('{"a"', index=0),
            part('{"b"', index=1),
            part(":1}", index=0),
            part(":2}", index=1),
        ],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
    "index as text": ([part("{", name="f", index="0", id="x"), part("}", index=0)], [("f", {})]),
    "index always 0, other ids, same tool": (
        [part('{"a":1}', name="f", index=0, id="x"), part('{"a":2}', name="f", index=0, id="y")],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "index always 0, other ids, the first without arguments": (
        [part("", name="f", index=0, id="x"), part("", name="f", index=0, id="y")],
        [("f", {}), ("f", {})],
    ),
    "no index, no id: the same tool twice": (
        [part('{"a":1}', name="f"), part('{"a":2}', name="f")],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "no index: fragments follow their id": (
        [
            part("", name="f", id="x"),
            part("", name="g", id="y"),
            part('{"a":1}', id="x"),
            part('{"b":2}', id="y"),
        ],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
    "no index, no id: fragments in a row follow their place": (
        [
            [part("", name="f"), part("", name="g")],
            [part('{"a":1'), part('{"b":2')],
            [part("}"), part("}")],
        ],
        [("f", {"a": 1}), ("g", {"b": 2})],
    ),
    "one id for all": (
        [part('{"a":1}', name="f", index=0, id="x"), part('{"a":2}', name="f", index=1, id="x")],
        [("f", {"a": 1}), ("f", {"a": 2})],
    ),
    "one id and one index for all": (
        [part('{"a":1}', name="f", index=0, id="x"), part('{"b":2}', name="f", index=0, id="x")],
        [("f", {"a": 1}), ("f", {"b": 2})],
    ),
    "header repeated, id new each time": (
        [part('{"a"', name="f", index=0, id="x"), part(":1}", name="f", index=0, id="y")],
        [("f", {"a": 1})],
    ),
    "index moves, id stays": (
        [part('{"a"', name="f", index=0, id="x"), part(":1}", index=1, id="x")],
        [("f", {"a": 1})],
    ),
    "a placeholder before the arguments, with the header again": (
        [part("{}", name="f", index=0, id="x"), part('{"a":1}', name="f", index=0, id="x")],
        [("f", {"a": 1})],
    ),
    "a blank fragment first": ([part(" ", name="f", index=0, id="x"), part('{"a":1}', index=0)], [("f", {"a": 1})]),
    "the whole arguments once more at the end": (
        [part('{"a":', name="f", index=0, id="x"), part("1}", index=0), part('{"a": 1}', index=0)],
        [("f", {"a": 1})],
    ),
    "the name comes after the id": ([part("", index=0, id="x"), part('{"a":1}', name="f", index=0)], [("f", {"a": 1})]),
    "an entry that is no object": ([[None, "x", part("{}", name="f", index=0)]], [("f", {})]),
    "integers beyond 64 bits stay exact": (
        [part('{"n":123456789012345678901234567890}', name="f", index=0)],
        [("f", {"n": 123456789012345678901234567890})],
    ),
}


@pytest.mark.parametrize("case", CALLS)
def test_fragments_become_the_calls_they_are(case: str) -> None:
    parts, expected = CALLS[case]
    reply = calls(*parts)
    assert seen(reply) == expected
    assert reply.finish == "tool_calls"
    assert reply.incomplete == []
    ids = [call.id for call in reply.calls]
    assert len(set(ids)) == len(ids)
    assert [call.index for call in reply.calls] == list(range(len(ids)))


@pytest.mark.parametrize("case", [c for c in CALLS if c != "the whole arguments once more at the end"])
def test_fragments_together_are_the_arguments(case: str) -> None:
    loader = api.Loader()
    deltas = [d for p in CALLS[case][0] for d in loader.take(chunk({"tool_calls": p if isinstance(p, list) else [p]}))]
    deltas += loader.take(chunk(finish="stop")) + loader.finish()
    for call in [d for d in deltas if isinstance(d, ToolCall)]:
        text = "".join(d.arguments for d in deltas if isinstance(d, CallDelta) and d.index == call.index)
        assert json.loads(text) == call.arguments
        names = [d.name for d in deltas if isinstance(d, CallDelta) and d.index == call.index]
        assert names[0] == call.name
        assert not any(names[1:])


BAD = {
    "cut off": ('{"a":', "truncated"),
    "cut off in a string": ('{"a": "b', "truncated"),
    "two objects": ('{"a":1}{"b":2}', "malformed"),
    "no object": ("[1]", "malformed"),
    "a word": ("yes", "malformed"),
    "NaN": ('{"a": NaN}', "malformed"),
    "single quotes": ("{'a': 1}", "malformed"),
    "too deep": ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "malformed"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_read_is_incomplete_to_the_character(case: str) -> None:
    text, reason = BAD[case]
    reply = calls(part(text, name="f", index=0, id="x"), part('{"b":1}', name="g", index=1, id="y"))
    assert reply.incomplete == [BadCall(0, "x", "f", text, reason)]
    assert seen(reply) == [("g", {"b": 1})]


def test_a_name_in_pieces_is_put_together_when_it_makes_a_tool() -> None:
    reply = calls(
        part(name="get_", index=0, id="x"), part('{"a":1}', name="weather", index=0), tools=[{"name": "get_weather"}]
    )
    assert seen(reply) == [("get_weather", {"a": 1})]
    assert any("pieces" in problem for problem in reply.problems)


def test_a_call_without_a_name_is_incomplete() -> None:
    reply = calls(part('{"a":1}', index=0, id="x"))
    assert reply.incomplete == [BadCall(0, "x", None, '{"a":1}', "malformed")]


def test_a_flood_of_calls_is_bounded() -> None:
    reply = calls([part("{}", name=f"f{n}", index=n) for n in range(MAX_CALLS + 10)])
    assert len(reply.calls) == MAX_CALLS
    assert any("MAX_CALLS" in problem for problem in reply.problems)


ENDS: dict[str, tuple[bytes, str]] = {
    "stop and DONE": (body(chunk({"content": "x"}), chunk(finish="stop")), "stop"),
    "no DONE": (body(chunk({"content": "x"}), chunk(finish="stop"), done=False), "stop"),
    "only DONE": (body(chunk({"content": "x"})), "stop"),
    "neither": (body(chunk({"content": "x"}), done=False), "interrupted"),
    "nothing at all": (b"", "interrupted"),
    "length": (body(chunk({"content": "x"}), chunk(finish="length")), "length"),
    "another word for length": (body(chunk({"content": "x"}), chunk(finish="MAX_TOKENS")), "length"),
    "content_filter": (body(chunk({"content": "x"}), chunk(finish="content_filter")), "content_filter"),
    "a word for failure": (body(chunk({"content": "x"}), chunk(finish="insufficient_system_resource")), "error"),
    "an unknown word": (body(chunk({"content": "x"}), chunk(finish="banana")), "interrupted"),
    "tool_calls without calls": (body(chunk({"content": "x"}), chunk(finish="tool_calls")), "stop"),
    "length, then stop": (body(chunk(finish="length"), chunk(finish="stop")), "length"),
    "cut inside a record": (body(chunk({"content": "x"}), done=False)[:-5], "interrupted"),
    "no JSON": (body(chunk({"content": "x"}), "Internal Server Error"), "error"),
    "an error object": (body(chunk({"content": "x"}), {"error": {"message": "boom", "code": 500}}), "error"),
    "an error after the finish": (body(chunk(finish="stop"), {"error": "boom"}), "error"),
    "an error in the choice": (body({"choices": [{"error": {"message": "boom"}, "delta": {}}]}), "error"),
    "vLLM's error object": (body({"object": "error", "message": "boom", "code": 400}), "error"),
    "words instead of a stream": (b"upstream connect error or disconnect", "error"),
    "a whole answer that is cut": (b'{"choices":[{"message":{"content":"x"},"finish_rea', "interrupted"),
    "FastAPI's detail": (b'{"detail": "Not authenticated"}', "error"),
    "Gemini's list of errors": (b'[{\n  "error": {"code": 400, "message": "boom"}\n}]', "error"),
    "llama.cpp's error field": (b'error: {"code":500,"message":"boom"}\n\n', "error"),
    "OpenAI's empty error field": (body(chunk({"content": "x"}, finish="stop", error=None)), "stop"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_is_told_truly(case: str) -> None:
    source, reason = ENDS[case]
    reply = read(source, wire="openai")
    assert reply.finish == reason
    assert (reply.error is not None) == (reason == "error")


@pytest.mark.parametrize("case", [c for c in ENDS if ENDS[c][1] != "stop" and ENDS[c][0][:1] not in (b"{", b"[")])
def test_after_an_unsound_end_no_call_counts(case: str) -> None:
    source = ENDS[case][0]
    call = body(chunk({"tool_calls": [part('{"a":1}', name="f", index=0, id="x")]}), done=False)
    reply = read(call + source, wire="openai")
    assert reply.calls == []
    assert reply.incomplete == [BadCall(0, "x", "f", '{"a":1}', "unsound_end")]


def test_done_alone_does_not_make_cut_arguments_whole() -> None:
    reply = read(body(chunk({"tool_calls": [part('{"a":', name="f", index=0)]})), wire="openai")
    assert (reply.finish, reply.calls) == ("interrupted", [])


def test_a_whole_answer_is_read_like_a_stream() -> None:
    message = {
        "role": "assistant",
        "content": "hi",
        "reasoning_content": "hm",
        "tool_calls": [part('{"a":1}', name="f", id="x"), part('{"a":2}', name="f")],
    }
    answer = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    for source in (json.dumps(answer), json.dumps(answer, indent=2)):
        reply = read(source.encode(), wire="openai")
        assert (reply.content, reply.reasoning, reply.finish) == ("hi", "hm", "tool_calls")
        assert seen(reply) == [("f", {"a": 1}), ("f", {"a": 2})]


def test_a_whole_message_beside_an_empty_last_delta_is_not_said_twice() -> None:
    last = {"index": 0, "delta": {}, "message": {"content": "hi"}, "finish_reason": "stop"}
    assert read(body(chunk({"content": "hi"}), {"choices": [last]}), wire="openai").content == "hi"


def test_one_call_in_place_of_a_list_is_a_call() -> None:
    reply = read(body(chunk({"tool_calls": part("{}", name="f", index=0)}), chunk(finish="stop")), wire="openai")
    assert seen(reply) == [("f", {})]


def test_a_legacy_function_call_is_a_call() -> None:
    legacy = [{"name": "f", "arguments": '{"a"'}, {"arguments": ":1}"}]
    records = [chunk({"function_call": fragment}) for fragment in legacy]
    reply = read(body(*records, chunk(finish="function_call")), wire="openai")
    assert (seen(reply), reply.finish, reply.raw_finish) == ([("f", {"a": 1})], "tool_calls", "function_call")


def test_a_refusal_is_text_and_a_problem() -> None:
    reply = read(body(chunk({"refusal": "I can"}), chunk({"refusal": "not."}), chunk(finish="stop")), wire="openai")
    assert (reply.content, reply.problems) == ("I cannot.", ["the model refused"])


def test_reasoning_details_are_read_where_no_plain_field_is() -> None:
    details = [{"type": "reasoning.text", "text": "We "}, {"type": "reasoning.summary", "summary": "add."}]
    encrypted = [{"type": "reasoning.encrypted", "data": "…"}]
    records = [chunk({"reasoning_details": details}), chunk({"reasoning_details": encrypted}), chunk(finish="stop")]
    assert read(body(*records), wire="openai").reasoning == "We add."


def test_usage_is_read_wherever_it_stands() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    expected = {"input": 5, "output": 2, "cached": 3, "reasoning": 1}
    end = chunk(finish="stop")
    for records in (
        [end, {"choices": [], "usage": usage}],
        [{**end, "usage": usage}],
        [end, {"choices": [], "x_groq": {"usage": usage}}],
    ):
        assert read(body(*records), wire="openai").usage == expected


def test_fields_of_the_provider_come_back_with_the_call() -> None:
    signature = {"extra_content": {"google": {"thought_signature": "abc"}}}
    entry = {**part("{}", name="f", index=0, id="x"), "type": "function", **signature}
    (call,) = calls(entry).calls
    assert call.extra == signature
    history = (Message("assistant", calls=(call,)), Message("tool", "ok", call_id="x", name="f"))
    sent = api.build(Request(history), "m")["messages"][0]["tool_calls"][0]
    assert sent == {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}, **signature}


def test_another_first_choice_is_the_message() -> None:
    record = {"choices": [{"index": 3, "delta": {"content": "x"}, "finish_reason": "stop"}]}
    assert read(body(record), wire="openai").content == "x"


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, {"choices": 1}, {"choices": [1]}, {"choices": [{}]}])
def test_records_of_a_wrong_shape_never_raise(value: Any) -> None:
    loader = api.Loader()
    assert loader.feed(Record(json.dumps(value))) == []
    assert loader.finish()[-1].reason == "interrupted"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "field", ["content", "tool_calls", "reasoning", "function_call", "refusal", "reasoning_details"]
)
@pytest.mark.parametrize("value", [None, 0, 1, True, "", [], [None], [1], {}, {"a": 1}, [[]], [{}]])
def test_fields_of_a_wrong_type_never_raise(field: str, value: Any) -> None:
    reply = read(body(chunk({field: value}), chunk(finish="stop")), wire="openai")
    assert reply.finish in ("stop", "tool_calls", "interrupted", "error")
    assert reply.calls == []


WEATHER = ToolSpec("get_weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def test_a_request_becomes_the_body() -> None:
    call = ToolCall("call_1", "get_weather", {"city": "Köln"})
    request = Request(
        (
            Message("system", "Be brief."),
            Message("user", ({"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:…"}})),
            Message("assistant", "", "thinking", (call,)),
            Message("tool", "12°", call_id="call_1", name="get_weather"),
        ),
        tools=(WEATHER,),
        tool_choice="get_weather",
        parallel=False,
        options={"temperature": 0, "max_tokens": 9, "stop": ["x"]},
        extra={"user": "u"},
    )
    assert api.build(request, "m") == {
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:…"}}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'},
                    }
                ],
            },
            {"role": "tool", "content": "12°", "tool_call_id": "call_1"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "get_weather",
                    "description": "Weather.",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
                },
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "get_weather"}},
        "parallel_tool_calls": False,
        "temperature": 0,
        "max_tokens": 9,
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "user": "u",
    }


def test_quirks_change_the_body() -> None:
    call = ToolCall("call_1", "f", {})
    history = (Message("assistant", "", "hm", (call,)), Message("tool", "ok", call_id="call_1", name="f"))
    quirks = api.Quirks("max_completion_tokens", "reasoning_content", usage=False, short_ids=True, tool_name=True)
    sent = api.build(Request(history, schema={"type": "object"}, options={"max_tokens": 5}), "m", quirks)
    asked, answered = sent["messages"]
    assert sent["max_completion_tokens"] == 5
    assert "stream_options" not in sent
    assert asked["reasoning_content"] == "hm"
    assert len(asked["tool_calls"][0]["id"]) == 9
    assert asked["tool_calls"][0]["id"] == answered["tool_call_id"]
    assert answered["name"] == "f"
    assert sent["response_format"]["json_schema"]["strict"] is False


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        ({"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}, True),
        ({"type": "object", "properties": {"a": {}}, "required": [], "additionalProperties": False}, False),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, False),
        ({"anyOf": [{"type": "object", "properties": {}, "additionalProperties": False}, {"type": "null"}]}, True),
        ({"type": "array", "items": {"type": "object"}}, False),
        ({"$defs": {"x": {"type": "object", "properties": {"b": {}}}}, "$ref": "#/$defs/x"}, False),
        ({"enum": [{"type": "object"}]}, True),
    ],
)
def test_strict_is_asked_for_only_where_the_schema_allows_it(schema: Any, strict: bool) -> None:
    sent = api.build(Request((), schema=schema), "m")
    assert sent["response_format"]["json_schema"]["strict"] is strict
