"""Followers of runs: whoever comes, leaves and comes back, and whatever is appended and shown meanwhile."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import ledger
from callgate.apps.gateway import feeds
from callgate.apps.gateway.feeds import Feeds, Place, watched
from callgate.events import CallProgress, CallStarted, Event, Retrying, TextDelta, TurnStarted
from callgate.ledger import Ledger
from callgate.types import Entry

RUN = "run-1"


def entry(kind: str, call: str = "c") -> Entry:
    result = {"type": "tool_result", "call_id": call, "status": "ok", "content": ""}
    data: dict[str, dict[str, Any]] = {
        "run_started": {"model": "m", "principal": None},
        "call_result": {"call_id": call, "result": result},
        "ask": {"call_id": call},
        "waiting": {"reason": "waiting"},
        "run_finished": {"reason": "answered"},
    }
    return Entry("run_finished" if kind == "waiting" else kind, data.get(kind, {}))


EVENTS: Sequence[Event] = (
    TextDelta("a"), CallStarted("c", "t"), CallStarted("d", "t"), CallProgress("c", 1), Retrying(1, "x"),
    TurnStarted(1),
)  # fmt: skip


@dataclass
class Client:
    """Reads the stream record by record, and may leave at any of them."""

    seen: list[dict[str, Any]] = field(default_factory=list)
    last: str = ""
    stream: AsyncIterator[bytes] | None = None
    waiting: asyncio.Future[bytes] | None = None
    over: bool = False

    async def read(self, told: Feeds, most: int) -> None:
        """At most so many records that are there just now."""
        for _ in range(most):
            if self.over:
                return
            if self.stream is None:
                self.stream = told.follow(RUN, self.last, 1e9)
            if self.waiting is None:
                self.waiting = asyncio.ensure_future(anext(self.stream))  # type: ignore[arg-type]
            for _ in range(20):
                await asyncio.sleep(0)
            if not self.waiting.done():
                return
            waiting, self.waiting = self.waiting, None
            try:
                record = parsed(waiting.result())
            except StopAsyncIteration:
                self.over = True
                return
            self.seen.append(record)
            self.last = record.get("id", self.last)

    async def leave(self) -> None:
        """The connection breaks."""
        if self.waiting is not None:
            self.waiting.cancel()
            await asyncio.gather(self.waiting, return_exceptions=True)
            self.waiting = None
        if self.stream is not None:
            await self.stream.aclose()  # type: ignore[attr-defined]
            self.stream = None


def parsed(record: bytes) -> dict[str, Any]:
    lines = dict(line.split(": ", 1) for line in record.decode().strip().split("\n"))
    return {**lines, "data": json.loads(lines["data"])}


KINDS = ["request", "turn", "ask", "call_result", "waiting", "run_started"]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.sampled_from(KINDS), min_size=1, max_size=3)),
        st.tuples(st.just("show"), st.integers(0, len(EVENTS) - 1)),
        st.tuples(st.just("read"), st.tuples(st.integers(0, 2), st.integers(1, 6))),
        st.tuples(st.just("leave"), st.integers(0, 2)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=40,
)


class World:
    """A ledger, the process of the moment, and three clients."""

    def __init__(self, store: Ledger) -> None:
        self.store = store
        self.told, self.feeds = watched(store)
        self.feeds.of(RUN)
        self.clients = [Client() for _ in range(3)]
        self.count = 0
        self.answered = False
        self.texts: list[int] = []
        """Number of a text -> the entry before it."""

    async def do(self, what: str, how: Any) -> None:
        match what:
            case "append":
                await self.append([entry(kind) for kind in how])
            case "show":
                event = EVENTS[how]
                if isinstance(event, TextDelta):
                    self.texts.append(self.count)
                    event = TextDelta(str(len(self.texts) - 1))
                self.feeds.of(RUN)
                self.feeds.shown(event, RUN)
            case "read":
                await self.clients[how[0]].read(self.feeds, how[1])
            case "leave":
                await self.clients[how].leave()
            case _:
                for client in self.clients:
                    await client.leave()
                self.told, self.feeds = watched(self.store)

    async def append(self, entries: list[Entry]) -> None:
        self.feeds.of(RUN)
        results = [one for one in entries if one.kind == "call_result"]
        if results and (self.answered or len(results) > 1):  # a ledger takes one result for each call
            return
        self.answered = self.answered or bool(results)
        await self.told.append(RUN, entries)
        self.count += len(entries)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_who_comes_back_misses_nothing(script: list[tuple[str, Any]]) -> None:
    async def play() -> None:
        world = World(ledger.open("memory"))
        await world.append([entry("run_started")])
        for what, how in script:
            await world.do(what, how)
        await world.append([entry("run_finished")])
        for client in world.clients:
            await client.read(world.feeds, 10_000)
            await client.leave()
            assert client.over
            check(client.seen, world)

    asyncio.run(play())


def check(seen: list[dict[str, Any]], world: World) -> None:
    """The law, and what is promised of previews."""
    entries = [record["data"]["seq"] for record in seen if "seq" in record["data"]]
    assert entries == list(range(1, world.count + 1))
    previews = [tuple(record["id"].split("-")) for record in seen if "seq" not in record["data"]]
    assert len(set(previews)) == len(previews)  # none twice
    numbers = {process: [int(n) for _, p, n in previews if p == process] for _, process, _ in previews}
    for found in numbers.values():
        assert found == sorted(found)
    # A text never comes after the entry that makes it void.
    void = 0
    for record in seen:
        data = record["data"]
        if data.get("kind") in feeds.OF_ANSWER:
            void = data["seq"]
        elif record["event"] == "text":
            assert world.texts[int(data["text"])] >= void


def test_a_follower_that_stays_gets_every_preview_in_its_place() -> None:
    async def play() -> None:
        world = World(ledger.open("memory"))
        await world.append([entry("run_started"), entry("request")])
        [client, *_] = world.clients
        await client.read(world.feeds, 100)
        for word in ("a", "b", "c"):
            world.feeds.shown(TextDelta(word), RUN)
        await client.read(world.feeds, 2)
        await client.leave()  # and comes back in the middle of the answer
        world.feeds.shown(TextDelta("d"), RUN)
        await client.read(world.feeds, 100)
        await world.append([entry("turn"), entry("run_finished")])
        await client.read(world.feeds, 100)
        words = [r["data"]["text"] for r in client.seen if r["event"] == "text"]
        assert words == ["a", "b", "c", "d"]
        assert [r["event"] for r in client.seen[-2:]] == ["turn", "run_finished"]

    asyncio.run(play())


def test_a_follower_that_reads_nothing_holds_a_bounded_queue_and_catches_up() -> None:
    async def play() -> None:
        world = World(ledger.open("memory"))
        await world.append([entry("run_started")])
        [client, *_] = world.clients
        await client.read(world.feeds, 1)
        await client.read(world.feeds, 1)  # it listens
        feed = world.feeds.of(RUN)
        for _ in range(feeds.MAX_QUEUE * 2):
            world.feeds.shown(TextDelta("x"), RUN)
        await world.append([entry("ask")])
        assert all(len(follower.queue) <= feeds.MAX_QUEUE for follower in feed.followers)
        await world.append([entry("turn"), entry("run_finished")])
        await client.read(world.feeds, 10_000)
        assert [r["data"]["seq"] for r in client.seen if "seq" in r["data"]] == [1, 2, 3, 4]

    asyncio.run(play())


def test_what_another_process_writes_is_followed(monkeypatch: Any) -> None:
    monkeypatch.setattr(feeds, "POLL", 0.01)

    async def play() -> None:
        store = ledger.open("memory")
        _, told = watched(store)
        await store.append(RUN, [entry("run_started")])
        found: list[str] = []

        async def follow() -> None:
            async for record in told.follow(RUN, "", 0.02):
                found.append(record.decode().split("\n")[0])

        task = asyncio.create_task(follow())
        while ": " not in found:  # a sign of life
            await asyncio.sleep(0.005)
        await store.append(RUN, [entry("turn"), entry("run_finished")])
        await asyncio.wait_for(task, 5)
        assert [line for line in found if line != ": "] == ["id: 1", "id: 2", "id: 3"]

    asyncio.run(play())


@given(st.one_of(st.text(max_size=30), st.from_regex(r"\d{1,20}(-[a-z0-9]*(-\d*)?)?")))
def test_any_text_is_a_place(last: str) -> None:
    place = Place.of(last, "p")
    assert place.seq >= 0
    assert place.number >= 0
