"""Blocks of JSON calls: after an opener, or unmarked and guarded by the tools' names.

Law: a marked block that began is a call or a BadCall; an unmarked one is a call or exactly the text it was.
(tests/test_dialects_laws.py::test_text_without_markup_comes_back_byte_for_byte)
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import after_call, false_start, loose_end, resync, surplus_brackets
from callgate.dialects._json import Item, fence, fence_end, json_items_of, read_item
from callgate.dialects._marks import SPACES, Shape, marks, text_atom
from callgate.dialects._plan import MarkerRule
from callgate.dialects._spec import Calls, JsonItems
from callgate.dialects._take import Broken, Cut, Parse, accept, char, look, peek, spaces, until
from callgate.jsonstream import JsonScanner

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

_LANGUAGES: Final = frozenset({"", "json", "JSON", "jsonc", "json5", "tool_call", "tool_calls"})
_OBJECT: Final = Shape(SPACES, text_atom("{"), SPACES, (r"(?=\")", ""))
_LINE: Final = marks(("\n",))
_FENCE: Final = marks(("```",))
_LANGUAGE: Final = re.compile(r"[\w +#.\-]*+")


class Block:
    """Objects behind one opener: what may separate them and what ends them."""

    __slots__ = ("calls", "close", "closed", "fenced", "flags", "item", "listed", "several")

    def __init__(self, r: Reading, calls: Calls, flags: set[str], *, listed: bool = False) -> None:
        payload = calls.payload
        self.calls = calls
        self.close = r.marks(calls.close)
        self.closed = self.close.closed
        self.flags = flags
        self.listed = listed
        """A list is open: a comma or an object may follow, and its bracket."""
        self.fenced = False
        self.several = payload.several if isinstance(payload, JsonItems) else True
        self.item: type[Item] = Item

    def new_item(self, guard: LookAhead | None = None) -> Item:
        """An object of this block."""
        return self.item(json_items_of(self.calls), set(self.flags), guard)


def begins_usually(r: Reading) -> Parse[bool]:
    """Whether what follows the opener is the usual beginning of an object; its brace is taken then."""
    begun = yield from r.ahead(_OBJECT)
    if begun is None:
        return False
    r.pos = begun.end()
    return True


def items(r: Reading, block: Block, hold: LookAhead | None) -> Parse[bool]:
    """JSON calls after their opener; False: no such thing, and the text was released."""
    calls = block.calls
    block.fenced = calls.fence and (yield from fence(r))
    first = yield from opened(r, block)
    if first == "]":
        r.pos += 1
        if hold is not None:
            r.commit(hold)
        block.listed = False
        yield from between(r, block)
        return True
    if first == "{":
        r.pos += 1
        first = yield from peek(r)
        if first not in ('"', "}", ""):
            return (yield from _not_a_call(r, calls, hold))
    elif first != "":
        return (yield from _not_a_call(r, calls, hold))
    if hold is not None:
        r.commit(hold)
    if first == "":
        r.open_call(None, None, block.flags)
        r.drop_call("truncated")
        return True
    return (yield from objects(r, block))


def objects(r: Reading, block: Block) -> Parse[bool]:
    """All objects of a block, the brace of the first one taken. True."""
    while True:
        sound = yield from _one(r, block)
        if not sound or not (yield from between(r, block)):
            return True
        r.pos += 1  # the next brace


def opened(r: Reading, block: Block) -> Parse[str]:
    """Take the bracket of a list, if one stands here; the character behind it."""
    first = yield from peek(r)
    if first == "[" and not block.listed:
        r.pos += 1
        block.listed = True
        first = yield from peek(r)
        return first
    return first if first != "]" else "?"  # a list that is empty has to begin


def _not_a_call(r: Reading, calls: Calls, hold: LookAhead | None) -> Parse[bool]:
    if hold is None:
        raise Broken
    return (yield from false_start(r, calls, hold))


def _one(r: Reading, block: Block) -> Parse[bool]:
    """One object whose brace is taken; False if what follows it is unknown."""
    item = block.new_item()
    try:
        yield from read_item(r, item)
    except Cut:
        return _cut_off(r, item)
    except Broken:
        return (yield from _broken(r, block, item))
    _finish(r, item)
    return True


def _is_complete(r: Reading, item: Item) -> bool:
    return item.call and r.call is not None and r.call.complete


def _cut_off(r: Reading, item: Item) -> bool:
    """The text's end in an object; True: its arguments were all there (policy T)."""
    if _is_complete(r, item):
        return True
    if not item.call:
        r.open_call(item.name, item.id, item.flags)
    r.drop_call("truncated", None if item.call else "".join(item.early or ()))
    return False


def _broken(r: Reading, block: Block, item: Item) -> Parse[bool]:
    """What stands in an object is no JSON; True: only its brace is missing."""
    if _is_complete(r, item) and (yield from _at_an_end(r, block.calls)):
        r.recovered("closing brace of a call is missing")
        return True
    if not item.call:
        r.open_call(item.name, item.id, item.flags)
    early = "" if item.call else "".join(item.early or ())
    return (yield from resync(r, block.calls, early, listed=block.listed))


def _at_an_end(r: Reading, calls: Calls) -> Parse[bool]:
    """Whether the block ends here, or its list, or another call begins: nothing but a brace is missing."""
    return (yield from char(r)) == "]" or (yield from look(r, r.marks((*calls.close, *calls.open)))) >= 0


def _finish(r: Reading, item: Item) -> None:
    if item.nothing:
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


# --- between objects --------------------------------------------------------------------------------------------------

_GO_ON, _NEXT, _OVER, _UNKNOWN = range(4)


def between(r: Reading, block: Block) -> Parse[bool]:
    """After an object. True: another one begins at the position; False: the block is over and the call settled."""
    while True:
        closer = yield from r.ahead(block.closed)
        if closer is not None:
            r.pos = closer.end(1)
            break
        gap = yield from spaces(r)
        here = yield from char(r)
        if here == "":
            r.settle_call()
            return False
        if (yield from accept(r, block.close)) >= 0:
            break
        if r.pos >= len(r.buf):  # a closer that was cut off is the end (T)
            r.settle_call()
            return False
        read = _BETWEEN.get(here)
        answer = _UNKNOWN if read is None else (yield from read(r, block))
        if answer == _NEXT:
            return True
        if answer == _OVER:
            break
        if answer == _UNKNOWN:
            if block.calls.close or block.listed:
                r.recovered("closing marker missing after a call")
            r.settle_call()
            r.emit_text(gap)
            return False
    yield from after_call(r, block.calls)
    return False


def _separator(r: Reading, block: Block) -> Parse[int]:
    if not (block.listed or block.several):
        return _UNKNOWN
    r.pos += 1
    return _GO_ON
    yield


def _brace(r: Reading, block: Block) -> Parse[int]:
    if block.listed or (block.several and (yield from _begins(r, "\"'}"))):
        return _NEXT
    return _UNKNOWN


def _bracket(r: Reading, block: Block) -> Parse[int]:
    if block.listed or not block.several or not (yield from _begins(r, "{")):
        return _UNKNOWN
    r.pos += 1
    block.listed = True
    return _GO_ON


def _bracket_end(r: Reading, block: Block) -> Parse[int]:
    if not block.listed:
        return (yield from _surplus(r, block))
    r.pos += 1
    block.listed = False
    if block.calls.close or block.fenced:
        return _GO_ON
    yield from surplus_brackets(r)
    return _OVER


def _surplus(r: Reading, block: Block) -> Parse[int]:
    """A bracket that nothing opened: small models count them wrong (policy M)."""
    if not block.calls.close:
        return _UNKNOWN
    r.recovered(f"surplus {r.buf[r.pos]!r} after a call: dropped")
    r.pos += 1
    return _GO_ON
    yield


def _backtick(r: Reading, block: Block) -> Parse[int]:
    if not block.fenced or not (yield from fence_end(r)):
        return _UNKNOWN
    block.fenced = False
    return _GO_ON if block.calls.close else _OVER


_BETWEEN: Final[dict[str, Callable[[Reading, Block], Parse[int]]]] = {
    ",": _separator, ";": _separator, "{": _brace, "[": _bracket, "]": _bracket_end, "}": _surplus, "`": _backtick,
}  # fmt: skip


def _begins(r: Reading, ways: str) -> Parse[bool]:
    """Whether the bracket here begins another item, and is not text behind a call as `[1]` or `{x}`. Takes nothing."""
    taken = r.buf[r.pos]
    r.pos += 1
    taken += yield from spaces(r)
    following = yield from char(r)
    r.unread(taken)
    return following in ways  # "", the end of the text: an item was cut off


# --- guarded: no markup of its own ------------------------------------------------------------------------------------


def guarded(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """JSON at a line's start that may be calls of known tools."""
    calls = rule.calls
    assert calls is not None
    block = Block(r, calls, {"guard"}, listed=rule.text == "[")
    opener = rule.text
    if opener == "```":
        opener = yield from _in_fence(r, block, hold)
        if not opener:
            return False
    item = block.new_item(hold)
    try:
        if block.listed:
            if (yield from peek(r)) != "{":
                raise Broken
            r.pos += 1
        yield from _guarded_item(r, item)
    except Broken:
        text = r.held(hold)
        r.release(hold)
        yield from _rest_of_value(r, text[text.index(opener) :])
        if block.fenced:
            yield from _rest_of_fence(r)
        return False
    except Cut:
        r.release(hold)
        return False
    if item.guard is None:
        yield from _guarded_rest(r, block)
    return True


def _in_fence(r: Reading, block: Block, hold: LookAhead) -> Parse[str]:
    """The bracket behind the first line of a code fence, taken; "": the fence holds no call, and was released."""
    try:
        language = yield from until(r, _LINE, limit=32, shape=_LANGUAGE)
    except (Broken, Cut):
        r.release(hold)
        return ""
    opener = yield from peek(r)
    if language.strip() not in _LANGUAGES or opener not in ("{", "["):
        r.release(hold)
        yield from _rest_of_fence(r)
        return ""
    r.pos += 1
    block.fenced = True
    block.listed = opener == "["
    if not block.calls.open:  # a dialect that lists the fence among its openers means the calls in it
        block.flags.add("fenced" if language.strip().lower() in ("", "json") else "mentioned")
    return opener


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
            r.call.alone = False  # the line's end was taken while the brace was looked for
            return
        yield from loose_end(r)
        return
    if item.name is None:
        raise Broken
    _finish(r, item)


def _guarded_rest(r: Reading, block: Block) -> Parse[None]:
    """After a guarded call: more of them in the list, in the fence, or behind a semicolon."""
    goes_on = True
    while goes_on:
        gap = yield from spaces(r)
        here = yield from char(r)
        if here == "]" and block.listed:
            block.listed = False
            r.pos += 1
        elif block.fenced and not block.listed and (yield from fence_end(r)):
            block.fenced = False
        elif here in ("{", ";") or (here == "," and (block.listed or block.fenced)):
            goes_on = yield from _guarded_next(r, block, here, gap)
        else:
            r.settle_call()
            r.emit_text(gap)
            return


def _guarded_next(r: Reading, block: Block, here: str, gap: str) -> Parse[bool]:
    """One more object behind a guarded call. False: it is none, and nothing follows it."""
    hold = r.hold(r.pos)
    if here != "{":
        r.pos += 1
        if (yield from peek(r)) != "{":
            r.settle_call()
            r.emit_text(gap)
            r.release(hold)
            return False
    r.pos += 1
    r.settle_call()
    item = block.new_item(hold)
    if not block.fenced:
        item.flags = {"guard"}
    try:
        yield from _guarded_item(r, item)
    except Broken:
        text = r.held(hold)
        r.emit_text(gap)
        r.release(hold)
        yield from _rest_of_value(r, text[text.index("{") :])
        return block.listed
    except Cut:
        r.emit_text(gap)
        r.release(hold)
        return False
    return True


def _rest_of_value(r: Reading, begun: str) -> Parse[None]:
    """A JSON value that is no call is text to its end: nothing inside it is looked at."""
    scan = JsonScanner(strict=True)
    end = scan.feed(begun)
    while end is None:
        end = scan.feed(r.buf, r.pos)
        stop = len(r.buf) if end is None else end
        r.emit_text(r.buf[r.pos : stop])
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
        r.emit_text(r.buf[r.pos : stop])
        r.pos = stop
        if which >= 0 or r.over:
            return
        yield
