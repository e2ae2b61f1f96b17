"""The live view of a run: in a terminal, as plain lines where there is none, as JSON lines for programs.

Law: what is finished never moves again; only the live line and the block that is being written are drawn again.
    (tests/test_tui.py::test_the_last_screen_does_not_depend_on_how_the_text_was_cut)
Law: nothing here writes but through `output.Pen`, which escapes what others wrote.
    (tests/test_output.py::test_nothing_is_written_elsewhere)

Theory of operation of `Terminal`. What is finished scrolls up and is never touched again. Under it stands
 1. either the live line: one row, redrawn in place (`generating`, a call's arguments as they come, `calling NAME`),
 2. or the block of text that is being written, raw, as it comes. When it ends (an empty line, or the turn ends) it is
    erased and drawn by rich, if it holds Markdown or was broken between letters; what outgrew the screen stays raw.
Time comes in with every event and tick; nothing here reads a clock.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Protocol, TextIO, TypeAlias

from callgate import events as e
from callgate.apps.output import Pen, one_line, printable
from callgate.apps.wording import Tally, call_text, flags_text, outcome, question, seconds, sentence
from callgate.events import Event, dump_event
from callgate.types import BadCall, CallDelta, ReasoningDelta, TextDelta, ToolCall

if TYPE_CHECKING:
    from callgate.run import Pending

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"

_MARKDOWN = re.compile(r"(\*\*|`|^\s{0,3}(#|[-*+] |\d+[.)] |>|\|))", re.MULTILINE)

Size: TypeAlias = Callable[[], tuple[int, int]]
"""Columns and rows of the terminal, now."""


class View(Protocol):
    """Shows the events of runs, one after the other."""

    def show(self, event: Event, now: float) -> None:
        """One event, `now` in seconds of any steady clock."""
        ...

    def tick(self, now: float, doing: str = "") -> None:
        """Time has passed; what counts seconds is drawn again. `doing`: what the model does before its first token."""
        ...

    def pause(self) -> None:
        """Clears what moves: the cursor stands at the start of an empty line."""
        ...

    def ask(self, pending: Pending | None, prompt: str) -> None:
        """The question whether a call may run, and `prompt` before the place where the answer is typed; None: only
        the prompt again."""
        ...

    def note(self, text: str, *, good: bool) -> None:
        """One line about what a person decided."""
        ...

    def end_line(self) -> None:
        """No answer came: what follows starts on a line of its own."""
        ...

    def remark(self, text: str) -> None:
        """One line beside the run, when it is over."""
        ...


def cells(text: str) -> int:
    """How many columns the text takes."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in {"Cf", "Me", "Mn"}:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def rows(text: str, width: int) -> int:
    """How many rows of a terminal the text takes."""
    total = 0
    for line in text.split("\n"):
        column, taken = 0, 1
        for char in line:
            step = _cells(char)
            if column + step > width:
                column, taken = 0, taken + 1
            column += step
        total += taken
    return total


class Lines:
    """Without a terminal: one plain line for every state, nothing that moves; the answer itself is left to others."""

    def __init__(self, out: TextIO, *, answer: bool = True) -> None:
        self._pen = Pen(out, color=False)
        self._answer = answer
        self._tally = Tally()

    def show(self, event: Event, now: float) -> None:
        """A line, if the event is worth one."""
        self._tally.see(event, now)
        for line in () if self._tally.is_repeated(event) else self._lines(event, now):
            self._pen.line(line)

    def _lines(self, event: Event, now: float) -> list[str]:
        match event:
            case e.TurnStarted():
                return ["generating"]
            case e.CallStarted():
                return [f"calling {one_line(event.name, 80)}"]
            case e.CallFinished() if self._tally.in_turn > 1:
                took = f" · {seconds(event.duration)}" if event.duration is not None else ""
                return [outcome(event.result, event.name) + took]
            case e.RunFinished():
                text = [event.text] if event.text and self._answer else []
                error = [f"error: {one_line(event.error, 2000)}"] if event.error else []
                return [*text, *error, self._tally.summary(event, now)]
            case _:
                return [line] if (line := sentence(event)) is not None else []

    def tick(self, now: float, doing: str = "") -> None:
        """Nothing moves."""

    def pause(self) -> None:
        """Every line is complete."""

    def ask(self, pending: Pending | None, prompt: str) -> None:
        """The question, line by line."""
        _ask(self._pen, pending, prompt)

    def note(self, text: str, *, good: bool) -> None:
        """The line."""
        self._pen.line(text)

    def end_line(self) -> None:
        """Ends the line of the prompt."""
        self._pen.line("")

    def remark(self, text: str) -> None:
        """The line."""
        self._pen.line(text)


def _ask(pen: Pen, pending: Pending | None, prompt: str) -> None:
    for line, style in zip(question(pending) if pending else (), ("bold", ""), strict=False):
        pen.line(line, style)
    pen.put(prompt)
    pen.flush()


class Records:
    """For programs: every event as one line of JSON (`events.dump_event`); questions to people are on stderr."""

    def __init__(self, out: TextIO) -> None:
        self._pen = Pen(out, color=False)

    def show(self, event: Event, now: float) -> None:
        """The event's line."""
        self._pen.record(dump_event(event))

    def tick(self, now: float, doing: str = "") -> None:
        """Nothing moves."""

    def pause(self) -> None:
        """Every line is complete."""

    def ask(self, pending: Pending | None, prompt: str) -> None:
        """The question, on stderr."""
        _ask(Pen(sys.stderr), pending, prompt)

    def note(self, text: str, *, good: bool) -> None:
        """The line, on stderr."""
        Pen(sys.stderr).line(text)

    def end_line(self) -> None:
        """Ends the line of the prompt, on stderr."""
        Pen(sys.stderr).line("")

    def remark(self, text: str) -> None:
        """Programs asked for events alone."""


class Terminal:
    """The live view; see the theory of operation above."""

    def __init__(self, out: TextIO, *, color: bool = True, size: Size | None = None) -> None:
        self._pen = Pen(out, color=color)
        self._color = color
        self._size = size or shutil.get_terminal_size
        self._tally = Tally()
        self._state = ""  # what the live line says; "": there is no live line
        self._doing = ""  # in place of `generating`, before the first token
        self._tail = ""  # after it, the end of the arguments that are being written
        self._since = 0.0
        self._running: dict[str, str] = {}
        self._frame = 0
        self._block = ""  # the text being written
        self._kind = ""  # "text" or "think" while a block is open
        self._seen = 0  # how far the block was searched for its end
        self._fences = 0
        self._width = 0

    # --- events

    def show(self, event: Event, now: float) -> None:
        """Draws what the event changes."""
        self._tally.see(event, now)
        match event:
            case TextDelta():
                self._write(event.text, "text")
            case ReasoningDelta():
                self._write(event.text, "think")
            case CallDelta():
                self._arguments(event, now)
            case e.TurnStarted():
                self._status("generating", now)
            case e.TurnFinished():
                self._end_block()
                for note in filter(None, (sentence(event) or "").split("\n")):
                    self._line("·", note, "odd")
            case e.CallProposed():
                self._proposed(event, now)
            case e.CallStarted() | e.CallProgress() | e.CallFinished():
                self._at_work(event, now)
            case e.RunFinished():
                self._finished(event, now)
            case e.Retrying() if self._kind == "text":  # it stands in the terminal for good
                self._line("·", f"{sentence(event)}; the text above is void", "odd")
            case _:
                if not self._tally.is_repeated(event) and (line := sentence(event)) is not None:
                    self._line("·", line, "odd")

    def _at_work(self, event: e.CallStarted | e.CallProgress | e.CallFinished, now: float) -> None:
        match event:
            case e.CallStarted():
                self._running[event.call_id] = one_line(event.name, 80)
                self._calling(now)
            case e.CallProgress():
                self._status(f"calling {self._running.get(event.call_id, '')}: {one_line(str(event.value), 200)}", now)
            case e.CallFinished():
                self._running.pop(event.call_id, None)
                self._outcome(event)
                self._calling(now)

    def tick(self, now: float, doing: str = "") -> None:
        """The live line's spinner and seconds."""
        if self._state and not self._kind:
            self._frame += 1
            self._doing = doing if self._state == "generating" else ""
            self._draw(now)

    def pause(self) -> None:
        """Clears the live line and ends the open block."""
        self._end_block()
        self._clear()

    def ask(self, pending: Pending | None, prompt: str) -> None:
        """The question stands under everything else."""
        self.pause()
        _ask(self._pen, pending, prompt)

    def note(self, text: str, *, good: bool) -> None:
        """What a person decided."""
        self._line("✓" if good else "✗", text, "good" if good else "bad")

    def end_line(self) -> None:
        """Ends the line of the prompt."""
        self._pen.line("")

    def remark(self, text: str) -> None:
        """The line, like the notes about an answer."""
        self._line("·", text, "odd")

    # --- rule 1: the live line

    def _status(self, state: str, now: float) -> None:
        self._end_block()
        if state != self._state:
            self._since = now
        self._state, self._tail, self._doing = state, "", ""
        self._draw(now)

    def _calling(self, now: float) -> None:
        if self._running:
            self._status(f"calling {', '.join(self._running.values())}", now)

    def _arguments(self, delta: CallDelta, now: float) -> None:
        if delta.name is not None or not self._state.startswith("→"):
            self._status(f"→ {one_line(delta.name or '', 80)}", now)
        # only its tail is seen, so only its tail is kept: a token's cost does not grow with what came before
        self._tail = (self._tail + printable(delta.arguments).replace("\n", " "))[-self._size()[0] :]
        self._draw(now)

    def _draw(self, now: float) -> None:
        width = max(20, self._size()[0]) - 1
        spin = SPINNER[self._frame % len(SPINNER)]
        if self._state.startswith("→"):
            head = _head(f"{spin} {self._state} ", width // 2)
            text, style = head + _tail(self._tail, width - cells(head)), "call"
        else:
            text, style = _head(f"{spin} {self._doing or self._state} · {now - self._since:.1f} s", width), "dim"
        self._pen.erase()
        self._pen.put(text, style)
        self._pen.flush()

    def _clear(self) -> None:
        if self._state:
            self._state = ""
            self._pen.erase()
            self._pen.flush()

    def _line(self, sign: str, text: str, style: str) -> None:
        self._end_block()
        self._clear()
        self._pen.spans((sign, style), (" ", ""), (text, "dim" if style == "good" else style))

    def _proposed(self, event: e.CallProposed, now: float) -> None:
        took = f" · {seconds(now - self._tally.turn_started)}"
        match event.call:
            case ToolCall() as call:
                self._end_block()
                self._clear()
                name = f"→ {one_line(call.name, 80)}"
                self._pen.spans((name, "call"), (f" {call_text(call)}", ""), (flags_text(call), "odd"), (took, "dim"))
            case BadCall():
                self._line("✗", sentence(event) or "", "bad")

    def _outcome(self, event: e.CallFinished) -> None:
        took = f" · {seconds(event.duration)}" if event.duration is not None else ""
        room = max(20, self._size()[0]) - 3 - len(took)  # a result that people see in passing has one row
        text = outcome(event.result, event.name if self._tally.in_turn > 1 else "")
        shown = text if cells(text) <= room or not event.result.ok else _head(text, room - 1) + "…"
        self._line("✓" if event.result.ok else "✗", shown + took, "good" if event.result.ok else "bad")

    def _finished(self, event: e.RunFinished, now: float) -> None:
        self._end_block()
        self._running.clear()
        if event.error:
            self._line("✗", one_line(event.error, 2000), "bad")
        good = event.reason in {"answered", "waiting"}
        self._line("✓" if good else "✗", self._tally.summary(event, now), "good" if good else "bad")

    # --- rule 2: the block being written

    def _write(self, text: str, kind: str) -> None:
        if self._kind != kind:
            self._end_block()
            text = text.lstrip("\n")
            if not text:
                return
            self._clear()
            self._kind, self._width = kind, self._size()[0]
        text = printable(text)
        self._pen.put(text, "think" if kind == "think" else "")
        self._block += text
        if kind == "text":
            self._settle()
        self._pen.flush()

    def _settle(self) -> None:
        """Draws the blocks that are complete: an empty line ends one, save inside a code fence."""
        while (end := self._block.find("\n\n", max(0, self._seen - 1))) != -1:
            self._fences += self._block.count("```", self._seen, end)
            self._seen = end + 2
            if self._fences % 2:
                continue
            rest = self._block[self._seen :]
            self._block = self._block[: self._seen]
            self._redraw(after=rest)
            self._block, self._seen, self._fences = rest, 0, 0

    def _end_block(self) -> None:
        if not self._kind:
            return
        if self._kind == "text":
            self._redraw()
        if not self._block.endswith("\n"):
            self._pen.put("\n")
        self._block, self._kind, self._seen, self._fences = "", "", 0, 0
        self._pen.flush()

    def _redraw(self, after: str = "") -> None:
        width, height = self._size()
        raw = self._block + after
        taken = rows(raw, width)
        wrapped = rows(self._block, width) > self._block.count("\n") + 1
        if width != self._width or taken >= height or not (wrapped or _MARKDOWN.search(self._block)):
            return
        drawn = _drawn(self._block, width, self._color)
        if drawn is None:
            return
        self._pen.rewrite(taken - 1, drawn + after)
        self._block = drawn


def _head(text: str, width: int) -> str:
    while cells(text) > width:
        text = text[:-1]
    return text


def _tail(text: str, width: int) -> str:
    if cells(text) <= width:
        return text
    text = text[-max(1, width - 1) :]
    while text and cells(text) > width - 1:
        text = text[1:]
    return "…" + text


def _drawn(text: str, width: int, color: bool) -> str | None:
    """The block as rich draws it, wrapped between words and ending like the block; None without rich (it comes with
    callgate[chat])."""
    try:
        from rich.console import Console
        from rich.markdown import Markdown
        from rich.text import Text
    except ImportError:
        return None
    console = Console(width=width, force_terminal=color, no_color=not color, legacy_windows=False, highlight=False)
    with console.capture() as capture:
        body = text.strip("\n")
        console.print(Markdown(body, hyperlinks=False) if _MARKDOWN.search(body) else Text(body))
    drawn = "\n".join(line.rstrip() for line in capture.get().strip("\n").split("\n"))
    return drawn + text[len(text.rstrip("\n")) :]


def view(out: TextIO, *, records: bool = False, environ: Mapping[str, str] | None = None) -> View:
    """The view that fits where `out` leads: JSON lines if asked, else live in a terminal, else plain lines."""
    environ = os.environ if environ is None else environ
    if isinstance(out, io.TextIOWrapper):
        out.reconfigure(errors="replace")  # a terminal that cannot show a sign shows a question mark
    if records:
        return Records(out)
    if not out.isatty() or environ.get("TERM", "") in {"", "dumb"}:
        return Lines(out)
    return Terminal(out, color="NO_COLOR" not in environ)
