"""OpenAI's Responses API, the other way: deltas to its events, a reply to its whole response.

Law: one item is done before the next one is added, and each event carries the next number.
(tests/test_formats_responses_dump.py::test_each_item_is_done_before_the_next_and_events_are_numbered)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from callgate.formats._calls import arguments, dump_arguments
from callgate.formats._ends import CODE, INTERRUPTED, reason_of
from callgate.formats._sequence import InSequence
from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, Reply, TextDelta, ToolCall, Usage

Record = dict[str, object]
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
_NAMES = {"message": "msg", "reasoning": "rs", "function_call": "fc"}


class Dumper:
    """Writes one message as the events that the API would stream."""

    def __init__(self, *, model: str = "", id: str = "resp_0", created: int = 0) -> None:
        self._head = _head(id, model, created)
        self._begun = False
        self._number = 0
        self._done: list[Record] = []
        """The items that are whole."""
        self._open: _Open | None = None
        self._sequence = InSequence()

    def start(self) -> list[Record]:
        """The records that open the message; none if it is open."""
        if self._begun:
            return []
        self._begun = True
        response = self._response("in_progress")
        return [self._event(f"response.{word}", response=response) for word in ("created", "in_progress")]

    def feed(self, deltas: Iterable[Delta]) -> list[Record]:
        """The events for these deltas, ready for JSON."""
        out: list[Record] = []
        for delta in self._sequence.feed(deltas):
            out += self.start()
            match delta:
                case TextDelta(text):
                    out += self._grow("message", -1, {"content": [], "role": "assistant"}, text)
                case ReasoningDelta(text):
                    out += self._grow("reasoning", -1, {"summary": []}, text)
                case CallDelta(index, call_id, name, text):
                    fields: Record = {"arguments": "", "call_id": call_id or "", "name": name or ""}
                    out += self._grow("function_call", index, fields, text)
                case ToolCall() | BadCall():
                    out += self._close(delta if isinstance(delta, ToolCall) else None)
                case Finish():
                    out += [*self._close(), self._ended(delta)]
        return out

    def _event(self, kind: str, **fields: object) -> Record:
        self._number += 1
        return {"type": kind, "sequence_number": self._number - 1, **fields}

    def _response(self, status: str, **fields: object) -> Record:
        return {**self._head, "status": status, "output": list(self._done), **fields}

    # --- items ----------------------------------------------------------------------------------------------------

    def _grow(self, kind: str, call: int, fields: Record, text: str) -> list[Record]:
        """More of the item that is open; another one is done first."""
        out: list[Record] = []
        if self._open is None or (self._open.kind, self._open.call) != (kind, call):
            out = self._close()
            number = len(self._done)
            self._open = _Open(kind, call, number, f"{_NAMES[kind]}_{self._head['id']}_{number}", fields)
            item = {**self._open.item("in_progress")}
            out.append(self._event("response.output_item.added", output_index=number, item=item))
            out += [self._event(name, **rest) for name, rest in self._open.part("added", "")]
        if text:
            self._open.texts.append(text)
            name, place = self._open.stream()
            more: Record = {"logprobs": []} if kind == "message" else {}
            out.append(self._event(f"{name}.delta", **place, delta=text, **more))
        return out

    def _close(self, call: ToolCall | None = None) -> list[Record]:
        """The open item is whole. A call whose fragments were void has the arguments of the call."""
        item, self._open = self._open, None
        if item is None:
            return []
        text = "".join(item.texts)
        if call is not None and item.call == call.index and arguments(text)[0] != call.arguments:
            text = dump_arguments(call.arguments)
        item.fill(text)
        name, place = item.stream()
        key = "arguments" if item.kind == "function_call" else "text"
        more: Record = {"logprobs": []} if item.kind == "message" else {}
        out = [self._event(f"{name}.done", **place, **{key: text}, **more)]
        out += [self._event(name, **rest) for name, rest in item.part("done", text)]
        whole = item.item("completed")
        self._done.append(whole)
        return [*out, self._event("response.output_item.done", output_index=item.number, item=whole)]

    def _ended(self, finish: Finish) -> Record:
        status, fields = _end(finish.reason, finish.raw, finish.error)
        response = self._response(status, **fields, usage=dump_usage(finish.usage))
        return self._event(f"response.{status}", response=response)


class _Open:
    """The item that is being written."""

    def __init__(self, kind: str, call: int, number: int, id: str, fields: Record) -> None:
        self.kind = kind
        self.call = call
        self.number = number
        self.texts: list[str] = []
        self._id = id
        self._fields = fields

    def item(self, status: str) -> Record:
        """The item; reasoning has no status of its own in this API."""
        state: Record = {} if self.kind == "reasoning" else {"status": status}
        return {"id": self._id, "type": self.kind, **state, **self._fields}

    def fill(self, text: str) -> None:
        """All of its text."""
        match self.kind:
            case "message":
                self._fields["content"] = [_part(self.kind, text)]
            case "reasoning":
                self._fields["summary"] = [_part(self.kind, text)]
            case _:
                self._fields["arguments"] = text

    def stream(self) -> tuple[str, Record]:
        """The name of the events of its text, and how they name their place."""
        place: Record = {"item_id": self._id, "output_index": self.number}
        match self.kind:
            case "message":
                return "response.output_text", {**place, "content_index": 0}
            case "reasoning":
                return "response.reasoning_summary_text", {**place, "summary_index": 0}
        return "response.function_call_arguments", place

    def part(self, event: str, text: str) -> list[tuple[str, Record]]:
        """The event of its one part; a call has none."""
        name = {"message": "content_part", "reasoning": "reasoning_summary_part"}.get(self.kind)
        return [(f"response.{name}.{event}", {**self.stream()[1], "part": _part(self.kind, text)})] if name else []


def _part(kind: str, text: str) -> Record:
    if kind == "reasoning":
        return {"type": "summary_text", "text": text}
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


# --- responses ----------------------------------------------------------------------------------------------------


def _head(id: str, model: str, created: int) -> Record:
    """What the official client wants of every response, whatever was asked."""
    return {
        "id": id,
        "object": "response",
        "created_at": created,
        "model": model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
        "usage": None,
    }


def _end(reason: str, raw: str | None, error: str | None) -> tuple[str, Record]:
    """The status of a response, and the fields that say why."""
    if reason == "interrupted":
        # the API's errors have a code of a closed list; that it was cut off stands in the type
        return "failed", {"error": {"code": "server_error", "type": CODE, "message": error or INTERRUPTED}}
    if reason == "error":
        return "failed", {"error": {"code": "server_error", "message": error or "the model failed"}}
    if (words := _REASONS.get(reason)) is None:
        return "completed", {}
    own = raw if raw in ("max_output_tokens", "max_messages") and reason_of(raw)[0] == reason else words
    return "incomplete", {"incomplete_details": {"reason": own}}


def dump_usage(usage: Usage | None) -> Record | None:
    """Token counts by the API's names."""
    if not usage:
        return None
    put, got = usage.get("input", 0), usage.get("output", 0)
    return {
        "input_tokens": put,
        "input_tokens_details": {
            "cached_tokens": usage.get("cached", 0),
            "cache_write_tokens": usage.get("cache_written", 0),
        },
        "output_tokens": got,
        "output_tokens_details": {"reasoning_tokens": usage.get("reasoning", 0)},
        "total_tokens": put + got,
    }


def dump_whole(reply: Reply, *, model: str = "", id: str = "resp_0", created: int = 0) -> dict[str, object]:
    """A reply as the body of an answer that is not streamed; a failed one is the API's error."""
    status, fields = _end(reply.finish, reply.raw_finish, reply.error)
    if status == "failed":
        return {"error": {"type": "server_error", "param": None, **_error(fields)}}
    items = _Items(id)
    if reply.reasoning:
        items.add("reasoning", {}, reply.reasoning)
    if reply.content:
        items.add("message", {"role": "assistant"}, reply.content)
    for call in reply.calls:
        items.add("function_call", {"call_id": call.id, "name": call.name}, dump_arguments(call.arguments))
    usage = dump_usage(reply.usage)
    return {**_head(id, model, created), "status": status, "output": items.all, **fields, "usage": usage}


def _error(fields: Record) -> Record:
    error = fields["error"]
    return dict(error) if isinstance(error, Mapping) else {}


class _Items:
    """The items of a whole response."""

    def __init__(self, id: str) -> None:
        self._id = id
        self.all: list[Record] = []

    def add(self, kind: str, fields: Record, text: str) -> None:
        """The next item."""
        number = len(self.all)
        item = _Open(kind, -1, number, f"{_NAMES[kind]}_{self._id}_{number}", dict(fields))
        item.fill(text)
        self.all.append(item.item("completed"))
