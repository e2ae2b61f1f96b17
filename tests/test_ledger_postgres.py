"""The PostgreSQL ledger when its server goes away, and several machines on one schema."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import pg_server
from callgate import ledger as ledgers
from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.ledger._writer import Lost
from callgate.ledger.postgres import Store
from callgate.types import Entry

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(pg_server.why_not() is not None, reason=str(pg_server.why_not())),
]
_number = itertools.count()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with pg_server.server() as address:
        yield address


@pytest.fixture
def where(server: str) -> str:
    return f"{server}&callgate_schema=machines_{next(_number)}"


def turns(count: int) -> list[Entry]:
    return [Entry("turn", {"n": n}) for n in range(count)]


def connection_sql(where: str, statement: str) -> None:
    import psycopg

    address, _, schema = where.partition("&callgate_schema=")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(statement.format(schema=schema).encode())


def cut_connections(where: str) -> None:
    import psycopg

    with psycopg.connect(where.split("&callgate_schema", maxsplit=1)[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'callgate' AND pid <> pg_backend_pid()"
        )


async def test_a_lost_connection_costs_nothing(where: str) -> None:
    """(Before, the append raised; now it is done again, once, within a bounded time.)"""
    ledger = ledgers.open(where)
    await ledger.append("r", turns(2))
    cut_connections(where)
    await ledger.append("r", turns(1))
    cut_connections(where)
    assert len(await ledger.read("r")) == 3
    assert (await ledger.verify()).problems == ()
    await ledger.aclose()


@pytest.mark.parametrize("idle", [0.0, 60.0])
async def test_a_connection_that_the_server_closed_while_it_was_idle_is_made_anew(
    where: str, monkeypatch: pytest.MonkeyPatch, idle: float
) -> None:
    """Each connection by itself: reading does not keep the one that writes from being tried (and the other way)."""
    monkeypatch.setattr("callgate.ledger._pool.IDLE_SECONDS", idle)
    ledger = ledgers.open(where)
    for n in range(1, 4):
        await asyncio.gather(*(ledger.append("r", turns(1)), ledger.read("r"), ledger.runs()))
        cut_connections(where)
        assert len(await ledger.read("r")) == n
    await ledger.aclose()


async def test_of_a_group_whose_connection_was_lost_everything_is_done_once(where: str) -> None:
    """Also if the server committed and could not say so: an append done again finds its own entries."""
    ledger = Store(where)
    await ledger.append("r", turns(1))
    once = ledger._transact_once
    committed: list[int] = []

    def commits_and_loses(group: Any) -> None:
        once(group)
        committed.append(len(group))
        if len(committed) < 4:
            raise Lost("the answer to COMMIT was lost")

    ledger._transact_once = commits_and_loses  # type: ignore[method-assign]
    lease = await ledger.lease("q0")
    results = await asyncio.gather(*(ledger.append(f"q{n}", turns(2)) for n in range(10)))
    assert sum(committed) > 11
    again, _ = await ledger.renew(lease)
    assert again.fence == lease.fence
    await ledger.release(lease)
    for n in range(10):
        assert [e.seq for e in results[n]] == [1, 2]
        assert await ledger.read(f"q{n}") == results[n], "done once, though nobody could know"
    assert (await ledger.verify()).problems == ()
    await ledger.aclose()


async def test_an_append_that_was_committed_unseen_is_told_so_after_a_takeover(where: str) -> None:
    ledger = Store(where)
    lease = await ledger.lease("r")
    once = ledger._transact_once

    def loses_the_run(group: Any) -> None:
        once(group)
        ledger._transact_once = once  # type: ignore[method-assign]
        connection_sql(where, "UPDATE {schema}.runs SET fence = fence + 1, owner = 'somebody else'")
        raise Lost("the answer to COMMIT was lost")

    ledger._transact_once = loses_the_run  # type: ignore[method-assign]
    assert len(await ledger.append("r", turns(1), fence=lease.fence)) == 1
    with pytest.raises(RunBusy):
        await ledger.append("r", turns(1), fence=lease.fence)
    assert len(await ledger.read("r")) == 1
    await ledger.aclose()


async def test_many_machines_make_the_schema_and_write_one_run(where: str) -> None:
    stores = [ledgers.open(where) for _ in range(6)]
    await asyncio.gather(*(store.append("shared", turns(5)) for store in stores for _ in range(4)))
    entries = await stores[0].read("shared")
    assert [e.seq for e in entries] == list(range(1, 121))
    assert (await stores[1].verify()).problems == ()
    for store in stores:
        await store.aclose()


async def test_a_server_that_is_not_there_is_an_error_of_ours() -> None:
    ledger = ledgers.open("postgresql://nobody:secret@127.0.0.1:1/none")
    with pytest.raises(LedgerError, match="not there") as caught:
        await ledger.append("r", turns(1))
    assert "secret" not in str(caught.value)
    assert "secret" not in ledger.where


async def test_a_schema_of_a_newer_version_is_refused(where: str) -> None:
    import psycopg

    ledger = ledgers.open(where)
    await ledger.append("r", turns(1))
    await ledger.aclose()
    schema = where.rpartition("=")[2]
    with psycopg.connect(where.split("&callgate_schema", maxsplit=1)[0], autocommit=True) as connection:
        connection.execute(f"INSERT INTO {schema}.version VALUES (99)".encode())
    ledger = ledgers.open(where)
    with pytest.raises(LedgerError, match="newer callgate"):
        await ledger.append("r", turns(1))
    await ledger.aclose()


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(ConfigError, match=r"callgate\[postgres\]"):
        ledgers.open("postgresql://x@y/z")
