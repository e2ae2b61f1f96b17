"""A call that a person must decide: the run waits in the ledger, in a process that may end, and goes on later.

python examples/approve.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from callgate import Agent, Principal, Replay, tool


@tool(confirm=True, permission="money.send")
def transfer(to: str, amount: int) -> str:
    """Sends money."""
    return f"sent {amount} to {to}"


ann = Principal("ann", grants={"money.*"})
call = {"calls": [{"name": "transfer", "arguments": {"to": "Bob", "amount": 20}}]}

with tempfile.TemporaryDirectory() as folder:
    ledger = f"sqlite:{Path(folder) / 'runs.db'}"
    first = Agent(Replay([call]), tools=[transfer], ledger=ledger)
    waiting = first.run_sync("Send Bob 20.", principal=ann)
    (question,) = waiting.pending
    print(waiting.reason, "for", question.name, question.arguments)

    later = Agent(Replay(["Done: Bob has 20."]), tools=[transfer], ledger=ledger)  # another process, another day
    result = later.resume_sync(waiting.run_id, answers={question.id: True})
    print(result.reason, "|", result.calls[0].result.content, "|", result.text)
    assert result.calls[0].result.ok
