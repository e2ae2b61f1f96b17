"""An agent whose write belongs to an agent inside another one, in a process that dies where it is told to. Used by
test_agent_as_tool.py: python child_bank.py FOLDER POINT (begin | resume)."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from callgate import Agent, Replay, tool
from callgate.tools import Inject

FOLDER, POINT, WHAT = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
BANK = FOLDER / "bank"


def die(point: str) -> None:
    if point == POINT:
        os.kill(os.getpid(), signal.SIGKILL)


def looked_up(key: str, arguments: dict[str, Any]) -> str | None:
    """The bank knows what it has done; what it has not done it never will."""
    return "paid" if BANK.exists() and key in BANK.read_text() else None


@tool(effect="write", lookup=looked_up)
def pay(to: str, idempotency_key: Inject[str]) -> str:
    "Pays."
    die("before")
    with BANK.open("a") as file:
        file.write(f"{idempotency_key} {to}\n")
    die("after")
    return "paid"


class Scripted(Replay):
    """Asks for its one call until that has a result, then answers."""

    def __init__(self, name: str, arguments: dict[str, Any], point: str) -> None:
        call = {"calls": [{"name": name, "arguments": arguments}]}
        super().__init__([call, "done", "done", "done"])
        self.call, self.point = name, point

    def stream(self, request: Any) -> Any:
        answered = any(message.role == "tool" for message in request.messages)
        if answered:
            die(self.point)
            self._replies = ["done", "done"]  # type: ignore[attr-defined]
        return super().stream(request)


child = Agent(Scripted("pay", {"to": "bob"}, "child.answers"), tools=[pay])
parent = Agent(
    Scripted("cashier", {"task": "Pay Bob."}, "parent.answers"),
    tools=[child.as_tool("cashier", "Pays people.")],
    ledger=f"sqlite:{FOLDER / 'runs.db'}",
)
result = parent.run_sync("Pay Bob.", run_id="r") if WHAT == "begin" else parent.resume_sync("r")
told = {"reason": result.reason, "text": result.text, "calls": [r.result.status for r in result.calls]}
told["content"] = [r.result.content for r in result.calls]
(FOLDER / "told.json").write_text(json.dumps(told))
