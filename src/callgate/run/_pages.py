"""The tool that reads later parts of a result which was cut for the model: our own, answered inside the run.

Law: what is read is what the call returned, wherever it was cut.
(tests/test_run_gate.py::test_a_cut_result_can_be_read_on)
"""

from __future__ import annotations

from collections.abc import Sequence

from callgate import results
from callgate.types import CallRecord, ToolCall, ToolResult, ToolSpec

READ_RESULT = ToolSpec(
    "read_result",
    "Read a later part of a result that was cut. Give the call_id of the cut result, and where to start: the number of "
    "items of a list, or of characters of a text, that were already read.",
    {
        "type": "object",
        "properties": {
            "call_id": {"type": "string", "description": "id of the call whose result was cut"},
            "start": {"type": "integer", "minimum": 0, "description": "items or characters to skip"},
        },
        "required": ["call_id", "start"],
        "additionalProperties": False,
    },
    effect="read",
    polling=True,
)
"""Offered from the first result on that had to be cut (X9)."""


def page(call: ToolCall, ordered: Sequence[CallRecord], limit: int) -> ToolResult:
    """A later part of a result that was cut: kept whole, and read without running anything."""
    wanted, start = str(call.arguments["call_id"]), int(call.arguments["start"])
    found = next((r.result for r in ordered if r.call.id == wanted), None)
    if found is None or found.value is None:
        return ToolResult(call.id, "not_found", f"no result of a call {wanted!r} is kept")
    # 80 characters for the line that says how to go on.
    text, following = results.page(found.value, start, limit - 80)
    more = f"\n[goes on at start={following}]" if following is not None else "\n[this is the end]"
    return ToolResult(call.id, "ok", text + more)
