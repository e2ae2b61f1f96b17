"""OpenAI's Responses API, the other way: a `Request` to its body.

Law: what came encrypted or signed goes back unchanged and in its place, and what the API would refuse is not written.
(tests/test_formats_responses.py::test_reasoning_goes_back_as_it_came_and_in_its_place)

A conversation is a flat list of items: messages, calls, results and reasoning stand side by side, so one message of
ours is several of them. `previous_response_id` is never written by itself: the whole conversation goes out with each
request, and nothing depends on what a server stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from callgate.errors import ConfigError
from callgate.formats._accepted import Accepted, accepted
from callgate.formats._calls import dump_arguments
from callgate.formats._layout import TEXT, Entry, layout_of, placed
from callgate.formats._openai_out import strict
from callgate.formats._sent_schema import OPENAI
from callgate.types import CAME, Message, Part, Request, Schema, ToolCall, ToolSpec

ITEMS = "response_items"
"""The key of a message's layout (_layout.py)."""
ITEM = "item"
"""The key of an entry of a layout with the fields of the item that it stands for."""
PARTS = "parts"
"""The key of an entry of a layout with the parts of a message; `TEXT` in a part counts its characters."""
MAX_TOOLS = 128
"""The same limit as that of chat completions (providers/openai.py)."""
MAX_ID = 64
"""Errors of the API: "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64"."""
ENCRYPTED = "reasoning.encrypted_content"
_NAMES = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_CANNOT = frozenset(
    {"stop", "seed", "presence_penalty", "frequency_penalty", "logit_bias", "logprobs", "n", "top_k", "min_p"}
)
"""What chat completions have and this API answers with "Unknown parameter: 'stop'"."""
_OURS = frozenset({CAME, "pinned"})
_KINDS = {"text": ("input_text", "output_text"), "refusal": ("input_text", "refusal")}
"""The types of parts, in what goes in and in what the model wrote."""


def accept(request: Request) -> Accepted:
    """The request with names and schemas that the API accepts."""
    return accepted(request, OPENAI, max_tools=MAX_TOOLS)


def build(request: Request, model: str, *, stateless: bool = False) -> dict[str, object]:
    """The body that asks for an answer to `request`; what the API cannot do is a `ConfigError`.

    `stateless`: the server is asked to store nothing and to hand out its reasoning encrypted, so that it can go back.
    """
    if cannot := sorted(_CANNOT & request.options.keys()):
        raise ConfigError(f"{', '.join(cannot)}: the Responses API has no such option")
    extra = dict(request.extra)
    body: dict[str, object] = {"model": model}
    messages = list(request.messages)
    if messages and (instructions := _instructions(messages[0])):
        body["instructions"] = instructions
        messages.pop(0)
    body["input"] = [item for message in messages for item in _items(message)]
    foreign = extra.pop("tools", ())
    if tools := [*map(_tool, request.tools), *(foreign if isinstance(foreign, (list, tuple)) else ())]:
        body |= {"tools": tools, **_choice(request)}
    _options(request, body)
    for key in ("text", "reasoning"):  # objects of which we wrote a part
        if isinstance(given := extra.get(key), Mapping) and isinstance(ours := body.get(key), Mapping):
            extra[key] = {**ours, **given}
    if request.stream:
        body["stream"] = True
    if stateless:
        body |= {"store": False, "include": [ENCRYPTED]}
    return body | extra


def _instructions(first: Message) -> str:
    """The first message as the API's `instructions`; "": it is none of ours, and stays an item."""
    return first.content if first.role == "system" and isinstance(first.content, str) and not first.extra else ""


def _choice(request: Request) -> dict[str, object]:
    """Which tools may be called, and whether several at once; only where there are tools."""
    out: dict[str, object] = {}
    if request.tool_choice != "auto":
        plain = request.tool_choice in ("none", "required")
        out["tool_choice"] = request.tool_choice if plain else {"type": "function", "name": request.tool_choice}
    if request.parallel is not None:
        out["parallel_tool_calls"] = request.parallel
    return out


def _options(request: Request, body: dict[str, object]) -> None:
    """The sampling options, and what of them stands in objects of the API's own."""
    text: dict[str, object] = {}
    for key, value in request.options.items():
        if key == "verbosity":
            text[key] = value
        elif key in ("reasoning_effort", "think"):
            body["reasoning"] = {"effort": _effort(value)}
        else:
            body[_NAMES.get(key, key)] = value
    if request.schema is not None:
        text["format"] = text_format(request.schema)
    if text:
        body["text"] = text


def _effort(value: object) -> object:
    """How long to think; Ollama's `think` is yes or no."""
    return "medium" if value is True else "none" if value is False else value


def text_format(schema: Schema) -> dict[str, object]:
    """How structured output is asked for."""
    return {"type": "json_schema", "name": "answer", "schema": dict(schema), "strict": strict(schema)}


def _tool(tool: ToolSpec) -> dict[str, object]:
    """A function, flat. `strict` is said because here, other than in chat completions, it is on where nobody says."""
    extra = dict(tool.extra)
    function = extra.pop("function", {})
    out: dict[str, object] = {"type": "function", "name": tool.name}
    if tool.description:
        out["description"] = tool.description
    return {**out, "parameters": dict(tool.parameters), "strict": False, **function, **extra}


# --- messages -----------------------------------------------------------------------------------------------------


def _items(message: Message) -> Iterator[dict[str, object]]:
    """The items that a message is."""
    if message.role == "assistant":
        yield from _answer(message)
        return
    rest = {key: value for key, value in message.extra.items() if key not in _OURS}
    if message.role == "tool":
        head = {"type": "function_call_output", "call_id": call_id(message.call_id or "")}
        yield {**head, "output": _content(message.content), **rest}
        return
    yield {"role": message.role, "content": _content(message.content), **rest}


def _content(content: str | Sequence[Part]) -> str | list[dict[str, object]]:
    return content if isinstance(content, str) else [_part(part, 0) for part in content]


def _answer(message: Message) -> Iterator[dict[str, object]]:
    """An answer's items: reasoning goes back only as it came, in its place."""
    if layout := layout_of(message, ITEMS):
        calls = message.calls
        items = placed(message, layout, text=_written, call=lambda n, entry: _call(calls[n], entry), none={})
        yield from (item for item in items if isinstance(item, dict))
        return
    rest = {key: value for key, value in message.extra.items() if key not in _OURS}
    content = message.content
    if content:
        blocks = content if isinstance(content, str) else [_part(part, 1) for part in content]
        yield {"role": "assistant", "content": blocks, **rest}
    yield from (_call(call, {}) for call in message.calls)


def _written(text: str, entry: Entry) -> dict[str, object]:
    """The message that an entry stands for, in the parts in which it came."""
    item = entry.get(ITEM)
    fields = item if isinstance(item, Mapping) else {}
    parts = entry.get(PARTS)
    content: object = text
    if isinstance(parts, list):
        content = _cut(text, [part for part in parts if isinstance(part, Mapping)])
    return {"role": "assistant", "content": content, **fields}


def _cut(text: str, parts: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """The parts with their pieces of the text; one that was changed since stands in the first of them."""
    sizes = [size if isinstance(size := part.get(TEXT), int) else 0 for part in parts]
    fits, at, out = sum(sizes) == len(text), 0, []
    for part, size in zip(parts, sizes, strict=True):
        if TEXT not in part:
            out.append(dict(part))
            continue
        piece = text[at : at + size] if fits else text[at:]
        at += size if fits else len(text)
        key = "refusal" if part.get("type") == "refusal" else "text"
        out.append({name: value for name, value in part.items() if name != TEXT} | {key: piece})
    return out


def _call(call: ToolCall, entry: Entry) -> dict[str, object]:
    """A call; the fields of its item stand in the layout, those of other providers are not for this API."""
    item = entry.get(ITEM)
    function = call.extra.get("function")
    raw = function.get("arguments") if isinstance(function, Mapping) else None
    arguments = raw if isinstance(raw, str) else dump_arguments(call.arguments)  # a model's slip, as it came
    out = {"type": "function_call", "call_id": call_id(call.id), "name": call.name, "arguments": arguments}
    return {**out, **(item if isinstance(item, Mapping) else {})}


def call_id(given: str) -> str:
    """The id in the API's form: a function of the id alone, so the same over a whole conversation."""
    if len(given) <= MAX_ID:
        return given
    return f"call_{hashlib.sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def _part(part: Part, side: int) -> dict[str, object]:
    """A part in the API's form; one of its own kinds goes as it is. `side`: 0 goes in, 1 was written by the model."""
    kind = part.get("type")
    rest = {key: value for key, value in part.items() if key not in ("type", "image_url", "file")}
    if kind in _KINDS:
        name = _KINDS[str(kind)][side]
        return {"type": name, **rest}
    if kind == "image_url":
        image = part.get("image_url")
        fields = dict(image) if isinstance(image, Mapping) else {"url": image}
        return {"type": "input_image", "image_url": fields.pop("url", None), **fields, **rest}
    if kind == "file" and isinstance(file := part.get("file"), Mapping):
        return {"type": "input_file", **file, **rest}
    return dict(part)
