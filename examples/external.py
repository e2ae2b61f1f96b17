"""Calls that run elsewhere, arguments that a person changes, a tool that ends the run, a tool that asks again.

python examples/external.py
"""

from __future__ import annotations

from callgate import Agent, Replay, Tool, ToolCall, tool
from callgate.errors import ToolRetry
from callgate.policy import Answer

SCAN = Tool.from_schema("scan", "Reads a code.", {"properties": {"parcel": {"type": "string"}}}, effect="read")


@tool(effect="write", confirm=True)
def pay(to: str, amount: int) -> str:
    """Pays."""
    if len(to) < 3:
        raise ToolRetry("name the person in full")
    return f"paid {amount} to {to}"


def at_most(call: ToolCall) -> Answer:
    """A person would look at the call; here it is cut to 100."""
    return Answer(True, by="ann", arguments={**call.arguments, "amount": min(call.arguments["amount"], 100)})


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


agent = Agent(Replay([call("scan", parcel="7"), "To Oslo."]), tools=[SCAN])
first = agent.run_sync("Where does parcel 7 go?")
print(first.reason, [(one.rule, one.name) for one in first.pending])
print(agent.resume_sync(first.run_id, results={first.pending[0].id: {"to": "Oslo"}}).text)

script = [call("pay", to="b", amount=500), call("pay", to="bob", amount=500)]
result = Agent(Replay(script), tools=[pay], approve=at_most, stop_after="pay").run_sync("Pay Bob 500.")
print([record.result.status for record in result.calls], result.reason, "-", result.text)
