"""Ollama's chat API, field by field as it is published, and what its servers were seen to send."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import read
from callgate.errors import ConfigError
from callgate.formats import ollama as api
from callgate.types import BadCall, CallDelta, Message, Request, TextDelta, ToolCall, ToolSpec
from callgate.wire import Record


def lines(*records: Any) -> bytes:
    return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records).encode()


def said(done: bool = False, **message: Any) -> dict[str, Any]:
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", **message},
        "done": done,
    }


DONE = {
    **said(True, content=""),
    "done_reason": "stop",
    "total_duration": 5,
    "load_duration": 1,
    "prompt_eval_count": 26,
    "prompt_eval_duration": 1,
    "eval_count": 7,
    "eval_duration": 3,
}
CALL = {"function": {"name": "f", "arguments": {"a": 1}}}


def test_the_published_stream_is_read_field_by_field() -> None:
    thoughts = [said(content="", thinking="h"), said(content="", thinking="m")]
    reply = read(lines(*thoughts, said(content="Hi"), said(content="!"), DONE), wire="ollama")
    assert (reply.content, reply.reasoning, reply.finish, reply.raw_finish) == ("Hi!", "hm", "stop", "stop")
    assert reply.usage == {"input": 26, "output": 7}
    assert reply.problems == []


def test_calls_are_whole_and_never_merged() -> None:
    """Two in the same place of two records, two in one record: four calls, with ids of their own or the server's."""
    pair = [{"id": "x", **CALL}, CALL]
    reply = read(lines(said(content="", tool_calls=pair), said(content="", tool_calls=pair), DONE), wire="ollama")
    assert [(c.name, c.arguments) for c in reply.calls] == [("f", {"a": 1})] * 4
    assert len({c.id for c in reply.calls}) == 4
    assert reply.calls[0].id == "x"


def test_a_call_comes_out_at_once_as_a_fragment_and_at_the_end_as_a_call() -> None:
    loader = api.Loader()
    assert loader.feed(Record(json.dumps(said(tool_calls=[CALL])))) == [CallDelta(0, None, "f", '{"a": 1}')]
    assert loader.take(DONE) == []
    assert loader.finish()[0] == ToolCall("", "f", {"a": 1}, 0)


@pytest.mark.parametrize(
    ("arguments", "expected"), [('{"a": 1}', {"a": 1}), (None, {}), ({}, {}), ("", {}), ('"{\\"a\\":1}"', {"a": 1})]
)
def test_arguments_of_another_shape_are_read(arguments: Any, expected: Any) -> None:
    call = {"function": {"name": "f", "arguments": arguments}}
    (found,) = read(lines(said(tool_calls=[call]), DONE), wire="ollama").calls
    assert found.arguments == expected


def test_arguments_that_are_no_object_are_incomplete() -> None:
    call = {"function": {"name": "f", "arguments": [1]}}
    reply = read(lines(said(tool_calls=[call]), DONE), wire="ollama")
    assert reply.incomplete == [BadCall(0, None, "f", "[1]", "malformed")]


ENDS: dict[str, tuple[bytes, str]] = {
    "done": (lines(DONE), "stop"),
    "done without a reason (old servers)": (lines(said(True, content="")), "stop"),
    "length": (lines({**DONE, "done_reason": "length"}), "length"),
    "not done": (lines(said(content="x")), "interrupted"),
    "nothing": (b"", "interrupted"),
    "an error inside a 200": (lines(said(content="x"), {"error": "model runner has unexpectedly stopped"}), "error"),
    "an error object": (lines({"error": {"message": "boom"}}), "error"),
    "cut inside a record": (lines(DONE)[:-9], "interrupted"),
    "no JSON": (b"<html>oops</html>\n", "error"),
    "loaded only": (lines({**said(True, content=""), "done_reason": "load"}), "stop"),
}


@pytest.mark.parametrize("case", ENDS)
def test_the_end_is_told_truly_and_an_unsound_one_gives_no_call(case: str) -> None:
    source, reason = ENDS[case]
    assert read(source, wire="ollama").finish == reason
    reply = read(lines(said(tool_calls=[CALL])) + source, wire="ollama")
    if reason == "stop":
        assert (reply.finish, len(reply.calls)) == ("tool_calls", 1)
    else:
        assert (reply.finish, reply.calls) == (reason, [])
        assert reply.incomplete == [BadCall(0, None, "f", '{"a": 1}', "unsound_end")]
    assert (reply.error is not None) == (reason == "error")


@pytest.mark.parametrize("indent", [None, 1, "\t"])
def test_a_body_that_was_not_streamed_is_read_however_it_is_set_out(indent: Any) -> None:
    """A saved answer comes as `jq` or an editor wrote it; cut short, it is interrupted."""
    message = {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]}
    body = json.dumps({"message": message, "done": True, "done_reason": "stop"}, indent=indent).encode()
    for reply in (read(body, wire="ollama"), read([body[i : i + 1] for i in range(len(body))], wire="ollama")):
        assert (reply.content, reply.finish, [call.arguments for call in reply.calls]) == (
            "a",
            "tool_calls",
            [{"x": 1}],
        )
    assert read(body[:-3], wire="ollama").finish == "interrupted"


def test_generate_is_read_too() -> None:
    records = [
        {"response": "a", "done": False},
        {"response": "b", "thinking": "t", "done": True, "done_reason": "stop"},
    ]
    reply = read(lines(*records), wire="ollama")
    assert (reply.content, reply.reasoning, reply.finish) == ("ab", "t", "stop")


@pytest.mark.parametrize("value", [None, 1, "x", [], [1], {}, {"message": 1}, {"message": {"tool_calls": [1, {}]}}])
def test_records_of_a_wrong_shape_never_raise(value: Any) -> None:
    reply = read(lines(value, DONE), wire="ollama")
    assert reply.calls == []


WEATHER = ToolSpec("get_weather", "Weather.", {"type": "object", "properties": {"city": {"type": "string"}}})


def test_a_request_becomes_the_body() -> None:
    call = ToolCall("call_1", "get_weather", {"city": "Köln"})
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    request = Request(
        (
            Message("system", "Be brief."),
            Message("user", ({"type": "text", "text": "look"}, picture)),
            Message("assistant", "", "thinking", (call,)),
            Message("tool", "12°", call_id="call_1"),
        ),
        tools=(WEATHER,),
        schema={"type": "object"},
        options={"temperature": 0, "max_tokens": 9, "stop": "x", "think": "high", "keep_alive": "5m", "num_ctx": 4096},
        extra={"options": {"mirostat": 1}},
    )
    assert api.build(request, "m") == {
        "truncate": False,
        "model": "m",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "look", "images": ["iVBO"]},
            {
                "role": "assistant",
                "content": "",
                "thinking": "thinking",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Köln"}},
                    }
                ],
            },
            {"role": "tool", "content": "12°", "tool_name": "get_weather", "tool_call_id": "call_1"},
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
        "format": {"type": "object"},
        "think": "high",
        "keep_alive": "5m",
        "options": {"temperature": 0, "num_predict": 9, "stop": ["x"], "num_ctx": 4096, "mirostat": 1},
        "stream": True,
    }


def test_tool_choice_none_offers_no_tools() -> None:
    assert "tools" not in api.build(Request((), tools=(WEATHER,), tool_choice="none"), "m")


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (Request((), tools=(WEATHER,), tool_choice="required"), "cannot force a call"),
        (Request((), tools=(WEATHER,), parallel=False), "max_calls_per_turn"),
        (Request((Message("user", ({"type": "image_url", "image_url": {"url": "https://x/y.png"}},)),)), "fetches no"),
        (Request((Message("user", ({"type": "input_audio"},)),)), "input_audio"),
    ],
)
def test_what_ollama_cannot_do_is_refused_in_words(request_: Request, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        api.build(request_, "m")


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(deadline=None)
@given(model=TEXTS, text=TEXTS, role=st.sampled_from(["assistant", "user"]), spaced=st.booleans())
def test_the_short_way_is_the_long_way(model: str, text: str, role: str, spaced: bool) -> None:
    """A record that is read by a pattern gives what a parser gives."""
    message = {"role": role, "content": text}
    value = {"model": model, "created_at": "2026", "message": message, "done": False}
    for escaped in (True, False):
        data = json.dumps(value, separators=None if spaced else (",", ":"), ensure_ascii=escaped)
        assert api.Loader().feed(Record(data)) == api.Loader().take(json.loads(data)) == [TextDelta(text)] * bool(text)
