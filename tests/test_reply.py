"""Deltas to replies: text through a dialect, a provider's deltas and the text's calls in one numbering."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from callgate import Reader, Reply, read, tool
from callgate.errors import ConfigError
from callgate.reply import TurnReader, tool_specs
from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, TextDelta, ToolCall, ToolSpec

WEATHER = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
TEXT = f"<think>\nhm \n</think>Let me look.\n{CALL}"
WIRE = b'data: {"choices":[{"delta":{"content":"%s"},"finish_reason":"%s"}]}\n\ndata: [DONE]\n\n'


def wire(content: str, finish: str = "stop") -> bytes:
    return WIRE % (content.replace('"', '\\"').replace("\n", "\\n").encode(), finish.encode())


def test_text_without_a_dialect_is_untouched() -> None:
    reply = read(TEXT)
    assert reply == Reply(content=TEXT, finish="stop")


def test_text_with_a_dialect_is_read() -> None:
    reply = read(TEXT, dialect="hermes", tools=[WEATHER])
    assert (reply.content, reply.reasoning, reply.finish) == ("Let me look.", "hm", "tool_calls")
    assert reply.calls == [ToolCall("call_1", "get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
def test_chunks_do_not_matter(size: int) -> None:
    pieces = [TEXT[n : n + size] for n in range(0, len(TEXT), size)]
    assert read(pieces, dialect="hermes", tools=[WEATHER]) == read(TEXT, dialect="hermes", tools=[WEATHER])
    reader = Reader(dialect="hermes", tools=[WEATHER])
    deltas = [delta for piece in pieces for delta in reader.feed(piece)] + reader.finish()
    assert [type(d) for d in deltas].count(Finish) == 1
    assert isinstance(deltas[-1], Finish)
    assert reader.reply == read(TEXT, dialect="hermes", tools=[WEATHER])


def test_bytes_of_text_are_text() -> None:
    text = "Grüße 🚢"
    assert read([text.encode()[n : n + 1] for n in range(len(text.encode()))]).content == text  # type: ignore[misc]


def test_a_wire_takes_text_too() -> None:
    assert read(wire("hi").decode(), wire="openai").content == "hi"


def test_raw_text_is_interrupted_if_a_call_is_cut_off() -> None:
    reply = read(f'{CALL}\n<tool_call>{{"name": "get_weather", "arg', dialect="hermes", tools=[WEATHER])
    assert reply.finish == "interrupted"
    assert len(reply.calls) == len(reply.incomplete) == 1


def test_a_wire_and_a_dialect_together() -> None:
    reply = read(wire(TEXT), wire="openai", dialect="hermes", tools=[WEATHER])
    assert (reply.content, reply.reasoning, reply.finish, reply.raw_finish) == (
        "Let me look.",
        "hm",
        "tool_calls",
        "stop",
    )


@pytest.mark.parametrize("finish", ["length", "content_filter", "error"])
def test_a_call_in_the_text_of_an_unsound_stream_is_incomplete(finish: str) -> None:
    reply = read(wire(TEXT, finish), wire="openai", dialect="hermes", tools=[WEATHER])
    assert (reply.finish, reply.calls) == (finish, [])
    assert reply.incomplete == [BadCall(0, None, "get_weather", '{"city": "Paris"}', "unsound_end")]


def test_a_finished_reader_says_so() -> None:
    reader = Reader()
    reader.feed("a")
    assert len(reader.finish()) == 1
    assert reader.finish() == []
    with pytest.raises(ConfigError, match="finished"):
        reader.feed("b")


def test_an_unknown_wire_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match="ollama, openai"):
        Reader(wire="soap")


def test_a_record_over_the_limit_is_an_error_of_the_reply(monkeypatch: pytest.MonkeyPatch) -> None:
    from callgate.formats import openai
    from callgate.wire import SSE

    monkeypatch.setattr(openai, "framing", lambda: SSE(limit=100))
    reply = read([b"data: ", *[b"x" * 50] * 10, b"\n\n"], wire="openai")
    assert reply.finish == "error"
    assert "MAX_RECORD" in (reply.error or "")


# --- TurnReader -----------------------------------------------------------------------------------------------------


class Machine:
    """Says what a test tells it: a call for each `!`, everything else is text."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.count = 0

    def feed(self, text: str) -> list[Delta]:
        out: list[Delta] = []
        for char in text:
            if char == "!":
                out += [CallDelta(self.count, None, "t", "{}"), ToolCall("", "t", {}, self.count)]
                self.count += 1
            else:
                out.append(TextDelta(char))
        return out

    def finish(self) -> list[Delta]:
        self.problems.append("odd")
        return [BadCall(self.count, None, None, "cut", "truncated")]


def turn(deltas: Iterable[Delta], machine: Any = None, **options: Any) -> tuple[Reply, list[Delta]]:
    reader = TurnReader(machine, **options)
    out = reader.feed(deltas)
    return reader.reply, out


def test_calls_of_both_sources_share_one_numbering() -> None:
    native = [CallDelta(0, "a", "n", "{}"), TextDelta("!x"), CallDelta(1, "b", "n", "{}")]
    ends: list[Delta] = [ToolCall("a", "n", {}, 0), ToolCall("b", "n", {}, 1), Finish("tool_calls")]
    reply, out = turn([*native, *ends], Machine())
    assert [(c.index, c.id, c.name) for c in reply.calls] == [(0, "a", "n"), (1, "call_2", "t"), (2, "b", "n")]
    assert [d.index for d in out if isinstance(d, CallDelta)] == [0, 1, 2]
    settled = [d for d in out if isinstance(d, (ToolCall, BadCall))]
    assert [d.index for d in settled] == [0, 1, 2, 3]
    assert out[-1] == Finish("tool_calls", problems=("odd",))


def test_nothing_is_a_call_before_the_end_is_known() -> None:
    reader = TurnReader(Machine())
    out = reader.feed([TextDelta("a!"), ToolCall("x", "n", {}, 0)])
    assert not any(isinstance(d, (ToolCall, BadCall)) for d in out)
    assert reader.reply.finish == "interrupted"
    assert not reader.finished
    out = reader.feed([Finish("length")])
    assert [d.reason for d in out if isinstance(d, BadCall)] == ["unsound_end", "unsound_end", "truncated"]


def test_after_the_finish_nothing_counts() -> None:
    reply, out = turn([TextDelta("a"), Finish("stop"), TextDelta("b"), Finish("error")])
    assert (reply.content, reply.finish, len(out)) == ("a", "stop", 2)


def test_missing_and_repeated_ids_are_made_distinct() -> None:
    calls: list[Delta] = [ToolCall(i, "n", {}, k) for k, i in enumerate(["", "x", "x", "call_1", ""])]
    reply, _ = turn([*calls, Finish("stop")])
    ids = [call.id for call in reply.calls]
    assert len(set(ids)) == 5
    assert (ids[1], ids[3]) == ("x", "call_1")
    assert any("two calls had the id 'x'" in problem for problem in reply.problems)
    reply, _ = turn([ToolCall("", "n", {}, 0), Finish("stop")], id_prefix="call_7_")
    assert reply.calls[0].id == "call_7_1"


def test_a_call_in_the_text_of_a_native_stream_is_rescued_and_said() -> None:
    reply, _ = turn([TextDelta("!"), Finish("stop")], Machine(), rescue=True)
    assert [call.name for call in reply.calls] == ["t"]
    assert any("came as text" in problem for problem in reply.problems)


def test_reasoning_of_a_wire_is_kept_as_it_is_and_that_of_a_text_is_stripped() -> None:
    thought: list[Delta] = [ReasoningDelta(" a "), Finish("stop")]
    assert turn(thought)[0].reasoning == " a "
    assert read("<think> a </think>x", dialect="hermes").reasoning == "a"


@pytest.mark.parametrize(
    ("given", "calls", "finish"),
    [("tool_calls", [], "stop"), ("stop", [ToolCall("a", "n", {})], "tool_calls"), ("length", [], "length")],
)
def test_the_finish_is_the_truth(given: Any, calls: list[Delta], finish: str) -> None:
    assert turn([*calls, Finish(given)])[0].finish == finish


# --- tools ----------------------------------------------------------------------------------------------------------


def test_tools_of_every_kind() -> None:
    def plain(city: str) -> str:
        "Says hello."
        return city

    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    made = tool(effect="read")(plain)
    specs = tool_specs(
        [
            plain,
            made,
            WEATHER,
            {"type": "function", "function": {"name": "f", "description": "d", "parameters": schema}},
            {"name": "mcp", "inputSchema": schema},
            {"name": "anthropic", "input_schema": schema},
            {"name": "bare"},
            ToolSpec("spec"),
        ]
    )
    assert [spec.name for spec in specs] == [
        "plain",
        "plain",
        "get_weather",
        "f",
        "mcp",
        "anthropic",
        "bare",
        "spec",
    ]
    assert specs[0].description == "Says hello."
    assert [spec.parameters for spec in specs[3:6]] == [schema] * 3
    assert specs[1].effect == "read"


def test_none_is_no_tools_and_no_prompt() -> None:
    """As in the clients, where a value that was left out is None."""
    assert read("a <think>b</think>", "hermes", tools=None, prompt_tail=None) == read("a <think>b</think>", "hermes")
    assert read(b"", wire="openai", tools=None) == read(b"", wire="openai")


def test_one_tool_is_a_list_of_one() -> None:
    def plain(city: str) -> str:
        return city

    for one in (WEATHER, {"type": "function", "function": WEATHER}, plain, tool(plain), ToolSpec("plain")):
        assert tool_specs(one) == tool_specs([one])


@pytest.mark.parametrize("bad", ["weather", b"x", 7])
def test_what_is_no_list_of_tools_is_refused_in_words(bad: Any) -> None:
    with pytest.raises(ConfigError, match="is no tool"):
        tool_specs(bad)


@pytest.mark.parametrize("chunk", [None, 7, ["a"]])
@pytest.mark.parametrize("wire", [None, "openai", "ollama"])
def test_what_is_no_text_is_refused_in_words(chunk: Any, wire: str | None) -> None:
    """And without harm to the reader."""
    reader = Reader(wire=wire)
    with pytest.raises(ConfigError, match="str or bytes"):
        reader.feed(chunk)
    reader.feed(bytearray(b"x"))
    reader.finish()
    assert reader.reply.content == ("x" if wire is None else "")


@pytest.mark.parametrize("bad", [{}, {"name": ""}, {"function": 1}, {"name": "x", "parameters": []}, 7])
def test_what_is_no_tool_is_refused_in_words(bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"tools|parameters"):
        tool_specs([bad])


@pytest.mark.parametrize("field", ["content", "reasoning"])
@pytest.mark.parametrize("dialect", [None, "hermes"])
def test_a_character_cut_into_halves_by_the_server_is_put_together(field: str, dialect: str | None) -> None:
    halves = [{field: "a\ud83d"}, {field: "\ude00b"}, {field: "\ude00"}, {field: "c\ud83d"}]
    records = [*({"choices": [{"index": 0, "delta": d}]} for d in halves), {"choices": [{"finish_reason": "stop"}]}]
    reply = read("".join(f"data: {json.dumps(r)}\n\n" for r in records).encode(), dialect, wire="openai")
    assert getattr(reply, field) == "a😀b\ufffdc\ufffd"
