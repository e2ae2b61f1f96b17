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
from callgate.dialects._plain import CODE_TOOLS, code_tool
from callgate.dialects._plan import CLOSE, END, Rule, State
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls, Channels, JsonArgs, Raw
from callgate.dialects._take import Broken, Cut, Parse, accept, char, look, peek, spaces, until

HEADER: Final = 512
"""Characters of a header."""

_LOST: Final = "analysis"
_LOST_REASONING: Final = State([Rule(CLOSE, "assistantfinal", region=0)], suffix=False, reasoning=True)
_TAGGED_BODIES: Final = {"<atem:": "glimmer_atem", "<rfl:": "beam"}
_TO: Final = re.compile(r"\bto=([^\s<|]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*([\w\-]*)")
_SHAPE: Final = re.compile(r"[\w\s.\-:/=<|>]*+")
_NAME: Final = re.compile(r"[\w.\-:/]*+")
_START_OF_HEADER: Final = re.compile(r"\s*(?:to=|<\|)")


def channel(r: Reading, hold: Hold | None, opener: str = "") -> Parse[bool]:
    """One message whose header has begun, by its opener or (no hold) by the prompt. False: it was text."""
    channels = r.dialect.channels
    assert channels is not None
    at_start = hold is None
    own = hold if hold is not None else r.hold(r.pos)
    body = r.marks(channels.body)
    try:
        if at_start and "<|message|>" in channels.body and (yield from _lost_tokens(r, own)):
            return True
        if channels.recipient:
            name = (yield from until(r, body, shape=_NAME)).strip()
            if not name:
                raise Broken
            yield from accept(r, body)
            yield from _to_recipient(r, channels, own, name)
            return True
        if at_start:
            yield from _must_be_header(r)
        if opener not in channels.body:
            yield from until(r, body, limit=HEADER, shape=_SHAPE)
            yield from accept(r, body)
    except Broken:
        r.release(own)
        return False
    except Cut:
        if channels.recipient or (at_start and not _TO.search(r.held(own)) and "<|" not in r.held(own)):
            r.release(own)
            return False
        r.commit(own)
        return True
    head = r.held(own)
    r.commit(own)
    if channels.space and (yield from char(r)) == " ":
        r.pos += 1
    yield from _route(r, channels, head)
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


def _must_be_header(r: Reading) -> Parse[None]:
    """Text that follows the prompt directly is a header only if it looks like one."""
    while True:
        rest = r.buf[r.pos :]
        if _START_OF_HEADER.match(rest):
            return
        begun = rest.lstrip()
        if (
            r.over
            or (begun and not "to=".startswith(begun[:3]) and not "<|".startswith(begun[:2]))
            or len(rest) > HEADER
        ):
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
        name = code_tool(r)
        spec = Calls(Raw(), open=channels.start, close=channels.start)
    r.commit(hold)
    r.open_call(name)
    try:
        yield from read_payload(r, spec, {})
    except Cut:
        r.drop_call("truncated")
        return
    except Broken:
        yield from resync(r, spec)
        return
    gap = yield from spaces(r)
    r.settle_call()
    r.say(gap)


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
    try:
        yield from read_payload(r, spec, {})
    except Cut:
        r.drop_call("truncated")
        return
    except Broken:
        yield from resync(r, spec)
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
