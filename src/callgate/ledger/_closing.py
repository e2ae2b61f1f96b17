"""Ends a run that nobody carries out: one that waits for a person, or that was cut off.

Law: every call of the run gets its one result (X2): a write that was started an unknown one, all else `not_started`.
(tests/test_agent.py::test_cancel_ends_a_run_that_waits_for_a_person)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.errors import LedgerError
from callgate.events import dump_event, load_event
from callgate.results import unknown_outcome
from callgate.types import EXTERNAL, BadCall, Entry, ToolCall, ToolResult

WHY = "the run was cancelled"


def closing(entries: Sequence[Entry]) -> list[Entry]:
    """What is to be appended to the journal of a run so that it is ended as cancelled."""
    # The run's own clock does not go on while nobody carries it out.
    clock = entries[-1].data.get("t", 0.0)
    answered = {e.data["call_id"] for e in entries if e.kind == "call_result"}
    started = {e.data["call_id"] for e in entries if e.kind == "call_intent"} | _handed(entries)
    new = [Entry("turn", {"turn": 0, "stopping": "cancel", "error": None, "begun": [], "t": clock})]
    for entry in entries:
        # Every call that was shown gets its result, so the history stays one that a provider accepts.
        if entry.kind == "call_proposed" and entry.data["call"].get("id") not in answered:
            call = _call_of(entry)
            result = _result(call, call.id in started)
            data = {"call_id": call.id, "tool": call.name, "result": dump_event(result), "duration": None, "t": clock}
            new.append(Entry("call_result", data))
    end = {"reason": "cancelled", "text": "", "error": None, "usage": {}, "t": clock}
    return [*new, Entry("run_finished", end)]


def _handed(entries: Sequence[Entry]) -> set[str]:
    """Writes that the application was asked to carry out itself: nobody knows whether it did."""
    asked = {e.data["call_id"] for e in entries if e.kind == "ask" and e.data.get("rule") == EXTERNAL}
    tools = {e.data["call"].get("id"): e.data.get("tool") for e in entries if e.kind == "call_proposed"}
    return {one for one in asked if isinstance(tool := tools.get(one), Mapping) and tool.get("effect") == "write"}


def _call_of(entry: Entry) -> ToolCall | BadCall:
    try:
        call = load_event(entry.data["call"])
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise LedgerError(f"entry {entry.seq} (call_proposed): its call cannot be read: {error}") from error
    if not isinstance(call, (ToolCall, BadCall)):
        raise LedgerError(f"entry {entry.seq} (call_proposed): its call is none")
    return call


def _result(call: ToolCall | BadCall, started: bool) -> ToolResult:
    if started and isinstance(call, ToolCall):
        return unknown_outcome(call, WHY)
    return ToolResult(call.id or "", "not_started", f"{call.name or 'the call'} was not started: {WHY}.")
