"""Edits the events of a Messages API backend for a client of the same API.

Law: that of the room (callgate/apps/gateway/__init__.py).

Theory of operation. An event is read by the format's `Loader` and by the lane; if the client may see exactly what
stands in it, it goes on as it came, but for the number of its block.
1. A block is begun when something of it may be seen, and ended when the next one begins: one is closed before the next
   opens, and text that might have begun a call still has its place when it turns out to be text.
2. From the first call on everything waits until the calls are checked: what follows them has a later number. If they
   may all go out as they are, so do their events.
3. `message_delta` and `message_stop` wait for the outcome.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from callgate.apps.gateway.lane import Lane, Outcome
from callgate.apps.gateway.shapes import Make, Value, encoded
from callgate.formats import anthropic as api
from callgate.types import CAME, SOUND, CallDelta, Delta, ReasoningDelta, Reply, TextDelta, ToolCall
from callgate.wire import Record

TEXT: Value = {"type": "text", "text": ""}
THINKING: Value = {"type": "thinking", "thinking": "", "signature": ""}
_BLOCKS = frozenset({"content_block_start", "content_block_delta", "content_block_stop"})
_LAST = frozenset({"message_delta", "message_stop"})


def event(value: Mapping[str, object], data: str = "") -> bytes:
    """One event, named after its type; `data` is its text, if it goes on as it came."""
    text = data if data and "\n" not in data else _dumps(value)
    return encoded(f"event: {value.get('type')}\ndata: {text}\n\n")


def stop_word(outcome: Outcome, raw: str | None, *, own: bool = False) -> str:
    """The API's word for an end; the server's, if it is true. `own`: the server speaks this API, and knows words that
    no other one has (`pause_turn`: the client carries on)."""
    if outcome.withheld and (outcome.live or not outcome.calls):
        return api.word("content_filter", None)
    if own and outcome.finish not in SOUND and raw is not None:
        return raw
    return api.word("length" if outcome.finish in ("error", "interrupted") else outcome.finish, raw)


def tool_use(call: ToolCall) -> Value:
    """One call as a block."""
    extra = {key: value for key, value in call.extra.items() if key not in (CAME, "function")}
    return {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments, **extra}


class Blocks:
    """Numbers the blocks that the client sees (rule 1)."""

    def __init__(self) -> None:
        self._open: object = None
        self._count = 0
        self._stops: dict[object, tuple[Value, str]] = {}
        """How the end of a block came."""
        self.begun: set[object] = set()

    def number(self, value: Value, data: str) -> bytes:
        """An event of the open block."""
        if value.get("index") == self._count:
            return event(value, data)
        return event({**value, "index": self._count})

    def open(self, key: object, start: tuple[Value, str]) -> bytes:
        """The block of this key, begun if it is not the open one."""
        if self._open == key:
            return b""
        out = self.close()
        self._open = key
        self.begun.add(key)
        return out + self.number(*start)

    def stopped(self, key: object, value: Value, data: str) -> None:
        """The backend has ended this block."""
        self._stops[key] = (value, data)

    def close(self) -> bytes:
        """The open block, ended."""
        if self._open is None:
            return b""
        value, data = self._stops.pop(self._open, ({"type": "content_block_stop"}, ""))
        out = self.number(value, data)
        self._open = None
        self._count += 1
        return out

    def write(self, key: object, kind: Value, delta: Value) -> bytes:
        """More of a block of our own, or of one whose event had to be changed."""
        start: Value = {"type": "content_block_start", "index": -1, "content_block": kind}
        return self.open(key, (start, "")) + self.number({"type": "content_block_delta", "delta": delta}, "")

    def write_call(self, call: ToolCall) -> bytes:
        """A whole call."""
        delta: Value = {"type": "input_json_delta", "partial_json": json.dumps(call.arguments, ensure_ascii=False)}
        return self.write(("call", call.id), {**tool_use(call), "input": {}}, delta) + self.close()


class Editor:
    """Edits the events of one answer."""

    def __init__(self, make: Make, *, observe: bool, tools: tuple[str, ...]) -> None:
        self._lane = make()
        self.lanes: dict[int, Lane] = {0: self._lane}
        self._loader = api.Loader(tools=tools)
        self._observe = observe
        self._blocks = Blocks()
        self._starts: dict[object, tuple[Value, str]] = {}
        self._changed: set[object] = set()
        """Blocks of which not all may be seen as it came."""
        self._held: list[tuple[Value, str, list[Delta]]] | None = None
        """Rule 2: the events, how they came, what of them may be seen."""
        self._last: list[tuple[Value, str]] = []
        """Rule 3."""
        self._tail: list[Delta] = []
        self._message: Value = {}
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
        out: list[bytes] = []
        for record in records:
            try:
                value = from_json(record.data, cache_strings="keys")
            except ValueError:
                self._loader.feed(record)
                continue
            kind = value.get("type") if isinstance(value, dict) else None
            if kind is None or kind == "error" or value.get("error"):
                self._loader.take(value, record.event)
                if isinstance(value, dict) and (kind == "error" or value.get("error")):
                    self.failed = self.failed or value
            elif not self.over:
                out.append(self._event(str(kind), value, record.data))
        return b"".join(out)

    def _event(self, kind: str, value: Value, data: str) -> bytes:
        deltas = self._loader.take(value)
        self.begun = self.begun or kind != "ping"
        if kind in _BLOCKS:
            visible = self._lane.feed(deltas)
            return event(value, data) if self._observe else self._block(kind, value, data, (deltas, visible))
        if kind == "message_start":
            self._message = _dict(value.get("message"))
        if kind in _LAST and not self._observe:
            self._last.append((value, data))
            return b""
        return event(value, data)

    def _block(self, kind: str, value: Value, data: str, read: tuple[list[Delta], list[Delta]]) -> bytes:
        """An event of a block."""
        deltas, visible = read
        key = _key(value)
        if kind == "content_block_start":
            self._starts[key] = (value, data)
            if _type(value) == "tool_use" and self._held is None and not self._lane.is_live:
                self._held = []
        if deltas != visible and (self._held is None or _type(self._starts.get(key, ({}, ""))[0]) != "tool_use"):
            self._changed.add(key)
        if self._held is not None:
            self._held.append((value, data, visible))
            return b""
        return self._flow(kind, value, data, read)

    def _flow(self, kind: str, value: Value, data: str, read: tuple[list[Delta], list[Delta]]) -> bytes:
        """What may be seen of an event."""
        deltas, visible = read
        key = _key(value)
        start = self._starts.get(key) or ({"type": "content_block_start", "content_block": TEXT}, "")
        if kind == "content_block_stop":
            # A block that was empty as it came stays one; one of which nothing is left does not.
            out = b"" if key in self._blocks.begun or key in self._changed else self._blocks.open(key, start)
            self._blocks.stopped(key, value, data)
            return out
        if deltas != visible:
            return self._write(key, visible)
        if kind == "content_block_delta":
            return self._blocks.open(key, start) + self._blocks.number(value, data)
        return b"" if _type(value) == "text" and not deltas else self._blocks.open(key, start)

    def _write(self, key: object, visible: Sequence[Delta]) -> bytes:
        """What may be seen, in blocks of its kinds."""
        out = []
        for delta in visible:
            if isinstance(delta, TextDelta):
                out.append(self._blocks.write(key, TEXT, {"type": "text_delta", "text": delta.text}))
            elif isinstance(delta, ReasoningDelta):
                thought: Value = {"type": "thinking_delta", "thinking": delta.text}
                out.append(self._blocks.write(("thinking", key), THINKING, thought))
            elif isinstance(delta, CallDelta):
                block: Value = {"type": "tool_use", "id": delta.id or "", "name": delta.name or "", "input": {}}
                part: Value = {"type": "input_json_delta", "partial_json": delta.arguments}
                out.append(self._blocks.write(("call", delta.index), block, part))
        return b"".join(out)

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
        key = next((k for k in reversed(self._starts) if _type(self._starts[k][0]) == "text"), "text")
        live = outcome.live and not outcome.retries
        out = [self._write(key, [d for d in self._tail if live or not isinstance(d, CallDelta)])]
        if content:
            out.append(self._write(key, [TextDelta(content)]))
        out += self._waited(outcome)
        return b"".join([*out, self._blocks.close(), *self._ended(outcome)])

    def _waited(self, outcome: Outcome) -> list[bytes]:
        """Rule 2."""
        held = self._held or []
        mine = {k for k, (start, _) in self._starts.items() if _type(start) == "tool_use"}
        as_they_came = _calls_of(held, mine) == [(c.id, c.name, c.arguments) for c in outcome.calls]
        out = []
        for value, data, visible in held:
            key = _key(value)
            if key in self._changed:
                out.append(self._write(key, visible))
            elif key not in mine or as_they_came:
                read: tuple[list[Delta], list[Delta]] = ([], [])
                out.append(self._flow(str(value["type"]), value, data, read))
        if as_they_came or (outcome.live and not outcome.retries):
            return out
        return [*out, *map(self._blocks.write_call, outcome.calls)]

    def _ended(self, outcome: Outcome) -> list[bytes]:
        """Rule 3."""
        last = self._last
        if not any(value.get("type") == "message_delta" for value, _ in last):
            last = [({"type": "message_delta", "delta": {}, "usage": {"output_tokens": 0}}, ""), *last]
        if not any(value.get("type") == "message_stop" for value, _ in last):
            last = [*last, ({"type": "message_stop"}, "")]
        place = max(n for n, (value, _) in enumerate(last) if value.get("type") == "message_delta")
        out = []
        for n, (value, data) in enumerate(last):
            changed = self._delta(value, outcome) if n == place else value
            out.append(event(changed, data if changed is value else ""))
        return out

    def _delta(self, value: Value, outcome: Outcome) -> Value:
        """The event with the true reason, the tokens of all requests and what was mended."""
        delta, word = _dict(value.get("delta")), stop_word(outcome, self._lane.reply.raw_finish, own=True)
        if outcome.renamed(delta.get("stop_reason"), word):
            value = {**value, "delta": {"stop_sequence": None, **delta, "stop_reason": word}}
        return _noted(value, outcome)

    # --- an answer in one piece ---------------------------------------------------------------------------------------

    def take(self, value: Value) -> None:
        """The body of an answer that is not streamed."""
        self._message = value
        self.begun = True
        if value.get("type") == "error" or value.get("error"):
            self.failed = value
        self._lane.feed(self._loader.take(value))

    def whole(self, outcomes: Mapping[int, Outcome]) -> Value:
        """The answer that came in one piece, edited; of events that came unasked it is made."""
        outcome, reply, value = outcomes[0], self._lane.reply, self._message
        if self._observe and value.get("content"):
            return value
        for late, _ in self._last:
            if late.get("type") == "message_delta":
                used = {"usage": {**_dict(value.get("usage")), **_dict(late.get("usage"))}}
                value = {**value, **_dict(late.get("delta")), **used}
        given = value.get("content")
        blocks = _blocks(given if isinstance(given, list) else [], reply, outcome)
        out = value if blocks == given else {**value, "content": blocks}
        word = stop_word(outcome, reply.raw_finish, own=True)
        if outcome.renamed(value.get("stop_reason"), word):
            out = {**out, "stop_reason": word}
        return _noted(out, outcome)


def _noted(value: Value, outcome: Outcome) -> Value:
    usage = value.get("usage")
    if outcome.retries and outcome.usage:
        value = {**value, "usage": {**_dict(usage), **api.dump_usage(outcome.usage)}}
    note = outcome.note()
    return {**value, "callgate": note} if note else value


def _blocks(given: list[object], reply: Reply, outcome: Outcome) -> list[object]:
    """The blocks of a whole answer, with only what was mended changed."""
    content = outcome.content if outcome.content is not None else reply.content
    written = content == _joined(given, "text", "text")
    called = _called(given) == [(call.id, call.name, call.arguments) for call in outcome.calls]
    gone = {kind for kind, kept in (("text", written), ("tool_use", called)) if not kept}
    out = [block for block in given if _kind(block) not in gone]
    if reply.reasoning and not _joined(given, "thinking", "thinking"):
        out.insert(0, {**THINKING, "thinking": reply.reasoning})
    if content and not written:
        # Before the first call: the API's own models write their text there.
        place = next((n for n, block in enumerate(out) if _kind(block) == "tool_use"), len(out))
        out.insert(place, {**TEXT, "text": content})
    return out if called else [*out, *map(tool_use, outcome.calls)]


def _kind(block: object) -> str:
    return str(_dict(block).get("type"))


def _key(value: Value) -> object:
    """What the block of an event is known by: its number; whatever else came in its place, as text."""
    index = value.get("index")
    return index if isinstance(index, int) else repr(index)


def _joined(blocks: list[object], kind: str, field: str) -> str:
    """The texts of all blocks of one kind."""
    return "".join(str(_dict(block).get(field) or "") for block in blocks if _kind(block) == kind)


def _called(blocks: list[object]) -> list[tuple[object, object, object]]:
    calls = [_dict(block) for block in blocks if _kind(block) == "tool_use"]
    return [(call.get("id"), call.get("name"), call.get("input")) for call in calls]


def _calls_of(held: Sequence[tuple[Value, str, list[Delta]]], mine: set[object]) -> list[tuple[object, object, object]]:
    """(id, name, input) of the calls as any client puts them together."""
    found: dict[object, tuple[Value, list[str]]] = {}
    for value, _, _ in held:
        key = _key(value)
        if key not in mine:
            continue
        if value.get("type") == "content_block_start":
            found[key] = (_dict(value.get("content_block")), [])
        elif key in found:
            found[key][1].append(str(_dict(value.get("delta")).get("partial_json") or ""))
    out: list[tuple[object, object, object]] = []
    for block, pieces in found.values():
        try:
            arguments = json.loads("".join(pieces)) if any(pieces) else block.get("input")
        except (ValueError, RecursionError):
            arguments = None
        out.append((block.get("id"), block.get("name"), arguments))
    return out


def _type(start: Value) -> object:
    return _dict(start.get("content_block")).get("type")


def _dict(value: object) -> Value:
    return value if isinstance(value, dict) else {}


def _dumps(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
