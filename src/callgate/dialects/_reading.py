"""A message while it is read: the text not yet taken, what is held, who speaks, the call in progress.

One law: grammars touch the text and the deltas only through these few verbs, so that holding, releasing and the
limits (rules 2, 4 to 7 of _reader.py) are kept in one place.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Final, Protocol, TypeAlias, TypeVar

from callgate.dialects._marks import Marks, marks
from callgate.dialects._plan import Plan, State
from callgate.dialects._spec import Dialect
from callgate.jsonstream import load_object, repeated_key
from callgate.types import BadCall, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall, ToolSpec

T = TypeVar("T")
Parse: TypeAlias = Generator[None, None, T]

HELD: Final = 262_144
"""Characters a hold may grow to: far more than any call seen before its name, far less than memory."""
SPACE: Final = 8_192
"""White space that waits for what follows; a model that prints more is stuck in a loop."""
CALLS: Final = 1_024
"""Calls in one message; more is a model in a loop."""
ARGUMENTS: Final = 16_777_216
"""Characters of one call's arguments."""
PROBLEMS: Final = 64
"""Problems remembered for one message: enough to tell what is wrong."""

SLOW, PLAIN, STRING, VALUE = 0, 1, 2, 3


class Overflow(Exception):
    """A hold outgrew HELD (rule 7). Never leaves the reading."""


class Hold:
    """Text taken but not decided upon (rule 4)."""

    __slots__ = ("mark", "parts", "size", "state")

    def __init__(self, mark: int, state: State) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.mark = mark
        self.state = state


class Voice:
    """Where text goes: content or reasoning, with the white space that waits (rule 2)."""

    __slots__ = ("after", "make", "marked", "seen", "space", "trim")

    def __init__(self, make: type[TextDelta] | type[ReasoningDelta], trim: bool) -> None:
        self.make = make
        self.trim = trim
        """White space at the start always goes."""
        self.space = ""
        self.seen = False
        """Something visible was said."""
        self.marked = False
        """There was markup."""
        self.after = False
        """There was markup since the last visible character."""

    def say(self, out: list[Delta], text: str) -> None:
        """Say text; white space at its end waits."""
        body = text.rstrip()
        if not body:
            self.space += text
            if len(self.space) > SPACE:
                self._overflow(out)
            return
        if not self.seen and (self.trim or self.marked):
            self.space = ""
            start = text.lstrip()
            out.append(self.make(start[: len(start) - len(text) + len(body)]))
        else:
            out.append(self.make(self.space + body))
        self.space = text[len(body) :]
        self.seen = True
        self.after = False
        if len(self.space) > SPACE:
            self._overflow(out)

    def _overflow(self, out: list[Delta]) -> None:
        keep = (len(self.space) - 1) % SPACE + 1
        if self.seen or not (self.trim or self.marked):
            out.append(self.make(self.space[: len(self.space) - keep]))
        self.space = self.space[len(self.space) - keep :]

    def mark(self) -> None:
        self.marked = self.after = True

    def at_line_start(self) -> bool:
        """Whether only white space stands between here and the line's start, or the message's, or markup."""
        return not self.seen or self.after or "\n" in self.space

    def copy(self) -> Voice:
        other = Voice(self.make, self.trim)
        other.space, other.seen, other.marked, other.after = self.space, self.seen, self.marked, self.after
        return other


class Streamed(Protocol):
    """A string value on its way out."""

    carry: str

    def text(self, text: str) -> None:
        """More of it."""


class Call:
    """A call in progress (rule 5)."""

    __slots__ = ("complete", "flags", "id", "index", "name", "parts", "size", "void")

    def __init__(self, index: int, name: str | None, id: str | None) -> None:
        self.index = index
        self.name = name
        self.id = id
        self.parts: list[str] = []
        self.size = 0
        self.flags: set[str] = set()
        self.complete = False
        self.void = ""
        """Why the arguments cannot be used, whatever they read like."""


class Aside:
    """Calls in open reasoning, set aside (rule 6): where reading stood when the first one began."""

    __slots__ = ("deferred", "hold", "index", "problems", "read_as", "reasoning", "text")

    def __init__(self, reading: Reading, hold: Hold) -> None:
        self.hold = hold
        self.text = reading.text.copy()
        self.reasoning = reading.reasoning.copy()
        self.index = reading.index
        self.problems = len(reading.problems)
        self.deferred = len(reading.deferred)
        self.read_as = reading.dialect, reading.plan


class Reading:
    """What a reader knows while it reads one message."""

    __slots__ = (
        "_mode", "_ready", "_speaker", "_stop", "_value", "aside", "buf", "call", "deferred", "dialect", "holds",
        "index", "known", "out", "over", "plan", "pos", "problems", "reasoning", "state", "text", "tools",
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
        self.holds: list[Hold] = []
        self.aside: Aside | None = None
        self.out: list[Delta] = []
        self._ready = self.out
        self.deferred: list[ToolCall] = []
        self.index = 0
        self.call: Call | None = None
        self.text = Voice(TextDelta, trim=False)
        self.reasoning = Voice(ReasoningDelta, trim=True)
        self.state = self.plan.start(prompt_tail)
        self._mode = SLOW
        self._speaker = self.text
        self._value: Streamed | None = None
        self._stop = ""

    def become(self, name: str) -> None:
        """Read on in that dialect, with all that was seen so far."""
        from callgate import dialects  # plug look-up

        self.dialect = dialects.get(name)
        self.plan = Plan.of(self.dialect)
        self.state = self.plan.text

    @property
    def voice(self) -> Voice:
        """The voice of the present state."""
        return self.reasoning if self.state.reasoning else self.text

    def say(self, text: str) -> None:
        """Text that is no markup."""
        if text and not self.state.silent:
            self.voice.say(self.out, text)

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

    def hold(self, start: int) -> Hold:
        """Begin to hold the text from `start` in the buffer."""
        hold = Hold(start, self.state)
        self.holds.append(hold)
        return hold

    def size(self, hold: Hold) -> int:
        return hold.size + self.pos - hold.mark

    def held(self, hold: Hold) -> str:
        """The text of a hold."""
        return "".join(hold.parts) + self.buf[hold.mark : self.pos]

    def _settle(self, hold: Hold) -> None:
        if self.size(self.holds[0]) > HELD:
            raise Overflow
        self.holds.remove(hold)

    def commit(self, hold: Hold) -> None:
        """What was held is markup."""
        self._settle(hold)
        self.mark()

    def unhold(self, hold: Hold) -> str:
        """Stop holding, whatever it was; the text."""
        text = self.held(hold)
        self.holds.remove(hold)
        return text

    def release(self, hold: Hold) -> None:
        """What was held is text after all (rule 4)."""
        text = self.held(hold)
        self._settle(hold)
        self.say(text)

    def sleep_in_text(self, voice: Voice) -> None:
        """The text ends in plain text of this voice, with no marker begun (rule 8)."""
        if self.aside is None:
            self._mode = PLAIN
            self._speaker = voice
            self.buf = self.buf[self.pos :]
            self.pos = 0

    def sleep_in_string(self) -> None:
        """The text ends inside a string argument that is passed on as it is (rule 8)."""
        if not self.holds and self.aside is None:
            self._mode = STRING

    def sleep_in_value(self, value: Streamed, stop: str) -> None:
        """The text ends inside a tagged string value that `stop` may end (rule 8)."""
        if not self.holds and self.aside is None:
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
            reason = call.void or "malformed"
            self.note(f"call {call.index} ({call.name or 'without a name'}): {reason} arguments")
            self.out.append(BadCall(call.index, call.id, call.name, text, reason))
            return
        if (twice := repeated_key(text, arguments)) is not None:  # a gate may have looked at the other value
            self.note(f"call {call.index} ({call.name}): duplicate key {twice!r}, the last one counts")
            call.flags.add("repaired")
        done = ToolCall(call.id or "", call.name, arguments, call.index, frozenset(call.flags))
        if "guard" in call.flags:
            self.deferred.append(done)
        else:
            self.out.append(done)

    def drop_call(self, reason: str, text: str | None = None) -> None:
        """The call cannot be read, or was cut off. `text`: its arguments as they came, if they are no fragments."""
        call, self.call = self.call, None
        if call is None:
            return
        self.note(f"call {call.index} ({call.name or 'without a name'}): {reason}")
        if reason == "truncated":  # what is left belongs to it: half an escape, half a marker
            self.pos = len(self.buf)
        raw = "".join(call.parts) if text is None else text
        self.out.append(BadCall(call.index, call.id, call.name, raw, call.void or reason))

    def recovered(self, problem: str) -> None:
        """A slip was absorbed (policy M): noted, and the call flagged."""
        self.note(problem)
        if self.call is not None:
            self.call.flags.add("recovered")

    def _release_deferred(self) -> None:
        """Calls without markup of their own are loose if anything visible stood around them (A7)."""
        for call in self.deferred:
            flags = (call.flags - {"guard"}) | ({"loose"} if self.text.seen else frozenset())
            self.out.append(ToolCall(call.id, call.name, call.arguments, call.index, flags))
        self.deferred = []

    # --- calls in reasoning, and limits -------------------------------------------------------------------------

    def set_aside(self, hold: Hold) -> None:
        """Calls in open reasoning begin here (rule 6)."""
        self.aside = Aside(self, hold)
        self.out = []
        self.state = self.plan.text

    def take_back(self, upto: str) -> None:
        """They were reasoning after all; `upto` is the marker that ended it."""
        aside = self.aside
        assert aside is not None
        if self.size(aside.hold) > HELD:
            raise Overflow
        text = self.held(aside.hold)
        self._restore(aside)
        self.say(text[: len(text) - len(upto)])

    def _restore(self, aside: Aside) -> None:
        self.holds = []
        self.out, self.text, self.reasoning = self._ready, aside.text, aside.reasoning
        self.index, self.call, self.aside = aside.index, None, None
        del self.problems[aside.problems :]
        del self.deferred[aside.deferred :]
        self.dialect, self.plan = aside.read_as
        self.state = aside.hold.state

    def _recover(self) -> None:
        """Rule 7: the outermost hold is too long."""
        hold = self.holds[0]
        text = self.held(hold)
        if self.aside is not None:
            self._restore(self.aside)
        self.holds = []
        self.call = None
        self.state = hold.state
        self.note(f"held text over {HELD} characters: released as text")
        self.say(text[:HELD])
        self.buf = text[HELD:] + self.buf[self.pos :]
        self.pos = 0

    def give_back(self, text: str) -> None:
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
