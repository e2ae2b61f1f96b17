"""The ledger in PostgreSQL: for runs that are carried out on more than one machine. Needs the extra `postgres`.

One law: time for leases is the server's, and rows are locked while they are judged, so that machines agree.

It lives in a schema of its own, `callgate` (another one: `?callgate_schema=NAME` at the end of the address). Durable
transactions wait for the disk (`synchronous_commit`), others do not.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.ledger._sql import TABLES, SqlStore
from callgate.ledger._writer import Ask, Lost, Task
from callgate.masking import Masking

if TYPE_CHECKING:
    import psycopg

T = TypeVar("T")

CONNECT_SECONDS = 10
"""How long the server may take to accept a connection."""
IDLE_SECONDS = 1.0
"""After so long without use a connection is tried before it is trusted."""
_SCHEMA = re.compile(r"[?&]callgate_schema=([A-Za-z_][A-Za-z0-9_]{0,50})")
_PASSWORD = re.compile(r"(?<=://)([^:/@]*):[^@/]*@")


def _create(ask: Ask) -> None:
    for statement in TABLES:
        ask(statement.format(int="BIGINT", real="DOUBLE PRECISION", strict=""), ())


MIGRATIONS: tuple[Callable[[Ask], None], ...] = (_create,)
"""Number n brings the schema from version n to n + 1. Never change one: add one."""


class Store(SqlStore):
    """A `Ledger` in a PostgreSQL schema."""

    for_update = " FOR UPDATE"

    def __init__(self, rest: str, *, masking: Masking | None = None, clock: Callable[[], float] = time.time) -> None:
        super().__init__(masking=masking, clock=clock)
        found = _SCHEMA.search(rest)
        self._schema = found.group(1) if found else "callgate"
        self._address = _SCHEMA.sub("", rest)
        self.where = _PASSWORD.sub(r"\1:…@", rest)
        self._writing: psycopg.Connection | None = None
        self._read_connection: psycopg.Connection | None = None
        self._lock = threading.Lock()
        self._driver = _load()
        self._used = 0.0

    def _connect(self) -> psycopg.Connection:
        with self._errors():
            connection: psycopg.Connection = self._driver.connect(
                self._address, autocommit=True, connect_timeout=CONNECT_SECONDS, application_name="callgate"
            )
            connection.execute(f"SET search_path TO {self._schema}".encode())
            return connection

    def _alive(self, connection: psycopg.Connection | None) -> psycopg.Connection:
        """The connection, or a new one if the server closed it meanwhile (a restart, a limit for idle ones)."""
        if connection is not None and not connection.closed and time.monotonic() - self._used > IDLE_SECONDS:
            with suppress(self._driver.OperationalError):
                connection.execute("SELECT 1")
        if connection is None or connection.closed:
            connection = self._connect()
            try:
                self._migrate(connection)
            except BaseException:
                connection.close()
                raise
        self._used = time.monotonic()
        return connection

    def _transact(self, group: Sequence[Task]) -> None:
        with self._errors():
            connection = self._writing = self._alive(self._writing)
            durable = any(task.durable for task in group)
            ask = _asking(connection)
            with connection.transaction():
                if not durable:
                    connection.execute("SET LOCAL synchronous_commit = off")
                for task in group:
                    try:
                        task.value = task.work(ask)
                    except RunBusy as refused:  # before its first change
                        task.error = refused

    def _reading(self, work: Callable[[Ask], T]) -> T:
        with self._lock, self._errors():
            connection = self._read_connection = self._alive(self._read_connection)
            with connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
                return work(_asking(connection))

    def _now(self, ask: Ask) -> float:
        return float(ask("SELECT extract(epoch FROM clock_timestamp())", ())[0][0])

    def _migrate(self, connection: psycopg.Connection) -> None:
        """Makes or updates the schema; of several processes that try, one does and the others wait."""
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(7089620123)")
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {self._schema}".encode())
            connection.execute("CREATE TABLE IF NOT EXISTS version (number BIGINT NOT NULL)")
            row = connection.execute("SELECT max(number) FROM version").fetchone()
            version = int(row[0]) if row and row[0] is not None else 0
            if version > len(MIGRATIONS):
                raise LedgerError(f"{self.where}: written by a newer callgate (tables {version}); update callgate")
            for number in range(version, len(MIGRATIONS)):
                MIGRATIONS[number](_asking(connection))
                connection.execute("INSERT INTO version VALUES (%s)", (number + 1,))

    def _close(self) -> None:
        with self._lock:
            for connection in (self._writing, self._read_connection):
                if connection is not None:
                    with suppress(self._driver.Error):
                        connection.close()
            self._writing = self._read_connection = None

    def __del__(self) -> None:
        for connection in (getattr(self, "_read_connection", None), getattr(self, "_writing", None)):
            if connection is not None:  # forgotten by its user; what was appended is safe
                with suppress(Exception):
                    connection.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turns what the server says into ours."""
        driver = self._driver
        try:
            yield
        except driver.errors.UniqueViolation as error:
            table = error.diag.table_name
            what = {
                "writes": "this write was started before; it is not started again",
                "results": "this call has a result already",
            }.get(table or "", str(error))
            raise LedgerError(f"{self.where}: {what}") from error
        except driver.errors.DiskFull as error:
            raise LedgerError(f"{self.where}: the server's disk is full; nothing of this was recorded") from error
        except driver.errors.ReadOnlySqlTransaction as error:
            raise LedgerError(f"{self.where}: this server only reads (a standby?); use the primary") from error
        except driver.OperationalError as error:
            raise Lost(f"{self.where}: the server is not there: {_first_line(error)}") from error
        except driver.Error as error:
            raise LedgerError(f"{self.where}: {_first_line(error)}") from error


def _asking(connection: psycopg.Connection) -> Ask:
    def ask(sql: str, params: Sequence[Any]) -> list[Any]:
        cursor = connection.execute(sql.replace("?", "%s").encode(), params)
        return cursor.fetchall() if cursor.description is not None else []

    return ask


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]


def _load() -> Any:
    try:
        import psycopg
        import psycopg.errors
    except ImportError as error:
        raise ConfigError(
            "a PostgreSQL ledger needs psycopg: install it with `pip install 'callgate[postgres]'`"
        ) from error
    return psycopg
