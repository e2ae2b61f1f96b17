"""Tools: what a model sees of a function, what happens to its arguments, and what never runs.

python examples/tools.py
"""

from __future__ import annotations

import json
from typing import Literal

from callgate import Agent, Inject, Principal, Replay, Toolbox, mend, tool


@tool(effect="read")
def find_orders(city: str, days: int = 7, state: Literal["open", "sent"] = "open") -> list[dict[str, object]]:
    """Finds the orders of one city.

    Args:
        city: Where they go to.
        days: How far back, in days.
    """
    return [{"number": "A-17", "city": city, "state": state}]


@tool(permission="orders.cancel")
def cancel_order(number: str, who: Inject[Principal]) -> str:
    """Cancels one order that was not sent yet.

    Args:
        number: The order's number, such as A-17.
    """
    return f"{number} cancelled for {who.id}"


print("what the model sees:")
print(json.dumps(cancel_order.spec.parameters, indent=2))

print("\nwhat happens to arguments:")
for text in (
    '{"city": "Oslo"}',
    "{'city': 'Oslo', 'days': '3', 'state': 'Open',}",
    '{"city": "Oslo", "days": "a few"}',
    '{"city": "Oslo", "limit": 5}',
    '{"city": "Os',
):
    mended = mend(text, find_orders.compiled)
    print(f"{text}\n   {mended.outcome}: {mended.value}  {mended.notes or ''}")
    for pointer, message in mended.errors:
        print(f"   {pointer or '/'}: {message}")

print("\nwhat runs, and for whom:")
script = [
    {
        "calls": [
            {"name": "findOrders", "arguments": {"city": "Oslo"}},
            {"name": "cancel_order", "arguments": {"number": "A-17"}},
            {"name": "cancel_order", "arguments": "{'number': 'A-17'}"},
        ]
    },
    "Done.",
]
for grants in ([], ["orders.*"]):
    agent = Agent(Replay(script), tools=Toolbox([find_orders, cancel_order]))
    for record in agent.run_sync("Cancel the order to Oslo.", principal=Principal("ann", grants)).calls:
        print(f"   {record.call.name}: {record.result.status}: {record.result.content.splitlines()[0][:90]}")
    print()
