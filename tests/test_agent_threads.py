"""One agent, many threads, several event loops: each run is its own, and no write is done twice."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Principal, Replay, RunResult, providers, tool
from callgate.agent import _runner
from callgate.types import Request
from patience import until
from strict_server import StrictServer

pytestmark = pytest.mark.anyio
THREADS = 32


def answer(request: Request) -> Any:
    """Calls `put` with the number of the prompt, then says it: any number of runs may share this model."""
    last = request.messages[-1]
    if last.role == "user":
        return {"calls": [{"name": "put", "arguments": {"n": int(last.text)}}]}
    return f"{last.text}!"


def made(ran: Counter[int], where: str) -> Agent:
    @tool(effect="write")
    def put(n: int) -> str:
        "Put."
        ran[n] += 1
        return f"put {n}"

    return Agent(Replay([answer] * 10_000), tools=[put], protocol="native", ledger=where)


@pytest.fixture(params=["memory", "sqlite"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory" if request.param == "memory" else f"sqlite:{tmp_path / 'runs.db'}"


def test_many_threads_share_an_agent(where: str) -> None:
    ran: Counter[int] = Counter()
    agent = made(ran, where)
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda n: agent.run_sync(str(n), principal=Principal(f"u{n}")), range(2 * THREADS)))
    assert [result.text for result in results] == [f"put {n}!" for n in range(2 * THREADS)]
    assert len({result.run_id for result in results}) == 2 * THREADS
    assert ran == dict.fromkeys(range(2 * THREADS), 1)


def test_what_the_first_run_loads_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread loaded it for itself, all at once: 25 s for what takes 0.3 s."""
    loads: list[str] = []
    load = _runner.load

    def slow(toolbox: Any, config: Any) -> None:
        loads.append(threading.current_thread().name)
        time.sleep(0.3)
        load(toolbox, config)

    monkeypatch.setattr(_runner, "load", slow)
    agent = made(Counter(), "memory")
    with ThreadPoolExecutor(THREADS) as pool:
        results = list(pool.map(lambda n: agent.run_sync(str(n), principal=Principal(f"u{n}")), range(THREADS)))
    assert len(loads) == 1
    assert {result.reason for result in results} == {"answered"}


async def test_a_first_run_that_is_cancelled_holds_nobody_up() -> None:
    agent = made(Counter(), "memory")
    first = asyncio.ensure_future(agent.run("1", principal=Principal("u1")))
    second = asyncio.ensure_future(agent.run("2", principal=Principal("u2")))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).text == "put 2!"
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_a_waiting_run_that_is_cancelled_takes_nothing_from_the_others() -> None:
    agent = made(Counter(), "memory")
    first, second, third = (asyncio.ensure_future(agent.run(str(n), principal=Principal(f"u{n}"))) for n in (1, 2, 3))
    await asyncio.sleep(0)
    second.cancel()
    assert [(await first).text, (await third).text] == ["put 1!", "put 3!"]
    with pytest.raises(asyncio.CancelledError):
        await second


def test_several_event_loops_share_an_agent(where: str) -> None:
    ran: Counter[int] = Counter()
    agent = made(ran, where)
    found: dict[int, list[RunResult]] = {}
    failed: list[BaseException] = []

    async def many(loop: int) -> list[RunResult]:
        return await asyncio.gather(*(agent.run(str(loop * 100 + n), principal=Principal(f"u{n}")) for n in range(16)))

    def turn(loop: int) -> None:
        try:
            found[loop] = asyncio.run(many(loop))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=turn, args=(loop,)) for loop in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    for loop in (1, 2):
        assert [result.text for result in found[loop]] == [f"put {loop * 100 + n}!" for n in range(16)]
    assert set(ran.values()) == {1}
    assert len(ran) == 32


def test_a_run_of_one_thread_is_resumed_in_another(where: str) -> None:
    ran: list[int] = []

    @tool(effect="write", confirm=True)
    def put(n: int) -> str:
        "Put."
        ran.append(n)
        return f"put {n}"

    agent = Agent(Replay([answer] * 100), tools=[put], protocol="native", ledger=where)
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        waiting = one.submit(agent.run_sync, "7").result()
        assert waiting.reason == "waiting"
        result = other.submit(
            lambda: asyncio.run(agent.resume(waiting.run_id, {call.id: True for call in waiting.pending}))
        ).result()
    assert (result.text, ran) == ("put 7!", [7])


def test_many_threads_share_a_server_and_leave_no_connection_open() -> None:
    with StrictServer("openai", "ok") as server:
        agent = Agent(providers.open(f"{server.url}#m", abilities={"tools"}))
        assert agent.run_sync("warm").text == "ok"
        before = len(os.listdir("/proc/self/fd"))
        with ThreadPoolExecutor(16) as pool:
            results = list(pool.map(lambda n: agent.run_sync(str(n)), range(64)))
        assert {result.text for result in results} == {"ok"}
        until(lambda: len(os.listdir("/proc/self/fd")) <= before)
