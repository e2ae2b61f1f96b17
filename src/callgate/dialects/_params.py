"""Tagged parameters: open, key, value, close.

Law: a closer ends a value only where the dialect allows one: before the next parameter, the call's end or the text's
(policy C).
(tests/test_dialects.py::test_case_of_our_own)

What is misplaced is absorbed and named (policy M).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import closers_of
from callgate.dialects._json import json_value, skip
from callgate.dialects._marks import ABSENT, Marks, marks
from callgate.dialects._spec import Calls, Params
from callgate.dialects._take import Broken, Cut, Parse, accept, char, is_half, look, peek, require, spaces, until
from callgate.dialects._values import NOT_STRING, STRING_ONLY, Value, types_of
from callgate.jsonstream import quote
from callgate.types import ToolSpec

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading

_ONE_TOKEN: Final = re.compile(r"<[|｜].*[|｜]>\Z")
_PLAIN_KEY: Final = re.compile(r"[^<>\n]*+")
_ATTRIBUTES: Final = re.compile(r"[^<\n]*+")
_SPECIAL_OPEN: Final = "<|"
_SPECIAL_END: Final = marks(("|>",))
_SPECIAL_NAME: Final = re.compile(r"\w*+")
_ATTRIBUTE: Final = re.compile(r"\s+([\w:.\-]+)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_HEAD_LIMIT: Final = 512


class Tagged:
    """The markers of one call's parameters."""

    __slots__ = (
        "after_close", "bent", "body", "closers", "head_end", "inside", "key_end", "mid", "openers", "param_close",
        "tokens",
    )  # fmt: skip

    def __init__(self, r: Reading, calls: Calls, payload: Params) -> None:
        self.openers = r.marks(payload.open)
        self.param_close = r.marks(payload.close)
        self.key_end = r.marks(payload.key_end)
        self.mid = r.marks(payload.mid)
        self.tokens = all(_ONE_TOKEN.match(text) for text in payload.open)
        """Its markers are special tokens, never text: any of them ends a value."""
        ends = (*calls.close, *calls.section_close, *calls.open, *calls.section)
        self.body = r.marks((*payload.open, *payload.close, *ends))
        self.after_close = r.marks((*payload.open, *payload.close, *ends, *r.dialect.drop))
        # a closer that lost its bracket to the tag behind it, and a value that the key's closer ends (policy M)
        bent = tuple(f"{text[:-1]}<" for text in payload.close if text.startswith("</") and not self.tokens)
        self.closers = (*payload.close, *bent, *(payload.key_end if payload.mid else ()))
        self.bent = frozenset(bent)
        self.inside = r.marks(tuple(dict.fromkeys((*self.closers, *payload.open, *calls.close))))
        self.head_end = r.marks((*payload.key_end, *payload.mid))


def attributes(r: Reading, ends: Marks, *, tokens: bool = False) -> Parse[dict[str, str]]:
    """`key="value" …` up to a marker, which stays. Raises Broken or Cut.

    `tokens`: a special token within a value is dropped.
    """
    text = ""
    opened = r.marks((_SPECIAL_OPEN,))
    either = r.marks((*ends.texts, _SPECIAL_OPEN)) if tokens else ends
    while True:
        text += yield from until(r, either, limit=_HEAD_LIMIT - len(text), shape=_ATTRIBUTES)
        if not tokens or (yield from accept(r, opened)) < 0:
            break
        yield from until(r, _SPECIAL_END, shape=_SPECIAL_NAME)
        yield from accept(r, _SPECIAL_END)
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
    """MarkerRule F: parameters, the call's end or a JSON body must follow. Raises Broken or Cut."""
    payload = calls.payload
    assert isinstance(payload, Params)
    yield from between(r, payload)
    here = yield from peek(r)
    if here == "":
        raise Cut
    if here == "{" and (payload.json_body or calls.arguments is not None):  # a grammar of its own decides itself
        return
    ends = (*calls.close, *calls.section_close)
    tags = r.marks((*payload.open, *ends))
    if (yield from look(r, tags, swallow=False)) < 0 and not (r.over and is_half(r, ends, payload.open)):
        yield from require(r, tags)


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

    def known(self, r: Reading, key: str) -> str:
        """The parameter that a key means: one with a colon too many is not the schema's."""
        plain = key.strip(": ")
        if plain == key or self.expects(key) or not self.expects(plain):
            return key
        r.recovered(f"colon at the name of parameter {plain!r}: dropped")
        return plain

    def types(self, key: str, kind: str) -> frozenset[str]:
        """The types that a parameter's value may have; `kind` is what the text says of it."""
        if not kind:
            return types_of(self.tool, key)
        return STRING_ONLY if kind == "string" else NOT_STRING

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
        yield from json_value(r, r.fragment, streams=True)
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
            which = yield from _tag(r, tags, payload)
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
            kind, _, key = pending.partition("\0")
            pending = yield from (payload.value or tagged_value)(r, body, body.known(r, key), kind)
        if pending == "":
            break
    body.close(r)
    yield from _call_close(r, calls)


def _tag(r: Reading, tags: Tagged, payload: Params) -> Parse[int]:
    """Which tag stands here, not taken. Raises Broken or Cut.

    A closer that the text's end cuts off counts once it can be no parameter any more (policy T).
    """
    which = yield from look(r, tags.body, swallow=False)
    if which >= 0:
        return which
    rest = r.buf[r.pos :]
    if not (r.over and any(text.startswith(rest) for text in tags.body.texts)):
        raise Broken
    r.pos = len(r.buf)
    if any(text.startswith(rest) for text in payload.open):
        raise Cut
    return len(tags.body.texts)


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
        key = (yield from until(r, tags.head_end, shape=_PLAIN_KEY)).strip()
        kind = ""
    which, end = tags.key_end.at(r.buf, r.pos, r.over)
    if which >= 0:
        r.pos = end
    else:
        r.recovered("closing tag of a key is missing")
    if not key:
        raise Broken
    return f"{kind}\0{key}"


def tagged_value(r: Reading, body: Body, key: str, kind: str, value_of: type[Value] = Value) -> Parse[str | None]:
    """One parameter behind its key, of that type ("": the schema tells).

    None: go on; "": the call's end came; else the head of the next parameter.
    """
    payload, tags = body.payload, body.marks
    if payload.mid:
        yield from between(r, payload)
        if (yield from accept(r, tags.mid)) < 0:
            if (yield from char(r)) == "":
                raise Cut
            r.recovered("missing value opener")
    body.key(r, key)
    return (yield from _value(r, body, value_of(r.fragment, body.types(key, kind), trim=payload.trim)))


def _value(r: Reading, body: Body, value: Value) -> Parse[str | None]:
    """A value and its closer; the answer as of `tagged_value`."""
    inside, closes, opens = body.marks.inside, len(body.marks.closers), len(body.payload.open)
    while True:
        which, start, end = inside.find(r.buf, r.pos, r.over)
        if start > r.pos:
            value.text(r.buf[r.pos : start])
            r.pos = start
        if which < 0:
            if r.over:
                raise Cut
            if which == ABSENT and value.streams and len(inside.first) == 1:
                r.wait_in_value(value, inside.first)
            yield
            continue
        marker = r.buf[start:end]
        if marker in body.marks.bent:  # the tag behind it keeps its bracket
            marker, end = marker[:-1], end - 1
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
    bent = marker not in body.payload.close
    while True:
        taken += yield from between(r, body.payload)
        if (yield from char(r)) == "":
            break
        which = yield from look(r, body.marks.after_close, swallow=False)
        if which < 0 and r.over and any(text.startswith(r.buf[r.pos :]) for text in body.marks.after_close.texts):
            break  # cut off by the end of the text
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
    if bent:
        r.recovered(f"closing tag of a parameter is bent: {marker!r}")
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
    if not body.marks.tokens and not body.expects(head.partition("\0")[2]):
        return marker + text, None
    r.recovered("closing tag of a parameter is missing")
    return None, head


def _call_end(r: Reading, body: Body, marker: str) -> Parse[str | None]:
    """The call's closer inside a value: the parameter's is missing, if the section's end or another call follows."""
    calls = body.calls
    gap = yield from spaces(r)
    if body.marks.tokens:
        r.recovered("closing tag of a parameter is missing")
        return None
    follow = r.marks((*calls.section_close, *calls.open, *calls.section, *r.dialect.drop))
    if (yield from char(r)) != "" and (yield from look(r, follow)) < 0:
        return marker + gap
    r.recovered("closing tag of a parameter is missing")
    return None
