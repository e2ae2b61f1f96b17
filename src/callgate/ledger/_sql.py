"""A ledger in tables: everything that SQL stores have in common. A plug brings the connection and its transactions.

Law: every question and every change is one function over `ask`, run inside one transaction, and nothing is kept in the
process between two of them, so that several processes on one database agree; a scan reads each run in one transaction.
(tests/test_ledger_snapshot.py::test_every_question_is_answered_from_one_moment)

Statements are written for SQLite; `?` stands for a parameter, and names are those of the tables in `TABLES`.
"""

# ruff: noqa: S608 - only names of our own tables and columns are put into statements; values are parameters

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, TypeVar

from callgate.errors import LedgerError, RunBusy
from callgate.ledger import _owners
from callgate.ledger._entries import (
    Lease,
    Pruned,
    Report,
    RunInfo,
    Write,
    check,
    data_of,
    digest,
    load_result,
)
from callgate.ledger._folding import Index, answering, chained, check_run, is_prunable, pick_prunable
from callgate.ledger._lines import Line, load_held, to_line
from callgate.ledger._rows import (
    FROM_WRITES,
    INFO,
    OPEN_STATUSES,
    PAGE,
    ROWS,
    WRITE,
    WRITES_OF_RUN,
    in_pages,
    info_of,
    reading_of,
    write_of,
    write_row,
)
from callgate.ledger._tables import (
    HASH_KEY,
    PER_RUN,
    from_column,
    hash_key,
    index,
    release_held,
    to_column,
)
from callgate.ledger._writer import Ask, Task, Writer
from callgate.masking import Masking
from callgate.types import Entry, ToolResult

T = TypeVar("T")


class SqlStore:
    """A `Ledger` in tables."""

    where: str
    for_update = ""
    """What makes a SELECT lock its rows until the end of the transaction."""
    skip_locked = ""
    """The same, for those rows that nobody else has locked."""

    def __init__(
        self, *, masking: Masking | None = None, clock: Callable[[], float] = time.time, hold_secrets: bool = True
    ) -> None:
        self._masking = masking or Masking()
        self._clock = clock
        self._hold_secrets = hold_secrets
        self._writer = Writer(self._transact, "callgate ledger")
        self._pid = os.getpid()
        self._key: bytes | None = None

    def _transact(self, group: Sequence[Task]) -> None:
        """Does the group in one transaction."""
        raise NotImplementedError

    def _reading(self, work: Callable[[Ask], T]) -> T:
        """Does the work in a transaction that only reads."""
        raise NotImplementedError

    def _now(self, ask: Ask) -> float:
        """The time that leases are measured by: one clock for all who use the database."""
        return self._clock()

    def _reading_apart(self, work: Callable[[Ask], T]) -> T:
        """Does long work in a transaction that only reads, in the way of nobody else."""
        raise NotImplementedError

    async def _write(
        self,
        work: Callable[[Ask], T],
        *,
        durable: bool = False,
        prepare: Callable[[], None] | None = None,
        run: str = "",
    ) -> T:
        self._same_process()
        value: T = await self._writer.submit(work, durable=durable, prepare=prepare, run=run)
        return value

    async def _read(self, work: Callable[[Ask], T]) -> T:
        self._same_process()
        return await asyncio.to_thread(self._reading, work)

    def _same_process(self) -> None:
        # SQLite forbids a connection across a fork (https://www.sqlite.org/howtocorrupt.html, 2.6), a PostgreSQL
        # session cannot be shared either, and a child has no writer thread: its appends would wait for ever.
        if os.getpid() != self._pid:
            raise LedgerError(
                f"{self.where}: opened before this process was forked; open the ledger again in the child"
            )

    # --- entries --------------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, entries: Sequence[Entry], *, durable: bool = True, fence: int | None = None
    ) -> list[Entry]:
        """See `Ledger.append`."""
        for entry in entries:
            check(entry)
        if not entries:
            return []
        work = _Append(self, run_id, entries, fence)
        return await self._write(work, durable=durable, prepare=work.prepare, run=run_id)

    def lines_of(self, entries: Sequence[Entry]) -> list[Line]:
        """The entries masked and as JSON."""
        return [to_line(entry, self._masking) for entry in entries]

    def append_lines(self, ask: Ask, run_id: str, lines: Sequence[Line], fence: int | None) -> tuple[list[Entry], str]:
        """Adds the lines; the entries as they stand there, and the digest of the last one."""
        name = to_column(run_id)
        # First the row of the run: whoever has it locked decides alone over fence, number and digest, and all
        # transactions lock in this one order.
        entries, size, before, last, held = self._lock_run(ask, name)
        if fence is not None and fence != held[0]:
            raise RunBusy(f"run {run_id}: taken over by {_owners.describe(held[1] or 'another owner')}")
        out: list[Entry] = []
        # One date for the group, never before the last entry's: a clock that is set back by NTP moves nothing (rule 4).
        at = max(self._clock(), last)
        for line in lines:
            entries, size = entries + 1, size + len(line.text)
            before = digest(before, run_id=run_id, seq=entries, at=at, line=(line.kind, line.version, line.text))
            row = (name, entries, at, line.kind, line.version, line.text, before)
            ask("INSERT INTO entries (run_id, seq, at, kind, version, data, digest) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            # In the same transaction: a crash between the two would leave answers that the journal does not bear out.
            index(ask, name, line, entries, at)
            self._hold(ask, run_id, line)
            release_held(ask, name, line)
            out.append(Entry(line.kind, line.data, seq=entries, at=at, version=line.version))
        ask(
            "UPDATE runs SET updated = ?, entries = ?, size = ?, digest = ? WHERE run_id = ?",
            (at, entries, size, before, name),
        )
        return out, before

    def _hold(self, ask: Ask, run_id: str, line: Line) -> None:
        """Keeps true arguments beside the journal, if they may be kept."""
        for call_id, text in line.held.items():
            sealed = self._seal(run_id, call_id, text) if self._hold_secrets else None
            if sealed is not None:
                ask(
                    "INSERT INTO held (run_id, call_id, text) VALUES (?, ?, ?)"
                    # An append that is done again after a lost connection meets its own row.
                    " ON CONFLICT (run_id, call_id) DO UPDATE SET text = excluded.text",
                    (to_column(run_id), to_column(call_id), sealed),
                )

    def _seal(self, run_id: str, call_id: str, text: str) -> str | None:
        """The text as it is kept; None if it may not be kept here."""
        return text

    def _unseal(self, run_id: str, call_id: str, text: str) -> str:
        """The text that was sealed. Raises LedgerError if it cannot be read."""
        return text

    def _lock_run(self, ask: Ask, name: str) -> tuple[int, int, str, float, tuple[int, str | None]]:
        """Entries, size, digest, last date, (fence, owner) of a run, which is made if it is new."""
        # Locked by its SELECT: what is read here is written back at the end, and another machine must not come between.
        sql = f"SELECT entries, size, digest, updated, fence, owner FROM runs WHERE run_id = ?{self.for_update}"
        rows = ask(sql, (name,))
        if not rows:
            now = self._clock()
            ask(
                "INSERT INTO runs (run_id, started, updated, model, prompt, entries, size, digest, fence, until,"
                " cancel) VALUES (?, ?, ?, '', '', 0, 0, '', ?, 0, 0) ON CONFLICT DO NOTHING",
                (name, now, now, secrets.randbits(48)),  # no fence of a row that was removed fits this one
            )
            # two may have tried to make it; one INSERT does nothing, and both must see and lock the row that is there
            rows = ask(sql, (name,))
        entries, size, before, last, fence, owner = rows[0]
        return entries, size, before, last if entries else 0.0, (fence, owner)

    async def read(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """See `Ledger.read`."""
        name = to_column(run_id)
        after = max(after, 0)

        def work(ask: Ask) -> list[Entry]:
            known = ask("SELECT entries, digest FROM runs WHERE run_id = ?", (name,))
            # From `after` and not from the next one on: the digest of the entry before is needed to check the first.
            rows = ask(f"{ROWS} WHERE run_id = ? AND seq >= ? ORDER BY seq", (name, after))
            entries, last = known[0] if known else (0, "")
            return chained(run_id, rows, after=min(after, entries), entries=entries, last=last)

        return await self._read(work)

    async def run(self, run_id: str) -> RunInfo | None:
        """See `Ledger.run`."""
        sql = f"SELECT {INFO} FROM runs WHERE run_id = ? AND entries > 0"
        found = await self._read(lambda ask: [self._info(ask, row) for row in ask(sql, (to_column(run_id),))])
        return found[0] if found else None

    async def runs(
        self, *, limit: int = 50, principal: str | None = None, reason: str | None = None, before: float | None = None
    ) -> list[RunInfo]:
        """See `Ledger.runs`."""
        where, params = ["entries > 0"], list[object]()
        if principal is not None:
            where.append("principal = ?")
            params.append(to_column(principal))
        if reason is not None:
            where.append("reason IS NULL" if reason == "open" else "reason = ?")
            params += [] if reason == "open" else [reason]
        if before is not None:
            where.append("updated < ?")
            params.append(before)
        sql = f"SELECT {INFO} FROM runs WHERE {' AND '.join(where)} ORDER BY updated DESC, run_id DESC LIMIT ?"
        return await self._read(lambda ask: [self._info(ask, row) for row in ask(sql, (*params, limit))])

    def _info(self, ask: Ask, row: Sequence[Any]) -> RunInfo:
        return info_of(row, held=self._is_held(ask, row[-2], row[-1]))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def find_write(
        self, *, principal: str | None, tool: str, arguments_hash: str, run_id: str, key: str | None = None
    ) -> Write | None:
        """See `Ledger.find_write`."""
        found = f"SELECT {WRITE}, r.owner, r.until {FROM_WRITES} JOIN runs r ON r.run_id = w.run_id WHERE"
        mine = f"{found} w.run_id = ? AND w.tool = ? AND w.arguments_hash = ? ORDER BY w.at"
        # By the index (tool, arguments_hash, status): identical writes that ended well are many, the open ones few.
        foreign = f"{found} w.tool = ? AND w.arguments_hash = ? AND w.status IN ({OPEN_STATUSES}) ORDER BY w.at"

        def work(ask: Ask) -> list[tuple[Write, bool]]:
            same = (to_column(tool), arguments_hash)
            rows = ask(foreign, same) + ask(mine, (to_column(run_id), *same))
            return [(write_of(row[:-2]), self._is_held(ask, row[-2], row[-1])) for row in rows]

        return answering(await self._read(work), run_id=run_id, principal=principal, key=key)

    async def write(self, run_id: str, call_id: str) -> Write | None:
        """See `Ledger.write`."""
        sql = f"SELECT {WRITE} {FROM_WRITES} WHERE w.run_id = ? AND w.call_id = ?"
        rows = await self._read(lambda ask: ask(sql, (to_column(run_id), to_column(call_id))))
        return write_of(rows[0]) if rows else None

    async def result(self, run_id: str, call_id: str) -> ToolResult | None:
        """See `Ledger.result`."""
        sql = (
            "SELECT e.data FROM results t JOIN entries e ON e.run_id = t.run_id AND e.seq = t.seq "
            "WHERE t.run_id = ? AND t.call_id = ?"
        )
        rows = await self._read(lambda ask: ask(sql, (to_column(run_id), to_column(call_id))))
        return load_result(data_of(rows[0][0], f"run {run_id}, call {call_id}")) if rows else None

    async def held(self, run_id: str) -> dict[str, dict[str, object]]:
        """See `Ledger.held`."""
        sql = "SELECT call_id, text FROM held WHERE run_id = ?"
        rows = await self._read(lambda ask: ask(sql, (to_column(run_id),)))
        found = ((from_column(call_id), text) for call_id, text in rows)
        return {call_id: load_held(call_id, self._unseal(run_id, call_id, text)) for call_id, text in found}

    async def hash_key(self) -> bytes:
        """See `Ledger.hash_key`."""
        # It never changes, so this one value is kept in the process.
        if self._key is None:
            rows = await self._read(lambda ask: ask("SELECT value FROM meta WHERE name = ?", (HASH_KEY,)))
            self._key = hash_key(rows, self.where)
        return self._key

    # --- leases ---------------------------------------------------------------------------------------------------

    def _is_held(self, ask: Ask, owner: str | None, until: float) -> bool:
        return owner is not None and until > self._now(ask) and not _owners.is_dead(owner)

    async def lease(self, run_id: str, *, owner: str | None = None, seconds: float = 30.0) -> Lease:
        """See `Ledger.lease`."""
        mine = owner or _owners.me()

        def work(ask: Ask) -> Lease:
            name = to_column(run_id)
            fence, holder = self._lock_run(ask, name)[-1]
            ((until,),) = ask("SELECT until FROM runs WHERE run_id = ?", (name,))
            # The same owner may take its lease again: it may not know whether its first try was committed.
            if holder != mine and self._is_held(ask, holder, until):
                raise RunBusy(f"run {run_id}: carried out by {_owners.describe(holder or '')} already")
            until = self._now(ask) + seconds
            ask(
                "UPDATE runs SET owner = ?, fence = ?, until = ?, cancel = 0 WHERE run_id = ?",
                (mine, fence + 1, until, name),
            )
            return Lease(run_id, mine, fence + 1, until)

        return await self._write(work, run=run_id)

    async def renew(self, lease: Lease, *, seconds: float = 30.0) -> tuple[Lease, bool]:
        """See `Ledger.renew`."""

        def work(ask: Ask) -> tuple[Lease, bool]:
            until = self._now(ask) + seconds
            rows = ask(
                # One statement that judges and changes: a lease that went elsewhere since the last renewal matches no
                # row.
                "UPDATE runs SET until = ? WHERE run_id = ? AND owner = ? AND fence = ? RETURNING cancel",
                (until, to_column(lease.run_id), lease.owner, lease.fence),
            )
            if not rows:
                raise RunBusy(f"run {lease.run_id}: the lease went to another owner")
            return Lease(lease.run_id, lease.owner, lease.fence, until), bool(rows[0][0])

        return await self._write(work, run=lease.run_id)

    async def release(self, lease: Lease) -> None:
        """See `Ledger.release`."""
        mine = "WHERE run_id = ? AND owner = ? AND fence = ?"
        params = (to_column(lease.run_id), lease.owner, lease.fence)

        def work(ask: Ask) -> None:
            ask(f"DELETE FROM runs {mine} AND entries = 0", params)  # a run that never came to be leaves no trace
            ask(f"UPDATE runs SET owner = NULL, until = 0 {mine}", params)

        try:
            await self._write(work, run=lease.run_id)
        finally:
            _owners.retire(lease.owner)

    async def cancel(self, run_id: str) -> bool:
        """See `Ledger.cancel`."""

        def work(ask: Ask) -> bool:
            # Locked, or the holder could give the lease back between the question and the wish, and nobody would hear
            # it.
            rows = ask(f"SELECT owner, until FROM runs WHERE run_id = ?{self.for_update}", (to_column(run_id),))
            if not rows or not self._is_held(ask, *rows[0]):
                return False
            ask("UPDATE runs SET cancel = 1 WHERE run_id = ?", (to_column(run_id),))
            return True

        return await self._write(work, run=run_id)

    # --- keeping --------------------------------------------------------------------------------------------------

    async def prune(
        self, *, older_than: float | None = None, max_size: int | None = None, keep_unknown: bool = True
    ) -> Pruned:
        """See `Ledger.prune`."""

        def choose(ask: Ask) -> list[RunInfo]:
            infos = [self._info(ask, row) for row in ask(f"SELECT {INFO} FROM runs", ())]
            unknown = self._unknown(ask)
            free = [i for i in infos if i.owner is None and is_prunable(i, i.run_id in unknown, keep_unknown)]
            cutoff = None if older_than is None else self._clock() - older_than
            return pick_prunable(free, total=sum(i.size for i in infos), cutoff=cutoff, max_size=max_size)

        # Chosen in one transaction and removed in others, some at a time: a single one over thousands of runs would
        # hold their locks for seconds. What changed meanwhile is left (`remove` looks again).
        chosen = await self._read(choose)
        gone: list[RunInfo] = []
        for at in range(0, len(chosen), PAGE):
            some = chosen[at : at + PAGE]
            gone += await self._write(_removal(self, some, keep_unknown), durable=True)
        if gone:
            await self._shrink()
        return Pruned(len(gone), sum(i.entries for i in gone), sum(i.size for i in gone), tuple(i.run_id for i in gone))

    def remove(self, ask: Ask, chosen: Sequence[RunInfo], keep_unknown: bool) -> list[RunInfo]:
        """Removes those runs that are still as they were chosen. Their rows are locked before they are judged again, so
        nobody can have taken one up meanwhile; a row that somebody has locked is left."""
        marks = ", ".join("?" * len(chosen))
        names = tuple(to_column(info.run_id) for info in chosen)
        rows = ask(f"SELECT {INFO} FROM runs WHERE run_id IN ({marks}) ORDER BY run_id{self.skip_locked}", names)
        now = {info.run_id: info for info in (self._info(ask, row) for row in rows)}
        unknown = self._unknown(ask) if keep_unknown else set()
        gone = [i for i in chosen if now.get(i.run_id) == i and i.owner is None and i.run_id not in unknown]
        for info in gone:
            for table in PER_RUN:
                ask(f"DELETE FROM {table} WHERE run_id = ?", (to_column(info.run_id),))
        return gone

    def _unknown(self, ask: Ask) -> set[str]:
        """The runs with a write of unknown outcome."""
        sql = f"SELECT DISTINCT run_id FROM writes WHERE status IN ({OPEN_STATUSES})"
        return {from_column(name) for (name,) in ask(sql, ())}

    async def _shrink(self) -> None:
        """Gives the space of removed rows back."""

    async def verify(self, run_id: str | None = None) -> Report:
        """See `Ledger.verify`."""
        self._same_process()
        return await asyncio.to_thread(self._reading_apart, lambda ask: self._verify(ask, run_id))

    def _verify(self, ask: Ask, run_id: str | None) -> Report:
        report = Report(problems=tuple(self._check_store(ask)))
        chosen, params = ("", ()) if run_id is None else (" WHERE run_id = ?", (to_column(run_id),))
        for row in ask(f"SELECT {INFO}, digest FROM runs{chosen} ORDER BY started", params):
            info = self._info(ask, row[:-1])
            if info.entries == 0:
                continue  # somebody holds its lease and has written nothing yet
            name = (row[0],)
            kept = Index(
                info.entries,
                row[-1],
                info.reason,
                info.principal,
                {w[0]: w[1:] for w in map(write_row, ask(WRITES_OF_RUN, name))},
                {from_column(call_id) for (call_id,) in ask("SELECT call_id FROM results WHERE run_id = ?", name)},
                {from_column(call_id) for (call_id,) in ask("SELECT call_id FROM held WHERE run_id = ?", name)},
            )
            rows = ask(f"{ROWS} WHERE run_id = ? ORDER BY seq", name)
            report = check_run(info.run_id, rows, report, is_held=info.owner is not None, kept=kept)
        return report

    def _check_store(self, ask: Ask) -> list[str]:
        """What the database itself finds wrong."""
        # There are no foreign keys: they would have to be checked at each append, and only damage can break them.
        rows = ask("SELECT DISTINCT run_id FROM entries WHERE run_id NOT IN (SELECT run_id FROM runs)", ())
        return [f"run {from_column(row[0])}: there are entries, but the run is missing" for row in rows]

    async def scan(
        self, *, kinds: Collection[str] = (), since: float = 0.0, run_id: str | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        """See `Ledger.scan`."""
        one, params = ("", (since,)) if run_id is None else (" AND run_id = ?", (since, to_column(run_id)))
        sql = f"SELECT run_id, entries FROM runs WHERE updated >= ? AND entries > 0{one} ORDER BY run_id"
        runs: list[tuple[str, int]] = await self._read(lambda ask: ask(sql, params))
        # A page at a time, each in one transaction: a reader that holds its snapshot for the whole scan keeps SQLite
        # from checkpointing and PostgreSQL from cleaning up.
        for some in in_pages(runs):
            for pair in await self._read(reading_of(some, kinds, since)):
                yield pair

    async def aclose(self) -> None:
        """See `Ledger.aclose`."""
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Closes what is open."""
        raise NotImplementedError


class _Append:
    """One append. It bears being done again when nobody knows whether it was committed: it finds its own entries."""

    def __init__(self, store: SqlStore, run_id: str, entries: Sequence[Entry], fence: int | None) -> None:
        self._store = store
        self._run_id = run_id
        self._entries = entries
        self._fence = fence
        self._lines: list[Line] = []
        self._tried: list[tuple[list[Entry], str]] = []

    def prepare(self) -> None:
        """Masking a large result takes longer than an event loop may stand still, so it is done in the thread."""
        self._lines = self._store.lines_of(self._entries)

    def __call__(self, ask: Ask) -> list[Entry]:
        # The digest covers everything before it, so one row found is the proof that the whole append was committed.
        for out, last in self._tried:
            sql = "SELECT 1 FROM entries WHERE run_id = ? AND seq = ? AND digest = ?"
            if ask(sql, (to_column(self._run_id), out[-1].seq, last)):
                return out
        self._tried.append(self._store.append_lines(ask, self._run_id, self._lines, self._fence))
        return self._tried[-1][0]


def _removal(store: SqlStore, some: Sequence[RunInfo], keep_unknown: bool) -> Callable[[Ask], list[RunInfo]]:
    return lambda ask: store.remove(ask, some, keep_unknown)
