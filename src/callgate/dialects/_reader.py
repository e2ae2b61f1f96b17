"""The one reader of all dialects: text in, deltas out.

One law: the result never depends on how the text was cut (R1).

Theory of operation
===================
The message is in one of these states; `Reading` holds what each knows, `_plan` what each marker means in it.

 S1  Content. Text goes to the content's *voice*.
 S2  A region of the dialect: reasoning, whose text goes to the reasoning's voice, or one whose text is dropped.
 S3  A marker was met and a grammar reads on, under a *hold*: it is not yet known whether this is markup.
 S4  A call is in progress: its name is out, its arguments go out as they come.
 S5  Calls in open reasoning: S1 to S4 again, with their deltas set *aside*.

 1  Scanning (S1, S2). A character that can begin no marker is said at once. One that can is looked at with what
    follows, until it is a marker or cannot be one; only that much is held back (R3).
 2  White space at the end of what was said waits in the voice: it is dropped if only markup follows (policy W).
 3  Grammars are generators: straight code that says `yield` when it needs more text. They look at `buf[pos:]`, take
    what is certain by moving `pos`, and never look back. `over` tells them that nothing more will come; then they
    yield no more. Each decision depends on characters alone, never on where a chunk ended: that is the proof of R1.
 4  A hold (S3) is committed (it is markup: S4, or back to S1 or S2) or released: its text is said, byte for byte, and
    scanning goes on at the character that disproved it (R2), so no character is read twice for that (R6).
 5  A committed call gets the next index and ends in exactly one ToolCall or BadCall. What follows a call tells whether
    its closer was missing, so the ToolCall waits for the next visible character or the end. A call that cannot be read
    ends at the next closer or opener (R5); one that the text's end cuts off takes all that is left (R4). Calls without
    markup of their own wait for the end: only then it is known whether they stood alone (A7).
 6  Calls in open reasoning (S5, policy K) are read under a hold of their own. The reasoning's end makes them reasoning
    after all; the end of the text makes them calls.
 7  Limits. No hold grows beyond HELD: its first HELD characters are released, and reading goes on behind them. So it
    is with white space, arguments, calls and problems: each limit counts characters or things, never chunks.
 8  Fast paths. `_mode` says that the generator sleeps in plain text, in a string argument or in a tagged value, where
    `feed` need only see that a chunk holds no marker's first character, or no quote and backslash. No hold is open
    then, so nothing has to be recorded.

A chunk longer than SLICE is read in slices, so that rule 7 costs the same whatever the cuts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from callgate.dialects._auto import choose
from callgate.dialects._calls import read_calls
from callgate.dialects._channels import begin, channel
from callgate.dialects._items import guarded
from callgate.dialects._plan import GUARD_OPENERS, Rule, State
from callgate.dialects._python import python_calls
from callgate.dialects._reading import (
    ARGUMENTS,
    HELD,
    PLAIN,
    SLOW,
    SPACE,
    STRING,
    VALUE,
    Hold,
    Overflow,
    Parse,
    Reading,
)
from callgate.dialects._spec import Dialect, Literals
from callgate.dialects._take import known, peek
from callgate.jsonstream import needs_quoting
from callgate.types import BadCall, CallDelta, Delta, TextDelta, ToolCall, ToolSpec

SLICE: Final = 16_384


class Reader(Reading):
    """Reads one message in one dialect. `feed` and `finish` never raise, whatever the text."""

    __slots__ = ("_gen",)

    def __init__(self, dialect: Dialect, tools: Sequence[ToolSpec] = (), prompt_tail: str = "") -> None:
        super().__init__(dialect, tools, prompt_tail)
        self._gen = self._main(self.plan.header(prompt_tail), bool(prompt_tail.strip()))

    # --- text in ------------------------------------------------------------------------------------------------

    def feed(self, text: str) -> list[Delta]:
        """Deltas that are now certain."""
        mode = self._mode
        if mode == PLAIN:
            if self.buf:
                text = self.buf + text
                self.buf = ""
            state = self.state
            one = state.one
            if one:
                plain = self._glance(text, state) if one in text or state.two in text else text
            elif state.lined:  # no marker counts in the middle of a line
                plain = self._glance(text, state) if "\n" in text or "\n" in self._speaker.space else text
            else:
                plain = text if state.alert(text) is None else self._glance(text, state)
            if plain is not None:
                voice = self._speaker
                space = voice.space
                body = plain.rstrip()
                if body is plain and not space:
                    return [voice.make(plain)] if plain else []
                if not body or len(plain) > SPACE:
                    return self._plain(plain)
                voice.space = plain[len(body) :]
                return [voice.make(space + body)]
        elif mode == STRING:
            if '"' not in text and "\\" not in text and (call := self.call) is not None and text:
                call.size += len(text)
                if call.size <= ARGUMENTS:
                    call.parts.append(text)
                    return [CallDelta(call.index, None, None, text)]
                call.size -= len(text)
        elif mode == VALUE and self._stop not in text and (call := self.call) is not None and text:
            value = self._value
            assert value is not None
            if value.carry or needs_quoting(text) or call.size + len(text) > ARGUMENTS:
                value.text(text)
                return self._take()
            call.size += len(text)
            call.parts.append(text)
            return [CallDelta(call.index, None, None, text)]
        if self.over or not text:
            return []
        if len(text) <= SLICE:
            self.refill(text)
            self._step()
        else:
            for start in range(0, len(text), SLICE):
                self.refill(text[start : start + SLICE])
                self._step()
        return self._take() if self._ready else []

    def finish(self) -> list[Delta]:
        """The text is over: everything still held comes out. A second call gives nothing."""
        if self.over:
            return []
        self.over = True
        self._step()
        if self.aside is not None:  # rule 6: the reasoning never closed
            self._ready.extend(self.out)
            self.out = self._ready
            self.aside = None
        voice = self.text
        if voice.space and not voice.after and (voice.seen or not voice.marked):
            self.out.append(TextDelta(voice.space))
        voice.space = ""
        self._release_deferred()
        return self._take()

    def _glance(self, text: str, state: State) -> str | None:
        """What of a chunk after plain text can be said; a marker's beginning at its end is kept.

        None: there is a marker, and that is the grammar's.
        """
        found = state.glance(text)
        if found is None:
            return text
        if found.lastindex is not None:
            return None
        self.buf = found.group()
        return text[: found.start()]

    def _plain(self, text: str) -> list[Delta]:
        out: list[Delta] = []
        if text:
            self._speaker.say(out, text)
        return out

    def _step(self) -> None:
        self._mode = SLOW
        next(self._gen, None)
        if self.holds:
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
        return out

    def _main(self, head: str | None, prompted: bool) -> Parse[None]:
        while True:
            try:
                if head is not None:
                    written, head = head, None
                    yield from begin(self, written, prompted=prompted)
                while not (self.over and self.pos >= len(self.buf)):
                    found = scan(self)
                    if found is not None:
                        yield from act(self, *found)
                    elif not self.over:
                        yield
                if self.aside is not None and self.size(self.aside.hold) > HELD:
                    raise Overflow
            except Overflow:
                self._recover()
            else:
                self.settle_call()
                return


# --- scanning ---------------------------------------------------------------------------------------------------------


def scan(r: Reader) -> tuple[Rule, Hold] | None:
    """Rule 1: up to and including one marker of the present state; None: more text is needed."""
    state = r.state
    i = r.pos
    while True:
        which, start, end = state.marks.find(r.buf, i, r.over)
        if start > r.pos:
            r.say(r.buf[r.pos : start])
            r.pos = start
        if which < 0:
            voice = r.voice
            if voice.seen and not voice.after and not state.silent and not r.holds:
                r.sleep_in_text(voice)
            return None
        rule = state.rules[which]
        if (rule.line and not r.voice.at_line_start()) or (rule.first and r.text.seen):
            r.say(r.buf[start])
            r.pos = i = start + 1
            continue
        hold = r.hold(start)
        r.pos = end
        return rule, hold


# The functions that only choose return the chosen grammar instead of running it: every generator between `_main` and
# the one that waits costs each chunk a step.


def act(r: Reader, rule: Rule, hold: Hold) -> Parse[bool]:
    """What the marker that was just taken means. False: it was text, and was released."""
    match rule.kind:
        case "call":
            return _call_in_reasoning(r, rule, hold) if r.state.reasoning else _call(r, rule, hold)
        case "channel":
            return channel(r, hold, opener=rule.text)
        case "close":
            return known(_close(r, rule, hold))
        case "end":
            r.pos = hold.mark
            r.state = r.plan.text
        case "open":
            r.state = r.plan.regions[rule.region]
            if note := r.dialect.regions[rule.region].note:
                r.note(note)
        case _:
            pass
    r.commit(hold)
    return known(True)


def _call(r: Reader, rule: Rule, hold: Hold) -> Parse[bool]:
    calls = rule.calls
    assert calls is not None
    if calls.hook == "choose":
        return _choose(r, rule, hold)
    if calls.guard and rule.text in GUARD_OPENERS:
        if rule.text == "[" and r.dialect.name == "auto":
            return _json_or_python(r, rule, hold)
        if isinstance(calls.payload, Literals):
            return python_calls(r, calls, hold, {"guard"})
        return guarded(r, rule, hold)
    return read_calls(r, rule, hold)


def _json_or_python(r: Reader, rule: Rule, hold: Hold) -> Parse[bool]:
    """`"auto"`: an unmarked list of either kind."""
    if (yield from peek(r)) == "{":
        return (yield from guarded(r, rule, hold))
    python = next(calls for calls in r.dialect.calls if calls.guard and isinstance(calls.payload, Literals))
    return (yield from python_calls(r, python, hold, {"guard"}))


def _choose(r: Reader, rule: Rule, hold: Hold) -> Parse[bool]:
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


def _close(r: Reader, rule: Rule, hold: Hold) -> bool:
    """The end of a region; or a stray one, which is markup only where one may be expected."""
    if r.aside is not None:  # rule 6: the reasoning did close
        r.take_back(r.held(hold))
        r.mark()
        r.state = r.plan.text
    elif rule.region >= 0 or rule.always or not r.text.seen or r.text.after:
        r.commit(hold)
        r.state = r.plan.text
    else:
        r.release(hold)
        return False
    return True


def _call_in_reasoning(r: Reader, rule: Rule, hold: Hold) -> Parse[bool]:
    """Rule 6: a well-formed call is set aside, anything else is reasoning."""
    if r.aside is not None:  # thinking was opened again: this call shares the fate of the one before
        if (yield from _call(r, rule, hold)):
            r.state = r.plan.text
        return True
    r.set_aside(hold)
    aside = r.aside
    assert aside is not None
    inner = r.hold(hold.mark)
    yield from _call(r, rule, inner)
    sound = len(r.deferred) > aside.deferred or any(isinstance(delta, ToolCall) for delta in r.out)
    cut = r.over and r.pos >= len(r.buf) and any(isinstance(delta, BadCall) for delta in r.out)
    if not sound and not cut:
        r.take_back("")
    return True
