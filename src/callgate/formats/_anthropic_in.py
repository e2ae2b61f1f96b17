"""Anthropic's Messages API, the other way: the body of a client's request becomes a `Request`.

Law: that of the room (callgate/formats/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.formats._anthropic_out import BLOCKS
from callgate.formats._fields import Fields, answered, call_of, kind_of, options_of, root
from callgate.formats._layout import CALL, TEXT, kept
from callgate.types import CAME, EMPTY, Message, Part, Request, Role, Schema, ToolCall, ToolSpec

_OPTIONS: Mapping[str, str] = {
    **{name: name for name in ("temperature", "top_p", "top_k", "max_tokens", "thinking")},
    "stop_sequences": "stop",
}


_ROLES: tuple[Role, ...] = ("user", "assistant", "system")


def load_request(body: Mapping[str, object]) -> Request:
    """What a client asks for. Raises InvalidRequest, whose `field` says which field is wrong."""
    fields = root(body)
    messages = _system(fields)
    for entry in fields.objects("messages"):
        messages += _message(entry)
    tools, foreign = _tools(fields)
    tool_choice, parallel = _choice(fields)
    options = options_of(fields, _OPTIONS)
    schema = _output(fields, options)
    stream = fields.flag("stream") or False
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


def _system(fields: Fields) -> list[Message]:
    """The system prompt; each of its blocks is a message, with the fields of its own (`cache_control`)."""
    value = fields.peek("system")
    if value is None or isinstance(value, str):
        return [Message("system", text)] if (text := fields.text("system")) else []
    out = []
    for block in fields.objects("system"):
        block.take("type")
        out.append(Message("system", block.text("text") or "", extra=block.rest() or EMPTY))
    return out


def _tools(fields: Fields) -> tuple[list[ToolSpec], list[Mapping[str, object]]]:
    """The client's tools, and those of the server's own kinds as they are."""
    tools: list[ToolSpec] = []
    foreign: list[Mapping[str, object]] = []
    for entry in fields.objects("tools"):
        if entry.peek("type") not in ("custom", None):
            foreign.append(entry.rest())
            continue
        name, description = entry.needed("name"), entry.text("description")
        shape: Schema = entry.mapping("input_schema") or {"type": "object", "properties": {}}
        tools.append(ToolSpec(name, description or "", shape, extra=entry.rest() or EMPTY))
    return tools, foreign


def _choice(fields: Fields) -> tuple[str, bool | None]:
    choice = fields.inner("tool_choice")
    if choice is None:
        return "auto", None
    single = choice.flag("disable_parallel_tool_use")
    kind = choice.needed("type")
    parallel = None if single is None else not single
    if kind == "tool":
        return choice.needed("name"), parallel
    kinds = {"auto": "auto", "none": "none", "any": "required"}
    if kind not in kinds:
        raise choice.wrong("type", f"{kind[:40]!r} is none of auto, any, none, tool")
    return kinds[kind], parallel


def _output(fields: Fields, options: dict[str, object]) -> Schema | None:
    """Effort and schema out of `output_config`; what else is in it stays."""
    given = fields.peek("output_config")
    output = fields.inner("output_config")
    if output is None or not isinstance(given, dict):
        return None
    if (effort := output.text("effort")) is not None:
        options["reasoning_effort"] = effort
    schema: Schema | None = None
    form = output.inner("format")
    if form is not None and form.peek("type") == "json_schema":
        schema = form.mapping("schema")
        if schema is None:
            raise form.wrong("schema", "missing")
    elif form is not None:
        output.rest()["format"] = given["format"]
    if rest := output.rest():
        fields.rest()["output_config"] = rest
    return schema


# --- messages -----------------------------------------------------------------------------------------------------


def _message(fields: Fields) -> list[Message]:
    """A message; one of the user may hold results as well, which are messages of their own."""
    given = fields.text("role")
    role: Role | None = next((known for known in _ROLES if known == given), None)
    if role is None:
        raise fields.wrong("role", f"{str(given)[:40]!r} is none of {', '.join(_ROLES)}")
    if isinstance(value := fields.peek("content"), str):
        fields.take("content")
        return [Message(role, value, extra=fields.rest() or EMPTY)]
    blocks = _blocks(fields)
    if role == "assistant":
        return [_answer(blocks, fields.rest())]
    results = [block for block in blocks if block.peek("type") == "tool_result"]
    out = [_result(block) for block in results]
    if parts := [_part(block) for block in blocks if block not in results]:
        out.append(Message(role, _plain(parts), extra=fields.rest() or EMPTY))
    return out


def _blocks(fields: Fields) -> list[Fields]:
    """The blocks of a message, each with a type."""
    if not isinstance(value := fields.peek("content"), list):
        raise fields.wrong("content", f"a string or a list of blocks is needed, not {kind_of(value)}")
    blocks = fields.objects("content")
    for block in blocks:
        if not isinstance(block.peek("type"), str):
            raise block.wrong("type", f"a string is needed, not {kind_of(block.peek('type'))}")
    return blocks


def _plain(parts: list[Part]) -> str | tuple[Part, ...]:
    """One text without fields of its own is a text."""
    if len(parts) == 1 and parts[0].keys() == {"type", "text"}:
        return str(parts[0]["text"])
    return tuple(parts)


def _result(block: Fields) -> Message:
    block.take("type")
    call_id = block.needed("tool_use_id")
    value = block.peek("content")
    content: str | tuple[Part, ...]
    if value is None or isinstance(value, str):
        content = block.text("content") or ""
    else:
        content = tuple(_part(part) for part in block.objects("content"))
    return Message("tool", content, call_id=call_id, extra=block.rest() or EMPTY)


def _part(block: Fields) -> Part:
    """A block as a part in the OpenAI form; one that has no such form stays as it is."""
    kind = block.peek("type")
    if kind == "text" and not isinstance(block.peek("text"), str):
        raise block.wrong("text", f"a string is needed, not {kind_of(block.peek('text'))}")
    url = _address(block.peek("source"))
    if url is None:
        return block.rest()
    if kind == "image":
        return {"type": "image_url", "image_url": {"url": url}} | _without(block.rest(), "type", "source")
    if kind == "document" and url.startswith("data:"):
        title = block.peek("title")
        name = {"filename": title} if isinstance(title, str) else {}
        rest = _without(block.rest(), "type", "source", *(("title",) if name else ()))
        return {"type": "file", "file": {"file_data": url, **name}} | rest
    return block.rest()


def _address(source: object) -> str | None:
    """The address of a source; None: it is none of those that an address can say."""
    if not isinstance(source, dict):
        return None
    match source.get("type"):
        case "base64" if isinstance(source.get("data"), str) and source.keys() == {"type", "media_type", "data"}:
            return f"data:{source['media_type']};base64,{source['data']}"
        case "url" if isinstance(url := source.get("url"), str) and source.keys() == {"type", "url"}:
            return url
    return None


def _without(rest: dict[str, object], *names: str) -> dict[str, object]:
    return {key: value for key, value in rest.items() if key not in names}


def _answer(blocks: list[Fields], extra: dict[str, object]) -> Message:
    """An answer of the model: text, reasoning and calls apart, and the layout where they alone do not say it all."""
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    layout: list[dict[str, object]] = []
    for block in blocks:
        match block.take("type"):
            case "text":
                text = block.text("text") or ""
                texts.append(text)
                layout.append({TEXT: len(text), **block.rest()})
            case "tool_use":
                calls.append(_call(block, len(calls)))
                layout.append({CALL: calls[-1].id})
            case kind:
                if kind == "thinking":
                    reasoning.append(str(block.peek("thinking") or ""))
                if kind != "thinking" or block.peek("signature"):
                    layout.append({"type": kind, **block.rest()})
    content = "".join(texts)
    if came := kept(BLOCKS, layout):
        extra[CAME] = came
    return Message("assistant", content, "".join(reasoning), tuple(calls), extra=extra or EMPTY)


def _call(block: Fields, index: int) -> ToolCall:
    call_id, name = block.needed("id"), block.needed("name")
    given = block.take("input")
    function = Fields({"name": name, "arguments": given}, block.place)
    return call_of(function, id=call_id, index=index, extra=block.rest())
