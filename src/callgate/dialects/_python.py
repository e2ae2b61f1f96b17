"""Calls in Python's own notation: `[name(key='value'), …]`, one a line, or `[TOOL: name(…)]`; and Gemma's objects.

One law: the name is certain at its bracket, and what is unmarked is a call only of a known tool.
"""

from __future__ import annotations

import re
from typing import Final

from callgate.dialects._ends import after_call, closers_of, resync
from callgate.dialects._items import items
from callgate.dialects._json import json_value
from callgate.dialects._literals import Style, value
from callgate.dialects._marks import marks
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls, JsonItems, Literals
from callgate.dialects._take import Broken, Cut, Parse, accept, char, peek, spaces, until
from callgate.jsonstream import quote

_PAREN: Final = marks(("(",))
_EQUALS: Final = marks(("=", ":"))
_NAME: Final = re.compile(r"\s*+(?:[^\W\d][\w.\-/:]*+\s*+)?")
_KEY: Final = re.compile(r"\s*+(?:[^\W\d][\w.\-]*+\s*+)?")


def style_of(payload: Literals) -> Style:
    """The grammar of a payload's values."""
    gemma = payload.style == "gemma"
    return Style(payload.mark, payload.bare_words, bare_keys=gemma)


def gemma_object(r: Reading, payload: Literals) -> Parse[None]:
    """`{key:value,…}` as the arguments of the call in progress."""
    yield from value(r, style_of(payload), r.fragment)


def keywords(r: Reading, payload: Literals) -> Parse[None]:
    """`key=value, …)` or one JSON object and its bracket, the opening one taken."""
    here = yield from peek(r)
    if here == "{":
        yield from json_value(r, r.fragment, sleep=True)
        here = yield from peek(r)
        if here not in (")", ""):
            raise Broken
        r.pos += len(here)
        return
    style = style_of(payload)
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
        yield from value(r, style, r.fragment)
        here = yield from peek(r)
        if here == ",":
            r.pos += 1
            here = yield from peek(r)
        elif here != ")":
            raise Cut if here == "" else Broken
    r.pos += 1
    r.fragment("{}" if begun == "{" else "}")


def python_calls(r: Reading, calls: Calls, hold: Hold, flags: set[str]) -> Parse[bool]:
    """Calls after their opener, or after an unmarked `[`. False: released as text."""
    payload = calls.payload
    assert isinstance(payload, Literals)
    guard = "guard" in flags
    listed = guard
    here = yield from peek(r)
    if here == "[" and not listed:
        r.pos += 1
        listed = True
        here = yield from peek(r)
    if here == "{" and not guard:  # a JSON list instead
        as_items = Calls(JsonItems(in_list=listed), open=calls.open, close=calls.close)
        return (yield from items(r, as_items, hold, flags))
    try:
        name = yield from _name(r)
        if guard and name not in r.known:
            raise Broken
    except Broken:
        r.release(hold)
        return False
    except Cut:
        if guard:
            r.release(hold)
            return False
        r.commit(hold)
        r.open_call(None, None, flags)
        r.drop_call("truncated")
        return True
    r.commit(hold)
    while True:
        r.open_call(name, None, flags)
        if not (yield from _arguments(r, calls, payload)) or not (yield from _next(r, calls, listed=listed)):
            return True
        try:
            name = yield from _name(r)
        except Broken:
            r.open_call(None, None, flags)
            yield from resync(r, calls)
            return True
        except Cut:
            r.open_call(None, None, flags)
            r.drop_call("truncated")
            return True


def _name(r: Reading) -> Parse[str]:
    """`name(`. Raises Broken or Cut."""
    name = (yield from until(r, _PAREN, shape=_NAME)).strip()
    if not name:
        raise Broken
    r.pos += 1
    return name


def _arguments(r: Reading, calls: Calls, payload: Literals) -> Parse[bool]:
    """The arguments of the call in progress and their bracket; False: nothing sound follows."""
    try:
        yield from keywords(r, payload)
    except Cut:
        r.drop_call("truncated")
        return False
    except Broken:
        yield from resync(r, calls)
        return False
    if r.call is not None:
        r.call.complete = True
    return True


def _next(r: Reading, calls: Calls, *, listed: bool) -> Parse[bool]:
    """Between calls. True: another one follows."""
    while True:
        gap = yield from spaces(r)
        here = yield from char(r)
        if here == "":
            r.settle_call()
            return False
        if here == "," and (listed or calls.close):
            r.pos += 1
            if (yield from peek(r)) == "]" and listed:
                continue
            return True
        if here == "]" and listed:
            r.pos += 1
            listed = False
            if calls.close:
                continue
            r.settle_call()
            return False
        if (yield from accept(r, closers_of(r, calls))) >= 0:
            yield from after_call(r, calls)
            return False
        if not listed and calls.separator == "\n" and "\n" in gap and here not in "<[":
            return True
        if calls.close or listed:
            r.recovered("closing marker missing after a call")
        r.settle_call()
        r.say(gap)
        return False
