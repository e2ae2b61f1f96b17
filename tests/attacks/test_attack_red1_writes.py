"""An attack on X4: the same write in other words, from other sides, at the same time."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Principal, Replay, Tool
from callgate.errors import RunBusy

WAYS: list[dict[str, Any]] = [
    {"amount": 5},
    {"amount": 5.0},
    {"amount": "5"},
    {"memo": "", "amount": 5},
    {"amount": 5, "memo": "", "tags": []},
    {"tags": [], "amount": 5, "urgent": False},
]
OTHERS: list[dict[str, Any]] = [{"amount": 6}, {"amount": 5, "memo": "x"}, {"amount": 5, "urgent": True}]


def call(**arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": "pay", "arguments": arguments}]}


def payment(tries: list[int], *, breaks: bool = True, **declared: Any) -> Tool:
    """A write whose first attempt breaks off in the middle, if it `breaks`."""

    def pay(amount: int, memo: str = "", tags: list[str] = [], urgent: bool = False) -> str:  # noqa: B006
        """Pays."""
        tries.append(amount)
        if breaks and len(tries) == 1:
            raise ConnectionError("reset")
        return "paid"

    return Tool.from_function(pay, effect="write", **declared)


@pytest.mark.parametrize("way", WAYS, ids=str)
@pytest.mark.parametrize("who", [None, Principal("ada")])
def test_a_write_with_its_defaults_written_out_is_the_same_write(way: dict[str, Any], who: Principal | None) -> None:
    """Over runs it asks; in the run it is answered from the ledger."""
    tries: list[int] = []
    agent = Agent(Replay([call(amount=5), "open", call(**way), "Done."]), tools=[payment(tries)])
    agent.run_sync("Pay.", principal=who)
    assert (agent.run_sync("Pay.", principal=who).reason, len(tries)) == ("waiting", 1)
    tries.clear()
    result = Agent(Replay([call(amount=5), call(**way), "Done."]), tools=[payment(tries)]).run_sync("Pay.")
    assert (result.reason, len(tries), result.calls[1].result.replayed) == ("answered", 1, True)


@pytest.mark.parametrize("other", OTHERS, ids=str)
def test_another_write_of_another_run_is_not_held(other: dict[str, Any]) -> None:
    """In the same run and in its session it asks."""
    tries: list[int] = []
    tool = payment(tries)
    agent = Agent(Replay([call(amount=5), "open", call(**other), "Done."]), tools=[tool])
    first = agent.run_sync("Pay.")
    assert (agent.run_sync("Pay.").reason, len(tries)) == ("answered", 2)
    later = Agent(Replay([call(**other), "Done."]), tools=[tool])
    assert later.run_sync("Pay.", history=first.messages).reason == "waiting"


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_answers_that_race_start_one_write(store: str, tmp_path: Path) -> None:
    """Whoever answers first; an ended run starts nothing more."""
    tries: list[int] = []
    where = None if store == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    tool = payment(tries, breaks=False, confirm=True)
    agent = Agent(Replay([call(amount=5), *["Done."] * 9]), tools=[tool], ledger=where)
    waiting = agent.run_sync("Pay.")
    question = waiting.pending[0].id

    def answer() -> None:
        with contextlib.suppress(RunBusy):
            agent.resume_sync(waiting.run_id, {question: True})

    threads = [threading.Thread(target=answer) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    agent.resume_sync(waiting.run_id, {question: True})
    assert tries == [5]


def test_one_agent_in_many_threads_keeps_runs_and_rates_apart() -> None:
    """Each run has its own arguments, each principal its own rate."""
    paid: list[int] = []

    def answer(request: Any) -> Any:
        last = request.messages[-1]
        return call(amount=int(last.text)) if last.role == "user" else "Done."

    tool = payment(paid, breaks=False)
    agent = Agent(Replay([answer] * 100), tools=[tool], policy={"rate": {"pay": "3/min"}})
    results: dict[int, Any] = {}

    def run(n: int) -> None:
        results[n] = agent.run_sync(str(n), principal=Principal(f"user{n % 3}"))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(15)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [n for n, result in results.items() if result.calls[0].result.status == "ok"]
    assert sorted(n % 3 for n in done) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert sorted(paid) == sorted(done)
    assert all(result.calls[0].call.arguments["amount"] == n for n, result in results.items())
