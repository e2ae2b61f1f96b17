"""Ollama's own API, the other way: the body of a client's request becomes a `Request`.

Law: that of the room (callgate/formats/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.formats._fields import Fields, answered, call_of, kind_of, options_of, root
from callgate.formats._openai_in import role_of, tools_of
from callgate.types import CAME, EMPTY, Message, Part, Request, Schema

_OPTIONS: Mapping[str, str] = {
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "seed", "stop")},
    **{name: name for name in ("presence_penalty", "frequency_penalty", "num_ctx")},
    "num_predict": "max_tokens",
}
_TOP = ("keep_alive", "logprobs", "top_logprobs", "truncate", "shift")
_EFFORTS = frozenset({"low", "medium", "high"})
_KINDS = (("iVBOR", "png"), ("/9j/", "jpeg"), ("R0lGOD", "gif"), ("UklGR", "webp"), ("Qk", "bmp"))
"""How the base64 text of an image of each kind begins; Ollama's API does not say the kind."""


def load_request(body: Mapping[str, object]) -> Request:
    """What a client of /api/chat or /api/generate asks for. Raises InvalidRequest, whose `field` says what is wrong."""
    fields = root(body)
    messages = [_message(entry) for entry in fields.objects("messages")] or _prompt(fields)
    tools, foreign = tools_of(fields)
    schema = _schema(fields)
    stream = fields.flag("stream")
    options, unknown = _options(fields)
    extra = fields.rest() | ({"tools": foreign} if foreign else {}) | ({"options": unknown} if unknown else {})
    return Request(
        answered(messages),
        tuple(tools),
        schema=schema,
        options=options or EMPTY,
        extra=extra or EMPTY,
        stream=stream is not False,  # Ollama streams unless it is told not to
    )


def _options(fields: Fields) -> tuple[dict[str, object], dict[str, object]]:
    """The options by our names, and those that only Ollama knows."""
    options: dict[str, object] = {}
    unknown: dict[str, object] = {}
    if (given := fields.inner("options")) is not None:
        options = options_of(given, _OPTIONS)
        unknown = given.rest()
    if isinstance(limit := options.get("max_tokens"), int) and limit <= 0:  # -1: without end
        unknown["num_predict"] = options.pop("max_tokens")
    think = fields.take("think")
    if isinstance(think, str) and think in _EFFORTS:
        options["reasoning_effort"] = think
    elif isinstance(think, bool):
        options["think"] = think
    elif think is not None:
        raise fields.wrong("think", f'true, false, "low", "medium" or "high" is needed, not {str(think)[:40]!r}')
    for name in _TOP:
        if (value := fields.take(name)) is not None and not (name == "truncate" and value is False):
            options[name] = value  # `build` writes truncate: false by itself
    return options, unknown


def _schema(fields: Fields) -> Schema | None:
    value = fields.peek("format")
    if isinstance(value, dict):
        fields.take("format")
        return value
    if value in ("", None):
        fields.take("format")
    elif value != "json":
        raise fields.wrong("format", f'"json" or a schema is needed, not {kind_of(value)}')
    return None


def _prompt(fields: Fields) -> list[Message]:
    """The prompt of /api/generate as messages; `raw`, `template`, `suffix` and `context` stay in the body."""
    prompt, system = fields.text("prompt"), fields.text("system")
    out = [Message("system", system)] if system else []
    if prompt is not None:
        out.append(Message("user", _content(prompt, fields)))
    return out


def _content(text: str, fields: Fields) -> str | tuple[Part, ...]:
    """Text, or text with images, which Ollama gives as base64 texts."""
    images = [_image(value, f"images[{n}]", fields) for n, value in enumerate(fields.items("images"))]
    if not images:
        return text
    words: tuple[Part, ...] = ({"type": "text", "text": text},) if text else ()
    return (*words, *images)


def _image(value: object, place: str, fields: Fields) -> Part:
    if not isinstance(value, str):
        raise fields.wrong(place, f"a base64 string is needed, not {kind_of(value)}")
    kind = next((kind for start, kind in _KINDS if value.startswith(start)), "png")
    return {"type": "image_url", "image_url": {"url": f"data:image/{kind};base64,{value}"}}


def _message(fields: Fields) -> Message:
    role = role_of(fields.text("role"), fields)
    content = _content(fields.text("content") or "", fields)
    if role == "assistant":
        reasoning = fields.text("thinking") or ""
        calls = []
        for index, entry in enumerate(fields.objects("tool_calls")):
            entry.take("type")
            call_id = entry.text("id") or ""
            if (function := entry.inner("function")) is None:
                raise entry.wrong("function", "missing")
            function.take("index")
            calls.append(call_of(function, id=call_id, index=index, extra=entry.rest()))
        extra = fields.rest() | ({CAME: {"thinking": None}} if reasoning else {})
        return Message("assistant", content, reasoning, tuple(calls), extra=extra or EMPTY)
    if role != "tool":
        return Message(role, content, extra=fields.rest() or EMPTY)
    name, answers = fields.text("tool_name") or fields.text("name"), fields.text("tool_call_id")
    return Message(role, content, call_id=answers, name=name, extra=fields.rest() or EMPTY)
