"""The tests have teeth: four deliberate bugs in the reader are each caught by the given cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from callgate.dialects import _marks, _params, _reading
from callgate.jsonstream import JsonScanner
from callgate.types import Delta
from dialect_reading import bad_of, calls_of, check_streams, cuts, read, reasoning_of, rows, spec_of, text_of

CASES = [row for row in rows("dialects.jsonl") if row["dialect"] in ("hermes", "qwen_xml", "bare_json", "glm_xml")]


def failures() -> int:
    """How many of some cases go wrong."""
    wrong = 0
    for row in CASES:
        tools, tail, expect = [spec_of(tool) for tool in row["tools"]], row.get("prompt_tail", ""), row["expect"]
        try:
            for chunks in ([row["raw"]], *cuts(row["raw"], every=False)):
                deltas = read(row["dialect"], chunks, tools, tail)
                check_streams(deltas)
                assert text_of(deltas) == expect["content"]
                assert reasoning_of(deltas) == expect["reasoning"]
                assert [(c.name, c.arguments) for c in calls_of(deltas)] == [
                    (c["name"], c["arguments"]) for c in expect["calls"]
                ]
                assert [bad.name for bad in bad_of(deltas)] == [bad["name"] for bad in expect.get("incomplete", [])]
        except Exception:
            wrong += 1
    return wrong


def forget_partial_markers(patch: pytest.MonkeyPatch) -> None:
    """A marker that two chunks share is no marker."""
    at = _marks.Marks.at

    def mutant(self: _marks.Marks, text: str, pos: int, over: bool = False) -> tuple[int, int]:
        which, end = at(self, text, pos, over)
        return (_marks.ABSENT if which == _marks.PARTIAL and pos < len(text) else which), end

    patch.setattr(_marks.Marks, "at", mutant)


def forget_a_split_escape(patch: pytest.MonkeyPatch) -> None:
    """A backslash at the end of a chunk escapes nothing."""
    feed = JsonScanner.feed

    def mutant(self: JsonScanner, text: str, start: int = 0) -> int | None:
        self.escaped = False
        return feed(self, text, start)

    patch.setattr(JsonScanner, "feed", mutant)


def say_white_space_at_once(patch: pytest.MonkeyPatch) -> None:
    """White space does not wait for what follows."""

    def mutant(self: _reading.TextSink, out: list[Delta], text: str) -> None:
        out.append(self.make(text))
        self.seen, self.after = True, False

    patch.setattr(_reading.TextSink, "write", mutant)


def believe_every_closer(patch: pytest.MonkeyPatch) -> None:
    """A closing tag ends a value whatever follows it."""

    def mutant(r: Any, body: Any, marker: str) -> Any:
        return None
        yield

    patch.setattr(_params, "_after_closer", mutant)


def test_the_reader_as_it_is_passes() -> None:
    assert failures() == 0


@pytest.mark.parametrize(
    "bug", [forget_partial_markers, forget_a_split_escape, say_white_space_at_once, believe_every_closer]
)
def test_a_deliberate_bug_is_caught(bug: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        bug(patch)
        assert failures() > 0
