"""The ledger in memory: how much it keeps, and that threads may share it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate import ledger as ledgers
from callgate.errors import ConfigError
from callgate.ledger import intent
from callgate.ledger.memory import KEEP_RUNS, Store
from callgate.masking import Masking
from callgate.types import Entry, ToolCall
from ledger_stores import PAY, ended, started

pytestmark = pytest.mark.anyio


def finished(reason: str = "answered") -> Entry:
    return Entry("run_finished", {"reason": reason})


async def test_only_the_last_finished_runs_are_kept() -> None:
    ledger = ledgers.open("memory:5")
    await ledger.append("waits", [started(), finished("waiting")])
    await ledger.append("goes on", [started()])
    await ledger.append("unknown", [started(), intent("unknown", PAY, "u"), ended("c1", "unknown_outcome"), finished()])
    await ledger.append("resumed", [started(), finished()])
    lease = await ledger.lease("held")
    await ledger.append("held", [started(), finished()])
    for n in range(30):
        if n == 3:
            await ledger.append("resumed", [Entry("message", {"message": {}})])
        if n == 20:
            await ledger.release(lease)
        await ledger.append(f"r{n}", [started(), intent(f"r{n}", PAY, "u"), ended("c1"), finished()])
    names = {info.run_id for info in await ledger.runs(limit=1000)}
    assert {"waits", "goes on", "unknown", "resumed"} <= names
    assert {name for name in names if name.startswith("r") and name != "resumed"} <= {f"r{n}" for n in range(24, 30)}
    assert len(names) <= 5 + 4
    assert await ledger.find_write(principal="u", tool="pay", arguments_hash="x", run_id="r0") is None
    assert (await ledger.verify()).problems == ()
    with pytest.raises(ConfigError, match="number"):
        ledgers.open("memory:many")


async def test_an_earlier_write_is_found_without_going_through_the_other_runs() -> None:
    """However many runs are kept: only those with the same write are looked at, and the index forgets with them."""
    ledger = ledgers.open("memory:30")
    for n in range(60):
        await ledger.append(f"r{n}", [started(), intent(f"r{n}", PAY, "u"), ended("c1"), finished()])
    other = ToolCall("c1", "pay", {"amount": 6})
    await ledger.append("one", [started(), intent("one", other, "u")])
    looked: list[str] = []
    asked = ledger._asked  # type: ignore[attr-defined]

    async def counted(run_id: str) -> Any:
        looked.append(run_id)
        return await asked(run_id)

    ledger._asked = counted  # type: ignore[attr-defined]
    for call in (other, PAY):
        same = intent("x", call, "u").data["arguments_hash"]
        await ledger.find_write(principal="u", tool="pay", arguments_hash=same, run_id="new")
    assert looked == ["one"], "runs that have ended answer nobody else"
    kept = set(ledger._runs)  # type: ignore[attr-defined]
    assert set().union(*ledger._same.values()) == kept  # type: ignore[attr-defined]


async def test_many_writes_of_unknown_outcome_do_not_keep_the_others() -> None:
    ledger = Store("5")
    for n in range(40):
        await ledger.append(f"u{n}", [started(), intent(f"u{n}", PAY, "u"), finished()])
        await ledger.append(f"r{n}", [started(), finished()])
    assert [name for name in ledger._runs if name.startswith("r")] == ["r35", "r36", "r37", "r38", "r39"]
    assert len(ledger._runs) == 45
    settled = {"call_id": "c1", "result": ended("c1").data["result"], "by": "person"}
    for n in range(40):
        await ledger.append(f"u{n}", [Entry("call_settled", settled)])
    for n in range(40):
        await ledger.append(f"s{n}", [started(), finished()])
    assert len(ledger._runs) == 5


async def test_an_agent_without_a_ledger_does_not_keep_every_run() -> None:
    agent = Agent(Replay(["hello"] * (KEEP_RUNS + 200)))
    for _ in range(KEEP_RUNS + 200):
        await agent.run("hi")
    assert isinstance(agent.ledger, Store)
    assert len(agent.ledger._runs) <= KEEP_RUNS
    assert len(agent.ledger._finished) <= KEEP_RUNS


@tool(effect="write")
def pay(to: str) -> str:
    """Pays."""
    return f"paid {to}"


def test_threads_with_loops_of_their_own_share_one_store() -> None:
    """Asking about a run while it is written elsewhere loses and doubles nothing."""
    ledger = ledgers.open("memory")
    stop = threading.Event()
    errors: list[BaseException] = []

    def write(me: int) -> None:
        async def work() -> None:
            for n in range(60):
                call = ToolCall(f"c{n}", "pay", {"n": n})
                await ledger.append(f"r{me}", [intent(f"r{me}", call, "u"), ended(call.id)])

        asyncio.run(work())

    def ask() -> None:
        async def work() -> None:
            while not stop.is_set():
                await ledger.runs()
                await ledger.find_write(
                    principal="u", tool="pay", arguments_hash=intent("x", PAY, "u").data["arguments_hash"], run_id="x"
                )

        try:
            asyncio.run(work())
        except BaseException as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(me,)) for me in range(4)]
    askers = [threading.Thread(target=ask) for _ in range(2)]
    for thread in (*writers, *askers):
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in askers:
        thread.join()
    assert errors == []
    report = asyncio.run(ledger.verify())
    assert (report.problems, report.entries) == ((), 4 * 120)


async def test_a_large_result_is_masked_off_the_event_loop(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watched(Masking):
        def mask(self, value: Any) -> tuple[Any, tuple[str, ...]]:
            seen.append(threading.get_ident())
            return super().mask(value)

        def may_concern(self, text: str) -> bool:
            return True

    big = "word " * 400_000 + "password=hunter2hunter2 "
    for where in ("memory", f"sqlite:{tmp_path}/runs.db"):
        ledger = ledgers.open(where)
        seen.clear()
        ledger._masking = Watched()  # type: ignore[attr-defined]
        await ledger.append("r", [started(), ended("c1", content=big)])
        for _ in range(3):
            await ledger.result("r", "c1")
            await ledger.read("r")
        assert len(seen) == 2, "each entry is looked at once"
        assert threading.get_ident() not in seen
        await ledger.aclose()
