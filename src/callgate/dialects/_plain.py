"""Payloads that are no JSON: code, plain text, a name in the body, a call that only counts.

One law: text becomes one string argument, to the character.
"""

from __future__ import annotations

from typing import Final

from callgate.dialects._ends import after_call, closers_of, resync
from callgate.dialects._items import items
from callgate.dialects._json import json_value
from callgate.dialects._marks import Marks, marks
from callgate.dialects._python import keywords
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls, JsonArgs, JsonItems, Literals
from callgate.dialects._take import WORD, Broken, Cut, Parse, accept, char, look, peek, until
from callgate.dialects._values import types_of
from callgate.jsonstream import DECODE_ERRORS, load, load_object, quote

CODE_TOOLS: Final = ("code_interpreter", "python")
_NEWLINE: Final = marks(("\n",))
_DOT_CALL: Final = marks((".call(",))
_WORD_END: Final = marks((" ", "\n", "\t", "{", "<"))


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


def text_parameter(r: Reading, payload: JsonArgs) -> str | None:
    """Which parameter plain text is for: the named one, or the tool's only (required) string."""
    if payload.text_key:
        return payload.text_key
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


def plain_text(r: Reading, calls: Calls, payload: JsonArgs) -> Parse[None]:
    """One line, or all up to the closer, as a string argument."""
    key = text_parameter(r, payload)
    closers = _NEWLINE if payload.to_line else closers_of(r, calls)
    if key is not None and not (payload.to_line and (yield from peek(r)) == '"'):
        yield from raw_text(r, closers, key, needed=not payload.to_line, trim=True)
        return
    parts: list[str] = []
    while True:
        which, start, _ = closers.find(r.buf, r.pos, r.over)
        parts.append(r.buf[r.pos : start])
        r.pos = start
        if which >= 0 or r.over:
            break
        yield
    text = "".join(parts).strip()
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


def python_tag(r: Reading, calls: Calls, hold: Hold) -> Parse[bool]:
    """Behind Llama's code marker: a JSON call, a built-in's `name.call(key="value")`, or raw code."""
    own = r.hold(r.pos)
    here = yield from peek(r)
    if here == "{":
        r.unhold(own)
        return (yield from items(r, Calls(JsonItems(), open=calls.open), hold, set()))
    try:
        name = (yield from until(r, _DOT_CALL, shape=WORD)).strip()
        yield from accept(r, _DOT_CALL)
    except (Broken, Cut):
        begun = r.unhold(own)
        r.commit(hold)
        r.open_call(None if here == "" else code_tool(r))
        if here == "":
            r.drop_call("truncated", begun)
            return True
        yield from raw_text(r, closers_of(r, calls), "code", begun)
    else:
        r.unhold(own)
        r.commit(hold)
        r.open_call(name)
        try:
            yield from keywords(r, Literals())
        except Cut:
            r.drop_call("truncated")
            return True
        except Broken:
            yield from resync(r, calls)
            return True
    yield from accept(r, closers_of(r, calls))
    yield from after_call(r, calls)
    return True


def first_word(r: Reading, calls: Calls, hold: Hold) -> Parse[bool]:
    """CWM: the name is the body's first word, the rest JSON or plain text for `command`."""
    payload = calls.payload
    assert isinstance(payload, JsonArgs)
    try:
        yield from until(r, r.marks((">\n",)), shape=WORD)
        yield from accept(r, r.marks((">\n",)))
        yield from peek(r)
        name = yield from until(r, _WORD_END, shape=WORD)
        if not name.strip():
            raise Broken
    except Broken:
        r.release(hold)
        return False
    except Cut:
        r.commit(hold)
        r.open_call(None)
        r.drop_call("truncated")
        return True
    r.commit(hold)
    r.open_call(name.strip())
    try:
        closing = r.marks(calls.close)
        if (yield from peek(r)) == "{":
            yield from json_value(r, r.fragment, sleep=True)
        elif (yield from look(r, closing)) >= 0:
            r.fragment("{}")
        else:
            yield from plain_text(r, calls, payload)
        yield from peek(r)
    except Cut:
        r.drop_call("truncated")
        return True
    except Broken:
        yield from resync(r, calls)
        return True
    if (yield from accept(r, closing)) < 0 and (yield from char(r)) != "":
        r.recovered("closing marker missing after a call")
    yield from after_call(r, calls)
    return True
