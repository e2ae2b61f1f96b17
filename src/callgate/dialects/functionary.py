"""Functionary: 3.2's recipients after `>>>`, and 3.1's tags with Llama's code marker.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from callgate.dialects._channels import Headers, channels_of, payload_of
from callgate.dialects._code_tag import python_tag
from callgate.dialects._json import begins_arguments
from callgate.dialects._plain import code_tool
from callgate.dialects._spec import Calls, Channels, Dialect, JsonArgs, Raw
from callgate.dialects._take import Broken, Cut, Parse, accept, peek, spaces, until
from callgate.jsonstream import quote

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

_NAME: Final = re.compile(r"[\w.\-:/]*+")


class _Recipients(Headers):
    """A header is nothing but a name and a line's end; code for `python`, an object for the rest, text for `all`."""

    def begin(self, r: Reading, written: str, *, prompted: bool) -> Parse[bool]:
        r.framed = True
        return self._one(r, r.hold(r.pos), sure=prompted)

    def message(self, r: Reading, hold: LookAhead, opener: str) -> Parse[bool]:
        return self._one(r, hold, sure=True)

    def _one(self, r: Reading, hold: LookAhead, *, sure: bool) -> Parse[bool]:
        """`sure`: `>>>` was there, so that the name of a tool nobody knows is one."""
        body = r.marks(channels_of(r).body)
        try:
            name = (yield from until(r, body, shape=_NAME)).strip()
            if not name or not (sure or name in r.known or name in self.to_text):
                raise Broken
            yield from accept(r, body)
            yield from self._to(r, hold, name)
        except (Broken, Cut):
            r.release(hold)
            return False
        return True

    def _to(self, r: Reading, hold: LookAhead, name: str) -> Parse[None]:
        """The body of a message to that recipient. Raises Broken while it may still be text."""
        channels = channels_of(r)
        if name in self.to_text:
            r.commit(hold)
            r.state = r.plan.text
            r.addressed = True
            return
        r.addressed = False
        if name == "python" and (yield from peek(r)) != "{":
            r.commit(hold)
            r.open_call(code_tool(r))
            yield from self._code(r, channels)
            r.settle_call()
            return
        if (yield from peek(r)) != "" and not (yield from begins_arguments(r)):
            raise Broken
        r.commit(hold)
        r.open_call(name)
        if (yield from payload_of(r, Calls(JsonArgs(), open=channels.start))):
            gap = yield from spaces(r)
            r.settle_call()
            r.emit_text(gap)

    def _code(self, r: Reading, channels: Channels) -> Parse[None]:
        """Raw code up to the next message's header; the mark alone is code: doctests are full of it."""
        ends = r.marks((*channels.start, *r.dialect.drop))
        r.fragment('{"code":"')
        while True:
            which, start, end = ends.find(r.buf, r.pos, r.over)
            r.fragment(quote(r.buf[r.pos : start]))
            r.pos = start
            if which >= len(channels.start) or (which >= 0 and (yield from self._names_one(r, channels, end - start))):
                break
            if which >= 0:
                r.fragment(quote(r.buf[r.pos : r.pos + end - start]))
                r.pos += end - start
            elif r.over:
                break
            else:
                yield
        r.fragment('"}')

    def _names_one(self, r: Reading, channels: Channels, size: int) -> Parse[bool]:
        """Whether the mark here, of that size, and a known name make a header; nothing is taken."""
        hold = r.hold(r.pos)
        r.pos += size
        try:
            name = (yield from until(r, r.marks(channels.body), shape=_NAME)).strip()
        except (Broken, Cut):
            name = ""
        r.unread(r.unhold(hold))
        return name in self.to_text or name in r.known or (bool(name) and not r.known)


DIALECTS = (
    Dialect(
        "functionary_v31",
        "Functionary v3.1, Llama 3.1 user-defined form",
        calls=(
            Calls(JsonArgs(), open=("<function=",), close=("</function>",), header={"name": {">": ""}}),
            Calls(Raw(), open=("<|python_tag|>",), close=("<|eom_id|>", "<|eot_id|>"), read=python_tag),
        ),
        drop=("<|eot_id|>", "<|eom_id|>"),
    ),
    Dialect(
        "functionary_v32",
        "Functionary v3.2",
        channels=Channels((">>>",), ("\n",), (), (">>>",), _Recipients()),
        drop=("<|eot_id|>",),
    ),
)
