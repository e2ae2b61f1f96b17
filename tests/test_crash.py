"""A run that is killed anywhere is taken up again: the money is right, nothing is paid twice, nothing is lost.

Real processes, SIGKILL, a real bank. Every point of a whole run is tried (each append: before, inside its transaction
and after; each transfer: before, inside and after), and further lives are killed at random points and moments.
CALLGATE_CRASHES says how many random ones there are (40 by default); CALLGATE_SEED repeats a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crash_bank
from callgate import ledger as ledgers
from callgate.ledger import writes_of

HERE = Path(__file__).parent
POINTS = ("append.before", "append.after", "transaction", "tool.before", "tool.inside", "tool.after")
SHARDS = 6
RANDOM = int(os.environ.get("CALLGATE_CRASHES", "40"))
SEED = int(os.environ.get("CALLGATE_SEED", str(random.SystemRandom().randrange(10**6))))
SHARD_SECONDS = 17.0
"""A shard that has used up its time on a slow machine stops there, and says so."""


class Nursery:
    """The process that forks the processes that are killed."""

    def __init__(self) -> None:
        self.child = subprocess.Popen(
            [sys.executable, str(HERE / "crash_bank.py")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def live(self, *orders: dict[str, Any]) -> list[tuple[int, dict[str, Any] | None]]:
        """(wait status, what it told before it ended) for each order; they run at the same time."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(json.dumps(orders) + "\n")
        self.child.stdin.flush()
        out = []
        for order, (pid, status) in zip(orders, json.loads(self.child.stdout.readline()), strict=True):
            told = Path(order["folder"]) / f"told-{pid}.json"
            out.append((status, json.loads(told.read_text()) if told.exists() else None))
        return out

    def close(self) -> None:
        """Ends it."""
        self.child.communicate(timeout=10)


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    made = Nursery()
    yield made
    made.close()


@pytest.fixture(scope="module")
def passings(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """How often a whole, undisturbed run passes each point."""
    folder = fresh(tmp_path_factory.mktemp("whole"))
    ((status, told),) = nursery.live({"folder": str(folder), "lookup": True})
    assert (status, told and told["reason"]) == (0, "answered"), told
    assert told is not None
    found: dict[str, int] = told["passed"]
    assert set(found) == set(POINTS)
    return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: a killed process does not lose what the system holds, synced or not."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="callgate-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def fresh(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    crash_bank.make_bank(folder / "bank.db")
    return folder


def transfers(folder: Path) -> list[tuple[str, int]]:
    bank = crash_bank.open_bank(folder / "bank.db")
    found = bank.execute("SELECT receiver, cents FROM transfers ORDER BY number").fetchall()
    accounts = dict(bank.execute("SELECT name, cents FROM accounts").fetchall())
    bank.close()
    got: Counter[str] = Counter()
    for receiver, cents in found:
        got[receiver] += cents
    expected = {"alice": crash_bank.START - sum(c for _, c in found), **{n: got[n] for n in ("bob", "eve", "kim")}}
    assert accounts == expected
    return found


def check(folder: Path, told: dict[str, Any], *, lookup: bool, name: str, where: str | None = None) -> None:
    """The laws, after the last life."""
    faults = folder / "faults"
    assert not faults.exists(), f"{name}: {faults.read_text()}"
    assert told["reason"] == "answered", f"{name}: {told}"
    paid = transfers(folder)
    assert len(paid) == len(set(paid)), f"{name}: paid twice: {paid}"
    ids = [call_id for call_id, *_ in told["calls"]]
    assert len(ids) == len(set(ids)), name
    unknown = [c for c in told["calls"] if c[2] == "unknown_outcome"]
    if lookup:
        assert set(paid) == set(crash_bank.PAYMENTS), f"{name}: lost: {paid}"
        assert not unknown, f"{name}: {unknown}"
    else:
        assert len(set(crash_bank.PAYMENTS) - set(paid)) <= len(unknown), f"{name}: lost: {paid}, {told['calls']}"

    async def journal() -> None:
        ledger = ledgers.open(where or f"sqlite:{folder}/runs.db")
        report = await ledger.verify()
        assert report.problems == (), f"{name}: {report.problems}"
        entries = await ledger.read("r")
        results = Counter(e.data["call_id"] for e in entries if e.kind == "call_result")
        proposed = {e.data["call"]["id"] for e in entries if e.kind == "call_proposed"}
        assert set(results) == proposed, name
        assert set(results.values()) == {1}, name
        assert set(ids) == proposed, name
        assert len(writes_of("r", entries)) == len([e for e in entries if e.kind == "call_intent"]), name
        assert set(await ledger.held("r")) <= {c[0] for c in unknown}, f"{name}: arguments are held for too long"
        await ledger.aclose()

    asyncio.run(journal())


def killed(nursery: Nursery, folder: Path, deaths: list[tuple[str, int]], *, lookup: bool) -> None:
    """Lives that die where they are told, and one that goes on to the end."""
    name = f"killed at {deaths}, {'with' if lookup else 'without'} lookup"
    order: dict[str, Any] = {"folder": str(folder), "lookup": lookup}
    for die in deaths:
        ((status, told),) = nursery.live({**order, "die": die})
        assert os.WIFSIGNALED(status) or (told and told["reason"] == "answered"), f"{name}: {status} {told}"
        assert not os.WIFSIGNALED(status) or os.WTERMSIG(status) == signal.SIGKILL, name
    ((status, told),) = nursery.live(order)
    assert status == 0, f"{name}: {status} {told}"
    assert told is not None
    check(folder, told, lookup=lookup, name=name)
    shutil.rmtree(folder)


@pytest.mark.parametrize("lookup", [True, False], ids=["lookup", "no-lookup"])
@pytest.mark.parametrize("shard", range(SHARDS))
def test_killed_at_every_boundary(
    nursery: Nursery, passings: dict[str, int], place: Path, shard: int, lookup: bool
) -> None:
    everywhere = [(point, number) for point in POINTS for number in range(1, passings[point] + 1)]
    mine = everywhere[shard::SHARDS]
    begun = time.monotonic()
    done = 0
    for death in mine:
        if time.monotonic() - begun > SHARD_SECONDS:
            break
        killed(nursery, fresh(place / str(done)), [death], lookup=lookup)
        done += 1
    print(f"{done} of {len(mine)} kills")
    assert done >= min(len(mine), 3)


@pytest.mark.parametrize("shard", range(2))
def test_killed_again_and_again_at_random(nursery: Nursery, passings: dict[str, int], place: Path, shard: int) -> None:
    print(f"CALLGATE_SEED={SEED}")
    chance = random.Random(f"{SEED} {shard}")
    begun = time.monotonic()
    for number in range(RANDOM // 2):
        if time.monotonic() - begun > SHARD_SECONDS and RANDOM <= 40:
            break
        deaths = []
        for _ in range(chance.randint(2, 4)):
            point = chance.choice((*POINTS, "moment", "moment"))
            deaths.append((point, chance.randint(1, passings.get(point, 150))))
        killed(nursery, fresh(place / str(number)), deaths, lookup=chance.random() < 0.7)


def test_of_two_processes_that_take_up_one_run_exactly_one_wins(nursery: Nursery, place: Path) -> None:
    for number in range(3):
        folder = fresh(place / str(number))
        order: dict[str, Any] = {"folder": str(folder), "lookup": True, "slow": 0.15}
        ((status, _),) = nursery.live({**order, "die": ("tool.inside", 1 + number)})
        assert os.WIFSIGNALED(status)
        lives = nursery.live(order, order, order)
        assert [status for status, _ in lives] == [0, 0, 0], lives
        told = sorted((t for _, t in lives if t), key=lambda t: t["reason"])
        assert [t["reason"] for t in told] == ["answered", "busy", "busy"]
        check(folder, told[0], lookup=True, name="three at once")


def test_a_run_that_lives_cannot_be_taken_up(nursery: Nursery, place: Path) -> None:
    folder = fresh(place / "bank")
    order: dict[str, Any] = {"folder": str(folder), "lookup": True, "slow": 0.2}
    lives = nursery.live(order, order)
    reasons = sorted(t["reason"] for _, t in lives if t)
    assert reasons == ["answered", "busy"]
    check(folder, next(t for _, t in lives if t and t["reason"] == "answered"), lookup=True, name="two starts")


def test_a_run_is_cancelled_from_another_process(place: Path) -> None:
    """A wish to cancel reaches the process that carries the run out, within seconds."""
    folder = fresh(place / "bank")
    order = json.dumps([{"folder": str(folder), "lookup": True, "slow": 1.5}])
    command = [sys.executable, str(HERE / "crash_bank.py")]

    async def cancel() -> bool:
        ledger = ledgers.open(f"sqlite:{folder}/runs.db")
        try:
            return await ledger.cancel("r")
        finally:
            await ledger.aclose()

    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(order + "\n")
            child.stdin.flush()
            for _ in range(200):
                time.sleep(0.05)
                if (folder / "runs.db").exists() and transfers(folder):
                    break
            assert asyncio.run(cancel())
            ((pid, status),) = json.loads(child.stdout.readline())
            child.stdin.close()
        except BaseException:
            child.kill()
            raise
    assert status == 0
    told = json.loads((folder / f"told-{pid}.json").read_text())
    assert told["reason"] == "cancelled", told
    paid = transfers(folder)
    assert 0 < len(paid) < len(crash_bank.PAYMENTS)
    assert {c[2] for c in told["calls"]} <= {"ok", "not_started", "unknown_outcome"}
