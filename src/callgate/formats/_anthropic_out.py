"""Anthropic's Messages API, the other way: a `Request` to its body, deltas to its events.

Law: one block is closed before the next one opens, whatever order the deltas come in, and what the API would refuse is
not written. (tests/test_formats_sequence.py::test_one_block_is_closed_before_the_next_opens)
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from callgate.errors import ConfigError
from callgate.formats._accepted import Accepted, accepted
from callgate.formats._ends import interruption, reason_of
from callgate.formats._layout import Entry, layout_of, placed
from callgate.formats._sent_schema import ANTHROPIC, ANTHROPIC_OUTPUT, sent_output
from callgate.formats._sequence import InSequence
from callgate.types import (
    CAME,
    BadCall,
    CallDelta,
    Delta,
    Finish,
    Message,
    Part,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    ToolCall,
    ToolSpec,
    Usage,
)

BLOCKS = "content_blocks"
"""The key of a message's layout (_layout.py)."""
MAX_TOKENS = 8192
"""The API has no default for the length of an answer. Every model since Claude 3.5 takes so many; a provider that knows
its model gives the model's own limit."""
THINKING_TOKENS = 4096
"""Of these so many may be thinking, where thinking is only said to be on. The API wants at least 1,024."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The API's pattern of a call's id; a longer one is shortened as well."""
_NAMES = {"stop": "stop_sequences", "max_completion_tokens": "max_tokens"}
_EFFORTS = {"minimal": "low"}
_CANNOT = frozenset({"seed", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "n"})
_OURS = frozenset({CAME, "pinned", "role"})
WORDS: Mapping[str, str] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}
_OWN = frozenset({*WORDS.values(), "stop_sequence", "model_context_window_exceeded"})


def accept(request: Request) -> Accepted:
    """The request with names and schemas that the API accepts."""
    sent = accepted(request, ANTHROPIC)
    if request.schema is None:
        return sent
    schema, lost = sent_output(request.schema, ANTHROPIC_OUTPUT)
    notes = (f"output: sent without {', '.join(lost)}; callgate checks them",) if lost else ()
    if schema is None:
        notes = ("output: asked for without its schema, which has a free-form object; callgate checks it",)
    return replace(sent, request=replace(sent.request, schema=schema), notes=(*sent.notes, *notes))


def build(request: Request, model: str, *, cache: bool = False) -> dict[str, Any]:
    """The body that asks for an answer to `request`; what the API cannot do is a `ConfigError`.

    `cache`: the prefix that stays the same is marked, so that the next request reads it from the cache.
    """
    if cannot := sorted(_CANNOT & request.options.keys()):
        raise ConfigError(f"{', '.join(cannot)}: Anthropic's API has no such option")
    extra = dict(request.extra)
    head = _leading(request.messages)
    body: dict[str, Any] = {"model": model, "max_tokens": MAX_TOKENS}
    if system := [block for message in request.messages[:head] for block in _system(message)]:
        alone = system[0] if len(system) == 1 else {}
        body["system"] = alone["text"] if alone.keys() == {"type", "text"} else system
    body["messages"] = _messages(request.messages[head:])
    if tools := [*map(_tool, request.tools), *extra.pop("tools", ())]:
        body["tools"] = tools
        if (choice := _choice(request)) is not None:
            body["tool_choice"] = choice
    _options(request, body)
    if isinstance(output := extra.pop("output_config", None), Mapping):
        body["output_config"] = {**body.get("output_config", {}), **output}
    if request.stream:
        body["stream"] = True
    body.update(extra)
    if cache:
        _mark(body)
    return body


def _options(request: Request, body: dict[str, Any]) -> None:
    """The sampling options, and what of them stands in objects of the API's own."""
    output: dict[str, Any] = {}
    for key, value in request.options.items():
        if key == "stop":
            body["stop_sequences"] = [value] if isinstance(value, str) else list(value)
        elif key == "reasoning_effort":
            if value == "none":
                body["thinking"] = {"type": "disabled"}
            else:
                output["effort"] = _EFFORTS.get(value, value)
        elif key == "think":
            body["thinking"] = {"type": "enabled", "budget_tokens": THINKING_TOKENS} if value else {"type": "disabled"}
        else:
            body[_NAMES.get(key, key)] = value
    thinking = body.get("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else None
    if isinstance(budget, int) and body["max_tokens"] <= budget:  # "max_tokens must be greater than budget_tokens"
        body["max_tokens"] = budget + MAX_TOKENS
    if request.schema is not None:
        output["format"] = {"type": "json_schema", "schema": dict(request.schema)}
    if output:
        body["output_config"] = output


def _choice(request: Request) -> dict[str, Any] | None:
    kinds = {"auto": "auto", "none": "none", "required": "any"}
    kind = kinds.get(request.tool_choice)
    choice: dict[str, Any] = {"type": kind} if kind else {"type": "tool", "name": request.tool_choice}
    if request.parallel is not None and kind != "none":
        return {**choice, "disable_parallel_tool_use": not request.parallel}
    return None if kind == "auto" else choice


def _tool(tool: ToolSpec) -> dict[str, Any]:
    extra = dict(tool.extra)
    out: dict[str, Any] = {"name": tool.name}
    if tool.description:
        out["description"] = tool.description
    return {**out, "input_schema": dict(tool.parameters), **extra.pop("function", {}), **extra}


# --- messages -----------------------------------------------------------------------------------------------------


def _leading(messages: Sequence[Message]) -> int:
    """How many system messages stand at the beginning: they are the system prompt."""
    return next((n for n, message in enumerate(messages) if message.role != "system"), len(messages))


def _theirs(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if key not in _OURS}


def _system(message: Message) -> list[dict[str, Any]]:
    return [{**block, **_theirs(message.extra)} for block in _content(message.content)]


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The messages; results stand together, before what the user says after them."""
    out: list[dict[str, Any]] = []
    results: list[dict[str, Any]] | None = None
    for message in messages:
        if message.role == "assistant":
            results = None
            if blocks := _answer(message):
                out.append({"role": "assistant", "content": blocks, **_theirs(message.extra)})
            continue
        content: Any
        if message.role == "tool":
            # "tool_use ids were found without tool_result blocks immediately after": all of them in one message.
            if results is None:
                results = []
                out.append({"role": "user", "content": results})
            results.append(_result(message))
            continue
        plain = isinstance(message.content, str) and results is None
        content = message.content if plain else _content(message.content)
        if not content or (plain and not content.strip()):  # "text content blocks must be non-empty"
            continue
        if results is not None:
            results += content
            results = None
        else:
            out.append({"role": "user", "content": content, **_theirs(message.extra)})
    return out


def _result(message: Message) -> dict[str, Any]:
    content: Any = message.content if isinstance(message.content, str) else _content(message.content)
    return {"type": "tool_result", "tool_use_id": _id(message.call_id or ""), "content": content} | _theirs(
        message.extra
    )


def _answer(message: Message) -> list[dict[str, Any]]:
    """An answer's blocks: thinking goes back only as it came, signed, in its place."""
    layout = layout_of(message, BLOCKS)
    if layout:
        blocks = placed(message, layout, text=_written, call=lambda n, entry: _call(message.calls[n]), none={})
        return [block for block in blocks if isinstance(block, dict)]
    return [*_content(message.content), *map(_call, message.calls)]


def _written(text: str, entry: Entry) -> dict[str, Any]:
    return {"type": "text", "text": text, **{key: value for key, value in entry.items() if key != "chars"}}


def _call(call: ToolCall) -> dict[str, Any]:
    extra = _theirs(call.extra)
    extra.pop("function", None)
    return {"type": "tool_use", "id": _id(call.id), "name": call.name, "input": dict(call.arguments), **extra}


def _id(call_id: str) -> str:
    """The id in the API's form: a function of the id alone, so the same over a whole conversation."""
    if _ID.fullmatch(call_id):
        return call_id
    return f"toolu_{hashlib.sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _content(content: str | tuple[Part, ...]) -> list[dict[str, Any]]:
    """The blocks of a content; empty texts are left out."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content.strip() else []
    return [_part(part) for part in content if part.get("type") != "text" or str(part.get("text", "")).strip()]


def _part(part: Part) -> dict[str, Any]:
    """A part in the API's form; one of its own kinds goes as it is."""
    rest = {key: value for key, value in part.items() if key not in ("type", "image_url", "file")}
    if part.get("type") == "image_url":
        url = part.get("image_url")
        return {"type": "image", "source": _source(url.get("url") if isinstance(url, Mapping) else url), **rest}
    file = part.get("file")
    if part.get("type") == "file" and isinstance(file, Mapping):
        title = {"title": file["filename"]} if "filename" in file else {}
        return {"type": "document", "source": _source(file.get("file_data")), **title, **rest}
    if part.get("type") in ("input_audio", "refusal", "video_url"):
        raise ConfigError(f"content part of type {part.get('type')!r}: Anthropic's API has no such block")
    return dict(part)


def _source(url: Any) -> dict[str, Any]:
    """Where the bytes of a part are: in the address itself, or behind it."""
    if not isinstance(url, str):
        raise ConfigError(f"a content part needs an address or data:…;base64,…, not {type(url).__name__}")
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return {"type": "base64", "media_type": head[len("data:") : -len(";base64")], "data": data}
    return {"type": "url", "url": url}


# --- the cache ----------------------------------------------------------------------------------------------------

_EPHEMERAL = {"type": "ephemeral"}
_MARKED = frozenset({"text", "tool_result", "image", "document"})
"""The blocks that may carry a mark."""


def _mark(body: dict[str, Any]) -> None:
    """Marks the end of what stays the same: the tools and the system prompt, and the conversation so far.

    A caller's own marks are left alone: there may be four, and only the caller knows what its next request keeps.
    """
    messages: list[dict[str, Any]] = body["messages"]
    blocks = [block for m in messages if isinstance(m["content"], list) for block in m["content"]]
    system = body.get("system")
    fixed = [*body.get("tools", ()), *(system if isinstance(system, list) else ())]
    if "cache_control" in body or any("cache_control" in block for block in [*fixed, *blocks]):
        return
    if isinstance(system, str):
        body["system"] = [{"type": "text", "text": system, "cache_control": _EPHEMERAL}]
    elif fixed:
        key = "system" if system else "tools"
        body[key] = [*body[key][:-1], {**body[key][-1], "cache_control": _EPHEMERAL}]
    if messages:
        _mark_last(messages[-1])


def _mark_last(message: dict[str, Any]) -> None:
    """Marks the end of the conversation: thinking cannot be marked, and a prefill is no prefix of what comes."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    if message["role"] == "user" and blocks and blocks[-1].get("type") in _MARKED:
        message["content"] = [*blocks[:-1], {**blocks[-1], "cache_control": _EPHEMERAL}]


# --- deltas -> events ---------------------------------------------------------------------------------------------


class Dumper:
    """Writes one message as the events that the API would stream."""

    def __init__(self, *, model: str = "", id: str = "msg_0", created: int = 0) -> None:
        self._id = id
        self._model = model
        self._begun = False
        self._count = 0
        self._open: tuple[str, int] | None = None
        """The kind of the block that is open, and the number of its call."""
        self._sequence = InSequence()

    def start(self) -> list[dict[str, Any]]:
        """The record that opens the message; none if it is open."""
        if self._begun:
            return []
        self._begun = True
        return [{"type": "message_start", "message": {**_head(self._id, self._model), "content": [], **_no_end()}}]

    def feed(self, deltas: Iterable[Delta]) -> list[dict[str, Any]]:
        """The events for these deltas, ready for JSON."""
        out: list[dict[str, Any]] = []
        for delta in self._sequence.feed(deltas):
            out += self.start()
            match delta:
                case TextDelta(text):
                    out += self._block("text", -1, {"type": "text", "text": ""})
                    out.append(self._delta({"type": "text_delta", "text": text}))
                case ReasoningDelta(text):
                    out += self._block("thinking", -1, {"type": "thinking", "thinking": "", "signature": ""})
                    out.append(self._delta({"type": "thinking_delta", "thinking": text}))
                case CallDelta(index, call_id, name, arguments):
                    out += self._block("tool_use", index, _empty_call(call_id, name))
                    if arguments:
                        out.append(self._delta({"type": "input_json_delta", "partial_json": arguments}))
                case ToolCall() | BadCall():
                    out += self._close()
                case Finish():
                    out += [*self._close(), *_ended(delta)]
        return out

    def _block(self, kind: str, number: int, block: dict[str, Any]) -> list[dict[str, Any]]:
        """Opens a block, unless it is open."""
        if self._open == (kind, number):
            return []
        out = self._close()
        self._open = (kind, number)
        return [*out, {"type": "content_block_start", "index": self._count, "content_block": block}]

    def _close(self) -> list[dict[str, Any]]:
        if self._open is None:
            return []
        self._open = None
        self._count += 1
        return [{"type": "content_block_stop", "index": self._count - 1}]

    def _delta(self, delta: dict[str, Any]) -> dict[str, Any]:
        return {"type": "content_block_delta", "index": self._count, "delta": delta}


def _empty_call(call_id: str | None, name: str | None) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id or "", "name": name or "", "input": {}}


def _head(id: str, model: str) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "model": model}


def _no_end() -> dict[str, Any]:
    return {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 0, "output_tokens": 0}}


def _ended(finish: Finish) -> list[dict[str, Any]]:
    if finish.reason in ("error", "interrupted"):
        cut = finish.reason == "interrupted"
        error = interruption(finish.error) if cut else {"message": finish.error or "the model failed"}
        return [{"type": "error", "error": {"type": "api_error", **error}}]
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": word(finish.reason, finish.raw), "stop_sequence": None},
            "usage": dump_usage(finish.usage) or {"output_tokens": 0},
        },
        {"type": "message_stop"},
    ]


def word(reason: str, raw: str | None) -> str:
    """The API's word for an end: the server's own where it is one of the API's and means the same."""
    if raw in _OWN and raw is not None and WORDS.get(reason_of(raw)[0]) == WORDS.get(reason):
        return raw
    return WORDS.get(reason, "end_turn")


def dump_usage(usage: Usage | None) -> dict[str, Any]:
    """Token counts by the API's names, which count what the cache gave and took apart."""
    if not usage:
        return {}
    cached, written = usage.get("cached", 0), usage.get("cache_written", 0)
    out: dict[str, Any] = {"input_tokens": max(0, usage.get("input", 0) - cached - written)}
    out["output_tokens"] = usage.get("output", 0)
    if "cached" in usage:
        out["cache_read_input_tokens"] = cached
    if written:
        out["cache_creation_input_tokens"] = written
    return out


def dump_whole(reply: Reply, *, model: str = "", id: str = "msg_0", created: int = 0) -> dict[str, Any]:
    """A reply as the body of an answer that is not streamed."""
    if reply.finish in ("error", "interrupted"):
        return _ended(Finish(reply.finish, error=reply.error))[0]
    content: list[dict[str, Any]] = []
    if reply.reasoning:
        content.append({"type": "thinking", "thinking": reply.reasoning, "signature": ""})
    if reply.content:
        content.append({"type": "text", "text": reply.content})
    content += [{**_empty_call(c.id, c.name), "input": dict(c.arguments)} for c in reply.calls]
    usage = dump_usage(reply.usage) or {"input_tokens": 0, "output_tokens": 0}
    end = {"stop_reason": word(reply.finish, reply.raw_finish), "stop_sequence": None, "usage": usage}
    return {**_head(id, model), "content": content, **end}
