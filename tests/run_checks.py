"""Scripted calls, and what holds for every conversation."""

from __future__ import annotations

import json
from typing import Any

from callgate import Agent
from callgate.types import CallRecord, Message


def call(name: str, id: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments, **({"id": id} if id else {})}


def calls(*several: dict[str, Any], content: str = "") -> dict[str, Any]:
    return {"content": content, "calls": list(several)}


def said(records: list[CallRecord]) -> dict[str, str]:
    return {r.call.id: r.result.content for r in records}


def valid(messages: list[Message]) -> None:
    """No provider would refuse it: every call has exactly one result, right behind it; all of it is strict JSON."""
    open_calls: list[str] = []
    for message in messages:
        if message.role == "tool":
            assert message.call_id in open_calls, f"{message.call_id} answers no open call"
            open_calls.remove(message.call_id)
        else:
            assert not open_calls, f"calls without result: {open_calls}"
        open_calls += [c.id for c in message.calls]
        for c in message.calls:
            assert isinstance(c.arguments, dict)
            json.dumps(c.arguments, allow_nan=False)
        json.dumps(message.text, allow_nan=False).encode()
    assert not open_calls, f"calls without result: {open_calls}"
    ids = [c.id for m in messages for c in m.calls]
    assert len(ids) == len(set(ids)), "an id is used twice"


async def run_events(agent: Agent, prompt: str, **named: Any) -> tuple[Any, list[Any]]:
    async with agent.stream(prompt, **named) as events:
        seen = [e async for e in events]
    return events.result, seen
