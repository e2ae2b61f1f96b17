"""What a journal is made of: the kinds of entries, their JSON, their chain of digests; the words for runs and writes.

One law: an entry that was written is read back the same for ever; its kind and the names in its data are for life.

Each kind needs the fields listed in `KINDS`; more may stand beside them and are kept. Every entry carries the version
of its shape; `UPGRADES` turns older shapes into today's when they are read, and a newer shape is refused, not guessed.
The digest of an entry covers the digest before it, so that a missing, altered or moved line shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import LedgerError
from callgate.events import load_event
from callgate.keys import arguments_hash, idempotency_key
from callgate.masking import Masking
from callgate.results import to_json
from callgate.types import Entry, ToolCall, ToolResult

_encode = json.JSONEncoder(allow_nan=False).encode

VERSION = 1
"""The shape that entries are written in today."""

MAX_ENTRY = 64_000_000
"""Characters of one entry's JSON: far above any real result, far below what a store can bear (SQLite: 1 GB)."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "run_started": ("model", "principal"),
    "message": ("message",),
    "delta_merged": ("deltas",),
    "request": (),
    "turn": (),
    "protocol": (),
    "call_proposed": ("call",),
    "call_judged": ("call_id", "verdict"),
    "ask": ("call_id",),
    "answer": ("call_id",),
    "call_intent": ("call_id", "tool", "arguments", "arguments_hash", "key", "principal"),
    "call_result": ("call_id", "result"),
    "call_settled": ("call_id", "result", "by"),
    "run_finished": ("reason",),
}
"""Kind -> the fields its data has at least.

`call_intent` is written before a write starts, `call_result` once for every call, `call_settled` when the outcome of a
write becomes known after its result had been given ("lookup", "late" or "person" in `by`).
"""

UPGRADES: dict[tuple[str, int], Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {}
"""(kind, version) -> its data in the shape of version + 1."""

NO_EFFECT: frozenset[str] = frozenset(
    {"failed", "not_found", "denied", "not_started", "invalid_arguments", "unknown_tool"}
)
"""Statuses after which a write has certainly changed nothing, so that the model may ask for it afresh."""

UNKNOWN: frozenset[str] = frozenset({"unknown_outcome", "timeout", "cancelled"})
"""Statuses of a started write of which nobody knows how it ended."""


@dataclass(slots=True, frozen=True)
class RunInfo:
    """A run as the ledger knows it, for lists."""

    run_id: str
    started: float
    updated: float
    model: str = ""
    principal: str | None = None
    prompt: str = ""
    """The beginning of what was asked."""
    reason: str | None = None
    """How it ended; None: it is going on, or was cut off."""
    entries: int = 0
    size: int = 0
    """Characters of its journal."""
    owner: str | None = None
    """Who carries it out just now."""


@dataclass(slots=True, frozen=True)
class Write:
    """A write that was journalled before it started, and what is known of its outcome."""

    run_id: str
    call_id: str
    tool: str
    arguments_hash: str
    key: str
    principal: str | None = None
    at: float = 0.0
    result: ToolResult | None = None
    """None: it was started and nothing came back, so its outcome is unknown."""
    settled_by: str | None = None

    @property
    def unknown(self) -> bool:
        """Whether nobody knows if it took effect."""
        return self.result is None or self.result.status in UNKNOWN

    @property
    def without_effect(self) -> bool:
        """Whether it has certainly changed nothing."""
        return self.result is not None and self.result.status in NO_EFFECT


@dataclass(slots=True, frozen=True)
class Lease:
    """The right to carry out one run. Appends under an older fence are refused."""

    run_id: str
    owner: str
    fence: int
    until: float
    """Wall time; by then it must be renewed."""


@dataclass(slots=True, frozen=True)
class Pruned:
    """What `prune` removed."""

    runs: int = 0
    entries: int = 0
    size: int = 0
    run_ids: tuple[str, ...] = ()


@dataclass(slots=True, frozen=True)
class Report:
    """What `verify` found: `problems` is empty if the ledger is sound."""

    runs: int = 0
    entries: int = 0
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is no fault but worth knowing: runs that were cut off, writes of unknown outcome."""


@dataclass(slots=True, frozen=True)
class Line:
    """An entry as stores keep it: JSON made and masked, before it is numbered and dated."""

    kind: str
    version: int
    data: Mapping[str, Any] = field(repr=False)
    text: str = field(repr=False)
    """The JSON of `data`; ASCII only, so that every store can hold it."""


def check(entry: Entry) -> None:
    """Raises LedgerError for an entry that is none."""
    needed = KINDS.get(entry.kind)
    if needed is None:
        raise LedgerError(f"entry kind {entry.kind!r}: unknown; known are {', '.join(KINDS)}")
    for name in needed:
        if name not in entry.data:
            raise LedgerError(f"entry {entry.kind}: the field {name!r} is missing")
    if entry.version != VERSION:
        raise LedgerError(f"entry {entry.kind}: version {entry.version} cannot be written, only {VERSION}")


def to_line(entry: Entry, masking: Masking) -> Line:
    """The entry checked, masked and as JSON. Raises LedgerError for what no ledger could hold."""
    check(entry)
    data, text = _masked_json(entry.data, masking)
    if len(text) > MAX_ENTRY:
        data = _cut(entry, data, len(text))
        text = _encode(data)
    return Line(entry.kind, entry.version, data, text)


def _masked_json(data: Mapping[str, Any], masking: Masking) -> tuple[Mapping[str, Any], str]:
    """The data without secrets, and its JSON; what JSON cannot hold is made plain first."""
    try:
        text = _encode(data)
    except (TypeError, ValueError, RecursionError):
        data = to_json(data)
        text = _encode(data)
    if not masking.may_concern(text):
        return data, text
    try:
        masked = masking.value(data)
        return masked, _encode(masked)
    except RecursionError:  # nested too deeply to be gone through; JSON with a masked text stays JSON
        text = masking.text(text)
        return json.loads(text), text


def _cut(entry: Entry, data: Mapping[str, Any], size: int) -> Mapping[str, Any]:
    """A result too large to be kept whole is kept without its value; anything else of that size is refused."""
    result = data.get("result")
    if entry.kind not in ("call_result", "call_settled") or not isinstance(result, Mapping):
        raise LedgerError(f"entry {entry.kind}: {size} characters are over the limit of {MAX_ENTRY} (MAX_ENTRY)")
    note = f"(a value of {size} characters: too large to be kept)"
    kept = {**data, "result": {**result, "value": note}}
    content = result.get("content")
    if isinstance(content, str) and len(content) > MAX_ENTRY // 10:
        kept["result"] = {**kept["result"], "content": content[: MAX_ENTRY // 10]}
    return kept


def from_text(kind: str, version: int, text: str, *, seq: int, at: float) -> Entry:
    """The entry that a store kept, in today's shape."""
    if version > VERSION or kind not in KINDS:
        raise LedgerError(f"entry {seq}: {kind!r} version {version} was written by a newer callgate; update callgate")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise LedgerError(f"entry {seq} ({kind}): its JSON is damaged: {error}") from error
    if not isinstance(data, dict):
        raise LedgerError(f"entry {seq} ({kind}): its JSON is no object")
    while version < VERSION:
        data = UPGRADES[kind, version](data)
        version += 1
    return Entry(kind, data, seq=seq, at=at, version=version)


def digest(before: str, *, run_id: str, seq: int, at: float, line: tuple[str, int, str]) -> str:
    """The digest of an entry: of everything in it, and of the digest before it. `line` is (kind, version, text)."""
    kind, version, text = line
    head = f"{before}\n{json.dumps(run_id)}\n{seq}\n{at!r}\n{kind}\n{version}\n"
    return hashlib.blake2b((head + text).encode("ascii"), digest_size=16).hexdigest()


def intent(run_id: str, call: ToolCall, principal: str | None, *, key: str | None = None) -> Entry:
    """The entry that must be durable before a write starts. `key`: another idempotency key, of the caller's."""
    return Entry(
        "call_intent",
        {
            "call_id": call.id,
            "tool": call.name,
            "arguments": call.arguments,
            "arguments_hash": arguments_hash(call.name, call.arguments),
            "key": key or idempotency_key(run_id, call.id),
            "principal": principal,
        },
    )


def load_result(data: Mapping[str, Any]) -> ToolResult | None:
    """The `ToolResult` in the data of a `call_result` or `call_settled`."""
    result = data.get("result")
    if not isinstance(result, Mapping):
        return None
    try:
        loaded = load_event({"type": "tool_result", **result})
    except (TypeError, ValueError) as error:
        raise LedgerError(f"a result in the ledger cannot be read: {error}") from error
    return loaded if isinstance(loaded, ToolResult) else None
