"""Turns taken on one loop, and work that a cancel does not disturb."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.agent._scheduler import STEPS, scheduler
from callgate.agent._shield import in_thread, to_its_end
from callgate.executor import Threads


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=60), st.integers(0, 59))
def test_no_round_of_the_loop_has_more_steps_than_it_may_and_none_overtakes(wants: list[int], gone: int) -> None:
    async def main() -> None:
        rounds: Counter[int] = Counter()
        first: list[int] = []
        now = 0
        loop = asyncio.get_running_loop()

        def tick() -> None:
            nonlocal now
            now += 1
            if not over:
                loop.call_soon(tick)

        over = False
        loop.call_soon(tick)

        async def run(n: int, steps: int) -> None:
            for step in range(steps):
                await scheduler().turn()
                rounds[now] += 1
                if step == 0:
                    first.append(n)

        tasks = [asyncio.ensure_future(run(n, steps)) for n, steps in enumerate(wants)]
        await asyncio.sleep(0)
        if gone < len(tasks) and not tasks[gone].done():
            tasks[gone].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        over = True
        assert max(rounds.values()) <= STEPS
        assert first == sorted(first), "first come, first served"

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [0, 1, 3])
@pytest.mark.parametrize("fails", [False, True])
def test_work_is_brought_to_its_end_and_the_cancel_goes_on_its_way(cancels: int, fails: bool) -> None:
    ended: list[str] = []

    async def work() -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append("work")
        if fails:
            raise ValueError("no")
        return "done"

    async def main() -> None:
        task = asyncio.ensure_future(to_its_end(work()))
        await asyncio.sleep(0)
        for _ in range(cancels):
            task.cancel()
            await asyncio.sleep(0)
        if fails:
            with pytest.raises(asyncio.CancelledError if cancels else ValueError):
                await task
        else:
            result, cancelled = await task
            assert (result, cancelled is not None) == ("done", cancels > 0)

    asyncio.run(main())
    assert ended == ["work"]


def test_a_thread_that_nobody_waits_for_any_more_takes_no_place() -> None:
    import threading

    release = threading.Event()

    async def main() -> None:
        threads = Threads(max_threads=1)
        task = asyncio.ensure_future(in_thread(threads, lambda: release.wait(5)))
        await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.sleep(0)
        assert await asyncio.wait_for(in_thread(threads, lambda: "next"), 2) == "next"
        release.set()

    asyncio.run(main())
