"""The chat completions API, the other way: the body of a client's request becomes a `Request`.

Law: `load_request(build(request)) == request` as far as the API can say it, and what is not understood is kept.
(tests/test_formats_requests.py::test_a_request_is_built_and_read_back)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from callgate.formats._fields import Fields, answered, call_of, content_of, kind_of, options_of, root
from callgate.formats._openai_out import DEFAULT, DETAILS, REASONING, response_format
from callgate.types import CAME, EMPTY, Message, Request, Role, Schema, ToolCall, ToolSpec

_SAME = (
    "temperature",
    "top_p",
    "max_tokens",
    "seed",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "n",
    "reasoning_effort",
    "verbosity",
    "top_k",
    "min_p",
    "repetition_penalty",
)
OPTIONS: Mapping[str, str] = {name: name for name in _SAME}
_ROLES = {"developer": "system", "function": "tool"}


def load_request(body: Mapping[str, object]) -> Request:
    """What a client asks for. Raises InvalidRequest, whose `field` says which field is wrong."""
    fields = root(body)
    messages = [_message(entry, n) for n, entry in enumerate(fields.objects("messages"))]
    tools, foreign = tools_of(fields)
    options = options_of(fields, OPTIONS)
    if (limit := fields.integer("max_completion_tokens")) is not None:  # the newer name of the same
        options["max_tokens"] = min(limit, value) if isinstance(value := options.get("max_tokens"), int) else limit
    tool_choice = _tool_choice(fields)
    schema = _schema(fields)
    stream = fields.flag("stream") or False
    parallel = fields.flag("parallel_tool_calls")
    if fields.peek("stream_options") == {"include_usage": True}:  # `build` asks for it by itself
        fields.take("stream_options")
    extra = fields.rest() | ({"tools": foreign} if foreign else {})
    return Request(
        answered(messages),
        tuple(tools),
        tool_choice=tool_choice,
        parallel=parallel,
        schema=schema,
        options=options or EMPTY,
        extra=extra or EMPTY,
        stream=stream,
    )


def tools_of(fields: Fields) -> tuple[list[ToolSpec], list[Mapping[str, object]]]:
    """The functions of a request, and the tools of other types as they are."""
    tools: list[ToolSpec] = []
    foreign: list[Mapping[str, object]] = []
    for entry in fields.objects("tools"):
        if entry.peek("type") not in ("function", None):
            foreign.append(entry.rest())
            continue
        entry.take("type")
        if (function := entry.inner("function")) is None:
            raise entry.wrong("function", "missing")
        name, description = function.needed("name"), function.text("description")
        parameters = function.mapping("parameters")
        inner = function.rest()
        extra = entry.rest() | ({"function": inner} if inner else {})
        shape: Schema = parameters or {"type": "object", "properties": {}}
        tools.append(ToolSpec(name, description or "", shape, extra=extra or EMPTY))
    return tools, foreign


def _tool_choice(fields: Fields) -> str:
    """Our word for it. One that we have no word for (allowed tools, custom ones) stays in the body as well."""
    value = fields.peek("tool_choice")
    if value is None or value in ("auto", "none", "required"):
        fields.take("tool_choice")
        return str(value or "auto")
    if not isinstance(value, Mapping):
        raise fields.wrong("tool_choice", f'"auto", "none", "required" or an object is needed, not {kind_of(value)}')
    function = value.get("function")
    if value.get("type") == "function" and isinstance(function, Mapping) and isinstance(function.get("name"), str):
        fields.take("tool_choice")
        return str(function["name"])
    allowed = value.get("allowed_tools")
    return "required" if isinstance(allowed, Mapping) and allowed.get("mode") == "required" else "auto"


def _schema(fields: Fields) -> Schema | None:
    value = fields.peek("response_format")
    if not isinstance(value, Mapping) or value.get("type") != "json_schema":
        if value is not None and not isinstance(value, Mapping):
            raise fields.wrong("response_format", f"an object is needed, not {kind_of(value)}")
        return None
    inner = value.get("json_schema")
    schema = inner.get("schema") if isinstance(inner, Mapping) else None
    if not isinstance(schema, Mapping):
        raise fields.wrong("response_format.json_schema.schema", f"an object is needed, not {kind_of(schema)}")
    if value == response_format(schema, DEFAULT):  # else its name and its `strict` stay as the client gave them
        fields.take("response_format")
    return schema


def _message(fields: Fields, number: int) -> Message:
    given = fields.text("role")
    role = role_of(given, fields)
    content = content_of(fields)
    if role == "assistant":
        return _answer(fields, content, number)
    call_id, name = None, None
    if role == "tool":
        # Before there were several calls a result had no id: the call of the message before it is meant.
        call_id = _legacy_id(number - 1) if given == "function" else fields.text("tool_call_id")
        name = fields.text("name")
    extra = fields.rest() | ({"role": given} if given == "developer" else {})
    return Message(role, content, call_id=call_id, name=name, extra=extra or EMPTY)


def role_of(given: object, fields: Fields) -> Role:
    """Our role for a role; `fields` tell the place of one that there is not."""
    role: Role | None = next((r for r in get_args(Role) if r == _ROLES.get(str(given), given)), None)
    if role is None:
        allowed = ", ".join([*get_args(Role), *_ROLES])
        raise fields.wrong("role", f"{str(given)[:40]!r} is none of {allowed}")
    return role


def _answer(fields: Fields, content: str | tuple[Mapping[str, object], ...], number: int) -> Message:
    """A message of the assistant: its reasoning goes back in the field in which it came."""
    came: dict[str, object] = {}
    reasoning = ""
    for key in REASONING:
        if isinstance(text := fields.peek(key), str):
            fields.take(key)
            if text and not reasoning:
                reasoning = text
                came[key] = None
    if details := fields.items(DETAILS):
        came = {DETAILS: details}
    calls = _calls(fields, number)
    extra = {key: value for key, value in fields.rest().items() if value is not None}
    if came:
        extra[CAME] = came
    return Message("assistant", content, reasoning, tuple(calls), extra=extra or EMPTY)


def _calls(fields: Fields, number: int) -> list[ToolCall]:
    """The calls of functions; where there are others among them, the list stays in the message as well."""
    given = fields.peek("tool_calls")
    calls: list[ToolCall] = []
    others = False
    for entry in fields.objects("tool_calls"):
        if entry.peek("type") not in ("function", None):
            others = True
            continue
        entry.take("type")
        entry.take("index")
        call_id = entry.text("id") or ""
        if (function := entry.inner("function")) is None:
            raise entry.wrong("function", "missing")
        calls.append(call_of(function, id=call_id, index=len(calls), extra=entry.rest()))
    if others:
        fields.rest()["tool_calls"] = given
    if (legacy := fields.inner("function_call")) is not None:
        calls.append(call_of(legacy, id=_legacy_id(number), index=len(calls)))
    return calls


def _legacy_id(number: int) -> str:
    return f"call_message_{number}"
