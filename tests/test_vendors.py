"""Requests as vendors take them: every row against a server that refuses what the vendor refuses."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Agent, Tool, providers, tool
from callgate.errors import BadRequest
from callgate.formats import accepted
from callgate.formats._accepted import sent_names
from callgate.formats._sent_schema import OPENAI
from callgate.providers._http import HttpClient
from callgate.providers._parameters import LeftOut
from callgate.providers.openai import VENDORS, OpenAI
from callgate.types import BadCall, CallDelta, Message, Request, ToolCall, ToolSpec
from loopback import loopback, refusal
from strict_server import StrictServer

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)
NAME = re.compile("[A-Za-z0-9_-]{1,64}")
SHOWS = {"/api/show": {"capabilities": ["completion", "tools"], "template": "{{ .Tools }}"}}
ROWS = ("openai", "mistral", "gemini", "llama-server", "ollama", "anthropic", "openai-responses")
CHAT = ROWS[:4]
"""Those that speak chat completions."""
ODD: dict[str, dict[str, Any]] = {
    "mail.draft.create": {"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]},
    "mail_draft.create": {"type": "object"},
    "statistics_server_" + "run_selection_stream_endpoint_" * 3: {"type": "object", "properties": {}},
    "attach": {
        "type": "object",
        "anyOf": [
            {"properties": {"text": {"type": "string"}}, "required": ["text"]},
            {"properties": {"url": {"type": "string"}}, "required": ["url"]},
        ],
    },
    "put": {
        "type": "object",
        "properties": {"size": {"type": "integer", "exclusiveMinimum": 0}, "tags": {"type": "array"}},
        "allOf": [{"if": {"properties": {"size": {"const": 1}}}, "then": {"required": ["tags"]}}],
        "not": {"required": ["gone"]},
    },
    "free": {
        "type": "object",
        "properties": {"any": {"type": "object"}, "p": {"type": "string", "pattern": "a|b", "maxLength": 2000}},
    },
}


def model(row: str, server: StrictServer) -> Any:
    if row not in CHAT:
        return providers.open(f"{row}:m", base_url=server.url if row == "openai-responses" else server.root, key="k")
    return OpenAI(HttpClient(server.url, name=row, headers={}, key="k"), "m", VENDORS[row])


def sent_tools(body: dict[str, Any]) -> list[str]:
    """The names of the tools of a request, in any form."""
    return [tool.get("function", tool)["name"] for tool in body["tools"]]


def sent_calls(body: dict[str, Any]) -> list[str]:
    """The names of the calls that a request tells of, in any form."""
    if "input" in body:
        return [item["name"] for item in body["input"] if item.get("type") == "function_call"]
    blocks = [b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"]]
    calls = [call["function"] for m in body["messages"] for call in m.get("tool_calls") or ()]
    return [call["name"] for call in (*calls, *(b for b in blocks if b["type"] == "tool_use"))]


def odd_tools() -> list[Tool]:
    return [Tool.from_schema(n, f"Does {n} \ud83d.", s, lambda **_: "", effect="read") for n, s in ODD.items()]


@tool(effect="read")
def shot() -> bytes:
    """A picture."""
    return PNG


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "A \ud83d."},
    {"role": "user", "content": "one"},
    {"role": "user", "content": "two"},
    {
        "role": "assistant",
        "content": None,
        "reasoning_content": "hm",
        "tool_calls": [
            {"id": "fc_" + "0" * 60, "type": "function", "function": {"name": "mail.draft.create", "arguments": "{}"}},
            {"id": "turn1_1", "type": "function", "function": {"name": "gone.tool", "arguments": "{}"}},
        ],
    },
    {"role": "tool", "tool_call_id": "fc_" + "0" * 60, "content": ""},
    {"role": "tool", "tool_call_id": "turn1_1", "content": "x"},
    {"role": "user", "content": "stop"},
    {"role": "assistant", "content": "ok"},
]


@pytest.mark.parametrize("row", ROWS)
def test_what_a_vendor_refuses_is_not_written(row: str) -> None:
    """Odd names, schemas, ids, orders, empty results and lone surrogates, in one conversation of two turns."""
    shows = SHOWS if row == "ollama" else {}
    with StrictServer(row, ("shot", {}), "done", shows=shows) as server:
        agent = Agent(model(row, server), tools=[*odd_tools(), shot], instructions="You help.", protocol="native")
        result = agent.run_sync("now \udc00", history=HISTORY)
    assert server.refused == []
    assert (result.reason, result.text) == ("answered", "done")
    sent = {name for body in server.bodies for name in sent_tools(body)}
    assert len(sent) == len(ODD) + 1
    assert any("surrogates" in problem for problem in result.problems)
    if row in CHAT:
        roles = [m["role"] for m in server.bodies[1]["messages"]]
        assert roles.count("tool") == 3
        assert "\\u" not in json.dumps(server.bodies, ensure_ascii=False)
        assert any(m.get("content") == "(no output)" for m in server.bodies[0]["messages"])


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", ODD)
def test_a_call_by_its_sent_name_runs_the_tool(row: str, name: str) -> None:
    """Whole calls and streamed ones come back under our names, and so they stand in the next request."""
    ran: list[str] = []
    made = [
        Tool.from_schema(n, "T.", s, lambda n=n, **_: ran.append(n) or "done", effect="read")  # type: ignore[func-returns-value]
        for n, s in ODD.items()
    ]
    theirs = sent_names(ODD)[name] if row != "ollama" else name
    arguments = {"mail.draft.create": {"to": "x"}, "attach": {"text": "x"}, "put": {"size": 2}}.get(name, {})
    shows = SHOWS if row == "ollama" else {}
    with StrictServer(row, (theirs, arguments), "done", shows=shows) as server:
        result = Agent(model(row, server), tools=made, protocol="native").run_sync("go")
    assert (ran, [c.call.name for c in result.calls], server.refused) == ([name], [name], [])
    assert sent_calls(server.bodies[1])[0] == theirs


@given(st.lists(st.text(max_size=90), max_size=12))
def test_names_are_mapped_one_to_one_and_back(names: list[str]) -> None:
    sent = sent_names(names)
    assert all(NAME.fullmatch(theirs) for theirs in sent.values())
    assert len(set(sent.values())) == len(set(names))
    assert sent == sent_names(reversed(names)), "the order of the tools changes nothing"
    assert sent_names(sent.values()) == {theirs: theirs for theirs in sent.values()}
    tools = tuple(ToolSpec(name) for name in sent)
    calls = tuple(ToolCall(f"c{i}", name, {}) for i, name in enumerate(sent))
    form = accepted(Request((Message("assistant", "", calls=calls),), tools), OPENAI)
    assert [c.name for c in form.request.messages[0].calls] == [t.name for t in form.request.tools]
    for ours, theirs in sent.items():
        deltas = [CallDelta(0, "c", theirs, ""), ToolCall("c", theirs, {}), BadCall(0, "c", theirs, "")]
        assert [d.name for d in form.back(list(deltas))] == [ours] * 3  # type: ignore[union-attr]


def test_names_that_come_to_the_same_are_kept_apart() -> None:
    sent = sent_names(["a.b", "a_b", "a b", "2fa", "é" * 70])
    assert sent["a_b"] == "a_b"
    assert len(set(sent.values())) == 5
    assert sent["2fa"] == "t_2fa"


@pytest.mark.parametrize(
    ("text", "param", "key"),
    [
        ("Extra inputs are not permitted", "stream_options", "stream_options"),
        ("Unrecognized request argument supplied: reasoning_effort", None, "reasoning_effort"),
        ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", None, "parallel_tool_calls"),
    ],
)
def test_a_parameter_that_is_refused_is_left_out_once(text: str, param: str | None, key: str) -> None:
    """And from then on, with a problem; nothing else of the request changes."""
    body = {key: 1, "model": "m", "messages": [], "tools": [1]}
    error = BadRequest(text, status=400, named=(param,) if param else ())
    left = LeftOut()
    assert left.learn(error, body)
    left.apply(body)
    assert body == {"model": "m", "messages": [], "tools": [1]}
    assert key in left.notes[0]
    assert not left.learn(error, body)


@pytest.mark.parametrize("key", ["temperature", "top_p", "seed", "stop"])
def test_a_parameter_that_somebody_wanted_ends_the_run_after_one_request(key: str) -> None:
    asked = 0
    error = {"error": {"message": f"Unsupported value: '{key}'", "type": "invalid_request_error", "param": key}}

    async def main() -> Any:
        nonlocal asked
        async with loopback(refusal("400 Bad Request", error)) as server:
            agent = Agent(providers.open(f"{server.url}/v1#m", abilities={"tools"}), tools=[shot], options={key: 0.2})
            result = await agent.run("x")
            asked = len([r for r in server.asked if r.path.endswith("/completions")])
            return result

    import asyncio

    result = asyncio.run(main())
    assert asked == 1
    assert result.reason == "provider_error"
    assert key in (result.error or "")


def texts(seed: int) -> Iterator[str]:
    made = random.Random(seed)
    while True:
        yield "".join(chr(made.choice([65, 0xD83D, 0xDC00, 0xDFFF, 0x1F600, 0x301])) for _ in range(5))


@pytest.mark.parametrize("seed", range(5))
def test_lone_surrogates_end_no_run(seed: int) -> None:
    """In prompt, instructions, history, arguments and descriptions; a pair becomes its character."""
    some = texts(seed)
    history = [{"role": "user", "content": next(some)}, {"role": "assistant", "content": next(some)}]
    made = Tool.from_schema("t", next(some), {"type": "object"}, lambda **_: next(some), effect="read")
    with StrictServer("openai", ("t", {"x": next(some)}), "done") as server:
        agent = Agent(model("openai", server), tools=[made], instructions=next(some), protocol="native")
        result = agent.run_sync("x" + next(some), history=history)
    assert result.text == "done"
