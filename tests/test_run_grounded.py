"""Tools that ask for grounded arguments: nothing that a model made up reaches them, under any protocol."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

from callgate import Agent, Replay, tool


@tool(effect="write", grounded=True)
def pay(to: str, cents: int, way: Literal["card", "cash"] = "card", note: str = "-", refund: bool = False) -> str:
    "Pays somebody."
    return "paid"


@tool(effect="read")
def find_debt(name: str) -> Any:
    "Finds a debt."
    return {"to": "ACME-77", "cents": 1250}


def asked(prompt: str, *calls: dict[str, Any], history: Any = ()) -> Any:
    replies: list[Any] = [{"calls": [{"name": c.pop("tool", "pay"), "arguments": c}]} for c in calls]
    agent = Agent(Replay([*replies, "Done."]), tools=[pay, find_debt], protocol="native")
    return agent.run_sync(prompt, history=history)


@pytest.mark.parametrize(
    ("prompt", "arguments", "made_up"),
    [
        ("Pay bob 500 cents", {"to": "Bob", "cents": 500}, ""),
        ("Pay bob 500 cents", {"to": "Bob", "cents": 500, "way": "cash", "refund": True, "note": "-"}, ""),
        ("Pay bob", {"to": "bob", "cents": 100}, "cents:"),
        ("Pay 500 cents", {"to": "alice", "cents": 500}, "to:"),
        ("Pay somebody", {"to": "alice", "cents": 5}, "to, cents:"),
        ("Pay bob 500", {"to": "bob", "cents": 500, "note": "rent"}, "note:"),
    ],
)
def test_what_nobody_said_is_refused_and_the_model_is_told_to_ask(
    prompt: str, arguments: dict[str, Any], made_up: str
) -> None:
    result = asked(prompt, arguments)
    assert result.reason == "answered"
    (record,) = result.calls
    assert record.result.status == ("invalid_arguments" if made_up else "ok")
    assert made_up in record.result.content
    assert ("ask the user" in record.result.content) == bool(made_up)


def test_what_a_tool_found_or_was_said_before_is_ground_enough() -> None:
    found = asked("Pay my debt", {"tool": "find_debt", "name": "me"}, {"to": "ACME-77", "cents": 1250})
    assert [c.result.status for c in found.calls] == ["ok", "ok"]
    before = asked("500, please", {"to": "bob", "cents": 500}, history=[{"role": "user", "content": "I owe Bob"}])
    assert [c.result.status for c in before.calls] == ["ok"]


def test_a_run_that_is_taken_up_again_is_not_judged_by_masked_words(tmp_path: Path) -> None:
    @tool(effect="read", grounded=True)
    def log_in(password: str) -> str:
        "Logs in."
        return "in"

    @tool(effect="write", confirm=True)
    def wipe() -> str:
        "Wipes."
        return "wiped"

    first = {"calls": [{"name": "log_in", "arguments": {"password": "horse battery"}}]}
    script = [first, {"calls": [{"name": "wipe", "arguments": {}}]}, "Done."]
    agent = Agent(Replay(script), tools=[log_in, wipe], ledger=f"sqlite:{tmp_path / 'runs.db'}")
    parked = agent.run_sync("Log in with horse battery and wipe")
    assert parked.reason == "waiting"
    result = agent.resume_sync(parked.run_id, {parked.pending[0].id: True})
    assert [c.result.status for c in result.calls] == ["ok", "ok"]
