"""Ollama's own chat API (`/api/chat`), streamed or whole; `/api/generate` is read too.

Law: a call is whole or it is none; two in the same place of two records are two calls.
(tests/test_formats_ollama.py::test_calls_are_whole_and_never_merged)

Ollama's parser gives calls only when they are complete, with arguments that are objects already: they are never glued.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from callgate.errors import ConfigError
from callgate.formats._accepted import Accepted
from callgate.formats._calls import Calls, arguments
from callgate.formats._ends import End, interruption, raw_of, usage_of
from callgate.formats._json import parse, parser
from callgate.formats._ollama_in import load_request
from callgate.formats._sent_schema import OPENAI, sent_schema
from callgate.types import (
    CAME,
    BadCall,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)
from callgate.wire import NDJSON, Record, dump_ndjson

__all__ = ["END", "Dumper", "Loader", "accept", "build", "dump_whole", "frame", "framing", "load_request"]

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
_NO_ANSWER = frozenset({"load", "unload"})
"""Ollama's words where nothing was asked: the model was loaded, or let go."""
_USAGE = {"input": ("prompt_eval_count",), "output": ("eval_count",)}


class Loader:
    """Reads the records of one message; the end is sound only if a record is `done`."""

    def __init__(self, *, tools: tuple[str, ...] = ()) -> None:
        self._parse = parser()
        self.other_choices: dict[int, list[ToolCall]] = {}
        self._calls = Calls(tools)
        self._end = End()
        self._usage: Usage | None = None

    @property
    def over(self) -> bool:
        """Whether the server has declared the end."""
        return self._end.done

    def feed(self, record: Record) -> list[Delta]:
        """The deltas of one record."""
        if (found := _PLAIN(record.data)) and not self._end.done:
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
            self._end.unreadable(record)
            return []
        return self.take(value, record.event)

    def take(self, value: Any, event: str = "") -> list[Delta]:
        """The same for a record that is parsed already."""
        if not isinstance(value, dict):
            self._end.note(f"a record that is no object was ignored: {str(value)[:80]}")
            return []
        if event == "error" or value.get("error"):
            self._end.fail(value)
        message = value.get("message")
        if not isinstance(message, dict):
            message = {"content": value.get("response"), "thinking": value.get("thinking")}  # /api/generate
        if self._end.done:
            return self._late(value, message)
        out = self._content(message)
        if value.get("done") is True:
            self._end.done = True
            raw = raw_of(value.get("done_reason"))
            self._end.say("stop" if raw in _NO_ANSWER or raw is None else raw)
            self._usage = usage_of(value, _USAGE) or self._usage
        return out

    def _content(self, message: Mapping[str, Any]) -> list[Delta]:
        out: list[Delta] = []
        content = message.get("content")
        if len(message) == 2 and "role" in message and content is not None:  # as in nearly every record
            return [TextDelta(content)] if content and isinstance(content, str) else out
        if (text := message.get("thinking")) and isinstance(text, str):
            out.append(ReasoningDelta(text))
        if content and isinstance(content, str):
            out.append(TextDelta(content))
        if (calls := message.get("tool_calls")) and isinstance(calls, list):
            out += self._calls.feed(calls, whole=True)
        return out

    def _late(self, value: Mapping[str, Any], message: Mapping[str, Any]) -> list[Delta]:
        """A record after the end: what only some readers see must not run; counts still count."""
        if any(message.get(key) for key in ("content", "thinking", "tool_calls")):
            self._end.note("text or calls after the record that is done were dropped")
        self._usage = usage_of(value, _USAGE) or self._usage
        return []

    def finish(self) -> list[Delta]:
        """The stream is over: each call's `ToolCall` or `BadCall`, then the `Finish`."""
        return self._end.settle(self._calls, usage=self._usage, came={}, stop="a record that is done")

    def fail(self, error: str, *, interrupted: bool = False) -> list[Delta]:
        """The stream broke: like `finish`, with this error. After a sound end it is only a problem."""
        return self._end.broken(error, self.finish, interrupted=interrupted)


# --- Request -> body ----------------------------------------------------------------------------------------------

_TOP = frozenset({"think", "keep_alive", "logprobs", "top_logprobs", "truncate", "shift"})
_OPTIONS = {"max_tokens": "num_predict", "max_completion_tokens": "num_predict", "context_length": "num_ctx"}
_EFFORT: dict[Any, Any] = {"none": False, "minimal": "low", "xhigh": "high"}
"""OpenAI's words for an effort that Ollama refuses ("invalid think value"), in its own: a switch, low, medium, high."""
NO_OUTPUT = "(no output)"
_OURS = frozenset({CAME, "pinned", "role"})
"""Keys of `extra` that are not for Ollama; the role "developer" of OpenAI's API is its role "system"."""


def accept(request: Request) -> Accepted:
    """The request as Ollama accepts it. Names of tools go as they are; its Go structures want schemas like OpenAI's."""
    tools, notes = [], []
    for tool in request.tools:
        schema, lost = sent_schema(tool.parameters, OPENAI)
        tools.append(replace(tool, parameters=schema))
        if lost:
            notes.append(f"tool {tool.name}: sent without {', '.join(lost)}; callgate checks them")
    return Accepted(replace(request, tools=tuple(tools)), {}, tuple(notes))


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
    extra = dict(request.extra)
    if request.tool_choice == "auto" and (tools := [*map(_tool, request.tools), *extra.pop("tools", ())]):
        body["tools"] = tools
    if request.schema is not None:
        body["format"] = dict(request.schema)
    options = _options(request.options, body)
    if isinstance(more := extra.pop("options", None), Mapping):
        options |= more
    if options:
        body["options"] = options
    body.setdefault("truncate", False)  # else it cuts a long prompt in silence; servers that do not know it ignore it
    body["stream"] = request.stream
    body.update(extra)
    return body


def _options(given: Mapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """The sampling options by Ollama's names; those that stand beside them are put into the body."""
    options: dict[str, Any] = {}
    for key, value in given.items():
        if key in _TOP:
            body[key] = value
        elif key == "reasoning_effort":
            body["think"] = _EFFORT.get(value, value)
        elif key == "stop":
            options["stop"] = [value] if isinstance(value, str) else list(value)
        else:
            options[_OPTIONS.get(key, key)] = value
    return options


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    extra = dict(tool.extra)
    return {"type": "function", "function": {**function, **extra.pop("function", {})}, **extra}


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
        out["content"] = message.text if message.text.strip() else NO_OUTPUT
        name = message.name or names.get(message.call_id or "")
        out |= {"tool_name": name} if name else {}
        out |= {"tool_call_id": message.call_id} if message.call_id else {}
    out.update(_theirs(message.extra))
    return out


def _theirs(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in _OURS}


def _call(index: int, call: ToolCall) -> dict[str, Any]:
    extra = _theirs(call.extra)
    inner = extra.pop("function", {})
    function = {"index": index, "name": call.name, "arguments": dict(call.arguments), **inner}
    return {"id": call.id, "function": function, **extra}


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

    def start(self) -> list[dict[str, Any]]:
        """Nothing opens a message here."""
        return []

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
        if finish.reason in ("error", "interrupted"):
            return [_failure(finish.reason, finish.error)]
        return [{**self._record({"content": ""}), **_done(finish.reason, finish.usage)}]


def _failure(reason: str, error: str | None) -> dict[str, Any]:
    """The error of an answer that failed or was cut off: Ollama's is a text."""
    if reason != "interrupted":
        return {"error": error or "the model failed"}
    words = interruption(error)
    return {"error": words["message"], "code": words["code"]}


def _done(reason: str, usage: Usage | None) -> dict[str, Any]:
    out: dict[str, Any] = {"done": True, "done_reason": "stop" if reason == "tool_calls" else reason}
    if usage:
        out["prompt_eval_count"] = usage.get("input", 0)
        out["eval_count"] = usage.get("output", 0)
    return out


def dump_whole(reply: Reply, *, model: str = "", id: str = "", created: int = 0) -> dict[str, Any]:
    """A reply as the body of an answer that is not streamed."""
    if reply.finish in ("error", "interrupted"):
        return _failure(reply.finish, reply.error)
    message: dict[str, Any] = {"role": "assistant", "content": reply.content}
    if reply.reasoning:
        message["thinking"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(index, call) for index, call in enumerate(reply.calls)]
    head = {"model": model, "created_at": _when(created), "message": message}
    return {**head, **_done(reply.finish, reply.usage)}


def _when(created: int) -> str:
    """Seconds since 1970 as the time stamp that Ollama writes."""
    return f"{datetime(1970, 1, 1) + timedelta(seconds=created):%Y-%m-%dT%H:%M:%SZ}"
