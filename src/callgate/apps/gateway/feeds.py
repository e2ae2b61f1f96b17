"""What happens in runs, as it happens, for whoever follows them: the journal's entries, and previews between them.

Law: whoever follows a run, leaves and comes back is given every entry of its journal once and in order, whatever became
of the connection or the server meanwhile. (tests/test_gateway_feeds.py::test_who_comes_back_misses_nothing)

Theory of operation. (1) The journal is the truth: its entries are numbered without gaps and survive the process, so an
entry's number is its id. (2) What is not in the journal until later (text while it is written, a call's progress) goes
between the entries as *previews*; a preview's id is that of the entry before it, with the name of this process and a
number behind it. (3) A preview is void as soon as an entry says the same: a `turn` the text, a `call_result` the
progress of its call. Void ones are forgotten, so that who comes later gets only what no entry tells yet. (4) Entries
and previews are told in the order in which they were made: the ledger that an agent is given tells of each append when
it has returned, and an agent shows nothing before it is recorded. (5) A follower that is too slow loses its place in
the queue and not its events: it reads the journal again from where it is.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from callgate.errors import LedgerError
from callgate.events import (
    CallProgress,
    CallStarted,
    Event,
    Retrying,
    dump_event,
)
from callgate.types import CallDelta, Entry, ReasoningDelta, TextDelta

if TYPE_CHECKING:
    from callgate.ledger import Ledger

ANSWER = ""
"""What a preview of the model's answer is about; others are about a call, by its id."""
OF_ANSWER = frozenset({"request", "delta_merged", "turn", "run_started", "run_finished"})
"""Entries after which the previews of an answer are void: it is recorded, or another one was asked for."""
MAX_QUEUE = 2_000
"""What waits for a slow follower before it has to read the journal again."""
POLL = 1.0
"""Seconds between two looks for what another process does in a run."""
CLOSED = "the server is shutting down"


@dataclass(slots=True, frozen=True)
class Preview:
    """Something that no entry tells yet."""

    number: int
    base: int
    """The entry before it."""
    about: str
    data: bytes
    """The record of the event stream, without its id."""


@dataclass(eq=False)
class Follower:
    """What one client has still to be told: previews, and the numbers up to which there are new entries."""

    queue: deque[Preview | int] = field(default_factory=deque)
    more: asyncio.Event = field(default_factory=asyncio.Event)
    lost: bool = False
    """It was too slow, and its queue was given up."""

    def tell(self, item: Preview | int) -> None:
        """One thing more."""
        if len(self.queue) >= MAX_QUEUE:
            self.lost = True
            self.queue.clear()
        if not self.lost:
            self.queue.append(item)
        self.more.set()


@dataclass(eq=False)
class Feed:
    """One run as this process sees it."""

    seq: int = 0
    """The last entry that this process appended; 0: it appended none."""
    made: int = 0
    """Previews so far."""
    previews: list[Preview] = field(default_factory=list)
    followers: set[Follower] = field(default_factory=set)
    expected: list[tuple[Callable[[Sequence[Entry]], bool], asyncio.Future[None]]] = field(default_factory=list)

    def appended(self, entries: Sequence[Entry]) -> None:
        """These entries are in the journal now."""
        self.seq = entries[-1].seq
        kinds = {entry.kind for entry in entries}
        ended = {entry.data["call_id"] for entry in entries if entry.kind == "call_result"}
        void = ended | ({ANSWER} if kinds & OF_ANSWER else set())
        if "run_finished" in kinds:
            self.previews.clear()
        elif void:
            self.previews = [preview for preview in self.previews if preview.about not in void]
        for follower in self.followers:
            follower.tell(self.seq)
        for wanted, future in tuple(self.expected):
            if not future.done() and wanted(entries):
                future.set_result(None)

    def shown(self, event: Event) -> None:
        """The run showed an event; those that an entry tells are not told twice."""
        about = _about(event)
        if about is None:
            return
        self.made += 1
        data = dump_event(event)
        preview = Preview(self.made, self.seq, about, _json_record(str(data["type"]), data))
        if isinstance(event, CallProgress):  # only the last one counts
            self.previews = [
                old for old in self.previews if old.about != about or old.data.startswith(b"event: call_started")
            ]
        self.previews.append(preview)
        for follower in self.followers:
            follower.tell(preview)


class Feeds:
    """The runs that are carried out or followed here."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.process = secrets.token_hex(4)
        """The name of this process in the ids of previews: their numbers mean nothing to another one."""
        self.closed = asyncio.Event()
        """Nothing more will happen here."""
        self._feeds: dict[str, Feed] = {}

    def of(self, run_id: str) -> Feed:
        """The feed of a run."""
        found = self._feeds.get(run_id)
        if found is None:
            found = self._feeds[run_id] = Feed()
        return found

    def release(self, run_id: str) -> None:
        """Nobody carries the run out any more; its feed goes with its last follower."""
        feed = self._feeds.get(run_id)
        if feed is not None:
            feed.previews.clear()
            if not feed.followers and not feed.expected:
                del self._feeds[run_id]

    def appended(self, run_id: str, entries: Sequence[Entry]) -> None:
        """These entries of a run are in the journal now."""
        if entries and (feed := self._feeds.get(run_id)) is not None:
            feed.appended(entries)

    def shown(self, event: Event, run_id: str) -> None:
        """A run showed this event. An agent's `on_event`."""
        if (feed := self._feeds.get(run_id)) is not None:
            feed.shown(event)

    async def expect(self, run_id: str, wanted: Callable[[Sequence[Entry]], bool], task: asyncio.Task[Any]) -> bool:
        """Waits until entries of this kind are appended (True), or the task is over (False)."""
        feed = self.of(run_id)
        happened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        item = (wanted, happened)
        feed.expected.append(item)
        try:
            waits: set[asyncio.Future[Any]] = {happened, task}
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return happened.done()
        finally:
            happened.cancel()
            feed.expected.remove(item)

    # --- following --------------------------------------------------------------------------------------------------

    async def follow(self, run_id: str, last: str, heartbeat: float) -> AsyncIterator[bytes]:
        """The records of an event stream after the one with the id `last`, until the run has ended."""
        place = Place.of(last, self.process)
        feed = self.of(run_id)
        follower = Follower()
        feed.followers.add(follower)
        try:
            async for record in self._records(run_id, feed, follower, place, heartbeat):
                yield record
        finally:
            feed.followers.discard(follower)
            if not feed.followers and not feed.previews and not feed.expected and self._feeds.get(run_id) is feed:
                del self._feeds[run_id]

    async def _records(
        self, run_id: str, feed: Feed, follower: Follower, place: Place, heartbeat: float
    ) -> AsyncIterator[bytes]:
        closed = asyncio.ensure_future(self.closed.wait())
        try:
            follower.lost = True  # it has no place yet
            while not place.ended:
                if follower.lost:
                    async for record in self._caught_up(run_id, feed, follower, place):
                        yield record
                    continue
                if not follower.queue:
                    if closed.done():
                        yield _json_record("closing", {"type": "closing", "reason": CLOSED})
                        return
                    async for record in self._quiet(run_id, follower, place, heartbeat, closed):
                        yield record
                    continue
                item = follower.queue.popleft()
                if isinstance(item, Preview):
                    if item.number > place.number and item.base >= place.seq:
                        place.number = item.number
                        # With the entry that this follower has seen, or it would be given that one again.
                        yield f"id: {place.seq}-{self.process}-{item.number}\n".encode() + item.data
                else:
                    for record in await self._entries(run_id, place, up_to=item):
                        yield record
        finally:
            closed.cancel()

    async def _caught_up(self, run_id: str, feed: Feed, follower: Follower, place: Place) -> AsyncIterator[bytes]:
        """Rule 5. Ends, without a wait, at a moment when all entries are told and the queue is in step with them."""
        while True:
            follower.lost = False
            follower.queue.clear()
            for record in await self._entries(run_id, place):
                yield record
            if feed.seq <= place.seq or place.ended:
                break
        follower.lost = False
        follower.queue.clear()
        for preview in feed.previews:
            follower.queue.append(preview if preview.base >= place.seq else _moved(preview, place.seq))

    async def _quiet(
        self, run_id: str, follower: Follower, place: Place, heartbeat: float, closed: asyncio.Future[Any]
    ) -> AsyncIterator[bytes]:
        """Nothing waits here: another process may carry the run out, and the client wants to know that we live."""
        loop = asyncio.get_running_loop()
        beat = loop.time() + heartbeat
        while not follower.queue and not follower.lost and not closed.done():
            follower.more.clear()
            more = asyncio.ensure_future(follower.more.wait())
            try:
                waits: set[asyncio.Future[Any]] = {more, closed}
                await asyncio.wait(waits, timeout=POLL, return_when=asyncio.FIRST_COMPLETED)
            finally:
                more.cancel()
            if not follower.queue:
                records = await self._entries(run_id, place)
                for record in records:
                    yield record
                if records:
                    return
            if loop.time() >= beat:
                beat = loop.time() + heartbeat
                yield b": \n\n"

    async def _entries(self, run_id: str, place: Place, up_to: int | None = None) -> list[bytes]:
        if up_to is not None and up_to <= place.seq:
            return []
        records: list[bytes] = []
        for entry in await self.ledger.read(run_id, after=place.seq):
            if up_to is not None and entry.seq > up_to:
                break
            records.append(entry_record(entry))
            place.seq = entry.seq
            place.ended = place.ended or has_ended(entry)
        return records


@dataclass
class Place:
    """How far a follower is."""

    seq: int = 0
    number: int = 0
    ended: bool = False
    """The last entry that it was told ends the run."""

    @classmethod
    def of(cls, last: str, process: str) -> Place:
        """From the id of the last record that a client got; what is none begins at the beginning."""
        seq, _, preview = last.partition("-")
        name, _, number = preview.partition("-")
        if not _is_number(seq):
            return cls()
        mine = name == process and _is_number(number)
        return cls(int(seq), int(number) if mine else 0)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 15


class WatchedLedger:
    """A ledger that tells of every append. All else is as the ledger itself."""

    def __init__(self, ledger: Ledger, watch: Callable[[str, Sequence[Entry]], None]) -> None:
        self._ledger = ledger
        self._watch = watch
        self.frozen = False
        """Nothing is recorded any more: what still runs is left to be resumed, as if the process had died."""

    async def append(
        self, run_id: str, entries: Sequence[Entry], *, durable: bool = True, fence: int | None = None
    ) -> list[Entry]:
        """See `Ledger.append`."""
        if self.frozen:
            raise LedgerError(CLOSED)
        written = await self._ledger.append(run_id, entries, durable=durable, fence=fence)
        self._watch(run_id, written)
        return written

    def __getattr__(self, name: str) -> object:
        return getattr(self._ledger, name)


def watched(ledger: Ledger) -> tuple[WatchedLedger, Feeds]:
    """The ledger for the agents, and the feeds that it tells."""
    feeds = Feeds(ledger)
    return WatchedLedger(ledger, feeds.appended), feeds


def as_ledger(watched: WatchedLedger) -> Ledger:
    """With all methods of a ledger, which it passes on."""
    return cast("Ledger", watched)


def has_ended(entry: Entry) -> bool:
    """Whether nothing can follow this entry but settlements."""
    return entry.kind == "run_finished" and entry.data.get("reason") != "waiting"


def entry_json(entry: Entry) -> dict[str, object]:
    """An entry as `callgate runs show --json` prints it."""
    return {"seq": entry.seq, "at": entry.at, "kind": entry.kind, "data": dict(entry.data)}


def entry_record(entry: Entry) -> bytes:
    """An entry as a record of an event stream."""
    return _json_record(entry.kind, entry_json(entry), str(entry.seq))


def _json_record(kind: str, data: dict[str, object], id: str = "") -> bytes:
    # ASCII: no character of a stranger's text can end a line of the stream (HTML, 9.2.6).
    text = json.dumps(data, separators=(",", ":"), default=str)
    head = f"id: {id}\n" if id else ""
    return f"{head}event: {kind}\ndata: {text}\n\n".encode("ascii")


def _moved(preview: Preview, seq: int) -> Preview:
    return Preview(preview.number, seq, preview.about, preview.data)


def _about(event: Event) -> str | None:
    """What a preview of this event would be about; None: an entry tells it."""
    match event:
        case TextDelta() | ReasoningDelta() | CallDelta() | Retrying():
            return ANSWER
        case CallStarted(call_id) | CallProgress(call_id):
            return call_id
        case _:
            return None
