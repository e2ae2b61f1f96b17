"""Tagged parameters: open, key, value, close.

One law: a closer ends a value only where the dialect allows one (policy C): before the next parameter, the call's end
or the end of the text. What is misplaced is absorbed and named (policy M).
"""

from __future__ import annotations

import re
from typing import Final

from callgate.dialects._ends import closers_of
from callgate.dialects._json import json_value, skip
from callgate.dialects._marks import ABSENT, Marks
from callgate.dialects._reading import Reading
from callgate.dialects._spec import Calls, Params
from callgate.dialects._take import Broken, Cut, Parse, accept, char, look, peek, require, spaces, until
from callgate.dialects._values import NOT_STRING, STRING_ONLY, Value, types_of
from callgate.jsonstream import quote
from callgate.types import ToolSpec

_PLAIN_KEY: Final = re.compile(r"[^<>\n]*+")
_ATTRIBUTES: Final = re.compile(r"[^<\n]*+")
_ATTRIBUTE: Final = re.compile(r"\s+([\w:.\-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_HEAD_LIMIT: Final = 512


class Tagged:
    """The markers of one call's parameters."""

    __slots__ = ("after_close", "body", "inside", "key_end", "mid", "openers", "param_close", "type_close", "type_open")

    def __init__(self, r: Reading, calls: Calls, payload: Params) -> None:
        self.openers = r.marks(payload.open)
        self.param_close = r.marks(payload.close)
        self.key_end = r.marks(payload.key_end)
        self.mid = r.marks(payload.mid)
        self.type_open = r.marks(payload.type_open)
        self.type_close = r.marks(payload.type_close)
        ends = (*calls.close, *calls.section_close, *calls.open, *calls.section)
        self.body = r.marks((*payload.open, *payload.close, *ends))
        self.after_close = r.marks((*payload.open, *payload.close, *ends, *r.dialect.drop))
        self.inside = r.marks(tuple(dict.fromkeys((*payload.close, *payload.open, *calls.close))))


def attributes(r: Reading, ends: Marks) -> Parse[dict[str, str]]:
    """`key="value" …` up to a marker, which stays. Raises Broken or Cut."""
    text = yield from until(r, ends, limit=_HEAD_LIMIT, shape=_ATTRIBUTES)
    found: dict[str, str] = {}
    pos = 0
    text = text.rstrip()
    while pos < len(text):
        match = _ATTRIBUTE.match(text, pos)
        if match is None:
            raise Broken
        value = next(group for group in match.groups()[1:] if group is not None)
        found[match[1]] = value.replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
        pos = match.end()
    return found


def between(r: Reading, payload: Params) -> Parse[str]:
    """Take what may stand between tags; what it was."""
    taken = yield from spaces(r)
    while payload.blanks:
        which = yield from accept(r, r.marks(payload.blanks), swallow=False)
        if which < 0:
            break
        taken += payload.blanks[which] + (yield from spaces(r))
    return taken


def starts_params(r: Reading, calls: Calls) -> Parse[None]:
    """Rule F: parameters, the call's end or a JSON body must follow. Raises Broken or Cut."""
    payload = calls.payload
    assert isinstance(payload, Params)
    yield from between(r, payload)
    here = yield from peek(r)
    if here == "":
        raise Cut
    if (payload.json_body or payload.nested) and here == "{":
        return
    yield from require(r, r.marks((*payload.open, *calls.close, *calls.section_close)))


class Body:
    """Where one call's parameters stand."""

    __slots__ = ("begun", "calls", "given", "marks", "payload", "tool")

    def __init__(self, r: Reading, calls: Calls, payload: Params) -> None:
        self.calls = calls
        self.payload = payload
        self.marks = Tagged(r, calls, payload)
        name = r.call.name if r.call is not None else None
        self.tool: ToolSpec | None = r.tools.get(name or "")
        self.given: set[str] = set()
        self.begun = False

    def key(self, r: Reading, key: str) -> None:
        """Begin a parameter in the JSON that goes out."""
        if key in self.given:
            r.recovered(f"parameter {key!r} given twice: the last one counts")
        self.given.add(key)
        r.fragment(("," if self.begun else "{") + f'"{quote(key)}":')
        self.begun = True

    def close(self, r: Reading) -> None:
        """End the JSON."""
        r.fragment("}" if self.begun else "{}")

    def expects(self, key: str) -> bool:
        """Whether a parameter of that name may still come."""
        known = self.tool.parameters.get("properties") if self.tool is not None else None
        return isinstance(known, dict) and key in known and key not in self.given


def params(r: Reading, calls: Calls, payload: Params) -> Parse[None]:
    """All parameters of the call in progress and its closer. Raises Broken or Cut."""
    if payload.json_body and (yield from peek(r)) == "{":
        yield from json_value(r, r.fragment, sleep=True)
        yield from _call_close(r, calls)
        return
    body = Body(r, calls, payload)
    tags = body.marks
    opens, closes = len(payload.open), len(payload.close)
    pending: str | None = None
    while True:
        if pending is None:
            yield from between(r, payload)
            here = yield from peek(r)
            if here == "":
                if calls.closed_by_end and body.begun:
                    break
                raise Cut
            which = yield from require(r, tags.body)
            if which >= opens + closes:
                break
            _, r.pos = tags.body.at(r.buf, r.pos, r.over)
            if which >= opens:
                r.recovered("surplus closing tag of a parameter: dropped")
                continue
            try:
                pending = yield from _head(r, tags, payload)
            except Broken:
                r.recovered("malformed parameter: dropped")
                pending = yield from _value(r, body, Value(skip, STRING_ONLY))
        else:
            pending = yield from _parameter(r, body, pending)
        if pending == "":
            break
    body.close(r)
    yield from _call_close(r, calls)


def _call_close(r: Reading, calls: Calls) -> Parse[None]:
    yield from peek(r)
    if calls.close and (yield from accept(r, closers_of(r, calls))) < 0 and (yield from char(r)) != "":
        r.recovered("closing tag of the call is missing")


def _head(r: Reading, tags: Tagged, payload: Params) -> Parse[str]:
    """A parameter's key and what stands before its value, its opener taken; key and attributes in one text."""
    if payload.attributes:
        found = yield from attributes(r, tags.key_end)
        key = found.get("name", found.get("key", ""))
        kind = "string" if found.get("string") == "true" else found.get("type", "other" if "string" in found else "")
    else:
        key = (yield from until(r, tags.key_end, shape=_PLAIN_KEY)).strip()
        kind = ""
    _, r.pos = tags.key_end.at(r.buf, r.pos, r.over)
    if not key:
        raise Broken
    return f"{kind}\0{key}"


def _parameter(r: Reading, body: Body, head: str) -> Parse[str | None]:
    """One parameter, its head taken. None: go on; "": the call's end came; else the head of the next parameter."""
    payload, tags = body.payload, body.marks
    kind, _, key = head.partition("\0")
    if payload.type_open:
        yield from spaces(r)
        if (yield from accept(r, tags.type_open)) >= 0:
            kind = (yield from until(r, tags.type_close)).strip()
            yield from accept(r, tags.type_close)
    if payload.mid:
        yield from between(r, payload)
        if (yield from accept(r, tags.mid)) < 0:
            if (yield from char(r)) == "":
                raise Cut
            r.recovered("missing value opener")
    allowed = types_of(body.tool, key) if not kind else STRING_ONLY if kind == "string" else NOT_STRING
    body.key(r, key)
    value = Value(r.fragment, allowed, trim=payload.trim, entities=payload.entities)
    if payload.cdata and (yield from _cdata(r, value)):
        yield from peek(r)
        yield from accept(r, tags.param_close)
        value.end()
        return None
    return (yield from _value(r, body, value))


def _cdata(r: Reading, value: Value) -> Parse[bool]:
    if (yield from accept(r, r.marks(("<![CDATA[",), plain=True))) < 0:
        return False
    ending = r.marks(("]]>",), plain=True)
    while True:
        which, start, end = ending.find(r.buf, r.pos, r.over)
        value.text(r.buf[r.pos : start])
        r.pos = start
        if which >= 0:
            r.pos = end
            return True
        if r.over:
            raise Cut
        yield


def _value(r: Reading, body: Body, value: Value) -> Parse[str | None]:
    """A value and its closer; the answer as of `_parameter`."""
    inside, closes, opens = body.marks.inside, len(body.payload.close), len(body.payload.open)
    while True:
        which, start, end = inside.find(r.buf, r.pos, r.over)
        if start > r.pos:
            value.text(r.buf[r.pos : start])
            r.pos = start
        if which < 0:
            if r.over:
                raise Cut
            if which == ABSENT and value.streams and len(inside.first) == 1:
                r.sleep_in_value(value, inside.first)
            yield
            continue
        marker = r.buf[start:end]
        r.pos = end
        if which < closes:
            text = yield from _after_closer(r, body, marker)
        elif which < closes + opens:
            text, head = yield from _next_opener(r, body, marker)
            if text is None:
                value.end()
                return head
        else:
            text = yield from _call_end(r, body, marker)
            if text is None:
                value.end()
                return ""
        if text is None:
            value.end()
            return None
        value.text(text)


def _after_closer(r: Reading, body: Body, marker: str) -> Parse[str | None]:
    """Policy C. None: the closer counts; else the text that it was."""
    opens, closes = len(body.payload.open), len(body.payload.close)
    taken = marker
    surplus = 0
    while True:
        taken += yield from between(r, body.payload)
        if (yield from char(r)) == "":
            break
        which = yield from look(r, body.marks.after_close)
        if which < 0:
            return taken
        if opens <= which < opens + closes:  # one more closer: surplus, if what follows it fits
            start = r.pos
            yield from accept(r, body.marks.after_close)
            taken += r.buf[start : r.pos]
            surplus += 1
            continue
        break
    if surplus:
        r.recovered("surplus closing tag of a parameter: dropped")
    return None


def _next_opener(r: Reading, body: Body, marker: str) -> Parse[tuple[str | None, str | None]]:
    """The next parameter's opener inside a value: its closer is missing, if the schema still expects that key."""
    hold = r.hold(r.pos)
    try:
        head = yield from _head(r, body.marks, body.payload)
    except (Broken, Cut):
        text = r.unhold(hold)
        return marker + text, None
    text = r.unhold(hold)
    if not body.payload.tokens and not body.expects(head.partition("\0")[2]):
        return marker + text, None
    r.recovered("closing tag of a parameter is missing")
    return None, head


def _call_end(r: Reading, body: Body, marker: str) -> Parse[str | None]:
    """The call's closer inside a value: the parameter's is missing, if the section's end or another call follows."""
    calls = body.calls
    gap = yield from spaces(r)
    if body.payload.tokens:
        r.recovered("closing tag of a parameter is missing")
        return None
    follow = r.marks((*calls.section_close, *calls.open, *calls.section, *r.dialect.drop))
    if (yield from char(r)) != "" and (yield from look(r, follow)) < 0:
        return marker + gap
    r.recovered("closing tag of a parameter is missing")
    return None
