"""Edits the records of an Ollama backend for a client of the same API: `/api/chat` and `/api/generate`.

Law: that of the room (callgate/apps/gateway/__init__.py).

Theory of operation. A record is read by the format's `Loader` and by the lane; if the client may see exactly what
stands in it, it goes on as it came.
1. Calls wait until they are checked. If all of them may go out as they are, so do their records.
2. The record that is `done` waits for the outcome; what else stood in it goes out before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic_core import from_json

from callgate.apps.gateway.lane import Lane, Outcome
from callgate.apps.gateway.shapes import Failure, Make, Value, encoded
from callgate.formats import ollama as api
from callgate.types import CAME, Delta, ReasoningDelta, TextDelta, ToolCall
from callgate.wire import Record

NANO = 1_000_000_000


@dataclass(slots=True, frozen=True)
class Place:
    """Where one of the two APIs has the text of an answer."""

    inner: str | None
    """The object that holds it; None: the record itself."""
    content: str
    """The name of the text; that of the reasoning and of the calls is the same in both."""

    def part(self, value: Value) -> Value:
        """The object with the text."""
        found = value.get(self.inner) if self.inner is not None else value
        return found if isinstance(found, dict) else {}

    def put(self, value: Value, part: Value) -> Value:
        """The record with this object in it."""
        return {**value, self.inner: part} if self.inner is not None else part


CHAT = Place("message", "content")
GENERATE = Place(None, "response")


def line(value: Mapping[str, object]) -> bytes:
    """One record."""
    return encoded(f"{_dumps(value)}\n")


def done_word(outcome: Outcome, raw: str | None) -> str:
    """Ollama's word for an end; the server's own, if it means the same."""
    if outcome.withheld and (outcome.live or not outcome.calls):
        return "content_filter"  # it has no word for an answer of which something was kept back
    if outcome.finish in ("stop", "tool_calls"):
        return raw if raw in ("stop", "load", "unload") else "stop"
    return "length" if outcome.finish in ("error", "interrupted") else outcome.finish


def call_entry(number: int, call: ToolCall) -> Value:
    """One call as an entry of `tool_calls`: its arguments are an object."""
    extra = {key: value for key, value in call.extra.items() if key not in (CAME, "function")}
    function: Value = {"index": number, "name": call.name, "arguments": call.arguments}
    return {"id": call.id, "function": function, **extra}


def texts(visible: Sequence[Delta], place: Place) -> list[Value]:
    """What may be seen, as the texts of as many records as its order needs."""
    out: list[Value] = []
    for delta in visible:
        if isinstance(delta, TextDelta):
            out.append({place.content: delta.text})
        elif isinstance(delta, ReasoningDelta):
            out.append({place.content: "", "thinking": delta.text})
    return out


class Editor:
    """Edits the records of one answer."""

    def __init__(self, make: Make, *, observe: bool, tools: tuple[str, ...], place: Place = CHAT) -> None:
        self._lane = make()
        self.lanes: dict[int, Lane] = {0: self._lane}
        self._loader = api.Loader(tools=tools)
        self._observe = observe
        self._place = place
        self._head: Value = {}
        self._calls: list[tuple[Value, str]] = []
        """Records with calls and nothing else, and how they came; "": they were taken apart."""
        self._held: list[str] = []
        """Text that must fit a schema."""
        self._done: Value | None = None
        self._came = ""
        """The record that is done, as it came; "": it was taken apart."""
        self._tail: list[Delta] = []
        self._whole: Value | None = None
        self.failed: Value | None = None
        self.begun = False

    @property
    def over(self) -> bool:
        """Whether the backend has declared the end."""
        return self._loader.over

    def same(self, piece: bytes) -> bytes | None:
        """Nothing is known by its bytes here."""
        return None

    def feed(self, records: list[Record]) -> bytes:
        """What goes to the client now."""
        out: list[str] = []
        for record in records:
            try:
                value = from_json(record.data, cache_strings="keys")
            except ValueError:
                self._loader.feed(record)
                continue
            if isinstance(value, dict) and not value.get("error"):
                self._record(value, _dumps(value) if "\n" in record.data else record.data, out)
            else:
                self._loader.take(value, record.event)
                self.failed = self.failed or (value if isinstance(value, dict) else None)
        return encoded("".join(f"{text}\n" for text in out)) if out else b""

    def _record(self, value: Value, data: str, out: list[str]) -> None:
        if not self.begun:
            self.begun = True
            self._head = {key: value[key] for key in ("model", "created_at") if key in value}
        if self.over:  # what only some readers see must not be seen at all
            self._loader.take(value)
            return
        deltas = self._loader.take(value)
        visible = self._lane.feed(deltas)
        if self._observe:
            out.append(data)
            return
        part = self._place.part(value)
        done, calls = value.get("done") is True, part.get("tool_calls")
        if not done and not calls and deltas == visible:
            out.append(data)
        elif not done or deltas:
            out += map(_dumps, self._edit({**value, "done": False} if done else value, (deltas, visible), data))
        if done:
            self._ends(value, data, alone=not deltas and not calls)

    def _ends(self, value: Value, data: str, *, alone: bool) -> None:
        """Rule 2. `alone`: nothing else stood in the record."""
        if alone:
            self._done, self._came = value, data
            return
        part = self._place.part(value)
        plain = {key: text for key, text in part.items() if key not in ("thinking", "tool_calls")}
        self._done, self._came = self._place.put(value, {**plain, self._place.content: ""}), ""

    def _edit(self, value: Value, read: tuple[list[Delta], list[Delta]], data: str) -> list[Value]:
        """A record of which not all may be seen as it is."""
        deltas, visible = read
        place, part = self._place, self._place.part(value)
        own = self._own(part)
        if calls := part.get("tool_calls"):
            alone = not any(isinstance(d, (TextDelta, ReasoningDelta)) for d in deltas) and data
            self._calls.append((place.put(value, {**own, place.content: "", "tool_calls": calls}), alone or ""))
        if self._lane.holds_text:
            self._held += [d.text for d in deltas if isinstance(d, TextDelta)]
        return [place.put(value, {**own, **text}) for text in texts(visible, place)]

    def _own(self, part: Value) -> Value:
        """What stands beside the text."""
        place = self._place
        own = {key: v for key, v in part.items() if key not in ("thinking", "tool_calls", place.content)}
        return {key: v for key, v in own.items() if place.inner is not None or key in self._head or key == "done"}

    # --- the end ------------------------------------------------------------------------------------------------------

    def finish(self, error: str | None = None) -> None:
        """The backend's bytes are over; with an error they broke off."""
        deltas = self._loader.finish() if error is None else self._loader.fail(error, interrupted=True)
        self._tail = self._lane.feed(deltas)

    def end(self, outcomes: Mapping[int, Outcome]) -> bytes:
        """What waited, edited, and the end of the stream."""
        if self._observe:
            return b""
        outcome = outcomes[0]
        content = outcome.content
        if content is None and self._lane.holds_text:
            content = self._lane.reply.content
        out = [self._line(text) for text in texts(self._tail, self._place)]
        if content:
            out.append(self._line({self._place.content: content}))
        return b"".join([*out, *self._checked(outcome), self._ended(outcome)])

    def _line(self, part: Value) -> bytes:
        whole: Value = {"role": "assistant", **part} if self._place.inner is not None else part
        return line(self._place.put({**self._head, "done": False}, {**self._rest(), **whole}))

    def _rest(self) -> Value:
        return {} if self._place.inner is not None else {**self._head, "done": False}

    def _checked(self, outcome: Outcome) -> list[bytes]:
        """Rule 1."""
        records = [value for value, _ in self._calls]
        if _calls_of([entry for r in records for entry in _entries(self._place.part(r))], outcome.calls):
            return [encoded(f"{came}\n") if came else line(value) for value, came in self._calls]
        entries = [call_entry(n, call) for n, call in enumerate(outcome.calls)]
        return [self._line({self._place.content: "", "tool_calls": [entry]}) for entry in entries]

    def _ended(self, outcome: Outcome) -> bytes:
        raw = self._lane.reply.raw_finish
        value = self._done or {**self._head, "done": True}
        changed = _ending(value, outcome, raw)
        return encoded(f"{self._came}\n") if self._came and changed is value else line(changed)

    # --- an answer in one piece ---------------------------------------------------------------------------------------

    def take(self, value: Value) -> None:
        """The body of an answer that is not streamed."""
        self._whole = value
        self.begun = True
        if value.get("error"):
            self.failed = value
        self._lane.feed(self._loader.take(value))

    def whole(self, outcomes: Mapping[int, Outcome]) -> Value:
        """The answer that came in one piece, edited; of records that came unasked it is made."""
        if self._observe and self._whole is not None:
            return self._whole
        outcome, reply, place = outcomes[0], self._lane.reply, self._place
        value = self._whole if self._whole is not None else {**self._head, **(self._done or {"done": True})}
        part = place.part(value)
        out = dict(part)
        content = outcome.content if outcome.content is not None else reply.content
        if content != (part.get(place.content) or ""):
            out[place.content] = content
        if reply.reasoning and reply.reasoning != part.get("thinking"):
            out["thinking"] = reply.reasoning
        if not _calls_of(_entries(part), outcome.calls):
            out.pop("tool_calls", None)
            if outcome.calls:
                out["tool_calls"] = [call_entry(n, call) for n, call in enumerate(outcome.calls)]
        return _ending(value if out == part else place.put(value, out), outcome, reply.raw_finish)


def _ending(value: Value, outcome: Outcome, raw: str | None) -> Value:
    """The record that is done, with the true reason, the tokens of all requests and what was mended."""
    given = value.get("done_reason")
    word = done_word(outcome, raw)
    if (given is not None or word != "stop") and outcome.renamed(given, word):
        value = {**value, "done_reason": word}
    if outcome.retries and outcome.usage:
        value = {**value, **counted(outcome)}
    note = outcome.note()
    return {**value, "callgate": note} if note else value


def counted(outcome: Outcome) -> Value:
    """How much was read and written."""
    usage = outcome.usage or {}
    return {"prompt_eval_count": usage.get("input", 0), "eval_count": usage.get("output", 0)}


def took(outcome: Outcome) -> Value:
    """How long it took, in nanoseconds: clients divide tokens by them."""
    whole, first = int(outcome.seconds * NANO), int(outcome.first * NANO)
    return {
        "total_duration": whole,
        "load_duration": 0,
        "prompt_eval_duration": first,
        "eval_duration": max(whole - first, 1),
    }


def ended(outcome: Outcome, raw: str | None) -> Value:
    """The end of an answer."""
    note = outcome.note()
    end: Value = {"done_reason": done_word(outcome, raw), "done": True, **took(outcome), **counted(outcome)}
    return {**end, "callgate": note} if note else end


def when(created: int) -> str:
    """A moment as Ollama writes it."""
    return datetime.fromtimestamp(created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def failure(problem: Failure) -> Value:
    """The body of an error: a text."""
    return {"error": problem.message}


def failure_event(problem: Failure, value: Value | None = None) -> bytes:
    """An error after the first byte of a stream."""
    return line(failure(problem) if value is None else value)


def _entries(part: Value) -> list[object]:
    found = part.get("tool_calls")
    return found if isinstance(found, list) else []


def _calls_of(entries: Sequence[object], calls: Sequence[ToolCall]) -> bool:
    """Whether these entries are these calls; an id that is not there is none that could be wrong."""
    if len(entries) != len(calls):
        return False
    for entry, call in zip(entries, calls, strict=True):
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or not isinstance(function, dict):
            return False
        if entry.get("id") not in (None, "", call.id):
            return False
        if (function.get("name"), function.get("arguments")) != (call.name, call.arguments):
            return False
    return True


def _dumps(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
