"""Cases cut from real runs: what was asked, and what was called that ended well.

One law: a case is cut only from a run that was answered and whose calls all ended ok; what people's runs hold is masked
as it was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from callgate import ledger
from callgate.evals._cases import Case, spec_of
from callgate.types import Entry, Message, ToolSpec

MAX_RUNS = 1000


async def from_ledger(where: str, tools: Sequence[ToolSpec] = ()) -> list[Case]:
    """Cases from the runs of a ledger. `tools` are those to choose among; without them a run's own called tools are."""
    store = ledger.open(where)
    try:
        cases = []
        for run in await store.runs(limit=MAX_RUNS):
            case = cut(run.run_id, await store.read(run.run_id), tools)
            if case is not None:
                cases.append(case)
        return cases
    finally:
        await store.aclose()


def cut(run_id: str, entries: Sequence[Entry], tools: Sequence[ToolSpec] = ()) -> Case | None:
    """The first request of a run and the calls of its first turn; None if there is nothing to learn from it."""
    ended = next((e for e in entries if e.kind == "run_finished"), None)
    if ended is None or ended.data.get("reason") != "answered":
        return None
    messages = [e.data["message"] for e in entries if e.kind == "message"]
    started = next((e for e in entries if e.kind == "run_started"), None)
    before = (started.data.get("messages") or []) if started is not None else []
    asked = next((m for m in [*before, *messages] if m.get("role") == "user"), None)
    if asked is None or not isinstance(asked.get("content"), str):
        return None
    first = next((m for m in messages if m.get("role") == "assistant"), None)
    calls = list((first or {}).get("calls") or [])
    results = {e.data["call_id"]: e.data["result"] for e in entries if e.kind == "call_result"}
    if any((results.get(c["id"]) or {}).get("status") != "ok" for c in calls):
        return None
    return Case(
        id=run_id,
        messages=(Message("user", asked["content"]),),
        tools=tuple(tools) or tuple(_guessed(c) for c in calls),
        calls=tuple({"name": c["name"], "arguments": c["arguments"]} for c in calls),
        group="ledger",
    )


def _guessed(call: dict[str, Any]) -> ToolSpec:
    """A tool of which only a call is known: its arguments, of any type."""
    parameters = {"type": "object", "properties": {name: {} for name in call["arguments"]}}
    return spec_of({"name": call["name"], "parameters": parameters})
