"""JSON payloads: one value passed on as it arrives, and objects that hold a call's name and arguments.

One law: arguments go out as the JSON text that came in, from the first character after the name is certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from callgate.dialects._marks import marks
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._spec import Calls, JsonItems
from callgate.dialects._take import NAME_LIMIT, Broken, Cut, Parse, accept, peek, ready
from callgate.jsonstream import DECODE_ERRORS, JsonScanner, load

Sink = Callable[[str], None]

WRAPPER: Final = "function"
"""The key whose value may be the call itself, as in the APIs' own form."""

_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_PLAIN: Final = re.compile(r'[^"\\]++')
_NOTHING: Final = 64
"""Characters that may pass before arguments in a string must show what they are."""
_HOLDS: Final = re.compile(r'"(?:\s|\\[nrt])*+[{"]')
_MAY_HOLD: Final = re.compile(r'"(?:\s|\\[nrt])*+\\?\Z')
_FENCE: Final = marks(("```json", "```JSON", "```"))
_FENCE_END: Final = marks(("```",))


def json_value(r: Reading, sink: Sink, *, sleep: bool = False) -> Parse[None]:
    """Pass one JSON value on to `sink`. With `sleep`, `sink` is the call's and strings may take the fast path."""
    scan = JsonScanner()
    while True:
        end = scan.feed(r.buf, r.pos)
        stop = len(r.buf) if end is None else end
        if stop > r.pos:
            sink(r.buf[r.pos : stop])
            r.pos = stop
        if end is not None:
            if scan.broken:
                if scan.too_deep and r.call is not None:
                    r.call.void = "too_large"
                raise Broken
            return
        if r.over:
            if scan.bare:
                return
            raise Cut
        if sleep and scan.in_string and not scan.escaped:
            r.sleep_in_string()
        yield


def short_string(r: Reading) -> Parse[str]:
    """A whole JSON string: a key, a name, an id."""
    while True:
        match = _STRING.match(r.buf, r.pos)
        if match is not None and match.end() - r.pos <= NAME_LIMIT + 2:
            r.pos = match.end()
            text = match.group()
            if "\\" not in text:
                return text[1:-1]
            try:
                return str(load(text))
            except DECODE_ERRORS:
                raise Broken from None
        head = r.buf[r.pos : r.pos + NAME_LIMIT + 2]
        if len(head) > NAME_LIMIT + 1 or match is not None or "\n" in head:
            raise Broken
        if r.over:
            r.pos = len(r.buf)
            raise Cut
        yield


class _Decoded:
    """The text of such a string on its way out: nothing, and `null`, are no arguments."""

    __slots__ = ("_held", "_sink")

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._held: str | None = ""

    def text(self, text: str) -> None:
        if self._held is not None:
            text = self._held + text
            if len(text) <= _NOTHING and "null".startswith(text.strip()):
                self._held = text
                return
            self._held = None
        self._sink(text)

    def end(self) -> None:
        if self._held is not None:
            self._sink("{}" if self._held.strip() in ("", "null") else self._held)


def decoded(r: Reading, sink: Sink) -> Parse[None]:
    """A JSON string that holds JSON: its text, decoded (policy S)."""
    r.pos += 1
    out = _Decoded(sink)
    while True:
        match = _PLAIN.match(r.buf, r.pos)
        if match is not None:
            r.pos = match.end()
            out.text(match.group())
        if r.pos < len(r.buf):
            if r.buf[r.pos] == '"':
                r.pos += 1
                out.end()
                return
            need = _escape_length(r.buf, r.pos)
            if len(r.buf) - r.pos >= need:
                try:
                    text = str(load(f'"{r.buf[r.pos : r.pos + need]}"'))
                except DECODE_ERRORS:
                    raise Broken from None
                r.pos += need
                out.text(text)
                continue
        if r.over:
            raise Cut
        yield


def _escape_length(text: str, pos: int) -> int:
    r"""Characters of the escape at `pos`, a surrogate pair as one; more than there are while that is open."""
    kind = text[pos + 1 : pos + 2]
    if kind != "u":
        return 2
    if text[pos + 2 : pos + 3] in "dD" and text[pos + 3 : pos + 4] in tuple("89abAB"):
        following = text[pos + 6 : pos + 8]
        if len(text) < pos + 8 and "\\u".startswith(following):
            return 8
        if following == "\\u":
            return 12
    return 6


def arguments(r: Reading, sink: Sink, *, sleep: bool) -> Parse[None]:
    """The value of an arguments key: an object, an object in a string, or null."""
    first = ready(r) or (yield from peek(r))
    if first == "":
        raise Cut
    if first == '"':
        yield from decoded(r, sink)
    elif first == "n":
        parts: list[str] = []
        try:
            yield from json_value(r, parts.append)
            if "".join(parts) != "null":
                raise Broken
        except Broken:
            sink("".join(parts))
            raise
        sink("{}")
    else:
        yield from json_value(r, sink, sleep=sleep)


def begins_arguments(r: Reading) -> Parse[bool]:
    """Whether an object, an object in a string or null stands behind the white space here. Raises Cut."""
    first = yield from peek(r)
    while True:
        text = r.buf[r.pos : r.pos + _NOTHING]
        if first == "n":
            if len(text) > 4 or (r.over and text == "null"):
                return text.startswith("null") and not text[4:5].isalnum()
            open_ = "null".startswith(text)
        elif first == '"':
            if _HOLDS.match(text):
                return True
            open_ = len(text) < _NOTHING and _MAY_HOLD.match(text) is not None
        else:
            if first == "":
                raise Cut
            return first == "{"
        if not open_:
            return False
        if r.over:
            r.pos = len(r.buf)
            raise Cut
        yield


def skip(text: str) -> None:
    """A sink for what nobody needs."""


class Item:
    """One JSON object on its way to becoming a call."""

    __slots__ = ("call", "early", "flags", "guard", "id", "name", "over", "payload")

    def __init__(self, payload: JsonItems, flags: set[str], guard: Hold | None) -> None:
        self.payload = payload
        self.flags = flags
        self.guard = guard
        self.name: str | None = None
        self.id: str | None = None
        self.early: list[str] | None = None
        """Arguments that came before the name."""
        self.call = False
        """The call is open."""

    def begin(self, r: Reading) -> None:
        """Name and arguments are certain to be a call's."""
        if self.guard is not None:
            r.commit(self.guard)
            self.guard = None
        call = r.open_call(self.name, self.id, self.flags)
        self.call = True
        if self.early is not None:
            for part in self.early:
                r.fragment(part)
            call.complete = True


def read_item(r: Reading, item: Item, *, wrapped: bool = False) -> Parse[None]:
    """The inside of an object whose brace is taken. Raises Cut or Broken; `item` tells how far it came.

    The call may be wrapped once, as APIs write it: {"type": "function", "function": {"name": …, "arguments": …}}.
    """
    payload = item.payload
    first = True
    while True:
        char = ready(r) or (yield from peek(r))
        if char == "}":
            r.pos += 1
            return
        if not first:
            if char == ",":
                r.pos += 1
                char = ready(r) or (yield from peek(r))
            elif char != "":
                raise Broken
        first = False
        if char == "":
            raise Cut
        if char != '"':
            raise Broken
        key = yield from short_string(r)
        if (ready(r) or (yield from peek(r))) != ":":
            raise Cut if r.over and r.pos >= len(r.buf) else Broken
        r.pos += 1
        if payload.name_is_key and item.name is None:
            if not key.strip():
                raise Broken
            item.name = key
            yield from _arguments_of(r, item)
        elif key in payload.name_keys and item.name is None:
            if key == WRAPPER and not wrapped and (ready(r) or (yield from peek(r))) == "{":
                r.pos += 1
                yield from read_item(r, item, wrapped=True)
            else:
                yield from _name_of(r, item)
        elif key in payload.args_keys and not payload.name_is_key:
            yield from _arguments_of(r, item)
        elif key in payload.id_keys:
            yield from _id_of(r, item)
        else:
            yield from _other_key(r, item, key)


def _name_of(r: Reading, item: Item) -> Parse[None]:
    char = ready(r) or (yield from peek(r))
    if char == "":
        raise Cut
    if char != '"':
        raise Broken
    name = yield from short_string(r)
    if not name.strip() or (item.guard is not None and name not in r.known):
        raise Broken
    item.name = name
    if item.early is not None and name not in item.payload.skip:
        item.begin(r)


def _arguments_of(r: Reading, item: Item) -> Parse[None]:
    if item.call or item.early is not None:
        r.note("arguments given twice: the first ones count")
        item.flags.add("loose")
        if r.call is not None:
            r.call.flags.add("loose")
        yield from json_value(r, skip)
    elif item.name is None or item.name in item.payload.skip:
        item.early = []
        yield from arguments(r, item.early.append, sleep=False)
    else:
        if (ready(r) or (yield from peek(r))) == "":
            raise Cut
        item.begin(r)
        yield from arguments(r, r.fragment, sleep=True)
        if r.call is not None:
            r.call.complete = True


def _id_of(r: Reading, item: Item) -> Parse[None]:
    parts: list[str] = []
    yield from peek(r)
    yield from json_value(r, parts.append)
    try:
        value = load("".join(parts))
    except DECODE_ERRORS:
        raise Broken from None
    if isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) <= NAME_LIMIT:
        item.id = str(value)
        if r.call is not None and item.call:
            r.call.id = item.id


def _other_key(r: Reading, item: Item, key: str) -> Parse[None]:
    if key != "type" and item.guard is not None:
        raise Broken
    if key != "type" and "guard" in item.flags:
        r.note(f"key {key!r} after the arguments: ignored")
        item.flags.add("loose")
        if r.call is not None:
            r.call.flags.add("loose")
    if (ready(r) or (yield from peek(r))) == "":
        raise Cut
    yield from json_value(r, skip)


def fence(r: Reading) -> Parse[bool]:
    """Take the opening of a code fence, if there is one."""
    yield from peek(r)
    return (yield from accept(r, _FENCE)) >= 0


def fence_end(r: Reading) -> Parse[bool]:
    """Take the end of a code fence, if it stands here."""
    return (yield from accept(r, _FENCE_END)) >= 0


def json_items_of(calls: Calls) -> JsonItems:
    """The payload of JSON items; for other payloads that may also stand as one (`dots`), the usual keys."""
    return calls.payload if isinstance(calls.payload, JsonItems) else JsonItems()
