"""Marked calls: section, opener, header, payload, closer.

Law: a call in a section is a call or a BadCall; only the first one after its opener may still turn out as text.
(tests/test_dialects_laws.py::test_a_cut_off_message_invents_nothing_and_shows_no_markup)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import after_call, closers_of, false_start, resync, surplus_brackets
from callgate.dialects._items import Block, begins_usually, items, objects
from callgate.dialects._json import arguments, begins_arguments, fence, fence_end
from callgate.dialects._marks import Marks
from callgate.dialects._params import attributes, params, starts_params
from callgate.dialects._plain import guessed, raw_text
from callgate.dialects._plan import MarkerRule
from callgate.dialects._python import gemma_object, keywords, python_calls
from callgate.dialects._spec import Calls, JsonArgs, JsonItems, Literals, Params, Raw
from callgate.dialects._take import (
    BLANK,
    NAME_LIMIT,
    WORD,
    Broken,
    Cut,
    Parse,
    accept,
    char,
    known,
    look,
    nothing_here,
    peek,
    spaces,
    until,
)

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

_NOT_IN_NAME: Final = re.compile(r"[^\w.\-:/@$#]")
_NAME: Final = re.compile(r"[\w.\-:/@$#]+\Z")


def read_calls(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """Calls behind a marker that was taken. False: it was no call, and the text was released."""
    calls = rule.calls
    assert calls is not None
    if rule.section:
        return _Section(r, calls, hold).read()
    if isinstance(calls.payload, Literals) and not calls.header:
        return python_calls(r, calls, hold, set())
    return _unsectioned(r, rule, calls, hold)


def _unsectioned(r: Reading, rule: MarkerRule, calls: Calls, hold: LookAhead) -> Parse[bool]:
    """A call without a section, its opener taken."""
    flags: set[str] = {"recovered"} if calls.section else set()
    listed = rule.text.endswith("[")
    if _of_objects(calls) and not listed and (yield from begins_usually(r)):
        r.commit(hold)
        return (yield from objects(r, Block(r, calls, flags)))
    if _may_open_again(calls):
        yield from repeated(r, r.marks(calls.open), flags)
    if not calls.header:
        return (yield from items(r, Block(r, calls, flags, listed=listed), hold))
    if calls.or_items and (yield from peek(r)) in ("{", "["):
        return (yield from items(r, Block(r, _as_items(calls), flags), hold))
    if not (yield from one_call(r, calls, hold, flags)):
        return False
    if calls.again:
        yield from _more_in_block(r, calls)
    if r.call is not None:
        if "recovered" in flags and calls.section:
            r.note("the marker of the calls' section is missing")
        yield from after_call(r, calls)
    return True


def _of_objects(calls: Calls) -> bool:
    """JSON objects that hold the name stand right behind the opener."""
    return isinstance(calls.payload, JsonItems) and not calls.header


def _may_open_again(calls: Calls) -> bool:
    """The opener may come twice; not where a payload of any text could begin with it."""
    return not isinstance(calls.payload, Raw) and not calls.attributes and calls.open != calls.close


def _more_in_block(r: Reading, calls: Calls) -> Parse[None]:
    """More calls behind the payload of one, before the block's closer."""
    while r.call is not None and (yield from accept(r, r.marks(calls.again), swallow=False)) >= 0:
        yield from one_call(r, _behind_label(calls), None, set())


def repeated(r: Reading, openers: Marks, flags: set[str]) -> Parse[None]:
    """The same opener again (policy M)."""
    while True:
        yield from spaces(r)
        if (yield from accept(r, openers)) < 0:
            return
        flags.add("recovered")
        r.note("repeated opening marker: one is enough")


class _Section:
    """A section of calls, its opener taken."""

    __slots__ = ("calls", "flags", "hold", "inside", "r")

    def __init__(self, r: Reading, calls: Calls, hold: LookAhead) -> None:
        self.r = r
        self.calls = calls
        self.hold: LookAhead | None = hold
        """Still open: no call was met, so this may be text."""
        self.flags: set[str] = set()
        self.inside = r.marks((*calls.open, *calls.section_close, *calls.section, *calls.inner, *calls.close))

    def read(self) -> Parse[bool]:
        """All of its calls. False: released as text."""
        r, calls = self.r, self.calls
        opens = len(calls.open)
        ends = opens + len(calls.section_close)
        while True:
            gap = yield from spaces(r)
            which = yield from accept(r, self.inside)
            if which < 0:
                done = yield from self._unmarked(gap)
                if done is not None:
                    return done
            elif which < opens:
                r.settle_call()
                if not (yield from one_call(r, calls, self.hold, self.flags)):
                    return False
                self.hold, self.flags = None, set()
            elif which < ends:
                if self.hold is not None:
                    r.commit(self.hold)
                yield from after_call(r, calls)
                return True
            elif self.hold is None:
                if self.inside.texts[which] not in calls.inner:
                    r.recovered(f"surplus marker {self.inside.texts[which]!r}: dropped")
            elif which < ends + len(calls.section):
                self.flags.add("recovered")
                r.note("repeated opening marker: one is enough")
            else:  # a closer before any call: no section
                return (yield from false_start(r, calls, self.hold))

    def _unmarked(self, gap: str) -> Parse[bool | None]:
        """What stands in a section without a marker: JSON, or the end. None: the section goes on."""
        r, calls = self.r, self.calls
        here = yield from char(r)
        if here not in ("{", "[") or not isinstance(calls.payload, Params) or not calls.payload.json_body:
            return (yield from self._over(gap, here))
        try:
            if not (yield from items(r, Block(r, _as_items(calls), self.flags), self.hold)):
                return False
        except Broken:  # no object, but the section is committed
            r.open_call(None, None, self.flags)
            yield from resync(r, calls)
            return True
        self.hold = None
        return None

    def _over(self, gap: str, here: str) -> Parse[bool]:
        """The section is neither closed nor continued."""
        r = self.r
        if self.hold is None:
            if here != "" and r.call is not None:
                r.recovered("closing marker of the calls' section is missing")
            r.settle_call()
            r.emit_text(gap)
            return True
        if here == "":
            r.commit(self.hold)
            r.open_call(None)
            r.drop_call("truncated")
            return True
        return (yield from false_start(r, self.calls, self.hold))


@lru_cache(maxsize=64)
def _as_items(calls: Calls) -> Calls:
    """JSON objects right behind the section's opener, or behind the opener of a call that has no section."""
    close = calls.section_close if calls.section else calls.close
    return Calls(JsonItems(), open=calls.open, close=close, section=calls.section)


@lru_cache(maxsize=64)
def _as_one(calls: Calls) -> Calls:
    """JSON objects in place of one call of a section."""
    return Calls(JsonItems(), open=calls.open, close=calls.close, section=calls.section, in_section=True)


@lru_cache(maxsize=64)
def _behind_label(calls: Calls) -> Calls:
    """The same calls, the header's first marker taken."""
    return replace(calls, header={"name": calls.header["name"]})


def _json_in_section(r: Reading, calls: Calls, hold: LookAhead | None, flags: set[str]) -> Parse[bool]:
    """JSON objects with names in place of a section's call."""
    try:
        return (yield from items(r, Block(r, _as_one(calls), flags), hold))
    except Broken:
        return (yield from false_start(r, calls, hold))


@dataclass(slots=True)
class Head:
    """What stands between a call's opener and its arguments."""

    name: str
    """"" has to be guessed."""
    id: str | None
    fields: dict[str, str]


def one_call(r: Reading, calls: Calls, hold: LookAhead | None, flags: set[str]) -> Parse[bool]:
    """Header, payload and closer of one call, its opener taken. False: released as text, where a hold allows it.

    Afterwards the call waits to be settled, or was dropped.
    """
    if calls.or_items and calls.section and (yield from peek(r)) in ("{", "["):
        return (yield from _json_in_section(r, calls, hold, flags))
    head = yield from header(r, calls, hold, flags)
    if isinstance(head, bool):
        return head
    return (yield from behind_header(r, calls, hold, flags, head))


def header(r: Reading, calls: Calls, hold: LookAhead | None, flags: set[str]) -> Parse[Head | bool]:
    """The header of one call, and whether its payload begins as it has to; or how the call ended, as of `one_call`."""
    name: str | None = None
    try:
        fields = yield from _fields(r, calls)
        name, call_id = (calls.named or name_as_written)(r, fields)
        if name is None or (calls.known and "recovered" in flags and name not in r.known):
            raise Broken
        yield from _check_start(r, calls, fields)
    except Broken:
        return (yield from false_start(r, calls, hold, name))
    except Cut:
        if hold is not None:
            r.commit(hold)
        r.open_call(name or None, None, flags)
        r.drop_call("truncated")
        return True
    return Head(name, call_id, fields)


def behind_header(r: Reading, calls: Calls, hold: LookAhead | None, flags: set[str], head: Head) -> Parse[bool]:
    """Payload and closer of one call; the answer as of `one_call`."""
    if isinstance(calls.payload, JsonItems):
        return (yield from items(r, Block(r, calls, flags), hold))
    if hold is not None:
        r.commit(hold)
    try:
        if head.name == "":
            yield from guessed(r, head.id, flags)
        else:
            r.open_call(head.name, head.id, flags)
            yield from read_payload(r, calls, head.fields)
    except Cut:
        if r.call is None:
            r.open_call(None, head.id, flags)
        r.drop_call("truncated")
        return True
    except Broken:
        if r.call is None:
            r.open_call(None, head.id, flags)
        yield from resync(r, calls)
        return True
    if not isinstance(calls.payload, Params) or calls.arguments is not None:
        yield from _closer(r, calls)
    return True


def _fields(r: Reading, calls: Calls) -> Parse[dict[str, str]]:
    """The fields between opener and payload. Raises Broken or Cut."""
    fields: dict[str, str] = {"end": ""}
    field = next(iter(calls.header), "")
    while field:
        ends = calls.header[field]
        if "" in ends:  # the field may be missing
            field = ends[(yield from _label(r, ends))]
            continue
        markers = r.marks(tuple(end.removeprefix("&") for end in ends))
        if calls.attributes:
            # only where a header frames the body were special tokens seen inside a name (Glimmer)
            found = yield from attributes(r, markers, tokens=r.dialect.channels is not None)
            fields |= {"name": found.get("name", found.get("tool", ""))}
        else:
            shape = BLANK if field.startswith("_") else WORD
            fields[field] = (yield from until(r, markers, shape=shape, closers=calls.close)).strip()
        which, end = markers.at(r.buf, r.pos, r.over)
        if which < 0:  # half a closer at the end of the text
            return fields
        ending = tuple(ends)[which]
        if not ending.startswith("&"):
            r.pos = end
        fields["end"] = ending
        field = ends[ending]
    return fields


def _label(r: Reading, ends: Mapping[str, str]) -> Parse[str]:
    """Which label stands here, taken; "" if it is missing. Raises Broken."""
    yield from spaces(r)
    labels = tuple(end for end in ends if end)
    label = yield from accept(r, r.marks(labels), swallow=False)
    if label < 0:
        yield from _begins_name(r, labels)
    return tuple(ends)[label] if label >= 0 else ""


def _begins_name(r: Reading, labels: tuple[str, ...]) -> Parse[None]:
    """Where a label is missing, the end of the text may cut off that or the name of a tool, but no prose."""
    while True:
        rest = r.buf[r.pos :]
        if _NOT_IN_NAME.search(rest) or len(rest) > NAME_LIMIT:
            return
        if r.over:
            if not any(name.startswith(rest) for name in (*labels, *r.known)):
                raise Broken
            return
        yield


def name_as_written(r: Reading, fields: dict[str, str]) -> tuple[str | None, str | None]:
    """(name, id) of a header that holds both as they are; a name of None is none."""
    name = fields.get("name", "")
    return (name if _NAME.match(name) else None), fields.get("id") or None


def _check_start(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    """MarkerRule F: the payload must begin as the dialect requires."""
    payload = calls.payload
    if isinstance(payload, Params):
        if not fields["end"].endswith("/>"):
            yield from starts_params(r, calls)
    elif isinstance(payload, JsonArgs) and calls.arguments is None:
        here = yield from peek(r)
        if here == "":
            raise Cut
        if calls.fence and here == "`":
            return
        if not (yield from begins_arguments(r)) and (yield from look(r, r.marks(calls.close))) < 0:
            raise Cut if r.over and r.pos >= len(r.buf) else Broken


def read_payload(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    """The arguments of the call in progress. Raises Broken or Cut."""
    if fields.get("end", "").endswith("/>") and isinstance(calls.payload, Params):
        r.fragment("{}")
        return known(None)
    if calls.arguments is not None:
        return calls.arguments(r, calls, fields)
    match calls.payload:
        case JsonArgs():
            return json_arguments(r, calls)
        case Params() as payload:
            return params(r, calls, payload)
        case Literals() as payload:
            return gemma_object(r, payload) if payload.style == "gemma" else keywords(r, payload)
        case Raw() as payload:
            return raw_text(r, closers_of(r, calls), payload.key)
        case _:
            raise Broken  # objects hold their names themselves: see _unsectioned


def json_arguments(r: Reading, calls: Calls) -> Parse[None]:
    """One object, perhaps in a fence; nothing at all is an empty one (policy S)."""
    fenced = (yield from fence(r)) if calls.fence else False
    here = yield from peek(r)
    if here in ("{", '"', "n"):
        yield from arguments(r, r.fragment, streams=True)
    elif fenced:
        if not (yield from fence_end(r)):
            raise nothing_here(r)
        r.fragment("{}")
        return
    elif (yield from look(r, r.marks(calls.close))) >= 0:
        r.fragment("{}")
    else:
        raise nothing_here(r)
    if fenced:
        yield from peek(r)
        yield from fence_end(r)


def _closer(r: Reading, calls: Calls) -> Parse[None]:
    """The call's closer, or that it is missing (policy M)."""
    if r.call is None:
        return
    if not calls.close:
        yield from surplus_brackets(r)
        return
    gap = yield from spaces(r)
    if calls.again and (yield from look(r, r.marks(calls.again), swallow=False)) >= 0:
        return
    while (yield from accept(r, closers_of(r, calls))) < 0:
        here = yield from char(r)
        if here == "":
            return
        if here not in "}]":
            r.recovered("closing marker missing after a call")
            if not calls.section:
                r.settle_call()
            r.emit_text(gap)
            return
        r.pos += 1
        r.recovered("surplus bracket after a call: dropped")
        gap = yield from spaces(r)
