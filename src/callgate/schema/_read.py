"""From a model's text to one JSON value: strictly if that works, with named liberties if not, or not at all.

What is ambiguous is `Unreadable`. That a text is cut off is proved on the strict grammar before any liberty is
considered.

Law: what is cut off is `CutOff`, never `{}` and never closed off into something that looks valid.
(tests/test_schema_laws.py::test_every_proper_prefix_of_an_object_is_incomplete)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from callgate.schema._loose import MAX_DEPTH, CutOff, Loose, Unreadable

MAX_TEXT: Final = 32_000_000
"""Characters of one call's arguments; a file of 30 MB does not belong into a tool call."""
MAX_CODED: Final = 3
"""How often JSON may be wrapped into a JSON string."""

# What the end of a text may be the beginning of: a literal, a number or an escape that was cut off.
_TAIL = re.compile(r"t(r(ue?)?)?|f(a(l(se?)?)?)?|n(u(ll?)?)?|-|\.|(\.\d+)?[eE][+-]?|\\?u[0-9a-fA-F]{0,3}", re.ASCII)
_ASSIGNED = re.compile(r"[\"'“”‘’]\s*[:：]")
_START = re.compile(r"[{｛]")
_PLACEHOLDER = re.compile(r"\{[\w .-]+\}")
_HALF = re.compile(r"[\ud800-\udfff]")


@dataclass(slots=True)
class Read:
    """What was read, and the liberties it took (empty: strict JSON)."""

    value: Any
    liberties: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


# RFC 8259, section 4, leaves open which of two equal names counts: it is noted, never passed over.
class _Duplicate(Exception):
    """A key stands twice in an object: the fast path gives up."""


class Infinite(Exception):
    """NaN, Infinity or a number beyond the floats: no JSON."""


def _pairs(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise _Duplicate
    return value


def _refuse(word: str) -> object:
    raise Infinite(word)


def finite(text: str) -> float:
    """A float that is one. Raises for what overflows."""
    value = float(text)
    if value - value != 0.0:
        raise Infinite(text[:40])
    return value


Scan: TypeAlias = Callable[[str, int], tuple[Any, int]]
_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_float=finite, parse_constant=_refuse)
_DECODE = _DECODER.decode
_SCAN: Scan = _DECODER.scan_once  # type: ignore[attr-defined]
_SCAN_LAST: Scan = json.JSONDecoder(parse_float=finite, parse_constant=_refuse).scan_once  # type: ignore[attr-defined]
SLOW: Final = object()
_SMALL: Final = 2_000
"""Characters up to which counting signs is cheaper than a hook an object."""
_MIDDLE: Final = 100_000
"""Characters up to which half characters that are not escaped are looked for; text that comes from bytes has none."""
_HALVES: Final = ("\\ud", "\\uD")
"""How an escaped half of a surrogate pair begins; emoji in ASCII-only JSON take the slow way."""
_NO_BRACKETS: Final = bytes(i for i in range(256) if i not in b"[]{}")


def scan(text: str) -> object:
    """The object that a text is, if it is nothing but one strict JSON object; SLOW for all that needs a closer look.

    As fast as it gets: no wrapper around the C scanner, duplicate keys found by counting colons where there is but one
    object, depth looked at only where there are brackets enough.
    """
    try:
        if len(text) > MAX_TEXT:
            return SLOW
        # With one brace there is one object: as many colons as keys prove that no key stands there twice.
        flat = len(text) <= _SMALL and text.count("{") == 1
        value, end = (_SCAN_LAST if flat else _SCAN)(text, 0)
        if flat and text.count(":") != len(value):
            value, end = _SCAN(text, 0)
    except Exception:  # StopIteration, JSONDecodeError, RecursionError …: the slow way says it precisely
        return SLOW
    if type(value) is not dict or (end != len(text) and text[end:].strip(" \t\n\r")):
        return SLOW
    if _may_have_halves(text):
        return SLOW
    return SLOW if _may_be_deep(text, value) and deeper(value, MAX_DEPTH) else value


def _may_have_halves(text: str) -> bool:
    """Whether a half of a surrogate pair may stand in the text, as itself or escaped (RFC 8259, section 8.2)."""
    if "\\" in text and (_HALVES[0] in text or _HALVES[1] in text):
        return True
    return len(text) <= _MIDDLE and half_characters(text)


def _may_be_deep(text: str, value: dict[str, object]) -> bool:
    """Whether it takes a look at every container to know that none is too deep."""
    if len(text) <= MAX_DEPTH or (
        len(value) < 20 and not any(type(v) is dict or type(v) is list for v in value.values())
    ):
        return False
    if text.count("[") + text.count("{") <= MAX_DEPTH:
        return False
    # In C: what is left are the brackets alone, and pairs of them fold up from the inside.
    brackets = text.encode("utf-8", "replace").translate(None, _NO_BRACKETS)
    for _ in range(4):  # levels that fold up at once; brackets in strings may keep them from it
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return bool(brackets)


def load(text: str) -> Read:
    """The value of strict JSON. Raises ValueError, RecursionError, CutOff or Unreadable for anything else."""
    try:
        value = _DECODE(text)
        read = Read(value)
    except _Duplicate:
        value, read = _load_duplicates(text)
    except Infinite as error:
        raise Unreadable(f"{error} is no JSON number") from None
    if text.count("[") + text.count("{") > MAX_DEPTH and deeper(value, MAX_DEPTH):
        raise Unreadable(f"nested deeper than {MAX_DEPTH} levels (MAX_DEPTH)")
    return read


def _load_duplicates(text: str) -> tuple[object, Read]:
    """Twice the same key: the last one counts, as everywhere; that is noted, and a liberty if it matters."""
    read = Read(None)

    def pairs(items: list[tuple[str, object]]) -> dict[str, object]:
        value = dict(items)
        if len(value) != len(items):
            seen: dict[str, object] = {}
            for key, item in items:
                if key in seen:
                    read.notes.append(f"duplicate key {key!r}: the last one counts")
                    if repr(seen[key]) != repr(item):
                        read.liberties.append(f"duplicate key {key!r}")
                seen[key] = item
        return value

    try:
        read.value = json.JSONDecoder(object_pairs_hook=pairs, parse_float=finite, parse_constant=_refuse).decode(text)
    except Infinite as error:
        raise Unreadable(f"{error} is no JSON number") from None
    return read.value, read


def deeper(value: object, limit: int) -> bool:
    """Whether containers are nested deeper than `limit`; level by level, without recursion."""
    level = [value] if isinstance(value, (dict, list)) else []
    while level:
        if limit == 0:
            return True
        limit -= 1
        level = [
            child
            for parent in level
            for child in (parent.values() if type(parent) is dict else parent)
            if type(child) is dict or type(child) is list
        ]
    return False


def read_text(text: str, *, container: str | None) -> Read:
    """One value from a model's text; `container` is "{" if only an object will do, else None.

    Raises CutOff if the text ends inside it, Unreadable if it cannot be read faithfully.
    """
    if len(text) > MAX_TEXT:
        raise Unreadable(f"{len(text)} characters are over the limit of {MAX_TEXT} (MAX_TEXT)")
    try:
        read = load(text)
    except json.JSONDecodeError as error:
        if is_prefix(text, error):
            raise CutOff from None
        return _repair(text, container)
    except RecursionError:
        raise (CutOff if _open_at_end(text) else Unreadable(f"nested deeper than {MAX_DEPTH} levels")) from None
    except ValueError as error:  # Python's limit on the digits of an integer
        raise Unreadable(str(error).split(";")[0]) from None
    if container and isinstance(read.value, str):
        return _decode(read, container)
    return read


def is_prefix(text: str, error: json.JSONDecodeError) -> bool:
    """Whether strict JSON could still follow: the parser's complaint is about the end of the text, not its content."""
    if error.msg.startswith("Unterminated string"):
        return text.lstrip()[:1] in '{["'
    rest = text[error.pos :]
    if error.msg.startswith("Extra data") or text.lstrip()[:1] not in "{[":
        return False
    return not rest.strip() or _TAIL.fullmatch(rest) is not None


def _open_at_end(text: str) -> bool:
    depth = 0
    for token in re.finditer(r'"(?:[^"\\]+|\\.)*("|\Z)|[\[{\]}]', text, re.DOTALL):
        word = token.group()
        depth += (word in "[{") - (word in "]}")
        if depth == 0 and word in "]}":
            return False
    return True


def _decode(read: Read, container: str) -> Read:
    """The object inside a JSON string (double encoding), up to MAX_CODED times."""
    for _ in range(MAX_CODED):
        text = read.value.strip()
        if not text.startswith(("{", "｛", '"')):
            break
        inner = read_text(text, container=None)
        liberties = [*read.liberties, "JSON inside a JSON string", *inner.liberties]
        read = Read(inner.value, liberties, [*read.notes, *inner.notes])
        if not isinstance(read.value, str):
            return read
    raise Unreadable("a text, where an object is wanted")


def _repair(text: str, container: str | None) -> Read:
    """What remains when strict JSON failed and the text is not merely cut off."""
    start = _START.search(text)
    while start is not None and (word := _PLACEHOLDER.match(text, start.start())):
        start = _START.search(text, word.end())  # "use {city}: {…}"
    if start is None or _in_list(text, start.start()):
        raise Unreadable("no JSON object in the text" if container else "not JSON")
    loose = Loose(text)
    value = loose.read(start.start())
    before, after = text[: start.start()], text[loose.pos :]
    _check_prose(before, after)
    prose = "text around the object"
    liberties = [*([prose] if before.strip() or after.strip() else []), *loose.notes]
    notes = [note for note in loose.notes if note.startswith("duplicate key")]
    return Read(value, liberties or ["structure"], notes)


def _in_list(text: str, start: int) -> bool:
    return text[:start].rstrip().endswith(("[", "［", ","))


def _check_prose(before: str, after: str) -> None:
    """Refuses to drop anything around an object that may be part of the call."""
    if _ASSIGNED.search(before) or _ASSIGNED.search(after):
        raise Unreadable("there are fields outside the object")
    if _START.search(after):
        raise Unreadable("more than one object")


def half_characters(text: str) -> bool:
    """Whether the text holds half of a surrogate pair, which no file, database or network takes."""
    return not text.isascii() and _HALF.search(text) is not None
