"""Cases cut from real runs: what was asked, and what was called that ended well.

Law: a case is cut only from a run that was answered and whose calls all ended ok; what people's runs hold is masked
as it was written.
(tests/test_evals.py::test_cases_are_cut_from_runs_that_went_well)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callgate import ledger
from callgate.evals._cases import Case, spec_of
from callgate.types import EMPTY, Entry, Message, ToolSpec

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
    if _first(entries, "run_finished").get("reason") != "answered":
        return None
    messages = [e.data["message"] for e in entries if e.kind == "message"]
    before = _first(entries, "run_started").get("messages") or []
    asked = _of_role("user", [*before, *messages]).get("content")
    if not isinstance(asked, str):
        return None
    calls = list(_of_role("assistant", messages).get("calls") or [])
    results = {e.data["call_id"]: e.data["result"] for e in entries if e.kind == "call_result"}
    # A call that failed teaches nothing: whether it was the wrong one, or the right one at a bad time, is not recorded.
    if any((results.get(c["id"]) or {}).get("status") != "ok" for c in calls):
        return None
    return Case(
        id=run_id,
        messages=(Message("user", asked),),
        tools=tuple(tools) or tuple(_guessed(c) for c in calls),
        calls=tuple({"name": c["name"], "arguments": c["arguments"]} for c in calls),
        group="ledger",
    )


def _first(entries: Sequence[Entry], kind: str) -> Mapping[str, Any]:
    """The data of the first entry of a kind; empty if there is none."""
    return next((e.data for e in entries if e.kind == kind), EMPTY)


def _of_role(role: str, messages: Sequence[Mapping[str, object]]) -> Mapping[str, Any]:
    """The first message of a role; empty if there is none."""
    return next((m for m in messages if m.get("role") == role), EMPTY)


def _guessed(call: dict[str, Any]) -> ToolSpec:
    """A tool of which only a call is known: its arguments, of any type."""
    parameters = {"type": "object", "properties": {name: {} for name in call["arguments"]}}
    return spec_of({"name": call["name"], "parameters": parameters})
