"""A ledger in tables: everything that SQL stores have in common. A plug brings the connection and its transactions.

One law: every question and every change is one function over `ask`, run inside one transaction; nothing is kept in the
process between two of them, so that several processes on one database agree.

Statements are written for SQLite; `?` stands for a parameter, and names are those of the tables in `TABLES`.
"""

# ruff: noqa: S608 - only names of our own tables and columns are put into statements; values are parameters

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, TypeVar

from callgate.errors import LedgerError, RunBusy
from callgate.ledger import _owners
from callgate.ledger._entries import (
    UNKNOWN,
    Lease,
    Line,
    Pruned,
    Report,
    RunInfo,
    Write,
    digest,
    from_text,
    load_result,
    to_line,
)
from callgate.ledger._folding import (
    answering,
    check_run,
    is_prunable,
    pick_prunable,
    principal_of,
    prompt_of,
)
from callgate.ledger._writer import Ask, Task, Writer
from callgate.masking import Masking
from callgate.types import Entry, ToolResult

T = TypeVar("T")

TABLES: tuple[str, ...] = (
    """CREATE TABLE runs (
        run_id TEXT NOT NULL PRIMARY KEY, started {real} NOT NULL, updated {real} NOT NULL, model TEXT NOT NULL,
        principal TEXT, prompt TEXT NOT NULL, reason TEXT, entries {int} NOT NULL, size {int} NOT NULL,
        digest TEXT NOT NULL, owner TEXT, fence {int} NOT NULL, until {real} NOT NULL, cancel {int} NOT NULL
    ){strict}""",
    "CREATE INDEX runs_updated ON runs (updated)",
    """CREATE TABLE entries (
        run_id TEXT NOT NULL, seq {int} NOT NULL, at {real} NOT NULL, kind TEXT NOT NULL, version {int} NOT NULL,
        data TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (run_id, seq)
    ){strict}""",
    """CREATE TABLE writes (
        run_id TEXT NOT NULL, call_id TEXT NOT NULL, tool TEXT NOT NULL, arguments_hash TEXT NOT NULL,
        idempotency_key TEXT NOT NULL, principal TEXT, at {real} NOT NULL, outcome {int}, status TEXT, settled_by TEXT,
        PRIMARY KEY (run_id, call_id)
    ){strict}""",
    "CREATE INDEX writes_same ON writes (tool, arguments_hash, status)",
    """CREATE TABLE results (
        run_id TEXT NOT NULL, call_id TEXT NOT NULL, seq {int} NOT NULL, PRIMARY KEY (run_id, call_id)
    ){strict}""",
)
"""`outcome` and `seq` are numbers of entries: where the latest outcome of a write, the result of a call, stands;
`status` is that of the outcome, "open" while there is none."""

_INFO = "run_id, started, updated, model, principal, prompt, reason, entries, size, owner, until"
_WRITE = "w.run_id, w.call_id, w.tool, w.arguments_hash, w.idempotency_key, w.principal, w.at, w.settled_by, e.data"
_FROM_WRITES = "FROM writes w LEFT JOIN entries e ON e.run_id = w.run_id AND e.seq = w.outcome"
_PAGE = 500
"""Entries read at once when everything is gone through."""


class SqlStore:
    """A `Ledger` in tables."""

    where: str
    for_update = ""
    """What makes a SELECT lock its rows until the end of the transaction."""

    def __init__(self, *, masking: Masking | None = None, clock: Callable[[], float] = time.time) -> None:
        self._masking = masking or Masking()
        self._clock = clock
        self._writer = Writer(self._transact, "callgate ledger")
        self._pid = os.getpid()

    def _transact(self, group: Sequence[Task]) -> None:
        """Does the group in one transaction."""
        raise NotImplementedError

    def _reading(self, work: Callable[[Ask], T]) -> T:
        """Does the work in a transaction that only reads."""
        raise NotImplementedError

    def _now(self, ask: Ask) -> float:
        """The time that leases are measured by: one clock for all who use the database."""
        return self._clock()

    async def _write(self, work: Callable[[Ask], T], *, durable: bool = False) -> T:
        self._same_process()
        value: T = await self._writer.submit(work, durable=durable)
        return value

    async def _read(self, work: Callable[[Ask], T]) -> T:
        self._same_process()
        return await asyncio.to_thread(self._reading, work)

    def _same_process(self) -> None:
        if os.getpid() != self._pid:
            raise LedgerError(
                f"{self.where}: opened before this process was forked; open the ledger again in the child"
            )

    # --- entries --------------------------------------------------------------------------------------------------

    async def append(
        self, run_id: str, entries: Sequence[Entry], *, durable: bool = True, fence: int | None = None
    ) -> list[Entry]:
        """See `Ledger.append`."""
        lines = [to_line(entry, self._masking) for entry in entries]
        if not lines:
            return []
        return await self._write(lambda ask: self._append(ask, run_id, lines, fence), durable=durable)

    def _append(self, ask: Ask, run_id: str, lines: Sequence[Line], fence: int | None) -> list[Entry]:
        name = to_column(run_id)
        entries, size, before, last, held = self._lock_run(ask, name)
        if fence is not None and fence != held[0]:
            raise RunBusy(f"run {run_id}: taken over by {_owners.describe(held[1] or 'another owner')}")
        out: list[Entry] = []
        at = max(self._clock(), last)
        for line in lines:
            entries, size = entries + 1, size + len(line.text)
            before = digest(before, run_id=run_id, seq=entries, at=at, line=(line.kind, line.version, line.text))
            row = (name, entries, at, line.kind, line.version, line.text, before)
            ask("INSERT INTO entries (run_id, seq, at, kind, version, data, digest) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            _index(ask, name, line, entries, at)
            out.append(Entry(line.kind, line.data, seq=entries, at=at, version=line.version))
        ask(
            "UPDATE runs SET updated = ?, entries = ?, size = ?, digest = ? WHERE run_id = ?",
            (at, entries, size, before, name),
        )
        return out

    def _lock_run(self, ask: Ask, name: str) -> tuple[int, int, str, float, tuple[int, str | None]]:
        """Entries, size, digest, last date, (fence, owner) of a run, which is made if it is new."""
        sql = f"SELECT entries, size, digest, updated, fence, owner FROM runs WHERE run_id = ?{self.for_update}"
        rows = ask(sql, (name,))
        if not rows:
            now = self._clock()
            ask(
                "INSERT INTO runs (run_id, started, updated, model, prompt, entries, size, digest, fence, until,"
                " cancel) VALUES (?, ?, ?, '', '', 0, 0, '', 0, 0, 0) ON CONFLICT DO NOTHING",
                (name, now, now),
            )
            rows = ask(sql, (name,))
        entries, size, before, last, fence, owner = rows[0]
        return entries, size, before, last if entries else 0.0, (fence, owner)

    async def read(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """See `Ledger.read`."""
        sql = "SELECT seq, at, kind, version, data FROM entries WHERE run_id = ? AND seq > ? ORDER BY seq"
        rows = await self._read(lambda ask: ask(sql, (to_column(run_id), after)))
        return [from_text(kind, version, text, seq=seq, at=at) for seq, at, kind, version, text in rows]

    async def run(self, run_id: str) -> RunInfo | None:
        """See `Ledger.run`."""
        sql = f"SELECT {_INFO} FROM runs WHERE run_id = ? AND entries > 0"
        found = await self._read(lambda ask: [self._info(ask, row) for row in ask(sql, (to_column(run_id),))])
        return found[0] if found else None

    async def runs(
        self, *, limit: int = 50, principal: str | None = None, reason: str | None = None, before: float | None = None
    ) -> list[RunInfo]:
        """See `Ledger.runs`."""
        where, params = ["entries > 0"], list[Any]()
        if principal is not None:
            where.append("principal = ?")
            params.append(to_column(principal))
        if reason is not None:
            where.append("reason IS NULL" if reason == "open" else "reason = ?")
            params += [] if reason == "open" else [reason]
        if before is not None:
            where.append("updated < ?")
            params.append(before)
        sql = f"SELECT {_INFO} FROM runs WHERE {' AND '.join(where)} ORDER BY updated DESC, run_id DESC LIMIT ?"
        return await self._read(lambda ask: [self._info(ask, row) for row in ask(sql, (*params, limit))])

    def _info(self, ask: Ask, row: Sequence[Any]) -> RunInfo:
        run_id, started, updated, model, principal, prompt, reason, entries, size, owner, until = row
        return RunInfo(
            from_column(run_id),
            started,
            updated,
            model=from_column(model),
            principal=None if principal is None else from_column(principal),
            prompt=from_column(prompt),
            reason=reason,
            entries=entries,
            size=size,
            owner=owner if self._is_held(ask, owner, until) else None,
        )

    # --- calls ----------------------------------------------------------------------------------------------------

    async def find_write(
        self, *, principal: str | None, tool: str, arguments_hash: str, run_id: str, key: str | None = None
    ) -> Write | None:
        """See `Ledger.find_write`."""
        found = f"SELECT {_WRITE}, r.owner, r.until {_FROM_WRITES} JOIN runs r ON r.run_id = w.run_id WHERE"
        mine = f"{found} w.run_id = ? AND w.tool = ? AND w.arguments_hash = ? ORDER BY w.at"
        unknown = ", ".join(f"'{status}'" for status in ("open", *UNKNOWN))
        foreign = f"{found} w.tool = ? AND w.arguments_hash = ? AND w.status IN ({unknown}) ORDER BY w.at"

        def work(ask: Ask) -> list[tuple[Write, bool]]:
            same = (to_column(tool), arguments_hash)
            rows = ask(foreign, same) + ask(mine, (to_column(run_id), *same))
            return [(_write_of(row[:-2]), self._is_held(ask, row[-2], row[-1])) for row in rows]

        return answering(await self._read(work), run_id=run_id, principal=principal, key=key)

    async def write(self, run_id: str, call_id: str) -> Write | None:
        """See `Ledger.write`."""
        sql = f"SELECT {_WRITE} {_FROM_WRITES} WHERE w.run_id = ? AND w.call_id = ?"
        rows = await self._read(lambda ask: ask(sql, (to_column(run_id), to_column(call_id))))
        return _write_of(rows[0]) if rows else None

    async def result(self, run_id: str, call_id: str) -> ToolResult | None:
        """See `Ledger.result`."""
        sql = (
            "SELECT e.data FROM results t JOIN entries e ON e.run_id = t.run_id AND e.seq = t.seq "
            "WHERE t.run_id = ? AND t.call_id = ?"
        )
        rows = await self._read(lambda ask: ask(sql, (to_column(run_id), to_column(call_id))))
        return load_result(json.loads(rows[0][0])) if rows else None

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
            if holder != mine and self._is_held(ask, holder, until):
                raise RunBusy(f"run {run_id}: carried out by {_owners.describe(holder or '')} already")
            until = self._now(ask) + seconds
            ask(
                "UPDATE runs SET owner = ?, fence = ?, until = ?, cancel = 0 WHERE run_id = ?",
                (mine, fence + 1, until, name),
            )
            return Lease(run_id, mine, fence + 1, until)

        return await self._write(work)

    async def renew(self, lease: Lease, *, seconds: float = 30.0) -> tuple[Lease, bool]:
        """See `Ledger.renew`."""

        def work(ask: Ask) -> tuple[Lease, bool]:
            until = self._now(ask) + seconds
            rows = ask(
                "UPDATE runs SET until = ? WHERE run_id = ? AND owner = ? AND fence = ? RETURNING cancel",
                (until, to_column(lease.run_id), lease.owner, lease.fence),
            )
            if not rows:
                raise RunBusy(f"run {lease.run_id}: the lease went to another owner")
            return Lease(lease.run_id, lease.owner, lease.fence, until), bool(rows[0][0])

        return await self._write(work)

    async def release(self, lease: Lease) -> None:
        """See `Ledger.release`."""
        sql = "UPDATE runs SET owner = NULL, until = 0 WHERE run_id = ? AND owner = ? AND fence = ?"
        await self._write(lambda ask: ask(sql, (to_column(lease.run_id), lease.owner, lease.fence)))

    async def cancel(self, run_id: str) -> bool:
        """See `Ledger.cancel`."""

        def work(ask: Ask) -> bool:
            rows = ask("SELECT owner, until FROM runs WHERE run_id = ?", (to_column(run_id),))
            if not rows or not self._is_held(ask, *rows[0]):
                return False
            ask("UPDATE runs SET cancel = 1 WHERE run_id = ?", (to_column(run_id),))
            return True

        return await self._write(work)

    # --- keeping --------------------------------------------------------------------------------------------------

    async def prune(
        self, *, older_than: float | None = None, max_size: int | None = None, keep_unknown: bool = True
    ) -> Pruned:
        """See `Ledger.prune`."""

        def work(ask: Ask) -> Pruned:
            infos = [self._info(ask, row) for row in ask(f"SELECT {_INFO} FROM runs", ())]
            writes = [_write_of(row) for row in ask(f"SELECT {_WRITE} {_FROM_WRITES}", ())]
            unknown = {write.run_id for write in writes if write.unknown}
            free = [i for i in infos if i.owner is None and is_prunable(i, i.run_id in unknown, keep_unknown)]
            cutoff = None if older_than is None else self._clock() - older_than
            gone = pick_prunable(free, total=sum(i.size for i in infos), cutoff=cutoff, max_size=max_size)
            for info in gone:
                for table in ("entries", "writes", "results", "runs"):
                    ask(f"DELETE FROM {table} WHERE run_id = ?", (to_column(info.run_id),))
            return Pruned(
                len(gone), sum(i.entries for i in gone), sum(i.size for i in gone), tuple(i.run_id for i in gone)
            )

        pruned = await self._write(work, durable=True)
        if pruned.runs:
            await self._shrink()
        return pruned

    async def _shrink(self) -> None:
        """Gives the space of removed rows back."""

    async def verify(self, run_id: str | None = None) -> Report:
        """See `Ledger.verify`."""
        report = Report(problems=tuple(await self._read(self._check_store)))
        infos = await self._read(
            lambda ask: [self._info(ask, row) for row in ask(f"SELECT {_INFO} FROM runs ORDER BY started", ())]
        )
        sql = "SELECT seq, at, kind, version, data, digest FROM entries WHERE run_id = ? ORDER BY seq"
        for info in infos:
            if run_id not in (None, info.run_id):
                continue
            rows = await self._read(_select(sql, (to_column(info.run_id),)))
            report = check_run(info.run_id, rows, report, is_held=info.owner is not None)
            if info.owner is None and len(rows) != info.entries:
                lost = f"run {info.run_id}: {info.entries} entries were written, {len(rows)} are there"
                report = Report(report.runs, report.entries, (*report.problems, lost), report.notes)
        return report

    def _check_store(self, ask: Ask) -> list[str]:
        """What the database itself finds wrong."""
        rows = ask("SELECT DISTINCT run_id FROM entries WHERE run_id NOT IN (SELECT run_id FROM runs)", ())
        return [f"run {from_column(row[0])}: there are entries, but the run is missing" for row in rows]

    async def scan(
        self, *, kinds: Collection[str] = (), since: float = 0.0, run_id: str | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        """See `Ledger.scan`."""
        chosen = "" if not kinds else f" AND kind IN ({', '.join('?' * len(kinds))})"
        one = "" if run_id is None else " AND run_id = ?"
        last: tuple[str, int] = ("", 0)
        while True:
            sql = (
                "SELECT run_id, seq, at, kind, version, data FROM entries"
                f" WHERE (run_id > ? OR (run_id = ? AND seq > ?)) AND at >= ?{chosen}{one}"
                f" ORDER BY run_id, seq LIMIT {_PAGE}"
            )
            params = (last[0], *last, since, *kinds, *(() if run_id is None else (to_column(run_id),)))
            rows = await self._read(_select(sql, params))
            for name, seq, at, kind, version, text in rows:
                yield from_column(name), from_text(kind, version, text, seq=seq, at=at)
            if len(rows) < _PAGE:
                return
            last = (rows[-1][0], rows[-1][1])

    async def aclose(self) -> None:
        """See `Ledger.aclose`."""
        await asyncio.to_thread(self._writer.close)
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        """Closes what is open."""
        raise NotImplementedError


def _select(sql: str, params: Sequence[Any]) -> Callable[[Ask], list[Any]]:
    return lambda ask: ask(sql, params)


def _index(ask: Ask, name: str, line: Line, seq: int, at: float) -> None:
    """Keeps the tables that answer questions without reading journals."""
    data = line.data
    match line.kind:
        case "run_started":
            principal = principal_of(data)
            ask(
                "UPDATE runs SET model = ?, principal = ?, prompt = coalesce(nullif(?, ''), prompt), reason = NULL"
                " WHERE run_id = ?",
                (
                    to_column(str(data.get("model") or "")),
                    None if principal is None else to_column(principal),
                    to_column(prompt_of(data)),
                    name,
                ),
            )
        case "message":
            ask("UPDATE runs SET reason = NULL WHERE run_id = ? AND reason IS NOT NULL", (name,))
        case "run_finished":
            ask("UPDATE runs SET reason = ? WHERE run_id = ?", (to_column(str(data.get("reason"))), name))
        case "call_intent":
            principal = data.get("principal")
            ask(
                "INSERT INTO writes (run_id, call_id, tool, arguments_hash, idempotency_key, principal, at, status)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, 'open')",
                (
                    name,
                    to_column(str(data["call_id"])),
                    to_column(str(data["tool"])),
                    str(data["arguments_hash"]),
                    str(data["key"]),
                    None if principal is None else to_column(str(principal)),
                    at,
                ),
            )
        case "call_result" | "call_settled":
            call = to_column(str(data["call_id"]))
            settled = 1 if line.kind == "call_settled" else 0  # nothing but another settlement undoes one
            found = ask(
                "UPDATE writes SET outcome = ?, status = ?, settled_by = ? WHERE run_id = ? AND call_id = ?"
                " AND (settled_by IS NULL OR ? = 1) RETURNING call_id",
                (seq, str(data["result"].get("status")), data.get("by") if settled else None, name, call, settled),
            )
            if settled and not found:
                raise LedgerError(f"call {data['call_id']}: no write was started for it, so there is nothing to settle")
            if line.kind == "call_result":
                ask("INSERT INTO results (run_id, call_id, seq) VALUES (?, ?, ?)", (name, call, seq))
        case _:
            pass


def _write_of(row: Sequence[Any]) -> Write:
    run_id, call_id, tool, arguments_hash, key, principal, at, settled_by, data = row
    return Write(
        from_column(run_id),
        from_column(call_id),
        from_column(tool),
        arguments_hash,
        key,
        principal=None if principal is None else from_column(principal),
        at=at,
        result=None if data is None else load_result(json.loads(data)),
        settled_by=settled_by,
    )


def to_column(text: str) -> str:
    """Any text as one that every database can hold and compare: no NUL, no lone surrogate (models write both)."""
    if text.isascii() and text.isprintable() and "\\" not in text and '"' not in text:
        return text
    return json.dumps(text)[1:-1]


def from_column(text: str) -> str:
    """The text that `to_column` made."""
    if "\\" not in text:
        return text
    loaded = json.loads(f'"{text}"')
    if not isinstance(loaded, str):
        raise LedgerError("a name in the ledger is damaged")
    return loaded
