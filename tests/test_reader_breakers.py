"""Texts that once broke the reader, each cut down to what broke it, and texts that must not become slow.

conformance/reader_breakers.jsonl holds dialect, text and prompt tail; no outcome is written down there, for these are
laws: whatever comes out is the same for every cut, and every index has one end.
"""

from __future__ import annotations

from typing import Any

import pytest

from callgate import dialects
from callgate.dialects import Dialect
from callgate.types import BadCall, ToolCall, ToolSpec
from dialect_reading import bad_of, calls_of, check_streams, cuts, read, read_with_problems, rows, text_of

RING = ToolSpec(
    "ring", parameters={"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}}
)
BREAKERS = rows("reader_breakers.jsonl")


@pytest.mark.parametrize("row", BREAKERS, ids=[f"{row['dialect']}-{n}" for n, row in enumerate(BREAKERS)])
def test_what_broke_the_reader_is_read_the_same_for_every_cut(row: dict[str, Any]) -> None:
    """Whole, by characters, at every single cut, at random cuts; problems too."""
    dialect, raw, tail = row["dialect"], row["raw"], row.get("prompt_tail", "")
    whole = read_with_problems(dialect, [raw], [RING], tail)
    check_streams(whole[0])
    for chunks in cuts(raw):
        assert read_with_problems(dialect, chunks, [RING], tail) == whole


@pytest.mark.parametrize(
    ("dialect", "raw", "name"),
    [
        ("hermes", '<tool_call>{"name":"ring","":}</tool_call>x', "ring"),
        ("hermes", '<tool_call>{"name":"ring","arguments":{"a":}}</tool_call>x', "ring"),
        ("hermes", '<tool_call>{"name":"","arguments":{"a":"b"}}</tool_call>x', None),
        ("hermes", '<tool_call>{"name":5,"arguments":{}}</tool_call>x', None),
    ],
)
def test_what_cannot_be_read_is_never_made_into_a_call(dialect: str, raw: str, name: str | None) -> None:
    """One malformed call, never `{}` in place of what could not be read (A3)."""
    deltas = read(dialect, [raw], [RING])
    assert [(bad.name, bad.reason) for bad in bad_of(deltas)] == [(name, "malformed")]
    assert calls_of(deltas) == []
    assert text_of(deltas) == "x"


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        ("hermes", '<tool_call>\n{"name": "ring", "arguments": "{\\'),
        ("bracket_tool", '[TOOL: ring(a="say \\'),
        ("olmo3", "<function_calls>ring(a='b\\"),
        ("glm_xml", "<tool_call>ring<"),
        ("mistral_args", "[TOOL_CALLS]ring["),
        ("kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.ring:0<"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>ring<"),
        ("iquest", "<iquest_tool_call>ring<"),
        ("beam", "<|start|>assistant to=ring<|channel|>analysis <|constrain|>xml<|message|>"),
    ],
)
def test_a_call_that_is_cut_off_shows_no_markup_and_is_none(dialect: str, raw: str) -> None:
    """Cut in an escape, in a separator, right after a header: incomplete, and nothing on the screen (T)."""
    deltas = read(dialect, [raw], [RING])
    assert [bad.reason for bad in bad_of(deltas)] == ["truncated"]
    assert text_of(deltas) == ""
    assert calls_of(deltas) == []


@pytest.mark.parametrize(
    ("dialect", "first", "second", "calls"),
    [
        ("bare_json", '{"tool": "ring", "args": {"a": "b"}', '{"tool": "ring", "args": {"a": "c"}}', ["b", "c"]),
        (
            "bare_json",
            '```json\n{"tool": "ring", "args": {"a": "b"}\n```',
            '{"tool": "ring", "args": {"a": "c"}}',
            ["b", "c"],
        ),
        ("mistral_args", '[TOOL_CALLS]ring[ARGS]{"a": "b", "n": 4', '[TOOL_CALLS]ring[ARGS]{"a": "c"}', ["c"]),
        ("hermes", '<tool_call>{"name": "ring", "arguments": {"a": }}</tool_call>', "", []),
    ],
)
def test_one_bad_call_never_costs_the_next_one(dialect: str, first: str, second: str, calls: list[str]) -> None:
    """A brace is missing, or an argument: what follows is read as if nothing had happened (R5)."""
    raw = f"{first}\n{second}"
    deltas = read(dialect, [raw], [RING])
    assert [call.arguments["a"] for call in calls_of(deltas)] == calls
    assert all(read(dialect, chunks, [RING]) == deltas for chunks in cuts(raw))


@pytest.mark.parametrize("dialect", dialects.names())
def test_endless_repetition_of_a_marker_stays_cheap_and_never_raises(dialect: str) -> None:
    """Each character is looked at a bounded number of times: 20,000 characters of one marker, 4 at a time."""
    declared = dialects.get(dialect)
    openers = [opener for calls in declared.calls for opener in (*calls.section, *calls.open)]
    for unit in (*openers[:3], "{", "[", "<", "```json\n", '{"name": "ring", "arguments": {', "ring(a=["):
        text = (unit * (20_000 // len(unit) + 1))[:20_000]
        machine = dialects.reader(dialect, tools=[RING])
        for start in range(0, len(text), 4):
            machine.feed(text[start : start + 4])
        machine.finish()


def test_arguments_nested_too_deep_are_refused_by_name() -> None:
    """No RecursionError; the limit is named (R7)."""
    raw = '<tool_call>{"name": "ring", "arguments": {"a": ' + "[" * 5000 + "]" * 5000 + "}}</tool_call>after"
    deltas, problems = read_with_problems("hermes", [raw], [RING])
    assert [bad.reason for bad in bad_of(deltas)] == ["too_large"]
    assert text_of(deltas) == "after"
    assert problems


def test_tags_of_one_s_own_know_json_strings() -> None:
    """The end tag inside a string ends nothing, and several calls may follow one another."""
    own = Dialect.tagged("<<", ">>")
    deltas = read(own, list('a<<{"name": "ring", "args": {"a": ">>"}}>>b<<{"name": "ring", "args": {}}>>'), [RING])
    assert [call.arguments for call in calls_of(deltas)] == [{"a": ">>"}, {}]
    assert text_of(deltas) == "ab"
    assert all(isinstance(delta, ToolCall | BadCall) is False or delta.name == "ring" for delta in deltas)
