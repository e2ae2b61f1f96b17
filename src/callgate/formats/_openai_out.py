"""The chat completions API, the other way: a `Request` to its body, deltas to its records.

One law: what a server would refuse is not written: ids have the form it wants, empty lists are left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callgate.formats._calls import dump_arguments
from callgate.types import (
    BadCall,
    CallDelta,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    Request,
    Schema,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)


@dataclass(slots=True, frozen=True)
class Quirks:
    """What differs between servers that speak this API."""

    max_tokens: str = "max_tokens"
    reasoning: str | None = None
    """The field in which reasoning is sent back; None: it is not."""
    usage: bool = True
    """Whether `stream_options` may ask for usage."""
    short_ids: bool = False
    """Call ids of exactly nine letters and digits (Mistral)."""
    tool_name: bool = False
    """Whether a result carries the tool's name beside the id (Gemini)."""
    schema: str = "json_schema"
    """How structured output is asked for: "json_schema" or "json_object" (then only JSON is promised)."""


DEFAULT = Quirks()


def build(request: Request, model: str, quirks: Quirks = DEFAULT) -> dict[str, Any]:
    """The body that asks for an answer to `request`."""
    body: dict[str, Any] = {"model": model, "messages": _messages(request.messages, quirks)}
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    if request.schema is not None:
        body["response_format"] = _format(request.schema, quirks)
    for key, value in request.options.items():
        body[quirks.max_tokens if key == "max_tokens" else key] = value
    if request.stream:
        body["stream"] = True
        if quirks.usage:
            body["stream_options"] = {"include_usage": True}
    body.update(request.extra)
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": dict(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _format(schema: Schema, quirks: Quirks) -> dict[str, Any]:
    if quirks.schema == "json_object":
        return {"type": "json_object"}
    return {
        "type": "json_schema",
        "json_schema": {"name": "answer", "schema": dict(schema), "strict": strict(schema)},
    }


def strict(schema: Any) -> bool:
    """Whether a schema fits OpenAI's strict mode: every object closed, every property required."""
    if isinstance(schema, list):
        return all(strict(item) for item in schema)
    if not isinstance(schema, Mapping):
        return True
    if schema.get("type") == "object" or "properties" in schema:
        properties = schema.get("properties")
        names = set(properties) if isinstance(properties, Mapping) else set()
        required = schema.get("required")
        if schema.get("additionalProperties") is not False or names != set(required or ()):
            return False
        return all(strict(properties[name]) for name in names) if isinstance(properties, Mapping) else True
    return all(strict(value) for key, value in schema.items() if key not in ("const", "enum", "default", "examples"))


def _messages(messages: Sequence[Message], quirks: Quirks) -> list[dict[str, Any]]:
    """The messages; servers take only text in the role `tool`, so the images of results follow as the user's."""
    out: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "tool" and waiting:
            out.append({"role": "user", "content": waiting})
            waiting = []
        if message.role == "tool" and not isinstance(message.content, str):
            parts = [dict(part) for part in message.content if part.get("type") != "text"]
            if parts:
                about = f"What {message.name or 'the tool'} returned beside its text ({message.call_id}):"
                waiting += [{"type": "text", "text": about}, *parts]
            out.append(_message(replace(message, content=message.text), quirks))
        else:
            out.append(_message(message, quirks))
    return [*out, {"role": "user", "content": waiting}] if waiting else out


def _message(message: Message, quirks: Quirks) -> dict[str, Any]:
    content: Any = message.content if isinstance(message.content, str) else [dict(part) for part in message.content]
    out: dict[str, Any] = {"role": message.role, "content": content}
    if message.role == "assistant":
        if message.calls:
            out["tool_calls"] = [_call(call, quirks) for call in message.calls]
            out["content"] = content or None
        if quirks.reasoning and message.reasoning:
            out[quirks.reasoning] = message.reasoning
    elif message.role == "tool":
        out["tool_call_id"] = _id(message.call_id or "", quirks)
        if quirks.tool_name and message.name:
            out["name"] = message.name
    out.update(message.extra)
    return out


def _call(call: ToolCall, quirks: Quirks) -> dict[str, Any]:
    extra = dict(call.extra)
    inner = extra.pop("function", {})
    function = {"name": call.name, "arguments": dump_arguments(call.arguments), **inner}
    return {"id": _id(call.id, quirks), "type": "function", "function": function, **extra}


def _id(call_id: str, quirks: Quirks) -> str:
    if not quirks.short_ids or re.fullmatch("[A-Za-z0-9]{9}", call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


class Dumper:
    """Writes one message as the chunks that a server of this API would stream."""

    def __init__(self, *, model: str = "", id: str = "chatcmpl-0", created: int = 0) -> None:
        self._head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._first = True
        self._begun: set[int] = set()

    def feed(self, deltas: Iterable[Delta]) -> list[dict[str, Any]]:
        """The chunks for these deltas, ready for JSON. `[DONE]` is the framing's: wire.DONE."""
        out: list[dict[str, Any]] = []
        for delta in deltas:
            match delta:
                case TextDelta(text):
                    out.append(self._chunk({"content": text}))
                case ReasoningDelta(text):
                    out.append(self._chunk({"reasoning_content": text}))
                case CallDelta():
                    out.append(self._fragment(delta.index, delta.id, delta.name, delta.arguments))
                case ToolCall() if delta.index not in self._begun or delta.extra:
                    missing = "" if delta.index in self._begun else dump_arguments(delta.arguments)
                    out.append(self._fragment(delta.index, delta.id, delta.name, missing, delta.extra))
                case BadCall() if delta.index not in self._begun:
                    out.append(self._fragment(delta.index, delta.id, delta.name, delta.text))
                case Finish():
                    out += self._end(delta)
                case _:
                    pass
        return out

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        if self._first:
            self._first = False
            delta = {"role": "assistant", **delta}
        return {**self._head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    def _fragment(
        self, index: int, id: str | None, name: str | None, arguments: str, extra: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        function: dict[str, Any] = {"arguments": arguments}
        entry: dict[str, Any] = {"index": index}
        if index not in self._begun:
            self._begun.add(index)
            if name is not None:
                function = {"name": name, "arguments": arguments}
            if id:
                entry["id"] = id
            entry["type"] = "function"
        if extra:
            entry |= {key: value for key, value in extra.items() if key != "function"}
            function |= extra.get("function", {})
        return self._chunk({"tool_calls": [{**entry, "function": function}]})

    def _end(self, finish: Finish) -> list[dict[str, Any]]:
        out: list[dict[str, Any]] = []
        if finish.raw is not None or finish.reason not in ("error", "interrupted"):
            out.append(self._chunk({}, finish.raw or finish.reason))
        if finish.usage:
            out.append({**self._head, "choices": [], "usage": dump_usage(finish.usage)})
        if finish.reason == "error" or finish.error:
            out.append({"error": {"message": finish.error or "the model failed"}})
        return out


def dump_usage(usage: Usage) -> dict[str, Any]:
    """Token counts by the API's names."""
    put, got = usage.get("input", 0), usage.get("output", 0)
    out: dict[str, Any] = {"prompt_tokens": put, "completion_tokens": got, "total_tokens": put + got}
    if "cached" in usage:
        out["prompt_tokens_details"] = {"cached_tokens": usage["cached"]}
    if "reasoning" in usage:
        out["completion_tokens_details"] = {"reasoning_tokens": usage["reasoning"]}
    return out


def dump_whole(reply: Reply, *, model: str = "", id: str = "chatcmpl-0", created: int = 0) -> dict[str, Any]:
    """A reply as the body of an answer that is not streamed."""
    if reply.finish == "error":
        return {"error": {"message": reply.error or "the model failed"}}
    message: dict[str, Any] = {"role": "assistant", "content": reply.content or (None if reply.calls else "")}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(call, DEFAULT) for call in reply.calls]
    out: dict[str, Any] = {"id": id, "object": "chat.completion", "created": created, "model": model}
    out["choices"] = [{"index": 0, "message": message, "finish_reason": reply.raw_finish or reply.finish}]
    if reply.usage:
        out["usage"] = dump_usage(reply.usage)
    return out
