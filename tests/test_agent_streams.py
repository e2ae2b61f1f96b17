"""Streams: for programs with and without an event loop, as events, as text, as a growing output."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from callgate import Agent, Replay, tool
from callgate.errors import ConfigError
from callgate.events import RunFinished

pytestmark = pytest.mark.anyio


class City(BaseModel):
    name: str
    people: int


@tool(effect="read")
def look(at: str) -> str:
    "Looks."
    return f"saw {at}"


TALK = {"content": "Let me see. ", "calls": [{"name": "look", "arguments": {"at": "x"}}]}
CITIES = [{"name": 'Paris \\ "é"', "people": 2_000_000}, {"name": "Oslo", "people": 700_000}]


def agent(*replies: Any, cut: int | None = 3) -> Agent:
    script = [{"content": r, "chunks": cut} if isinstance(r, str) else {**r, "chunks": cut} for r in replies]
    return Agent(Replay(script), tools=[look])


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.booleans())
def test_views_show_the_same_run(cut: int, sync: bool) -> None:
    text = json.dumps(CITIES)

    async def asynchronous() -> tuple[list[str], list[str], list[Any], Any]:
        async with agent(TALK, "It is x.", cut=cut).stream("?") as events:
            every = [piece async for piece in events.text_stream()]
        async with agent(TALK, "It is x.", cut=cut).stream("?") as events:
            final = [piece async for piece in events.text_stream(final_only=True)]
        async with agent(TALK, text, cut=cut).stream("?", output=list[City]) as events:
            values = [value async for value in events.outputs()]
        return every, final, values, events.result.output

    if sync:
        every = list(agent(TALK, "It is x.", cut=cut).stream_sync("?").text_stream())
        final = list(agent(TALK, "It is x.", cut=cut).stream_sync("?").text_stream(final_only=True))
        stream = agent(TALK, text, cut=cut).stream_sync("?", output=list[City])
        values: list[Any] = list(stream.outputs())
        output: Any = stream.result.output
    else:
        every, final, values, output = asyncio.run(asynchronous())
    assert "".join(every) == "Let me see. It is x."
    assert "".join(final) == "It is x."
    assert values[-1] == output == [City(**city) for city in CITIES]
    for early, late in itertools.pairwise(values[:-1]):
        assert json.dumps(late).startswith(json.dumps(early).rstrip(']}"')) or early in ({}, [])


async def test_a_turn_that_is_asked_for_again_is_no_output() -> None:
    script = ['{"name": "Paris", "people": "many"}', '{"name": "Paris", "people": 5}']
    async with agent(*script).stream("?", output=City) as events:
        values = [value async for value in events.outputs()]
    assert values[-1] == City(name="Paris", people=5)
    assert values.count({"name": "Paris"}) >= 2  # written twice, begun anew


def test_a_sync_stream_gives_every_event_and_the_result() -> None:
    stream = agent(TALK, "It is x.").stream_sync("?", run_id="r")
    events = list(stream)
    assert isinstance(events[-1], RunFinished)
    assert (stream.result.text, stream.result.run_id) == ("It is x.", "r")
    with pytest.raises(RuntimeError, match="once"):
        list(stream)


def test_leaving_a_sync_stream_ends_the_run() -> None:
    ran: list[int] = []

    @tool(effect="write")
    def put(n: int) -> None:
        "Puts."
        time.sleep(0.05)
        ran.append(n)

    calls = [{"name": "put", "arguments": {"n": n}} for n in range(5)]
    made = Agent(Replay([{"calls": calls}, "x"]), tools=[put], ledger="memory")
    stream = made.stream_sync("?", run_id="r")
    for event in stream:
        if type(event).__name__ == "CallStarted":
            break
    stream.close()
    assert stream.result.reason == "cancelled"
    assert len(ran) <= 2
    assert asyncio.run(made.resume("r")).reason == "cancelled"
    assert not [t for t in threading.enumerate() if t.name == "callgate run"]


def test_what_the_caller_does_wrong_comes_out_of_a_sync_stream() -> None:
    made = Agent(Replay(["a", "b"]))
    made.run_sync("?", run_id="r")
    with pytest.raises(ConfigError, match="the ledger has this run already"):
        list(made.stream_sync("?", run_id="r"))
    with pytest.raises(ConfigError, match="principal"):
        made.stream_sync("?", principal="ann")


async def test_a_sync_stream_inside_a_loop_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"async with agent\.stream"):
        Agent(Replay(["a"])).stream_sync("?")


def test_many_threads_and_two_loops_share_one_agent() -> None:
    """32 threads, each with loops of its own, and one agent: nobody sees another's run."""

    def model(request: Any) -> Any:
        last = request.messages[-1]
        return (
            f"got {last.text}" if last.role == "tool" else {"calls": [{"name": "look", "arguments": {"at": last.text}}]}
        )

    made = Agent(Replay([model] * 1000), tools=[look], ledger="memory")
    wrong: list[str] = []

    def work(n: int) -> None:
        for round_ in range(3):
            asked = f"{n}.{round_}"
            stream = made.stream_sync(asked)
            text = "".join(stream.text_stream())
            both = (text, made.run_sync(asked).text)
            if both != (f"got saw {asked}",) * 2:
                wrong.append(f"{asked}: {both}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
