"""From an entry to the line that a store keeps: masked once, its masked places named, as JSON.

Law: no text of a stored line holds a secret that the rules know, and every masked place is named in the line's
`masked`. (tests/test_ledger.py::test_masked_places_are_named_out_of_band)

Names are not values: the ids of calls, idempotency keys and hashes stay as they are, since answers, lookups and
settlements are found by them, and a masked name would be equal to every other one. Nor are our own words and counts:
a model that gives `waiting` or 1000 for a password must not make a journal that cannot be read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

from callgate.errors import LedgerError
from callgate.ledger._entries import check
from callgate.masking import Masking
from callgate.results import to_json
from callgate.types import Entry, FinishReason, RunReason

_encode = json.JSONEncoder(allow_nan=False).encode
# For what is held only: NaN and Infinity are not JSON (RFC 8259, 6), but a model's 1e400 must come back as it was.
_encode_any = json.JSONEncoder(default=str).encode

MAX_ENTRY = 64_000_000
"""Characters of one entry's JSON: far above any real result, far below what a store can bear (SQLite: 1 GB)."""

_NAMES = ("call_id", "id", "tool", "name", "arguments_hash", "key")
_IDS = ("call_id", "id")
_HEX = re.compile("(?:[0-9a-f]{32}|[0-9a-f]{64})?")
"""Hashes and keys that we made, or none."""
_OWN = ("type", "role", "status", "effect", "permission", "parameters", "protocol", "dialect", "scope", "finish")
"""Fields that hold words of ours or of the application, whatever a model writes."""
_REASONS = frozenset((*get_args(RunReason), *get_args(FinishReason)))
_FOREIGN = ("value", "output")
"""Fields whose numbers are those of tools and models."""
_INSIDE = (
    "call", "bad", "result", "message", "messages", "calls", "deltas", "tool", "verdict", "refusal", "total",
    "asking", "scratch",
)  # fmt: skip
"""Where names stand: in these fields of an entry, and in the same fields of what stands there; never in arguments."""


@dataclass(slots=True, frozen=True)
class Line:
    """An entry as stores keep it: JSON made and masked, before it is numbered and dated."""

    kind: str
    version: int
    data: Mapping[str, Any] = field(repr=False)
    """With `masked`, the JSON pointers (RFC 6901) of its masked places, if there are any."""
    text: str = field(repr=False)
    """The JSON of `data`; ASCII only, so that every store can hold it."""
    held: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Call id -> JSON of its true arguments, where the journal does not have them."""


def to_line(entry: Entry, masking: Masking) -> Line:
    """The entry checked, masked and as JSON. Raises LedgerError for what no ledger could hold."""
    check(entry)
    if entry.secrets:
        masking = masking.with_secrets(entry.secrets)
    data, text = _masked_json(entry.data, masking)
    if len(text) > MAX_ENTRY:
        data = _cut(entry, data, len(text))
        text = _encode(data)
    return Line(entry.kind, entry.version, data, text, _to_hold(entry, masking) if entry.held else {})


def _masked_json(data: Mapping[str, Any], masking: Masking) -> tuple[Mapping[str, object], str]:
    """The data without secrets, and its JSON; what JSON cannot hold is made plain first."""
    try:
        text = _encode(data)
    except (TypeError, ValueError, RecursionError):
        data = _plain(data)
        text = _encode(data)
    # The short way of nearly all entries: one look over the text instead of a walk through every value.
    if not _may_concern(masking, _without_names(data, text)):
        return data, text
    try:
        masked, places = masking.mask(data)
        if not places:
            return data, text
        # An id such as `call_sk-live-abcdefgh12345678` looks like a token; masked, no answer would find its call any
        # more.
        named = _names_back(masked, data)
        places = tuple(place for place in places if _at(named, place) is not _at(data, place))
        data = {**named, "masked": sorted({*places, *data.get("masked", ())})} if places else data
        return data, _encode(data)
    # Arguments that a model nested thousands deep: the entry must be recorded all the same, or the run could not end.
    except RecursionError:  # nested too deeply to be gone through; JSON with a masked text mostly stays JSON
        data = {**_masked_text(data, text, masking), "masked": [""]}
        return data, _encode(data)


def _masked_text(data: Mapping[str, object], text: str, masking: Masking) -> Mapping[str, object]:
    try:
        masked = json.loads(masking.text(text))
    except (ValueError, RecursionError):
        masked = masking.value(to_json(data))  # cut at a depth that can be gone through
    return masked if isinstance(masked, Mapping) else {}


def _plain(data: Mapping[str, object]) -> Mapping[str, object]:
    try:
        plain = _made_plain(data)
        _encode(plain)
    except (RecursionError, ValueError):
        plain = to_json(data)
    return plain if isinstance(plain, Mapping) else {}


def _without_names(data: Mapping[str, object], text: str) -> str:
    """The text without our own hashes, a time, and the ids of calls, which stay as they are and look like secrets."""
    call, tool, message = data.get("call"), data.get("tool"), data.get("message")
    places: list[Any] = [data, call, data.get("result")]
    if isinstance(message, Mapping):
        places += message.get("calls") or ()
    for place in places:
        for name in _IDS if isinstance(place, Mapping) else ():
            if isinstance(value := place.get(name), str):
                text = text.replace(f'"{name}": {_encode(value)}', "")
    for place, name in ((data, "arguments_hash"), (data, "key"), (tool, "parameters")):
        if isinstance(place, Mapping) and isinstance(value := place.get(name), str) and _HEX.fullmatch(value):
            text = text.replace(f'"{name}": "{value}"', "")
    if isinstance(seconds := data.get("first_token"), float):  # a time of ours, under a name as that of a secret
        text = text.replace(f'"first_token": {_encode(seconds)}', "")
    return text


def _may_concern(masking: Masking, text: str) -> bool:
    """A declared secret may stand in JSON in another spelling (quotes, accents), so there is no short cut for them."""
    return bool(masking.secrets) or masking.may_concern(text)


def _names_back(masked: object, true: object) -> Any:
    """The masked data with the names of calls, our own words and our counts as they were."""
    if isinstance(masked, Mapping) and isinstance(true, Mapping):
        out = dict(masked)
        for name, value in true.items():
            if name == "usage" and isinstance(value, Mapping):
                out[name] = {kind: _count(m, t) for (kind, m), t in zip(out[name].items(), value.values(), strict=True)}
            elif name in _INSIDE and out[name] is not value and not isinstance(value, str):
                out[name] = _names_back(out[name], value)
            elif _is_ours(name, value):
                out[name] = value
        return out
    if isinstance(masked, list) and isinstance(true, (list, tuple)):
        return [m if m is t else _names_back(m, t) for m, t in zip(masked, true, strict=True)]
    return masked


def _count(masked: object, true: object) -> object:
    return true if isinstance(true, (int, float)) else masked


def _is_ours(name: str, value: object) -> bool:
    if isinstance(value, str):
        return name in _NAMES or name in _OWN or (name == "reason" and value in _REASONS)
    return isinstance(value, (int, float)) and name not in _FOREIGN


def _at(data: Any, pointer: str) -> object:
    """What stands at an RFC 6901 pointer that `Masking.mask` gave."""
    for escaped in pointer.split("/")[1:]:
        step = escaped.replace("~1", "/").replace("~0", "~")
        if isinstance(data, Mapping):
            data = data[step] if step in data else next((v for k, v in data.items() if str(k) == step), None)
        else:
            data = data[int(step)]
    return data


def _to_hold(entry: Entry, masking: Masking) -> dict[str, str]:
    """The arguments that the journal will not have as they were: masked ones, and what JSON cannot hold."""
    out = {}
    for call_id, arguments in (entry.held or {}).items():
        try:
            text = _encode(arguments)
            if not _may_concern(masking, text) or not masking.mask(arguments)[1]:
                continue
        except (TypeError, ValueError, RecursionError):
            text = _encode_loosely(arguments)
        out[call_id] = text
    return out


def load_held(call_id: str, text: str) -> dict[str, object]:
    """The true arguments of a call. Raises LedgerError if they are damaged."""
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise LedgerError(f"call {call_id}: its held arguments are damaged; cancel the run") from error
    if not isinstance(arguments, dict):
        raise LedgerError(f"call {call_id}: its held arguments are damaged; cancel the run")
    return arguments


def _encode_loosely(arguments: Mapping[str, object]) -> str:
    """JSON with Python's Infinity and NaN, which a model's 1e400 becomes."""
    try:
        return _encode_any(arguments)
    except (TypeError, ValueError, RecursionError):
        return _encode(to_json(arguments))


def _made_plain(value: object, above: frozenset[int] = frozenset()) -> object:
    """The value as JSON, changed only where JSON cannot hold it: a neighbour's id stays, whatever it is made of."""
    # A value that contains itself: `to_json` says so in its place.
    if isinstance(value, str) or id(value) in above:
        return str(value) if isinstance(value, str) else to_json(value)
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {str(name): _made_plain(part, above | {id(value)}) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_made_plain(part, above | {id(value)}) for part in value]
    return to_json(value)


def _cut(entry: Entry, data: Mapping[str, Any], size: int) -> Mapping[str, object]:
    """A result too large to be kept whole is kept without its value; anything else of that size is refused."""
    result = data.get("result")
    if entry.kind not in ("call_result", "call_settled") or not isinstance(result, Mapping):
        raise LedgerError(f"entry {entry.kind}: {size} characters are over the limit of {MAX_ENTRY} (MAX_ENTRY)")
    # Without its value the result is still whole for the model, which had its text: only what pages and exports would
    # read is gone.
    note = f"(a value of {size} characters: too large to be kept)"
    kept = {**data, "result": {**result, "value": note}}
    content = result.get("content")
    if isinstance(content, str) and len(content) > MAX_ENTRY // 10:
        kept["result"] = {**kept["result"], "content": content[: MAX_ENTRY // 10]}
    return kept
