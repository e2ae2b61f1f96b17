"""The bodies of clients' requests become what was asked: `load_request(build(request)) == request`, as far as each API
can say it. What it cannot say is listed in `CANNOT_SAY`, and the generator leaves exactly that out."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import formats
from callgate.errors import InvalidRequest
from callgate.types import CAME, Message, Request, ToolCall, ToolSpec

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
WORD = st.text("abcdefg_0123456789", min_size=1, max_size=12).map(lambda word: f"x{word}")
VALUE = st.recursive(
    st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXT, VALUE, max_size=3)
PNG = "iVBORw0KGgo" + base64.b64encode(b"pixels").decode()
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

ALL = frozenset(formats.names())
CANNOT_SAY: Mapping[str, frozenset[str]] = {
    # what: the formats that have no word for it
    # openai: the plain API takes none back, servers that do have it in their quirks; anthropic, responses: only what is
    # signed or encrypted, as it came
    "reasoning": frozenset({"openai", "anthropic", "responses"}),
    "tool_choice": frozenset({"ollama"}),
    "parallel": frozenset({"ollama"}),
    "parallel, without calls": frozenset({"anthropic"}),
    "stop": frozenset({"responses"}),
    "image address": frozenset({"ollama"}),
    "mixed parts": frozenset({"ollama"}),  # one text, then images
}
"""No format says: a tool's effect, permission and other rules; `flags` and `index` of a call; `pinned`; a result's
`unknown`. They are callgate's own."""


def can(wire: str, what: str) -> bool:
    return wire not in CANNOT_SAY[what]


@st.composite
def turns(draw: st.DrawFn, wire: str, number: int) -> list[Message]:
    """A question, the calls of an answer with their results, and an answer."""
    out = [Message("user", draw(TEXT))]
    if draw(st.booleans()):
        parts: tuple[dict[str, Any], ...] = ({"type": "text", "text": draw(TEXT)}, IMAGE)
        if can(wire, "mixed parts") and draw(st.booleans()):
            parts = (*parts, {"type": "text", "text": draw(TEXT)})
        if can(wire, "image address") and draw(st.booleans()):
            parts = (*parts, {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}})
        out = [Message("user", parts)]
    reasoning = st.just("") | TEXT if can(wire, "reasoning") else st.just("")
    names = draw(st.lists(WORD, max_size=2))
    if names:
        calls = tuple(ToolCall(f"call_{number}_{n}", name, draw(ARGUMENTS), n) for n, name in enumerate(names))
        out.append(Message("assistant", draw(TEXT | st.just("")), draw(reasoning), calls))
        out += [Message("tool", draw(TEXT), call_id=call.id, name=call.name) for call in calls]
    return [*out, Message("assistant", draw(TEXT), draw(reasoning))]


@st.composite
def requests(draw: st.DrawFn, wire: str) -> Request:
    """Requests as far as this API can say them."""
    messages = [Message("system", draw(TEXT))] if draw(st.booleans()) else []
    for number in range(draw(st.integers(1, 3))):
        messages += draw(turns(wire, number))
    messages.append(Message("user", draw(TEXT)))
    names = draw(st.lists(WORD, max_size=3, unique=True))
    tools = tuple(ToolSpec(name, draw(TEXT | st.just("")), SCHEMA) for name in names)
    choices = ["auto", "none", "required", *names] if can(wire, "tool_choice") and names else ["auto"]
    choice = draw(st.sampled_from(choices))
    says = can(wire, "parallel") and names and (choice != "none" or can(wire, "parallel, without calls"))
    flag = st.none() | st.booleans() if says else st.none()
    options: dict[str, Any] = {"temperature": st.floats(0, 1), "top_p": st.floats(0, 1)}
    if can(wire, "stop"):
        options["stop"] = st.lists(WORD, min_size=1)
    return Request(
        tuple(messages),
        tools,
        tool_choice=choice,
        parallel=draw(flag),
        schema=draw(st.none() | st.just(SCHEMA)),
        options=draw(st.fixed_dictionaries({"max_tokens": st.just(100)}, optional=options)),
        extra=draw(st.just({}) | st.just({"x_of_a_vendor": {"a": [1, None]}})),
        stream=draw(st.booleans()),
    )


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_a_request_is_built_and_read_back(wire: str, data: st.DataObject) -> None:
    request = data.draw(requests(wire))
    form = formats.get(wire)
    body = json.loads(json.dumps(form.build(request, "m")))
    found = form.load_request(body)
    assert found == request
    assert form.build(found, "m") == body, "and what is read is built again to the letter"


OPENAI_BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "developer", "content": "Be brief.", "name": "house"},
        {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": '}, "x_vendor": 1},
                {"id": "b", "type": "custom", "custom": {"name": "c", "input": "free text"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": [{"type": "text", "text": "2"}]},
    ],
    "tools": [
        {"type": "function", "function": {"name": "f", "strict": True, "parameters": SCHEMA}},
        {"type": "web_search_preview", "search_context_size": "low"},
        {"type": "custom", "custom": {"name": "c"}},
    ],
    "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": []}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "mine", "schema": SCHEMA, "strict": True}},
    "logit_bias": {"50256": -100},
    "metadata": {"a": "b"},
    "prediction": {"type": "content", "content": "x"},
    "stream": True,
    "stream_options": {"include_usage": True, "include_obfuscation": False},
}


def test_what_openai_clients_send_is_kept_whatever_we_know_of_it() -> None:
    request = formats.get("openai").load_request(OPENAI_BODY)
    assert request.messages[0] == Message("system", "Be brief.")
    assert [call.name for call in request.messages[2].calls] == ["f"]
    assert request.tool_choice == "required"
    assert request.schema == SCHEMA
    assert [tool.name for tool in request.tools] == ["f"]
    built = formats.get("openai").build(request, "m")
    built["messages"][4]["content"] = OPENAI_BODY["messages"][4]["content"]  # servers take a text there, so it is one
    assert built == OPENAI_BODY


def test_the_newer_name_of_the_limit_is_the_older_one() -> None:
    request = formats.get("openai").load_request({"messages": [], "max_completion_tokens": 7, "max_tokens": 9})
    assert request.options == {"max_tokens": 7}


def test_calls_of_the_older_api_are_calls() -> None:
    request = formats.get("openai").load_request(
        {
            "messages": [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
                {"role": "function", "name": "f", "content": "1"},
            ]
        }
    )
    answer, result = request.messages[1:]
    assert answer.calls[0].name == "f"
    assert (result.role, result.call_id) == ("tool", answer.calls[0].id)


def test_reasoning_goes_back_in_the_field_it_came_in() -> None:
    body = {"messages": [{"role": "assistant", "content": "x", "reasoning": "hm"}]}
    (message,) = formats.get("openai").load_request(body).messages
    assert (message.reasoning, message.extra) == ("hm", {CAME: {"reasoning": None}})


OLLAMA_BODY: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "user", "content": "look", "images": [PNG]},
        {
            "role": "assistant",
            "content": "",
            "thinking": "hm",
            "tool_calls": [{"id": "a", "function": {"index": 0, "name": "f", "arguments": {"x": 1}}}],
        },
        {"role": "tool", "content": "1", "tool_name": "f", "tool_call_id": "a"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "", "parameters": SCHEMA}}],
    "options": {"num_ctx": 8192, "num_predict": 9, "mirostat": 2, "stop": ["x"]},
    "think": "high",
    "keep_alive": "5m",
    "format": "json",
    "truncate": False,
    "stream": True,
    "x_new": 1,
}


def test_what_ollama_clients_send_is_kept() -> None:
    request = formats.get("ollama").load_request(OLLAMA_BODY)
    assert request.options["num_ctx"] == 8192
    assert request.options["max_tokens"] == 9
    assert request.options["reasoning_effort"] == "high"
    assert formats.get("ollama").build(request, "m") == OLLAMA_BODY


def test_ollamas_clients_stream_unless_they_say_no_and_may_send_a_prompt() -> None:
    load = formats.get("ollama").load_request
    assert load({"model": "m", "messages": []}).stream
    assert not load({"model": "m", "messages": [], "stream": False}).stream
    request = load({"model": "m", "prompt": "Hi", "system": "Brief.", "images": [PNG], "raw": True})
    assert request.messages == (Message("system", "Brief."), Message("user", ({"type": "text", "text": "Hi"}, IMAGE)))
    assert request.extra == {"raw": True}


WRONG: list[tuple[str, Any, str]] = [
    ("openai", [], "body"),
    ("openai", {"messages": "x"}, "messages"),
    ("openai", {"messages": [1]}, "messages[0]"),
    ("openai", {"messages": [{"content": "x"}]}, "messages[0].role"),
    ("openai", {"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
    ("openai", {"messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
    ("openai", {"messages": [{"role": "user", "content": [{"text": "x"}]}]}, "messages[0].content[0].type"),
    ("openai", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text"),
    ("openai", {"messages": [{"role": "assistant", "tool_calls": [{}]}]}, "messages[0].tool_calls[0].function"),
    (
        "openai",
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": ""}}]}]},
        "messages[0].tool_calls[0].function.name",
    ),
    ("openai", {"messages": [], "tools": [{"type": "function"}]}, "tools[0].function"),
    (
        "openai",
        {"messages": [], "tools": [{"function": {"name": "f", "parameters": 1}}]},
        "tools[0].function.parameters",
    ),
    ("openai", {"messages": [], "temperature": "hot"}, "temperature"),
    ("openai", {"messages": [], "max_tokens": True}, "max_tokens"),
    ("openai", {"messages": [], "stream": "yes"}, "stream"),
    ("openai", {"messages": [], "tool_choice": 1}, "tool_choice"),
    ("openai", {"messages": [], "response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
    ("openai", {"model": 1, "messages": []}, "model"),
    ("ollama", {"messages": [{"role": "user", "content": [1]}]}, "messages[0].content"),
    ("ollama", {"messages": [{"role": "user", "content": "", "images": [1]}]}, "messages[0].images[0]"),
    ("ollama", {"messages": [], "options": {"num_predict": "x"}}, "options.num_predict"),
    ("ollama", {"messages": [], "format": 1}, "format"),
    ("ollama", {"messages": [], "think": 1}, "think"),
    ("responses", {"input": 1}, "input"),
    ("responses", {"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
    ("responses", {"input": [{"role": "user", "content": 1}]}, "input[0].content"),
    ("responses", {"input": [{"role": "user", "content": [{"text": "x"}]}]}, "input[0].content[0].type"),
    ("responses", {"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
    ("responses", {"input": [{"type": "function_call", "call_id": "c", "arguments": "{}"}]}, "input[0].name"),
    ("responses", {"input": [{"type": "function_call_output", "output": "1"}]}, "input[0].call_id"),
    ("responses", {"input": [{"type": 7}]}, "input[0].type"),
    ("responses", {"input": "x", "text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
    ("responses", {"input": "x", "reasoning": {"effort": 1}}, "reasoning.effort"),
    ("responses", {"input": "x", "tools": [{"type": "function"}]}, "tools[0].name"),
    ("responses", {"input": "x", "max_output_tokens": "x"}, "max_output_tokens"),
]


@pytest.mark.parametrize(("wire", "body", "field"), WRONG, ids=lambda value: str(value)[:40])
def test_errors_name_the_field_that_is_wrong(wire: str, body: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        formats.get(wire).load_request(body)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("wire", formats.names())
@settings(deadline=None, max_examples=150)
@given(data=st.data())
def test_a_body_with_anything_in_any_place_is_read_or_named(wire: str, data: st.DataObject) -> None:
    """Nothing but InvalidRequest ever leaves `load_request`, and what it gives can be built."""
    form = formats.get(wire)
    body = json.loads(json.dumps(form.build(data.draw(requests(wire)), "m")))
    place: Any = body
    while isinstance(place, (dict, list)) and place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.booleans()):
            place[key] = data.draw(JUNK)
            break
        place = place[key]
    try:
        request = form.load_request(body)
    except InvalidRequest as error:
        field = error.field
    else:
        field = "none"
        json.dumps(form.build(request, "m"))
    assert field


def test_a_body_of_brackets_is_refused() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    for wire in formats.names():
        with pytest.raises(InvalidRequest, match="nested deeper"):
            formats.get(wire).load_request({"messages": [{"role": "user", "content": deep}]})
