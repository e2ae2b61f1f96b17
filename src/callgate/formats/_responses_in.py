"""OpenAI's Responses API, the other way: the body of a client's request becomes a `Request`.

Law: that of the room (callgate/formats/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.formats._fields import Fields, answered, call_of, kind_of, options_of, root
from callgate.formats._layout import CALL, TEXT, kept
from callgate.formats._responses_out import ITEM, ITEMS, PARTS, text_format
from callgate.types import CAME, EMPTY, Message, Part, Request, Role, Schema, ToolCall, ToolSpec

_OPTIONS: Mapping[str, str] = {
    **{name: name for name in ("temperature", "top_p", "top_logprobs")},
    "max_output_tokens": "max_tokens",
}
_ROLES: Mapping[object, Role] = {"user": "user", "system": "system", "developer": "system", "assistant": "assistant"}
_TEXTS = {"input_text": "text", "output_text": "text", "text": "text", "refusal": "refusal"}
"""The types of parts that hold text, and the field that it stands in."""


def load_request(body: Mapping[str, object]) -> Request:
    """What a client asks for. Raises InvalidRequest, whose `field` says which field is wrong."""
    fields = root(body)
    messages = [Message("system", text)] if (text := fields.text("instructions")) else []
    if isinstance(fields.peek("input"), str):
        messages.append(Message("user", fields.text("input") or ""))
    else:
        messages += _messages(fields)
    tools, foreign = _tools(fields)
    choice = _choice(fields)
    options = options_of(fields, _OPTIONS)
    _reasoning(fields, options)
    schema = _text(fields, options)
    stream = fields.flag("stream") or False
    parallel = fields.flag("parallel_tool_calls")
    extra = fields.rest() | ({"tools": foreign} if foreign else {})
    return Request(
        answered(messages),
        tuple(tools),
        tool_choice=choice,
        parallel=parallel,
        schema=schema,
        options=options or EMPTY,
        extra=extra or EMPTY,
        stream=stream,
    )


def _tools(fields: Fields) -> tuple[list[ToolSpec], list[Mapping[str, object]]]:
    """The functions of a request, and the tools of other types as they are."""
    tools: list[ToolSpec] = []
    foreign: list[Mapping[str, object]] = []
    for entry in fields.objects("tools"):
        if entry.peek("type") not in ("function", None):
            foreign.append(entry.rest())
            continue
        entry.take("type")
        name, description = entry.needed("name"), entry.text("description")
        shape: Schema = entry.mapping("parameters") or {"type": "object", "properties": {}}
        strict = {"strict": True} if entry.flag("strict") else {}  # `build` says by itself that it is off
        inner = {**strict, **entry.rest()}
        tools.append(ToolSpec(name, description or "", shape, extra={"function": inner} if inner else EMPTY))
    return tools, foreign


def _choice(fields: Fields) -> str:
    """Our word for it. One that we have no word for (allowed tools, hosted ones) stays in the body as well."""
    value = fields.peek("tool_choice")
    if value is None or value in ("auto", "none", "required"):
        fields.take("tool_choice")
        return str(value or "auto")
    if not isinstance(value, Mapping):
        raise fields.wrong("tool_choice", f'"auto", "none", "required" or an object is needed, not {kind_of(value)}')
    if value.get("type") == "function" and isinstance(name := value.get("name"), str):
        if value.keys() == {"type", "name"}:
            fields.take("tool_choice")
        return name
    return "required" if value.get("mode") == "required" else "auto"


def _reasoning(fields: Fields, options: dict[str, object]) -> None:
    """The effort out of `reasoning`; what else is in it stays."""
    if (reasoning := fields.inner("reasoning")) is None:
        return
    if (effort := reasoning.text("effort")) is not None:
        options["reasoning_effort"] = effort
    if rest := reasoning.rest():
        fields.rest()["reasoning"] = rest


def _text(fields: Fields, options: dict[str, object]) -> Schema | None:
    """Verbosity and schema out of `text`; a format with a name or strictness of the client's own stays."""
    if (text := fields.inner("text")) is None:
        return None
    if (verbosity := text.text("verbosity")) is not None:
        options["verbosity"] = verbosity
    schema: Schema | None = None
    given = text.peek("format")
    if (form := text.inner("format")) is not None:
        if form.peek("type") == "json_schema":
            schema = form.mapping("schema")
            if schema is None:
                raise form.wrong("schema", "missing")
        if schema is None or given != text_format(schema):
            text.rest()["format"] = given
    if rest := text.rest():
        fields.rest()["text"] = rest
    return schema


# --- items --------------------------------------------------------------------------------------------------------


def _messages(fields: Fields) -> list[Message]:
    """The items as messages; what the model wrote between two other items is one answer."""
    out: list[Message] = []
    answer: _Answer | None = None
    for item in fields.objects("input"):
        message = _message(item)
        if message is None:
            answer = answer or _Answer()
            answer.add(item)
            continue
        out += [answer.message()] if answer is not None else []
        answer = None
        out.append(message)
    return [*out, answer.message()] if answer is not None else out


def _message(item: Fields) -> Message | None:
    """What a person, the application or a tool said; None: it belongs to an answer of the model."""
    kind = item.peek("type")
    if kind == "function_call_output":
        return _result(item)
    if kind not in ("message", None):
        return None
    given = item.peek("role")
    role = _ROLES.get(given) if isinstance(given, str) else None
    if role is None:
        raise item.wrong("role", f"{str(given)[:40]!r} is none of {', '.join(map(str, _ROLES))}")
    if role == "assistant":
        return None
    item.take("type")
    item.take("role")
    content = _content(item, "content")
    # an item with a role stays an item: only what stands in `instructions` is written there again
    extra = item.rest() | ({"role": given} if role == "system" else {})
    return Message(role, content, extra=extra or EMPTY)


def _result(item: Fields) -> Message:
    item.take("type")
    call_id = item.needed("call_id")
    content = _content(item, "output")
    return Message("tool", content, call_id=call_id, extra=item.rest() or EMPTY)


def _content(item: Fields, name: str) -> str | tuple[Part, ...]:
    value = item.peek(name)
    if value is None or isinstance(value, str):
        return item.text(name) or ""
    if not isinstance(value, list):
        raise item.wrong(name, f"a string or a list of parts is needed, not {kind_of(value)}")
    return tuple(_part(part) for part in item.objects(name))


def _part(part: Fields) -> Part:
    """A part in the OpenAI form; one that has no such form stays as it is."""
    kind = part.peek("type")
    if not isinstance(kind, str):
        raise part.wrong("type", f"a string is needed, not {kind_of(kind)}")
    if (key := _TEXTS.get(kind)) is not None:
        if not isinstance(part.peek(key), str):
            raise part.wrong(key, f"a string is needed, not {kind_of(part.peek(key))}")
        return {**part.rest(), "type": key}
    rest = part.rest()
    if kind == "input_image" and isinstance(url := rest.get("image_url"), str):
        image = {"url": url} | {key: rest[key] for key in ("detail",) if rest.get(key) is not None}
        return _without(rest, "type", "image_url", "detail") | {"type": "image_url", "image_url": image}
    if kind == "input_file" and "file_url" not in rest:
        file = {key: rest[key] for key in ("file_data", "file_id", "filename") if rest.get(key) is not None}
        return _without(rest, "type", "file_data", "file_id", "filename") | {"type": "file", "file": file}
    return rest


def _without(rest: Mapping[str, object], *names: str) -> dict[str, object]:
    return {key: value for key, value in rest.items() if key not in names}


class _Answer:
    """One answer of the model, put together from its items."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[ToolCall] = []
        self._layout: list[dict[str, object]] = []

    def add(self, item: Fields) -> None:
        """The next item; one of a kind that we do not read is kept in its place."""
        match item.peek("type"):
            case "function_call":
                self._call(item)
            case "message" | None:
                self._message(item)
            case kind:
                if not isinstance(kind, str):
                    raise item.wrong("type", f"a string is needed, not {kind_of(kind)}")
                if kind == "reasoning":
                    self._thoughts.append(thoughts(item.rest()))
                self._layout.append(item.rest())

    def _call(self, item: Fields) -> None:
        item.take("type")
        call_id = item.needed("call_id")
        function = Fields({"name": item.take("name"), "arguments": item.take("arguments")}, item.place)
        self._calls.append(call_of(function, id=call_id, index=len(self._calls)))
        self._layout.append({CALL: call_id, **({ITEM: rest} if (rest := item.rest()) else {})})

    def _message(self, item: Fields) -> None:
        """A message of the model; its parts are kept where there is more in them than one text."""
        raw = dict(item.rest())
        item.take("role")
        value = item.peek("content")
        if value is not None and not isinstance(value, (str, list)):
            raise item.wrong("content", f"a string or a list of parts is needed, not {kind_of(value)}")
        entry: dict[str, object] = {}
        if isinstance(value, list):
            parts, text = _parts(item)
            entry[PARTS] = parts
        else:
            text = item.text("content") or ""
        if not text:  # nothing that could be cut out of the message's text
            self._layout.append(raw)
            return
        self._texts.append(text)
        rest = item.rest()
        self._layout.append({TEXT: len(text), **entry, **({ITEM: rest} if rest else {})})

    def message(self) -> Message:
        """The answer, with the layout where text, then calls do not say it all."""
        came = kept(ITEMS, self._layout)
        extra = {CAME: came} if came else EMPTY
        return Message("assistant", "".join(self._texts), "".join(self._thoughts), tuple(self._calls), extra=extra)


def _parts(item: Fields) -> tuple[list[dict[str, object]], str]:
    """The parts of a message, their text replaced by its length, and the text of all."""
    out: list[dict[str, object]] = []
    texts: list[str] = []
    for part in item.objects("content"):
        kind = part.peek("type")
        key = _TEXTS.get(kind) if isinstance(kind, str) else None
        if key is None:
            out.append(part.rest())
            continue
        text = part.text(key) or ""
        texts.append(text)
        out.append({**part.rest(), TEXT: len(text)})
    return out, "".join(texts)


def thoughts(item: Mapping[str, object]) -> str:
    """The readable reasoning of a reasoning item: its text where a server shows that, else the summary."""
    for key in ("content", "summary"):
        parts = item.get(key)
        found = [part.get("text") for part in parts if isinstance(part, Mapping)] if isinstance(parts, list) else []
        if texts := [text for text in found if isinstance(text, str) and text]:
            return "\n\n".join(texts)
    return ""
