"""Payloads that are no JSON: code, plain text, a call that only counts.

Law: text becomes one string argument, to the character.
(tests/test_dialects.py::test_case_of_a_dialect)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import closers_of
from callgate.dialects._json import arguments, fence, fence_end, json_value
from callgate.dialects._marks import Marks, marks
from callgate.dialects._spec import Calls
from callgate.dialects._take import Cut, Parse, look, nothing_here, peek
from callgate.dialects._values import types_of
from callgate.jsonstream import DECODE_ERRORS, load, load_object, quote

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading

CODE_TOOLS: Final = ("code_interpreter", "python")
_NEWLINE: Final = marks(("\n",))


def code_tool(r: Reading) -> str:
    """The listed tool that takes raw code; the first name if none is listed."""
    return next((name for name in CODE_TOOLS if name in r.known), "python")


def raw_text(
    r: Reading, closers: Marks, key: str, begun: str = "", *, needed: bool = False, trim: bool = False
) -> Parse[None]:
    """Everything up to a closer or the end, as the argument `key`. With `needed`, the end alone raises Cut."""
    r.fragment(f'{{"{quote(key)}":"{quote(begun)}')
    space = ""
    while True:
        which, start, _ = closers.find(r.buf, r.pos, r.over)
        text = space + r.buf[r.pos : start]
        r.pos = start
        body = text.rstrip() if trim else text
        space = text[len(body) :]
        r.fragment(quote(body))
        if which >= 0 or r.over:
            if which < 0 and needed:
                raise Cut
            r.fragment('"}')
            return
        yield


def text_parameter(r: Reading) -> str | None:
    """Which parameter plain text is for: the called tool's only (required) string."""
    tool = r.tools.get(r.call.name or "") if r.call is not None else None
    if tool is None:
        return None
    properties = tool.parameters.get("properties")
    required = tool.parameters.get("required")
    names: list[str] = list(properties) if isinstance(properties, dict) else []
    for candidates in ([n for n in names if isinstance(required, list) and n in required], names):
        strings = [name for name in candidates if "string" in types_of(tool, name)]
        if len(strings) == 1:
            return strings[0]
    return None


def guess_name(r: Reading, text: str) -> str | None:
    """The only tool whose parameters fit these arguments (Kimi K2 sometimes writes nothing but a counter)."""
    arguments = load_object(text)
    if arguments is None:
        return None
    fits = []
    for tool in r.tools.values():
        properties = tool.parameters.get("properties")
        required = tool.parameters.get("required")
        known = set(properties) if isinstance(properties, dict) else set()
        needed = set(required) if isinstance(required, list) else set()
        if arguments.keys() <= known and needed <= arguments.keys():
            fits.append(tool.name)
    return fits[0] if len(fits) == 1 else None


def unquoted(text: str) -> str:
    """A JSON string's text; any other text as it is."""
    try:
        value = load(text)
    except DECODE_ERRORS:
        return text
    return value if isinstance(value, str) else text


def text_or_object(r: Reading, calls: Calls, *, to_line: bool = False) -> Parse[None]:
    """One object, perhaps in a fence, or plain text for the tool's only string parameter, up to a closer or `to_line`.

    Raises Broken or Cut.
    """
    fenced = (yield from fence(r)) if calls.fence else False
    here = yield from peek(r)
    if here == "{":
        yield from arguments(r, r.fragment, streams=True)
    elif here != "" and not fenced:
        labels = tuple(text for region in r.dialect.regions for text in region.open)
        if (yield from look(r, r.marks(labels))) >= 0:  # nothing on the line
            r.fragment("{}")
        else:
            yield from plain_text(r, calls, text_parameter(r), to_line=to_line)
    elif fenced and (yield from fence_end(r)):
        r.fragment("{}")
        return
    else:
        raise nothing_here(r)
    if fenced:
        yield from peek(r)
        yield from fence_end(r)


def plain_text(r: Reading, calls: Calls, key: str | None, *, to_line: bool = False) -> Parse[None]:
    """One line, or all up to the closer, as the string argument `key`."""
    closers = _NEWLINE if to_line else closers_of(r, calls)
    if key is not None and not (to_line and (yield from peek(r)) == '"'):
        yield from raw_text(r, closers, key, needed=not to_line, trim=True)
        return
    parts: list[str] = []
    while True:
        which, start, _ = closers.find(r.buf, r.pos, r.over)
        parts.append(r.buf[r.pos : start])
        r.pos = start
        if which >= 0 or r.over:
            break
        yield
    _give_text(r, "".join(parts).strip(), key)


def _give_text(r: Reading, text: str, key: str | None) -> None:
    """A whole text as the argument `key`, or as all arguments if it can be read as such."""
    inner = unquoted(text)
    if inner != text and load_object(inner) is not None:  # policy S
        r.fragment(inner)
    elif key is not None:
        r.fragment(f'{{"{quote(key)}":"{quote(inner)}"}}')
    elif text in ("None", "null"):
        r.fragment("{}")
    else:
        if r.call is not None:
            r.call.void = "malformed"
        r.fragment(text)


def guessed(r: Reading, id: str | None, flags: set[str]) -> Parse[None]:
    """Arguments of a call without a name: the name is guessed from them, and the call flagged."""
    parts: list[str] = []
    if (yield from peek(r)) == "":
        raise Cut
    yield from json_value(r, parts.append)
    text = "".join(parts)
    name = guess_name(r, text)
    call = r.open_call(name, id, {*flags, "recovered"})
    if name is None:
        r.drop_call("malformed", text)
        return
    r.note(f"call {call.index}: no name but a counter; {name!r} is the only tool with such arguments")
    r.fragment(text)
