"""The live view: what is finished never moves again, and nothing a model writes controls the terminal."""

from __future__ import annotations

import io
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wcwidth import wcwidth

from callgate import events as e
from callgate.apps import tui, wording
from callgate.run import Pending
from callgate.types import (
    Allow,
    Ask,
    BadCall,
    CallDelta,
    Deny,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolResult,
)


class Screen:
    """A small terminal: the sequences that the view uses, and wrapping."""

    def __init__(self, width: int = 40, height: int = 12) -> None:
        self.width, self.height = width, height
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def write(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b|[^\x1b]", text):
            if part.startswith("\x1b"):
                self._control(part)
            elif part == "\n":
                self.row, self.column = self.row + 1, 0
            elif part == "\r":
                self.column = 0
            else:
                assert part.isprintable(), repr(part)
                self._put(part)
            while self.row >= len(self.lines):
                self.lines.append([])

    def _control(self, sequence: str) -> None:
        match sequence:
            case "\x1b[2K":
                self.lines[self.row] = []
            case "\x1b[J":
                del self.lines[self.row + 1 :]
                del self.lines[self.row][self.column :]
            case _ if up := re.fullmatch(r"\x1b\[(\d+)A", sequence):
                self.row -= int(up[1])
                assert self.row >= max(0, len(self.lines) - self.height), "moved above the screen"
            case _:
                assert re.fullmatch(r"\x1b\[[0-9;]*m", sequence), f"{sequence!r}: an unknown sequence"

    def _put(self, char: str) -> None:
        wide = max(0, wcwidth(char))
        if self.column + wide > self.width:
            self.row, self.column = self.row + 1, 0
            if self.row >= len(self.lines):
                self.lines.append([])
        if wide:
            line = self.lines[self.row]
            line[self.column : self.column + wide] = [char, ""][:wide]
            self.column += wide

    def text(self) -> str:
        return "\n".join("".join(line).rstrip() for line in self.lines).rstrip("\n")


class Tty(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(*events: e.Event, width: int = 40, height: int = 12, color: bool = True) -> str:
    """What stands in the terminal after the events, a second apart."""
    out = io.StringIO()
    view = tui.Terminal(out, color=color, size=lambda: (width, height))
    for now, event in enumerate(events):
        view.show(event, float(now))
        view.tick(now + 0.5)
    screen = Screen(width, height)
    screen.write(out.getvalue())
    return screen.text()


CALL = ToolCall("call_1", "add", {"a": 1, "b": 2})
RESULT = ToolResult("call_1", "ok", "3")
RUN: list[e.Event] = [
    e.RunStarted("r1", "m", "constrained"),
    e.TurnStarted(1, "constrained"),
    CallDelta(0, None, "add", '{"a": '),
    CallDelta(0, None, None, '1, "b": 2}'),
    e.CallProposed(CALL),
    e.CallJudged("call_1", Allow()),
    e.TurnFinished(1, Finish("tool_calls", {"input": 9, "output": 4}), 1.0),
    e.CallStarted("call_1", "add"),
    e.CallFinished("call_1", "add", RESULT, 0.002),
    e.TurnStarted(2, "constrained"),
    TextDelta("It is "),
    TextDelta("3."),
    e.TurnFinished(2, Finish("stop", {"input": 9, "output": 3}), 1.0),
    e.RunFinished("answered", "It is 3."),
]


def test_a_run_leaves_calls_results_answer_and_timings() -> None:
    assert shown(*RUN, width=100).split("\n") == [
        '→ add {"a": 1, "b": 2} · 3.0 s',
        "✓ got result 3 · 2 ms",
        "It is 3.",
        "✓ answered in 13.0 s · 2 turns · 1 call · 7 tokens written · protocol: constrained",
    ]


def test_text_of_an_answer_that_is_asked_for_again_is_marked_void() -> None:
    events = (e.TurnStarted(1), TextDelta("A half"), e.Retrying(1, "it broke"), TextDelta("Hello"))
    lines = shown(*events, width=100).split("\n")
    assert lines == ["A half", "· asked again (1): it broke; the text above is void", "Hello"]


def test_the_states_are_seen_while_they_last() -> None:
    seen = [shown(*RUN[: n + 1], width=100).split("\n")[-1] for n in range(len(RUN))]
    assert "generating · 0.5 s" in seen[1]
    assert '→ add {"a":' in seen[2]
    assert '→ add {"a": 1, "b": 2}' in seen[3]
    assert "calling add · 0.5 s" in seen[7]
    assert seen[8] == "✓ got result 3 · 2 ms"
    assert seen[10] == "It is"
    assert seen[13].startswith("✓ answered in 13.0 s")


def test_arguments_that_do_not_fit_show_their_end_on_one_row() -> None:
    long = [CallDelta(0, None, "write", '{"text": "'), *(CallDelta(0, None, None, f"word{n} ") for n in range(200))]
    last = shown(e.TurnStarted(1), *long).split("\n")
    assert len(last) == 1
    assert len(last[0]) <= 40
    assert last[0].endswith("word199")
    assert "→ write …" in last[0]


def test_a_token_costs_the_same_however_long_the_arguments_are() -> None:
    out = io.StringIO()
    view = tui.Terminal(out, size=lambda: (80, 24))
    view.show(CallDelta(0, None, "write", "{"), 0.0)
    sizes = []
    for n in range(2000):
        before = out.tell()
        view.show(CallDelta(0, None, None, "abcd"), float(n))
        sizes.append(out.tell() - before)
    assert max(sizes) < 200


def test_finished_markdown_is_drawn_once_and_raw_text_does_not_remain() -> None:
    text = "Some **bold** words\n\n- one\n- two\n\n```python\nx = 1\n\ny = 2\n```\n"
    got = shown(e.TurnStarted(1), *map(TextDelta, text), e.RunFinished("answered"), width=60, height=30)
    assert "**" not in got
    assert "```" not in got
    assert "Some bold words" in got
    assert got.count("• one") == 1
    assert got.count("x = 1") == 1
    assert got.count("y = 2") == 1


def test_long_lines_end_up_wrapped_between_words() -> None:
    got = shown(e.TurnStarted(1), TextDelta("These words are longer than one row, twice over, in "), TextDelta("fact."),
                e.RunFinished("answered"))  # fmt: skip
    assert got.split("\n")[:2] == ["These words are longer than one row,", "twice over, in fact."]


def test_a_block_that_outgrew_the_screen_stays_raw() -> None:
    text = "**a** " + "word " * 200
    got = shown(e.TurnStarted(1), *(TextDelta(w) for w in re.findall(r"\S+\s*", text)), e.RunFinished("answered"))
    assert got.startswith("**a** word")
    assert got.count("word") == 200


@given(st.lists(st.text(alphabet="ab *`#-\n|é日", max_size=30), max_size=8), st.integers(20, 60))
@settings(deadline=None)  # the first drawing imports rich, on a busy machine in more than any deadline
def test_the_last_screen_does_not_depend_on_how_the_text_was_cut(pieces: list[str], width: int) -> None:
    text = "".join(pieces)
    end = e.Retrying(1, "end")
    whole = shown(e.TurnStarted(1), TextDelta(text), end, width=width, height=400)
    assert shown(e.TurnStarted(1), *map(TextDelta, text), end, width=width, height=400) == whole


@pytest.mark.parametrize("color", [True, False])
@given(st.text(max_size=60))
def test_no_text_controls_the_terminal(color: bool, text: str) -> None:
    """The small terminal fails on every sequence that is not the view's own."""
    call = ToolCall("c", text or "x", {"a": text})
    for event in (
        TextDelta(text),
        ReasoningDelta(text),
        CallDelta(0, None, text, text),
        e.CallProposed(call),
        e.CallProposed(BadCall(0, None, text, text)),
        e.CallJudged("c", Deny("rule", text)),
        e.CallJudged("c", Ask("rule", text)),
        e.CallStarted("c", text),
        e.CallProgress("c", text),
        e.CallFinished("c", text, ToolResult("c", "failed", text), 0.1),
        e.Retrying(1, text),
        e.RunFinished("provider_error", text, error=text),
    ):
        out = io.StringIO()
        tui.Terminal(out, color=color, size=lambda: (40, 12)).show(event, 0.0)
        tui.Lines(out).show(event, 0.0)
        own = re.sub(r"\x1b\[([0-9;]*m|2K|J|\d+A)", "", out.getvalue())
        assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e]", own), repr(own)


def test_without_color_no_color_is_written() -> None:
    out = io.StringIO()
    view = tui.Terminal(out, color=False, size=lambda: (60, 20))
    for now, event in enumerate(RUN):
        view.show(event, float(now))
    assert not re.search(r"\x1b\[[0-9;]*m", out.getvalue())


def test_without_a_terminal_each_state_is_a_plain_line() -> None:
    out = io.StringIO()
    view = tui.view(out, environ={"TERM": "xterm"})
    for now, event in enumerate(RUN):
        view.show(event, float(now))
    assert out.getvalue().split("\n")[:-1] == [
        "generating",
        'call add {"a": 1, "b": 2}',
        "calling add",
        "got result 3 · 2 ms",
        "generating",
        "It is 3.",
        "answered in 13.0 s · 2 turns · 1 call · 7 tokens written · protocol: constrained",
    ]


def test_the_view_follows_where_the_output_leads() -> None:
    assert isinstance(tui.view(Tty(), environ={"TERM": "xterm"}), tui.Terminal)
    assert isinstance(tui.view(Tty(), environ={"TERM": "dumb"}), tui.Lines)
    assert isinstance(tui.view(io.StringIO(), environ={"TERM": "xterm"}), tui.Lines)
    assert isinstance(tui.view(Tty(), records=True, environ={"TERM": "xterm"}), tui.Records)


def test_json_lines_are_the_events_themselves() -> None:
    out = io.StringIO()
    view = tui.view(out, records=True)
    for event in RUN:
        view.show(event, 0.0)
    assert [e.load_event(json.loads(line)) for line in out.getvalue().splitlines()] == RUN


def test_a_json_line_is_one_line_of_plain_json_whatever_is_in_it() -> None:
    out = io.StringIO()
    tui.Records(out).show(TextDelta("a\u2028b\nc\ud800"), 0.0)
    (line,) = out.getvalue().encode("utf-8").decode("utf-8").split("\n")[:-1]
    assert json.loads(line)["text"] == "a\u2028b\nc\ud800"


@pytest.mark.parametrize(
    ("text", "width", "expected"), [("", 5, 1), ("abcde", 5, 1), ("abcdef", 5, 2), ("日本語", 5, 2)]
)
def test_rows_are_counted_as_a_terminal_wraps(text: str, width: int, expected: int) -> None:
    assert tui.rows(text, width) == expected


def test_what_was_odd_about_an_answer_is_told() -> None:
    odd = e.TurnFinished(1, Finish("stop", problems=("a leading {} was held back", "two\nlines")))
    assert shown(e.TurnStarted(1), TextDelta("Hi."), odd, width=80) == (
        "Hi.\n· note: a leading {} was held back\n· note: two lines"
    )
    assert wording.sentence(odd) == "note: a leading {} was held back\nnote: two lines"
    assert wording.sentence(e.TurnFinished(1, Finish("stop"))) is None


def test_a_good_result_has_one_row_and_a_bad_one_is_told_in_full() -> None:
    long = "word " * 30
    good, bad = ToolResult("c", "ok", long), ToolResult("c", "not_found", f"not found: {long}")
    first = shown(e.CallFinished("c", "f", good, 0.5))
    assert first.startswith("✓ got result word word")
    assert first.endswith("… · 500 ms")
    assert "\n" not in first
    assert wording.outcome(bad).startswith("not found: word")
    assert shown(e.CallFinished("c", "f", bad, 0.5)).replace("\n", "").count("word") == 30


def test_a_result_names_its_tool_where_several_ran() -> None:
    other = ToolCall("call_2", "sub", {})
    events = [e.TurnStarted(1), e.CallProposed(CALL), e.CallProposed(other), e.CallFinished("call_2", "sub", RESULT)]
    assert "✓ sub: got result 3" in shown(*events)
    out = io.StringIO()
    view = tui.Lines(out)
    for event in events:
        view.show(event, 0.0)
    assert out.getvalue().endswith("sub: got result 3\n")


def test_the_end_names_the_protocol_that_answered_and_counts_calls_of_a_resumed_run() -> None:
    end = [e.ProtocolChanged("native", "json", "500"), e.CallFinished("c", "f", RESULT), e.RunFinished("answered")]
    last = shown(e.RunStarted("r", "m", "native", resumed=True), *end, width=100).split("\n")[-1]
    assert last.endswith(" · 0 turns · 1 call · protocol: json")


def test_that_a_call_needs_approval_is_told_once() -> None:
    """It is judged again when it is about to run."""
    judged = e.CallJudged("c", Ask("approval", "it pays"))
    assert shown(judged, judged).count("it pays") == 1


def test_a_question_says_what_it_does_not_show() -> None:
    long = Pending(ToolCall("c", "pay", {"note": "x" * 3000}), "approval", "it pays")
    first, second = wording.question(long)
    assert re.search(r"… \(\d+ more characters, not shown here\)$", first)
    assert second == "  it pays (approval)"


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (e.CallProposed(BadCall(0, None, "f", "{", "truncated")), "call not usable: f (it was cut off)"),
        (
            e.CallProposed(ToolCall("c", "f", {}, flags=frozenset({"loose", "renamed"}))),
            "call f {} [without its markers, name corrected]",
        ),
        (e.CallJudged("c", Deny("rate", "5/min")), "denied by rate: 5/min"),
        (e.CallJudged("c", Ask("approval", "it pays")), "it pays (approval)"),
        (e.CallJudged("c", Allow()), None),
        (e.Retrying(2, "no JSON"), "asked again (2): no JSON"),
        (e.ProtocolChanged("native", "json", "500"), "protocol changed from native to json: 500"),
        (e.Routed("lexical", ("f",), 0.75), "tool picked by keyword match (0.75): f"),
        (e.Routed("names", (), None), "no tool picked, by the model"),
        (e.CallFinished("c", "f", ToolResult("c", "ok", "3", replayed=True)), "got result 3 (from the ledger)"),
        (e.CallFinished("c", "f", ToolResult("c", "timeout", "30 s")), "timeout: 30 s"),
    ],
)
def test_every_moment_is_told_in_one_line(event: e.Event, line: str | None) -> None:
    assert wording.sentence(event) == line
