"""Kill campaigns with what makes recovery hard: arguments that the ledger masks, approvals that are open, a database
whose connections are cut and that restarts. No write happens twice, none is lost, none is `ok` without its effect, and
a run goes on within five seconds of the ledger's return.

CALLGATE_CRASHES says how many runs there are (40 by default: a fourth of them here); CALLGATE_SEED repeats them.
"""

from __future__ import annotations

import base64
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crash_bank
import pg_server
from callgate.ledger._sealing import KEY_VARIABLE
from patience import busy, until
from test_crash import POINTS, RANDOM, SEED, Nursery, check, fresh, place, transfers

__all__ = ["place"]

RUNS = max(2, RANDOM // 10)
SECONDS = 15.0 if RANDOM <= 40 else 36_000.0
"""A campaign that has used up its time on a slow machine stops there, and says so."""
RESUMABLE_SECONDS = 5.0

needs_postgres = pytest.mark.skipif(pg_server.why_not() is not None, reason=str(pg_server.why_not()))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    os.environ[KEY_VARIABLE] = base64.b64encode(b"0123456789abcdef" * 2).decode()
    made = Nursery()
    yield made
    made.close()
    del os.environ[KEY_VARIABLE]


@pytest.fixture(scope="module")
def server() -> Iterator[pg_server.Server]:
    with pg_server.running() as made:
        yield made


def deaths_of(chance: random.Random) -> list[tuple[str, int]]:
    points = [chance.choice((*POINTS, "moment")) for _ in range(chance.randint(1, 3))]
    return [(p, chance.randint(1, 150) if p == "moment" else chance.randint(1, 12)) for p in points]


def campaign(nursery: Nursery, place: Path, seed: str, where: Any = None) -> int:
    """Runs that die again and again; how many."""
    chance = random.Random(f"{SEED} {seed}")
    begun = time.monotonic()
    for number in range(RUNS):
        if time.monotonic() - begun > SECONDS:
            return number
        lookup, confirm = chance.random() < 0.7, chance.random() < 0.5
        folder = fresh(place / str(number))
        order: dict[str, Any] = {"folder": str(folder), "lookup": lookup, "masked": True, "confirm": confirm}
        if where is not None:
            order["where"] = where(number)
        deaths = deaths_of(chance)
        name = f"{seed} {number}: {deaths}, lookup {lookup}, confirm {confirm}, seed {SEED}"
        for die in deaths:
            nursery.live({**order, "die": die})
        ((status, told),) = nursery.live(order)
        assert status == 0, f"{name}: {status} {told}"
        assert told is not None
        check(folder, told, lookup=lookup, name=name, where=order.get("where"))
        shutil.rmtree(folder)
    return RUNS


def test_masked_arguments_and_open_approvals_survive_kills(nursery: Nursery, place: Path) -> None:
    assert campaign(nursery, place, "sqlite") > 0


@needs_postgres
def test_masked_arguments_and_open_approvals_survive_kills_on_postgres(
    nursery: Nursery, place: Path, server: pg_server.Server
) -> None:
    assert campaign(nursery, place, "postgres", lambda n: f"{server.address}&callgate_schema=killed_{n}") > 0


@needs_postgres
def test_cut_connections_and_restarts_cost_no_write(nursery: Nursery, place: Path) -> None:
    chance = random.Random(f"{SEED} trouble")
    begun = time.monotonic()
    done = 0
    with pg_server.running() as server:
        for number in range(RUNS):
            if time.monotonic() - begun > SECONDS:
                break
            folder = fresh(place / str(number))
            where = f"{server.address}&callgate_schema=trouble_{number}"
            lookup = chance.random() < 0.7
            order = {"folder": str(folder), "lookup": lookup, "masked": True, "where": where, "slow": 0.15,
                     "confirm": chance.random() < 0.4}  # fmt: skip
            back = through_trouble(server, nursery, order, chance)
            for _ in range(20):
                ((status, told),) = nursery.live(order)
                assert status == 0, told
                if told is not None and told["reason"] == "answered":
                    break
                assert time.monotonic() - back < (RESUMABLE_SECONDS + 10) * busy(), f"seed {SEED}: {told}"
            assert told is not None
            check(folder, told, lookup=lookup, name=f"trouble {number}, seed {SEED}", where=where)
            done += 1
    print(f"{done} runs")
    assert done > 0


def through_trouble(server: pg_server.Server, nursery: Nursery, order: dict[str, Any], chance: random.Random) -> float:
    """One life, perhaps killed, while the server fails; when the server was there again."""
    die = chance.choice([None, ("moment", chance.randint(100, 900)), ("tool.inside", chance.randint(1, 4))])
    life = threading.Thread(target=nursery.live, args=({**order, "die": die},))
    life.start()
    back = time.monotonic()
    for _ in range(chance.randint(1, 3)):
        time.sleep(chance.uniform(0.1, 0.5))
        if chance.random() < 0.6:
            server.cut_connections()
        else:
            server.stop(chance.choice(("immediate", "fast")))
            time.sleep(chance.uniform(0.0, 0.6))
            server.start()
        back = time.monotonic()
    life.join(60)
    assert not life.is_alive()
    return back


@needs_postgres
def test_a_run_goes_on_within_five_seconds_of_the_servers_return(nursery: Nursery, place: Path) -> None:
    with pg_server.running() as server:
        folder = fresh(place / "bank")
        where = f"{server.address}&callgate_schema=back"
        order = {"folder": str(folder), "lookup": True, "masked": True, "where": where, "slow": 0.3}
        life = threading.Thread(target=nursery.live, args=({**order, "die": ("moment", int(1500 * busy()))},))
        life.start()
        until(lambda: transfers(folder) or not life.is_alive())
        assert transfers(folder), "the life ended before its first transfer"
        server.stop()
        life.join(60)
        server.start()
        begun = time.monotonic()
        ((status, told),) = nursery.live({**order, "slow": 0.0})
        assert (status, told and told["reason"]) == (0, "answered"), told
        assert time.monotonic() - begun < RESUMABLE_SECONDS * busy()
        assert told is not None
        check(folder, told, lookup=True, name="back", where=where)
        assert set(transfers(folder)) == set(crash_bank.PAYMENTS)
