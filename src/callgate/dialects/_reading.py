"""The state of one message while it is read: text not yet taken, look-ahead, sinks, the call in progress.

Law: a grammar only reads the buffer and moves the cursor forward within it; held text, deltas and calls change through
these methods alone.
(tests/test_dialects_reading.py::test_a_grammar_moves_the_cursor_forward_only)
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias, TypeVar

from callgate.dialects._catalogue import by_name
from callgate.dialects._marks import NOTHING, Marks, Match, Shape, marks
from callgate.dialects._plan import Plan, State
from callgate.dialects._sink import TextSink
from callgate.dialects._spec import Dialect
from callgate.dialects._take import ANYTHING, CALLS, Wake
from callgate.jsonstream import JsonScanner, load_object, repeated_key
from callgate.types import BadCall, BadReason, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall, ToolSpec

T = TypeVar("T")
Parse: TypeAlias = Generator[None, None, T]

HELD: Final = 262_144
"""Characters a hold may grow to: far more than any call seen before its name, far less than memory."""
ARGUMENTS: Final = 16_777_216
"""Characters of one call's arguments."""
PROBLEMS: Final = 64
"""Problems remembered for one message: enough to tell what is wrong."""

MENTIONED: Final = frozenset({"mentioned"})
INTERNAL: Final = frozenset({"guard", "fenced"})
"""Flags that only the reader knows: no markup of its own; in a code fence."""

SLOW, PLAIN, AHEAD, CALM, KEY, JSON, UNTIL, VALUE = range(8)

LOOK_AHEAD: Final = 512
"""Characters that `ahead` looks at before it leaves the text to the grammar: more than any header or name has."""


class Overflow(Exception):
    """A hold outgrew HELD (rule 7). Never leaves the reading."""


class LookAhead:
    """Text taken but not decided upon (rule 4)."""

    __slots__ = ("mark", "parts", "size", "state")

    def __init__(self, mark: int, state: State) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.mark = mark
        self.state = state


class Streamed(Protocol):
    """A string value on its way out."""

    carry: str

    def text(self, text: str) -> None:
        """More of it."""


class Call:
    """A call in progress (rule 5)."""

    __slots__ = ("alone", "complete", "flags", "id", "index", "name", "parts", "size", "void", "waits")

    def __init__(self, index: int, name: str | None, id: str | None) -> None:
        self.index = index
        self.name = name
        self.id = id
        self.parts: list[str] = []
        self.size = 0
        self.flags: set[str] = set()
        self.complete = False
        self.void: BadReason | None = None
        """Why the arguments cannot be used, whatever they read like."""
        self.alone = True
        """It is meant only if nothing visible follows on its line (A7)."""
        self.waits: tuple[int, ...] = ()
        """It is only mentioned if one of these containers is closed later."""


class Speculation:
    """Calls in open reasoning, set speculation (rule 6): where reading stood when the first one began."""

    __slots__ = ("deferred", "hold", "index", "line", "place", "problems", "read_as", "reasoning", "text")

    def __init__(self, reading: Reading, hold: LookAhead) -> None:
        self.hold = hold
        self.text = reading.text.copy()
        self.reasoning = reading.reasoning.copy()
        self.index = reading.index
        self.problems = len(reading.problems)
        self.deferred = len(reading.deferred)
        self.line = reading.line
        self.place = reading.reasoning.place
        self.read_as = reading.dialect, reading.plan


class Reading:
    """What a reader knows while it reads one message."""

    __slots__ = (
        "_begun",
        "_calm",
        "_mode",
        "_one",
        "_plain_sink",
        "_ready",
        "_scan",
        "_stop",
        "_two",
        "_until",
        "_value",
        "addressed",
        "buf",
        "call",
        "deferred",
        "dialect",
        "framed",
        "holds",
        "index",
        "known",
        "line",
        "out",
        "over",
        "plan",
        "pos",
        "problems",
        "reasoning",
        "spans",
        "speculation",
        "state",
        "text",
        "tools",
    )  # fmt: skip

    def __init__(self, dialect: Dialect, tools: Sequence[ToolSpec] = (), prompt_tail: str = "") -> None:
        self.dialect = dialect
        self.plan = Plan.of(dialect)
        self.tools = {tool.name: tool for tool in tools}
        self.known = frozenset(self.tools)
        self.problems: list[str] = []
        self.buf = ""
        self.pos = 0
        self.over = False
        self.holds: list[LookAhead] = []
        self.speculation: Speculation | None = None
        self.out: list[Delta] = []
        self._ready = self.out
        self.line: list[tuple[ToolCall, tuple[int, ...]]] = []
        """Calls that wait for the rest of their line, with what they wait for then."""
        self.deferred: list[tuple[ToolCall, tuple[int, ...]]] = []
        """Calls that wait for the end of the message."""
        self.framed = False
        """The marker at hand is a special token: its calls are meant wherever it stands."""
        self.addressed = False
        """The header addresses this text to the user: it holds no calls."""
        self.index = 0
        self.spans: list[tuple[int, int]] = []
        """Where calls stand: the first index of some, and how many characters were left where their markup begins; the
        complement of that index, and how many were left where it ends. Whoever counts the text takes them out."""
        self.call: Call | None = None
        self.text = TextSink(TextDelta, trim=False)
        self.reasoning = TextSink(ReasoningDelta, trim=True)
        self.state = self.plan.start(prompt_tail)
        self._mode = SLOW
        self._plain_sink = self.text
        self._one = self._two = ""
        """What the plain path needs, at hand."""
        self._scan: JsonScanner | None = None
        self._begun: Match = NOTHING.begun
        self._calm: Wake = ANYTHING.fullmatch
        self._until: tuple[Wake, re.Pattern[str], str, int] = ANYTHING.search, ANYTHING, "", 0
        self._value: Streamed | None = None
        self._stop = ""

    def become(self, name: str) -> None:
        """Read on in that dialect, with all that was seen so far."""
        self.dialect = by_name()[name]
        self.plan = Plan.of(self.dialect)
        self.state = self.plan.text

    @property
    def sink(self) -> TextSink:
        """Where text of the present state goes."""
        return self.reasoning if self.state.reasoning else self.text

    def emit_text(self, text: str) -> None:
        """Text that is no markup."""
        if text and not self.state.silent:
            if self.line and not self.state.reasoning:
                self._rest_of_line(text)
            sink = self.sink
            sink.pieces.append(text)
            sink.write(self.out, text)

    def mark(self) -> None:
        """There was markup here."""
        self.text.mark()
        self.reasoning.after = True

    def note(self, problem: str) -> None:
        """Something odd, and what was done about it."""
        if len(self.problems) < PROBLEMS and problem not in self.problems:
            self.problems.append(problem)

    def marks(self, texts: tuple[str, ...], *, plain: bool = False) -> Marks:
        """A compiled set of markers, with this dialect's suffixes unless `plain`."""
        return marks(texts, self.dialect.suffix and not plain)

    def hold(self, start: int) -> LookAhead:
        """Begin to hold the text from `start` in the buffer."""
        hold = LookAhead(start, self.state)
        self.holds.append(hold)
        return hold

    def size(self, hold: LookAhead) -> int:
        return hold.size + self.pos - hold.mark

    def held(self, hold: LookAhead) -> str:
        """The text of a hold."""
        return "".join(hold.parts) + self.buf[hold.mark : self.pos]

    def _settle(self, hold: LookAhead) -> None:
        if self.size(self.holds[0]) > HELD:
            raise Overflow
        self.holds.remove(hold)

    def commit(self, hold: LookAhead) -> None:
        """What was held is markup."""
        self._settle(hold)
        self.mark()

    def unhold(self, hold: LookAhead) -> str:
        """Stop holding, whatever it was; the text."""
        text = self.held(hold)
        self.holds.remove(hold)
        return text

    def release(self, hold: LookAhead) -> None:
        """What was held is text after all (rule 4)."""
        text = self.held(hold)
        self._settle(hold)
        self.emit_text(text)

    def wait_in_text(self, sink: TextSink) -> None:
        """The text ends in plain text of this sink, with no marker begun (rule 8)."""
        if self.speculation is None:
            self._mode = PLAIN
            self._plain_sink = sink
            self._one, self._two = self.state.one, self.state.two
            self.buf = self.buf[self.pos :]
            self.pos = 0

    def ahead(self, shape: Shape) -> Parse[re.Match[str] | None]:
        """Whether the text behind the cursor has this shape; nothing is taken. None leaves it to the grammar, which
        has to come to the same result (rule 8)."""
        while True:
            match = shape.whole(self.buf, self.pos)
            if match is not None or self.over:
                return match
            if len(self.buf) - self.pos > LOOK_AHEAD or shape.begun(self.buf, self.pos) is None:
                return None
            if shape.calm is None:
                self.wait_ahead(shape.begun)
            else:
                self._mode = CALM
                self._calm = shape.calm
            yield

    def wait_ahead(self, begun: Match) -> None:
        """Nothing happens while the text from the cursor on is what `begun` matches: a beginning."""
        self._mode = AHEAD
        self._begun = begun

    def wait_in_json(self, scan: JsonScanner) -> None:
        """The text ends inside JSON arguments that are passed on as they are (rule 8)."""
        if not self.holds and self.speculation is None:
            self._mode = JSON
            self._scan = scan

    def wait_for_key(self, scan: JsonScanner) -> None:
        """The text ends behind the brace of arguments, whose first key may tell that they are wrapped once more."""
        if not self.holds and self.speculation is None:
            self._mode = KEY
            self._scan = scan

    def wait_until(self, wake: Wake, shape: re.Pattern[str], taken: str, limit: int) -> None:
        """The text ends inside a name: nothing happens before `wake` finds something or the name cannot be one."""
        self._mode = UNTIL
        self._until = wake, shape, taken, limit

    def wait_in_value(self, value: Streamed, stop: str) -> None:
        """The text ends inside a tagged string value that `stop` may end (rule 8)."""
        if not self.holds and self.speculation is None:
            self._mode = VALUE
            self._value = value
            self._stop = stop

    # --- calls --------------------------------------------------------------------------------------------------

    def open_call(self, name: str | None, id: str | None = None, flags: Iterable[str] = ()) -> Call:
        """A call has begun."""
        self.settle_call()
        self.mark()
        self.call = call = Call(self.index, name, id)
        self.index += 1
        call.flags.update(flags)
        self._judge_place(call)
        if name is not None:
            if call.index >= CALLS:
                call.void = "too_large"
                self.note(f"more than {CALLS} calls in one message: the rest is refused")
            self.out.append(CallDelta(call.index, id, name, ""))
        return call

    def fragment(self, text: str) -> None:
        """More of the arguments, as JSON text."""
        call = self.call
        if not text or call is None:
            return
        if call.size + len(text) > ARGUMENTS:  # rule 7, to the character
            text = text[: ARGUMENTS - call.size]
            call.void = "too_large"
            self.note(f"arguments of call {call.index}: over {ARGUMENTS} characters; the call is refused")
        if text:
            call.size += len(text)
            call.parts.append(text)
            self.out.append(CallDelta(call.index, None, None, text))

    def settle_call(self) -> None:
        """What follows the call is known: it is done (rule 5). Only complete ones are left by then."""
        call, self.call = self.call, None
        if call is None:
            return
        text = "".join(call.parts)
        arguments = None if call.void else load_object(text)
        if arguments is None or call.name is None:
            reason: BadReason = call.void or "malformed"
            self.note(f"call {call.index} ({call.name or 'without a name'}): {reason} arguments")
            self.out.append(BadCall(call.index, call.id, call.name, text, reason, MENTIONED & call.flags))
            return
        if (twice := repeated_key(text, arguments)) is not None:  # a gate may have looked at the other value
            self.note(f"call {call.index} ({call.name}): duplicate key {twice!r}, the last one counts")
            call.flags.add("repaired")
        done = ToolCall(call.id or "", call.name, arguments, call.index, frozenset(call.flags))
        if call.alone and "mentioned" not in call.flags:
            self.line.append((done, call.waits))
        else:
            self._emit_call(done, call.waits)

    def drop_call(self, reason: BadReason, text: str | None = None) -> None:
        """The call cannot be read, or was cut off. `text`: its arguments as they came, if they are no fragments."""
        call, self.call = self.call, None
        if call is None:
            return
        self.note(f"call {call.index} ({call.name or 'without a name'}): {reason}")
        if reason == "truncated":  # what is left belongs to it: half an escape, half a marker
            self.pos = len(self.buf)
        raw = "".join(call.parts) if text is None else text
        self.out.append(BadCall(call.index, call.id, call.name, raw, call.void or reason, MENTIONED & call.flags))

    def recovered(self, problem: str) -> None:
        """A slip was absorbed (policy M): noted, and the call flagged."""
        self.note(problem)
        if self.call is not None:
            self.call.flags.add("recovered")

    # --- meant, or only mentioned (A7) ----------------------------------------------------------------------------

    def _judge_place(self, call: Call) -> None:
        """What the text before a call tells of it."""
        where = self.text.place.call()
        inside, call.waits = where.inside or self.addressed, where.waits
        call.alone = not self.framed
        if self.speculation is not None:  # policy K: nothing but what holds the call tells against it
            outer = self.speculation.place.call()
            inside = inside or outer.inside or bool(outer.waits)
            call.alone = False
        if inside or (call.alone and not where.fits):
            call.flags.add("mentioned")

    def _rest_of_line(self, text: str) -> None:
        """Text follows calls on their line, or ends it."""
        end = text.find("\n")
        if text[: end if end >= 0 else len(text)].strip():
            self._end_line(mentioned=True)
        elif end >= 0:
            self._end_line()

    def break_line(self) -> None:
        """A header stands here: what follows begins a line, whatever stands before it."""
        self._end_line()
        self.text.place.header()

    def _end_line(self, *, mentioned: bool = False) -> None:
        """The line of the calls that wait for it is known."""
        waiting, self.line = self.line, []
        for call, waits in waiting:
            self._emit_call(replace(call, flags=call.flags | MENTIONED) if mentioned else call, waits)

    def _emit_call(self, call: ToolCall, waits: tuple[int, ...]) -> None:
        if "mentioned" in call.flags:
            self.note(f"call {call.index} ({call.name}): only mentioned in the text, so it does not run")
            self.out.append(replace(call, flags=call.flags - INTERNAL) if call.flags & INTERNAL else call)
        elif waits or call.flags & INTERNAL:
            self.deferred.append((call, waits))
        else:
            self.out.append(call)

    def _release_deferred(self) -> None:
        """What only the whole message tells. Calls without markup of their own are loose beside visible text (A7), and
        in a code fence only mentioned there."""
        place = self.text.place
        if any(waits for _, waits in self.deferred):
            place.settle()
        for call, waits in self.deferred:
            flags = call.flags - INTERNAL
            if any(each in place.closed for each in waits) or ("fenced" in call.flags and self.text.seen):
                flags |= MENTIONED
                self.note(f"call {call.index} ({call.name}): only mentioned in the text, so it does not run")
            elif "guard" in call.flags and self.text.seen:
                flags |= {"loose"}
            self.out.append(replace(call, flags=flags))
        self.deferred = []

    # --- calls in reasoning, and limits -------------------------------------------------------------------------

    def speculate(self, hold: LookAhead) -> None:
        """Calls in open reasoning begin here (rule 6)."""
        self.speculation = Speculation(self, hold)
        self.out, self.line = [], []
        self.text.place.thinking()
        self.state = self.plan.text

    def roll_back(self, upto: str) -> None:
        """They were reasoning after all; `upto` is the marker that ended it."""
        speculation = self.speculation
        assert speculation is not None
        if self.size(speculation.hold) > HELD:
            raise Overflow
        text = self.held(speculation.hold)
        self._restore(speculation)
        self.emit_text(text[: len(text) - len(upto)])

    def _restore(self, speculation: Speculation) -> None:
        self.holds = []
        self.out, self.text, self.reasoning = self._ready, speculation.text, speculation.reasoning
        self.text.forget()
        self.reasoning.forget()
        self.index, self.call, self.speculation, self.line = speculation.index, None, None, speculation.line
        del self.problems[speculation.problems :]
        del self.deferred[speculation.deferred :]
        self.dialect, self.plan = speculation.read_as
        self.state = speculation.hold.state

    def _recover(self) -> None:
        """MarkerRule 7: the outermost hold is too long."""
        hold = self.holds[0]
        text = self.held(hold)
        if self.speculation is not None:
            self._restore(self.speculation)
        self.holds = []
        self.call = None
        self.state = hold.state
        self.note(f"held text over {HELD} characters: released as text")
        self.emit_text(text[:HELD])
        self.buf = text[HELD:] + self.buf[self.pos :]
        self.pos = 0

    def unread(self, text: str) -> None:
        """`text`, the last that was taken, is to be read again."""
        for hold in self.holds:
            kept = self.held(hold)
            kept = kept[: len(kept) - len(text)]
            hold.parts, hold.size, hold.mark = [kept], len(kept), 0
        self.buf = text + self.buf[self.pos :]
        self.pos = 0

    def refill(self, text: str) -> None:
        pos = self.pos
        if pos:
            for hold in self.holds:
                if pos > hold.mark:
                    hold.parts.append(self.buf[hold.mark : pos])
                    hold.size += pos - hold.mark
                hold.mark = 0
            self.buf = self.buf[pos:] + text
            self.pos = 0
        else:
            self.buf += text
