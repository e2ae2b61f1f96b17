"""What a journal is made of: the kinds of entries, their JSON, their chain of digests; the words for runs and writes.

Law: an entry that was written is read back the same for ever; its kind and the names in its data are for life.
(tests/test_ledger.py::test_what_was_appended_is_read_back_by_whoever_opens_the_ledger)
Law: whatever is damaged in a stored entry, reading it raises LedgerError.
(tests/test_ledger_damage.py::test_every_damage_is_a_ledger_error)

Each kind needs the fields listed in `KINDS`; more may stand beside them and are kept. Every entry carries the version
of its shape; `UPGRADES` turns older shapes into today's when they are read, and a newer shape is refused, not guessed.
The digest of an entry covers the digest before it, so that a missing, altered or moved line shows.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from callgate.errors import LedgerError
from callgate.events import load_event
from callgate.keys import arguments_hash, idempotency_key
from callgate.types import Entry, ToolCall, ToolResult

VERSION = 2
"""The shape that entries are written in today."""

KINDS: Mapping[str, tuple[str, ...]] = {
    "run_started": ("model", "principal"),
    "message": ("message",),
    "delta_merged": ("deltas",),
    "request": (),
    "check": ("what", "decision"),
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

UPGRADES: dict[tuple[str, int], Callable[[Mapping[str, object]], Mapping[str, object]]] = {
    (kind, 1): lambda data: data for kind in KINDS
}
"""(kind, version) -> its data in the shape of version + 1.

Version 2 adds fields (what was read of a call, the state of the asking); nothing that version 1 had is gone."""

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


_SHAPES: Mapping[str, tuple[type, ...]] = {
    "call_id": (str,),
    "tool": (str,),
    "arguments_hash": (str,),
    "key": (str,),
    "by": (str,),
    "reason": (str,),
    "principal": (str, Mapping, type(None)),
    "arguments": (Mapping,),
    "call": (Mapping,),
    "verdict": (Mapping,),
    "message": (Mapping,),
    "result": (Mapping,),
    "deltas": (list, tuple),
}
"""Field that a kind needs -> what it is."""


def check(entry: Entry) -> None:
    """Raises LedgerError for an entry that is none."""
    if entry.kind not in KINDS:
        raise LedgerError(f"entry kind {entry.kind!r}: unknown; known are {', '.join(KINDS)}")
    if fault := fault_in(entry.kind, entry.data):
        raise LedgerError(f"entry {entry.kind}: {fault}")
    if entry.version != VERSION:
        raise LedgerError(f"entry {entry.kind}: version {entry.version} cannot be written, only {VERSION}")


def fault_in(kind: str, data: Mapping[str, object]) -> str | None:
    """What is wrong with the data of an entry of this kind; None if it has what its kind needs."""
    for name in KINDS[kind]:
        if name not in data:
            return f"the field {name!r} is missing"
        if name in _SHAPES and not isinstance(data[name], _SHAPES[name]):
            return f"the field {name!r} is of type {type(data[name]).__name__}"
    return None


def from_text(kind: str, version: int, text: str, *, seq: int, at: float) -> Entry:
    """The entry that a store kept, in today's shape. Raises LedgerError if it is damaged."""
    # A kind or version from the future may change what the others mean: refused, not skipped.
    if version > VERSION or kind not in KINDS:
        raise LedgerError(f"entry {seq}: {kind!r} version {version} was written by a newer callgate; update callgate")
    if version < 1:
        raise LedgerError(f"entry {seq} ({kind}): version {version} is damaged")
    data: Mapping[str, object] = data_of(text, f"entry {seq} ({kind})")
    while version < VERSION:
        data = UPGRADES[kind, version](data)
        version += 1
    if fault := fault_in(kind, data):
        raise LedgerError(f"entry {seq} ({kind}): {fault}")
    return Entry(kind, data, seq=seq, at=at, version=version)


def data_of(text: str, where: str) -> dict[str, object]:
    """The JSON object in a stored text. Raises LedgerError, with `where`, if it is damaged."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LedgerError(f"{where}: its JSON is damaged: {error}") from error
    if not isinstance(data, dict):
        raise LedgerError(f"{where}: its JSON is no object")
    return data


def digest(before: str, *, run_id: str, seq: int, at: float, line: tuple[str, int, str]) -> str:
    """The digest of an entry: of everything in it, and of the digest before it. `line` is (kind, version, text)."""
    kind, version, text = line
    # The id as JSON: one with a line end in it must not read as two fields of this head. `repr` of a float is exact and
    # the same on every platform since Python 3.1.
    head = f"{before}\n{json.dumps(run_id)}\n{seq}\n{at!r}\n{kind}\n{version}\n"
    # A chain against damage and careless editing. Whoever may write to the file can make a chain of his own: that takes
    # a signature, and a key that he does not have.
    return hashlib.blake2b((head + text).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def intent(
    run_id: str, call: ToolCall, principal: str | None, *, key: str | None = None, hash_key: bytes = b""
) -> Entry:
    """The entry that must be durable before a write starts. `key`: another idempotency key, of the caller's;
    `hash_key`: that of the ledger."""
    return Entry(
        "call_intent",
        {
            "call_id": call.id,
            "tool": call.name,
            "arguments": call.arguments,
            "arguments_hash": arguments_hash(call.name, call.arguments, key=hash_key),
            "key": key or idempotency_key(run_id, call.id),
            "principal": principal,
        },
    )


def load_result(data: Mapping[str, object]) -> ToolResult | None:
    """The `ToolResult` in the data of a `call_result` or `call_settled`."""
    result = data.get("result")
    # An entry of another program's making: it has an outcome that we cannot read, so the write stays unknown.
    if not isinstance(result, Mapping):
        return None
    try:
        loaded = load_event({"type": "tool_result", **result})
    except (TypeError, ValueError, LookupError, AttributeError) as error:  # whatever a damaged result leads to
        raise LedgerError(f"a result in the ledger cannot be read: {error}") from error
    if not (isinstance(loaded, ToolResult) and isinstance(loaded.status, str) and isinstance(loaded.call_id, str)):
        raise LedgerError("a result in the ledger cannot be read: it is damaged")
    return loaded
