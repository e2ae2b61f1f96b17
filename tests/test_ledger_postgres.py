"""The PostgreSQL ledger when its server goes away, and several machines on one schema."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any

import pytest

import pg_server
from callgate import ledger as ledgers
from callgate.errors import ConfigError, LedgerError
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


def cut_connections(where: str) -> None:
    import psycopg

    with psycopg.connect(where.split("&callgate_schema", maxsplit=1)[0], autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'callgate' AND pid <> pg_backend_pid()"
        )


async def test_a_lost_connection_is_an_error_and_the_next_append_goes_on(where: str) -> None:
    ledger = ledgers.open(where)
    await ledger.append("r", turns(2))
    cut_connections(where)
    with pytest.raises(LedgerError, match="server is not there"):
        await ledger.append("r", turns(1))
    await ledger.append("r", turns(3))
    assert len(await ledger.read("r")) == 5
    assert (await ledger.verify()).problems == ()
    await ledger.aclose()


async def test_a_connection_that_the_server_closed_while_it_was_idle_is_made_anew(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("callgate.ledger.postgres.IDLE_SECONDS", 0.0)
    ledger = ledgers.open(where)
    await ledger.append("r", turns(2))
    assert len(await ledger.read("r")) == 2
    cut_connections(where)
    await ledger.append("r", turns(1))
    assert len(await ledger.read("r")) == 3
    await ledger.aclose()


async def test_of_a_group_whose_connection_was_lost_nothing_is_done_over(where: str) -> None:
    ledger = Store(where)
    await ledger.append("r", turns(1))
    whole = ledger._writer._transact
    committed: list[int] = []

    def commits_and_loses(group: Any) -> None:
        whole(group)
        committed.append(len(group))
        ledger._writer._transact = whole
        cut_connections(where)
        with ledger._errors():
            assert ledger._writing is not None
            ledger._writing.execute("SELECT 1")

    ledger._writer._transact = commits_and_loses
    results = await asyncio.gather(*(ledger.append(f"q{n}", turns(1)) for n in range(10)), return_exceptions=True)
    lost = [r for r in results if isinstance(r, LedgerError)]
    assert len(lost) == committed[0]
    for n in range(10):
        assert len(await ledger.read(f"q{n}")) == 1, "done once, though nobody could know"
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
