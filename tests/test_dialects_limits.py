"""What the reader may cost and hold: characters visited, held text, depth, number and size of calls (R3, R6, R7)."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from callgate import dialects
from callgate.dialects import _reader, _reading, _sink
from callgate.types import Delta, ToolSpec
from dialect_reading import bad_of, calls_of, read, read_with_problems, reasoning_of, text_of
from dialect_render import TOOLS, WRITERS

WORDS = "lorem ipsum dolor sit amet, "


def pieces(text: str, size: int) -> list[str]:
    return [text[i : i + size] for i in range(0, len(text), size)]


def visited(monkeypatch: pytest.MonkeyPatch, dialect: str, text: str, size: int) -> int:
    """Characters that may be looked at: the unread buffer at each resumption, and all held text read back."""
    seen = 0
    feed, refill, held = _reader.Reader.feed, _reading.Reading.refill, _reading.Reading.held

    def counted_feed(self: _reader.Reader, more: str) -> list[Delta]:
        nonlocal seen
        seen += len(self.buf) - self.pos + len(more)  # the quick paths look at the rest and at what comes
        return feed(self, more)

    def counted_refill(self: _reading.Reading, more: str) -> None:
        nonlocal seen
        refill(self, more)
        seen += len(self.buf) - len(more)

    def counted_held(self: _reading.Reading, hold: _reading.LookAhead) -> str:
        nonlocal seen
        text = held(self, hold)
        seen += len(text)
        return text

    with monkeypatch.context() as patch:
        patch.setattr(_reader.Reader, "feed", counted_feed)
        patch.setattr(_reading.Reading, "refill", counted_refill)
        patch.setattr(_reading.Reading, "held", counted_held)
        read(dialect, pieces(text, size), TOOLS)
    return seen


LONG: dict[str, Callable[[int], tuple[str, str]]] = {
    "one long string": lambda n: ("hermes", WRITERS["hermes"]([("save", {"text": WORDS * n})])),
    "escapes": lambda n: ("hermes", WRITERS["hermes"]([("save", {"text": '"\\\n' * 9 * n})])),
    "tagged": lambda n: ("qwen_xml", WRITERS["qwen_xml"]([("save", {"text": "a <b> </p\n" * 3 * n})])),
    "marked strings": lambda n: ("gemma4", WRITERS["gemma4"]([("save", {"text": "a <| b \n" * 3 * n})])),
    "python": lambda n: ("pythonic", WRITERS["pythonic"]([("save", {"text": "it's \\ \n" * 3 * n})])),
    "many calls": lambda n: ("hermes", WRITERS["hermes"]([("save", {"text": "x"})] * (n // 4))),
    "false starts": lambda n: ("hermes", "<tool_call> no <tool_call>{ " * n),
    "beginnings": lambda n: ("hermes", "<tool_cal <tool_<thin " * n),
    "foreign objects": lambda n: ("bare_json", '{"a": [{"b": 1}]}\n{"tool": 1}\n' * n),
    "braces at line starts": lambda n: ("bare_json", "{\n[\n" * 6 * n),
    "open reasoning": lambda n: ("hermes", "<think>" + "<tool_call> " * 2 * n),
    "calls in open reasoning": lambda n: ("hermes", "<think>" + '<tool_call>{"name": "a"}</tool_call> ' * n),
    "closers in values": lambda n: (
        "qwen_xml",
        WRITERS["qwen_xml"]([("save", {"text": "</parameter> </function> " * n})]),
    ),
    "unclosed strings": lambda n: ("hermes", '<tool_call>{"name": "a", "arguments": {"b": "' * n),
    "white space": lambda n: ("hermes", "x" + " " * 28 * n + "y"),
}


@pytest.mark.parametrize("kind", LONG)
@pytest.mark.parametrize("size", [1, 4, 1000])
def test_cost_grows_with_the_text_and_not_faster(kind: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the text, twice the characters visited; and a bounded number of visits for each."""
    (dialect, small), (_, large) = LONG[kind](40), LONG[kind](80)
    one, two = (visited(monkeypatch, dialect, text, size) for text in (small, large))
    assert two <= 2.3 * max(one, 400)
    assert two <= 12 * len(large)


def test_held_text_is_released_beyond_its_limit() -> None:
    """Arguments before their name are held no further than HELD; then they are text, and said to be."""
    text = '<tool_call>{"arguments": {"text": "' + "x" * (_reading.HELD + 5000) + '"}, "name": "save"}</tool_call> end'
    machine = dialects.reader("bare_json", tools=TOOLS)
    guarded = '{"args": {"text": "' + "x" * (_reading.HELD + 5000) + '"}, "tool": "save"}'
    shown, fed = "", 0
    for piece in pieces(guarded, 997):
        shown += text_of(machine.feed(piece))
        fed += len(piece)
        assert fed - len(shown) <= _reading.HELD + 2 * 997
    shown += text_of(machine.finish())
    assert shown == guarded
    assert any("held text" in problem for problem in machine.problems)
    assert read("bare_json", [guarded], TOOLS) == read("bare_json", pieces(guarded, 4096), TOOLS)
    assert [call.name for call in calls_of(read("hermes", [text], TOOLS))] == ["save"]


def test_calls_in_open_reasoning_are_held_no_further_than_the_limit() -> None:
    """Policy K holds a call until the reasoning ends, within the limit; beyond it, it is reasoning."""
    call = '<tool_call>{"name": "save", "arguments": {}}</tool_call>'
    text = f"<think>a {call}" + " words" * (_reading.HELD // 6 + 100)
    whole, problems = read_with_problems("hermes", [text], TOOLS)
    assert calls_of(whole) == []
    assert reasoning_of(whole) == text.removeprefix("<think>")
    assert any("held text" in problem for problem in problems)
    assert read("hermes", pieces(text, 4096), TOOLS) == whole


def test_white_space_is_held_within_its_limit() -> None:
    machine = dialects.reader("hermes")
    shown = text_of(machine.feed("x"))
    for _ in range(100):
        shown += text_of(machine.feed(" " * 1000))
    assert len(shown) > 90_000
    assert shown + text_of(machine.feed("y")) + text_of(machine.finish()) == "x" + " " * 100_000 + "y"


def test_white_space_before_markup_is_dropped_up_to_its_limit_for_every_cut() -> None:
    call = '<tool_call>{"name": "save", "arguments": {}}</tool_call>'
    for more in (-1, 0, 1, _sink.SPACE):
        text = "x" + " " * (_sink.SPACE + more) + call
        whole = read("hermes", [text])
        assert read("hermes", list(text)) == whole
        assert read("hermes", pieces(text, 100)) == whole


def test_depth_has_a_limit() -> None:
    text = '<tool_call>{"name": "save", "arguments": {"a": ' + "[" * 5000 + "]" * 5000 + "}}</tool_call> after"
    whole = read("hermes", [text], TOOLS)
    assert [bad.reason for bad in bad_of(whole)] == ["too_large"]
    assert text_of(whole) == "after"
    assert read("hermes", pieces(text, 3), TOOLS) == whole


def test_the_number_of_calls_has_a_limit() -> None:
    text = '<tool_call>{"name": "save", "arguments": {}}</tool_call>' * (_reading.CALLS + 3)
    whole, problems = read_with_problems("hermes", [text], TOOLS)
    assert len(calls_of(whole)) == _reading.CALLS
    assert {bad.reason for bad in bad_of(whole)} == {"too_large"}
    assert any("calls in one message" in problem for problem in problems)


@pytest.mark.parametrize("dialect", ["hermes", "qwen_xml", "gemma4"])
def test_arguments_have_a_limit(dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reading, "ARGUMENTS", 1000)
    monkeypatch.setattr(_reader, "ARGUMENTS", 1000)
    text = WRITERS[dialect]([("save", {"text": WORDS * 60}), ("save", {"text": "x"})])
    whole = read(dialect, [text], TOOLS)
    for size in (len(text), 50, 1):
        assert read(dialect, pieces(text, size), TOOLS) == whole
        assert [bad.reason for bad in bad_of(whole)] == ["too_large"]
        assert [call.arguments for call in calls_of(whole)] == [{"text": "x"}]


def test_problems_are_bounded() -> None:
    text = "".join(f'<tool_call>{{"name": "n{i}", "arguments": [1]}}</tool_call>' for i in range(500))
    _, problems = read_with_problems("hermes", [text])
    assert 0 < len(problems) <= _reading.PROBLEMS


def test_a_megabyte_in_one_chunk_and_in_many_is_the_same() -> None:
    arguments = {"text": WORDS * 40_000}
    text = WRITERS["hermes"]([("save", arguments)])
    (call,) = calls_of(read("hermes", [text], TOOLS))
    assert call.arguments == arguments
    assert calls_of(read("hermes", pieces(text, 4096), TOOLS)) == [call]


def test_nothing_is_said_after_the_end() -> None:
    machine = dialects.reader("hermes", tools=[ToolSpec("save")])
    machine.feed('<tool_call>{"name": "save", "arguments": {}}')
    assert calls_of(machine.finish())
    assert machine.finish() == []
    assert machine.feed("more") == []


def test_integers_stay_exact_and_foreign_numbers_are_refused() -> None:
    digits = "12345678901234567890123"
    text = f'<tool_call>{{"name": "save", "arguments": {{"a": {digits}}}}}</tool_call>'
    assert calls_of(read("hermes", [text]))[0].arguments == {"a": int(digits)}
    for bad in ("NaN", "Infinity", "-Infinity", "9" * 5000, "01", "1."):
        text = f'<tool_call>{{"name": "save", "arguments": {{"a": {bad}}}}}</tool_call>'
        deltas = read("hermes", [text])
        assert [b.reason for b in bad_of(deltas)] == ["malformed"], bad
        assert json.dumps(bad_of(deltas)[0].text)
