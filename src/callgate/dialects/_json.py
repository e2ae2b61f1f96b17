"""JSON payloads: one value passed on as it arrives, and objects that hold a call's name and arguments.

Law: arguments go out as the JSON text that came in, from the first character after the name is certain.
(tests/test_dialects_laws.py::test_arguments_go_out_while_they_are_written)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

from callgate.dialects._heads import item_head
from callgate.dialects._marks import marks
from callgate.dialects._spec import ARGS_KEYS, ID_KEYS, Calls, JsonItems
from callgate.dialects._take import ANYTHING, NAME_LIMIT, Broken, Cut, Parse, accept, peek, ready
from callgate.jsonstream import DECODE_ERRORS, JsonScanner, load, load_object

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

Sink = Callable[[str], None]

NOTHING: Final = 64
"""Characters that may pass before arguments in a string must show what they are."""
_PLAIN: Final = re.compile(r'[^"\\]++')
WRAPPER: Final = "function"
"""The key whose value may be the call itself, as in the APIs' own form."""

_STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*+"')
_WAKE: Final = re.compile('["\n]').search
_HOLDS: Final = re.compile(r'"(?:\s|\\[nrt])*+[{"]')
_MAY_HOLD: Final = re.compile(r'"(?:\s|\\[nrt])*+\\?\Z')
_ARGS_KEYS: Final = frozenset(ARGS_KEYS)
_WRAPPED: Final = re.compile(rf'\{{\s*+"({"|".join(ARGS_KEYS)})"\s*+:\s*+\{{')
_MAY_WRAP: Final = re.compile(r'\{\s*+(?:"(\w*+)(?:"\s*+(?::\s*+)?+)?+)?+\Z')
UNWRAPPED: Final = re.compile(r'\{\s*+(?:\}|"[^api])').match
"""An object whose first key is none for arguments: nearly all are."""
FIRST_KEY: Final = re.compile(r'\s*+(?:\}|"[^api])').match
"""Such a key behind the brace."""
_FENCE: Final = marks(("```json", "```JSON", "```"))
_FENCE_END: Final = marks(("```",))


def json_value(r: Reading, sink: Sink, *, streams: bool = False, scan: JsonScanner | None = None) -> Parse[None]:
    """Pass one JSON value on to `sink`. With `streams`, `sink` is the call's and strings may take the fast path.

    `scan` has seen the value's beginning, if some of it was passed on already.
    """
    scan = scan or JsonScanner()
    while True:
        end, scan.end = scan.end, None
        if end is None:
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
        if streams:
            r.wait_in_json(scan)
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
        r.wait_until(_WAKE, ANYTHING, "", NAME_LIMIT)
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
            if len(text) <= NOTHING and "null".startswith(text.strip()):
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


def arguments(r: Reading, sink: Sink, *, streams: bool) -> Parse[None]:
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
    elif streams and first == "{":
        yield from object_arguments(r)
    else:
        yield from json_value(r, sink, streams=streams)


def object_arguments(r: Reading) -> Parse[None]:
    """The object that stands here, as the arguments of the call in progress."""
    call = r.call
    if call is None or UNWRAPPED(r.buf, r.pos) is not None or not _may_wrap(r):
        yield from json_value(r, r.fragment, streams=True)
        return
    # The brace is right at once: what arguments are wrapped in begins as what is inside.
    scan = JsonScanner()
    scan.feed("{")
    r.pos += 1
    r.fragment("{")
    size = call.size
    if r.pos >= len(r.buf) and not r.over:
        r.wait_for_key(scan)
        yield
    if scan.end is None and call.size == size and (yield from _is_wrapped(r)):
        yield from _unwrapped(r, scan)
    else:
        yield from json_value(r, r.fragment, streams=True, scan=scan)


def _parameters(r: Reading) -> Mapping[str, object]:
    """The called tool's parameters, if they are known."""
    tool = r.tools.get(r.call.name or "") if r.call is not None else None
    known = tool.parameters.get("properties") if tool is not None else None
    return known if isinstance(known, dict) else {}


def _may_wrap(r: Reading) -> bool:
    """Whether a key for arguments could be anything but a parameter of the tool."""
    known = _parameters(r)
    return bool(known) and not known.keys() >= _ARGS_KEYS


def _is_wrapped(r: Reading) -> Parse[bool]:
    """Whether the object whose brace was taken begins with a key for arguments that the tool does not have."""
    known = _parameters(r)
    while True:
        text = "{" + r.buf[r.pos : r.pos + 2 * NOTHING]
        match = _WRAPPED.match(text)
        if match is not None:
            return match[1] not in known
        begun = _MAY_WRAP.match(text)
        if r.over or begun is None or len(begun.group()) > NOTHING:
            return False
        if begun[1] and not any(key.startswith(begun[1]) for key in ARGS_KEYS):
            return False
        yield


def _unwrapped(r: Reading, scan: JsonScanner) -> Parse[None]:
    """Arguments that may be wrapped once more, behind the brace: unwrapped and flagged if the keys inside are the
    tool's."""
    parts: list[str] = []
    try:
        yield from json_value(r, parts.append, scan=scan)
    except (Broken, Cut):
        r.fragment("".join(parts))
        raise
    text = "{" + "".join(parts)
    r.fragment((_inner(r, text) or text)[1:])


def _inner(r: Reading, text: str) -> str | None:
    """The text of the only value in an object, if that is an object of the called tool's parameters."""
    call, outer, match = r.call, load_object(text), _WRAPPED.match(text)
    if call is None or outer is None or len(outer) != 1 or match is None:
        return None
    tool = r.tools.get(call.name or "")
    known = tool.parameters.get("properties") if tool is not None else None
    written = text[match.end() - 1 :].rstrip()[:-1].rstrip()
    inner = load_object(written)
    if inner is None or inner != outer[match[1]] or not isinstance(known, dict) or not inner.keys() <= known.keys():
        return None
    r.note(f"call {call.index} ({call.name}): arguments in {match[1]!r} once more: unwrapped")
    call.flags.add("repaired")
    return written


def begins_arguments(r: Reading) -> Parse[bool]:
    """Whether an object, an object in a string or null stands behind the white space here. Raises Cut."""
    first = yield from peek(r)
    while True:
        text = r.buf[r.pos : r.pos + NOTHING]
        if first == "n":
            if len(text) > 4 or (r.over and text == "null"):
                return text.startswith("null") and not text[4:5].isalnum()
            open_ = "null".startswith(text)
        elif first == '"':
            if _HOLDS.match(text):
                return True
            open_ = len(text) < NOTHING and _MAY_HOLD.match(text) is not None
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

    __slots__ = ("call", "early", "flags", "guard", "id", "name", "payload")

    usual: ClassVar = True
    """Such an object is looked at ahead: its name, then its arguments."""

    def __init__(self, payload: JsonItems, flags: set[str], guard: LookAhead | None) -> None:
        self.payload = payload
        self.flags = flags
        self.guard = guard
        self.name: str | None = None
        self.id: str | None = None
        self.early: list[str] | None = None
        """Arguments that came before the name."""
        self.call = False
        """The call is open."""

    @property
    def nothing(self) -> bool:
        """Whether the name means that no tool is called."""
        return False

    def member(self, r: Reading, key: str, *, wrapped: bool) -> Parse[None]:
        """Read the value of this key. Raises Cut or Broken."""
        payload = self.payload
        if key in payload.name_keys and self.name is None:
            if key == WRAPPER and not wrapped:
                return _name_or_call(r, self)
            return _name_of(r, self)
        if key in payload.args_keys:
            return arguments_of(r, self)
        return self.other_member(r, key)

    def other_member(self, r: Reading, key: str) -> Parse[None]:
        """Read the value of a key that holds neither name nor arguments."""
        return _id_of(r, self) if key in ID_KEYS else _other_key(r, self, key)

    def begin(self, r: Reading) -> None:
        """Name and arguments are certain to be a call's."""
        if self.guard is not None:
            r.commit(self.guard)
            self.guard = None
        call = r.open_call(self.name, self.id, self.flags)
        self.call = True
        if self.early is not None:
            text = "".join(self.early)
            for part in (_inner(r, text) or text,) if _WRAPPED.match(text) else self.early:
                r.fragment(part)
            call.complete = True

    def is_loose(self, r: Reading) -> None:
        """What the object holds is odd: the call is flagged."""
        self.flags.add("loose")
        if r.call is not None:
            r.call.flags.add("loose")


def read_item(r: Reading, item: Item, *, wrapped: bool = False) -> Parse[None]:
    """The inside of an object whose brace is taken. Raises Cut or Broken; `item` tells how far it came.

    The call may be wrapped once, as APIs write it: {"type": "function", "function": {"name": …, "arguments": …}}.
    """
    char = "" if wrapped else (yield from _usual_head(r, item))
    char = char or ready(r) or (yield from peek(r))
    while char != "}":
        if char != '"':
            raise Broken if char else Cut
        key = yield from short_string(r)
        if (ready(r) or (yield from peek(r))) != ":":
            raise Cut if r.over and r.pos >= len(r.buf) else Broken
        r.pos += 1
        yield from item.member(r, key, wrapped=wrapped)
        char = yield from _after_member(r)
    r.pos += 1


def _usual_head(r: Reading, item: Item) -> Parse[str]:
    """Name and arguments in one look; the character behind them, or "" if the object does not begin so."""
    shape = item_head(item.payload, r.known if item.guard is not None else None) if item.usual else None
    head = None if shape is None else (yield from r.ahead(shape))
    if head is None:
        return ""
    r.pos = head.end()
    item.name = head[1]
    item.begin(r)
    yield from object_arguments(r)
    if r.call is not None:
        r.call.complete = True
    return (yield from _after_member(r))


def _after_member(r: Reading) -> Parse[str]:
    """The brace behind a member, or the quote of the next one behind its comma. Raises Cut or Broken."""
    char = ready(r) or (yield from peek(r))
    if char == ",":
        r.pos += 1
        char = ready(r) or (yield from peek(r))
        if char == "}":
            raise Broken
        return char
    if char != "}":
        raise Broken if char else Cut
    return char


def _name_or_call(r: Reading, item: Item) -> Parse[None]:
    """The value of the APIs' own key: a name, or the call itself."""
    if (ready(r) or (yield from peek(r))) == "{":
        r.pos += 1
        yield from read_item(r, item, wrapped=True)
    else:
        yield from _name_of(r, item)


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
    if item.early is not None and not item.nothing:
        item.begin(r)


def arguments_of(r: Reading, item: Item) -> Parse[None]:
    """The value of the key for arguments: they go out if the name is known, else they wait for it."""
    if item.call or item.early is not None:
        r.note("arguments given twice: the first ones count")
        item.is_loose(r)
        yield from json_value(r, skip)
    elif item.name is None or item.nothing:
        item.early = []
        yield from arguments(r, item.early.append, streams=False)
    else:
        if (ready(r) or (yield from peek(r))) == "":
            raise Cut
        item.begin(r)
        yield from arguments(r, r.fragment, streams=True)
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
        item.is_loose(r)
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
