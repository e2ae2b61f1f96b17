"""MiniMax M3: every tag stands behind a token, its name is the key, and values nest.

One law: what the schema calls a string goes out character by character; everything else when its tag closes.
"""

from __future__ import annotations

import re
from typing import Any, Final

from callgate.dialects._ends import closers_of
from callgate.dialects._reading import Reading
from callgate.dialects._spec import Calls, Params
from callgate.dialects._take import Broken, Cut, Parse, accept, char, peek, require, spaces, until
from callgate.dialects._values import Value
from callgate.jsonstream import MAX_DEPTH, quote
from callgate.schema import allowed_types, property_schema

_TAG: Final = re.compile(r"[\w.\-:]*+")
_ITEM: Final = "item"
_ANYTHING: Final = frozenset({"null", "boolean", "integer", "number", "string", "object", "array"})


class Level:
    """One open tag whose value nests."""

    __slots__ = ("begun", "listed", "name", "schema")

    def __init__(self, name: str, schema: Any, listed: bool) -> None:
        self.name = name
        self.schema = schema
        self.listed = listed
        self.begun = False


def nested_params(r: Reading, calls: Calls, payload: Params) -> Parse[None]:
    """All parameters of the call in progress and its closer. Raises Broken or Cut."""
    tool = r.tools.get(r.call.name or "") if r.call is not None else None
    root = tool.parameters if tool is not None else None
    stack = [Level("", root, False)]
    token = r.marks((f"{payload.nested}<",))
    angle = r.marks((">",))
    r.fragment("{")
    begun = False
    while True:
        if not begun:
            if (yield from peek(r)) == "":
                raise Cut
            if len(stack) == 1 and (yield from accept(r, closers_of(r, calls))) >= 0:
                r.fragment("}")
                return
            yield from require(r, token)
            yield from accept(r, token)
        begun = False
        closing = (yield from char(r)) == "/"
        if closing:
            r.pos += 1
        name = yield from until(r, angle, shape=_TAG)
        r.pos += 1
        top = stack[-1]
        if closing:
            if name != top.name or len(stack) == 1:
                raise Broken
            r.fragment("]" if top.listed else "}")
            stack.pop()
            continue
        if not name or len(stack) > MAX_DEPTH:
            raise Broken
        begun = yield from _open(r, payload, stack, name, root)


def _open(r: Reading, payload: Params, stack: list[Level], name: str, root: Any) -> Parse[bool]:
    """A parameter, a field or an item begins; a leaf is read to its end. True: the next tag's token is taken."""
    top = stack[-1]
    r.fragment(", " if top.begun else "")
    top.begun = True
    if not top.listed:
        r.fragment(f'"{quote(name)}": ')
    schema = _schema_of(top, name, root)
    allowed = allowed_types(schema, root) if schema is not None else _ANYTHING if len(stack) > 1 else None
    if allowed is None:
        allowed = frozenset({"string"})
    gap = yield from spaces(r) if allowed != {"string"} else iter_nothing()
    token = r.marks((f"{payload.nested}<",))
    closer = r.marks((f"{payload.nested}</{name}>",))
    if allowed & {"object", "array"} and (yield from accept(r, closer)) >= 0:
        empty = "" if "string" in allowed else "[]" if "object" not in allowed else "{}"
        r.fragment(empty or '""')
        return False
    if allowed & {"object", "array"} and (yield from accept(r, token)) >= 0:
        first = yield from _first_tag(r)
        listed = "array" in allowed and ("object" not in allowed or first == _ITEM)
        r.fragment("[" if listed else "{")
        stack.append(Level(name, schema, listed))
        return True
    value = Value(r.fragment, allowed)
    value.text(gap or "")
    while True:
        which, start, end = closer.find(r.buf, r.pos, r.over)
        value.text(r.buf[r.pos : start])
        r.pos = start
        if which >= 0:
            r.pos = end
            value.end()
            return False
        if r.over:
            raise Cut
        yield


def iter_nothing() -> Parse[str]:
    """No white space is taken."""
    return ""
    yield


def _first_tag(r: Reading) -> Parse[str]:
    """The name of the tag whose angle was taken, not taken itself."""
    while True:
        match = _TAG.match(r.buf, r.pos)
        if match is not None and (match.end() < len(r.buf) or r.over or len(match.group()) > 64):
            return match.group()
        yield


def _schema_of(level: Level, name: str, root: Any) -> Any:
    """What the schema says of a child."""
    schema = level.schema
    if schema is None or root is None:
        return None
    if level.listed:
        items = schema.get("items") if isinstance(schema, dict) else None
        return items if isinstance(items, dict) else None
    found = property_schema(schema, name, root)
    return found if isinstance(found, dict) else None
