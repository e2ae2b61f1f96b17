"""Connections to one PostgreSQL schema: one set for the whole process, however many ledgers are open.

Law: nothing here waits without end: connecting, waiting for a free connection and every statement have a limit with a
name. (tests/test_ledger_postgres_trouble.py::test_a_server_that_does_not_answer_is_an_error_in_bounded_time)

Theory of operation. (1) Of `POOL_SIZE` connections a ledger borrows one for one transaction. (2) A connection that was
not used for a second is tried before it is trusted. (3) The server ends statements and waits for locks by itself; a
server that is stopped or cut off cannot, so the client counts as well and closes the line. (4) A connection that comes
back in the midst of a transaction, or of another process after a fork, is not used again.
"""

from __future__ import annotations

import os
import re
import threading
import time
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from callgate.errors import ConfigError, LedgerError
from callgate.ledger._sqlstate import TooManyClients, meaning

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 5
"""How long the server may take to accept a connection."""
LOCK_SECONDS = 3.0
"""How long a statement waits for a lock that another session holds (`lock_timeout`)."""
STATEMENT_SECONDS = 5.0
"""How long the server may take for a statement (`statement_timeout`): ours touch a few rows each."""
ANSWER_SECONDS = 7.0
"""How long the client waits for an answer: longer than the server's own limit, which gives the better error."""
PATIENT_SECONDS = 600.0
"""The limits for what goes through everything: `verify` and migrations."""
TCP_SECONDS = 7
"""How long sent data may stay without acknowledgement (`tcp_user_timeout`), and about how long a dead peer goes
unnoticed (keepalives)."""
SESSION_SECONDS = 10.0
"""How long a transaction may stand idle (`idle_in_transaction_session_timeout`): a stopped process holds no lock."""
POOL_SIZE = 4
"""Connections of a process: one writes, the others read, and a server's default is 100 for all its clients."""
POOL_SECONDS = 10.0
"""How long a ledger waits for one of them."""
IDLE_SECONDS = 1.0
"""After so long without use a connection is tried before it is trusted."""

_PASSWORD = re.compile(r"(?<=://)([^:/@]*):[^@/]*@")
_POOLS: weakref.WeakValueDictionary[tuple[int, str, str], Pool] = weakref.WeakValueDictionary()
_REGISTRY = threading.Lock()


@dataclass(slots=True)
class _Kept:
    connection: psycopg.Connection
    used: float


def without_password(address: str) -> str:
    """The address as it may be shown."""
    return _PASSWORD.sub(r"\1:…@", address)


class Schema(Protocol):
    """The tables that a pool's connections use."""

    @property
    def name(self) -> str:
        """Of the schema."""
        ...

    @property
    def where(self) -> str:
        """The ledger, as it may be shown."""
        ...

    def make_ready(self, connection: psycopg.Connection) -> None:
        """Called with each new connection."""
        ...


def pool_of(address: str, schema: Schema) -> Pool:
    """The pool of this process for the schema; its user calls `leave` when done."""
    driver = _load()
    with _REGISTRY:
        # With the process: a forked child that used its parent's sockets would read the answers to the parent's
        # statements.
        key = (os.getpid(), address, schema.name)
        pool = _POOLS.get(key)
        if pool is None:
            pool = _POOLS[key] = Pool(driver, address, schema)
        pool.users += 1
        return pool


class Pool:
    """A few connections, borrowed for a transaction each."""

    def __init__(self, driver: Any, address: str, schema: Schema) -> None:
        self.users = 0
        self.was_there = False
        """Whether the server ever answered: if so, an outage passes; else the address may be wrong."""
        self._driver = driver
        self._address = address
        self._schema = schema
        self._pid = os.getpid()
        self._turn = threading.Condition()
        self._free: list[_Kept] = []
        self._made = 0

    @contextmanager
    def connection(self, *, patient: bool = False) -> Iterator[psycopg.Connection]:
        """A connection for one transaction. Raises LedgerError, also for what the driver raises meanwhile."""
        with self.errors():
            kept = self._take()
            try:
                # At each loan: the last borrower may have had more time.
                _set_patience(kept.connection, PATIENT_SECONDS if patient else ANSWER_SECONDS)
                yield kept.connection
            finally:
                self._give_back(kept)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turns what the driver raises into ours."""
        try:
            yield
        except self._driver.Error as error:
            raise meaning(error, self._schema.where) from error

    def leave(self) -> None:
        """One user less; the last one closes the connections."""
        with self._turn:
            self.users -= 1
            gone = self._free if self.users <= 0 else []
            if gone:
                self._free, self._made = [], self._made - len(gone)
        for kept in gone:
            self._close(kept.connection)

    def __del__(self) -> None:
        for kept in getattr(self, "_free", ()):  # forgotten by its users; what was appended is safe
            self._close(kept.connection)

    # --- taking and giving back -------------------------------------------------------------------------------------

    def _take(self) -> _Kept:
        deadline = time.monotonic() + POOL_SECONDS
        while True:
            kept = self._free_one(deadline)
            if kept is not None and self._is_alive(kept):
                return kept
            # The server closed it while it lay idle: the others that lie there are most likely gone too, so each is
            # tried.
            if kept is not None:
                self._drop(kept.connection)
                continue
            try:
                return _Kept(self._connect(), time.monotonic())
            except BaseException as error:
                self._one_less()
                # The server is full. A connection that another thread of ours gives back is as good, so it is waited
                # for; if we have none at all, nothing can come back.
                if not isinstance(error, TooManyClients) or not self._others(deadline):
                    raise

    def _free_one(self, deadline: float) -> _Kept | None:
        """A connection that nobody uses; None if one may be made."""
        with self._turn:
            while True:
                if self._free:
                    return self._free.pop()
                if self._made < POOL_SIZE:
                    self._made += 1
                    return None
                if not self._turn.wait(deadline - time.monotonic()):
                    raise LedgerError(
                        f"{self._schema.where}: all {POOL_SIZE} connections of this process were in use for"
                        f" {POOL_SECONDS:g} s"
                    )

    def _others(self, deadline: float) -> bool:
        """Waits for a connection that this process has already, where the server gives no further one."""
        with self._turn:
            while not self._free and self._made:
                if not self._turn.wait(max(0.0, deadline - time.monotonic())):
                    return False
            return bool(self._free)

    def _is_alive(self, kept: _Kept) -> bool:
        """Whether the server closed it meanwhile (a restart, a limit for idle ones)."""
        # A closed line is only noticed when it is used. To try each time would double the round trips of every
        # question.
        if not kept.connection.closed and time.monotonic() - kept.used > IDLE_SECONDS:
            _set_patience(kept.connection, ANSWER_SECONDS)
            with suppress(self._driver.Error):
                kept.connection.execute("SELECT 1")
        return not kept.connection.closed

    def _give_back(self, kept: _Kept) -> None:
        # INTRANS or INERROR: whoever borrowed it was cut short, and its half transaction must not meet the next
        # borrower.
        idle = self._driver.pq.TransactionStatus.IDLE
        if kept.connection.closed or kept.connection.info.transaction_status != idle or self.users <= 0:
            self._drop(kept.connection)
            return
        kept.used = time.monotonic()
        with self._turn:
            self._free.append(kept)
            self._turn.notify()

    def _drop(self, connection: psycopg.Connection) -> None:
        self._close(connection)
        self._one_less()

    def _one_less(self) -> None:
        with self._turn:
            self._made -= 1
            self._turn.notify()

    def _close(self, connection: psycopg.Connection) -> None:
        if os.getpid() == self._pid:  # a child that closed it would end the session of its parent
            with suppress(self._driver.Error):
                connection.close()

    # --- connecting -------------------------------------------------------------------------------------------------

    def _connect(self) -> psycopg.Connection:
        with self.errors():
            # `autocommit`: transactions are opened where they are meant, and a mere question leaves none open (25P03
            # would end it).
            connection: psycopg.Connection = _bounded(self._driver).connect(
                self._address, autocommit=True, **self._options()
            )
            try:
                # As statements, not as `options` of the address: poolers such as PgBouncer refuse unknown start-up
                # parameters.
                connection.execute(self._settings().encode())
                _set_patience(connection, PATIENT_SECONDS)
                self._schema.make_ready(connection)
            except BaseException:
                self._close(connection)
                raise
            self.was_there = True
            return connection

    def _options(self) -> dict[str, object]:
        """Our limits for the line, where the address does not give its own."""
        given = self._driver.conninfo.conninfo_to_dict(self._address)
        ours = {
            "connect_timeout": CONNECT_SECONDS,
            "application_name": "callgate",
            # `statement_timeout` is counted by the server; these find out that there is no server any more (a pulled
            # cable sends no FIN, and Linux would go on trying for a quarter of an hour).
            "tcp_user_timeout": TCP_SECONDS * 1000,
            "keepalives_idle": max(1, TCP_SECONDS // 2),
            "keepalives_interval": 1,
            "keepalives_count": max(1, TCP_SECONDS // 2),
        }
        return {name: value for name, value in ours.items() if name not in given}

    def _settings(self) -> str:
        given = str(self._driver.conninfo.conninfo_to_dict(self._address).get("options", ""))
        ours = {
            "statement_timeout": STATEMENT_SECONDS,
            "lock_timeout": LOCK_SECONDS,
            "idle_in_transaction_session_timeout": SESSION_SECONDS,
        }
        limits = [f"SET {name} = {int(seconds * 1000)}" for name, seconds in ours.items() if name not in given]
        return "; ".join([f"SET search_path TO {self._schema.name}", *limits])


def _set_patience(connection: psycopg.Connection, seconds: float) -> None:
    connection.callgate_patience = seconds  # type: ignore[attr-defined]


_CLASSES: dict[int, object] = {}


def _bounded(driver: Any) -> Any:
    """The driver's connection, with a limit for how long an answer is waited for."""
    if id(driver) in _CLASSES:
        return _CLASSES[id(driver)]

    # The driver has no limit of its own for an answer; all its waiting passes through `wait`.
    class Bounded(driver.Connection):  # type: ignore[misc]
        callgate_patience = ANSWER_SECONDS

        def wait(self, gen: Any, *args: object, **named: object) -> object:
            limit = time.monotonic() + self.callgate_patience
            try:
                return super().wait(_until(gen, limit), *args, **named)
            except Unanswered:
                # To read on would take this late answer for the one to the next statement.
                self.pgconn.finish()  # what was sent may still be carried out; nothing more is read from this line
                raise driver.OperationalError(f"it did not answer for {self.callgate_patience:g} s") from None

    _CLASSES[id(driver)] = Bounded
    return Bounded


class Unanswered(Exception):
    """The limit has passed."""


def _until(gen: Generator[object, object, object], limit: float) -> Generator[object, object, object]:
    """The driver's generator, ended when it still waits after the limit. The driver looks up every tenth of a second
    and then sends 0."""
    try:
        state = next(gen)
        while True:
            ready = yield state
            if not ready and time.monotonic() > limit:
                raise Unanswered
            state = gen.send(ready)
    except StopIteration as end:
        return end.value


def _load() -> object:
    try:
        import psycopg

        # Here and not at the top: an extra that most users do not install.
        import psycopg.conninfo
        import psycopg.pq
    except ImportError as error:
        raise ConfigError(
            "a PostgreSQL ledger needs psycopg: install it with `pip install 'callgate[postgres]'`"
        ) from error
    return psycopg
