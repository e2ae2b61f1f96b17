"""Messages with a header that says what the body is: harmony and its like.

One law: a header is read to its `<|message|>`, its parts in any order; a channel that nobody knows is shown, not lost.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from callgate.dialects._calls import read_payload
from callgate.dialects._ends import resync
from callgate.dialects._json import begins_arguments
from callgate.dialects._marks import marks
from callgate.dialects._plain import CODE_TOOLS, code_tool
from callgate.dialects._plan import CHANNEL, CLOSE, END, Rule, State
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls, Channels, JsonArgs, Raw
from callgate.dialects._take import Broken, Cut, Parse, accept, char, look, peek, spaces, until
from callgate.jsonstream import quote

HEADER: Final = 512
"""Characters of a header."""

_LOST: Final = "analysis"
_LOST_CALL: Final = "assistantcommentary"
_LOST_REASONING: Final = State(
    [Rule(CLOSE, "assistantfinal", region=0), Rule(CHANNEL, _LOST_CALL)], suffix=False, reasoning=True
)
_BRACE: Final = marks(("{",))
_TAGGED_BODIES: Final = {"<atem:": "glimmer_atem", "<rfl:": "beam"}
_TO: Final = re.compile(r"\bto=([^\s<|]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*([\w\-]*)")
_SHAPE: Final = re.compile(r"[\w\s.\-:/=<|>]*+")
_NAME: Final = re.compile(r"[\w.\-:/]*+")
_START_OF_HEADER: Final = ("to=", "<|")
_START_WITHOUT_PROMPT: Final = ("to=",)


def begin(r: Reading, written: str, *, prompted: bool) -> Parse[bool]:
    """The message's start, where a header may stand that the prompt began: `written` is what it holds of it.

    Without a prompt (not `prompted`) only what names its recipient is a header.
    """
    channels = r.dialect.channels
    assert channels is not None
    if any(body in written for body in channels.body) and not channels.recipient:
        if channels.space and written.endswith(channels.body) and (yield from char(r)) == " ":
            r.pos += 1
        r.mark()
        yield from _route(r, channels, written)
        return True
    own = r.hold(r.pos)
    try:
        if channels.recipient:
            return (yield from _recipient(r, channels, own, sure=prompted))
        if not written:
            if (yield from _lost_tokens(r, own)):
                return True
            yield from _must_be_header(r, _START_OF_HEADER if prompted else _START_WITHOUT_PROMPT)
        yield from until(r, r.marks(channels.body), limit=HEADER, shape=_SHAPE)
        yield from accept(r, r.marks(channels.body))
    except Broken:
        r.release(own)
        return False
    except Cut:
        held = r.held(own)
        if channels.recipient or not (written or "<|" in held or (prompted and _TO.search(held))):
            r.release(own)
            return False
        r.commit(own)
        return True
    yield from _body(r, channels, own, written)
    return True


def channel(r: Reading, hold: Hold, opener: str = "") -> Parse[bool]:
    """One message whose header has begun by its opener. False: it was text."""
    channels = r.dialect.channels
    assert channels is not None
    try:
        if channels.recipient:
            return (yield from _recipient(r, channels, hold))
        if opener == _LOST_CALL:
            yield from until(r, _BRACE, limit=HEADER, shape=_SHAPE)
            if not _TO.search(r.held(hold)):
                raise Broken
            hold.state = r.state = r.plan.text
        elif opener not in channels.body:
            yield from until(r, r.marks(channels.body), limit=HEADER, shape=_SHAPE)
            yield from accept(r, r.marks(channels.body))
    except Broken:
        r.release(hold)
        return False
    except Cut:
        if channels.recipient:
            r.release(hold)
            return False
        r.commit(hold)
        return True
    yield from _body(r, channels, hold, "")
    return True


def _body(r: Reading, channels: Channels, hold: Hold, written: str) -> Parse[None]:
    """A header is over: what follows is what it says."""
    head = written + r.held(hold)
    r.commit(hold)
    if channels.space and (yield from char(r)) == " ":
        r.pos += 1
    yield from _route(r, channels, head)


def _recipient(r: Reading, channels: Channels, hold: Hold, *, sure: bool = True) -> Parse[bool]:
    """A header that is nothing but a name. Raises Broken or Cut."""
    body = r.marks(channels.body)
    name = (yield from until(r, body, shape=_NAME)).strip()
    if not name or not (sure or name in r.known or name in channels.to_text):
        raise Broken
    yield from accept(r, body)
    yield from _to_recipient(r, channels, hold, name)
    return True


def _lost_tokens(r: Reading, hold: Hold) -> Parse[bool]:
    """A server that drops special tokens leaves `analysis…assistantfinal…`: no blank after the first word tells."""
    while len(r.buf) - r.pos <= len(_LOST) and not r.over:
        if not _LOST.startswith(r.buf[r.pos :]):
            return False
        yield
    rest = r.buf[r.pos : r.pos + len(_LOST) + 1]
    if not rest.startswith(_LOST) or not rest[len(_LOST) :].isalpha():
        return False
    r.pos += len(_LOST)
    r.commit(hold)
    r.note("the special tokens of the message are missing: read by the words they left")
    r.state = _LOST_REASONING
    return True


def _must_be_header(r: Reading, starts: tuple[str, ...]) -> Parse[None]:
    """Text that follows the prompt directly is a header only if it looks like one."""
    while True:
        rest = r.buf[r.pos :]
        begun = rest.lstrip()
        if begun.startswith(starts):
            return
        if r.over or len(rest) > HEADER or (begun and not any(start.startswith(begun) for start in starts)):
            if r.over and not begun:
                raise Cut
            raise Broken
        yield


def _route(r: Reading, channels: Channels, head: str) -> Parse[None]:
    to = _TO.findall(head)
    names = _CHANNEL.findall(head)
    name = next((n for n in reversed(names) if n), "")
    recipient = to[-1] if to else ""
    if recipient and recipient not in (*channels.to_text, *channels.to_reasoning, "assistant"):
        yield from _call(r, channels, recipient)
        return
    if recipient in channels.to_reasoning or (not recipient and name in channels.reasoning):
        r.state = _states(r.dialect.channels)[1]
        return
    if name and name not in (*channels.text, *channels.reasoning) and not recipient:
        r.note(f"unknown channel {name!r}: shown as text")
    r.state = r.plan.text


@lru_cache(maxsize=32)
def _states(channels: Channels | None) -> tuple[State, State]:
    """The states of a visible and of a reasoning body."""
    assert channels is not None
    rules = [Rule(CLOSE, text, region=0) for text in channels.end]
    rules += [Rule(END, text) for text in channels.start]
    return State([], suffix=False), State(rules, suffix=False, reasoning=True)


def _payload(r: Reading, spec: Calls) -> Parse[bool]:
    """The arguments of the open call. False: they cannot be read, and the call is settled."""
    try:
        yield from read_payload(r, spec, {})
    except Cut:
        r.drop_call("truncated")
        return False
    except Broken:
        yield from resync(r, spec)
        return False
    return True


def _to_recipient(r: Reading, channels: Channels, hold: Hold, name: str) -> Parse[None]:
    """Functionary 3.2: `NAME` and a line's end; code for `python`, an object for the rest, text for `all`."""
    spec = Calls(channels.payload, open=channels.start)
    if name in channels.to_text:
        r.commit(hold)
        r.state = r.plan.text
        return
    if name != "python" or (yield from peek(r)) == "{":
        if (yield from peek(r)) != "" and not (yield from begins_arguments(r)):
            raise Broken
    else:
        r.commit(hold)
        r.open_call(code_tool(r))
        yield from _code(r, channels)
        r.settle_call()
        return
    r.commit(hold)
    r.open_call(name)
    if not (yield from _payload(r, spec)):
        return
    gap = yield from spaces(r)
    r.settle_call()
    r.say(gap)


def _code(r: Reading, channels: Channels) -> Parse[None]:
    """Raw code up to the next message's header; the mark alone is code."""
    ends = r.marks((*channels.start, *r.dialect.drop))
    r.fragment('{"code":"')
    while True:
        which, start, end = ends.find(r.buf, r.pos, r.over)
        r.fragment(quote(r.buf[r.pos : start]))
        r.pos = start
        if which >= len(channels.start) or (which >= 0 and (yield from _names_one(r, channels, end - start))):
            break
        if which >= 0:
            r.fragment(quote(r.buf[r.pos : r.pos + end - start]))
            r.pos += end - start
        elif r.over:
            break
        else:
            yield
    r.fragment('"}')


def _names_one(r: Reading, channels: Channels, size: int) -> Parse[bool]:
    """Whether the mark here, of that size, and a known name make a header; nothing is taken."""
    hold = r.hold(r.pos)
    r.pos += size
    try:
        name = (yield from until(r, r.marks(channels.body), shape=_NAME)).strip()
    except (Broken, Cut):
        name = ""
    r.give_back(r.unhold(hold))
    return name in channels.to_text or name in r.known or (bool(name) and not r.known)


def _call(r: Reading, channels: Channels, recipient: str) -> Parse[None]:
    """A body that is a call's arguments."""
    name = recipient.removeprefix("functions.")
    half, dot, other = name.partition(".")
    name = half if dot and half == other else name
    if channels.marked:
        r.state = r.plan.text
        return
    if isinstance(channels.payload, JsonArgs) and (yield from peek(r)) == "<":
        which = yield from look(r, r.marks(tuple(_TAGGED_BODIES)))
        if which >= 0:  # the same frame around tags: Glimmer, Beam
            r.become(tuple(_TAGGED_BODIES.values())[which])
            channels = r.dialect.channels or channels
            if channels.marked:
                return
    payload = channels.payload
    if name in CODE_TOOLS and isinstance(payload, JsonArgs) and not (yield from _object_or_nothing(r, channels)):
        payload = Raw()
        name = name if name in r.known else code_tool(r)
    spec = Calls(payload, close=channels.end, open=channels.start, closed_by_end=True)
    r.open_call(name.strip() or None)
    if not (yield from _payload(r, spec)):
        return
    gap = yield from spaces(r)
    if (yield from accept(r, r.marks(channels.end))) < 0 and (yield from char(r)) != "":
        if (yield from look(r, r.marks(channels.start))) < 0:
            r.recovered("closing marker missing after a call")
        r.settle_call()
        r.say(gap)
    r.settle_call()


def _object_or_nothing(r: Reading, channels: Channels) -> Parse[bool]:
    """Whether the body of a call for the code tool is arguments as for any other tool, and no raw code."""
    return (yield from peek(r)) in ("{", "") or (yield from look(r, r.marks(channels.end))) >= 0
