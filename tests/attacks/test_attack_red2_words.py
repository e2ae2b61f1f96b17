"""An attack on X4: a model gives words and counts of our own journal for a secret, and the run goes on all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, get_args

import pytest

from callgate import Agent, Replay, Tool
from callgate.masking import Secret
from callgate.types import Effect, FinishReason, Role, RunReason, Status

WORDS = sorted(
    {word for kind in (RunReason, FinishReason, Effect, Role, Status) for word in get_args(kind)}
    | {"tool_call", "tool_result", "call_delta", "allow", "deny", "text", "call", "once", "native", "json", "replay"}
    | {"arguments", "result", "message", "calls", "total", "1000", "1234", "[masked]", "confirm", "login", "call_1_1"}
)


@pytest.mark.parametrize("confirm", [True, False])
@pytest.mark.parametrize("word", WORDS)
def test_a_secret_that_is_a_word_of_the_journal_damages_nothing(word: str, confirm: bool, tmp_path: Path) -> None:
    """It waits, goes on, runs once with the true argument, and can be read for good."""
    seen: list[str] = []

    def login(code: Annotated[str, Secret]) -> str:
        """Logs in."""
        seen.append(code)
        return "in"

    tools = [Tool.from_function(login, effect="write", confirm=confirm, permission=None)]
    where = f"sqlite:{tmp_path / 'runs.db'}"
    call: dict[str, Any] = {
        "calls": [{"name": "login", "arguments": {"code": word}}],
        "usage": {"input": 1000, "output": 1234},
    }
    result = Agent(Replay([call, "Done."]), tools=tools, ledger=where).run_sync("Log in.", run_id="r")
    if confirm:
        assert result.reason == "waiting"
        result = Agent(Replay(["Done."]), tools=tools, ledger=where).resume_sync("r", {result.pending[0].id: True})
    assert (result.reason, seen) == ("answered", [word])
    again = Agent(Replay(["Done."]), tools=tools, ledger=where).resume_sync("r", {})
    assert (again.reason, seen) == ("answered", [word])
