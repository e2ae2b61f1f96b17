"""Calls in Python's own notation: `[name(key='value'), …]`, one a line, or `[TOOL: name(…)]`; and Gemma's objects.

Law: the name is certain at its bracket, and what is unmarked is a call only of a known tool.
(tests/test_dialects_laws.py::test_text_without_markup_comes_back_byte_for_byte)
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import after_call, closers_of, false_start, resync
from callgate.dialects._items import Block, items
from callgate.dialects._json import json_value
from callgate.dialects._literals import WORD_LIMIT, Style, text_scalar, value
from callgate.dialects._marks import marks
from callgate.dialects._spec import Calls, JsonItems, Literals
from callgate.dialects._take import Broken, Cut, Parse, accept, char, peek, spaces, until
from callgate.dialects._values import STRING_ONLY, types_of
from callgate.jsonstream import quote
from callgate.types import ToolSpec

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

_PAREN: Final = marks(("(",))
_EQUALS: Final = marks(("=", ":"))
_BARE: Final = re.compile(r"[^,()\n]*+")
_CALL_END: Final = re.compile(r"\)\s*+(\S)")
_NEXT_KEY: Final = re.compile(r",\s*+([\w.\-]*+)\s*+(\S)")
_AHEAD: Final = 320
"""Characters behind a comma or a bracket that tell what it is: white space and a name."""
_NAME: Final = re.compile(r"\s*+(?:[^\W\d][\w.\-/:]*+\s*+)?")
_KEY: Final = re.compile(r"\s*+(?:[^\W\d][\w.\-]*+\s*+)?")


def style_of(payload: Literals) -> Style:
    """The grammar of a payload's values."""
    return Style(payload.mark, payload.style == "words", bare_keys=payload.style == "gemma")


def gemma_object(r: Reading, payload: Literals) -> Parse[None]:
    """`{key:value,…}` as the arguments of the call in progress."""
    tool = r.tools.get(r.call.name or "") if r.call is not None else None
    known = tool.parameters.get("properties") if tool is not None else None
    names = known if isinstance(known, dict) else {}
    if (yield from peek(r)) == "(":
        r.recovered("round brackets around the arguments: read as curly ones")
    strings = frozenset(name for name in names if types_of(tool, name) == STRING_ONLY)
    yield from value(r, replace(style_of(payload), strings=strings), r.fragment)


def keywords(r: Reading, payload: Literals) -> Parse[None]:
    """`key=value, …)` or one JSON object and its bracket, the opening one taken."""
    here = yield from peek(r)
    if here == "{":
        yield from json_value(r, r.fragment, streams=True)
        here = yield from peek(r)
        if here not in (")", ""):
            raise Broken
        r.pos += len(here)
        return
    tool = r.tools.get(r.call.name or "") if r.call is not None else None
    begun = "{"
    while here != ")":
        if here == "":
            raise Cut
        key = (yield from until(r, _EQUALS, shape=_KEY)).strip()
        if not key:
            raise Broken
        r.pos += 1
        r.fragment(f'{begun}"{quote(key)}": ')
        begun = ", "
        yield from _keyword_value(r, payload, tool, key)
        here = yield from peek(r)
        if here == ",":
            r.pos += 1
            here = yield from peek(r)
        elif here != ")":
            raise Cut if here == "" else Broken
    r.pos += 1
    r.fragment("{}" if begun == "{" else "}")


def _keyword_value(r: Reading, payload: Literals, tool: ToolSpec | None, key: str) -> Parse[None]:
    """One parameter's value; what the schema calls a string needs no quotes where the dialect says so."""
    here = yield from peek(r)
    string = types_of(tool, key) == STRING_ONLY
    if payload.style == "words" and string and here not in ("", '"', "'", ")", ","):
        yield from _bare_string(r, tool, key)
    elif tool is not None and string and (here.isdigit() or here in "+-."):
        yield from text_scalar(r, style_of(payload), r.fragment)
    else:
        yield from value(r, style_of(payload), r.fragment)


def _bare_string(r: Reading, tool: ToolSpec | None, key: str) -> Parse[None]:
    """A string without quotes: up to the bracket that closes the call, or a comma before another parameter."""
    depth, taken = 0, ""
    while True:
        match = _BARE.match(r.buf, r.pos)
        assert match is not None
        taken += match.group()
        r.pos = match.end()
        here = yield from char(r)
        if here == "":
            raise Cut
        if here == "\n" or len(taken) > WORD_LIMIT:
            raise Broken
        if here == "," and (yield from _names_parameter(r, tool, key)):
            break
        if here == ")" and not depth and (yield from _ends_call(r)):
            break
        depth = max(0, depth + (here == "(") - (here == ")"))
        taken += here
        r.pos += 1
    r.fragment(f'"{quote(taken.strip())}"')


def _ahead(r: Reading, pattern: re.Pattern[str], limit: int) -> Parse[re.Match[str] | None]:
    """Whether this follows; nothing is taken. The pattern has to end with what decides."""
    while True:
        match = pattern.match(r.buf, r.pos)
        if match is not None or r.over or len(r.buf) - r.pos > limit:
            return match
        yield


def _ends_call(r: Reading) -> Parse[bool]:
    """Whether the round bracket here is the call's: its own closer follows, or the end of the text."""
    match = yield from _ahead(r, _CALL_END, _AHEAD)
    return match is None or match[1] == "]"


def _names_parameter(r: Reading, tool: ToolSpec | None, key: str) -> Parse[bool]:
    """Whether another parameter's name and its sign follow the comma here."""
    match = yield from _ahead(r, _NEXT_KEY, _AHEAD)
    if match is None or match[2] != "=":
        return False
    known = tool.parameters.get("properties") if tool is not None else None
    return match[1] != key and (match[1] in known if isinstance(known, dict) and known else True)


class _Listing:
    """Calls behind one opener: what separates them and what ends them."""

    __slots__ = ("calls", "guard", "lines", "listed", "payload")

    def __init__(self, calls: Calls, payload: Literals, *, guard: bool, lines: bool) -> None:
        self.calls = calls
        self.payload = payload
        self.guard = guard
        self.lines = lines
        self.listed = guard
        """The bracket of a list is open."""


def python_calls(r: Reading, calls: Calls, hold: LookAhead, flags: set[str], *, lines: bool = False) -> Parse[bool]:
    """Calls after their opener, or after an unmarked `[`; with `lines`, each on a line of its own.

    False: released as text.
    """
    payload = calls.payload
    assert isinstance(payload, Literals)
    listing = _Listing(calls, payload, guard="guard" in flags, lines=lines)
    here = yield from peek(r)
    if here == "[" and not listing.listed:
        r.pos += 1
        listing.listed = True
        here = yield from peek(r)
    if here == "{" and not listing.guard:  # a JSON list instead
        as_items = Calls(JsonItems(), open=calls.open, close=calls.close)
        return (yield from items(r, Block(r, as_items, flags, listed=listing.listed), hold))
    try:
        name = yield from _name(r)
        if listing.guard and name not in r.known:
            raise Broken
    except Broken:
        return (yield from false_start(r, calls, hold))
    except Cut:
        if listing.guard:
            r.release(hold)
            return False
        r.commit(hold)
        r.open_call(None, None, flags)
        r.drop_call("truncated")
        return True
    r.commit(hold)
    yield from _from_name(r, listing, name, flags)
    return True


def _from_name(r: Reading, listing: _Listing, name: str, flags: set[str]) -> Parse[None]:
    """All calls, the first one's name taken."""
    while True:
        r.open_call(name, None, flags)
        if not (yield from _arguments(r, listing)) or not (yield from _next(r, listing)):
            return
        try:
            name = yield from _name(r)
        except Broken:
            r.open_call(None, None, flags)
            yield from resync(r, listing.calls)
            return
        except Cut:
            r.open_call(None, None, flags)
            r.drop_call("truncated")
            return


def _name(r: Reading) -> Parse[str]:
    """`name(`. Raises Broken or Cut."""
    name = (yield from until(r, _PAREN, shape=_NAME)).strip()
    if not name:
        raise Broken
    r.pos += 1
    return name


def _arguments(r: Reading, listing: _Listing) -> Parse[bool]:
    """The arguments of the call in progress and their bracket; False: nothing sound follows."""
    try:
        yield from keywords(r, listing.payload)
    except Cut:
        r.drop_call("truncated")
        return False
    except Broken:
        yield from resync(r, listing.calls)
        return False
    if r.call is not None:
        r.call.complete = True
    return True


def _next(r: Reading, listing: _Listing) -> Parse[bool]:
    """Between calls. True: another one follows; False: they are over, and the last one is settled."""
    while True:
        gap = yield from spaces(r)
        here = yield from char(r)
        if here == "":
            r.settle_call()
            return False
        if here == "," and (listing.listed or listing.calls.close):
            r.pos += 1
            if (yield from peek(r)) != "]" or not listing.listed:
                return True
            continue
        taken = _bracket(r, listing, here)
        if taken == _SETTLED:
            return False
        if taken == _NO_BRACKET:
            return (yield from _over(r, listing, gap, here))


_NO_BRACKET, _GO_ON, _SETTLED = range(3)


def _bracket(r: Reading, listing: _Listing, here: str) -> int:
    """Take a bracket behind a call."""
    if here == "]" and listing.listed:
        r.pos += 1
        listing.listed = False
        if listing.calls.close:
            return _GO_ON
        r.settle_call()
        return _SETTLED
    if here not in "])}" or not listing.calls.close:
        return _NO_BRACKET
    r.pos += 1
    r.recovered("surplus bracket after a call: dropped")
    return _GO_ON


def _over(r: Reading, listing: _Listing, gap: str, here: str) -> Parse[bool]:
    """Neither comma nor bracket: the closer, another line's call (True), or something else."""
    calls = listing.calls
    if (yield from accept(r, closers_of(r, calls))) >= 0:
        yield from after_call(r, calls)
        return False
    if listing.lines and not listing.listed and "\n" in gap and here not in "<[":
        return True
    if calls.close or listing.listed:
        r.recovered("closing marker missing after a call")
    r.settle_call()
    r.emit_text(gap)
    return False
