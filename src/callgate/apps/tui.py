"""The live view of a run: in a terminal, as plain lines where there is none, as JSON lines for programs.

One law: what a model or a tool wrote never controls the terminal: control characters are taken out, and only whole,
finished blocks are drawn again.

Theory of operation of `Terminal`. What is finished scrolls up and is never touched again. Under it stands
 1. either the live line: one row, redrawn in place (`generating`, a call's arguments as they come, `calling NAME`),
 2. or the block of text that is being written, raw, as it comes. When it ends (an empty line, or the turn ends) it is
    wiped and drawn by rich, if it holds Markdown or was broken between letters; what outgrew the screen stays raw.
Time comes in with every event and tick; nothing here reads a clock.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import unicodedata
from collections.abc import Callable, Mapping
from typing import Protocol, TextIO, TypeAlias

from callgate import events as e
from callgate.events import Event, dump_event
from callgate.types import Ask, BadCall, CallDelta, Deny, ReasoningDelta, TextDelta, ToolCall, ToolResult

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
RESULT_SHOWN = 160
"""Characters of a result on its line; the ledger has all of it."""
ARGUMENTS_SHOWN = 300
"""Characters of finished arguments on their line."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_LONE = re.compile(r"[\ud800-\udfff]")
_MARKDOWN = re.compile(r"(\*\*|`|^\s{0,3}(#|[-*+] |\d+[.)] |>|\|))", re.MULTILINE)
_STYLES = {"dim": "2", "bold": "1", "call": "36", "good": "32", "bad": "31", "odd": "33", "think": "2;3"}

_CHOOSERS = {"lexical": "the words", "likelihood": "likelihood", "names": "the model", "group": "group"}

Size: TypeAlias = Callable[[], tuple[int, int]]
"""Columns and rows of the terminal, now."""


class View(Protocol):
    """Shows the events of runs, one after the other."""

    def show(self, event: Event, now: float) -> None:
        """One event, `now` in seconds of any steady clock."""
        ...

    def tick(self, now: float) -> None:
        """Time has passed; what counts seconds is drawn again."""
        ...

    def pause(self) -> None:
        """Somebody else is going to write: the cursor stands at the start of an empty line."""
        ...


def printable(text: str) -> str:
    """The text without what could move the cursor, change colours or turn the writing around; tabs as spaces."""
    return _LONE.sub("\ufffd", _CONTROL.sub("", text)).replace("\t", "    ")


def one_line(text: str, limit: int) -> str:
    """The text on one line, cut in the middle of nowhere with an ellipsis."""
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


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


def seconds(value: float) -> str:
    """A duration for people."""
    return f"{value * 1000:.0f} ms" if value < 0.95 else f"{value:.1f} s"


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as people read them."""
    return json.dumps(call.arguments, ensure_ascii=False, default=str)


class Clock:
    """What the lines about a run's end and its times need to know; fed with every event."""

    def __init__(self) -> None:
        self.started = 0.0
        self.turn_started = 0.0
        self.turns = 0
        self.calls = 0
        self.protocol = ""
        self.usage: dict[str, int] = {}

    def see(self, event: Event, now: float) -> None:
        """Takes an event into account."""
        match event:
            case e.RunStarted():
                self.__init__()  # type: ignore[misc]
                self.started = now
                self.protocol = event.protocol
            case e.TurnStarted():
                self.turns = max(self.turns, event.turn)
                self.turn_started = now
                self.protocol = event.protocol or self.protocol
            case e.CallProposed():
                self.calls += 1
            case e.TurnFinished():
                for key, count in (event.finish.usage or {}).items():
                    self.usage[key] = self.usage.get(key, 0) + count

    def summary(self, event: e.RunFinished, now: float) -> str:
        """The last line of a run."""
        usage = dict(event.usage) or self.usage
        parts = [f"{event.reason.replace('_', ' ')} in {seconds(now - self.started)}"]
        parts.append(f"{self.turns} turn{'s' * (self.turns != 1)}")
        parts.append(f"{self.calls} call{'s' * (self.calls != 1)}")
        if written := usage.get("output", 0):
            parts.append(f"{written} tokens written")
        if self.protocol:
            parts.append(f"asked by {self.protocol}")
        return " · ".join(parts)


class Lines:
    """Without a terminal: one plain line for every state, nothing that moves; the answer itself is left to others."""

    def __init__(self, out: TextIO, *, answer: bool = True) -> None:
        self._out = out
        self._answer = answer
        self._clock = Clock()

    def show(self, event: Event, now: float) -> None:
        """A line, if the event is worth one."""
        self._clock.see(event, now)
        line = self._line(event, now)
        if line is not None:
            self._out.write(line + "\n")
            self._out.flush()

    def _line(self, event: Event, now: float) -> str | None:
        match event:
            case e.TurnStarted():
                return "generating"
            case e.CallStarted():
                return f"calling {printable(event.name)}"
            case e.RunFinished():
                text = printable(event.text) + "\n" if event.text and self._answer else ""
                error = f"error: {printable(event.error)}\n" if event.error else ""
                return text + error + self._clock.summary(event, now)
            case _:
                return told(event)

    def tick(self, now: float) -> None:
        """Nothing moves."""

    def pause(self) -> None:
        """Every line is complete."""


class Records:
    """For programs: every event as one line of JSON (`events.dump_event`)."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, event: Event, now: float) -> None:
        """The event's line."""
        line = json.dumps(dump_event(event), ensure_ascii=False, default=str)
        if not line.isascii() and _LONE.search(line):  # half a character: JSON can say it, UTF-8 cannot
            line = json.dumps(dump_event(event), default=str)
        self._out.write(line + "\n")
        self._out.flush()

    def tick(self, now: float) -> None:
        """Nothing moves."""

    def pause(self) -> None:
        """Every line is complete."""


def told(event: Event) -> str | None:
    """What is to be said of an event that happens at one moment; None: nothing."""
    match event:
        case e.CallProposed(call=BadCall() as bad):
            return f"call not usable: {printable(bad.name or 'no name')} ({bad.reason})"
        case e.CallProposed(call=ToolCall() as call):
            flags = f"  [{', '.join(sorted(call.flags))}]" if call.flags else ""
            return f"call {printable(call.name)} {one_line(arguments_text(call), ARGUMENTS_SHOWN)}{flags}"
        case e.CallJudged(verdict=Deny() as verdict):
            return f"denied by {verdict.rule}: {printable(verdict.reason)}"
        case e.CallJudged(verdict=Ask() as verdict):
            return f"a person must decide ({verdict.rule}): {printable(verdict.reason)}"
        case e.CallFinished():
            took = f" · {seconds(event.duration)}" if event.duration is not None else ""
            return f"{outcome(event.result)}{took}"
        case e.Retrying():
            return f"asked again ({event.attempt}): {one_line(event.reason, ARGUMENTS_SHOWN)}"
        case e.ProtocolChanged():
            return f"now asking by {event.after}, not {event.before}: {one_line(event.reason, ARGUMENTS_SHOWN)}"
        case e.Routed():
            sure = f" ({event.confidence:.0%} sure)" if event.confidence is not None else ""
            tools = ", ".join(map(printable, event.tools)) or "no tool"
            return f"{tools}, chosen by {_CHOOSERS.get(event.chooser, event.chooser)}{sure}"
        case e.TurnFinished() if event.finish.problems:
            return "\n".join(f"note: {one_line(problem, ARGUMENTS_SHOWN)}" for problem in event.finish.problems)
        case _:
            return None


def outcome(result: ToolResult) -> str:
    """How a call ended, on one line."""
    content = one_line(result.content, RESULT_SHOWN)
    again = " (from the ledger)" if result.replayed else ""
    status = "got result" if result.ok else f"{result.status.replace('_', ' ')}:"
    said = not result.ok and content.lower().startswith(status)  # the content begins with the same words
    return f"{content}{again}" if said else f"{status} {content}{again}"


class Terminal:
    """The live view; see the theory of operation above."""

    def __init__(self, out: TextIO, *, color: bool = True, size: Size | None = None) -> None:
        self._out = out
        self._color = color
        self._size = size or shutil.get_terminal_size
        self._clock = Clock()
        self._state = ""  # what the live line says; "": there is no live line
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
        self._clock.see(event, now)
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
                for note in (told(event) or "").splitlines():
                    self._line("·", note, "odd")
            case e.CallStarted():
                self._running[event.call_id] = printable(event.name)
                self._calling(now)
            case e.CallProgress():
                self._status(f"calling {self._running.get(event.call_id, '')}: {one_line(str(event.value), 200)}", now)
            case e.CallFinished():
                self._running.pop(event.call_id, None)
                self._outcome(event)
                self._calling(now)
            case e.CallProposed():
                self._proposed(event, now)
            case e.RunFinished():
                self._finished(event, now)
            case _:
                if (line := told(event)) is not None:
                    self._line("·", line, "odd")

    def tick(self, now: float) -> None:
        """The live line's spinner and seconds."""
        if self._state and not self._kind:
            self._frame += 1
            self._draw(now)

    def pause(self) -> None:
        """Clears the live line and ends the open block."""
        self._end_block()
        self._clear()

    # --- rule 1: the live line

    def _status(self, state: str, now: float) -> None:
        self._end_block()
        if state != self._state:
            self._since = now
        self._state, self._tail = state, ""
        self._draw(now)

    def _calling(self, now: float) -> None:
        if self._running:
            self._status(f"calling {', '.join(self._running.values())}", now)

    def _arguments(self, delta: CallDelta, now: float) -> None:
        if delta.name is not None or not self._state.startswith("→"):
            self._status(f"→ {printable(delta.name or '')}", now)
        # only its tail is seen, so only its tail is kept: a token's cost does not grow with what came before
        self._tail = (self._tail + printable(delta.arguments).replace("\n", " "))[-self._size()[0] :]
        self._draw(now)

    def _draw(self, now: float) -> None:
        width = max(20, self._size()[0]) - 1
        spin = SPINNER[self._frame % len(SPINNER)]
        if self._state.startswith("→"):
            head = _head(f"{spin} {self._state} ", width // 2)
            text = self._paint(head + _tail(self._tail, width - cells(head)), "call")
        else:
            text = self._paint(_head(f"{spin} {self._state} · {now - self._since:.1f} s", width), "dim")
        self._out.write("\r\x1b[2K" + text)
        self._out.flush()

    def _clear(self) -> None:
        if self._state:
            self._state = ""
            self._out.write("\r\x1b[2K")
            self._out.flush()

    def _line(self, sign: str, text: str, style: str) -> None:
        self._end_block()
        self._clear()
        self._out.write(f"{self._paint(sign, style)} {self._paint(text, 'dim' if style == 'good' else style)}\n")
        self._out.flush()

    def _proposed(self, event: e.CallProposed, now: float) -> None:
        took = f" · {seconds(now - self._clock.turn_started)}"
        match event.call:
            case ToolCall() as call:
                self._end_block()
                self._clear()
                text = one_line(arguments_text(call), ARGUMENTS_SHOWN)
                flags = self._paint(f" [{', '.join(sorted(call.flags))}]", "odd") if call.flags else ""
                name = self._paint(f"→ {printable(call.name)}", "call")
                self._out.write(f"{name} {text}{flags}{self._paint(took, 'dim')}\n")
                self._out.flush()
            case BadCall():
                self._line("✗", told(event) or "", "bad")

    def _outcome(self, event: e.CallFinished) -> None:
        took = f" · {seconds(event.duration)}" if event.duration is not None else ""
        room = max(20, self._size()[0]) - 3 - len(took)  # a result that people see in passing has one row
        text = outcome(event.result)
        shown = text if cells(text) <= room or not event.result.ok else _head(text, room - 1) + "…"
        self._line("✓" if event.result.ok else "✗", shown + took, "good" if event.result.ok else "bad")

    def _finished(self, event: e.RunFinished, now: float) -> None:
        self._end_block()
        self._running.clear()
        if event.error:
            self._line("✗", printable(event.error), "bad")
        good = event.reason in {"answered", "waiting"}
        self._line("✓" if good else "✗", self._clock.summary(event, now), "good" if good else "bad")

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
        self._out.write(self._paint(text, "think") if kind == "think" else text)
        self._block += text
        if kind == "text":
            self._settle()
        self._out.flush()

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
            self._out.write("\n")
        self._block, self._kind, self._seen, self._fences = "", "", 0, 0
        self._out.flush()

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
        up = f"\x1b[{taken - 1}A" if taken > 1 else ""
        self._out.write(f"\r{up}\x1b[J{drawn}{after}")
        self._block = drawn

    def _paint(self, text: str, style: str) -> str:
        return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if self._color and text else text


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
