"""The reply that is one object: read while it is being written, whatever the cuts."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.protocols._object import ObjectReader
from callgate.protocols._pieces import MAX_HELD
from callgate.protocols._rows import IGNORED
from callgate.types import BadCall, CallDelta, TextDelta, ToolCall


def merge(deltas):
    out = []
    for d in deltas:
        last = out[-1] if out else None
        if isinstance(d, TextDelta) and isinstance(last, TextDelta):
            out[-1] = TextDelta(last.text + d.text)
        elif isinstance(d, CallDelta) and isinstance(last, CallDelta) and d.index == last.index:
            out[-1] = CallDelta(d.index, last.id, last.name or d.name, last.arguments + d.arguments)
        else:
            out.append(d)
    return out


def read(chunks):
    reader = ObjectReader()
    deltas = [d for chunk in chunks for d in reader.feed(chunk)] + reader.finish()
    return merge(deltas), reader.problems


def call(index, name, arguments, flags=()):
    text = json.dumps(arguments, ensure_ascii=False)
    return [CallDelta(index, None, name, text), ToolCall("", name, arguments, index, frozenset(flags))]


def on_one_line(*calls):
    """Calls wait for the rest of their line (A7): first what grows of each, then each whole."""
    return [each[n] for n in (0, 1) for each in calls]


CASES = {
    "a call": ('{"tool": "f", "args": {"a": 1}}', call(0, "f", {"a": 1})),
    "an answer": ('{"answer": "Hi \\"you\\"\\n\\u00fc \\ud83d\\ude00!"}', [TextDelta('Hi "you"\nü 😀!')]),
    "a half pair": ('{"answer": "\\ud83dx \\ude00"}', [TextDelta("\ufffdx \ufffd")]),
    "wrapped": ('{"reply": {"tool": "f", "args": {}}}', call(0, "f", {})),
    "a wrapped answer": ('{"reply": {"answer": "ok"}}', [TextDelta("ok")]),
    "several": (
        '{"calls": [{"tool": "f", "args": {"a": [1, {"b": "}"}]}}, {"tool": "g", "args": {}}]}',
        on_one_line(call(0, "f", {"a": [1, {"b": "}"}]}), call(1, "g", {})),
    ),
    "text behind it": (
        '{"tool": "f", "args": {}} is the form.',
        [*call(0, "f", {}, {"mentioned"}), TextDelta("is the form.")],
    ),
    "text on the next line": ('{"tool": "f", "args": {}}\nWait.', [*call(0, "f", {}), TextDelta("Wait.")]),
    "one after the other": (
        '{"tool": "f", "args": {}}\n{"tool": "g", "args": {}}',
        call(0, "f", {}) + call(1, "g", {}),
    ),
    "arguments first": ('{"args": {"a": 1}, "tool": "f"}', call(0, "f", {"a": 1})),
    "no arguments": ('{"tool": "f"}', call(0, "f", {})),
    "null arguments": ('{"tool": "f", "args": null}', call(0, "f", {})),
    "arguments as a string": ('{"tool": "f", "args": "{\\"a\\": 1}"}', call(0, "f", {"a": 1})),
    "white space": (' \n{ "tool" : "f" , "args" : { } } \n', [CallDelta(0, None, "f", "{ }"), call(0, "f", {})[1]]),
    "an object as answer": ('{"answer": {"a": [1]}}', [TextDelta('{"a": [1]}')]),
    "a number as answer": ('{"answer": 12}', [TextDelta("12")]),
    "a foreign key": ('{"tool": "f", "why": "x", "args": {}}', call(0, "f", {}, ["loose"])),
    "missing closer": ('{"tool": "f", "args": {"a": 1}', call(0, "f", {"a": 1})),
    "cut off in arguments": (
        '{"tool": "f", "args": {"a": 1',
        [CallDelta(0, None, "f", '{"a": 1'), BadCall(0, None, "f", '{"a": 1', "truncated")],
    ),
    "cut off in the name": ('{"tool": "f', [BadCall(0, None, None, "", "truncated")]),
    "cut off in the first key": ('{"to', [BadCall(0, None, None, '{"to', "truncated")]),
    "cut off in an answer": ('{"answer": "half an ans', [TextDelta("half an ans")]),
    "arguments that are a list": (
        '{"tool": "f", "args": [1]}',
        [CallDelta(0, None, "f", ""), BadCall(0, None, "f", "[1]", "malformed")],
    ),
    "arguments that are no JSON": (
        '{"tool": "f", "args": {"a": NaN}}',
        [CallDelta(0, None, "f", '{"a": NaN}'), BadCall(0, None, "f", '{"a": NaN}', "malformed")],
    ),
    "crossed brackets": (
        '{"tool": "f", "args": {"a": [}}',
        [CallDelta(0, None, "f", '{"a": ['), BadCall(0, None, "f", '{"a": [', "malformed")],
    ),
    "arguments twice": (
        '{"tool": "f", "args": {"a": 1}, "args": {"a": 2}}',
        [CallDelta(0, None, "f", '{"a": 1}'), BadCall(0, None, "f", '{"a": 1}', "malformed")],
    ),
    "no tool": ('{"args": {"a": 1}}', [BadCall(0, None, None, '{"a": 1}', "malformed")]),
    "plain text": ("Hello {you}.", [TextDelta("Hello {you}.")]),
    "a foreign object": ('{"city": "Paris"} ok', [TextDelta('{"city": "Paris"} ok')]),
    "an empty object": ("{}", [TextDelta("{}")]),
    "text after a call": ('{"tool": "f", "args": {}}\n\nDone.', [*call(0, "f", {}), TextDelta("Done.")]),
    "nothing": ("", []),
    "blanks": ("  \n", [TextDelta("  \n")]),
}


@pytest.mark.parametrize("name", CASES)
def test_whole_by_characters_and_at_every_cut(name):
    text, expected = CASES[name]
    deltas, problems = read([text])
    assert deltas == expected
    assert read(list(text)) == (deltas, problems)
    for i in range(len(text)):
        assert read([text[:i], text[i:]]) == (deltas, problems), i


@settings(max_examples=200, deadline=None)
@given(text=st.text(alphabet='{}[]":,\\ tolarguscn1u"dea0\n', max_size=60), seed=st.integers(0, 1000))
def test_any_text_gives_the_same_however_it_is_cut(text, seed):
    text = random.Random(seed).choice(["", '{"tool": "f", ', '{"answer": "', '{"args": ', '{"calls": [']) + text
    assert read([text]) == read(list(text))


def test_the_answer_streams_before_it_is_complete():
    reader = ObjectReader()
    assert reader.feed('{"answer": "The sea') == [TextDelta("The sea")]
    assert reader.feed(" is blue") == [TextDelta(" is blue")]
    assert reader.feed(" and\\") == [TextDelta(" and")]
    assert reader.feed('n wide"') == [TextDelta("\n wide")]


def test_the_arguments_stream_before_they_are_complete():
    reader = ObjectReader()
    deltas = reader.feed('{"tool": "f", "args": {"text": "a long')
    assert merge(deltas) == [CallDelta(0, None, "f", '{"text": "a long')]


def test_free_text_is_named_as_ignored_structure():
    assert read(["Sure! I can help."])[1][0].startswith(IGNORED)
    assert read(['{"answer": "yes"}'])[1] == []


def test_held_arguments_have_a_limit():
    text = '{"args": {"a": "' + "x" * (MAX_HELD + 10) + '"}, "tool": "f"}'
    deltas, _ = read([text])
    assert isinstance(deltas[-1], BadCall)
    assert deltas[-1].reason == "too_large"


def test_megabytes_of_arguments_cost_the_same_a_character():
    chunks = ['{"tool": "f", "args": {"a": "', *["x" * 16] * 65536, '"}}']
    deltas, _ = read(chunks)
    assert len(deltas[-1].arguments["a"]) == 1 << 20
