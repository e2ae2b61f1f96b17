"""Marked calls: section, opener, header, payload, closer.

One law: a call in a section is a call or a BadCall; only the first one after its opener may still turn out as text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache
from typing import Final

from callgate.dialects._ends import after_call, closers_of, resync
from callgate.dialects._items import items
from callgate.dialects._json import arguments, begins_arguments, fence, fence_end
from callgate.dialects._marks import Marks
from callgate.dialects._nested import nested_params
from callgate.dialects._params import attributes, params, starts_params
from callgate.dialects._plain import code_tool, first_word, guessed, plain_text, python_tag, raw_text
from callgate.dialects._plan import Rule
from callgate.dialects._python import gemma_object, keywords, python_calls
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls, JsonArgs, JsonItems, Literals, Params, Raw
from callgate.dialects._take import BLANK, WORD, Broken, Cut, Parse, accept, char, known, look, peek, spaces, until

_IN_ATTRIBUTES: Final = ("attributes", "double")
_NAME: Final = re.compile(r"[\w.\-:/@$#]+\Z")


def read_calls(r: Reading, rule: Rule, hold: Hold) -> Parse[bool]:
    """Calls behind a marker that was taken. False: it was no call, and the text was released."""
    calls = rule.calls
    assert calls is not None
    if rule.section:
        return _section(r, calls, hold)
    if calls.hook == "python_tag":
        return python_tag(r, calls, hold)
    if calls.hook == "first_word":
        return first_word(r, calls, hold)
    if isinstance(calls.payload, Literals) and not calls.header:
        return python_calls(r, calls, hold, set())
    return _unsectioned(r, calls, hold)


def _unsectioned(r: Reading, calls: Calls, hold: Hold) -> Parse[bool]:
    """A call without a section, its opener taken."""
    flags: set[str] = set()
    if calls.section and calls.section_needed:
        flags.add("recovered")
    if not isinstance(calls.payload, Raw) and calls.name not in _IN_ATTRIBUTES:
        yield from _repeated(r, r.marks(calls.open), flags)
    if not calls.header or (calls.or_items and (yield from peek(r)) in ("{", "[")):
        return (yield from items(r, calls if not calls.header else _as_items(calls), hold, flags))
    if not (yield from one_call(r, calls, hold, flags)):
        return False
    if r.call is not None:
        if "recovered" in flags and calls.section:
            r.note("the marker of the calls' section is missing")
        yield from after_call(r, calls)
    return True


def _repeated(r: Reading, openers: Marks, flags: set[str]) -> Parse[None]:
    """The same opener again (policy M)."""
    while True:
        yield from spaces(r)
        if (yield from accept(r, openers)) < 0:
            return
        flags.add("recovered")
        r.note("repeated opening marker: one is enough")


def _section(r: Reading, calls: Calls, hold: Hold) -> Parse[bool]:
    """A section of calls, its opener taken. False: released as text."""
    opens, ends, again = len(calls.open), len(calls.section_close), len(calls.section)
    inside = r.marks((*calls.open, *calls.section_close, *calls.section, *calls.inner, *calls.close))
    flags: set[str] = set()
    own: Hold | None = hold
    while True:
        gap = yield from spaces(r)
        which = yield from accept(r, inside)
        if which < 0:
            here = yield from char(r)
            if here in ("{", "[") and isinstance(calls.payload, Params) and calls.payload.json_body:
                try:
                    if not (yield from items(r, _as_items(calls), own, flags)):
                        return False
                except Broken:  # no object, but the section is committed
                    r.open_call(None, None, flags)
                    yield from resync(r, calls)
                    return True
                own = None
                continue
            return _section_over(r, own, gap, here)
        if which < opens:
            r.settle_call()
            if not (yield from one_call(r, calls, own, flags)):
                return False
            own, flags = None, set()
        elif which < opens + ends:
            if own is not None:
                r.commit(own)
            yield from after_call(r, calls)
            return True
        elif which < opens + ends + again and own is not None:
            flags.add("recovered")
            r.note("repeated opening marker: one is enough")
        elif own is not None:  # a closer before any call: no section
            r.release(own)
            return False
        elif inside.texts[which] not in calls.inner:
            r.recovered(f"surplus marker {inside.texts[which]!r}: dropped")


def _section_over(r: Reading, hold: Hold | None, gap: str, here: str) -> bool:
    """A section neither closed nor continued."""
    if hold is None:
        if here != "" and r.call is not None:
            r.recovered("closing marker of the calls' section is missing")
        r.settle_call()
        r.say(gap)
        return True
    if here == "":
        r.commit(hold)
        r.open_call(None)
        r.drop_call("truncated")
        return True
    r.release(hold)
    return False


@lru_cache(maxsize=64)
def _as_items(calls: Calls) -> Calls:
    return Calls(JsonItems(), open=calls.open, close=calls.section_close, section=calls.section)


def one_call(r: Reading, calls: Calls, hold: Hold | None, flags: set[str]) -> Parse[bool]:
    """Header, payload and closer of one call, its opener taken. False: released as text, where a hold allows it.

    Afterwards the call waits to be settled, or was dropped.
    """
    name: str | None = None
    try:
        fields = yield from _header(r, calls)
        name, call_id = _named(r, calls, fields)
        if name is None or (calls.known and "recovered" in flags and name not in r.known):
            raise Broken
        yield from _check_start(r, calls, fields)
    except Broken:
        if hold is not None:
            r.release(hold)
            return False
        r.open_call(None, None, flags)
        yield from resync(r, calls)
        return True
    except Cut:
        if hold is not None:
            r.commit(hold)
        r.open_call(name or None, None, flags)
        r.drop_call("truncated")
        return True
    if calls.text_end and fields["end"] == calls.text_end:
        calls = replace(calls, payload=JsonArgs(text_key=""))
    if isinstance(calls.payload, JsonItems):
        return (yield from items(r, calls, hold, flags))
    if hold is not None:
        r.commit(hold)
    try:
        if name == "":
            yield from guessed(r, call_id, flags)
        else:
            r.open_call(name, call_id, flags)
            yield from read_payload(r, calls, fields)
    except Cut:
        if r.call is None:
            r.open_call(None, call_id, flags)
        r.drop_call("truncated")
        return True
    except Broken:
        if r.call is None:
            r.open_call(None, call_id, flags)
        yield from resync(r, calls)
        return True
    if not isinstance(calls.payload, Params):
        yield from _closer(r, calls)
    return True


def _header(r: Reading, calls: Calls) -> Parse[dict[str, str]]:
    """The fields between opener and payload. Raises Broken or Cut."""
    fields: dict[str, str] = {"end": ""}
    field = next(iter(calls.header), "")
    while field:
        ends = calls.header[field]
        markers = r.marks(tuple(end.removeprefix("&") for end in ends))
        if calls.name in _IN_ATTRIBUTES:
            found = yield from attributes(r, markers)
            fields |= {"name": found.get("name", found.get("tool", ""))}
        else:
            shape = BLANK if field.startswith("_") else WORD
            fields[field] = (yield from until(r, markers, shape=shape)).strip()
        which, end = markers.at(r.buf, r.pos, r.over)
        ending = tuple(ends)[which]
        if not ending.startswith("&"):
            r.pos = end
        fields["end"] = ending
        field = ends[ending]
    return fields


def _named(r: Reading, calls: Calls, fields: dict[str, str]) -> tuple[str | None, str | None]:
    """(name, id) of a header. A name of None is none; "" has to be guessed."""
    call_id = fields.get("id") or None
    name = fields.get("name", "")
    match calls.name:
        case "code":
            return code_tool(r), call_id
        case "kimi":
            head, colon, number = name.rpartition(":")
            head = head if colon and number.isdigit() else name
            call_id = name or None
            name = head.removeprefix("functions.")
            if name.isdigit():
                return "", call_id
        case "double":
            half, dot, other = name.partition(".")
            name = half if dot and half == other else name
        case _:
            pass
    return (name if _NAME.match(name) else None), call_id


def _check_start(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    """Rule F: the payload must begin as the dialect requires."""
    payload = calls.payload
    if isinstance(payload, JsonArgs) and payload.text_key is None:
        here = yield from peek(r)
        if here == "":
            raise Cut
        if calls.fence and here == "`":
            return
        if not (yield from begins_arguments(r)) and (yield from look(r, r.marks(calls.close))) < 0:
            raise Cut if r.over and r.pos >= len(r.buf) else Broken
    elif isinstance(payload, Params) and not fields["end"].endswith("/>"):
        yield from starts_params(r, calls)


def read_payload(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    """The arguments of the call in progress. Raises Broken or Cut."""
    payload = calls.payload
    match payload:
        case JsonArgs():
            return _json_arguments(r, calls, payload)
        case Params() if fields.get("end", "").endswith("/>"):
            r.fragment("{}")
            return known(None)
        case Params():
            return nested_params(r, calls, payload) if payload.nested else params(r, calls, payload)
        case Literals():
            return gemma_object(r, payload) if payload.style == "gemma" else keywords(r, payload)
        case Raw():
            return raw_text(r, closers_of(r, calls), payload.key)
        case JsonItems():
            raise Broken  # they hold their names themselves: see _unsectioned


def _json_arguments(r: Reading, calls: Calls, payload: JsonArgs) -> Parse[None]:
    """One object, perhaps in a fence; or plain text where the dialect has that."""
    fenced = (yield from fence(r)) if calls.fence else False
    here = yield from peek(r)
    if here == "{" or (here in ('"', "n") and payload.text_key is None):
        yield from arguments(r, r.fragment, sleep=True)
    elif here != "" and payload.text_key is not None and not fenced:
        labels = tuple(text for region in r.dialect.regions for text in region.open)
        if (yield from look(r, r.marks(labels))) >= 0:  # nothing on the line
            r.fragment("{}")
        else:
            yield from plain_text(r, calls, payload)
    elif not fenced and (yield from look(r, r.marks(calls.close))) >= 0:
        r.fragment("{}")  # policy S: no arguments at all
    elif fenced and (yield from fence_end(r)):
        r.fragment("{}")
        return
    else:
        raise Cut if r.over and r.pos >= len(r.buf) else Broken
    if fenced:
        yield from peek(r)
        yield from fence_end(r)


def _closer(r: Reading, calls: Calls) -> Parse[None]:
    """The call's closer, or that it is missing (policy M)."""
    if not calls.close or r.call is None:
        return
    gap = yield from spaces(r)
    while (yield from accept(r, closers_of(r, calls))) < 0:
        here = yield from char(r)
        if here == "":
            return
        if here not in "}]":
            r.recovered("closing marker missing after a call")
            if not calls.section:
                r.settle_call()
            r.say(gap)
            return
        r.pos += 1
        r.recovered("surplus bracket after a call: dropped")
        gap = yield from spaces(r)
