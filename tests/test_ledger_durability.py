"""What a power cut, a second process or a large result may not change, seen on the connection and on the lock."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import pg_server
from callgate import ledger as ledgers
from callgate.errors import LedgerError, RunBusy
from callgate.events import dump_event
from callgate.ledger import Lease, _leases, _lines, _owners, memory
from callgate.ledger import postgres as postgres_store
from callgate.ledger import sqlite as sqlite_store
from callgate.ledger.sqlite import Store
from callgate.types import Entry, ToolResult
from ledger_stores import Opener, ended, open_store, postgres, started

__all__ = ["open_store", "postgres"]
pytestmark = pytest.mark.anyio


def turns(count: int, text: str = "") -> list[Entry]:
    return [Entry("turn", {"n": n, "text": text}) for n in range(count)]


# --- power cuts ---------------------------------------------------------------------------------------------------

NORMAL, FULL = 1, 2


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """`PRAGMA synchronous` as it is on the connection at each COMMIT."""
    seen: list[int] = []

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *params: Any) -> sqlite3.Cursor:
            if sql == "COMMIT":
                seen.append(super().execute("PRAGMA synchronous").fetchone()[0])
            return super().execute(sql, *params)

    monkeypatch.setattr(sqlite_store.sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    return seen


async def test_durable_entries_are_synced_at_their_commit_and_others_are_not(
    tmp_path: Path, commits: list[int]
) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    await ledger.append("r", turns(1))
    commits.clear()
    for durable in (True, False, False, True, True, False, True):
        await ledger.append("r", turns(1), durable=durable)
        assert commits.pop() == (FULL if durable else NORMAL)
        assert commits == []
    assert ledger._writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)  # type: ignore[attr-defined]
    await ledger.aclose()


async def test_one_durable_entry_makes_its_whole_group_durable(tmp_path: Path, commits: list[int]) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    await ledger.append("r", turns(1), durable=False)
    commits.clear()
    await asyncio.gather(*(ledger.append(f"r{n}", turns(1), durable=n == 17) for n in range(40)))
    assert FULL in commits
    await ledger.prune(older_than=-10)
    assert commits[-1] == FULL
    await ledger.aclose()


@pytest.mark.skipif(pg_server.why_not() is not None, reason=str(pg_server.why_not()))
async def test_durable_transactions_of_postgres_wait_for_the_disk() -> None:
    with pg_server.running() as server:
        ledger = postgres_store.Store(server.address)
        for durable in (True, False, True):
            found = await ledger._write(lambda ask: ask("SHOW synchronous_commit", ()), durable=durable)
            assert found == [("on" if durable else "off",)]
        await ledger.aclose()


# --- the lock of the file -----------------------------------------------------------------------------------------


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[int]:
    """The lock file of the ledger, opened as another process would."""
    opened = os.open(tmp_path / "runs.db-lock", os.O_RDWR | os.O_CREAT, 0o600)
    yield opened
    os.close(opened)


def is_free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(lock, fcntl.LOCK_UN)
    return True


async def test_whoever_writes_checkpoints_or_closes_holds_the_lock(
    tmp_path: Path, lock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: dict[str, list[bool]] = {}

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, *params: Any) -> sqlite3.Cursor:
            word = sql.split(maxsplit=2)[0 if not sql.startswith("PRAGMA") else 1].partition("(")[0]
            free.setdefault(word, []).append(is_free(lock))
            return super().execute(sql, *params)

        def executescript(self, sql: str) -> sqlite3.Cursor:
            free.setdefault("vacuum", []).append(is_free(lock))
            return super().executescript(sql)

        def close(self) -> None:
            if not self.execute("PRAGMA query_only").fetchone()[0]:
                free.setdefault("close", []).append(is_free(lock))
            super().close()

    monkeypatch.setattr(sqlite_store.sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
    monkeypatch.setattr(sqlite_store, "CHECKPOINT_PAGES", 1)
    ledger = Store(f"{tmp_path}/runs.db")
    await ledger.append("r", turns(3, "x" * 9000))
    await ledger.prune(older_than=-10)
    await ledger.append("r", turns(3))
    await ledger.aclose()
    for word in ("INSERT", "UPDATE", "COMMIT", "wal_checkpoint", "vacuum", "close"):
        assert free[word] == [False] * len(free[word]), word
    assert is_free(lock)


async def test_a_lock_that_another_process_holds_is_waited_for_and_not_for_ever(
    tmp_path: Path, lock: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Store(f"{tmp_path}/runs.db")
    await ledger.append("r", turns(1))
    code = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.flock(f, fcntl.LOCK_EX); print(1, flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, f"{tmp_path}/runs.db-lock"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdout is not None
    other.stdout.readline()
    works = [asyncio.ensure_future(work) for work in (ledger.append("r", turns(1)), ledger.lease("s"))]
    await asyncio.sleep(0.2)
    assert not any(work.done() for work in works)
    assert len(await ledger.read("r")) == 1  # reading waits for nobody
    monkeypatch.setattr(sqlite_store, "BUSY_SECONDS", 0.1)
    late = Store(f"{tmp_path}/runs.db")
    with pytest.raises(LedgerError, match="another process has held it"):
        await late.append("r", turns(1))
    other.communicate("\n")
    await asyncio.gather(*works)
    assert len(await ledger.read("r")) == 2
    for store in (ledger, late):
        await store.aclose()


# --- leases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["memory", "sqlite"])
async def test_a_lease_lasts_exactly_as_long_as_it_was_renewed_for(where: str, tmp_path: Path) -> None:
    now = 1000.0
    make = partial(Store, f"{tmp_path}/runs.db") if where == "sqlite" else memory.Store
    ledger = make(clock=lambda: now)
    elsewhere = "another-machine/1/1/x"
    lease = await ledger.lease("r", owner=elsewhere, seconds=10)
    await ledger.append("r", [started()], fence=lease.fence)
    assert lease.until == 1010.0
    for moment, held in ((1009.9, True), (1010.0, False)):
        now = moment
        assert ((await ledger.run("r")).owner is not None) == held  # type: ignore[union-attr]
    now = 1005.0
    with pytest.raises(RunBusy, match="another-machine"):
        await ledger.lease("r")
    lease, cancelled = await ledger.renew(lease, seconds=20)
    assert (lease.until, cancelled) == (1025.0, False)
    assert await ledger.cancel("r")
    assert (await ledger.renew(lease, seconds=20))[1]
    now = 1025.1
    assert not await ledger.cancel("r")
    again = await ledger.lease("r", seconds=10)
    assert again.fence == lease.fence + 1
    assert not (await ledger.renew(again, seconds=10))[1], "a wish to cancel was meant for the one before"
    for act in (ledger.renew(lease), ledger.append("r", turns(1), fence=lease.fence)):
        with pytest.raises(RunBusy):
            await act
    await ledger.release(lease)
    with pytest.raises(RunBusy):
        await ledger.lease("r")
    await ledger.release(again)
    await ledger.lease("r")
    await ledger.aclose()


async def test_a_process_with_the_number_of_a_dead_one_is_not_taken_for_it() -> None:
    place, *_ = _owners.me().split("/")
    alive = os.getppid()
    ledger = memory.Store()
    await ledger.lease("r", owner=f"{place}/{alive}/{_owners._start(alive)}/x", seconds=60)
    with pytest.raises(RunBusy):
        await ledger.lease("r")
    await ledger.lease("s", owner=f"{place}/{alive}/1/x", seconds=60)  # began at another time: the number came round
    await ledger.lease("s")


def test_a_lease_is_renewed_often_enough_that_two_renewals_may_fail() -> None:
    for seconds in (0.4, 4.0, 30.0, 600.0):
        keeper = _leases.LeaseKeeper(None, None, seconds)  # type: ignore[arg-type]
        assert keeper._pause <= 2.0
        assert keeper._pause * 3 < seconds


class Leases:
    """A ledger's leases; renewing and releasing take until they are let go on, or fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.released: list[Lease] = []
        self.renewing = asyncio.Event()
        self.go_on = asyncio.Event()
        self.error = error

    async def renew(self, lease: Lease, *, seconds: float) -> tuple[Lease, bool]:
        self.renewing.set()
        if self.error is not None:
            raise self.error
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            await self.go_on.wait()  # a store that does not break off what it has begun
            raise
        return lease, False

    async def release(self, lease: Lease) -> None:
        self.released.append(lease)


async def test_a_cancel_that_comes_while_a_lease_is_given_back_is_not_lost() -> None:
    """The renewal ends with the very same exception: which of the two it was must not be guessed."""
    leases, lease = Leases(), Lease("r", "me", 1, 0.0)
    keeper = _leases.LeaseKeeper(leases, lease, 0.004)
    keeper.start()
    await leases.renewing.wait()
    stopping = asyncio.ensure_future(keeper.stop())
    await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert leases.released == [lease]
    leases.go_on.set()
    await asyncio.sleep(0)


async def test_a_lease_is_given_back_although_its_renewal_failed() -> None:
    leases, lease = Leases(ValueError("no such column")), Lease("r", "me", 1, 0.0)
    keeper = _leases.LeaseKeeper(leases, lease, 0.004)
    keeper.start()
    await leases.renewing.wait()
    with pytest.raises(ValueError, match="column"):
        await keeper.stop()
    assert leases.released == [lease]


# --- large results ------------------------------------------------------------------------------------------------


async def test_a_result_too_large_to_be_kept_is_cut_and_anything_else_refused(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (_lines, memory):
        monkeypatch.setattr(module, "MAX_ENTRY", 5000)
    ledger = open_store()
    await ledger.append("r", [started(), ended("c1", content="y" * 400, value=["x" * 10_000])])
    await ledger.append("r", [ended("c2", content="z" * 10_000)])
    kept = await ledger.result("r", "c1")
    assert kept is not None
    assert kept.content == "y" * 400
    assert "too large" in kept.value
    assert str(len("x") * 10_000)[:2] in kept.value
    cut = await ledger.result("r", "c2")
    assert cut is not None
    assert cut.content == "z" * 500
    exact = await ledger.append("r", [ended("c3", value="v" * 2000)])
    assert exact[0].data["result"]["value"] == "v" * 2000
    assert (await ledger.result("r", "c3")).value == "v" * 2000  # type: ignore[union-attr]
    with pytest.raises(LedgerError, match="MAX_ENTRY"):
        await ledger.append("r", turns(1, "x" * 6000))
    late = {"call_id": "c1", "result": dump_event(ToolResult("c1", "ok", "x" * 6000)), "by": "late"}
    with pytest.raises(LedgerError, match="nothing to settle"):
        await ledger.append("r", [Entry("call_settled", late)])
    assert all(len(repr(e.data)) < 5500 for e in await ledger.read("r"))
    assert (await ledger.verify()).problems == ()
