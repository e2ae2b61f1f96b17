"""What follows a call: its closer, a surplus one, a missing one; and where to go on after a call that broke.

Law: one bad call never costs the next (R5).
(tests/test_reader_breakers.py::test_one_bad_call_never_costs_the_next_one)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from callgate.dialects._marks import SPECIAL, Marks
from callgate.dialects._spec import Calls, JsonArgs, JsonItems, Literals
from callgate.dialects._take import CALLS, Parse, accept, char, peek, spaces

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

_STRINGS: Final = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)


def closers_of(r: Reading, calls: Calls) -> Marks:
    """A call's closers."""
    return r.marks(calls.close)


def surplus_brackets(r: Reading) -> Parse[None]:
    """Brackets right behind a call that has no closer belong to nothing (policy M)."""
    while (here := (yield from char(r))) and here in "}]":
        r.pos += 1
        r.recovered("surplus bracket after a call: dropped")


def after_call(r: Reading, calls: Calls) -> Parse[None]:
    """A call and its closer are over: surplus closers go, the call settles, white space stays text."""
    if calls.close == calls.open:  # one text at both ends: behind a call it begins the next one
        surplus = r.marks((*calls.inner, *calls.section_close))
    else:
        surplus = r.marks((*calls.inner, *calls.close, *calls.section_close))
    before = ""
    if r.pos < len(r.buf) and (here := r.buf[r.pos]) not in surplus.first and not here.isspace():
        r.settle_call()  # nearly always
        return
    if calls.inner:  # it has to come: what was cut off belongs to it
        before = yield from spaces(r)
        if (yield from accept(r, r.marks(calls.inner))) >= 0:
            before = ""
    while True:
        gap = before + (yield from spaces(r))
        before = ""
        which = yield from accept(r, surplus, swallow=False)
        if which < 0:
            break
        if surplus.texts[which] in calls.close and surplus.texts[which] not in calls.inner:
            r.recovered(f"surplus closing marker {surplus.texts[which]!r}: dropped")
    r.settle_call()
    if not calls.in_section:
        r.emit_text(gap)


def false_start(r: Reading, calls: Calls, hold: LookAhead | None, name: str | None = None) -> Parse[bool]:
    """What stands behind an opener cannot be read as a call. False: it is text (policy F), and was released.

    Between special tokens, which nobody types, it is one call that cannot be read, and is not shown (F against M).
    """
    if hold is not None:
        if not (r.framed and (yield from _closed(r, calls))):
            r.release(hold)
            return False
        r.commit(hold)
    r.open_call(name, None)
    yield from resync(r, calls)
    return True


def _closed(r: Reading, calls: Calls) -> Parse[bool]:
    """Whether a closer that is a special token follows; nothing is taken."""
    special = tuple(text for text in (*calls.close, *calls.section_close) if SPECIAL.search(text))
    if not special:
        return False
    closers = r.marks(special)
    hold = r.hold(r.pos)
    while True:
        which, start, _ = closers.find(r.buf, r.pos, r.over)
        r.pos = start
        if which >= 0 or r.over:
            break
        yield
    r.unread(r.unhold(hold))
    return which >= 0


def resync(r: Reading, calls: Calls, early: str = "", *, listed: bool = False) -> Parse[bool]:
    """The call in progress cannot be read: it is malformed, and reading goes on behind it.

    True: behind the object that broke, in the middle of its block (`listed`: or of its list).
    """
    call = r.call
    text = early or ("".join(call.parts) if call is not None else "")
    swallowed = _swallowed(text, calls) if isinstance(calls.payload, JsonItems | JsonArgs) else None
    if swallowed is not None:
        # a string was never closed and ran into the next call: give that back
        r.unread(text[swallowed:])
        r.drop_call("malformed", text[:swallowed])
        return False
    if isinstance(calls.payload, JsonArgs) and (begun := _begun(text, calls)):
        r.unread(begun)
        text = text[: -len(begun)]
    parts = [text]
    if isinstance(calls.payload, JsonItems) and r.index < CALLS and Loose(1).feed(text) is None:
        over = yield from _to_brace(r, calls, parts, listed=listed)
        if over is not None:
            return over
    yield from _to_marker(r, calls, parts)
    return False


def _ends_of(r: Reading, calls: Calls) -> Marks:
    """Where a call that cannot be read ends."""
    if _in_brackets(calls):  # `)]` tells more than `]`
        return r.marks((*(f"){close}" for close in calls.close), *calls.open))
    return r.marks((*calls.close, *calls.section_close, *calls.open, *calls.section))


def _in_brackets(calls: Calls) -> bool:
    return isinstance(calls.payload, Literals) and calls.payload.style == "words"


def _to_brace(r: Reading, calls: Calls, parts: list[str], *, listed: bool) -> Parse[bool | None]:
    """Look for the brace that closes a broken object of a block, up to the next marker.

    True: it is dropped, and another object follows; False: it is dropped; None: there is no such brace.
    """
    markers = _ends_of(r, calls)
    outer = Loose(1)
    outer.feed(parts[0])
    while True:
        which, start, _ = markers.find(r.buf, r.pos, r.over)
        close = outer.feed(r.buf[:start], r.pos)
        if close is not None:
            parts.append(r.buf[r.pos : close])
            r.pos = close
            goes_on = yield from _goes_on(r, calls, listed=listed)
            if not goes_on and calls.close:
                return None
            raw = "".join(parts)
            r.drop_call("malformed", raw[: Loose().feed(raw)])
            return goes_on
        parts.append(r.buf[r.pos : start])
        r.pos = start
        if which >= 0 or r.over:
            return None
        yield


def _to_marker(r: Reading, calls: Calls, parts: list[str]) -> Parse[None]:
    """Drop the call up to the next closer or opener, or to the end of the text."""
    markers = _ends_of(r, calls)
    while True:
        which, start, end = markers.find(r.buf, r.pos, r.over)
        parts.append(r.buf[r.pos : start])
        r.pos = start
        if which >= 0:
            break
        if r.over:
            parts.append(r.buf[r.pos :])
            r.pos = len(r.buf)
            break
        yield
    raw = "".join(parts)
    stop = Loose().feed(raw) or len(raw.rstrip())
    r.drop_call("malformed", raw[:stop])
    if which < 0:
        r.unread(raw[stop:])
        if calls.close and not _in_brackets(calls):  # no closer came: what is left belonged to the call
            r.pos = len(r.buf)
    elif markers.texts[which] not in (*calls.open, *calls.section):
        r.pos = end
        yield from after_call(r, calls)


def _goes_on(r: Reading, calls: Calls, *, listed: bool) -> Parse[bool]:
    """Whether a block goes on here, behind an object that broke: with another object, its list's or its fence's end."""
    hold = r.hold(r.pos)
    here = yield from peek(r)
    if here in (",", ";"):
        r.pos += 1
        found = (yield from peek(r)) == "{"
    else:
        found = here == "{" or (here == "]" and listed) or (here == "`" and calls.fence)
    r.unread(r.unhold(hold))
    return found


def _begun(text: str, calls: Calls) -> str:
    """What of the next call's opener was taken for JSON: "[" of "[TOOL_CALLS]"."""
    for opener in (*calls.section, *calls.open):
        for length in range(min(len(opener), len(text)), 0, -1):
            if text.endswith(opener[:length]):
                return opener[:length]
    return ""


def _swallowed(text: str, calls: Calls) -> int | None:
    """Where in `text` the next call's opener stands inside the last string."""
    last = next(reversed(list(_STRINGS.finditer(text))), None)
    if last is None or last.end() < len(text) - 8:
        return None
    for opener in (*calls.section, *calls.open):
        at = text.find(opener, last.start())
        if at >= 0:
            return at
    return None


class Loose:
    """Finds where brackets close in what is no JSON: quotes of both kinds respected, nothing else asked."""

    __slots__ = ("depth", "quote", "skip")

    def __init__(self, depth: int = 0) -> None:
        self.depth = depth
        self.quote = ""
        self.skip = False

    def feed(self, text: str, start: int = 0) -> int | None:
        """The index after the closing bracket, or None."""
        for i in range(start, len(text)):
            char = text[i]
            if self.skip:
                self.skip = False
            elif self.quote:
                if char == "\\":
                    self.skip = True
                elif char == self.quote:
                    self.quote = ""
            elif char in "\"'":
                self.quote = char
            elif char in "{[":
                self.depth += 1
            elif char in "}]":
                self.depth -= 1
                if self.depth <= 0:
                    return i + 1
        return None


def loose_end(r: Reading) -> Parse[None]:
    """The unmarked call in progress is malformed: it ends where its brackets close."""
    call = r.call
    parts = ["".join(call.parts)] if call is not None else []
    inner, outer = Loose(), Loose(1)
    if outer.feed(parts[0] if parts else "") is None:
        stop = inner.feed(parts[0] if parts else "")
        while True:
            end = outer.feed(r.buf, r.pos)
            upto = len(r.buf) if end is None else end
            if stop is None:
                stop = inner.feed(r.buf[r.pos : upto])
                parts.append(r.buf[r.pos : upto] if stop is None else r.buf[r.pos : r.pos + stop])
            r.pos = upto
            if end is not None or r.over:
                break
            yield
    r.drop_call("malformed", "".join(parts))
