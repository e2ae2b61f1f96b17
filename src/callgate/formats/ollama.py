"""Ollama's own chat API (`/api/chat`), streamed or whole; `/api/generate` is read too.

One law: a call is whole or it is none. Ollama's parser gives calls only when they are complete, with arguments that are
objects already: they are never glued, and two in the same place of two records are two calls.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from callgate.errors import ConfigError
from callgate.formats._calls import Calls, arguments
from callgate.formats._ends import error_text, reason_of, usage_of
from callgate.formats._json import parse, parser
from callgate.types import (
    SOUND,
    BadCall,
    Delta,
    Finish,
    FinishReason,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCall,
    Usage,
)
from callgate.wire import NDJSON, Record, dump_ndjson

framing = NDJSON
END = b""


def frame(value: Mapping[str, Any]) -> bytes:
    """One record as a line."""
    return dump_ndjson(Record(json.dumps(value, ensure_ascii=False)))


_PLAIN = re.compile(
    r'\{"model":"[^"\\\x00-\x1f]*","created_at":"[^"\\\x00-\x1f]*",'
    r'"message":\{"role":"assistant","content":"([^"\\\x00-\x1f]+)"\},"done":false\}'
).fullmatch
"""The record that nearly every one is, to the byte as Ollama writes it: its text, without a parser. Anything else, also
an escaped character in the text, takes the long way."""
_USAGE = {"input": ("prompt_eval_count",), "output": ("eval_count",)}


class Loader:
    """Reads the records of one message; the end is sound only if a record said `done`."""

    def __init__(self, *, tools: tuple[str, ...] = ()) -> None:
        self._parse = parser()
        self.other_choices: dict[int, list[ToolCall]] = {}
        self._calls = Calls(tools)
        self._done = False
        self._raw: str | None = None
        self._error: str | None = None
        self._usage: Usage | None = None
        self._problems: list[str] = []

    @property
    def over(self) -> bool:
        """Whether the server said that nothing follows."""
        return self._done

    def feed(self, record: Record) -> list[Delta]:
        """The deltas of one record."""
        if found := _PLAIN(record.data):
            return [TextDelta(found[1])]
        try:
            value = self._parse(record.data)
        except ValueError:
            return self._hard(record)
        return self.take(value, record.event)

    def _hard(self, record: Record) -> list[Delta]:
        try:
            value = parse(record.data)
        except (ValueError, RecursionError):
            if record.cut:
                self._problems.append("the stream was cut inside a record")
            else:
                self._error = self._error or f"the server sent what is not JSON: {record.data.strip()[:200]!r}"
            return []
        return self.take(value, record.event)

    def take(self, value: Any, event: str = "") -> list[Delta]:
        """The same for a record that is parsed already."""
        if not isinstance(value, dict):
            self._problems.append(f"a record that is no object was ignored: {str(value)[:80]}")
            return []
        if event == "error" or value.get("error"):
            self._error = self._error or error_text(value)
        message = value.get("message")
        if not isinstance(message, dict):
            message = {"content": value.get("response"), "thinking": value.get("thinking")}  # /api/generate
        content = message.get("content")
        out: list[Delta] = []
        if (
            len(message) != 2 or "role" not in message or content is None
        ):  # nearly every message has role and content, no more
            if (text := message.get("thinking")) and isinstance(text, str):
                out.append(ReasoningDelta(text))
            if content and isinstance(content, str):
                out.append(TextDelta(content))
            if (calls := message.get("tool_calls")) and isinstance(calls, list):
                out += self._calls.feed(calls, whole=True)
        elif content and isinstance(content, str):
            out.append(TextDelta(content))
        if value.get("done") is True:
            self._done = True
            self._raw = value.get("done_reason") or self._raw
            self._usage = usage_of(value, _USAGE) or self._usage
        return out

    def finish(self) -> list[Delta]:
        """The stream is over: each call's `ToolCall` or `BadCall`, then the `Finish`."""
        reason: FinishReason = "stop"
        if self._error is not None:
            reason = "error"
        elif not self._done:
            reason = "interrupted"
            self._problems.append("the stream ended without a record that is done")
        elif self._raw is not None:
            reason, known = reason_of(self._raw)
            if not known and self._raw not in ("load", "unload"):
                self._problems.append(f"unknown done_reason {self._raw!r}, taken for a plain end")
        settled = self._calls.finish(sound=reason in SOUND)
        if reason in SOUND:
            reason = "tool_calls" if any(isinstance(call, ToolCall) for call in settled) else "stop"
        if reason == "error" and self._error is None:
            self._error = f"the server ended the answer with {self._raw!r}"
        problems = tuple(dict.fromkeys([*self._problems, *self._calls.problems]))
        return [*settled, Finish(reason, self._usage, self._raw, self._error, problems)]

    def fail(self, error: str, *, interrupted: bool = False) -> list[Delta]:
        """The stream broke: like `finish`, with this error. After a sound end it is only a problem."""
        if interrupted and self._done and self._error is None:
            self._problems.append(f"after the end of the answer: {error}")
            return self.finish()
        self._error = self._error or error
        deltas = self.finish()
        if interrupted:
            last = deltas[-1]
            assert isinstance(last, Finish)
            deltas[-1] = Finish("interrupted", last.usage, last.raw, last.error, last.problems)
        return deltas


# --- Request -> body ----------------------------------------------------------------------------------------------

_TOP = frozenset({"think", "keep_alive", "logprobs", "top_logprobs", "truncate", "shift"})
_OPTIONS = {"max_tokens": "num_predict", "max_completion_tokens": "num_predict", "context_length": "num_ctx"}
_EFFORT: dict[Any, Any] = {"none": False, "minimal": "low"}


def build(request: Request, model: str) -> dict[str, Any]:
    """The body that asks for an answer to `request`; what Ollama cannot do is a `ConfigError`."""
    names = {call.id: call.name for message in request.messages for call in message.calls}
    body: dict[str, Any] = {"model": model, "messages": [_message(m, names) for m in request.messages]}
    if request.tool_choice not in ("auto", "none"):
        raise ConfigError(
            f"tool_choice={request.tool_choice!r}: Ollama cannot force a call; protocol='constrained' can"
        )
    if request.parallel is False and request.tools:
        raise ConfigError("parallel=False: Ollama cannot forbid several calls; set the agent's max_calls_per_turn to 1")
    if request.tools and request.tool_choice == "auto":
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": dict(t.parameters)},
            }
            for t in request.tools
        ]
    if request.schema is not None:
        body["format"] = dict(request.schema)
    options: dict[str, Any] = {}
    for key, value in request.options.items():
        if key in _TOP:
            body[key] = value
        elif key == "reasoning_effort":
            body["think"] = _EFFORT.get(value, value)
        elif key == "stop":
            options["stop"] = [value] if isinstance(value, str) else list(value)
        else:
            options[_OPTIONS.get(key, key)] = value
    if options:
        body["options"] = options
    body["stream"] = request.stream
    extra = dict(request.extra)
    if isinstance(more := extra.pop("options", None), Mapping):
        body["options"] = {**options, **more}
    body.update(extra)
    return body


def _message(message: Message, names: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {"role": message.role, "content": message.text}
    if not isinstance(message.content, str):
        images = [_image(part) for part in message.content if part.get("type") != "text"]
        if images:
            out["images"] = images
    if message.role == "assistant":
        if message.reasoning:
            out["thinking"] = message.reasoning
        if message.calls:
            out["tool_calls"] = [_call(index, call) for index, call in enumerate(message.calls)]
    elif message.role == "tool":
        name = message.name or names.get(message.call_id or "")
        if name:
            out["tool_name"] = name
        if message.call_id:
            out["tool_call_id"] = message.call_id
    out.update(message.extra)
    return out


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    function = {"index": index, "name": call.name, "arguments": dict(call.arguments)}
    return {"id": call.id, "function": function, **call.extra}


def _image(part: Mapping[str, Any]) -> str:
    """The base64 text of an image part; Ollama fetches nothing and knows no other parts."""
    url = part.get("image_url")
    url = url.get("url") if isinstance(url, Mapping) else url
    if part.get("type") != "image_url" or not isinstance(url, str):
        raise ConfigError(f"content part of type {part.get('type')!r}: Ollama takes text and images only")
    head, comma, data = url.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        raise ConfigError("image_url: Ollama fetches no addresses; give the image as data:image/png;base64,…")
    return data


# --- deltas -> records --------------------------------------------------------------------------------------------


class Dumper:
    """Writes one message as the records that Ollama would stream; a call is one record, whole."""

    def __init__(self, *, model: str = "", id: str = "", created: int = 0) -> None:
        self._head = {"model": model, "created_at": _when(created)}

    def feed(self, deltas: Iterable[Delta]) -> list[dict[str, Any]]:
        """The records for these deltas, ready for JSON."""
        out: list[dict[str, Any]] = []
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    out.append(self._record({"content": text}))
                case ReasoningDelta(text):
                    out.append(self._record({"content": "", "thinking": text}))
                case ToolCall():
                    entry = _call(delta.index, delta)
                    out.append(self._record({"content": "", "tool_calls": [entry]}))
                case BadCall():
                    value, _ = arguments(delta.text)
                    given = delta.text if value is None else value
                    function = {"index": delta.index, "name": delta.name, "arguments": given}
                    entry = {"function": function} if delta.id is None else {"id": delta.id, "function": function}
                    out.append(self._record({"content": "", "tool_calls": [entry]}))
                case Finish():
                    out += self._end(delta)
                case _:
                    pass
        return out

    def _record(self, message: dict[str, Any]) -> dict[str, Any]:
        return {**self._head, "message": {"role": "assistant", **message}, "done": False}

    def _end(self, finish: Finish) -> list[dict[str, Any]]:
        if finish.reason == "error" or finish.error:
            return [{"error": finish.error or "the model failed"}]
        if finish.reason == "interrupted":
            return []
        return [{**self._record({"content": ""}), **_done(finish.raw, finish.reason, finish.usage)}]


def _done(raw: str | None, reason: str, usage: Usage | None) -> dict[str, Any]:
    out: dict[str, Any] = {"done": True, "done_reason": raw or ("stop" if reason == "tool_calls" else reason)}
    if usage:
        out["prompt_eval_count"] = usage.get("input", 0)
        out["eval_count"] = usage.get("output", 0)
    return out


def dump_whole(reply: Reply, *, model: str = "", id: str = "", created: int = 0) -> dict[str, Any]:
    """A reply as the body of an answer that is not streamed."""
    if reply.finish == "error":
        return {"error": reply.error or "the model failed"}
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message["thinking"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(index, call) for index, call in enumerate(reply.calls)]
    head = {"model": model, "created_at": _when(created), "message": message}
    return {**head, **_done(reply.raw_finish, reply.finish, reply.usage)}


def _when(created: int) -> str:
    """Seconds since 1970 as the time stamp that Ollama writes."""
    return f"{datetime(1970, 1, 1) + timedelta(seconds=created):%Y-%m-%dT%H:%M:%SZ}"
