"""A key given twice is said and flagged, so that no write runs on a value that a gate may have read differently."""

from __future__ import annotations

import json

import pytest

from callgate import Agent, Replay, read, tool

TOOLS = [{"name": "send", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}}]


@pytest.mark.parametrize(
    ("dialect", "raw"),
    [
        ("hermes", '<tool_call>{"name": "send", "arguments": {"to": "a", "to": "b"}}</tool_call>'),
        ("mistral_args", '[TOOL_CALLS]send[ARGS]{"to": "a", "to": "b"}'),
        ("bracket_tool", "[TOOL: send(to='a', to='b')]"),
        ("bare_json", '{"tool": "send", "args": {"to": "a", "to": "b"}}'),
    ],
)
def test_in_text(dialect: str, raw: str) -> None:
    reply = read(raw, dialect=dialect, tools=TOOLS)
    assert [call.arguments for call in reply.calls] == [{"to": "b"}]
    assert "repaired" in reply.calls[0].flags
    assert any("duplicate key 'to'" in problem for problem in reply.problems)


def test_on_a_wire() -> None:
    function = {"name": "send", "arguments": '{"to": "a", "to": "b"}'}
    records = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "k", "function": function}]}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
    ]
    reply = read("".join(f"data: {json.dumps(r)}\n\n" for r in records).encode(), wire="openai", tools=TOOLS)
    assert [(call.arguments, set(call.flags)) for call in reply.calls] == [({"to": "b"}, {"repaired"})]
    assert any("duplicate key 'to'" in problem for problem in reply.problems)


def test_a_write_does_not_run_on_it_and_a_read_does() -> None:
    ran: list[str] = []

    @tool(effect="write")
    def send(to: str) -> str:
        "Send."
        ran.append("write " + to)
        return "sent"

    @tool(effect="read")
    def peek(to: str) -> str:
        "Peek."
        ran.append("read " + to)
        return "seen"

    for name in ("send", "peek"):
        raw = '<tool_call>{"name": "%s", "arguments": {"to": "a", "to": "b"}}</tool_call>' % name  # noqa: UP031
        Agent(Replay([raw, "ok"]), tools=[send, peek], protocol="hermes").run_sync("x")
    assert ran == ["read b"]
