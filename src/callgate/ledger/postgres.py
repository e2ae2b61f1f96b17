"""The ledger in PostgreSQL: for runs that are carried out on more than one machine. Needs the extra `postgres`.

Law: time for leases is the server's, and rows are locked while they are judged, so that machines agree.
(tests/test_ledger_postgres_trouble.py::test_prune_never_removes_a_run_that_is_carried_out)
Law: what the server undid, or of which nobody knows whether it did it, is done again until it is done once, for a
bounded time. (tests/test_ledger_postgres.py::test_of_a_group_whose_connection_was_lost_everything_is_done_once)

It lives in a schema of its own, `callgate` (another one: `?callgate_schema=NAME` at the end of the address). Durable
transactions wait for the disk (`synchronous_commit`), others do not. Arguments that the journal has masked are held
only encrypted, with the key in CALLGATE_LEDGER_KEY.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from callgate.errors import LedgerError, RunBusy
from callgate.ledger._pool import Pool, pool_of, without_password
from callgate.ledger._sealing import KEY_VARIABLE, box
from callgate.ledger._sql import SqlStore
from callgate.ledger._sqlstate import RolledBack, TooManyClients
from callgate.ledger._tables import VERSIONS, create
from callgate.ledger._writer import Ask, Lost, Task
from callgate.masking import Masking

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

OUTAGE_SECONDS = 20.0
"""How long a lost server is waited for: less than a lease, so that its holder goes on when the server is back."""
BUSY_SECONDS = 8.0
"""How long a transaction that the server undid is tried again, and a server without free connections is asked."""
PAUSES = (0.02, 0.5)
"""Pauses between two tries, growing from the first to the second, each cut by chance so that two do not meet again."""
_MIGRATING = 7089620123
"""The advisory lock under which one process at a time makes tables."""
_SCHEMA = re.compile(r"[?&]callgate_schema=([A-Za-z_][A-Za-z0-9_]{0,50})")
_WORDS = {"int": "BIGINT", "real": "DOUBLE PRECISION", "strict": ""}


class Store(SqlStore):
    """A `Ledger` in a PostgreSQL schema."""

    for_update = " FOR UPDATE"
    skip_locked = " FOR UPDATE SKIP LOCKED"

    def __init__(
        self,
        rest: str,
        *,
        masking: Masking | None = None,
        clock: Callable[[], float] = time.time,
        hold_secrets: bool = True,
    ) -> None:
        super().__init__(masking=masking, clock=clock, hold_secrets=hold_secrets)
        self._box = box(os.environ.get(KEY_VARIABLE)) if hold_secrets else None
        found = _SCHEMA.search(rest)
        schema = Schema(found.group(1) if found else "callgate", without_password(rest))
        self.where = schema.where
        self._pool: Pool | None = pool_of(_SCHEMA.sub("", rest), schema)

    # --- transactions -----------------------------------------------------------------------------------------------

    def _connections(self) -> Pool:
        if self._pool is None:
            raise LedgerError("the ledger is closed")
        return self._pool

    def _transact(self, group: Sequence[Task]) -> None:
        ordered = sorted(group, key=lambda task: task.run)  # two groups lock their rows in one order: no deadlock
        self._until_done(lambda: self._transact_once(ordered))

    def _transact_once(self, group: Sequence[Task]) -> None:
        with self._connections().connection() as connection, connection.transaction():
            # Off loses at most the last moments in a crash of the server, and never half a transaction
            # (https://www.postgresql.org/docs/current/wal-async-commit.html). LOCAL: the connection is another ledger's
            # next.
            if not any(task.durable for task in group):
                connection.execute("SET LOCAL synchronous_commit = off")
            ask = _asking(connection)
            for task in group:
                task.value = task.error = None
                try:
                    task.value = task.work(ask)
                # PostgreSQL fails every later statement of a transaction after an error (25P02). A refused fence is no
                # error of the server's: nothing was changed, so the others of the group go on.
                except RunBusy as refused:  # before its first change
                    task.error = refused

    def _reading(self, work: Callable[[Ask], T]) -> T:
        return self._until_done(lambda: self._read_once(work))

    def _reading_apart(self, work: Callable[[Ask], T]) -> T:
        return self._until_done(lambda: self._read_once(work, patient=True))

    def _read_once(self, work: Callable[[Ask], T], *, patient: bool = False) -> T:
        with self._connections().connection(patient=patient) as connection, connection.transaction():
            # One snapshot for all statements of a question; under READ COMMITTED each statement would see a moment of
            # its own. A reader at this level never fails with 40001.
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            # `verify` goes through everything; the limit for statements is made for those that touch a few rows.
            if patient:
                connection.execute("SET LOCAL statement_timeout = 0")
            return work(_asking(connection))

    def _until_done(self, act: Callable[[], T]) -> T:
        """Does it, and again if the server undid it or was lost. Every change bears being done again: an append finds
        its own entries, and whoever holds a lease may take it again."""
        begun = time.monotonic()
        pause, longest = PAUSES
        while True:
            try:
                return act()
            except Lost:
                # An address that never answered is more likely wrong than down, and its user should hear of it at once.
                limit = OUTAGE_SECONDS if self._connections().was_there else 0.0
                if time.monotonic() - begun + pause > limit:
                    raise
            # Nothing was committed (see `_sqlstate`), so to do it again is always sound.
            except (RolledBack, TooManyClients):
                if time.monotonic() - begun + pause > BUSY_SECONDS:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - a pause is no secret
            pause = min(pause * 1.6, longest)

    def _now(self, ask: Ask) -> float:
        # Not `now()`: that is the time at which the transaction began, and one that waited for a lock would take a
        # lease that is half over. The server's clock, since the clocks of machines differ.
        return float(ask("SELECT extract(epoch FROM clock_timestamp())", ())[0][0])

    # --- held arguments ---------------------------------------------------------------------------------------------

    def _seal(self, run_id: str, call_id: str, text: str) -> str | None:
        return self._box.seal(text, run_id, call_id) if self._box is not None else None

    def _unseal(self, run_id: str, call_id: str, text: str) -> str:
        if self._box is None:
            raise LedgerError(
                f"run {run_id}: the arguments of call {call_id} are held encrypted; set {KEY_VARIABLE} to their key"
            )
        return self._box.unseal(text, run_id, call_id)

    def _close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.leave()

    def __del__(self) -> None:
        if getattr(self, "_pool", None) is not None:  # forgotten by its user; what was appended is safe
            self._close()


# --- tables ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Schema:
    """The schema of a ledger, and how it gets its tables."""

    name: str
    where: str

    def make_ready(self, connection: psycopg.Connection) -> None:
        """Makes or updates the schema; a role that may only use a ready one changes nothing."""
        ask = _asking(connection)
        if self.version(ask) == len(VERSIONS):
            return
        with connection.transaction():  # of several processes that try, one does and the others wait
            # Whoever waits here waits for another process to make the tables, which may take longer than any lock of
            # ours.
            ask("SET LOCAL lock_timeout = 0", ())
            ask("SET LOCAL statement_timeout = 0", ())
            # Given back at the end of the transaction, also if the process dies; a row lock needs a table, and there is
            # none yet.
            ask("SELECT pg_advisory_xact_lock(?)", (_MIGRATING,))
            version = self.version(ask)
            try:
                # CREATE SCHEMA IF NOT EXISTS asks for the right to create before it looks whether there is one.
                if not ask("SELECT 1 FROM pg_namespace WHERE nspname = ?", (self.name,)):
                    ask(f"CREATE SCHEMA {self.name}", ())
                if version == 0:
                    ask("CREATE TABLE IF NOT EXISTS version (number BIGINT NOT NULL)", ())
                for number in range(version, len(VERSIONS)):
                    create(ask, number, **_WORDS)
                    ask("INSERT INTO version VALUES (?)", (number + 1,))
            # 42501, insufficient privilege: only this one has advice of its own.
            except Exception as error:
                if getattr(error, "sqlstate", None) != "42501":
                    raise
                raise LedgerError(
                    f"{self.where}: the schema {self.name} has no tables of version {len(VERSIONS)}, and this role may"
                    " not make them; open the ledger once as a role that may, then grant this one USAGE on the schema"
                    " and SELECT, INSERT, UPDATE and DELETE on its tables"
                ) from error

    def version(self, ask: Ask) -> int:
        """The version of the tables; 0 if there are none."""
        # not to_regclass: it answers from a cache that does not hear of a schema made meanwhile
        tables = "pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        if not ask(f"SELECT 1 FROM {tables} WHERE n.nspname = ? AND c.relname = 'version'", (self.name,)):  # noqa: S608
            return 0
        ((number,),) = ask(f"SELECT coalesce(max(number), 0) FROM {self.name}.version", ())  # noqa: S608
        if number > len(VERSIONS):
            raise LedgerError(f"{self.where}: written by a newer callgate (tables {number}); update callgate")
        return int(number)


def _asking(connection: psycopg.Connection) -> Ask:
    def ask(sql: str, params: Sequence[object]) -> list[Any]:
        # As bytes: psycopg's types take literal strings only, to keep values out of statements; ours are built of
        # constants.
        cursor = connection.execute(sql.replace("?", "%s").encode(), params)
        return cursor.fetchall() if cursor.description is not None else []

    return ask
