"""A soak: one agent, thousands of runs with a tool over HTTP, and the memory that is left of them.

`CALLGATE_SOAK=5000 pytest tests/test_soak.py` is the measurement (`make long`); without it a short one is run.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, providers, tool
from loopback import Asked, loopback, say, sse, stream

RUNS = int(os.environ.get("CALLGATE_SOAK", "150"))
MARK = RUNS // 5
"""Until then caches, pools and the journals that are kept fill up."""
MOST = 1.05
CALL = {"index": 0, "id": "c", "function": {"name": "weather", "arguments": '{"city": "Paris"}'}}
FIRST = stream(sse(say(tool_calls=[CALL]), say(finish="tool_calls")))
LAST = stream(sse(say("Rain, "), say("and then sun. " * 20), say(finish="stop")))


@tool(effect="read")
def weather(city: str) -> dict[str, Any]:
    "Weather in a city."
    return {"city": city, "hours": [{"hour": n, "rain": n % 3} for n in range(24)]}


def resident() -> int:
    """Bytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def answer(asked: Asked) -> list[Any]:
    return LAST if asked.json["messages"][-1]["role"] == "tool" else FIRST


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
@pytest.mark.timeout(3600 if RUNS > 500 else 60)
@pytest.mark.anyio
async def test_thousands_of_runs_leave_no_memory_behind() -> None:
    found: dict[int, int] = {}
    async with loopback(answer) as server:
        provider = providers.open(f"{server.url}#m", abilities={"tools"})
        agent = Agent(provider, tools=[weather])
        for number in range(1, RUNS + 1):
            result = await agent.run(f"Weather in Paris, question {number}?")
            assert (result.reason, len(result.calls)) == ("answered", 1)
            server.asked.clear()
            if number in (MARK, RUNS):
                gc.collect()
                found[number] = resident()
        await provider.aclose()
    assert server.connections <= 2, "connections are used again"
    grown = found[RUNS] / found[MARK]
    print(f"{RUNS} runs: {found[MARK]:,} bytes after {MARK}, {found[RUNS]:,} after {RUNS}: {grown:.3f}")
    assert grown <= MOST
