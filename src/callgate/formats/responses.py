"""OpenAI's Responses API, streamed or whole; servers that imitate it are read, too.

Law: a call is what one `function_call` item held, whole, and only a completed response has calls.
(tests/test_formats_responses.py::test_the_stream_becomes_the_message)

A response is a list of items; events name an item by its place in that list. Items of kinds that callgate does not read
(the server's own tools, kinds that are newer than this code) are kept whole in the message's layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callgate.formats._calls import Calls
from callgate.formats._ends import End, raw_of, usage_of
from callgate.formats._json import parse
from callgate.formats._layout import kept
from callgate.formats._responses_dump import Dumper, dump_whole
from callgate.formats._responses_in import load_request
from callgate.formats._responses_item import Item
from callgate.formats._responses_out import ITEMS, accept, build
from callgate.types import Delta, ToolCall, Usage
from callgate.wire import SSE, Record, dump_sse

__all__ = ["END", "Dumper", "Loader", "accept", "build", "dump_whole", "frame", "framing", "load_request"]

framing = SSE
END = b""
"""`response.completed` is a record like the others."""
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_USAGE = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "cached": ("input_tokens_details", "cached_tokens"),
    "cache_written": ("input_tokens_details", "cache_write_tokens"),
    "reasoning": ("output_tokens_details", "reasoning_tokens"),
}
_ALWAYS = frozenset({"input", "output"})
"""Counts that are told also where they are 0; the API must give all of them."""
_DELTAS = frozenset({"response.output_text.delta", "response.refusal.delta"})
_THOUGHTS = {"response.reasoning_text.delta": "content", "response.reasoning_summary_text.delta": "summary"}


def frame(value: Mapping[str, Any]) -> bytes:
    """One record as an event, which has the name of its type."""
    return dump_sse(Record(json.dumps(value, ensure_ascii=False), str(value.get("type") or "message")))


class Loader:
    """Reads the records of one message.

    Theory of operation.
    1. The end is sound if the server said `response.completed`; `response.incomplete` says why it stopped, and an error
       anywhere makes it an error. A stream without one of these was cut off.
    2. An item's deltas go to the item of their place; what comes after the end does not count.
    3. Text, arguments and reasoning come as deltas, then once more whole (`….done`, the item's own `done`, the response
       at the end). What is whole counts only for an item of which no delta came: imitators leave either out.
    4. Whatever must go back (encrypted reasoning, the server's own tools) goes into the layout as it stands in the
       item's `done`; a problem names each kind that is not shown.
    """

    def __init__(self, *, tools: tuple[str, ...] = ()) -> None:
        self.other_choices: dict[int, list[ToolCall]] = {}
        self._calls = Calls(tools)
        self._items: dict[int, Item] = {}
        self._end = End()
        self._usage: Usage | None = None

    @property
    def over(self) -> bool:
        """Whether the server has declared the end."""
        return self._end.done

    def feed(self, record: Record) -> list[Delta]:
        """The deltas of one record."""
        try:
            value = parse(record.data)
        except (ValueError, RecursionError):
            self._end.unreadable(record)
            return []
        return self.take(value, record.event)

    def take(self, value: Any, event: str = "") -> list[Delta]:
        """The same for a record that is parsed already."""
        if not isinstance(value, dict):
            self._end.note(f"a record that is no object was ignored: {str(value)[:80]}")
            return []
        kind = str(value.get("type") or event)
        if value.get("object") == "response" and not kind.startswith("response."):
            return [] if self._end.done else self._ended(value)
        if kind == "error" or event == "error" or value.get("error"):
            self._end.fail(value)
            return []
        if self._end.done:  # rule 2
            if kind.endswith((".delta", "output_item.added")):
                self._end.note("text or calls after the end of the response were dropped")
            return []
        if kind in _ENDS:
            return self._ended(value.get("response"), kind.removeprefix("response."))
        return self._event(kind, value)

    def _event(self, kind: str, value: Mapping[str, Any]) -> list[Delta]:
        """An event of an item; those that only repeat what came, or tell of the server's own tools, say nothing."""
        delta = value.get("delta")
        if kind in _DELTAS:
            return self._at(value, "message").text(delta, refused="refusal" in kind)
        if (key := _THOUGHTS.get(kind)) is not None:
            part = value.get("summary_index" if key == "summary" else "content_index")
            return self._at(value, "reasoning").thought(delta, key, part)
        match kind:
            case "response.function_call_arguments.delta":
                return self._at(value, "function_call").arguments(delta)
            case "response.function_call_arguments.done":
                return self._at(value, "function_call").whole_arguments(value.get("arguments"))
            case "response.output_item.added":
                return self._item(value.get("output_index"), value.get("item"), done=False)
            case "response.output_item.done":
                return self._item(value.get("output_index"), value.get("item"), done=True)
            case _ if not kind.startswith("response.") and kind not in ("keepalive", "ping"):
                self._end.note(f"a record of the unknown type {kind[:40]!r} was ignored")
        return []

    def _at(self, value: Mapping[str, Any], kind: str) -> Item:
        """The item that an event names; one of which nothing was said begins with it."""
        place = value.get("output_index")
        number = place if isinstance(place, int) else max(self._items, default=0)
        if number not in self._items:
            self._items[number] = Item(number, {"type": kind}, self._calls, self._end)
        return self._items[number]

    def _item(self, place: object, raw: object, *, done: bool) -> list[Delta]:
        """An item as it begins, or whole."""
        if not isinstance(raw, dict):
            return []
        number = place if isinstance(place, int) else len(self._items)
        item = self._items.get(number)
        out: list[Delta] = []
        if item is None:
            item = self._items[number] = Item(number, raw, self._calls, self._end)
            out = item.begin()
        return [*out, *item.done(raw)] if done else out

    def _ended(self, response: object, word: str = "") -> list[Delta]:
        """The response at its end, or one that is not streamed."""
        fields = response if isinstance(response, dict) else {}
        output = fields.get("output")
        out: list[Delta] = []
        for number, raw in enumerate(output if isinstance(output, list) else ()):
            if number not in self._items or not self._items[number].over:  # rule 3
                out += self._item(number, raw, done=True)
        self._count(fields.get("usage"))
        self._say(raw_of(fields.get("status")) or word or "completed", fields)
        self._end.done = True
        return out

    def _say(self, status: str, response: Mapping[str, Any]) -> None:
        """Why the response ended; one that is completed with an item that is not is no sound end."""
        if status == "completed" and any(item.cut for item in self._items.values()):
            status = "incomplete"
        if (error := response.get("error")) or status == "failed":
            self._end.fail(error or f"the server ended the answer with {status!r}")
            return
        details = response.get("incomplete_details")
        reason = raw_of(details.get("reason")) if isinstance(details, dict) else None
        self._end.say(status if status == "completed" else reason or status)

    def _count(self, usage: object) -> None:
        if isinstance(usage, dict) and (found := usage_of(usage, _USAGE)):
            self._usage = {key: n for key, n in found.items() if n or key in _ALWAYS}

    # --- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> list[Delta]:
        """The stream is over: each call's `ToolCall` or `BadCall`, then the `Finish`."""
        items = [self._items[number] for number in sorted(self._items)]
        layout = kept(ITEMS, [item.entry() for item in items if item.goes_back])
        return self._end.settle(self._calls, usage=self._usage, came=layout, stop="[DONE]")

    def fail(self, error: str, *, interrupted: bool = False) -> list[Delta]:
        """The stream broke: like `finish`, with this error. After a sound end it is only a problem."""
        return self._end.broken(error, self.finish, interrupted=interrupted)
