"""MiniMax M3: every tag stands behind a token, its name is the key, and values nest.

Law: what the schema calls a string goes out character by character, everything else when its tag closes.
(tests/test_dialects_laws.py::test_arguments_go_out_while_they_are_written)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, TypeAlias

from callgate.dialects._ends import closers_of
from callgate.dialects._marks import Marks, marks
from callgate.dialects._reading import ARGUMENTS, Reading
from callgate.dialects._spec import Calls, Dialect, Params, Region
from callgate.dialects._take import Broken, Cut, Parse, accept, char, is_half, look, peek, require, spaces, until
from callgate.dialects._values import STRING_ONLY, Value
from callgate.jsonstream import MAX_DEPTH, quote
from callgate.schema.introspect import allowed_types, property_schema
from callgate.types import Schema

Described: TypeAlias = Schema | bool | None
"""What the tool's schema says of a value; None: nothing."""

_M3: Final = "]<]minimax[>["
_TOKEN: Final = marks((f"{_M3}<",))
_ANGLE: Final = marks((">",))
_TAG: Final = re.compile(r"[\w.\-:]*+")
_ITEM: Final = "item"
_ANYTHING: Final = frozenset({"null", "boolean", "integer", "number", "string", "object", "array"})


class Level:
    """One open tag whose value nests."""

    __slots__ = ("begun", "listed", "name", "repeated", "schema")

    def __init__(self, name: str, schema: Described, listed: bool) -> None:
        self.name = name
        self.schema = schema
        self.listed = listed
        self.begun = False
        self.repeated = ""
        """The child whose elements follow one another: a list that is still open."""


def _arguments(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    """All parameters of the call in progress, up to its closer. Raises Broken or Cut."""
    tool = r.tools.get(r.call.name or "") if r.call is not None else None
    root = tool.parameters if tool is not None else None
    stack = [Level("", root, False)]
    r.fragment("{")
    begun = False
    while True:
        if not begun:
            if (yield from peek(r)) == "":
                raise Cut
            if len(stack) == 1 and (yield from _call_ends(r, calls)):
                r.fragment("]}" if stack[0].repeated else "}")
                return
            yield from require(r, _TOKEN)
            yield from accept(r, _TOKEN)
        begun = False
        if (yield from char(r)) == "/":
            r.pos += 1
            yield from _close(r, stack)
            continue
        name = yield from _name(r)
        if not name or len(stack) > MAX_DEPTH:
            raise Broken
        begun = yield from _open(r, stack, name, root)


def _name(r: Reading) -> Parse[str]:
    """A tag's name and its angle. Raises Broken or Cut."""
    name = yield from until(r, _ANGLE, shape=_TAG)
    r.pos += 1
    return name


def _close(r: Reading, stack: list[Level]) -> Parse[None]:
    """A closing tag, its slash taken: it has to be that of the innermost open one."""
    name = yield from _name(r)
    top = stack[-1]
    if name != top.name or len(stack) == 1:
        raise Broken
    r.fragment("]" if top.repeated else "")
    r.fragment("]" if top.listed else "}")
    stack.pop()


def _call_ends(r: Reading, calls: Calls) -> Parse[bool]:
    """Whether the call's closer stands here; half of it is enough at the end of the text (policy T)."""
    closers = closers_of(r, calls)
    if (yield from look(r, closers, swallow=False)) >= 0:
        return True
    return r.over and is_half(r, closers.texts, _TOKEN.texts)


def _open(r: Reading, stack: list[Level], name: str, root: Described) -> Parse[bool]:
    """A parameter, a field or an item begins; a leaf is read to its end. True: the next tag's token is taken."""
    top = stack[-1]
    schema, again = _begin(r, top, name, root)
    allowed = _allowed(schema, root, outermost=len(stack) == 1)
    elements = not again and not top.listed and "array" in allowed and not allowed & {"object", "string"}
    gap = yield from spaces(r) if allowed != {"string"} else iter_nothing()
    closer = r.marks((f"{_M3}</{name}>",))
    if allowed & {"object", "array"}:
        if (yield from accept(r, closer)) >= 0:
            r.fragment(_empty(allowed))
            return False
        if (yield from accept(r, _TOKEN)) >= 0:
            first = yield from _first_tag(r)
            listed = "array" in allowed and ("object" not in allowed or first == _ITEM)
            if elements and _is_field(_items_of(schema), first, root):
                r.fragment("[")
                top.repeated, schema, listed = name, _items_of(schema), False
            r.fragment("[" if listed else "{")
            stack.append(Level(name, schema, listed))
            return True
    if elements:
        yield from _element(r, top, name, closer, allowed_types(_items_of(schema) or {}, root))
    else:
        yield from _leaf(r, closer, Value(r.fragment, allowed), gap)
    return False


def _begin(r: Reading, top: Level, name: str, root: Described) -> tuple[Described, bool]:
    """Comma and key of a child; its schema, and whether it is one more element of the list before it."""
    again = name == top.repeated
    if top.repeated and not again:
        r.fragment("]")
        top.repeated = ""
    r.fragment(", " if top.begun else "")
    top.begun = True
    if not top.listed and not again:
        r.fragment(f'"{quote(name)}": ')
    schema = _schema_of(top, name, root)
    return (_items_of(schema) if again else schema), again


def _allowed(schema: Described, root: Described, *, outermost: bool) -> frozenset[str]:
    """The types of a child; what no schema describes is anything, and a string as a parameter."""
    if schema is not None:
        return allowed_types(schema, root)
    return STRING_ONLY if outermost else _ANYTHING


def _empty(allowed: frozenset[str]) -> str:
    """A child that holds nothing."""
    if "string" in allowed:
        return '""'
    return "{}" if "object" in allowed else "[]"


def _is_field(schema: Described, name: str, root: Described) -> bool:
    """Whether elements of that schema have such a field."""
    return name != _ITEM and _schema_of(Level("", schema, listed=False), name, root) is not None


def _leaf(r: Reading, closer: Marks, value: Value, begun: str) -> Parse[None]:
    """Text up to the closer."""
    value.text(begun)
    while True:
        which, start, end = closer.find(r.buf, r.pos, r.over)
        value.text(r.buf[r.pos : start])
        r.pos = start
        if which >= 0:
            r.pos = end
            value.end()
            return
        if r.over:
            raise Cut
        yield


def _element(r: Reading, top: Level, name: str, closer: Marks, allowed: frozenset[str]) -> Parse[None]:
    """The text of a list's parameter: the list as JSON, or its first element, more of which may follow."""
    parts: list[str] = []
    value = Value(parts.append, frozenset({"array", "null"}))
    text = yield from until(r, closer, limit=ARGUMENTS)
    yield from accept(r, closer)
    value.text(text)
    value.end()
    if parts and parts[0][:1] in ("[", "n"):
        r.fragment(parts[0])
        return
    r.fragment("[")
    top.repeated = name
    value = Value(r.fragment, allowed)
    value.text(text)
    value.end()


def _items_of(schema: Described) -> Described:
    """The schema of a list's elements."""
    items = schema.get("items") if isinstance(schema, Mapping) else None
    return items if isinstance(items, Mapping) else None


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


def _schema_of(level: Level, name: str, root: Described) -> Described:
    """The schema of a child."""
    schema = level.schema
    if schema is None or root is None:
        return None
    if level.listed:
        return _items_of(schema)
    found = property_schema(schema, name, root)
    return found if isinstance(found, Mapping) else None


DIALECTS = (
    Dialect(
        "minimax_m3",
        "MiniMax M3",
        calls=(
            Calls(
                Params(open=(f"{_M3}<",), close=(f"{_M3}</",)),
                section=(f"{_M3}<tool_call>",),
                section_close=(f"{_M3}</tool_call>",),
                open=(f"{_M3}<invoke",),
                close=(f"{_M3}</invoke>",),
                header={"name": {">": "", "/>": ""}},
                attributes=True,
                arguments=_arguments,
            ),
        ),
        regions=(Region(("<mm:think>",), ("</mm:think>",)),),
        drop=("[e~[",),
    ),
)
