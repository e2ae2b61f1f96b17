"""Every question of a store is answered from one moment, whatever is appended while it is being answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from callgate.ledger import Ledger, intent
from callgate.types import Entry, ToolCall
from ledger_stores import PAY, PAY_HASH, Opener, ended, open_store, postgres, started

__all__ = ["open_store", "postgres"]
pytestmark = pytest.mark.anyio

Question = Callable[[Ledger], Awaitable[Any]]


async def scanned(ledger: Ledger) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    async for run_id, entry in ledger.scan():
        found.setdefault(run_id, []).append(entry.seq)
    return found


QUESTIONS: dict[str, Question] = {
    "read": lambda ledger: ledger.read("r"),
    "read after": lambda ledger: ledger.read("r", after=2),
    "run": lambda ledger: ledger.run("r"),
    "runs": lambda ledger: ledger.runs(),
    "write": lambda ledger: ledger.write("r", "c1"),
    "result": lambda ledger: ledger.result("r", "c1"),
    "held": lambda ledger: ledger.held("r"),
    "find_write": lambda ledger: ledger.find_write(principal="u", tool="pay", arguments_hash=PAY_HASH, run_id="r"),
    "verify": lambda ledger: ledger.verify(),
    "verify one": lambda ledger: ledger.verify("r"),
    "scan": scanned,
}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda name: name.replace(" ", "-"))
async def test_every_question_is_answered_from_one_moment(open_store: Opener, question: str) -> None:
    ledger, other = open_store(), open_store()
    await ledger.append("r", [started(), intent("r", PAY, "u"), ended("c1", "unknown_outcome")])
    await ledger.append("r2", [started()])
    loop = asyncio.get_running_loop()
    number = 0

    async def interfere() -> None:
        nonlocal number
        number += 1
        call = ToolCall(f"x{number}", "pay", {"n": number})
        await other.append("r", [intent("r", call, "u"), ended(call.id)])
        await other.append(f"new-{number}", [started()])

    def interfering(work: Any) -> Any:
        def through(ask: Any) -> Any:
            def one(sql: str, params: Any) -> Any:
                if number < 12:
                    asyncio.run_coroutine_threadsafe(interfere(), loop).result(10)
                return ask(sql, params)

            return work(one)

        return through

    for name in ("_reading", "_reading_apart"):
        if plain := getattr(ledger, name, None):
            setattr(ledger, name, lambda work, plain=plain: plain(interfering(work)))
    found = await QUESTIONS[question](ledger)
    match question:
        case "read":  # raises if entries and their number are of two moments
            assert [e.seq for e in found] == list(range(1, len(found) + 1))
        case "read after":
            assert [e.seq for e in found] == list(range(3, len(found) + 3))
        case "verify" | "verify one":
            assert found.problems == ()
        case "runs":
            assert {"r", "r2"} <= {info.run_id for info in found}
        case "scan":
            assert {"r", "r2"} <= set(found)
            assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in found.values())
            assert len(found["r"]) % 2 == 1, "half of an append was seen"
        case "find_write" | "write":
            assert found.call_id == "c1"
        case _:
            pass
    if hasattr(ledger, "_reading"):
        assert number > 0, "nothing came between"


async def test_a_second_start_of_one_run_is_reported(open_store: Opener) -> None:
    ledger = open_store()
    again = Entry("run_started", {"model": "m", "principal": "u", "resumed": True})
    await ledger.append("r", [started(), Entry("run_finished", {"reason": "waiting"}), again])
    assert (await ledger.verify()).problems == ()
    await ledger.append("r", [started()])
    (problem,) = (await ledger.verify()).problems
    assert "entry 4" in problem
    assert "second time" in problem
