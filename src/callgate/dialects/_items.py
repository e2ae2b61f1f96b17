"""Blocks of JSON calls: after an opener, or unmarked and guarded by the tools' names.

One law: a marked block that began is a call or a BadCall; an unmarked one is a call or exactly the text it was.
"""

from __future__ import annotations

import re
from typing import Final

from callgate.dialects._ends import after_call, closers_of, loose_end, resync
from callgate.dialects._json import Item, fence, fence_end, json_items_of, read_item
from callgate.dialects._marks import marks
from callgate.dialects._plan import Rule
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls
from callgate.dialects._take import Broken, Cut, Parse, accept, char, look, peek, spaces, until
from callgate.jsonstream import JsonScanner

_LANGUAGES: Final = frozenset({"", "json", "JSON", "jsonc", "json5", "tool_call", "tool_calls"})
_LINE: Final = marks(("\n",))
_FENCE: Final = marks(("```",))
_LANGUAGE: Final = re.compile(r"[\w +#.\-]*+")


def items(r: Reading, calls: Calls, hold: Hold | None, flags: set[str]) -> Parse[bool]:
    """JSON calls after their opener; False: no such thing, and the text was released."""
    payload = json_items_of(calls)
    listed = payload.in_list
    fenced = calls.fence and (yield from fence(r))
    first = yield from peek(r)
    if first == "[" and not listed:
        r.pos += 1
        listed = True
        first = yield from peek(r)
        if first == "]":
            r.pos += 1
            if hold is not None:
                r.commit(hold)
            yield from _between(r, calls, listed=False, fenced=fenced)
            return True
    if first == "{":
        r.pos += 1
        first = yield from peek(r)
        if first not in ('"', "}", ""):
            return _not_a_call(r, hold)
    elif first != "":
        return _not_a_call(r, hold)
    if hold is not None:
        r.commit(hold)
    if first == "":
        r.open_call(None, None, flags)
        r.drop_call("truncated")
        return True
    while True:
        sound = yield from _one(r, calls, flags, listed=listed)
        if not sound or not (yield from _between(r, calls, listed=listed, fenced=fenced)):
            return True
        r.pos += 1  # the next brace


def _not_a_call(r: Reading, hold: Hold | None) -> bool:
    if hold is None:
        raise Broken
    r.release(hold)
    return False


def _one(r: Reading, calls: Calls, flags: set[str], *, listed: bool) -> Parse[bool]:
    """One object whose brace is taken; False if what follows it is unknown."""
    item = Item(json_items_of(calls), set(flags), None)
    try:
        yield from read_item(r, item)
    except Cut:
        if item.call and r.call is not None and r.call.complete:
            return True
        if not item.call:
            r.open_call(item.name, item.id, flags)
        r.drop_call("truncated", None if item.call else "".join(item.early or ()))
        return False
    except Broken:
        if item.call and r.call is not None and r.call.complete and (yield from _at_an_end(r, calls)):
            r.recovered("closing brace of a call is missing")
            return True
        if not item.call:
            r.open_call(item.name, item.id, flags)
        return (yield from resync(r, calls, "" if item.call else "".join(item.early or ()), listed=listed))
    _finish(r, item)
    return True


def _at_an_end(r: Reading, calls: Calls) -> Parse[bool]:
    """Whether the block ends here, or its list, or another call begins: nothing but a brace is missing."""
    return (yield from char(r)) == "]" or (yield from look(r, r.marks((*calls.close, *calls.open)))) >= 0


def _finish(r: Reading, item: Item) -> None:
    if item.name in item.payload.skip:
        return
    if not item.call:
        early = item.early
        if item.name is None:
            r.open_call(None, item.id, item.flags)
            r.drop_call("malformed", "".join(early or ()))
            return
        item.begin(r)
        if early is None:  # policy S
            r.fragment("{}")
    if r.call is not None:
        r.call.complete = True


def _between(r: Reading, calls: Calls, *, listed: bool, fenced: bool) -> Parse[bool]:
    """After an object. True: another one begins at the position; False: the block is over and the call settled."""
    payload = json_items_of(calls)
    close = closers_of(r, calls)
    while True:
        gap = yield from spaces(r)
        here = yield from char(r)
        if here == "":
            r.settle_call()
            return False
        if (yield from accept(r, close)) >= 0:
            break
        if here in ",;" and (listed or payload.several):
            r.pos += 1
        elif here == "{" and (listed or payload.several):
            return True
        elif here == "[" and payload.several and not listed:
            r.pos += 1
            listed = True
        elif here == "]" and listed:
            r.pos += 1
            listed = False
            if not calls.close and not fenced:
                break
        elif here in "}]" and calls.close:
            r.pos += 1
            r.recovered(f"surplus {here!r} after a call: dropped")
        elif fenced and (yield from fence_end(r)):
            fenced = False
            if not calls.close:
                break
        else:
            if calls.close or listed:
                r.recovered("closing marker missing after a call")
            r.settle_call()
            r.say(gap)
            return False
    yield from after_call(r, calls)
    return False


# --- guarded: no markup of its own ------------------------------------------------------------------------------------


def guarded(r: Reading, rule: Rule, hold: Hold) -> Parse[bool]:
    """JSON at a line's start that may be calls of known tools."""
    calls = rule.calls
    assert calls is not None
    fenced = rule.text == "```"
    opener = rule.text
    if fenced:
        try:
            language = yield from until(r, _LINE, limit=32, shape=_LANGUAGE)
        except (Broken, Cut):
            r.release(hold)
            return False
        opener = yield from peek(r)
        if language.strip() not in _LANGUAGES or opener not in ("{", "["):
            r.release(hold)
            yield from _rest_of_fence(r)
            return False
        r.pos += 1
    listed = opener == "["
    try:
        if listed:
            if (yield from peek(r)) != "{":
                raise Broken
            r.pos += 1
        item = Item(json_items_of(calls), {"guard"}, hold)
        yield from _guarded_item(r, item)
    except Broken:
        text = r.held(hold)
        r.release(hold)
        yield from _rest_of_value(r, text[text.index(opener) :])
        if fenced:
            yield from _rest_of_fence(r)
        return False
    except Cut:
        r.release(hold)
        return False
    if item.guard is None:
        yield from _guarded_rest(r, calls, listed=listed, fenced=fenced)
    return True


def _guarded_item(r: Reading, item: Item) -> Parse[None]:
    """Raises Broken or Cut only while the hold is open: then it is text."""
    try:
        yield from read_item(r, item)
    except Cut:
        if item.guard is not None and item.name is None:
            raise
        if not item.call:
            item.begin(r)
        if r.call is not None and not r.call.complete:
            r.drop_call("truncated")
        return
    except Broken:
        if item.guard is not None:
            raise
        if r.call is not None and r.call.complete and (yield from char(r)) not in "\"'":  # policy M
            r.recovered("closing brace missing after the arguments")
            return
        yield from loose_end(r)
        return
    if item.name is None:
        raise Broken
    _finish(r, item)


def _guarded_rest(r: Reading, calls: Calls, *, listed: bool, fenced: bool) -> Parse[None]:
    """After a guarded call: more of them in the list, in the fence, or behind a semicolon."""
    while True:
        gap = yield from spaces(r)
        here = yield from char(r)
        if here == "]" and listed:
            listed = False
            r.pos += 1
        elif fenced and not listed and (yield from fence_end(r)):
            fenced = False
        elif here in ("{", ",", ";") and (listed or fenced or here != ","):
            hold = r.hold(r.pos)
            if here != "{":
                r.pos += 1
                if (yield from peek(r)) != "{":
                    r.settle_call()
                    r.say(gap)
                    r.release(hold)
                    return
            r.pos += 1
            r.settle_call()
            item = Item(json_items_of(calls), {"guard"}, hold)
            try:
                yield from _guarded_item(r, item)
            except Broken:
                text = r.held(hold)
                r.say(gap)
                r.release(hold)
                yield from _rest_of_value(r, text[text.index("{") :])
                if listed:
                    continue
                return
            except Cut:
                r.say(gap)
                r.release(hold)
                return
        else:
            r.settle_call()
            r.say(gap)
            return


def _rest_of_value(r: Reading, begun: str) -> Parse[None]:
    """A JSON value that is no call is text to its end: nothing inside it is looked at."""
    scan = JsonScanner(strict=True)
    end = scan.feed(begun)
    while end is None:
        end = scan.feed(r.buf, r.pos)
        stop = len(r.buf) if end is None else end
        r.say(r.buf[r.pos : stop])
        r.pos = stop
        if end is None:
            if r.over:
                return
            yield


def _rest_of_fence(r: Reading) -> Parse[None]:
    """A fence that holds no call is text to its end."""
    while True:
        which, start, end = _FENCE.find(r.buf, r.pos, r.over)
        stop = end if which >= 0 or r.over else start
        r.say(r.buf[r.pos : stop])
        r.pos = stop
        if which >= 0 or r.over:
            return
        yield
