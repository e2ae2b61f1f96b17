"""The ledger in one SQLite file: for one machine, any number of processes.

Law: at any moment one connection of all processes writes or checkpoints: the one that holds the lock on `PATH-lock`.
(tests/test_ledger_durability.py::test_whoever_writes_checkpoints_or_closes_holds_the_lock)
Law: durable entries are synced to the disk at their commit.
(tests/test_ledger_durability.py::test_durable_entries_are_synced_at_their_commit_and_others_are_not)

That lock (an advisory one of the system, gone when its process is) does two things that SQLite alone does not: writers
queue up instead of polling with growing pauses, and no two connections ever write or checkpoint in the same
instant, which could damage the file before SQLite 3.51.3 (the WAL-reset race). Where there are no such locks,
SQLite's own do. The journal mode is WAL; `synchronous` is FULL for durable transactions and NORMAL for others.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.ledger._sql import SqlStore
from callgate.ledger._tables import VERSIONS, create
from callgate.ledger._writer import Ask, Task
from callgate.masking import Masking

try:
    import fcntl
except ImportError:  # not a POSIX system
    # Windows: SQLite's own locks and its busy handler do the same there, only less evenly.
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


_WORDS = {"int": "INTEGER", "real": "REAL", "strict": " STRICT"}


class Store(SqlStore):
    """A `Ledger` in an SQLite file."""

    def __init__(
        self,
        rest: str,
        *,
        masking: Masking | None = None,
        clock: Callable[[], float] = time.time,
        hold_secrets: bool = True,
    ) -> None:
        if not rest or rest.startswith((":memory:", "file:")):
            raise ConfigError(f'ledger "sqlite:{rest}": a path must follow; for a ledger in memory write "memory"')
        super().__init__(masking=masking, clock=clock, hold_secrets=hold_secrets)
        self.path = Path(rest).expanduser().absolute()
        self.where = f"sqlite:{self.path}"
        self._writing: sqlite3.Connection | None = None
        self._read_connection: sqlite3.Connection | None = None
        self._read_lock = threading.Lock()
        self._inode = 0
        self._lock = threading.Lock()
        self._lock_file: int | None = None
        self._synchronous = ""
        self._residue = True
        """Whether the log may have held arguments that were removed: of this process, or of one that was killed."""

    # --- connections ----------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            # `isolation_level=None`: the module opens no transactions of its own, so that BEGIN IMMEDIATE and COMMIT
            # stand where we put them (PEP 249's implicit ones begin late and DEFERRED). One thread at a time uses a
            # connection: our locks see to it.
            self.path,
            timeout=BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
        )
        with _closed_on_error(connection):
            # The automatic one comes with whatever COMMIT crosses the limit; ours are made under the lock
            # (`_checkpoint`).
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA secure_delete = ON")  # held arguments are gone when their row is
        return connection

    def _writer_connection(self) -> sqlite3.Connection:
        """The connection that writes, made and migrated when first needed. The lock is held."""
        if self._writing is None:
            _make_private(self.path)
            connection = self._connect()
            with _closed_on_error(connection):
                _prepare(connection, self.path)
            self._writing = connection
            # a new connection begins with the default, so the next transaction sets its own level
            self._synchronous = ""
            self._inode = os.stat(self.path).st_ino
        # Somebody deleted or replaced the file: we would go on writing into one that nobody will ever open again
        # (https://www.sqlite.org/howtocorrupt.html, 2.4 unlinking or renaming a file while in use).
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
            # A file of its own: closing any descriptor of the database itself would drop SQLite's POSIX locks on it
            # (https://www.sqlite.org/howtocorrupt.html, 2.2). `flock` belongs to the open file, not to the process, so
            # two stores of one process exclude each other as well.
            if self._lock_file is None:
                if self.path.is_dir():  # before anything is made beside it
                    raise LedgerError(f"{self.path}: this is a folder; name a file in it")
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
            # In WAL mode NORMAL syncs at checkpoints only: a power cut may undo the last commits, and never damages the
            # file (https://www.sqlite.org/pragma.html#pragma_synchronous). One durable task makes the whole group
            # durable.
            level = "FULL" if any(task.durable for task in group) else "NORMAL"
            if level != self._synchronous:
                connection.execute(f"PRAGMA synchronous = {level}")
                self._synchronous = level
            ask = self._asking_to_write(connection)
            # A deferred transaction that begins to write after reading fails at once with SQLITE_BUSY_SNAPSHOT if
            # another one wrote meanwhile, and no busy handler is asked (https://www.sqlite.org/rescode.html#busy_snapshot).
            connection.execute("BEGIN IMMEDIATE")
            try:
                for task in group:
                    _carry_out(task, ask)
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    # After some errors (a full disk, an I/O error) SQLite has rolled back already.
                    if connection.in_transaction:
                        connection.execute("ROLLBACK")
                raise
            self._checkpoint(connection)

    def _asking_to_write(self, connection: sqlite3.Connection) -> Ask:
        def ask(sql: str, params: Sequence[object]) -> list[object]:
            cursor = connection.execute(sql, params)
            if cursor.rowcount > 0 and sql.startswith("DELETE FROM held"):
                self._residue = True
            return cursor.fetchall()

        return ask

    def _checkpoint(self, connection: sqlite3.Connection, *, whole: bool = False) -> None:
        """Moves the log into the file once it is long. What was committed is safe either way, so errors wait."""
        with suppress(OSError, sqlite3.Error):
            # PASSIVE never waits for readers; TRUNCATE does, and gives the log's space back as well.
            if self._residue and not whole:
                # `secure_delete` empties the place in the file, and the log still has the page as it was. A reader that
                # is at work keeps it; nobody waits for that, the next transaction tries again.
                connection.execute("PRAGMA busy_timeout = 0")
                try:
                    ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    connection.execute(f"PRAGMA busy_timeout = {int(BUSY_SECONDS * 1000)}")
                self._residue = bool(busy)
            elif whole or os.stat(f"{self.path}-wal").st_size > CHECKPOINT_PAGES * 4096:
                connection.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if whole else 'PASSIVE'})")

    def _reading(self, work: Callable[[Ask], T]) -> T:
        with _errors(self.path), self._read_lock:
            if self._read_connection is None:
                self._read_connection = self._reader_connection()
            connection = self._read_connection
            # The snapshot begins with the first read and stands until the end, whatever others commit meanwhile.
            connection.execute("BEGIN")
            try:
                return work(_asking(connection))
            finally:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")

    def _reading_apart(self, work: Callable[[Ask], T]) -> T:
        # a connection of its own: `verify` reads for minutes, and the shared one would keep every question waiting
        with _errors(self.path):
            connection = self._reader_connection()
            try:
                connection.execute("BEGIN")
                return work(_asking(connection))
            finally:
                connection.close()

    def _reader_connection(self) -> sqlite3.Connection:
        if self.path.exists():
            connection = self._connect()
            with _closed_on_error(connection):
                # A file whose tables are of another version is brought up to date by the writer, under the lock; only
                # then it is read.
                connection.execute("PRAGMA query_only = ON")
                if _version(connection, self.path) == len(VERSIONS):
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


@contextmanager
def _closed_on_error(connection: sqlite3.Connection) -> Iterator[None]:
    """A connection that could not be made ready holds no file open."""
    try:
        yield
    except BaseException:
        connection.close()
        raise


def _carry_out(task: Task, ask: Ask) -> None:
    """Does one task of a group. One that is refused before it changed anything does not undo the others."""
    try:
        task.value = task.work(ask)
    except RunBusy as refused:
        task.error = refused


def _asking(connection: sqlite3.Connection) -> Ask:
    execute = connection.execute

    def ask(sql: str, params: Sequence[object]) -> list[object]:
        return execute(sql, params).fetchall()

    return ask


def _inode_of(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def _make_private(path: Path) -> None:
    """Journals and held arguments are read by nobody else, also if the file was copied here with other rights."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(FileNotFoundError, PermissionError):  # it is another user's, who decides
            if file.is_file() and stat.S_IMODE(file.stat().st_mode) & 0o077:
                file.chmod(0o600)


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    """Brings a file to today's tables."""
    version = _version(connection, path)
    # Once there are tables it takes a VACUUM to change it (https://www.sqlite.org/pragma.html#pragma_auto_vacuum).
    if version == 0:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if version == len(VERSIONS):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # The version is read again inside the transaction: another process may have done it while this one waited.
        for number in range(_version(connection, path), len(VERSIONS)):
            create(_asking(connection), number, **_WORDS)
            connection.execute(f"PRAGMA user_version = {number + 1}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _version(connection: sqlite3.Connection, path: Path) -> int:
    # In this order: what makes the tables sets the other two in the same transaction, perhaps between two of these.
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    ((owner,),) = connection.execute("PRAGMA application_id").fetchall()
    ((version,),) = connection.execute("PRAGMA user_version").fetchall()
    # A path that was mistyped must not give a browser's or another program's database our tables.
    if tables and owner != APPLICATION_ID:
        raise LedgerError(f"{path}: this SQLite file belongs to another program; choose another path for the ledger")
    if version > len(VERSIONS):
        raise LedgerError(f"{path}: written by a newer callgate (tables {version}); update callgate")
    return int(version)


def _wait_for(lock_file: int, path: Path) -> None:
    assert fcntl is not None
    pause, last = POLL_SECONDS
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            # Polled and not waited for: a blocking `flock` has no time limit, and a signal handler cannot be set in
            # this thread.
            fcntl.flock(lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise LedgerError(f"{path}: another process has held it for {BUSY_SECONDS:g} s") from None
            time.sleep(pause)
            pause = min(pause * 1.5, last)


_DAMAGED = "the file is damaged; keep a copy, then try `sqlite3 FILE .recover`, or move it away"
_ADVICE: tuple[tuple[str, str], ...] = (
    ("disk is full", "the disk is full; free some space, nothing of this was recorded"),
    ("readonly", "the ledger may only be read; check the rights of the file and its folder"),
    ("unable to open", "cannot be opened; check the path and the rights of its folder"),
    ("malformed", _DAMAGED),
    ("no such", _DAMAGED),
    ("corrupt", _DAMAGED),
    ("UTF-8", _DAMAGED),
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
        message = str(error)
        # By their words: SQLite's codes do not tell which table's key was violated.
        advice = next((text for sign, text in _ADVICE if sign in message), message)
        raise LedgerError(f"{path}: {advice}") from error
    except UnicodeError as error:  # a message of SQLite's that quotes damaged names
        raise LedgerError(f"{path}: {_DAMAGED}") from error
    except OSError as error:
        raise LedgerError(
            f"{path}: {error.strerror or error}; check the path and the rights of its folder, or choose another ledger"
        ) from error
