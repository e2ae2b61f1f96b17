"""The ledger in one SQLite file: for one machine, any number of processes.

One law: at any moment one connection of all processes writes or checkpoints: whoever holds the lock on `PATH-lock`.

That lock (an advisory one of the system, gone when its process is) does two things that SQLite alone does not: writers
queue up instead of polling with growing pauses, and no two connections ever write or checkpoint in the same
instant, which could damage the file before SQLite 3.51.3 (the WAL-reset race). Where there are no such locks,
SQLite's own do. The journal mode is WAL; `synchronous` is FULL for durable transactions and NORMAL for others.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.ledger._sql import TABLES, SqlStore
from callgate.ledger._writer import Ask, Task
from callgate.masking import Masking

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

T = TypeVar("T")

APPLICATION_ID = 0x63616C67
"""Says in the file's header whose file it is ("calg")."""
BUSY_SECONDS = 15.0
"""How long a write waits for other processes before it fails; far above any transaction of ours."""
CHECKPOINT_PAGES = 1000
"""Pages of the write-ahead log (4 MB) after which they are moved into the file."""
POLL_SECONDS = (0.0005, 0.02)
"""Pauses between looks at the lock, growing from the first to the second."""


def _create(ask: Ask) -> None:
    for statement in TABLES:
        ask(statement.format(int="INTEGER", real="REAL", strict=" STRICT"), ())


MIGRATIONS: tuple[Callable[[Ask], None], ...] = (_create,)
"""Number n brings a file from `user_version` n to n + 1. Never change one: add one."""


class Store(SqlStore):
    """A `Ledger` in an SQLite file."""

    def __init__(self, rest: str, *, masking: Masking | None = None, clock: Callable[[], float] = time.time) -> None:
        if not rest or rest.startswith((":memory:", "file:")):
            raise ConfigError(f'ledger "sqlite:{rest}": a path must follow; for a ledger in memory write "memory"')
        super().__init__(masking=masking, clock=clock)
        self.path = Path(rest).expanduser().absolute()
        self.where = f"sqlite:{self.path}"
        self._writing: sqlite3.Connection | None = None
        self._read_connection: sqlite3.Connection | None = None
        self._read_lock = threading.Lock()
        self._inode = 0
        self._lock = threading.Lock()
        self._lock_file: int | None = None
        self._synchronous = ""

    # --- connections ----------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False, cached_statements=64
        )
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection

    def _writer_connection(self) -> sqlite3.Connection:
        """The connection that writes, made and migrated when first needed. The lock is held."""
        if self._writing is None:
            _make_private(self.path)
            connection = self._connect()
            try:
                _prepare(connection, self.path)
            except BaseException:
                connection.close()
                raise
            self._writing = connection
            self._synchronous = ""
            self._inode = os.stat(self.path).st_ino
        elif _inode_of(self.path) != self._inode:
            raise LedgerError(f"{self.path}: the file was removed or replaced while in use; restart the program")
        return self._writing

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Holds the lock of the file, against other processes and against other threads of this one."""
        with self._lock:
            if fcntl is None:
                yield
                return
            if self._lock_file is None:
                self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                self._lock_file = os.open(f"{self.path}-lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            _wait_for(self._lock_file, self.path)
            try:
                yield
            finally:
                fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def _transact(self, group: Sequence[Task]) -> None:
        with _errors(self.path), self._locked():
            connection = self._writer_connection()
            level = "FULL" if any(task.durable for task in group) else "NORMAL"
            if level != self._synchronous:
                connection.execute(f"PRAGMA synchronous = {level}")
                self._synchronous = level
            ask = _asking(connection)
            connection.execute("BEGIN IMMEDIATE")
            try:
                for task in group:
                    _carry_out(task, ask)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise
            self._checkpoint(connection)

    def _checkpoint(self, connection: sqlite3.Connection, *, whole: bool = False) -> None:
        """Moves the log into the file once it is long. What was committed is safe either way, so errors wait."""
        with suppress(OSError, sqlite3.Error):
            if whole or os.stat(f"{self.path}-wal").st_size > CHECKPOINT_PAGES * 4096:
                connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if whole else 'PASSIVE'})")

    def _reading(self, work: Callable[[Ask], T]) -> T:
        with _errors(self.path), self._read_lock:
            if self._read_connection is None:
                self._read_connection = self._reader_connection()
            connection = self._read_connection
            connection.execute("BEGIN")
            try:
                return work(_asking(connection))
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def _reader_connection(self) -> sqlite3.Connection:
        if self.path.exists():
            connection = self._connect()
            connection.execute("PRAGMA query_only = ON")
            if _version(connection, self.path) == len(MIGRATIONS):
                return connection
            connection.close()
        with self._locked():
            self._writer_connection()
        return self._reader_connection()

    def _close(self) -> None:
        with _errors(self.path), self._read_lock:
            if self._read_connection is not None:
                self._read_connection.close()
                self._read_connection = None
            if self._writing is not None:
                with self._locked():  # the last one to close checkpoints as well
                    self._writing.close()
                    self._writing = None
            if self._lock_file is not None:
                os.close(self._lock_file)
                self._lock_file = None

    def __del__(self) -> None:
        for connection in (getattr(self, "_read_connection", None), getattr(self, "_writing", None)):
            if connection is not None:  # forgotten by its user; what was appended is safe
                connection.close()

    async def _shrink(self) -> None:
        def work() -> None:
            with _errors(self.path), self._locked():
                connection = self._writer_connection()
                connection.executescript("PRAGMA incremental_vacuum")  # execute() would step it once: one page
                self._checkpoint(connection, whole=True)

        await asyncio.to_thread(work)

    def _check_store(self, ask: Ask) -> list[str]:
        found = [f"{self.path}: {row[0]}" for row in ask("PRAGMA integrity_check(20)", ()) if row[0] != "ok"]
        return found + super()._check_store(ask)


def _carry_out(task: Task, ask: Ask) -> None:
    """Does one task of a group. One that is refused before it changed anything does not undo the others."""
    try:
        task.value = task.work(ask)
    except RunBusy as refused:
        task.error = refused


def _asking(connection: sqlite3.Connection) -> Ask:
    execute = connection.execute

    def ask(sql: str, params: Sequence[Any]) -> list[Any]:
        return execute(sql, params).fetchall()

    return ask


def _inode_of(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _make_private(path: Path) -> None:
    """Journals are read by nobody else."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Brings a file to today's tables."""
    version = _version(connection, path)
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if version == len(MIGRATIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(_version(connection, path), len(MIGRATIONS)):
            MIGRATIONS[number](_asking(connection))
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    ((owner,),) = connection.execute("PRAGMA application_id").fetchall()
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    if tables and owner != APPLICATION_ID:
        raise LedgerError(f"{path}: this SQLite file belongs to another program; choose another path for the ledger")
    if version > len(MIGRATIONS):
        raise LedgerError(f"{path}: written by a newer callgate (tables {version}); update callgate")
    return int(version)


def _wait_for(lock_file: int, path: Path) -> None:
    assert fcntl is not None
    pause, last = POLL_SECONDS
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerError(f"{path}: another process has held it for {BUSY_SECONDS:g} s") from None
            time.sleep(pause)
            pause = min(pause * 1.5, last)


_ADVICE: tuple[tuple[str, str], ...] = (
    ("disk is full", "the disk is full; free some space, nothing of this was recorded"),
    ("readonly", "the ledger may only be read; check the rights of the file and its folder"),
    ("unable to open", "cannot be opened; check the path and the rights of its folder"),
    ("malformed", "the file is damaged; keep a copy, then try `sqlite3 FILE .recover`, or move it away"),
    ("not a database", "this file is no SQLite database; choose another path for the ledger"),
    ("locked", f"another program has held it for {BUSY_SECONDS:g} s"),
    ("disk I/O error", "the disk does not read or write; check it and its free space"),
    ("UNIQUE constraint failed: writes", "this write was started before; it is not started again"),
    ("UNIQUE constraint failed: results", "this call has a result already"),
)


@contextmanager
def _errors(path: Path) -> Iterator[None]:
    """Turns what SQLite and the system say into what to do."""
    try:
        yield
    except sqlite3.Error as error:
        said = str(error)
        advice = next((text for sign, text in _ADVICE if sign in said), said)
        raise LedgerError(f"{path}: {advice}") from error
    except OSError as error:
        raise LedgerError(
            f"{path}: {error.strerror or error}; check the path and the rights of its folder, or choose another ledger"
        ) from error
