"""Ends a run that nobody carries out: one that waits for a person, or that was cut off.

One law: every call of the run gets its one result (X2): a write that was started an unknown one, all else
`not_started`.
"""

from __future__ import annotations

from collections.abc import Sequence

from callgate.events import dump_event, load_event
from callgate.results import unknown_outcome
from callgate.types import BadCall, Entry, ToolCall, ToolResult

WHY = "the run was cancelled"


def closing(entries: Sequence[Entry]) -> list[Entry]:
    """What is to be appended to the journal of a run so that it is ended as cancelled."""
    clock = entries[-1].data.get("t", 0.0)
    answered = {e.data["call_id"] for e in entries if e.kind == "call_result"}
    started = {e.data["call_id"] for e in entries if e.kind == "call_intent"}
    new = [Entry("turn", {"turn": 0, "stopping": "cancel", "error": None, "begun": [], "t": clock})]
    for entry in entries:
        if entry.kind == "call_proposed" and entry.data["call"]["id"] not in answered:
            call = load_event(entry.data["call"])
            assert isinstance(call, (ToolCall, BadCall))
            result = _result(call, call.id in started)
            data = {"call_id": call.id, "tool": call.name, "result": dump_event(result), "duration": None, "t": clock}
            new.append(Entry("call_result", data))
    end = {"reason": "cancelled", "text": "", "error": None, "usage": {}, "t": clock}
    return [*new, Entry("run_finished", end)]


def _result(call: ToolCall | BadCall, started: bool) -> ToolResult:
    if started and isinstance(call, ToolCall):
        return unknown_outcome(call, WHY)
    return ToolResult(call.id or "", "not_started", f"{call.name or 'the call'} was not started: {WHY}.")
