"""Check and act under the lease, and a ledger that does not answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.ledger import sqlite
from callgate.masking import Masking
from callgate.types import ModelInfo

pytestmark = pytest.mark.anyio

PAY = {"calls": [{"name": "pay", "arguments": {"amount": 5}}]}


def pays(ran: list[Any], name: str = "") -> Any:
    @tool(effect="write")
    async def pay(amount: int) -> str:
        "Pay."
        ran.append((name, amount))
        return "paid"

    return pay


class Slow(Replay):
    delay = 0.3

    async def info(self) -> ModelInfo:
        await asyncio.sleep(self.delay)
        return await super().info()


@pytest.mark.parametrize("slow", [(), (0,), (1,), (0, 1)])
@pytest.mark.parametrize("apart", [0.0, 0.1, 0.6])
async def test_of_two_that_are_given_one_run_id_exactly_one_runs(
    slow: tuple[int, ...], apart: float, tmp_path: Any
) -> None:
    ran: list[Any] = []
    where = f"sqlite:{tmp_path / 'runs.db'}"
    agents = [Agent((Slow if n in slow else Replay)([PAY, "done"]), tools=[pays(ran)], ledger=where) for n in range(2)]

    async def start(n: int) -> Any:
        await asyncio.sleep(n * apart)
        return await agents[n].run("pay", run_id="job-1")

    results = await asyncio.gather(start(0), start(1), return_exceptions=True)
    failures = [r for r in results if isinstance(r, BaseException)]
    assert (len(failures), ran) == (1, [("", 5)])
    assert isinstance(failures[0], (RunBusy, ConfigError))
    assert "job-1" in str(failures[0])
    assert not (await agents[0].ledger.verify()).problems
    again = await agents[0].resume("job-1")
    assert (again.reason, ran) == ("answered", [("", 5)])
    for agent in agents:
        await agent.aclose()


class Late(sqlite.Store):
    """Takes long to record that a write is about to start."""

    pause = 0.0

    async def append(self, run_id: str, entries: Any, **named: Any) -> Any:
        done = await super().append(run_id, entries, **named)
        if any(e.kind == "call_intent" for e in entries):
            await asyncio.sleep(self.pause)
        return done

    async def renew(self, *given: Any, **named: Any) -> Any:
        await asyncio.sleep(30)


async def test_a_write_does_not_start_when_the_lease_ran_out_while_it_was_recorded(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from callgate import ledger

    def short(store: Any, run_id: str) -> Any:
        return ledger._hold(store, run_id, 0.4)

    monkeypatch.setattr(ledger, "hold", short)
    for pause, started in ((0.0, True), (0.6, False)):
        ran: list[Any] = []
        store = Late(str(tmp_path / f"{started}.db"), masking=Masking())
        store.pause = pause
        agent = Agent(Replay([PAY, "done"]), tools=[pays(ran)], ledger=store)
        result = await agent.run("pay")
        assert bool(ran) == started
        assert [r.result.status for r in result.calls] == ["ok" if started else "not_started"]
        if not started:
            assert "lease" in result.calls[0].result.content
        await agent.aclose()


class Silent(sqlite.Store):
    """A ledger that stops answering at the n-th call of it."""

    left = 10**6

    async def _maybe(self) -> None:
        self.left -= 1
        if self.left < 0:
            await asyncio.sleep(3600)

    async def append(self, *given: Any, **named: Any) -> Any:
        await self._maybe()
        return await super().append(*given, **named)

    async def find_write(self, **named: Any) -> Any:
        await self._maybe()
        return await super().find_write(**named)


async def test_a_run_ends_although_the_ledger_hangs_and_nothing_runs_that_is_not_recorded(tmp_path: Any) -> None:
    for left in range(40):
        ran: list[Any] = []
        store = Silent(str(tmp_path / f"{left}.db"), masking=Masking())
        store.left = left
        agent = Agent(Replay([PAY, "done"]), tools=[pays(ran)], ledger=store, ledger_timeout=0.5)
        result = await asyncio.wait_for(agent.run("pay", run_id="r"), 10)
        if result.reason == "answered":
            assert len(ran) == 1
            await agent.aclose()
            return
        assert result.reason == "provider_error"
        assert "ledger_timeout" in str(result.error)
        assert f"{left}.db" in str(result.error)
        intents = [e for e in await store.read("r") if e.kind == "call_intent"]
        assert len(ran) <= len(intents)
        if not intents:
            assert [r.result.status for r in result.calls] in ([], ["not_started"])
        await agent.aclose()
    raise AssertionError("the run never reached its end")


async def test_a_cancelled_task_ends_although_the_ledger_hangs(tmp_path: Any) -> None:
    store = Silent(str(tmp_path / "runs.db"), masking=Masking())
    store.left = 0
    agent = Agent(Replay([PAY, "done"]), tools=[pays([])], ledger=store, ledger_timeout=0.2)
    task = asyncio.ensure_future(agent.run("pay"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(task), 3)
    await agent.aclose()


async def test_a_ledger_that_hangs_before_the_run_begins_is_an_error_that_names_it(tmp_path: Any) -> None:
    class Deaf(sqlite.Store):
        async def lease(self, *given: Any, **named: Any) -> Any:
            await asyncio.sleep(3600)

    store = Deaf(str(tmp_path / "runs.db"), masking=Masking())
    agent = Agent(Replay([PAY]), tools=[pays([])], ledger=store, ledger_timeout=0.1)
    with pytest.raises(LedgerError, match=r"runs\.db did not answer"):
        await agent.run("pay")
    await agent.aclose()
