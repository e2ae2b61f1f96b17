"""Anthropic's Messages API, streamed or whole; servers that imitate it are read, too.

Law: a call is what one `tool_use` block held, whole, and what the API wants back goes back unchanged.
(tests/test_formats_anthropic.py::test_the_stream_becomes_the_message)

A message is a sequence of blocks; events name a block by its index. Blocks of kinds that callgate does not read (the
server's own tools and their results, kinds that are newer than this code) are kept whole in the message's layout.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from callgate.formats._anthropic_in import load_request
from callgate.formats._anthropic_out import BLOCKS, Dumper, accept, build, dump_usage, dump_whole, word
from callgate.formats._calls import Calls
from callgate.formats._ends import End, raw_of, usage_of
from callgate.formats._json import parse
from callgate.formats._layout import CALL, TEXT, kept
from callgate.types import Delta, ReasoningDelta, TextDelta, ToolCall, Usage
from callgate.wire import SSE, Record, dump_sse

__all__ = [
    "END",
    "Dumper",
    "Loader",
    "accept",
    "build",
    "dump_usage",
    "dump_whole",
    "frame",
    "framing",
    "load_request",
    "word",
]

framing = SSE
END = b""
"""`message_stop` is a record like the others."""
_SILENT = frozenset({"ping", "content_block_stop"})
_READ = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})
_SIGNED = frozenset({"thinking", "redacted_thinking"})
_USAGE = {
    "input": ("input_tokens",),
    "output": ("output_tokens",),
    "cached": ("cache_read_input_tokens",),
    "written": ("cache_creation_input_tokens",),
    "reasoning": ("output_tokens_details", "reasoning_tokens"),
}


def frame(value: Mapping[str, Any]) -> bytes:
    """One record as an event, which has the name of its type."""
    return dump_sse(Record(json.dumps(value, ensure_ascii=False), str(value.get("type") or "message")))


def _key(event: Mapping[str, Any]) -> int | str:
    """The index by which an event names its block; one of a wrong type is still a name."""
    index = event.get("index")
    return index if isinstance(index, int) else repr(index)[:40]


class _Block:
    """One block as it grows."""

    __slots__ = ("chars", "given", "json", "number", "raw")

    def __init__(self, raw: dict[str, Any], number: int) -> None:
        self.raw = raw
        self.number = number
        self.chars = 0
        self.json: list[str] = []
        """Fragments of the input of a block that is not ours."""
        self.given: Any = raw.get("input") if raw.get("type") == "tool_use" else None
        """The input in the block's start: whole where the answer is not streamed, else a placeholder."""


class Loader:
    """Reads the records of one message.

    Theory of operation.
    1. The end is sound if the server gave a `stop_reason` of a sound kind, or `message_stop` after whole calls; an
       `error` event makes it an error, whatever came before.
    2. A block's deltas go to the block of their index; after `message_stop` nothing of the message comes any more.
    3. The input of a `tool_use` block comes as fragments; one that stands in the block's start counts only if no
       fragment follows (answers that are not streamed, and imitators).
    4. Whatever must go back (signatures, encrypted blocks, the server's tools) goes into the layout; a problem names
       each kind that is not shown.
    """

    def __init__(self, *, tools: tuple[str, ...] = ()) -> None:
        self.other_choices: dict[int, list[ToolCall]] = {}
        self._calls = Calls(tools)
        self._blocks: dict[int | str, _Block] = {}
        self._order: list[_Block] = []
        self._end = End()
        self._usage: dict[str, Any] = {}

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
        if kind == "error" or event == "error" or (value.get("error") and kind != "message"):
            self._end.fail(value)
            return []
        if self._end.done:  # rule 2
            if kind in ("content_block_start", "content_block_delta"):
                self._end.note("text or calls after message_stop were dropped")
            return []
        return self._event(kind, value)

    def _event(self, kind: str, value: Mapping[str, Any]) -> list[Delta]:
        """One event of a message that has not ended."""
        match kind:
            case "content_block_delta":
                return self._delta(value)
            case "content_block_start":
                return self._start(value)
            case "message_start":
                return self._message(value.get("message"))
            case "message":
                return self._message(value, whole=True)
            case "content_block_stop":
                return self._stop(self._blocks.get(_key(value)))
            case "message_delta":
                self._message_delta(value)
            case "message_stop":
                self._end.done = True
            case _ if kind not in _SILENT:
                self._end.note(f"a record of the unknown type {kind[:40]!r} was ignored")
        return []

    def _message(self, message: Any, *, whole: bool = False) -> list[Delta]:
        """A message's head, or the whole of one that is not streamed."""
        if not isinstance(message, dict):
            return []
        out: list[Delta] = []
        content = message.get("content")
        for n, block in enumerate(content if isinstance(content, list) else ()):
            out += self._start({"index": n, "content_block": block})
            out += self._stop(self._blocks.get(n))
        self._count(message.get("usage"))
        self._end.say(raw_of(message.get("stop_reason")))
        self._end.done = self._end.done or whole
        return out

    def _message_delta(self, value: Mapping[str, Any]) -> None:
        delta = value.get("delta")
        if isinstance(delta, dict):
            self._end.say(raw_of(delta.get("stop_reason")))
            self._refused(delta.get("stop_details"))
        self._count(value.get("usage"))

    def _refused(self, details: Any) -> None:
        """Why the model's answer was stopped, in the server's words."""
        if isinstance(details, dict) and (why := details.get("explanation") or details.get("category")):
            self._end.note(f"the model refused: {str(why)[:300]}")

    def _count(self, usage: Any) -> None:
        """Counts are totals so far; those of the head are a beginning."""
        if isinstance(usage, dict):
            self._usage |= {key: value for key, value in usage.items() if value is not None}

    # --- blocks ---------------------------------------------------------------------------------------------------

    def _start(self, value: Mapping[str, Any]) -> list[Delta]:
        raw = value.get("content_block")
        if not isinstance(raw, dict):
            return []
        block = _Block(dict(raw), len(self._order))
        self._blocks[_key(value)] = block
        self._order.append(block)
        match str(raw.get("type")):
            case "text":
                return self._text(block, raw.get("text"))
            case "thinking":
                text = raw.get("thinking")
                return [ReasoningDelta(text)] if text and isinstance(text, str) else []
            case "tool_use":
                extra = {key: raw[key] for key in raw.keys() - {"type", "id", "name", "input"}}
                entry = {"index": block.number, "id": raw.get("id"), **extra}
                return self._calls.feed([{**entry, "function": {"name": raw.get("name")}}])
            case kind if kind not in _READ:
                self._end.note(f"a block of type {kind[:60]!r} is kept for the server and not shown")
        return []

    def _text(self, block: _Block, text: Any) -> list[Delta]:
        if not text or not isinstance(text, str):
            return []
        block.chars += len(text)
        return [TextDelta(text)]

    def _delta(self, value: Mapping[str, Any]) -> list[Delta]:
        block, delta = self._blocks.get(_key(value)), value.get("delta")
        if not isinstance(delta, dict):
            return []
        if block is None:  # imitators leave the start out
            kind = {"text_delta": "text", "thinking_delta": "thinking"}.get(str(delta.get("type")), "?")
            self._start({"index": value.get("index"), "content_block": {"type": kind}})
            block = self._blocks[_key(value)]
        match str(delta.get("type")):
            case "text_delta":
                return self._text(block, delta.get("text"))
            case "input_json_delta":
                return self._json(block, delta.get("partial_json"))
            case "thinking_delta" if isinstance(text := delta.get("thinking"), str):
                block.raw["thinking"] = f"{block.raw.get('thinking') or ''}{text}"
                return [ReasoningDelta(text)] if text else []
            case "signature_delta":  # it comes once, whole
                block.raw["signature"] = delta.get("signature")
            case "citations_delta" if (citation := delta.get("citation")) is not None:
                before = block.raw.get("citations")
                block.raw["citations"] = [*(before if isinstance(before, list) else ()), citation]
            case kind:
                self._end.note(f"a delta of the unknown type {kind[:40]!r} was ignored")
        return []

    def _json(self, block: _Block, fragment: Any) -> list[Delta]:
        if not isinstance(fragment, str) or not fragment:
            return []
        if block.raw.get("type") != "tool_use":
            block.json.append(fragment)
            return []
        block.given = None  # rule 3
        return self._calls.feed([{"index": block.number, "function": {"arguments": fragment}}])

    def _stop(self, block: _Block | None) -> list[Delta]:
        if block is None or not block.given:
            return []
        given, block.given = block.given, None
        return self._calls.feed([{"index": block.number, "function": {"arguments": given}}])

    # --- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> list[Delta]:
        """The stream is over: each call's `ToolCall` or `BadCall`, then the `Finish`."""
        for block in self._order:
            self._stop(block)
        return self._end.settle(self._calls, usage=self._tokens(), came=self._layout(), stop="message_stop")

    def fail(self, error: str, *, interrupted: bool = False) -> list[Delta]:
        """The stream broke: like `finish`, with this error. After a sound end it is only a problem."""
        return self._end.broken(error, self.finish, interrupted=interrupted)

    def _tokens(self) -> Usage | None:
        """Input is all that was read: what came from the cache and what went into it are counted apart by the API."""
        found = dict(usage_of(self._usage, _USAGE) or {})
        if not any(found.values()):  # the API must give counts: zeros are none
            return None
        written = found.pop("written", 0)
        found["input"] += found.get("cached", 0) + written
        return {**found, **({"cache_written": written} if written else {})}

    def _layout(self) -> dict[str, Any]:
        """The order of the blocks, where there is more in them than one text before calls (rule 4)."""
        return kept(BLOCKS, [self._entry(block) for block in self._order if self._goes_back(block)])

    def _goes_back(self, block: _Block) -> bool:
        """Unsigned thinking does not: the API refuses it."""
        return block.raw.get("type") != "thinking" or bool(block.raw.get("signature"))

    def _entry(self, block: _Block) -> dict[str, Any]:
        raw = block.raw
        match raw.get("type"):
            case "text":
                rest = {key: value for key, value in raw.items() if key not in ("type", "text") and value is not None}
                return {TEXT: block.chars, **rest}
            case "tool_use":
                return {CALL: raw.get("id")}
        if block.json:
            try:
                raw["input"] = parse("".join(block.json))
            except (ValueError, RecursionError):
                self._end.note(f"the input of a block of type {str(raw.get('type'))[:60]!r} was cut off")
        return raw
