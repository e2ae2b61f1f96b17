"""The one reader of all dialects: text in, deltas out.

Law: the result never depends on how the text was cut (R1).
(tests/test_dialects_laws.py::test_noise_of_markers_is_read_the_same_for_every_cut)

Theory of operation
===================
The message is in one of these states; `Reading` holds what each knows, `_plan` what each marker means in it.

 S1  Content. Text goes to the content's *sink*.
 S2  A region of the dialect: reasoning, whose text goes to the reasoning's sink, or one whose text is dropped.
 S3  A marker was met and a grammar reads on, under a *hold*: it is not yet known whether this is markup.
 S4  A call is in progress: its name is out, its arguments go out as they come.
 S5  Calls in open reasoning: S1 to S4 again, with their deltas kept apart: a *speculation*.

 1  Scanning (S1, S2). A character that can begin no marker goes out at once. One that can is looked at with what
    follows, until it is a marker or cannot be one; only that much is held back (R3).
 2  White space at the end of what went out waits in the sink: it is dropped if only markup follows (policy W).
 3  Grammars are generators: straight code that yields when it needs more text. They look at `buf[pos:]` and take what
    is certain by moving `pos` forward; what a broken call swallowed is read again through `unread` alone. `over` tells
    them that nothing more will come; then they yield no more. Each decision depends on characters alone, never on where
    a chunk ended: that is the proof of R1.
 4  A hold (S3) is committed (it is markup: S4, or back to S1 or S2) or released: its text goes out, byte for byte, and
    scanning goes on at the character that disproved it (R2), so no character is read twice for that (R6).
 5  A committed call gets the next index and ends in exactly one ToolCall or BadCall. What follows a call tells whether
    its closer was missing, so the ToolCall waits for the next visible character or the end. A call that cannot be read
    ends at the next closer or opener (R5); one that the text's end cuts off takes all that is left (R4). Calls without
    markup of their own wait for the end: only then it is known whether they stood alone (A7).
 6  Calls in open reasoning (S5, policy K) are read under a hold of their own. The reasoning's end makes them reasoning
    after all; the end of the text makes them calls.
 7  Limits. No hold grows beyond HELD: its first HELD characters are released, and reading goes on behind them. So it
    is with white space, arguments, calls and problems: each limit counts characters or things, never chunks.
 8  Fast paths. `_mode` tells what the generator waits for, so that it is not woken for a chunk that cannot bring it:
    plain text, where a chunk without a marker's first character goes out (PLAIN); arguments (JSON, KEY) and tagged
    values (VALUE) that go on; a name (UNTIL), a marker or a header (AHEAD), the head of a call (CALM) that are not yet
    complete. Text that goes out at once needs no record, for no hold is open then; text that waits stays in `buf`,
    behind the cursor. What a model nearly always writes is looked at ahead as one `Shape`; whatever else it may be, the
    grammar reads it from its first character on. A reader without any of this gives the same deltas
    (tests/test_dialects_fast.py).
 9  Meant or mentioned (A7). Where a call begins, `_place` tells what the text before it means for it; the rest of its
    line is awaited before its ToolCall goes out, unless its marker is a special token.

A chunk longer than SLICE is read in slices, so that rule 7 costs the same whatever the cuts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from callgate.dialects._auto import choose
from callgate.dialects._calls import read_calls
from callgate.dialects._items import guarded
from callgate.dialects._json import FIRST_KEY
from callgate.dialects._marks import PARTIAL
from callgate.dialects._plan import MarkerRule, State, begun_header
from callgate.dialects._python import python_calls
from callgate.dialects._reading import (
    AHEAD,
    ARGUMENTS,
    CALM,
    HELD,
    JSON,
    KEY,
    LOOK_AHEAD,
    PLAIN,
    SLOW,
    UNTIL,
    VALUE,
    LookAhead,
    Overflow,
    Parse,
    Reading,
)
from callgate.dialects._sink import SPACE, TextSink
from callgate.dialects._spec import Channels, Dialect, Literals, Undecided
from callgate.dialects._take import known, peek
from callgate.jsonstream import needs_quoting
from callgate.types import BadCall, CallDelta, Delta, TextDelta, ToolCall, ToolSpec

SLICE: Final = 16_384
_new: Final = object.__new__
Ends: TypeAlias = Callable[[ToolCall | BadCall], ToolCall | BadCall]
_USERS_HEADER: Final = re.compile(r"(?:<\|channel\|>\s*final|\bto=user)[^<]{0,64}<\|message\|>")


class Reader(Reading):
    """Reads one message in one dialect. `feed` and `finish` never raise, whatever the text."""

    __slots__ = ("_ends", "_gen", "_tail")

    def __init__(
        self, dialect: Dialect, tools: Sequence[ToolSpec] = (), prompt_tail: str = "", ends: Ends | None = None
    ) -> None:
        """`ends` gives each finished call the form in which it goes out (its id)."""
        super().__init__(dialect, tools, prompt_tail)
        self._tail = prompt_tail
        self._ends = ends
        begun = self.plan.begun(prompt_tail) if self.state is self.plan.text else None
        self._gen = self._main(begun_header(dialect.channels, prompt_tail), begun, prompted=bool(prompt_tail.strip()))

    # --- text in ------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Delta]:
        """Deltas that are now certain."""
        mode = self._mode
        if mode == PLAIN:  # rule 8, in one function: it runs once a token
            if self.buf:
                text = self.buf + text
                self.buf = ""
            one = self._one
            if one and one not in text and not (self._two and self._two in text):
                plain: str | None = text
            else:
                plain = self._before_marker(text, self.state)
            if plain is not None:
                sink = self._plain_sink
                sink.pieces.append(plain)
                shown = plain.rstrip()
                if shown is not plain or not plain:
                    if not shown or len(plain) > SPACE:
                        return sink.rare(plain)
                    space = plain[len(shown) :]
                    if sink.space:
                        shown = sink.space + shown
                    sink.space = space
                elif sink.space:
                    shown = sink.space + plain
                    sink.space = ""
                sink.shown.append(shown)
                delta = _new(sink.make)  # a dataclass' own constructor costs a fifth more
                delta.text = shown
                return [delta]
        elif mode != SLOW and text:
            found = _WAITING[mode](self, text)
            if found is not None:
                return found
        return self._read(text)

    def _read(self, text: str) -> list[Delta]:
        """The slow path: the generator goes on with this text."""
        if self.over or not text:
            return []
        if len(text) <= SLICE and not self.holds:
            self.buf = self.buf[self.pos :] + text
            self.pos = 0
            self._mode = SLOW
            next(self._gen, None)
            if self.holds and self.size(self.holds[0]) > HELD:
                self._throw()
        else:
            for start in range(0, len(text), SLICE):
                self.refill(text[start : start + SLICE])
                self._step()
        return self._take() if self._ready else []

    @property
    def content(self) -> str:
        """The content that has come out so far."""
        return self._shown(self.text if self.speculation is None else self.speculation.text)

    @property
    def thoughts(self) -> str:
        """The reasoning that has come out so far."""
        return self._shown(self.reasoning if self.speculation is None else self.speculation.reasoning)

    def _shown(self, sink: TextSink) -> str:
        return "".join(sink.shown if self.speculation is None else sink.shown[: sink.kept])

    def _before_marker(self, text: str, state: State) -> str | None:
        """The text, without a marker's beginning at its end, which is kept; None: there is a marker."""
        if state.lined and "\n" not in text and "\n" not in self._plain_sink.space:
            return text  # no marker counts in the middle of a line
        if not state.one and not state.lined and state.alert(text) is None:
            return text
        found = state.glance(text)
        if found is None:
            return text
        if found.lastindex is not None:
            return None
        self.buf = found.group()
        return text[: found.start()]

    def _in_shape(self, text: str) -> list[Delta] | None:
        """A marker or a header goes on; None: it is complete, or it is none."""
        buf = self.buf + text
        if self._begun(buf, self.pos) is None or len(buf) - self.pos > LOOK_AHEAD:
            return None
        self.buf = buf
        return []

    def _in_calm(self, text: str) -> list[Delta] | None:
        """The head of a call goes on; None: it may be complete."""
        if self._calm(text) is None or len(self.buf) - self.pos > LOOK_AHEAD:
            return None
        self.buf += text
        return []

    def _at_key(self, text: str) -> list[Delta] | None:
        """The first key of arguments begins; None: it may be the one that wraps them."""
        if FIRST_KEY(text) is None:
            return None
        self._mode = JSON
        return self._in_json(text)

    def _in_json(self, text: str) -> list[Delta] | None:
        """JSON arguments go on; None: they may end here, or have to be refused."""
        scan, call = self._scan, self.call
        if scan is None or call is None or call.size + len(text) > ARGUMENTS:
            return None
        if '"' in text or "\\" in text or not scan.in_string or scan.escaped:
            if len(text) > SLICE:
                return None
            scan.end = scan.feed(text)
            if scan.end is not None:  # the grammar, which gets this very text, is told where they end
                return None
        call.size += len(text)
        call.parts.append(text)
        return [CallDelta(call.index, None, None, text)]

    def _in_name(self, text: str) -> list[Delta] | None:
        """A key or a name goes on; None: it may end here."""
        wake, shape, taken, limit = self._until
        if wake(text) is not None:
            return None
        whole = taken + self.buf[self.pos :] + text
        if len(whole) > limit or shape.fullmatch(whole) is None:
            return None
        self.buf += text
        return []

    def _in_value(self, text: str) -> list[Delta] | None:
        """A tagged string value goes on; None: it may end here."""
        call, value = self.call, self._value
        if self._stop in text or call is None or value is None:
            return None
        if value.carry or needs_quoting(text) or call.size + len(text) > ARGUMENTS:
            value.text(text)
            return self._take()
        call.size += len(text)
        call.parts.append(text)
        return [CallDelta(call.index, None, None, text)]

    def finish(self) -> list[Delta]:
        """The text is over: everything still held comes out. A second call gives nothing."""
        if self.over:
            return []
        self.over = True
        self._step()
        if self.speculation is not None:  # rule 6: the reasoning never closed
            self._ready.extend(self.out)
            self.out = self._ready
            self.line = [*self.speculation.line, *self.line]
            self.speculation = None
        sink = self.text
        if sink.space and not sink.after and (sink.seen or not sink.marked):
            sink.put(self.out, sink.space)
        sink.space = ""
        self._end_line()
        if self.index:
            sink.place.settle()
        self._release_deferred()
        return self._take() if self.out else []

    @property
    def reasoned(self) -> int:
        """So many calls, from the first on, were thoughts: reasoning that the prompt had opened closed after them."""
        return self.text.place.reasoned

    def as_written(self, text: str) -> str:
        """A message of this dialect without its reasoning and end-of-turn tokens, and with its calls as text.

        For a message whose calls were only mentioned: then this is the answer.
        """
        if self.dialect.channels is not None:
            return _for_the_user(text, self.dialect.channels)
        plain = Reader(self.dialect.but(calls=()), (), self._tail)
        deltas = [*plain.feed(text), *plain.finish()]
        return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) or text

    def _step(self) -> None:
        self._mode = SLOW
        next(self._gen, None)
        if self.holds:
            self._throw()

    def _throw(self) -> None:
        """Tell the grammar of holds that are too long (rule 7)."""
        while self.holds and self.size(self.holds[0]) > HELD:
            try:
                self._gen.throw(Overflow)
            except StopIteration:
                return

    def _take(self) -> list[Delta]:
        out = self._ready
        fresh: list[Delta] = []
        if self.out is out:
            self.out = fresh
        self._ready = fresh
        ends = self._ends
        if ends is not None and out and (len(out) > 1 or isinstance(out[0], (ToolCall, BadCall))):
            return [ends(delta) if isinstance(delta, (ToolCall, BadCall)) else delta for delta in out]
        return out

    def _main(self, head: str | None, rule: MarkerRule | None, *, prompted: bool) -> Parse[None]:
        while True:
            try:
                if head is not None:
                    written, head = head, None
                    assert self.dialect.channels is not None
                    yield from self.dialect.channels.headers.begin(self, written, prompted=prompted)
                elif rule is not None:
                    begun, rule = rule, None
                    yield from act(self, begun, self.hold(0))
                while not (self.over and self.pos >= len(self.buf)):
                    found = scan(self)
                    if found is not None:
                        first = self.index
                        self.spans.append((first, len(self.buf) - found[1].mark))
                        yield from act(self, *found)
                        self._end_span(first)
                    elif not self.over:
                        yield
                if self.speculation is not None and self.size(self.speculation.hold) > HELD:
                    raise Overflow
            except Overflow:
                self._recover()
            else:
                self.settle_call()
                return

    def _end_span(self, first: int) -> None:
        """Calls end here, if any did: `first` is the index that the first of them had."""
        if self.index > first:
            self.spans.append((~first, len(self.buf) - self.pos))
        elif self.spans and self.spans[-1][0] == first:
            self.spans.pop()


_WAITING: Final = {
    AHEAD: Reader._in_shape,
    CALM: Reader._in_calm,
    KEY: Reader._at_key,
    JSON: Reader._in_json,
    UNTIL: Reader._in_name,
    VALUE: Reader._in_value,
}
"""What goes on in the middle of a call (rule 8)."""


def _for_the_user(text: str, channels: Channels) -> str:
    """The body that a message with headers addresses to the user; all of it if no header does."""
    header = _USERS_HEADER.search(text)
    body = text[header.end() :] if header is not None else text
    for end in channels.end:
        body = body.removesuffix(end)
    return body


# --- scanning ---------------------------------------------------------------------------------------------------------


def scan(r: Reader) -> tuple[MarkerRule, LookAhead] | None:
    """MarkerRule 1: up to and including one marker of the present state; None: more text is needed."""
    state = r.state
    i = r.pos
    while True:
        which, start, end = state.marks.find(r.buf, i, r.over)
        if start > r.pos:
            r.emit_text(r.buf[r.pos : start])
            r.pos = start
        if which < 0:
            sink = r.sink
            if sink.seen and not sink.after and not state.silent and not r.holds:
                r.wait_in_text(sink)
            elif which == PARTIAL:
                r.wait_ahead(state.marks.begun)
            return None
        rule = state.rules[which]
        if not _counts(r, rule):
            r.emit_text(r.buf[start])
            r.pos = i = start + 1
            continue
        hold = r.hold(start)
        r.pos = end
        return rule, hold


def _counts(r: Reader, rule: MarkerRule) -> bool:
    """Whether a marker counts where it stands."""
    if rule.line and not r.sink.at_line_start():
        return False
    return not (rule.first and r.text.seen) and not (rule.fresh and r.reasoning.seen)


# The functions that only choose return the chosen grammar instead of running it: every generator between `_main` and
# the one that waits costs each chunk a step.


def act(r: Reader, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """What the marker that was just taken means. False: it was text, and was released."""
    r.framed = rule.special
    match rule.kind:
        case "call":
            return _call_in_reasoning(r, rule, hold) if r.state.reasoning else _call(r, rule, hold)
        case "channel":
            assert r.dialect.channels is not None
            return r.dialect.channels.headers.message(r, hold, rule.text)
        case "close":
            return known(_close(r, rule, hold))
        case "end":
            r.pos = hold.mark
            r.state = r.plan.text
        case "open":
            r.state = r.plan.regions[rule.region]
            if r.state.silent:
                r.note("an observation that the model invented: dropped")
        case "over":
            r.addressed = False
            r.state = r.plan.text if r.state is r.plan.answer else r.state
        case _:
            pass
    r.commit(hold)
    return known(True)


def _call(r: Reader, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    calls = rule.calls
    assert calls is not None
    if isinstance(calls.payload, Undecided):
        return _choose(r, rule, hold)
    if calls.read is not None:
        return calls.read(r, rule, hold)
    if calls.guard:
        if rule.text == "[" and r.dialect.name == "auto":
            return _json_or_python(r, rule, hold)
        if isinstance(calls.payload, Literals):
            return python_calls(r, calls, hold, {"guard"})
        return guarded(r, rule, hold)
    return read_calls(r, rule, hold)


def _json_or_python(r: Reader, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """`"auto"`: an unmarked list of either kind."""
    if (yield from peek(r)) == "{":
        return (yield from guarded(r, rule, hold))
    python = next(calls for calls in r.dialect.calls if calls.guard and isinstance(calls.payload, Literals))
    return (yield from python_calls(r, python, hold, {"guard"}))


def _choose(r: Reader, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """`"auto"`: read on in the dialect that this marker gives away, unless it was a false start."""
    name = yield from choose(r, rule.text)
    if not name:
        r.release(hold)
        return False
    before = r.dialect, r.plan, r.state
    r.become(name)
    committed = yield from act(r, r.plan.text.by_text[rule.text], hold)
    if not committed:
        r.dialect, r.plan, r.state = before
    return committed


def _close(r: Reader, rule: MarkerRule, hold: LookAhead) -> bool:
    """The end of a region; or a stray one, which is markup only where one may be expected."""
    if r.speculation is not None:  # rule 6: the reasoning did close
        r.roll_back(r.held(hold))
        r.mark()
        r.state = r.plan.text
    elif rule.region >= 0 or rule.always or not r.text.seen or r.text.after:
        r.text.place.thought(opened=r.state.reasoning)
        r.commit(hold)
        r.state = r.plan.text
    else:
        r.release(hold)
        return False
    return True


def _call_in_reasoning(r: Reader, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """MarkerRule 6: a well-formed call is set speculation, anything else is reasoning."""
    if r.speculation is not None:  # thinking was opened again: this call shares the fate of the one before
        if (yield from _call(r, rule, hold)):
            r.state = r.plan.text
        return True
    r.speculate(hold)
    speculation = r.speculation
    assert speculation is not None
    inner = r.hold(hold.mark)
    yield from _call(r, rule, inner)
    sound = (
        len(r.deferred) > speculation.deferred or bool(r.line) or any(isinstance(delta, ToolCall) for delta in r.out)
    )
    cut = r.over and r.pos >= len(r.buf) and any(isinstance(delta, BadCall) for delta in r.out)
    if not sound and not cut:
        r.roll_back("")
    return True
