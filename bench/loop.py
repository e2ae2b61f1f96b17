"""The loop's benchmark: `python bench/loop.py [loop ledger call many]`.

What a turn costs without I/O beside a bare while loop and other frameworks on the same scripted model; what the ledger
costs; what gate and ledger add to a plain call; and a thousand runs at once. Rivals: bench/_loops.py.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _loops import bare, installed
from _measure import Table, main, measure
from callgate import Agent, Replay, Tool, tool
from callgate import ledger as ledgers
from callgate.events import dump_event
from callgate.types import Entry, ToolResult

TURNS = 10
TEXT = {"text": "a line of a journal, about as long as they are", "n": 17}


def loop_table() -> Table:
    """CPU time of a turn: one request, one call of a tool, one result."""
    works = {"a bare while loop": bare(TURNS, None), **installed(TURNS)}
    measured = measure(works)
    table = Table(f"A turn without I/O (runs of {TURNS} turns, one call each; nothing persisted)")
    for name in works:
        ratio = "" if name == "callgate" else f"; callgate costs {measured.ratio('callgate', name):.2g} × it"
        table.fact(name, measured.micros(name, TURNS), unit="µs", cost="CPU a turn" + ratio)
    return table


def persisted_table() -> Table:
    """The same runs, persisted in SQLite as each does it."""
    table = Table(f"The same, persisted in SQLite ({TURNS} turns a run)")
    with tempfile.TemporaryDirectory() as name:
        works = installed(TURNS, Path(name))
        works.pop("pydantic-ai", None)  # keeps nothing
        measured = measure(works, rounds=5)
        for contender, work in works.items():
            wall = statistics.median(_seconds(work) for _ in range(5)) / TURNS
            table.fact(contender, measured.micros(contender, TURNS), unit="µs", cost="CPU a turn")
            table.fact(contender, wall * 1e3, unit="ms", cost="time a turn, waiting for the disk included")
    table.note("callgate: every entry is committed before the next step, ends of runs and writes are synced.")
    return table


def ledger_table() -> Table:
    """Entries a second, and the time that an append takes."""
    table = Table("The ledger (SQLite file; time by the clock)")

    async def one_by_one(store: ledgers.Ledger, durable: bool, count: int) -> float:
        begun = time.perf_counter()
        for _ in range(count):
            await store.append("one", [Entry("turn", TEXT)], durable=durable)
        return (time.perf_counter() - begun) / count

    async def at_once(store: ledgers.Ledger, durable: bool, count: int) -> float:
        async def run(n: int) -> None:
            for _ in range(count // 100):
                await store.append(f"run {n}", [Entry("turn", TEXT)], durable=durable)

        begun = time.perf_counter()
        await asyncio.gather(*(run(n) for n in range(100)))
        return (time.perf_counter() - begun) / count

    async def work() -> None:
        with tempfile.TemporaryDirectory() as name:
            store = ledgers.open(f"sqlite:{name}/runs.db")
            await one_by_one(store, False, 20)
            for durable, level in ((False, "NORMAL"), (True, "FULL: survives a power cut")):
                alone = await one_by_one(store, durable, 200)
                many = await at_once(store, durable, 4000)
                table.fact(f"an append, {level}", alone * 1e3, unit="ms", cost="one run, one after the other")
                table.fact(f"entries a second, {level}", 1 / many, unit="/s", cost="100 runs at once, group commit")
            await store.aclose()

    asyncio.run(work())
    return table


def call_table() -> Table:
    """What callgate adds to a call: gate, mending, history, ledger, executor."""
    calls = 10

    @tool(effect="read")
    async def look(item: int) -> str:
        """Looks."""
        return f"item {item}"

    @tool(effect="write")
    async def book(item: int) -> str:
        """Books."""
        return f"item {item}"

    script = [{"calls": [{"name": "look", "arguments": {"item": n}} for n in range(calls)]}]
    writes = [{"calls": [{"name": "book", "arguments": {"item": n}} for n in range(calls)]}]

    async def plain() -> None:
        for n in range(calls):
            await look(item=n)

    def runs(replies: list[Any], where: str) -> Callable[[], Awaitable[object]]:
        agent = Agent(Replay([]), tools=[look, book], ledger=where, max_calls_per_turn=None)

        async def run() -> None:
            result = await agent.run("go", model=Replay([*replies, "done"]))
            assert [c.result.status for c in result.calls] == ["ok"] * (calls if replies else 0)

        return run

    table = Table(f"What gate and ledger add to a call (a turn of {calls} calls, less a run without any)")
    with tempfile.TemporaryDirectory() as name:
        loop = asyncio.new_event_loop()
        works = {"plain": plain}
        places = {"memory": "memory", "SQLite": f"sqlite:{name}/runs.db"}
        for label, where in places.items():
            works |= {f"none {label}": runs([], where), f"reads {label}": runs(script, where)}
            works |= {f"writes {label}": runs(writes, where)}
        measured = measure({k: lambda w=w: loop.run_until_complete(w()) for k, w in works.items()}, rounds=5)
        table.fact("a plain await of the function", measured.micros("plain", calls), unit="µs", cost="CPU")
        for label in places:
            for kind in ("reads", "writes"):
                added = (measured.seconds(f"{kind} {label}") - measured.seconds(f"none {label}")) / calls
                table.fact(f"one of {kind}, ledger: {label}", added * 1e6, unit="µs", cost="CPU added")
        for kind in ("reads", "writes"):
            wall = statistics.median(
                _seconds(lambda k=kind: loop.run_until_complete(works[f"{k} SQLite"]())) for _ in range(7)
            )
            none = statistics.median(
                _seconds(lambda: loop.run_until_complete(works["none SQLite"]())) for _ in range(7)
            )
            table.fact(f"one of {kind}, ledger: SQLite", (wall - none) / calls * 1e3, unit="ms", cost="time added")
    table.note("A write waits twice for the disk: its intent and its result are synced (FULL) before anything goes on.")
    return table


def _waiting() -> list[Tool]:
    @tool(effect="read")
    async def wait(n: int) -> str:
        """Waits on the loop."""
        await asyncio.sleep(0.05)
        return f"waited {n}"

    @tool(effect="read")
    def block(n: int) -> str:
        """Waits in a thread."""
        time.sleep(0.05)
        return f"waited {n}"

    return [wait, block]


def _calling(name: str) -> Replay:
    calls = {"calls": [{"name": name, "arguments": {"n": 1}}]}
    return Replay([lambda request: "done" if request.messages[-1].role == "tool" else calls] * 2100)


def many_table() -> Table:
    """A thousand runs in one process, each with a call of a tool that takes 50 ms."""
    table = Table("1,000 runs at once, one call of a 50 ms tool each (SQLite ledger)")

    async def work(name: str, place: str) -> None:
        agent = Agent(_calling(name), tools=_waiting(), ledger=place, run_timeout=None)
        await agent.run("warm up")
        gaps: list[float] = []

        async def heart() -> None:
            last = time.perf_counter()
            while True:
                await asyncio.sleep(0.005)
                gaps.append(time.perf_counter() - last)
                last = time.perf_counter()

        collecting: list[float] = []

        def collected(phase: str, info: dict[str, int]) -> None:
            if info["generation"] == 2:
                now = time.perf_counter()
                if phase == "start":
                    collecting.append(-now)
                else:
                    collecting[-1] += now

        gc.collect()
        gc.callbacks.append(collected)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        beating = asyncio.create_task(heart())
        begun = time.perf_counter()
        results = await asyncio.gather(*(agent.run("go") for _ in range(1000)))
        seconds = time.perf_counter() - begun
        beating.cancel()
        gc.callbacks.remove(collected)
        ends = Counter((r.reason, r.error, *(c.result.status for c in r.calls)) for r in results)
        assert list(ends) == [("answered", None, "ok")], ends
        report = await agent.ledger.verify()
        assert (report.problems, report.runs) == ((), 1001)
        assert report.entries % 1001 == 0, "entries were lost"
        await agent.aclose()
        table.fact(f"all 1,000, tool {name}", seconds, unit="s", cost="by the clock")
        table.at_most(f"longest gap of the loop, tool {name}", max(gaps) * 1e3, 50, unit="ms")
        table.fact(f"longest garbage collection, tool {name}", max(collecting, default=0) * 1e3, unit="ms")
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        table.fact(f"memory at the peak, tool {name}", grown, unit="MB", cost="above what was used before")

    for name in ("wait", "block"):
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(work(name, f"sqlite:{folder}/runs.db"))
    table.note("A gap cannot be shorter than a garbage collection of the objects of all runs that go on at once.")
    return table


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    assert dump_event(ToolResult("c", "ok", ""))  # imports are no part of what is measured
    main(
        {
            "ledger": ledger_table,
            "call": call_table,
            "many": many_table,  # before the other packages are loaded: the collector would walk them as well
            "loop": loop_table,
            "persisted": persisted_table,
        }
    )
