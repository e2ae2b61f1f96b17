"""An agent as a tool of another one: what it asks waits in the outer run, and one resume covers both.

python examples/together.py
"""

from __future__ import annotations

from callgate import Agent, Replay, tool


@tool(effect="write", confirm=True)
def pay(to: str, amount: int) -> str:
    """Pays."""
    return f"paid {amount} to {to}"


def call(name: str, **arguments: object) -> dict[str, object]:
    return {"calls": [{"name": name, "arguments": arguments}]}


cashier = Agent(Replay([call("pay", to="bob", amount=5), "Bob has his 5."]), tools=[pay])
desk = Agent(
    Replay([call("cashier", task="Pay Bob 5."), "Bob was paid."]), tools=[cashier.as_tool("cashier", "Pays people.")]
)
waiting = desk.run_sync("Bob is owed 5.")
print(waiting.reason, [(one.name, one.arguments) for one in waiting.pending])
result = desk.resume_sync(waiting.run_id, {waiting.pending[0].id: True})
print(result.calls[0].result.content, "|", result.text, "|", result.requests, "requests")
