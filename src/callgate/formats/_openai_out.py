"""The chat completions API, the other way: a `Request` to its body, deltas to its records.

Law: what a server would refuse is not written: ids have the form it wants, empty lists are left out.
(tests/test_formats_openai.py::test_a_request_becomes_the_body)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from callgate.formats._accepted import Accepted, accepted
from callgate.formats._calls import dump_arguments
from callgate.formats._ends import interruption
from callgate.formats._sent_schema import OPENAI, SchemaRules
from callgate.types import (
    CAME,
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
    """What differs between servers of this API."""

    max_tokens: str = "max_tokens"
    reasoning: str | None = None
    """The field in which reasoning is sent back; None: it is not."""
    as_it_came: bool = False
    """Whether reasoning goes back in the field it came in, where that is known, and its details unchanged."""
    usage: bool = True
    """Whether `stream_options` may ask for usage."""
    short_ids: bool = False
    """Call ids of exactly nine letters and digits (Mistral)."""
    max_id: int = 40
    """Characters of a call id (OpenAI: "string too long. Expected a string with maximum length 40")."""
    schemas: SchemaRules = OPENAI
    """What its validator of tool schemas refuses."""
    max_tools: int | None = None
    """Tools in one request; None: no limit is known."""
    merge: bool = False
    """One system message, and it is first; neighbouring texts of one role are one. Chat templates of local servers
    raise "Conversation roles must alternate" or "System message must be at the beginning"."""
    bridge: bool = False
    """A word of the assistant stands between a result and the user (Mistral: "Unexpected role 'user' after role
    'tool'")."""
    call_fields: bool = True
    """Whether calls and messages may carry fields of the provider they came from (thought signatures)."""
    tool_name: bool = False
    """Whether a result carries the tool's name beside the id (Gemini)."""
    schema: str = "json_schema"
    """How structured output is asked for: "json_schema" or "json_object" (then only JSON is promised)."""


DEFAULT = Quirks()
REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Where servers put the reasoning; some mirror it into two of these, so the first one that has any counts."""
DETAILS = "reasoning_details"
"""Where OpenRouter puts it in parts, some of them signed or encrypted."""
NO_OUTPUT = "(no output)"
BRIDGE = "I have read the result."
_OURS = frozenset({"pinned", CAME})
"""Keys of `Message.extra` that are not for the server."""


def accept(request: Request, quirks: Quirks = DEFAULT) -> Accepted:
    """The request as this vendor accepts it; `render` writes it."""
    return accepted(request, quirks.schemas, max_tools=quirks.max_tools)


def build(request: Request, model: str, quirks: Quirks = DEFAULT) -> dict[str, Any]:
    """The body that asks for an answer to `request`."""
    return render(accept(request, quirks).request, model, quirks)


def render(request: Request, model: str, quirks: Quirks = DEFAULT) -> dict[str, Any]:
    """The body for a request that is accepted."""
    body: dict[str, Any] = {"model": model, "messages": _messages(request.messages, quirks)}
    extra = dict(request.extra)
    if tools := [*map(_tool, request.tools), *extra.pop("tools", ())]:  # tools of other types stand beside functions
        body["tools"] = tools
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
        if request.parallel is not None:
            body["parallel_tool_calls"] = request.parallel
    if request.schema is not None:
        body["response_format"] = response_format(request.schema, quirks)
    for key, value in request.options.items():
        body[quirks.max_tokens if key == "max_tokens" else key] = value
    if request.stream:
        body["stream"] = True
        if quirks.usage:
            body["stream_options"] = {"include_usage": True}
    body.update(extra)
    return body


def _tool(tool: ToolSpec) -> dict[str, Any]:
    extra = dict(tool.extra)
    function: dict[str, Any] = {"name": tool.name, "parameters": dict(tool.parameters)}
    if tool.description:
        function["description"] = tool.description
    function.update(extra.pop("function", {}))
    return {"type": "function", "function": function, **extra}


def response_format(schema: Schema, quirks: Quirks) -> dict[str, Any]:
    """How structured output is asked for."""
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
    out = [*out, {"role": "user", "content": waiting}] if waiting else out
    return _ordered(out, quirks)


def _ordered(messages: list[dict[str, Any]], quirks: Quirks) -> list[dict[str, Any]]:
    """The messages in an order that the vendor takes, none of them empty."""
    if quirks.merge:
        messages = sorted(messages, key=lambda m: m["role"] != "system")
    out: list[dict[str, Any]] = []
    for message in _filled(messages):
        before = out[-1] if out else {"role": ""}
        if quirks.merge and before["role"] == message["role"] and _is_text(before) and _is_text(message):
            out[-1] = {**before, "content": _joined(before["content"], message["content"])}
            continue
        if quirks.bridge and before["role"] == "tool" and message["role"] in ("user", "system"):
            out.append({"role": "assistant", "content": BRIDGE})
        out.append(message)
    return out


def _filled(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages that say something; an empty result is one, too, in words."""
    alone = len(messages) == 1
    filled = [
        {**m, "content": NO_OUTPUT} if m["role"] == "tool" and _is_empty(m) else m
        for m in messages
        if m["role"] == "tool" or not _is_empty(m)
    ]
    return messages if alone and not filled else filled


def _is_empty(message: Mapping[str, Any]) -> bool:
    """Whether a message says nothing; servers refuse those ("text content blocks must be non-empty")."""
    content = message["content"]
    has_text = bool(content.strip()) if isinstance(content, str) else bool(content)
    return not has_text and message.keys() <= {"role", "content", "tool_call_id", "name"}


def _is_text(message: Mapping[str, Any]) -> bool:
    return message.keys() == {"role", "content"} and message["role"] in ("system", "user", "assistant")


def _joined(one: str | list[Any], two: str | list[Any]) -> str | list[Any]:
    if isinstance(one, str) and isinstance(two, str):
        return f"{one}\n\n{two}"
    parts = [[{"type": "text", "text": c}] if isinstance(c, str) else c for c in (one, two)]
    return [*parts[0], *parts[1]]


def _message(message: Message, quirks: Quirks) -> dict[str, Any]:
    content: Any = message.content if isinstance(message.content, str) else [dict(part) for part in message.content]
    out: dict[str, Any] = {"role": message.role, "content": content}
    if message.role == "assistant":
        if message.calls:
            out["tool_calls"] = [_call(call, quirks) for call in message.calls]
            out["content"] = content or None
        out.update(_reasoning(message, quirks))
    elif message.role == "tool":
        out["tool_call_id"] = _id(message.call_id or "", quirks)
        if quirks.tool_name and message.name:
            out["name"] = message.name
    out.update({key: value for key, value in message.extra.items() if key not in _OURS})
    if quirks.merge and out["role"] == "developer":  # no chat template knows it
        out["role"] = "system"
    return out


def _reasoning(message: Message, quirks: Quirks) -> dict[str, Any]:
    """What the model thought, in the field in which its server wants it back."""
    came: dict[str, Any] = {}
    for extra in (message.extra, *(call.extra for call in message.calls)) if quirks.as_it_came else ():
        # the layouts of other APIs stand there too, and mean nothing to this one
        came |= {key: value for key, value in (extra.get(CAME) or {}).items() if key in (*REASONING, DETAILS)}
    out = {key: value for key, value in came.items() if value is not None}
    field = next((key for key, value in came.items() if value is None), None if out else quirks.reasoning)
    if field and message.reasoning:
        out[field] = message.reasoning
    return out


def _call(call: ToolCall, quirks: Quirks) -> dict[str, Any]:
    extra = {key: value for key, value in call.extra.items() if key != CAME} if quirks.call_fields else {}
    inner = extra.pop("function", {})
    function = {"name": call.name, "arguments": dump_arguments(call.arguments), **inner}
    return {"id": _id(call.id, quirks), "type": "function", "function": function, **extra}


def _id(call_id: str, quirks: Quirks) -> str:
    """The id in the vendor's form: a function of the id alone, so the same over a whole conversation."""
    fits = re.fullmatch("[A-Za-z0-9]{9}", call_id) if quirks.short_ids else len(call_id) <= quirks.max_id
    if fits:
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:9] if quirks.short_ids else f"call_{digest[:32]}"


class Dumper:
    """Writes one message as the chunks that a server of this API would stream."""

    def __init__(self, *, model: str = "", id: str = "chatcmpl-0", created: int = 0) -> None:
        self._head = {"id": id, "object": "chat.completion.chunk", "created": created, "model": model}
        self._first = True
        self._begun: set[int] = set()

    def start(self) -> list[dict[str, Any]]:
        """The record that opens the message; none if it is open."""
        return [self._chunk({"content": ""})] if self._first else []

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
            entry |= {key: value for key, value in extra.items() if key not in ("function", CAME)}
            function |= extra.get("function", {})
        return self._chunk({"tool_calls": [{**entry, "function": function}]})

    def _end(self, finish: Finish) -> list[dict[str, Any]]:
        failed = finish.reason in ("error", "interrupted")
        out = [] if failed else [self._chunk({}, word(finish.reason, finish.raw))]
        if finish.usage:
            out.append({**self._head, "choices": [], "usage": dump_usage(finish.usage)})
        return [*out, _failure(finish.reason, finish.error)] if failed else out


def word(reason: str, raw: str | None) -> str:
    """The API's word for an end: the server's own where it is one of the API's and means the same."""
    return raw if raw == "function_call" and reason == "tool_calls" else reason


def _failure(reason: str, error: str | None) -> dict[str, Any]:
    """The error of an answer that failed or was cut off: the official clients raise it, also in mid-stream."""
    words = interruption(error) if reason == "interrupted" else {"message": error or "the model failed", "code": None}
    return {"error": {"type": "server_error", "param": None, **words}}


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
    if reply.finish in ("error", "interrupted"):
        return _failure(reply.finish, reply.error)
    message: dict[str, Any] = {"role": "assistant", "content": reply.content or (None if reply.calls else "")}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.calls:
        message["tool_calls"] = [_call(call, DEFAULT) for call in reply.calls]
    out: dict[str, Any] = {"id": id, "object": "chat.completion", "created": created, "model": model}
    out["choices"] = [{"index": 0, "message": message, "finish_reason": word(reply.finish, reply.raw_finish)}]
    if reply.usage:
        out["usage"] = dump_usage(reply.usage)
    return out
