"""Hostile bytes: whatever comes, one `Finish`, nothing raised, the same for every cut, no call before a sound end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import formats
from callgate.reply import Reader
from callgate.types import Finish, ToolCall


def sse(*records: Any) -> bytes:
    return "".join(f"data: {json.dumps(r)}\n\n" for r in records).encode() + b"data: [DONE]\n\n"


def fragment(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({"name": more.pop("name")} if "name" in more else {})
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": index, **more, "function": function}]}}]}


OPENAI = sse(
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi ☂"}}]},
    fragment(0, '{"a"', id="x", name="f"),
    fragment(1, "", id="y", name="g"),
    fragment(0, ": 1}"),
    {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
)
OLLAMA = b"".join(
    json.dumps(r, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    for r in (
        {"model": "m", "created_at": "2026", "message": {"role": "assistant", "content": "Hi ☂"}, "done": False},
        {"message": {"content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1}}}]}, "done": False},
        {"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 2},
    )
)
ANTHROPIC = b"".join(
    f"event: {r['type']}\ndata: {json.dumps(r, ensure_ascii=False)}\n\n".encode()
    for r in (
        {"type": "message_start", "message": {"usage": {"input_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi ☂"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "x", "name": "f"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a"'}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": ": 1}"}},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    )
)
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "x", "name": "f", "arguments": ""}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "content": []}
USAGE = {"input_tokens": 1, "output_tokens": 2}
RESPONSES = b"".join(
    f"event: {r['type']}\ndata: {json.dumps(r, ensure_ascii=False)}\n\n".encode()
    for r in (
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": MESSAGE},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hi ☂"},
        {"type": "response.output_item.added", "output_index": 1, "item": ITEM},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": '{"a"'},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "item_id": "fc_1", "delta": ": 1}"},
        {"type": "response.output_item.done", "output_index": 1, "item": {**ITEM, "arguments": '{"a": 1}'}},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "usage": USAGE}},
    )
)
BODIES = {"openai": OPENAI, "ollama": OLLAMA, "anthropic": ANTHROPIC, "responses": RESPONSES}
ENDS = {
    "openai": b'"finish_reason": "tool_calls"}]}',
    "ollama": b'"done":true',
    "anthropic": b'"usage": {"output_tokens": 2}}',
    "responses": b'"output_tokens": 2}}}',
}
"""Where each body has declared its end."""
TOKENS = [
    b"data: ",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"{",
    b"}",
    b'"',
    b"[",
    b"]",
    b"null",
    b"\xff",
    b"\xe2\x98",
    b"error",
    b":",
]


@st.composite
def broken(draw: st.DrawFn, body: bytes) -> bytes:
    """The body with a few places cut out, doubled or overwritten."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        end = min(len(body), at + draw(st.integers(0, 30)))
        piece = draw(st.sampled_from([*TOKENS, body[at:end], b""]) | st.binary(max_size=6))
        body = body[:at] + piece + body[draw(st.sampled_from([at, end])) :]
    return body


def read(wire: str, chunks: list[bytes], dialect: str | None = None) -> tuple[Any, list[Any]]:
    reader = Reader(dialect, wire=wire, tools=[{"name": "f"}, {"name": "g"}])
    deltas = [delta for chunk in chunks for delta in reader.feed(chunk)] + reader.finish()
    return reader.reply, deltas


@pytest.mark.parametrize("wire", formats.names())
@pytest.mark.parametrize("dialect", [None, "auto"])
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_broken_bytes(wire: str, dialect: str | None, data: st.DataObject) -> None:
    body = data.draw(broken(BODIES[wire]))
    whole, deltas = read(wire, [body], dialect)
    assert [type(d) for d in deltas].count(Finish) == 1
    assert isinstance(deltas[-1], Finish)
    assert whole.finish in ("stop", "tool_calls") or not whole.calls
    size = data.draw(st.integers(1, 40))
    assert read(wire, [body[n : n + size] for n in range(0, len(body), size)], dialect)[0] == whole


@pytest.mark.parametrize("wire", formats.names())
def test_no_prefix_of_a_stream_gives_a_call_before_its_end_is_said(wire: str) -> None:
    body = BODIES[wire]
    sound = body.index(ENDS[wire]) + len(ENDS[wire])
    for n in range(len(body) + 1):
        reply, deltas = read(wire, [body[:n]])
        if n < sound:
            assert reply.calls == []
            assert reply.finish == "interrupted"
            assert not any(isinstance(d, ToolCall) for d in deltas)
    assert len(read(wire, [body])[0].calls) == (2 if wire == "openai" else 1)


KEYS = ["choices", "delta", "message", "tool_calls", "function", "name", "arguments", "index", "id"]
KEYS += ["content", "error", "usage", "done", "thinking"]
LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
SHAPES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
)


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None)
@given(value=SHAPES)
def test_records_of_any_shape(wire: str, value: Any) -> None:
    record = json.dumps(value)
    body = f"data: {record}\n\n" if wire == "openai" else f"{record}\n"
    reply, deltas = read(wire, [body.encode()])
    assert isinstance(deltas[-1], Finish)
    assert reply.finish in ("stop", "tool_calls") or not reply.calls


def test_a_stream_of_nothing_but_pings_holds_nothing() -> None:
    reader = Reader(wire="openai")
    for _ in range(10_000):
        assert reader.feed(b": ping\n\n") == []
    assert reader.finish()[-1].reason == "interrupted"  # type: ignore[union-attr]


@pytest.mark.parametrize("depth", [50, 5_000, 200_000])
def test_deep_nesting_is_no_crash(depth: int) -> None:
    reply, _ = read("openai", [b'data: {"choices": ' + b"[" * depth + b"]" * depth + b"}\n\n"])
    assert reply.finish in ("error", "interrupted")
    nested = (
        '{"message":{"tool_calls":[{"function":{"name":"f","arguments":{"a":' + "[" * depth + "]" * depth + "}}}]},"
    )
    reply, _ = read("ollama", [nested.encode() + b'"done":true}\n'])
    assert reply.finish in ("tool_calls", "error")
