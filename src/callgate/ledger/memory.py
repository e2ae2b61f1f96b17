"""The ledger in memory: every promise but survival. What a library call uses that names no ledger, and tests.

One law: it answers every question as the stores on disk do.

Most runs are never asked about. So an entry is kept as a snapshot of its values, which is quickly made; masked, as JSON
and with its digest it is written only when somebody asks about its run.
"""

from __future__ import annotations

import marshal
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callgate.errors import LedgerError, RunBusy
from callgate.ledger import _owners
from callgate.ledger._entries import (
    Lease,
    Line,
    Pruned,
    Report,
    RunInfo,
    Write,
    check,
    digest,
    from_text,
    load_result,
    to_line,
)
from callgate.ledger._folding import Fold, Row, answering, check_run, is_prunable, pick_prunable
from callgate.masking import Masking
from callgate.types import Entry, ToolResult

AT_ONCE = 1_000_000
"""Bytes of a snapshot that may be looked into later; whether a larger one is too large shows at once."""


@dataclass(slots=True)
class _Kept:
    """One run: its rows, its summary, and its lease."""

    born: RunInfo
    """What was known when it began."""
    rows: list[Row] = field(default_factory=list)
    """Only text and numbers: the garbage collector has nothing to go through."""
    fold: Fold = field(default_factory=Fold)
    """The summary of `rows`."""
    fresh: list[tuple[str, float, bytes | Line]] = field(default_factory=list)
    """(kind, at, snapshot) of the entries that come after `rows`."""
    last: float = 0.0
    """When the last entry came."""
    started: set[str] = field(default_factory=set)
    """The calls that are writes and were journalled."""
    ended: set[str] = field(default_factory=set)
    """The calls with a result."""
    owner: str | None = None
    fence: int = 0
    until: float = 0.0
    cancel: bool = False

    @property
    def info(self) -> RunInfo:
        """The run for lists."""
        return self.fold.info(self.born)


class Store:
    """A `Ledger` in memory."""

    def __init__(
        self, rest: str = "", *, masking: Masking | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self.where = "memory"
        self._masking = masking or Masking()
        self._clock = clock
        self._runs: dict[str, _Kept] = {}
        self._writes: dict[str, list[str]] = {}
        """Hash of tool and arguments -> the runs that have started such writes."""
        self._closed = False

    async def append(
        self, run_id: str, entries: Sequence[Entry], *, durable: bool = True, fence: int | None = None
    ) -> list[Entry]:
        """See `Ledger.append`."""
        if self._closed:
            raise LedgerError("the ledger is closed")
        snapshots = [self._snapshot(entry) for entry in entries]
        kept = self._kept(run_id)
        if fence is not None and fence != kept.fence:
            raise RunBusy(f"run {run_id}: taken over by {_owners.describe(kept.owner or 'another owner')}")
        kept.started, kept.ended = _once(kept, entries)
        out = []
        for entry, snapshot in zip(entries, snapshots, strict=True):
            kept.last = at = max(self._clock(), kept.last)
            kept.fresh.append((entry.kind, at, snapshot))
            if entry.kind == "call_intent":
                self._writes.setdefault(str(entry.data["arguments_hash"]), []).append(run_id)
            seq = len(kept.rows) + len(kept.fresh)
            out.append(Entry(entry.kind, entry.data, seq=seq, at=at, version=entry.version))
        return out

    def _kept(self, run_id: str) -> _Kept:
        if run_id not in self._runs:
            now = self._clock()
            self._runs[run_id] = _Kept(RunInfo(run_id, now, now))
        return self._runs[run_id]

    def _snapshot(self, entry: Entry) -> bytes | Line:
        """The entry as it is now, whatever becomes of its values. Raises LedgerError for what no ledger could hold."""
        check(entry)
        if entry.kind in ("call_result", "call_settled"):
            load_result(entry.data)
        data: Any = entry.data
        try:
            snapshot = marshal.dumps(data, 2)  # version 2: what stands there twice is there twice
        except ValueError:  # more than plain values
            return to_line(entry, self._masking)
        return snapshot if len(snapshot) < AT_ONCE else to_line(entry, self._masking)

    def _line(self, kind: str, snapshot: bytes | Line) -> Line:
        if isinstance(snapshot, Line):
            return snapshot
        return to_line(Entry(kind, marshal.loads(snapshot)), self._masking)  # noqa: S302 - our own bytes

    def _asked(self, run_id: str) -> _Kept | None:
        """The run, with every entry written."""
        kept = self._runs.get(run_id)
        if kept is None or not kept.fresh:
            return kept
        lines = [(self._line(kind, snapshot), at) for kind, at, snapshot in kept.fresh]
        kept.fresh = []
        for line, at in lines:
            seq, before = len(kept.rows) + 1, kept.rows[-1][-1] if kept.rows else ""
            made = digest(before, run_id=run_id, seq=seq, at=at, line=(line.kind, line.version, line.text))
            kept.rows.append((seq, at, line.kind, line.version, line.text, made))
            kept.fold.add(run_id, line, at)
        return kept

    async def read(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """See `Ledger.read`."""
        kept = self._asked(run_id)
        rows = kept.rows[max(after, 0) :] if kept else []
        return [from_text(kind, version, text, seq=seq, at=at) for seq, at, kind, version, text, _ in rows]

    async def run(self, run_id: str) -> RunInfo | None:
        """See `Ledger.run`."""
        kept = self._asked(run_id)
        if kept is None or not kept.rows:
            return None
        return replace(kept.info, owner=kept.owner if self._is_held(kept) else None)

    async def runs(
        self, *, limit: int = 50, principal: str | None = None, reason: str | None = None, before: float | None = None
    ) -> list[RunInfo]:
        """See `Ledger.runs`."""
        found = [
            info
            for run_id in self._runs
            if (info := await self.run(run_id)) is not None
            and (principal is None or info.principal == principal)
            and (reason is None or (info.reason or "open") == reason)
            and (before is None or info.updated < before)
        ]
        return sorted(found, key=lambda info: (info.updated, info.run_id), reverse=True)[:limit]

    async def find_write(
        self, *, principal: str | None, tool: str, arguments_hash: str, run_id: str, key: str | None = None
    ) -> Write | None:
        """See `Ledger.find_write`."""
        found: list[tuple[Write, bool]] = []
        for other_run in dict.fromkeys(self._writes.get(arguments_hash, ())):
            kept = self._asked(other_run)
            if kept is not None:
                writes = (w for w in kept.fold.writes.values() if (w.tool, w.arguments_hash) == (tool, arguments_hash))
                found += [(write, self._is_held(kept)) for write in writes]
        found.sort(key=lambda each: each[0].at)
        return answering(found, run_id=run_id, principal=principal, key=key)

    async def write(self, run_id: str, call_id: str) -> Write | None:
        """See `Ledger.write`."""
        kept = self._asked(run_id)
        return kept.fold.writes.get(call_id) if kept else None

    async def result(self, run_id: str, call_id: str) -> ToolResult | None:
        """See `Ledger.result`."""
        kept = self._asked(run_id)
        return kept.fold.results.get(call_id) if kept else None

    # --- leases ---------------------------------------------------------------------------------------------------

    def _is_held(self, kept: _Kept) -> bool:
        return kept.owner is not None and kept.until > self._clock() and not _owners.is_dead(kept.owner)

    async def lease(self, run_id: str, *, owner: str | None = None, seconds: float = 30.0) -> Lease:
        """See `Ledger.lease`."""
        owner = owner or _owners.me()
        kept = self._kept(run_id)
        if self._is_held(kept) and kept.owner != owner:
            raise RunBusy(f"run {run_id}: carried out by {_owners.describe(kept.owner or '')} already")
        kept.owner, kept.fence, kept.until, kept.cancel = owner, kept.fence + 1, self._clock() + seconds, False
        return Lease(run_id, owner, kept.fence, kept.until)

    async def renew(self, lease: Lease, *, seconds: float = 30.0) -> tuple[Lease, bool]:
        """See `Ledger.renew`."""
        kept = self._runs.get(lease.run_id)
        if kept is None or (kept.owner, kept.fence) != (lease.owner, lease.fence):
            raise RunBusy(f"run {lease.run_id}: the lease went to another owner")
        kept.until = self._clock() + seconds
        return replace(lease, until=kept.until), kept.cancel

    async def release(self, lease: Lease) -> None:
        """See `Ledger.release`."""
        kept = self._runs.get(lease.run_id)
        if kept is not None and (kept.owner, kept.fence) == (lease.owner, lease.fence):
            kept.owner, kept.until = None, 0.0

    async def cancel(self, run_id: str) -> bool:
        """See `Ledger.cancel`."""
        kept = self._runs.get(run_id)
        if kept is None or not self._is_held(kept):
            return False
        kept.cancel = True
        return True

    # --- keeping --------------------------------------------------------------------------------------------------

    async def prune(
        self, *, older_than: float | None = None, max_size: int | None = None, keep_unknown: bool = True
    ) -> Pruned:
        """See `Ledger.prune`."""
        all_runs = [kept for run_id in self._runs if (kept := self._asked(run_id)) is not None]
        candidates = [
            kept.info
            for kept in all_runs
            if not self._is_held(kept) and is_prunable(kept.info, kept.fold.unknown, keep_unknown)
        ]
        total = sum(kept.info.size for kept in all_runs)
        cutoff = None if older_than is None else self._clock() - older_than
        gone = pick_prunable(candidates, total=total, cutoff=cutoff, max_size=max_size)
        for info in gone:
            del self._runs[info.run_id]
        for places in self._writes.values():
            places[:] = [place for place in places if place in self._runs]
        return Pruned(len(gone), sum(i.entries for i in gone), sum(i.size for i in gone), tuple(i.run_id for i in gone))

    async def verify(self, run_id: str | None = None) -> Report:
        """See `Ledger.verify`."""
        report = Report()
        for name in self._runs:
            kept = self._asked(name)
            if kept is not None and run_id in (None, name):
                report = check_run(name, kept.rows, report, is_held=self._is_held(kept))
        return report

    async def scan(
        self, *, kinds: Collection[str] = (), since: float = 0.0, run_id: str | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        """See `Ledger.scan`."""
        for name in [run_id] if run_id is not None else list(self._runs):
            for entry in await self.read(name):
                if entry.at >= since and (not kinds or entry.kind in kinds):
                    yield name, entry

    async def aclose(self) -> None:
        """See `Ledger.aclose`."""
        self._closed = True


def _once(kept: _Kept, entries: Sequence[Entry]) -> tuple[set[str], set[str]]:
    """The writes started and the calls ended with these entries; refused is what the tables of the other stores refuse
    by their keys."""
    started, ended = kept.started, kept.ended
    for entry in entries:
        if entry.kind not in ("call_intent", "call_result", "call_settled"):
            continue
        call_id = str(entry.data["call_id"])
        if entry.kind == "call_intent":
            if call_id in started:
                raise LedgerError(f"call {call_id}: this write was started before; it is not started again")
            started = started | {call_id}
        elif entry.kind == "call_result":
            if call_id in ended:
                raise LedgerError(f"call {call_id}: this call has a result already")
            ended = ended | {call_id}
        elif call_id not in started:
            raise LedgerError(f"call {call_id}: no write was started for it, so there is nothing to settle")
    return started, ended
