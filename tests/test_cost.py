"""What reading and running cost, counted instead of timed: it is the same on every machine, however busy.

A count is of Python function calls (generators that go on included), of bytes that stay allocated, or of objects that
the garbage collector walks. The ceilings are what was reached when they were written, and a small margin. A change that
costs more has to say so here.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from callgate import Agent, Reader, Replay, tool
from callgate.types import Request
from dialect_render import TOOLS, WRITERS

PROSE = (
    "北京今天多云，气温在十八到二十五度之间。I checked the forecast: it stays dry until Friday.\n"
    "The museum opens at nine. "
)
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("look_up", {"text": "天气", "count": 7}),
    ("save", {"text": "blankets and 水果", "count": 1}),
]
TURNS = 10


def message(dialect: str) -> str:
    before = "" if dialect == "harmony" else PROSE * 4 + "\n"
    return before + WRITERS[dialect](CALLS)


def chunks_of(text: str) -> list[str]:
    return [text[at : at + 4] for at in range(0, len(text), 4)]


def calls_in(work: Callable[[], object]) -> int:
    """Calls of Python functions, in every thread that begins meanwhile too."""
    work()  # what is loaded and compiled once is no part of it
    count = 0

    def profile(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    return count


def read(make: Callable[[], Reader], chunks: list[Any]) -> Reader:
    reader = make()
    for chunk in chunks:
        reader.feed(chunk)
    reader.finish()
    return reader


def of(dialect: str) -> Callable[[], Reader]:
    return lambda: Reader(dialect, tools=TOOLS)


@pytest.mark.parametrize(
    ("dialect", "ceiling"),
    [("hermes", 5.4), ("qwen_xml", 8.8), ("harmony", 10.2), ("mistral_args", 5.9), ("bare_json", 5.8)],
)
def test_prose_with_calls_costs_so_many_function_calls_a_chunk(dialect: str, ceiling: float) -> None:
    chunks = chunks_of(message(dialect))
    assert [call.name for call in read(of(dialect), chunks).reply.calls] == ["look_up", "save"]
    found = calls_in(lambda: read(of(dialect), chunks)) / len(chunks)
    assert found <= ceiling


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_prose_costs_hardly_more_than_two_calls_a_chunk_however_long_it_gets(size: int) -> None:
    chunks = chunks_of((PROSE * (size // len(PROSE) + 1))[:size])
    assert calls_in(lambda: read(of("hermes"), chunks)) / len(chunks) <= 2.3


@pytest.mark.parametrize(
    ("dialect", "ceiling"),
    [("hermes", 4.2), ("qwen_xml", 4.4), ("harmony", 4.2), ("mistral_args", 4.2), ("bare_json", 4.2)],
)
def test_a_fragment_of_a_long_argument_costs_the_same_at_any_length(dialect: str, ceiling: float) -> None:
    text = {size: WRITERS[dialect]([("save", {"text": (PROSE * 2000)[:size]})]) for size in (1_000, 100_000)}
    cost = {}
    for size, whole in text.items():
        chunks = chunks_of(whole)
        cost[size] = calls_in(lambda chunks=chunks: read(of(dialect), chunks)) / len(chunks)  # type: ignore[misc]
    assert cost[100_000] <= ceiling
    assert cost[100_000] <= cost[1_000] * 1.05


def test_no_more_is_kept_of_a_text_than_its_characters_and_three_pointers() -> None:
    """Deltas that were given out are not kept: whoever read them may let them go, for the collector walks them all."""
    chunks = chunks_of(PROSE * 500)
    read(of("hermes"), chunks)
    gc.collect()
    objects = len(gc.get_objects())
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        reader = read(of("hermes"), chunks)
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    gc.collect()
    assert kept / len(chunks) <= 50
    assert len(gc.get_objects()) - objects <= 50
    assert len(reader.reply.content) > 40_000


@pytest.mark.parametrize(("dialect", "ceiling"), [(None, 15.3), ("hermes", 18.4)])
def test_a_record_of_a_wire_costs_so_many_function_calls(dialect: str | None, ceiling: float) -> None:
    texts = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in chunks_of(PROSE * 4)]
    choices = [*texts, {"index": 0, "delta": {}, "finish_reason": "stop"}]
    records = [{"object": "chat.completion.chunk", "choices": [choice]} for choice in choices]
    pieces = [f"data: {json.dumps(record)}\n\n".encode() for record in records]
    assert calls_in(lambda: read(lambda: Reader(dialect, wire="openai"), pieces)) / len(pieces) <= ceiling


@tool(effect="read")
async def price(item: int) -> str:
    """The price of an item."""
    return f"item {item} costs {item * 3} cents"


@tool(effect="write")
async def book(item: int) -> str:
    """Books an item."""
    return f"item {item}"


@pytest.mark.parametrize(
    ("place", "name", "ceiling"),
    [("memory", "price", 1080), ("memory", "book", 1220), ("sqlite", "price", 1620), ("sqlite", "book", 2060)],
)
def test_a_turn_costs_so_many_function_calls(place: str, name: str, ceiling: int, tmp_path: Path) -> None:
    """One request, one call of a tool, one result; in the loop's thread and in the ledger's."""
    where = f"sqlite:{tmp_path}/runs.db" if place == "sqlite" else place
    loop = asyncio.new_event_loop()

    def run(turns: int) -> None:
        script = [{"calls": [{"name": name, "arguments": {"item": n}}]} for n in range(turns)]
        agent = Agent(Replay([*script, "done"]), tools=[price, book], ledger=where, max_turns=TURNS + 2)
        result = loop.run_until_complete(agent.run("go"))
        assert (result.reason, len(result.calls)) == ("answered", turns)
        loop.run_until_complete(agent.aclose())

    found = (calls_in(lambda: run(TURNS)) - calls_in(lambda: run(0))) / TURNS
    loop.close()
    assert found <= ceiling


def test_a_waiting_run_keeps_so_many_objects_for_the_collector() -> None:
    count = 50

    async def work() -> float:
        gate = asyncio.Event()

        @tool(effect="read")
        async def wait() -> str:
            """Waits."""
            await gate.wait()
            return "ok"

        def answer(request: Request) -> Any:
            return "done" if request.messages[-1].role == "tool" else {"calls": [{"name": "wait", "arguments": {}}]}

        agent = Agent(Replay([answer] * (2 * count + 4)), tools=[wait], run_timeout=None)
        gate.set()
        await agent.run("warm up")
        gate.clear()
        gc.collect()
        before = len(gc.get_objects())
        runs = [asyncio.create_task(agent.run("go")) for _ in range(count)]
        for _ in range(count * 20):
            await asyncio.sleep(0)
        gc.collect()
        found = (len(gc.get_objects()) - before) / count
        gate.set()
        results = await asyncio.gather(*runs)
        assert {result.reason for result in results} == {"answered"}
        return found

    assert asyncio.run(work()) <= 208
