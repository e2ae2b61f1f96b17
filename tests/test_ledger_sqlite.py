"""The SQLite ledger in trouble: full disks, foreign files, torn pages, other processes."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from callgate import ledger as ledgers
from callgate.errors import LedgerError
from callgate.ledger import intent, sqlite
from callgate.ledger._tables import VERSIONS
from callgate.ledger.sqlite import APPLICATION_ID, Store
from callgate.types import Entry, ToolCall

pytestmark = pytest.mark.anyio

PAY = ToolCall("c1", "pay", {"cents": 5})


def turns(count: int, text: str = "") -> list[Entry]:
    return [Entry("turn", {"n": n, "text": text}) for n in range(count)]


async def test_a_folder_is_refused_and_nothing_is_made_beside_it(tmp_path: Path) -> None:
    place = tmp_path / "state"
    place.mkdir()
    with pytest.raises(LedgerError, match="this is a folder; name a file in it"):
        await ledgers.open(f"sqlite:{place}").append("r", turns(1))
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    assert list(place.iterdir()) == []


async def test_the_file_is_private_and_its_folder_is_made(tmp_path: Path) -> None:
    path = tmp_path / "state" / "deep" / "runs.db"
    ledger = ledgers.open(f"sqlite:{path}")
    await ledger.append("r", turns(1))
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0
    await ledger.aclose()


async def test_a_file_of_another_program_is_never_touched(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    ledger = ledgers.open(f"sqlite:{path}")
    with pytest.raises(LedgerError, match="another program"):
        await ledger.append("r", turns(1))
    with pytest.raises(LedgerError, match="another program"):
        await ledger.runs()
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("just notes, " * 1000)
    with pytest.raises(LedgerError, match="no SQLite database"):
        await ledgers.open(f"sqlite:{path}").append("r", turns(1))
    assert path.read_text() == "just notes, " * 1000


async def test_a_ledger_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    await ledger.append("r", turns(1))
    await ledger.aclose()
    connection = sqlite3.connect(tmp_path / "runs.db")
    ((version,),) = connection.execute("PRAGMA user_version")
    ((owner,),) = connection.execute("PRAGMA application_id")
    assert (version, owner) == (len(VERSIONS), APPLICATION_ID)
    connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.close()
    for attempt in (lambda store: store.append("r", turns(1)), lambda store: store.read("r")):
        with pytest.raises(LedgerError, match="newer callgate"):
            await attempt(ledgers.open(f"sqlite:{tmp_path}/runs.db"))


def _garbage(path: Path) -> None:
    path.write_text("just notes, " * 1000)


def _foreign(path: Path) -> None:
    _script(path, "CREATE TABLE theirs (x)")


def _newer(path: Path) -> None:
    _script(path, f"CREATE TABLE t (x); PRAGMA user_version = 999; PRAGMA application_id = {APPLICATION_ID}")


def _script(path: Path, script: str) -> None:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()


def _open_files() -> set[str]:
    found = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
@pytest.mark.parametrize("write", [_garbage, _foreign, _newer])
@pytest.mark.parametrize("method", ["append", "read", "runs", "verify"])
async def test_a_file_that_was_refused_is_not_kept_open(tmp_path: Path, write: Any, method: str) -> None:
    path = tmp_path / "runs.db"
    write(path)
    store = ledgers.open(f"sqlite:{path}")
    call = {"append": lambda: store.append("r", turns(1)), "read": lambda: store.read("r")}
    with pytest.raises(LedgerError) as caught:
        await call.get(method, getattr(store, method))()
    # the traceback is still alive, and with it every local of the frames that raised
    assert caught.value.__traceback__ is not None
    assert str(path) not in _open_files()


@pytest.mark.parametrize("path", ["/dev/null/runs.db", "/proc/no-such/runs.db", "."])
async def test_a_path_that_cannot_be_is_an_error_of_ours(path: str) -> None:
    with pytest.raises(LedgerError, match=r"check the path|choose another|is a folder"):
        await ledgers.open(f"sqlite:{path}").append("r", turns(1))


async def test_a_full_disk_loses_nothing_that_was_written(tmp_path: Path) -> None:
    ledger = Store(f"{tmp_path}/runs.db")
    await ledger.append("r", turns(3))
    size = (tmp_path / "runs.db").stat().st_size + (tmp_path / "runs.db-wal").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20_000, limits[1]))  # no file may grow beyond: a full disk
    try:
        with pytest.raises(LedgerError, match="disk"):
            await ledger.append("r", turns(3, "x" * 100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [e.data["n"] for e in await ledger.read("r")] == [0, 1, 2]
    await ledger.append("r", turns(2))  # when there is space again, it goes on
    assert len(await Store(f"{tmp_path}/runs.db").read("r")) == 5
    assert (await ledger.verify()).problems == ()


async def test_a_database_that_says_full_is_a_full_disk(tmp_path: Path) -> None:
    ledger = Store(f"{tmp_path}/runs.db")
    await ledger.append("r", turns(1))
    assert ledger._writing is not None
    ledger._writing.execute("PRAGMA max_page_count = 1")
    with pytest.raises(LedgerError, match="the disk is full"):
        await ledger.append("r", turns(50, "x" * 2000))
    ledger._writing.execute("PRAGMA max_page_count = 1000000")
    await ledger.append("r", turns(1))
    assert len(await ledger.read("r")) == 2


async def test_a_ledger_that_may_only_be_read_says_so(tmp_path: Path) -> None:
    ledger = Store(f"{tmp_path}/runs.db")
    await ledger.append("r", turns(2))
    assert ledger._writing is not None
    ledger._writing.execute("PRAGMA query_only = ON")
    with pytest.raises(LedgerError, match="may only be read"):
        await ledger.append("r", turns(1))
    assert len(await ledger.read("r")) == 2


async def test_a_torn_last_page_of_the_log_costs_only_what_was_torn(tmp_path: Path) -> None:
    code = (
        "import asyncio, os, signal, sys\n"
        "from callgate import ledger\n"
        "from callgate.types import Entry\n"
        "async def main():\n"
        "    store = ledger.open('sqlite:' + sys.argv[1])\n"
        "    for n in range(20):\n"
        "        await store.append('r', [Entry('turn', {'n': n, 'text': 'x' * 3000})])\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(main())\n"
    )
    path = tmp_path / "runs.db"
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=15)
    log = tmp_path / "runs.db-wal"
    whole = log.read_bytes()
    for torn in (1, 100, 4096, 6000, 20_000):
        copy = tmp_path / f"torn-{torn}" / "runs.db"
        copy.parent.mkdir()
        copy.write_bytes(path.read_bytes())
        (copy.parent / "runs.db-wal").write_bytes(whole[: len(whole) - torn] + os.urandom(torn // 2))
        ledger = ledgers.open(f"sqlite:{copy}")
        kept = [e.data["n"] for e in await ledger.read("r")]
        assert kept == list(range(len(kept)))
        assert len(kept) >= 20 - 1 - torn // 3000
        assert (await ledger.verify()).problems == ()
        await ledger.append("r", turns(1))
        await ledger.aclose()


async def test_what_was_altered_behind_our_back_is_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    ledger = ledgers.open(f"sqlite:{path}")
    await ledger.append("r", [Entry("run_started", {"model": "m", "principal": None}), *turns(4)])
    await ledger.aclose()

    async def after(statement: str) -> tuple[str, ...]:
        copy = tmp_path / f"copy-{abs(hash(statement))}.db"
        copy.write_bytes(path.read_bytes())
        connection = sqlite3.connect(copy)
        connection.execute(statement)
        connection.commit()
        connection.close()
        store = ledgers.open(f"sqlite:{copy}")
        problems = (await store.verify()).problems
        await store.aclose()
        return problems

    assert await after("SELECT 1") == ()
    assert "altered" in (await after("UPDATE entries SET data = '{\"n\": 7}' WHERE seq = 3"))[0]
    assert "altered" in (await after("UPDATE entries SET at = at + 1 WHERE seq = 5"))[0]
    assert "number 3 is missing" in (await after("DELETE FROM entries WHERE seq = 3"))[0]
    assert "5 entries were written, 4 are there" in (await after("DELETE FROM entries WHERE seq = 5"))[0]
    assert "the run is missing" in (await after("DELETE FROM runs"))[0]
    assert "altered" in (await after("UPDATE entries SET data = 'rubbish' WHERE seq = 5"))[0]


async def test_a_damaged_file_is_reported_and_nothing_crashes(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    ledger = ledgers.open(f"sqlite:{path}")
    await ledger.append("r", turns(200, "x" * 500))
    await ledger.aclose()
    data = bytearray(path.read_bytes())
    data[8192:] = os.urandom(len(data) - 8192)
    path.write_bytes(data)
    store = ledgers.open(f"sqlite:{path}")
    try:
        found = " ".join((await store.verify()).problems)
    except LedgerError as error:
        found = str(error)
    assert "damaged" in found
    await store.aclose()


async def test_several_processes_write_one_file(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys\n"
        "from callgate import ledger\n"
        "from callgate.types import Entry\n"
        "async def main(me):\n"
        "    store = ledger.open('sqlite:' + sys.argv[1])\n"
        "    for n in range(40):\n"
        "        await store.append(f'run-{me}-{n % 4}', [Entry('turn', {'n': n})], durable=n % 8 == 0)\n"
        "        await store.append('shared', [Entry('turn', {'by': me, 'n': n})], durable=False)\n"
        "    await store.aclose()\n"
        "asyncio.run(main(sys.argv[2]))\n"
    )
    path = f"{tmp_path}/runs.db"
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", code, path, str(n), stderr=asyncio.subprocess.PIPE)
        for n in range(4)
    ]
    outputs = [await child.communicate() for child in children]
    assert [child.returncode for child in children] == [0] * 4, outputs
    ledger = ledgers.open(f"sqlite:{path}")
    report = await ledger.verify()
    assert (report.problems, report.entries) == ((), 320)
    shared = await ledger.read("shared")
    for me in "0123":
        assert [e.data["n"] for e in shared if e.data["by"] == me] == list(range(40))
    await ledger.aclose()


async def test_a_forked_child_does_not_use_the_connection_of_its_parent(tmp_path: Path) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    await ledger.append("r", turns(1))
    ledger._pid += 1  # type: ignore[attr-defined] - as it looks after a fork
    with pytest.raises(LedgerError, match="forked"):
        await ledger.append("r", turns(1))
    with pytest.raises(LedgerError, match="forked"):
        await ledger.read("r")


async def test_the_log_is_moved_into_the_file_once_it_is_long(tmp_path: Path) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    for _ in range(12):
        await ledger.append("r", turns(10, "x" * 100_000), durable=False)
    assert (tmp_path / "runs.db").stat().st_size > 4_000_000
    assert (tmp_path / "runs.db-wal").stat().st_size < 9_000_000
    await ledger.prune(older_than=-10)
    assert (tmp_path / "runs.db").stat().st_size < 200_000
    await ledger.aclose()


async def test_group_commit_writes_what_waits_in_one_transaction(tmp_path: Path) -> None:
    ledger = Store(f"{tmp_path}/runs.db")
    await ledger.append("r", turns(1))
    groups: list[int] = []
    whole = ledger._writer._transact

    def counted(group: Any) -> None:
        groups.append(len(group))
        whole(group)

    ledger._writer._transact = counted
    await asyncio.gather(*(ledger.append(f"r{n}", [intent(f"r{n}", PAY, None)]) for n in range(200)))
    assert sum(groups) == 200
    assert len(groups) < 20
    await ledger.aclose()


@pytest.mark.parametrize("how", ["removed", "replaced"])
async def test_a_file_that_is_taken_away_is_noticed_before_anything_is_lost(tmp_path: Path, how: str) -> None:
    path = tmp_path / "runs.db"
    ledger = ledgers.open(f"sqlite:{path}")
    await ledger.append("r", turns(1))
    path.unlink()
    if how == "replaced":
        other = ledgers.open(f"sqlite:{tmp_path}/other.db")
        await other.append("r", turns(1))
        await other.aclose()
        (tmp_path / "other.db").rename(path)
    with pytest.raises(LedgerError, match="removed or replaced"):
        await ledger.append("r", turns(1))


async def test_identical_writes_of_many_other_runs_cost_nothing(tmp_path: Path) -> None:
    ledger = ledgers.open(f"sqlite:{tmp_path}/runs.db")
    result = {"type": "tool_result", "call_id": "c1", "status": "ok", "content": "done"}
    done = Entry("call_result", {"call_id": "c1", "result": result})
    await asyncio.gather(*(ledger.append(f"r{n}", [intent(f"r{n}", PAY, None), done]) for n in range(500)))
    asked: list[int] = []
    reading = ledger._reading  # type: ignore[attr-defined]

    def counted(work: Any) -> Any:
        def through(ask: Any) -> Any:
            def one(sql: str, params: Any) -> Any:
                rows = ask(sql, params)
                asked.append(len(rows))
                return rows

            return work(one)

        return reading(through)

    ledger._reading = counted  # type: ignore[attr-defined]
    wanted = {"principal": None, "tool": "pay", "arguments_hash": ledgers.arguments_hash("pay", PAY.arguments, key=b"")}
    assert await ledger.find_write(**wanted, run_id="new") is None
    assert await ledger.find_write(**wanted, run_id="r7") is not None
    assert sum(asked) == 1
    await ledger.aclose()


@pytest.mark.parametrize("at", range(4))
def test_a_file_that_another_process_makes_in_this_moment_is_ours(tmp_path: Path, at: int) -> None:
    """Between any two of the questions by which a file is told, its tables may appear."""
    path = tmp_path / "runs.db"

    class Interrupted(sqlite3.Connection):
        asked = 0

        def execute(self, sql: str, *more: Any) -> sqlite3.Cursor:
            if self.asked == at:
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    sqlite._prepare(other, path)
            self.asked += 1
            return super().execute(sql, *more)

    with closing(sqlite3.connect(path, isolation_level=None, factory=Interrupted)) as connection:
        sqlite._version(connection, path)
        assert sqlite._version(connection, path) == (len(VERSIONS) if connection.asked > at else 0)
