"""Constrained means valid: the embedded model, forced to call, fills every schema with arguments that fit it.

A sample here; `make long` asks all of them (`CALLGATE_FORCED=all`).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from callgate import Agent, weights
from callgate.tools import Tool

KEPT: dict[str, Any] = {
    row["id"]: row["schema"]
    for row in map(json.loads, (Path(__file__).parent / "schemas_to_keep.jsonl").read_text("utf-8").strip().split("\n"))
}
IMPOSSIBLE = frozenset({"length-8", "recursive-13"})
"""A text of 10¹² characters; a tree in which every list of children needs a child."""
SAMPLE = ("type-6", "type-9", "number-5", "pattern-8", "recursive-2", "name-3")
WHICH = [name for name in KEPT if name not in IMPOSSIBLE] if os.environ.get("CALLGATE_FORCED") else SAMPLE


pytestmark = pytest.mark.skipif(weights.find() is None, reason="the weights are not here: callgate model pull")


def outcome(schema: dict[str, Any]) -> tuple[str, Any]:
    """What a forced call came to (valid, refused, answered, or how the run ended), and the arguments."""

    def fill(**arguments: object) -> str:
        return "done"

    made = Agent(
        "local",
        tools=[Tool.from_schema("fill", "Fill in the form.", schema, fill, effect="read")],
        protocol="constrained",
        tool_choice="fill",
        max_turns=1,
    )
    result = made.run_sync("Fill in the form for Ada Lovelace, Paris, 3 units at 2.50 each, on 2024-05-01.")
    last = result.calls[-1] if result.calls else None
    if result.reason == "answered" or last is None:
        return result.reason, None
    if last.result.status == "invalid_arguments" or not jsonschema_rs.validator_for(schema).is_valid(
        last.call.arguments
    ):
        return "refused", (last.call.arguments, last.result.content)
    return ("valid" if len(result.calls) == 1 else f"valid after {len(result.calls)}"), last.call.arguments


@pytest.mark.parametrize("name", WHICH)
def test_a_forced_call_is_valid(name: str) -> None:
    assert outcome(KEPT[name])[0].startswith("valid")


@pytest.mark.skipif(not os.environ.get("CALLGATE_FORCED"), reason="it is tried to the end of every protocol: minutes")
def test_what_is_impossible_is_not_an_answer() -> None:
    assert outcome(KEPT["recursive-13"])[0] != "answered"
