"""The PostgreSQL ledger in trouble: a server that hangs, restarts, refuses or is full, and races with prune."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import pg_server
from callgate import Agent, Replay, tool
from callgate import ledger as ledgers
from callgate.errors import LedgerError, RunBusy
from callgate.ledger import _pool, intent
from callgate.ledger import postgres as store_module
from callgate.ledger._sqlstate import RolledBack, TooManyClients, meaning
from callgate.ledger._writer import Lost
from callgate.ledger.postgres import Store
from callgate.types import Entry
from ledger_stores import PAY, ended, started
from patience import busy

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(pg_server.why_not() is not None, reason=str(pg_server.why_not())),
]
_number = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[pg_server.Server]:
    with pg_server.running(max_connections=20) as made:
        yield made


@pytest.fixture
def where(server: pg_server.Server) -> str:
    return f"{server.address}&callgate_schema=trouble_{next(_number)}"


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits a tenth of what they are."""
    for name in ("LOCK_SECONDS", "STATEMENT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(_pool, name, getattr(_pool, name) / 10)
    monkeypatch.setattr(_pool, "CONNECT_SECONDS", 2)
    for name in ("OUTAGE_SECONDS", "BUSY_SECONDS"):
        monkeypatch.setattr(store_module, name, getattr(store_module, name) / 10)


def schema_of(where: str) -> str:
    return where.rpartition("=")[2]


def turns(count: int) -> list[Entry]:
    return [Entry("turn", {"n": n}) for n in range(count)]


def limits() -> float:
    """The longest that anything may take."""
    return max(store_module.OUTAGE_SECONDS, store_module.BUSY_SECONDS) + _pool.ANSWER_SECONDS + _pool.CONNECT_SECONDS


def test_the_limits_leave_time_within_a_lease() -> None:
    assert _pool.LOCK_SECONDS < _pool.STATEMENT_SECONDS < _pool.ANSWER_SECONDS
    assert store_module.OUTAGE_SECONDS + _pool.ANSWER_SECONDS < ledgers.LEASE_SECONDS


# --- a server that does not answer --------------------------------------------------------------------------------


async def test_a_server_that_does_not_answer_is_an_error_in_bounded_time(
    server: pg_server.Server, where: str, hasty: None
) -> None:
    """Frozen, so that even the kernel still takes what is sent."""
    ledger = ledgers.open(where)
    await ledger.append("r", turns(1))
    frozen = server.freeze()
    try:
        for act in (lambda: ledger.append("r", turns(1)), lambda: ledger.read("r")):
            begun = time.monotonic()
            with pytest.raises(Lost, match="not there"):
                await act()
            assert time.monotonic() - begun < limits()
    finally:
        pg_server.thaw(frozen)
    await ledger.append("r", turns(1))
    assert [e.seq for e in await ledger.read("r")] in ([1, 2], [1, 2, 3])  # what was sent may have been carried out
    assert (await ledger.verify()).problems == ()
    await ledger.aclose()


async def test_a_lock_of_another_session_is_waited_for_and_not_for_ever(
    server: pg_server.Server, where: str, hasty: None
) -> None:
    import psycopg

    ledger = ledgers.open(where)
    await ledger.append("r", turns(1))
    with psycopg.connect(server.address) as other:
        other.execute(f"LOCK TABLE {schema_of(where)}.entries".encode())
        begun = time.monotonic()
        with pytest.raises(RolledBack, match="another session holds a lock"):
            await ledger.append("r", turns(1))
        assert time.monotonic() - begun < limits()
        waiting = asyncio.ensure_future(ledger.append("r", turns(1)))
        await asyncio.sleep(0.4)  # longer than one try waits
        assert not waiting.done()
        other.rollback()
    assert (await waiting)[0].seq == 2
    await ledger.aclose()


async def test_a_statement_that_takes_too_long_is_done_again(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Store(where)
    await ledger.append("r", turns(1))
    once, tries = ledger._transact_once, itertools.count()

    def slow(group: Any) -> None:
        if next(tries) < 2:
            with ledger._connections().connection() as connection:
                connection.execute("SELECT pg_sleep(30)")
        once(group)

    monkeypatch.setattr(_pool, "STATEMENT_SECONDS", 0.2)
    ledger._transact_once = slow  # type: ignore[method-assign]
    ledger._connections().leave()  # new connections have the new limit
    ledger._connections().users = 1
    assert (await ledger.append("r", turns(1)))[0].seq == 2
    assert next(tries) == 3
    await ledger.aclose()


# --- errors -------------------------------------------------------------------------------------------------------


class Raised(Exception):
    """An error as psycopg gives it."""

    def __init__(self, sqlstate: str | None, text: str = "no") -> None:
        super().__init__(text)
        self.sqlstate = sqlstate
        self.diag = type("Diag", (), {"table_name": "writes"})


class OperationalError(Raised):
    """One without a state is of the line."""


@pytest.mark.parametrize(
    ("state", "ours"),
    [
        ("40001", RolledBack),
        ("40P01", RolledBack),
        ("57014", RolledBack),
        ("55P03", RolledBack),
        ("53300", TooManyClients),
        ("57P01", Lost),
        ("57P02", Lost),
        ("57P03", Lost),
        ("08006", Lost),
        ("08001", Lost),
        ("42501", LedgerError),
        ("23505", LedgerError),
        ("53100", LedgerError),
        ("25006", LedgerError),
        ("XX000", LedgerError),
        ("22003", LedgerError),
    ],
)
def test_errors_are_told_apart_by_their_sqlstate(state: str, ours: type[LedgerError]) -> None:
    assert type(meaning(Raised(state), "w")) is ours
    assert type(meaning(OperationalError(None), "w")) is Lost
    assert type(meaning(Raised(None), "w")) is LedgerError
    assert "\x1b" not in str(meaning(Raised(state, "a\x1b]52;c;eA==\x07\nsecond line"), "w"))


async def test_two_stores_that_write_the_same_runs_in_groups_lose_nothing(where: str) -> None:
    stores = [ledgers.open(where), ledgers.open(where)]
    await stores[0].append("r", turns(1))
    work = [store.append(f"run-{(n * step) % 12}", turns(1)) for step, store in zip((5, 7), stores, strict=True)
            for n in range(240)]  # fmt: skip
    results = await asyncio.gather(*work, return_exceptions=True)
    assert [r for r in results if isinstance(r, BaseException)] == []
    report = await stores[0].verify()
    assert (report.problems, report.entries) == ((), 481)
    for store in stores:
        await store.aclose()


async def test_a_deadlock_with_a_stranger_is_done_again(server: pg_server.Server, where: str) -> None:
    import psycopg

    ledger = ledgers.open(where)
    for name in ("a", "b"):
        await ledger.append(name, turns(1))
    schema = schema_of(where)

    def lock(name: str) -> bytes:
        return f"SELECT 1 FROM {schema}.runs WHERE run_id = '{name}' FOR UPDATE".encode()

    def stranger() -> None:
        with psycopg.connect(server.address) as other:
            other.execute("SET deadlock_timeout = '10s'")  # so that it is our transaction which the server undoes
            other.execute(lock("b"))
            ready.set()
            time.sleep(0.5)
            other.execute(lock("a"))
            other.rollback()

    ready = threading.Event()
    waiting = asyncio.create_task(asyncio.to_thread(stranger))
    await asyncio.to_thread(ready.wait)
    await asyncio.gather(ledger.append("a", turns(1)), ledger.append("b", turns(1)))
    await waiting
    assert (await ledger.verify()).entries == 4
    await ledger.aclose()


# --- connections --------------------------------------------------------------------------------------------------


@tool(effect="write")
def pay(to: str) -> str:
    """Pays."""
    paid.append(to)
    return "paid"


paid: list[str] = []


async def test_sixty_agents_share_the_connections_of_the_process(server: pg_server.Server, where: str) -> None:
    paid.clear()
    agents = [
        Agent(Replay([{"calls": [{"name": "pay", "arguments": {"to": f"p{n}"}}]}, "done"]), tools=[pay], ledger=where)
        for n in range(60)
    ]
    results = await asyncio.gather(*(agent.run("pay") for agent in agents))
    assert [r.reason for r in results] == ["answered"] * 60
    assert sorted(paid) == sorted(f"p{n}" for n in range(60))
    ((used,),) = server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'callgate'")
    assert 0 < int(str(used)) <= _pool.POOL_SIZE
    for agent in agents:
        await agent.aclose()
    for _ in range(100):
        left = server.sql("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'callgate'")
        if left == [(0,)]:
            break
        await asyncio.sleep(0.05)  # the server takes a moment to notice
    assert left == [(0,)]


async def test_a_server_without_a_free_connection_is_waited_for_and_says_so(
    server: pg_server.Server, where: str, hasty: None
) -> None:
    import psycopg

    ledger, late = ledgers.open(where), ledgers.open(where + "_late")
    await ledger.append("r", turns(1))
    others = []
    with suppress(psycopg.OperationalError):  # until there are too many
        while True:
            others.append(psycopg.connect(server.address))
    await asyncio.gather(*(ledger.append("r", turns(1)) for _ in range(20)), *(ledger.runs() for _ in range(20)))
    with pytest.raises(TooManyClients, match="max_connections"):
        await late.append("r", turns(1))
    waiting = asyncio.ensure_future(late.append("r", turns(1)))
    await asyncio.sleep(0.2)
    for other in others:
        other.close()
    assert (await waiting)[0].seq == 1
    for store in (ledger, late):
        await store.aclose()


# --- rights -------------------------------------------------------------------------------------------------------


async def test_a_role_that_may_only_use_the_ready_schema_can(server: pg_server.Server, where: str) -> None:
    schema = schema_of(where)
    role = f"user_{schema}"
    limited = where.replace("callgate@", f"{role}@")
    server.sql(f"CREATE ROLE {role} LOGIN")
    server.sql("REVOKE CREATE ON DATABASE postgres FROM PUBLIC")
    without = ledgers.open(limited)
    with pytest.raises(LedgerError, match="open the ledger once as a role that may"):
        await without.append("r", turns(1))
    owner = ledgers.open(where)
    await owner.append("r", [started(), intent("r", PAY, "u")])
    with pytest.raises(LedgerError, match="USAGE on the schema"):
        await without.runs()
    server.sql(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    server.sql(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    async with ledgers.hold(without, "s") as held:
        await without.append("s", [started()], fence=held.fence)
    assert [i.run_id for i in await without.runs()] == ["s", "r"]
    assert (await without.prune(older_than=-10, keep_unknown=False)).runs == 2
    assert (await without.verify()).problems == ()
    for store in (owner, without):
        await store.aclose()


async def test_asking_for_a_run_that_does_not_exist_writes_no_row(server: pg_server.Server, where: str) -> None:
    ledger = ledgers.open(where)
    agent = Agent(Replay(["hello"]), ledger=ledger)
    with pytest.raises(LedgerError, match="no such run"):
        await agent.resume("nope")
    assert not await ledgers.close(ledger, "nope")
    assert not await ledger.cancel("nope")
    await ledger.release(await ledger.lease("nope"))
    assert server.sql(f"SELECT count(*) FROM {schema_of(where)}.runs") == [(0,)]
    await ledger.aclose()


# --- prune --------------------------------------------------------------------------------------------------------


async def test_prune_never_removes_a_run_that_is_carried_out(where: str) -> None:
    """Whoever takes a run up between prune's choice and its deed keeps it; so does a write that goes on meanwhile."""
    pruner, worker = Store(where), Store(where)
    names = [f"r{n}" for n in range(30)]
    for name in names:
        await worker.append(name, [started(), Entry("run_finished", {"reason": "waiting"})])
    taken: dict[str, Any] = {}
    remove = pruner.remove
    loop = asyncio.get_running_loop()

    async def take_up() -> None:
        for name in names[:10]:  # resumed
            taken[name] = await worker.lease(name)
        for name in names[10:15]:  # resumed, wrote and gone again
            lease = await worker.lease(name)
            call = intent(name, PAY, "u")
            await worker.append(name, [call, ended(PAY.id)], fence=lease.fence)
            await worker.release(lease)

    def late(*arguments: Any) -> Any:
        asyncio.run_coroutine_threadsafe(take_up(), loop).result(20)
        return remove(*arguments)

    pruner.remove = late  # type: ignore[method-assign]
    pruned = await pruner.prune(older_than=-10)
    assert sorted(pruned.run_ids) == sorted(names[15:])
    for name, lease in taken.items():
        assert len(await worker.append(name, [intent(name, PAY, "u")], fence=lease.fence)) == 1
        assert len(await worker.read(name)) == 3
    assert (await worker.verify()).problems == ()
    for store in (pruner, worker):
        await store.aclose()


async def test_prune_races_with_runs_that_are_resumed_and_write(where: str) -> None:
    pruner = ledgers.open(where)
    workers = [ledgers.open(where) for _ in range(3)]
    names = [f"r{n}" for n in range(40)]
    for name in names:
        await pruner.append(name, [started(), Entry("run_finished", {"reason": "waiting"})])
    recorded: dict[str, int] = {}
    taken = asyncio.Event()

    async def work(n: int, name: str) -> None:
        ledger = workers[n % 3]
        await asyncio.sleep(n % 10 * 0.01)
        try:
            async with ledgers.hold(ledger, name) as held:
                before = len(await ledger.read(name))
                taken.set()
                if not before:
                    return  # pruned before it was taken up
                await ledger.append(name, [intent(name, PAY, "u")], fence=held.fence)
                await asyncio.sleep(0.05)
                await ledger.append(name, [ended(PAY.id, "unknown_outcome")], fence=held.fence)
                recorded[name] = before + 2
        except RunBusy as error:
            raise AssertionError(f"{name} was lost: {error}") from error

    async def prune() -> None:
        await taken.wait()  # else a busy machine may let it remove everything before anybody comes
        for _ in range(12):
            await pruner.prune(older_than=-10)
            await asyncio.sleep(0.01)

    await asyncio.gather(prune(), *(work(n, name) for n, name in enumerate(names)))
    assert recorded, "every run was pruned before anybody took it up"
    for name, entries in recorded.items():
        assert len(await pruner.read(name)) == entries
    assert (await pruner.verify()).problems == ()
    for store in (pruner, *workers):
        await store.aclose()


# --- restarts -----------------------------------------------------------------------------------------------------


async def test_a_server_that_restarts_inside_a_tool_costs_nothing() -> None:
    """Within its lease the holder connects anew, renews and appends the result that it has in its hand."""
    with pg_server.running() as server:
        done: list[str] = []

        @tool(effect="write")
        def send(to: str) -> str:
            """Sends."""
            server.stop()
            done.append(to)
            starter.start()
            return "sent"

        def start_later() -> None:
            time.sleep(1.5)  # the result comes while nobody is there
            server.start()

        starter = threading.Thread(target=start_later)
        model = Replay([{"calls": [{"name": "send", "arguments": {"to": "bob"}}]}, "done"])
        agent = Agent(model, tools=[send], ledger=server.address)
        result = await agent.run("send", run_id="r")
        starter.join()
        assert (result.reason, [c.result.status for c in result.calls], done) == ("answered", ["ok"], ["bob"])
        report = await agent.ledger.verify()
        assert (report.problems, report.notes) == ((), ())
        await agent.aclose()


async def test_a_run_is_taken_up_at_once_when_the_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away for longer than anybody waits for it: the lease could not be given back."""
    monkeypatch.setattr(store_module, "OUTAGE_SECONDS", 0.5)
    with pg_server.running() as server:
        ledger, other = ledgers.open(server.address), ledgers.open(server.address)
        async with ledgers.hold(ledger, "r") as held:
            await ledger.append("r", [started()], fence=held.fence)
            server.stop()
            with pytest.raises(Lost):
                await ledger.append("r", turns(1), fence=held.fence)
        server.start()
        begun = time.monotonic()
        again = await other.lease("r")  # of the same process: it knows that nobody holds it any more
        assert time.monotonic() - begun < 5 * busy()  # and not the 30 s of a lease
        await other.release(again)
        async with ledgers.hold(ledger, "s") as held:
            await ledger.append("s", [started()], fence=held.fence)
            server.stop()
        server.start()
        begun = time.monotonic()
        while (await other.run("s")).owner is not None:  # type: ignore[union-attr] - what another process asks
            assert time.monotonic() - begun < 5 * busy()
            await asyncio.sleep(0.1)
        for store in (ledger, other):
            await store.aclose()


async def test_a_forked_child_leaves_the_connections_of_its_parent_alone(where: str) -> None:
    ledger = Store(where)
    await ledger.append("r", turns(1))
    pid = os.fork()
    if pid == 0:
        try:
            ledger._close()
            ledger.__del__()
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    pool = ledger._connections()
    assert all(kept.connection.execute("SELECT 1").fetchall() == [(1,)] for kept in pool._free)
    await ledger.append("r", turns(1))
    await ledger.aclose()
