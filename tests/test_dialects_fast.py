"""Every fast path of the dialects' reader beside the slow one, which takes one step after another and never waits.

The slow one wakes its grammar for each character and looks at no shape ahead: `ahead` answers that it does not know.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import dialects
from callgate.dialects import Reader
from callgate.dialects._marks import Match, Shape
from callgate.dialects._reading import Streamed
from callgate.dialects._sink import TextSink
from callgate.dialects._take import Parse, known
from callgate.jsonstream import JsonScanner
from callgate.types import Delta, ToolSpec
from dialect_reading import cuts, merge, rows, spec_of
from dialect_render import TOOLS, WRITERS
from test_dialects_laws import PIECES, SETTINGS, chunked, markers_of, messages, timeout

NAMES = [*sorted(WRITERS), "auto"]
FILES = ["dialects.jsonl", "dialects2.jsonl", "dialects_more.jsonl", "reader_breakers.jsonl", "mentions.jsonl"]
CASES = [row for name in FILES for row in rows(name) if isinstance(row.get("raw"), str) and row.get("dialect")]


class Slow(Reader):
    """A reader without fast paths."""

    __slots__ = ()

    def ahead(self, shape: Shape) -> Parse[re.Match[str] | None]:
        """It is never known."""
        return known(None)

    def wait_in_text(self, sink: TextSink) -> None:
        """No waiting."""

    def wait_ahead(self, begun: Match) -> None:
        """No waiting."""

    def wait_in_json(self, scan: JsonScanner) -> None:
        """No waiting."""

    def wait_for_key(self, scan: JsonScanner) -> None:
        """No waiting."""

    def wait_until(self, wake: Callable[[str], object], shape: re.Pattern[str], taken: str, limit: int) -> None:
        """No waiting."""

    def wait_in_value(self, value: Streamed, stop: str) -> None:
        """No waiting."""


Outcome = tuple[list[Delta], list[str], str, str]


def outcome(machine: Reader, chunks: Sequence[str]) -> Outcome:
    """What came out, what was odd, and what a reply tells."""
    deltas = [delta for chunk in chunks for delta in machine.feed(chunk)]
    deltas += machine.finish()
    return merge(deltas), machine.problems, machine.content, machine.thoughts


def slow_and_fast(name: str, tools: Sequence[ToolSpec], tail: str) -> tuple[Reader, Reader]:
    fast = dialects.reader(name, tools=tools, prompt_tail=tail)
    return Slow(fast.dialect, tools, tail), fast


def compare(name: str, text: str, every: Sequence[Sequence[str]], tools: Sequence[ToolSpec], tail: str = "") -> None:
    machine, _ = slow_and_fast(name, tools, tail)
    expected = outcome(machine, [text])
    for chunks in every:
        machine, fast = slow_and_fast(name, tools, tail)
        assert outcome(fast, chunks) == expected
        assert outcome(machine, chunks) == expected


def in_fours(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


@pytest.mark.parametrize("name", sorted({row["dialect"] for row in CASES}))
def test_every_case_is_read_on_the_fast_path_as_on_the_slow_one(name: str) -> None:
    for row in CASES:
        if row["dialect"] == name:
            tools = [spec_of(tool) for tool in row.get("tools", ())]
            text = row["raw"]
            compare(name, text, [[text], list(text), in_fours(text)], tools, row.get("prompt_tail", ""))


@timeout
@pytest.mark.parametrize("name", NAMES)
@SETTINGS
@given(data=st.data())
def test_generated_calls_are_read_on_the_fast_path_as_on_the_slow_one(name: str, data: st.DataObject) -> None:
    family = "hermes" if name == "auto" else name
    before, calls = data.draw(messages(family))
    text = before + WRITERS[family](calls) + data.draw(st.sampled_from(["", " ok", "\n", "\nDone. "]))
    compare(name, text, [in_fours(text), chunked(data, text)], TOOLS)


BEGINNINGS = [
    *('{"name": "save", "arguments": ', '{"tool": "look_up", "args": {', '{"arguments": {"text": "x"}}', '\n{"'),
    *(
        '"name"',
        '"arguments"',
        ": ",
        '{"text": "a"}',
        '"{\\"text\\": 1}"',
        "null",
        "save",
        "look_up",
        "[save(text='x')]",
    ),
]


@timeout
@pytest.mark.parametrize("name", NAMES)
def test_damaged_calls_are_read_on_the_fast_path_as_on_the_slow_one(name: str) -> None:
    """Calls with characters lost, doubled or replaced by markup, and markup in any order."""
    rng = random.Random(name)
    family = "hermes" if name == "auto" else name
    pieces = [*PIECES, *markers_of(family), *BEGINNINGS]
    for turn in range(12):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 24)))
        if turn % 3:
            text = WRITERS[family]([("save", {"text": "a <b> & c", "count": 7}), ("look_up", {"items": ["x"]})])
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(text) + 1)
                text = text[:at] + rng.choice(["", *pieces]) + text[min(len(text), at + rng.randint(0, 4)) :]
        every = [in_fours(text), *cuts(text, every=False, some=2, seed=rng.randint(0, 999))]
        compare(name, text, every, rng.choice([TOOLS, []]), rng.choice(["", "<think>\n"]))
