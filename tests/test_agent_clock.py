"""The clock of a run: what counts against its time, and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Agent, Replay, tool
from callgate.agent._clock import Clock
from patience import busy


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=20), st.integers(0, 50))
def test_the_clock_counts_exactly_what_is_not_paused(steps: list[tuple[bool, int]], before: int) -> None:
    now = 1000.0
    clock = Clock(before, None, lambda: None, time=lambda: now)
    counted = float(before)
    for paused, seconds in steps:
        if paused:
            with clock.paused() as go_on:
                now += seconds
                assert clock.now == counted
                go_on()
                now += 1
                counted += 1
        else:
            now += seconds
            counted += seconds
        assert clock.now == counted


SLOW = busy()
"""The durations here keep their proportions, however slow the machine is."""


class Loading(Replay):
    """A server that loads its model before it answers."""

    @asynccontextmanager
    async def stream(self, request: Any) -> AsyncIterator[Any]:
        await asyncio.sleep(0.3 * SLOW)
        async with super().stream(request) as stream:
            yield stream


@pytest.mark.anyio
async def test_a_model_that_is_slow_to_begin_does_not_use_up_the_time_of_the_run() -> None:
    result = await Agent(Loading(["a b c"])).run("go")
    assert (result.reason, result.text) == ("answered", "a b c")
    assert result.seconds < 0.15 * SLOW


@pytest.mark.anyio
async def test_a_time_that_was_given_counts_the_wait_for_the_first_token() -> None:
    """Whoever sets a limit means all of it; only the default makes allowance for a model that is being loaded."""
    result = await Agent(Loading(["a b c"]), run_timeout=0.15 * SLOW).run("go")
    assert (result.reason, result.text) == ("time_limit", "")


@pytest.mark.anyio
async def test_tools_and_a_slow_answer_do() -> None:
    @tool(effect="read")
    async def forever() -> str:
        "Wait."
        await asyncio.sleep(60)
        return "x"

    script: list[Any] = [{"calls": [{"name": "forever", "arguments": {}}]}]
    result = await Agent(Replay(script), tools=[forever], run_timeout=0.2).run("go")
    assert (result.reason, result.calls[0].result.status) == ("time_limit", "cancelled")
    slow = [{"content": "a b c d e", "chunks": 5, "delay": 0.1}]
    result = await Agent(Replay(slow), run_timeout=0.15).run("go")
    assert result.reason == "time_limit"
