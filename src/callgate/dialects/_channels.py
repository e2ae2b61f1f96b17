"""Messages with a header that tells what the body is: harmony and its like.

Law: a header is read to its `<|message|>`, its parts in any order; an unknown channel is shown, not lost.
(tests/test_dialects.py::test_what_the_prompt_has_begun_is_read_as_if_the_model_had_written_it)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, ClassVar, Final

from callgate.dialects._calls import read_payload
from callgate.dialects._ends import resync, surplus_brackets
from callgate.dialects._marks import marks
from callgate.dialects._plain import CODE_TOOLS, code_tool
from callgate.dialects._plan import CHANNEL, CLOSE, END, MarkerRule, State
from callgate.dialects._spec import Calls, Channels, JsonArgs, Payload, Raw, Texts
from callgate.dialects._take import Broken, Cut, Parse, accept, char, look, peek, spaces, until

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

HEADER: Final = 512
"""Characters of a header."""

_LOST: Final = "analysis"
_LOST_CALL: Final = "assistantcommentary"
_LOST_REASONING: Final = State(
    [MarkerRule(CLOSE, "assistantfinal", region=0), MarkerRule(CHANNEL, _LOST_CALL)], suffix=False, reasoning=True
)
_BRACE: Final = marks(("{",))
_TAGGED_BODIES: Final = {"<atem:": "glimmer_atem", "<rfl:": "beam"}
_TO: Final = re.compile(r"\bto=([^\s<|]+)")
_CHANNEL: Final = re.compile(r"<\|channel\|>\s*([\w\-]*)")
_REASONING: Final = ("analysis",)
_TEXT: Final = ("final", "commentary")
_TO_REASONING: Final = ("self",)
"""Channels and a recipient that decide; gpt-oss' own cookbook names them."""
_SHAPE: Final = re.compile(r"[\w\s.\-:/=<|>]*+")
_START_OF_HEADER: Final = ("to=", "<|")
_START_WITHOUT_PROMPT: Final = ("to=",)


class Headers:
    """How a family's headers are read, and what they make of their bodies: as harmony does it.

    An object of this class has no state. A family that differs derives its own beside its dialect.
    """

    to_text: ClassVar[Texts] = ("user", "all")
    """Recipients whose messages people see."""
    to_nobody: ClassVar[Texts] = ("assistant", "developer", "system")
    """Recipients that are none: the channel decides."""

    # --- reading a header ---------------------------------------------------------------------------------------

    def begin(self, r: Reading, written: str, *, prompted: bool) -> Parse[bool]:
        """The message's start, where a header may stand that the prompt began: `written` is what it holds of it.

        Without a prompt (not `prompted`) only what names its recipient is a header.
        """
        channels = channels_of(r)
        r.framed = True
        if any(body in written for body in channels.body):
            yield from _rest_of_body(r, channels, written)
            r.mark()
            yield from self.route(r, channels, written)
            return True
        own = r.hold(r.pos)
        try:
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
            if written or "<|" in held or (prompted and _TO.search(held)):
                r.commit(own)
                return True
            r.release(own)
            return False
        head = written + r.held(own)
        r.commit(own)
        yield from self.route(r, channels, head)
        return True

    def message(self, r: Reading, hold: LookAhead, opener: str) -> Parse[bool]:
        """One message whose header has begun by its opener. False: it was text."""
        channels = channels_of(r)
        try:
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
            r.commit(hold)
            return True
        head = r.held(hold)
        r.commit(hold)
        yield from self.route(r, channels, head)
        return True

    # --- what a header means ------------------------------------------------------------------------------------

    def route(self, r: Reading, channels: Channels, head: str) -> Parse[None]:
        """What a header makes of its body."""
        recipient, name = self.address(r, head)
        r.break_line()
        if recipient and recipient not in self.to_text and recipient not in _TO_REASONING:
            yield from self.call(r, channels, recipient)
            # only now: in a body for the user that has not ended, a call is a quotation
            r.addressed = False
            return
        r.addressed = recipient in self.to_text or (not recipient and name == "final")
        if recipient in _TO_REASONING or (not recipient and name in _REASONING):
            r.state = states_of(channels).reasoning
            return
        self.show(r, recipient, name)

    def show(self, r: Reading, recipient: str, name: str) -> None:
        """The body is text; so is one on a channel that nobody knows, for it is better shown than lost."""
        if name and not recipient and name not in _TEXT:
            r.note(f"unknown channel {name!r}: shown as text")
        r.state = r.plan.text

    def address(self, r: Reading, head: str) -> tuple[str, str]:
        """(recipient, channel) of a header, the last of each; "" for none."""
        recipient = (_TO.findall(head) or [""])[-1]
        if recipient in self.to_nobody and recipient not in r.known:
            recipient = ""
        return recipient, ([name for name in _CHANNEL.findall(head) if name] or [""])[-1]

    def call(self, r: Reading, channels: Channels, recipient: str) -> Parse[None]:
        """A body that is a call's arguments."""
        name = tool_of(recipient)
        if (yield from peek(r)) == "<":
            which = yield from look(r, r.marks(tuple(_TAGGED_BODIES)))
            if which >= 0:  # the same frame around tags: Glimmer, Beam
                r.become(tuple(_TAGGED_BODIES.values())[which])
                channels = channels_of(r)
                if isinstance(channels.headers, Headers):
                    yield from channels.headers.call(r, channels, recipient)
                return
        payload: Payload = JsonArgs()
        if name in CODE_TOOLS and not (yield from _object_or_nothing(r, channels)):
            payload = Raw()
            name = name if name in r.known else code_tool(r)
        yield from call_in_body(r, channels, name, payload)


HARMONY: Final = Headers()


def channels_of(r: Reading) -> Channels:
    """The channels of the dialect that is read, which has some."""
    channels = r.dialect.channels
    assert channels is not None
    return channels


def tool_of(recipient: str) -> str:
    """The tool that a recipient names: `functions.NAME`, `NAME.NAME` or `NAME`."""
    name = recipient.removeprefix("functions.")
    half, dot, other = name.partition(".")
    return half if dot and half == other else name


def _rest_of_body(r: Reading, channels: Channels, written: str) -> Parse[None]:
    """What the prompt left out of the marker that it ends with: LLM-jp's has a blank at its end."""
    rests = {
        full.removeprefix(body)
        for body in channels.body
        if written.endswith(body)
        for full in channels.body
        if full.startswith(body) and full != body
    }
    if rests:
        yield from accept(r, r.marks(tuple(rests)))


def _lost_tokens(r: Reading, hold: LookAhead) -> Parse[bool]:
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


@dataclass(frozen=True, slots=True)
class BodyStates:
    """The states of the bodies that are no content."""

    dropped: State
    reasoning: State


@lru_cache(maxsize=32)
def states_of(channels: Channels) -> BodyStates:
    """The states of a dropped and of a reasoning body."""
    rules = [MarkerRule(CLOSE, text, region=0) for text in channels.end]
    rules += [MarkerRule(END, text) for text in channels.start]
    return BodyStates(State(rules, suffix=False, silent=True), State(rules, suffix=False, reasoning=True))


def payload_of(r: Reading, spec: Calls) -> Parse[bool]:
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


def call_in_body(r: Reading, channels: Channels, name: str, payload: Payload) -> Parse[None]:
    """A call whose arguments are a body, and that body's end."""
    spec = Calls(payload, close=channels.end, open=channels.start, closed_by_end=True)
    r.open_call(name.strip() or None)
    if not (yield from payload_of(r, spec)):
        return
    if isinstance(payload, JsonArgs):
        yield from surplus_brackets(r)
    gap = yield from spaces(r)
    if (yield from accept(r, r.marks(channels.end))) < 0 and (yield from char(r)) != "":
        if (yield from look(r, r.marks(channels.start))) < 0:
            r.recovered("closing marker missing after a call")
        r.settle_call()
        r.emit_text(gap)
    r.settle_call()


def _object_or_nothing(r: Reading, channels: Channels) -> Parse[bool]:
    """Whether the body of a call for the code tool is arguments as for any other tool, and no raw code."""
    return (yield from peek(r)) in ("{", "") or (yield from look(r, r.marks(channels.end))) >= 0
