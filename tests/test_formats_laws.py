"""The laws of formats/: what is dumped is read back, whole or in any pieces; and the vendors' own clients agree."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ollama import ChatResponse
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from callgate import Reply, formats, read
from callgate.formats import ollama, openai
from callgate.reply import Reader
from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, TextDelta, ToolCall

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30)
WORD = st.text("abcdefg_-.0123456789", min_size=1, max_size=12)
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(TEXT, VALUE, max_size=4)
USAGE = st.none() | st.fixed_dictionaries({"input": st.integers(0, 99), "output": st.integers(0, 99)})


WORDS = {
    "openai": {},
    "ollama": {"tool_calls": "stop"},
    "anthropic": {
        "stop": "end_turn",
        "tool_calls": "tool_use",
        "length": "max_tokens",
        "content_filter": "refusal",
    },
    "responses": {
        "stop": "completed",
        "tool_calls": "completed",
        "length": "max_output_tokens",
    },
}
"""Each API's own words for an end, where they are not ours. What a Dumper writes is the API's, whoever answered."""


@st.composite
def replies(draw: st.DrawFn, wire: str = "openai") -> Reply:
    """Whole messages as a sound server ends them, and cut ones."""
    finish = draw(st.sampled_from(["stop", "length", "content_filter", "error", "interrupted"]))
    names = draw(st.lists(WORD, max_size=3))
    ids = draw(st.lists(WORD, min_size=len(names), max_size=len(names), unique=True))
    given_ = [draw(ARGUMENTS) for _ in names]
    calls, incomplete = [], []
    if finish == "stop":
        calls = [ToolCall(i, n, a, k) for k, (i, n, a) in enumerate(zip(ids, names, given_, strict=True))]
        finish = "tool_calls" if calls else "stop"
    else:
        texts = [json.dumps(a, ensure_ascii=False) for a in given_]
        rows = enumerate(zip(ids, names, texts, strict=True))
        incomplete = [BadCall(k, i, n, t, "unsound_end") for k, (i, n, t) in rows]
    return Reply(
        content=draw(TEXT | st.just("")),
        reasoning=draw(TEXT | st.just("")),
        calls=calls,
        incomplete=incomplete,
        finish=cast("Any", finish),
        raw_finish=None if finish in ("error", "interrupted") else WORDS[wire].get(finish, finish),
        error="boom" if finish == "error" else None,
        usage=None if finish in ("error", "interrupted") else draw(USAGE),
    )


def sound(reply: Reply) -> bool:
    return reply.finish in ("stop", "tool_calls")


def deltas_of(reply: Reply, sizes: list[int]) -> list[Delta]:
    """The deltas of a reply, its texts cut into pieces of these sizes in turn."""

    def cut(text: str) -> list[str]:
        out, n = [], 0
        while text:
            size = sizes[n % len(sizes)]
            out.append(text[:size])
            text, n = text[size:], n + 1
        return out

    out: list[Delta] = [ReasoningDelta(piece) for piece in cut(reply.reasoning)]
    out += [TextDelta(piece) for piece in cut(reply.content)]
    for call in sorted([*reply.calls, *reply.incomplete], key=lambda c: c.index):
        text = call.text if isinstance(call, BadCall) else json.dumps(call.arguments, ensure_ascii=False)
        for n, piece in enumerate(cut(text)):
            out.append(CallDelta(call.index, call.id if n == 0 else None, call.name if n == 0 else None, piece))
    out += sorted([*reply.calls, *reply.incomplete], key=lambda c: c.index)
    return [*out, Finish(reply.finish, reply.usage, reply.raw_finish, reply.error)]


def dump(wire: str, deltas: list[Delta]) -> bytes:
    form = formats.get(wire)
    cut = any(isinstance(d, Finish) and d.reason in ("error", "interrupted") for d in deltas)
    return b"".join(map(form.frame, form.Dumper(model="m").feed(deltas))) + (b"" if cut else form.END)


def same(a: Reply, b: Reply) -> bool:
    keys = [k for k in Reply.__slots__ if k not in ("problems", "usage")]
    return counted(a) == counted(b) and all(getattr(a, key) == getattr(b, key) for key in keys)


def counted(reply: Reply) -> dict[str, int] | None:
    """The usage; zeros are what APIs that must give counts give where nothing was counted."""
    return dict(reply.usage) if reply.usage and any(reply.usage.values()) else None


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=4), data=st.data())
def test_what_is_dumped_is_read_back(wire: str, sizes: list[int], data: st.DataObject) -> None:
    reply = data.draw(replies(wire))
    body = dump(wire, deltas_of(reply, sizes))
    reader = Reader(wire=wire)
    step = data.draw(st.integers(1, max(1, len(body))))
    for n in range(0, len(body), step):
        reader.feed(body[n : n + step])
    reader.finish()
    assert same(reader.reply, reply)


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None)
@given(data=st.data())
def test_a_reply_is_dumped_and_read_back(wire: str, data: st.DataObject) -> None:
    reply = data.draw(replies(wire))
    assert same(read(formats.dump(wire, reply), wire=wire), reply)


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None)
@given(data=st.data())
def test_a_whole_dump_is_read_back(wire: str, data: st.DataObject) -> None:
    reply = data.draw(replies(wire).filter(lambda r: r.finish in ("stop", "tool_calls", "error", "interrupted")))
    body = json.dumps(formats.get(wire).dump_whole(reply, model="m")).encode()
    reader = Reader(wire=wire)
    reader.feed(body)
    reader.finish()
    if reply.finish in ("error", "interrupted"):
        assert (reader.reply.finish, reader.reply.error) == (reply.finish, reply.error)
    else:
        assert same(reader.reply, reply)


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None)
@given(data=st.data())
def test_a_cut_never_looks_complete(wire: str, data: st.DataObject) -> None:
    """What is written for an answer that broke off ends in an error, and nothing of a sound end follows."""
    reply = data.draw(replies(wire).filter(lambda r: r.finish in ("error", "interrupted")))
    records = formats.get(wire).Dumper().feed(deltas_of(reply, [7]))
    assert "error" in json.dumps(records[-1])
    assert b"[DONE]" not in formats.dump(wire, reply)
    for n in range(len(records)):
        body = b"".join(map(formats.get(wire).frame, records[:n]))
        assert read(body, wire=wire).finish == "interrupted", "nor does any beginning of it"


@settings(deadline=None)
@given(reply=replies().filter(sound), sizes=st.lists(st.integers(1, 40), min_size=1))
def test_the_openai_package_accumulates_the_same(reply: Reply, sizes: list[int]) -> None:
    state = ChatCompletionStreamState()
    for record in openai.Dumper(model="m").feed(deltas_of(reply, sizes)):
        state.handle_chunk(ChatCompletionChunk.model_validate(record))
    message = state.get_final_completion().choices[0].message
    assert (message.content or "") == reply.content
    found = [(c.id, c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or ()]  # type: ignore[union-attr]
    assert found == [(c.id, c.name, c.arguments) for c in reply.calls]


@settings(deadline=None)
@given(reply=replies().filter(sound), sizes=st.lists(st.integers(1, 40), min_size=1))
def test_the_ollama_package_accumulates_the_same(reply: Reply, sizes: list[int]) -> None:
    content, thinking, calls = "", "", []
    for record in ollama.Dumper(model="m").feed(deltas_of(reply, sizes)):
        message = ChatResponse(**record).message
        content += message.content or ""
        thinking += message.thinking or ""
        calls += [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
    assert (content, thinking) == (reply.content, reply.reasoning)
    assert calls == [(c.name, c.arguments) for c in reply.calls]


def test_every_format_is_found_by_its_file() -> None:
    assert formats.names() == ("anthropic", "ollama", "openai", "responses")
