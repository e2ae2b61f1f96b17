"""What the model sees of a result: any Python value as strict JSON, cut to a limit so that what is left is still true.

Law: the text is never longer than the limit, a string result is text and everything else is strict JSON; items are kept
whole, and every cut says how much is missing (X9).
(tests/test_results.py::test_never_over_the_limit_and_always_strict_json)
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Iterable, Mapping, Set
from enum import Enum
from typing import Any

from callgate.errors import ConfigError
from callgate.limits import DEFAULTS
from callgate.media import IMAGES, Media, kind_in
from callgate.types import Part, ToolCall, ToolResult

MAX_DEPTH = 64
"""Deeper values are cut there: models do not follow them, and readers refuse them."""
MAX_DIGITS = 4000
"""Integers longer than this are written as hexadecimal text: Python refuses to print them as decimals."""
MIN_LIMIT = 80
"""A smaller limit could not even hold the mark of a cut."""
ITEM_KEPT = 40
"""Below this budget a nested value is not cut further but left out and counted."""
MAX_PARTS = 16
"""Images and other parts of one result that reach the model: each costs it hundreds of tokens."""
PARTS = frozenset({"image_url", "input_audio", "file"})
"""The content parts, by their `type`, that go to a model beside a result's text."""
_HUGE = 10**MAX_DIGITS
_INVITES = re.compile(r"\b(?:try|retry|retries|retrying|again|repeat|resend|resubmit|re-?run)\b", re.IGNORECASE)


def compress(value: object, limit: int = DEFAULTS.max_result) -> tuple[str, int]:
    """The value as text for the model, at most `limit` characters, and the size of the whole (0: nothing was cut)."""
    limit = max(limit, MIN_LIMIT)
    if isinstance(value, str):
        text = _sound(value)
        return (text, 0) if len(text) <= limit else (_cut_text(text, limit), len(text))
    plain = to_json(value)
    text = dump(plain)
    if len(text) <= limit:
        return text, 0
    budget = limit
    while budget > ITEM_KEPT:
        cut = dump(_fit(plain, budget))
        if len(cut) <= limit:
            return cut, len(text)
        budget -= max(len(cut) - limit, 1)  # marks deep inside took more than their share
    return dump(f"… ({len(text)} characters of JSON, left out)"), len(text)


def unknown_outcome(call: ToolCall, why: str = "", message: str = "") -> ToolResult:
    """The result of a write that was started and may have taken effect. No word of it invites the model to do it over:
    the tool's own `message` is quoted only if it does not either."""
    because = f"; {why}" if why else ""
    # Words such as "try again" come from services that mean well; read by a model they are an order.
    quoted = f" ({message})" if message and not _INVITES.search(message) else ""
    text = (
        f"Outcome unknown: {call.name} was started and may have taken effect{because}{quoted}. Do not call it a second "
        "time. Check by reading what happened, or tell the user that the outcome is open."
    )
    return ToolResult(call.id, "unknown_outcome", text)


def apart(value: Any) -> tuple[object, tuple[Part, ...]]:
    """What a tool returned without its images and other content parts, and those: they go to the model beside the text.

    A part is a mapping in the OpenAI form (`Part`), or the bytes of an image; a tool returns one, or a list with some
    among its items. A note stands in the place of each.
    """
    several = isinstance(value, (list, tuple))
    items = value if several else (value,)
    found = [_part(item) for item in items]
    if not any(found):
        return value, ()
    rest: list[Any] = []
    parts: list[Part] = []
    for item, part in zip(items, found, strict=True):
        if part is None:
            is_text = isinstance(item, Mapping) and item.keys() == {"type", "text"} and item["type"] == "text"
            rest.append(item["text"] if is_text else item)
        elif len(parts) < MAX_PARTS:
            parts.append(part)
            rest.append(f"[{kind_of(part)}]")
        else:
            rest.append(f"[{kind_of(part)}, left out: only {MAX_PARTS} are passed on]")
    return "\n".join(rest) if all(isinstance(item, str) for item in rest) else rest, tuple(parts)


def with_parts(value: object) -> Any:
    """The same with content parts in the place of images' bytes: JSON can carry them to another process."""
    if isinstance(value, (list, tuple)):
        return [_part(item) or item for item in value]
    return _part(value) or value


def _part(value: Any) -> Part | None:
    """The value as a content part that is not text, if it is one."""
    if isinstance(value, (str, int, float)):  # before all else: most values are plain
        return None
    if isinstance(value, Media):
        try:
            return value.part
        except ConfigError:  # what a tool gives is shown as it is: a result never breaks
            return None
    if isinstance(value, bytes):
        kind = kind_in(value, IMAGES)
        data = base64.b64encode(value).decode("ascii") if kind else ""
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{data}"}} if kind else None
    kind = value.get("type") if isinstance(value, Mapping) else None
    if isinstance(kind, str) and kind in PARTS and isinstance(value.get(kind), Mapping):
        return to_json(value)  # type: ignore[no-any-return]  # a mapping stays one
    return None


def kind_of(part: Part) -> str:
    """What a part is, in words: "image/png", "audio/wav", "file"."""
    inner = part.get(str(part.get("type")), {})
    if part.get("type") == "input_audio":
        return f"audio/{inner.get('format', 'unknown')}"
    found = re.match(r"data:([\w.+/-]{1,80})[;,]", str(inner.get("url") or inner.get("file_data") or ""))
    return found[1] if found else "image" if part.get("type") == "image_url" else "file"


def page(value: object, start: int = 0, limit: int = DEFAULTS.max_result) -> tuple[str, int | None]:
    """A later part of a result: of a list the items from `start`, of anything else the characters of its text.

    The second value is where the next page starts, None after the last one. At least one item is always given.
    """
    limit = max(limit, MIN_LIMIT)
    plain = _sound(value) if isinstance(value, str) else to_json(value)
    if not isinstance(plain, list):
        text = plain if isinstance(plain, str) else dump(plain)
        end = min(len(text), start + limit)
        return text[start:end], end if end < len(text) else None
    used, end = 2, start
    parts: list[str] = []
    while end < len(plain):
        part = dump(plain[end])
        if used + len(part) + 2 > limit and parts:
            break
        if used + len(part) > limit:
            part = dump(_fit(plain[end], limit - used))
        parts.append(part)
        used += len(part) + 2
        end += 1
    return f"[{', '.join(parts)}]", end if end < len(plain) else None


def dump(plain: object) -> str:
    """JSON text of a value that `to_json` made."""
    return json.dumps(plain, ensure_ascii=False, allow_nan=False)


def to_json(value: object) -> Any:
    """The value as plain JSON, whatever it is: a result must never break the message that carries it."""
    return _plain(value, frozenset(), 0)


def _plain(value: object, above: frozenset[int], depth: int) -> object:
    if type(value) is str:  # before the patterns: most values are text
        return _sound(value)
    match value:
        case None | True | False:
            return value
        case Enum():
            return _plain(value.value, above, depth)
        case str():
            return _sound(str(value))
        case int():
            return int(value) if abs(value) < _HUGE else hex(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case bytes() | bytearray():
            return _bytes(bytes(value))
        case _:
            pass
    if id(value) in above:
        return "(cycle: this value contains itself)"
    if depth >= MAX_DEPTH:
        return "(cut: nested too deeply)"
    return _nested(value, above | {id(value)}, depth + 1)


def _nested(value: object, above: frozenset[int], depth: int) -> object:
    if isinstance(value, (dict, Mapping)):
        return {_key(k): _plain(v, above, depth) for k, v in value.items()}
    if isinstance(value, tuple) and (fields := getattr(value, "_asdict", None)) is not None:
        return _nested(fields(), above, depth)
    if isinstance(value, (list, tuple)):
        return [_plain(v, above, depth) for v in value]
    if isinstance(value, Set):
        return [_plain(v, above, depth) for v in _steady(value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name, None), above, depth) for f in dataclasses.fields(value)}
    # By method and not by type: nobody who has no pydantic or numpy should have to import it.
    for method in ("model_dump", "isoformat", "tolist"):  # pydantic models; dates and times; arrays and their numbers
        made = _ask(value, method)
        if made is not None:
            return _plain(made, above, depth)
    return _sound(_text(value))


def _ask(value: object, method: str) -> object:
    if isinstance(value, type) or not callable(getattr(type(value), method, None)):
        return None
    try:
        made = getattr(value, method)()
    except Exception:  # a foreign method; the text of the value is the answer then
        return None
    return None if made is value else made


def _text(value: object) -> str:
    try:
        looks: tuple[object, object] = (type(value).__str__, type(value).__repr__)
        if looks == (object.__str__, object.__repr__):
            return f"({type(value).__name__})"  # the default repr shows only an address in memory
        return str(value)
    except Exception:
        return f"({type(value).__name__})"


def _key(key: object) -> str:
    if isinstance(key, str):
        return _sound(key)
    plain = _plain(key, frozenset(), 0)
    return plain if isinstance(plain, str) else dump(plain)


def _steady(values: Iterable[object]) -> list[Any]:
    """A set in an order that does not change from run to run."""
    try:
        # So that two runs of the same thing compare equal, and a provider's cache of the prompt holds.
        return sorted(values)
    except TypeError:
        return sorted(values, key=lambda v: (type(v).__name__, _text(v)))


def _bytes(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        # Marked: text that is base64 by chance must not be taken for bytes.
        return "base64:" + base64.b64encode(data).decode("ascii")


def _sound(text: str) -> str:
    """Without lone surrogates, which no wire can carry."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


# --- cutting ------------------------------------------------------------------------------------------------------


def _cut_text(text: str, limit: int) -> str:
    """Head and tail, two to one: reports begin with what matters and end with the error."""
    mark = f"\n… ({len(text)} characters in all, the middle is left out) …\n"
    room = limit - len(mark)
    if room < ITEM_KEPT:
        mark = f"… (of {len(text)})"
        room = max(0, limit - len(mark))
        return text[:room] + mark
    head = room - room // 3
    return text[:head] + mark + text[len(text) - (room - head) :]


def _fit(plain: object, budget: int) -> object:
    """The value cut so that its JSON has at most `budget` characters."""
    if _fits(plain, budget):
        return plain
    match plain:
        case str():
            return _fit_text(plain, budget)
        case list():
            return _fit_list(plain, budget)
        case dict():
            return _fit_object(plain, budget)
        case _:
            return _fit_text(str(plain), budget)  # a very long number


def _fits(plain: object, budget: int) -> bool:
    return len(dump(plain)) <= budget


def _fit_text(text: str, budget: int) -> str:
    """A string whose JSON, escapes and quotes included, keeps within the budget."""
    room = budget - 2
    while True:
        cut = _cut_text(text, max(room, 0))
        over = len(dump(cut)) - budget
        if over <= 0 or room <= 0:
            return cut
        room -= max(over, 1)


def _fit_list(items: list[object], budget: int) -> list[object]:
    """The first whole items, then a string that says how many there are; the first item is cut if it is too large."""
    mark = f"… ({len(items)} items in all, the first {len(items)} are shown)"
    room = budget - len(dump([mark]))
    kept: list[object] = []
    for item in items:
        size = len(dump(item)) + 2
        if size > room:
            break
        kept.append(item)
        room -= size
    if not kept and items and room - 2 >= ITEM_KEPT:
        kept = [_fit(items[0], room - 2)]
    if len(kept) == len(items):
        return kept
    return [*kept, f"… ({len(items)} items in all, the first {len(kept)} are shown)"]


def _fit_object(fields: dict[str, object], budget: int) -> dict[str, object]:
    """All keys if they fit: small values whole, the large ones share what is left; else the first fields whole."""
    overhead = len(dump(dict.fromkeys(fields, 0))) - len(fields)
    share = _share([len(dump(v)) for v in fields.values()], budget - overhead)
    if share >= ITEM_KEPT:
        return {k: _fit(v, share) for k, v in fields.items()}
    mark = f"({len(fields)} fields in all, the first {len(fields)} are shown)"
    room = budget - len(dump({"…": mark}))
    kept: dict[str, object] = {}
    for key, value in fields.items():
        size = len(dump({key: value}))
        if size > room:
            break
        kept[key] = value
        room -= size
    return {**kept, "…": f"({len(fields)} fields in all, the first {len(kept)} are shown)"}


def _share(sizes: list[int], room: int) -> int:
    """The largest equal share so that all values, each cut to it, fit the room."""
    left = len(sizes)
    for size in sorted(sizes):
        if size * left > room:
            return room // left if left else room
        room -= size
        left -= 1
    return max(room, max(sizes, default=0))
