"""What a sync tool returns is put into words in its own thread: a large value keeps nobody else waiting (X5)."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from callgate import Agent, Replay, tool

ASK = {"calls": [{"name": "rows", "arguments": {}}]}


class Rows(list[int]):
    """Tells in which threads it was looked at."""

    seen: set[int] = set()  # noqa: RUF012

    def __iter__(self) -> Iterator[int]:
        Rows.seen.add(threading.get_ident())
        return super().__iter__()


@pytest.mark.anyio
async def test_the_loop_never_looks_at_the_value_of_a_sync_tool() -> None:
    @tool(effect="read")
    def rows() -> list[int]:
        "Rows."
        return Rows(range(5000))

    result = await Agent(Replay([ASK, "ok"]), tools=[rows], max_result=2000).run("go")
    (record,) = result.calls
    assert record.result.ok
    assert len(record.result.content) <= 2000
    assert record.result.size > 20_000
    assert record.result.value == list(range(5000))
    assert Rows.seen
    assert threading.get_ident() not in Rows.seen
