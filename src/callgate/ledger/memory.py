"""The ledger in memory: every promise but survival. What a library call uses that names no ledger, and tests.

Law: it answers every question as the stores on disk do.
(tests/test_ledger.py::test_an_identical_write_is_answered_from_the_ledger)
Law: it keeps every run that goes on, waits or has a write of unknown outcome, and of the others the last `KEEP_RUNS`
("memory:500": the last 500). (tests/test_ledger_memory.py::test_only_the_last_finished_runs_are_kept)

Theory of operation. Most runs are never asked about. (1) An entry is kept as a snapshot of its values, which is quickly
made; what the tables of the other stores refuse by their keys is refused at once. (2) Only when somebody asks about a
run its snapshots become lines (masked, as JSON, with their digests) and are folded; in a thread if that takes long.
(3) Threads with loops of their own may share one store: what is shared changes under a lock.
"""

from __future__ import annotations

import asyncio
import marshal
import secrets
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.ledger import _owners
from callgate.ledger._entries import (
    UNKNOWN,
    Lease,
    Pruned,
    Report,
    RunInfo,
    Write,
    check,
    digest,
    from_text,
    load_result,
)
from callgate.ledger._folding import Fold, Row, answering, check_run, is_prunable, pick_prunable
from callgate.ledger._lines import MAX_ENTRY, Line, load_held, to_line
from callgate.masking import Masking
from callgate.types import Entry, ToolResult

KEEP_RUNS = 1000
"""Finished runs that are kept: a day of a busy chat, some tens of megabytes."""
IN_A_THREAD = 200_000
"""Bytes of snapshots from which on masking them would hold up the event loop for too long."""

_STARTED, _ENDED, _OPEN = 1, 2, 4
"""A call: a write that was started; has its result; a write whose outcome nobody knows."""
_OF_CALLS = frozenset({"call_intent", "call_result", "call_settled"})
_TURNS = frozenset({"run_started", "message", "run_finished"})
"""Entries after which a run goes on, or has ended."""


@dataclass(slots=True)
class _Run:
    """One run: its entries, what they add up to, and its lease."""

    born: RunInfo
    """What was known when it began."""
    fence: int
    rows: list[Row] = field(default_factory=list)
    """Only text and numbers: the garbage collector has nothing to go through."""
    fresh: list[tuple[str, float, bytes | Line]] = field(default_factory=list)
    """(kind, at, snapshot) of the entries that come after `rows`."""
    fold: Fold = field(default_factory=Fold)
    """What `rows` add up to."""
    folding: threading.Lock = field(default_factory=threading.Lock)
    last: float = 0.0
    """When the last entry came."""
    calls: dict[str, int] = field(default_factory=dict)
    hashes: frozenset[str] = frozenset()
    """Of tool and arguments of the writes that it started."""
    finished: bool = False
    owner: str | None = None
    until: float = 0.0
    cancel: bool = False

    @property
    def is_needed(self) -> bool:
        """Whether it goes on, waits, or has a write that is to be settled."""
        return not self.finished or self.owner is not None or any(state & _OPEN for state in self.calls.values())

    def is_held(self, now: float) -> bool:
        """Whether somebody carries it out. A dead owner's lease need not run out first, as in the stores on disk."""
        return self.owner is not None and self.until > now and not _owners.is_dead(self.owner)


class Store:
    """A `Ledger` in memory."""

    def __init__(
        self,
        rest: str = "",
        *,
        masking: Masking | None = None,
        clock: Callable[[], float] = time.time,
        hold_secrets: bool = True,
    ) -> None:
        if rest and not rest.isdecimal():
            raise ConfigError(f'ledger "memory:{rest}": only the number of finished runs to keep may follow')
        self.where = "memory"
        # the last one stays whatever is asked for: whoever carried it out is about to read how it ended
        self._keep = max(1, int(rest) if rest else KEEP_RUNS)
        self._masking = masking or Masking()
        self._clock = clock
        self._runs: dict[str, _Run] = {}
        self._finished: dict[str, None] = {}
        """Runs that nobody needs any more, in the order in which they came to that."""
        self._same: dict[str, dict[str, None]] = {}
        """Hash of a write -> the runs that started it: looked at before every write, so no run is gone through."""
        self._hold_secrets = hold_secrets
        self._key = secrets.token_bytes(32)
        self._closed = False
        self._lock = threading.RLock()

    # --- entries --------------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, entries: Sequence[Entry], *, durable: bool = True, fence: int | None = None
    ) -> list[Entry]:
        """See `Ledger.append`."""
        if self._closed:
            raise LedgerError("the ledger is closed")
        # outside of the lock: a refused entry leaves no run behind, and a large one keeps no other thread waiting
        snapshots = [self._snapshot(entry) for entry in entries]
        if not snapshots:
            return []
        out = []
        with self._lock:
            run = self._runs.get(run_id) or self._begun(run_id)
            if fence is not None and fence != run.fence:
                raise RunBusy(f"run {run_id}: taken over by {_owners.describe(run.owner or 'another owner')}")
            run.calls = _calls_after(run.calls, entries)  # refuses before anything is kept: all entries or none
            for entry, snapshot in zip(entries, snapshots, strict=True):
                run.last = at = max(
                    self._clock(), run.last
                )  # rule 4 of the room: a clock that is set back moves nothing
                run.fresh.append((entry.kind, at, snapshot))
                seq = len(run.rows) + len(run.fresh)
                out.append(Entry(entry.kind, entry.data, seq=seq, at=at, version=entry.version))
                if entry.kind == "call_intent":
                    run.hashes |= {same := entry.data["arguments_hash"]}
                    self._same.setdefault(same, {})[run_id] = None
                elif entry.kind in _TURNS:
                    run.finished = entry.kind == "run_finished" and entry.data["reason"] != "waiting"
            if run.finished or run_id in self._finished:
                self._review(run_id, run)
        return out

    def _begun(self, run_id: str) -> _Run:
        now = self._clock()
        # fences begin anywhere: one from a store of an earlier process must not fit a run of this one by chance
        run = self._runs[run_id] = _Run(RunInfo(run_id, now, now), secrets.randbits(48))
        return run

    def _review(self, run_id: str, run: _Run) -> None:
        """Counts the run among those that nobody needs, or not any more; the oldest ones above the limit are let go."""
        if run.is_needed:
            self._finished.pop(run_id, None)
            return
        self._finished.setdefault(run_id)
        while len(self._finished) > self._keep:
            self._forget(next(iter(self._finished)))

    def _forget(self, run_id: str) -> None:
        for same in self._runs.pop(run_id).hashes:
            del self._same[same][run_id]
            if not self._same[same]:
                del self._same[same]
        self._finished.pop(run_id, None)

    def _snapshot(self, entry: Entry) -> bytes | Line:
        """The entry as it is now, whatever becomes of its values. Raises LedgerError for what no ledger could hold."""
        check(entry)
        # What could not be read back later is refused now, when somebody can still do something about it.
        if entry.kind in ("call_result", "call_settled"):
            load_result(entry.data)
        values: Any = (entry.data, entry.held, entry.secrets)
        try:
            # Quicker than JSON and masking, which most runs never need: nobody asks about them.
            snapshot = marshal.dumps(values, 2)  # version 2: what stands there twice is there twice
        except ValueError:  # more than plain values
            return to_line(entry, self._masking)
        # JSON escapes a byte with six characters at most, so nothing smaller can be over the limit
        return snapshot if len(snapshot) < MAX_ENTRY // 6 else to_line(entry, self._masking)

    # --- asking ---------------------------------------------------------------------------------------------------

    async def _asked(self, run_id: str) -> _Run | None:
        """The run, with every entry a line and folded."""
        run = self._runs.get(run_id)
        if run is None or not run.fresh:
            return run
        size = sum(len(s) for _, _, s in run.fresh if isinstance(s, bytes))
        if size > IN_A_THREAD:
            await asyncio.to_thread(self._fold, run_id, run)
        else:
            self._fold(run_id, run)
        return run

    def _fold(self, run_id: str, run: _Run) -> None:
        # two locks: several may ask about one run, and each entry is masked once, while appends of all runs go on
        with run.folding:
            fresh = run.fresh[:]
            lines = [(self._line(kind, snapshot), at) for kind, at, snapshot in fresh]
            with self._lock:
                for line, at in lines:
                    seq, before = len(run.rows) + 1, run.rows[-1][-1] if run.rows else ""
                    made = digest(before, run_id=run_id, seq=seq, at=at, line=(line.kind, line.version, line.text))
                    run.rows.append((seq, at, line.kind, line.version, line.text, made))
                    run.fold.add(run_id, line, at)
                del run.fresh[: len(fresh)]  # and not all: others have come meanwhile

    def _line(self, kind: str, snapshot: bytes | Line) -> Line:
        if isinstance(snapshot, Line):
            return snapshot
        data, held, declared = marshal.loads(snapshot)  # noqa: S302 - our own bytes
        return to_line(Entry(kind, data, held=held, secrets=declared), self._masking)

    async def read(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """See `Ledger.read`."""
        run = await self._asked(run_id)
        rows = run.rows[max(after, 0) :] if run else []
        return [from_text(kind, version, text, seq=seq, at=at) for seq, at, kind, version, text, _ in rows]

    async def run(self, run_id: str) -> RunInfo | None:
        """See `Ledger.run`."""
        run = await self._asked(run_id)
        if run is None or not run.rows:  # somebody holds its lease and has written nothing yet
            return None
        return replace(run.fold.info(run.born), owner=run.owner if run.is_held(self._clock()) else None)

    async def runs(
        self, *, limit: int = 50, principal: str | None = None, reason: str | None = None, before: float | None = None
    ) -> list[RunInfo]:
        """See `Ledger.runs`."""
        found = [info for run_id in list(self._runs) if (info := await self.run(run_id)) is not None]
        chosen = [
            info
            for info in found
            if (principal is None or info.principal == principal)
            and (reason is None or (info.reason or "open") == reason)
            and (before is None or info.updated < before)
        ]
        chosen.sort(key=lambda info: (info.updated, info.run_id), reverse=True)
        return chosen[:limit]

    async def find_write(
        self, *, principal: str | None, tool: str, arguments_hash: str, run_id: str, key: str | None = None
    ) -> Write | None:
        """See `Ledger.find_write`."""
        found: list[tuple[Write, bool]] = []
        with self._lock:
            places = [
                name
                for name in self._same.get(arguments_hash, ())
                # a run that nobody needs any more has known outcomes only, and those answer nobody but itself
                if name == run_id or name not in self._finished
            ]
        for place in places:
            run = await self._asked(place)
            if run is not None:
                held = run.is_held(self._clock())
                found += [
                    (w, held) for w in run.fold.writes.values() if (w.tool, w.arguments_hash) == (tool, arguments_hash)
                ]
        found.sort(key=lambda each: each[0].at)
        return answering(found, run_id=run_id, principal=principal, key=key)

    async def write(self, run_id: str, call_id: str) -> Write | None:
        """See `Ledger.write`."""
        run = await self._asked(run_id)
        return run.fold.writes.get(call_id) if run else None

    async def result(self, run_id: str, call_id: str) -> ToolResult | None:
        """See `Ledger.result`."""
        run = await self._asked(run_id)
        return run.fold.results.get(call_id) if run else None

    async def held(self, run_id: str) -> dict[str, dict[str, object]]:
        """See `Ledger.held`."""
        run = await self._asked(run_id)
        texts = run.fold.held if run and self._hold_secrets else {}
        return {call_id: load_held(call_id, text) for call_id, text in texts.items()}

    async def hash_key(self) -> bytes:
        """See `Ledger.hash_key`."""
        return self._key

    # --- leases ---------------------------------------------------------------------------------------------------

    async def lease(self, run_id: str, *, owner: str | None = None, seconds: float = 30.0) -> Lease:
        """See `Ledger.lease`."""
        owner = owner or _owners.me()
        with self._lock:
            run, now = self._runs.get(run_id) or self._begun(run_id), self._clock()
            if run.owner != owner and run.is_held(now):
                raise RunBusy(f"run {run_id}: carried out by {_owners.describe(run.owner or '')} already")
            run.owner, run.fence, run.until, run.cancel = owner, run.fence + 1, now + seconds, False
            self._finished.pop(run_id, None)  # one that ended is carried out again: it is not to be forgotten meanwhile
            return Lease(run_id, owner, run.fence, run.until)

    def _leased(self, lease: Lease) -> _Run | None:
        run = self._runs.get(lease.run_id)
        return run if run is not None and (run.owner, run.fence) == (lease.owner, lease.fence) else None

    async def renew(self, lease: Lease, *, seconds: float = 30.0) -> tuple[Lease, bool]:
        """See `Ledger.renew`."""
        run = self._leased(lease)
        if run is None:
            raise RunBusy(f"run {lease.run_id}: the lease went to another owner")
        run.until = self._clock() + seconds
        return replace(lease, until=run.until), run.cancel

    async def release(self, lease: Lease) -> None:
        """See `Ledger.release`."""
        with self._lock:
            run = self._leased(lease)
            if run is not None:
                run.owner, run.until = None, 0.0
                if run.rows or run.fresh:
                    self._review(lease.run_id, run)
                else:  # a lease alone is no run: nobody would ever end it
                    del self._runs[lease.run_id]
        _owners.retire(lease.owner)

    async def cancel(self, run_id: str) -> bool:
        """See `Ledger.cancel`."""
        run = self._runs.get(run_id)
        if run is None or not run.is_held(self._clock()):
            return False
        run.cancel = True
        return True

    # --- keeping --------------------------------------------------------------------------------------------------

    async def prune(
        self, *, older_than: float | None = None, max_size: int | None = None, keep_unknown: bool = True
    ) -> Pruned:
        """See `Ledger.prune`."""
        infos = [info for run_id in list(self._runs) if (info := await self.run(run_id)) is not None]
        with self._lock:
            now = self._clock()
            free = [info for info in infos if self._is_prunable(info, now, keep_unknown)]
            cutoff = None if older_than is None else now - older_than
            gone = pick_prunable(free, total=sum(i.size for i in infos), cutoff=cutoff, max_size=max_size)
            for info in gone:
                self._forget(info.run_id)
        return Pruned(len(gone), sum(i.entries for i in gone), sum(i.size for i in gone), tuple(i.run_id for i in gone))

    def _is_prunable(self, info: RunInfo, now: float, keep_unknown: bool) -> bool:
        run = self._runs.get(info.run_id)
        # what came since the question was asked is not folded: the run goes on
        if run is None or run.fresh or run.is_held(now):
            return False
        return is_prunable(info, run.fold.unknown, keep_unknown)

    async def verify(self, run_id: str | None = None) -> Report:
        """See `Ledger.verify`."""
        report = Report()
        for name in list(self._runs) if run_id is None else [run_id]:
            run = await self._asked(name)
            if run is not None and run.rows:
                report = check_run(name, run.rows[:], report, is_held=run.is_held(self._clock()))
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


def _calls_after(calls: dict[str, int], entries: Sequence[Entry]) -> dict[str, int]:
    """What is known of each call after these entries; refused is what the tables of the other stores refuse."""
    after = calls
    for entry in entries:
        if entry.kind not in _OF_CALLS:
            continue
        if after is calls:  # a copy: if a later entry is refused, nothing of this append is kept
            after = dict(calls)
        call_id, state = entry.data["call_id"], after.get(entry.data["call_id"], 0)
        if fault := _fault(entry.kind, state):
            raise LedgerError(f"call {call_id}: {fault}")
        if entry.kind == "call_intent":
            after[call_id] = state | _STARTED | _OPEN
            continue
        state |= _ENDED if entry.kind == "call_result" else 0
        is_open = entry.data["result"].get("status") in UNKNOWN
        after[call_id] = state if is_open else state & ~_OPEN
    return after


def _fault(kind: str, state: int) -> str | None:
    if kind == "call_intent" and state & _STARTED:
        return "this write was started before; it is not started again"
    if kind == "call_result" and state & _ENDED:
        return "this call has a result already"
    if kind == "call_settled" and not state & _STARTED:
        return "no write was started for it, so there is nothing to settle"
    return None
