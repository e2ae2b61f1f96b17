"""What became of a write of unknown outcome, as a person says it.

Law: a person can say what became of a write, but never make it run.
    (tests/test_cli_ledgers.py::test_a_settled_call_of_a_cut_off_run_is_its_result_when_it_goes_on)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate import ledger as ledgers
from callgate.events import dump_event
from callgate.results import compress
from callgate.types import Entry, ToolResult

if TYPE_CHECKING:
    from callgate.ledger import Ledger, Write


def outcome(write: Write, outcome: str, value: object, note: str) -> ToolResult:
    """The result of a write that took effect ("ok"; None: what it returned is not known) or had none ("failed")."""
    if outcome == "failed":
        return ToolResult(write.call_id, "failed", f"{write.tool} had no effect{f': {note}' if note else ''}.")
    if value is None:
        return ToolResult(write.call_id, "ok", note or f"{write.tool} took effect.")
    text, size = compress(value)
    return ToolResult(write.call_id, "ok", text, value=value, size=size)


async def settle(ledger: Ledger, write: Write, result: ToolResult, by: str = "person") -> None:
    """Records it, under the lease, so that no process that carries out the run comes in between."""
    async with ledgers.hold(ledger, write.run_id) as held:
        data: dict[str, object] = {"call_id": write.call_id, "tool": write.tool, "result": dump_event(result)}
        entries: list[Entry] = [Entry("call_settled", {**data, "by": by})]
        if await ledger.result(write.run_id, write.call_id) is None:  # the run was cut off: this is its result
            before = await ledger.read(write.run_id)
            clock = before[-1].data.get("t", 0.0) if before else 0.0
            entries.insert(0, Entry("call_result", {**data, "duration": 0.0, "t": clock}))
        await ledger.append(write.run_id, entries, fence=held.fence)
