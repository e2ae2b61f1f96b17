"""What a caller wants of a message: no calls, reasoning forced on or off, an answer in any case."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Reader, read
from callgate.dialects import get, names
from callgate.errors import ConfigError
from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, TextDelta, ToolCall

TOOL = {"name": "look", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "look", "arguments": {"q": "x"}}</tool_call>'
WIRE = [
    {"choices": [{"delta": {"reasoning_content": "hm"}}]},
    {
        "choices": [
            {"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "look", "arguments": "{}"}}]}}
        ]
    },
    {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]},
]


def wire(*records: Any) -> bytes:
    return (
        "".join(f"data: {json.dumps(record)}\n\n" for record in (*records, "end")).replace('"end"', "[DONE]").encode()
    )


def streamed(chunks: list[str], **options: Any) -> tuple[list[Delta], Reader]:
    reader = Reader("hermes", tools=[TOOL], **options)
    return [delta for chunk in chunks for delta in reader.feed(chunk)] + reader.finish(), reader


def test_no_call_comes_out_where_none_was_allowed() -> None:
    deltas, reader = streamed([f"Let me look.\n{CALL}"], tool_choice="none")
    assert not any(isinstance(delta, (CallDelta, ToolCall, BadCall)) for delta in deltas)
    assert deltas[-1] == Finish("stop", problems=('tool_choice is "none": a call of look was left out',))
    assert (reader.reply.content, reader.reply.calls) == ("Let me look.", [])


def test_a_mention_is_markup_too_where_no_call_was_allowed() -> None:
    reply = read(f"A call is `{CALL}`, so.", "hermes", tools=[TOOL], tool_choice="none")
    assert "<tool_call>" not in reply.content
    assert (reply.calls, reply.source) == ([], None)


def test_calls_of_a_wire_are_left_out_too() -> None:
    reply = read(wire(*WIRE), wire="openai", tool_choice="none", answer_from_reasoning=True)
    assert (reply.content, reply.reasoning, reply.calls, reply.finish) == ("hm", "", [], "stop")


def test_a_call_that_may_run_keeps_the_reasoning_apart() -> None:
    reply = read(wire(*WIRE), wire="openai", answer_from_reasoning=True)
    assert (reply.content, reply.reasoning, len(reply.calls)) == ("", "hm", 1)


def test_a_message_of_reasoning_alone_is_the_answer_where_that_is_wanted() -> None:
    deltas, reader = streamed(["<think>It is", " 4.</think>\n"], answer_from_reasoning=True)
    assert deltas == [
        ReasoningDelta("It is"),
        ReasoningDelta(" 4."),
        TextDelta("It is 4."),
        Finish("stop", problems=("the message has nothing but reasoning: it is the answer",)),
    ]
    assert (reader.reply.content, reader.reply.reasoning) == ("It is 4.", "")
    assert read("<think>It is 4.</think>\nFour.", "hermes", answer_from_reasoning=True).reasoning == "It is 4."


def test_reasoning_that_was_switched_off_is_text() -> None:
    reply = read("<think>It is 4.</think>\nFour.", "hermes", reasoning=False)
    assert (reply.content, reply.reasoning) == ("It is 4.\n\nFour.", "")


def closes() -> list[tuple[str, str]]:
    """Each dialect that has reasoning, with what a model writes to end it."""
    found = [("auto", "</think>")]
    for name in names():
        dialect = get(name)
        ends = [region.close[0] for region in dialect.regions if region.kind != "drop" and region.close]
        if dialect.channels is not None and dialect.channels.end:
            found.append((name, "<|end|><|start|>assistant<|channel|>final<|message|>"))
        elif ends:
            found.append((name, ends[0]))
    return found


@pytest.mark.parametrize(("dialect", "close"), closes())
def test_a_text_begins_in_reasoning_where_that_is_forced(dialect: str, close: str) -> None:
    reply = read(f"It is 4.{close}Four.", dialect, reasoning=True)
    assert (reply.reasoning, reply.content) == ("It is 4.", "Four.")
    assert read("It is 4", dialect, reasoning=True).content == ""


@pytest.mark.parametrize("dialect", [None, "jamba", "functionary_v32"])
def test_reasoning_cannot_be_forced_where_there_is_none(dialect: str | None) -> None:
    with pytest.raises(ConfigError, match="reasoning"):
        Reader(dialect, reasoning=True)


def test_only_auto_and_none_are_choices_of_a_reader() -> None:
    with pytest.raises(ConfigError, match="required"):
        Reader("hermes", tool_choice="required")  # type: ignore[arg-type]


PARTS = st.lists(st.sampled_from(["text", "thought", "call"]), max_size=6)
OPTIONS = st.fixed_dictionaries(
    {
        "tool_choice": st.sampled_from(["auto", "none"]),
        "reasoning": st.sampled_from([None, False]),
        "answer_from_reasoning": st.booleans(),
    }
)


@settings(deadline=None)
@given(PARTS, OPTIONS, st.lists(st.integers(0, 400), max_size=6))
def test_all_that_is_no_call_comes_out_once(parts: list[str], options: dict[str, Any], cuts: list[int]) -> None:
    written = {
        "text": "word{n} and more\n",
        "thought": "<think>word{n} and more</think>\n",
        "call": f"\n{CALL}\n",
    }
    text = "".join(written[part].replace("{n}", str(n)) for n, part in enumerate(parts))
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    deltas, reader = streamed([text[a:b] for a, b in itertools.pairwise(places)], **options)
    reply = reader.reply
    assert reply == read(text, "hermes", tools=[TOOL], **options)
    shown = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert reply.content == shown
    for n, part in enumerate(parts):
        assert f"{reply.content} {reply.reasoning}".count(f"word{n} and more") == (part != "call")
    calls = sum(isinstance(delta, (ToolCall, BadCall)) for delta in deltas)
    assert calls == (parts.count("call") if options["tool_choice"] == "auto" else 0)
    assert "<tool_call>" not in reply.content
