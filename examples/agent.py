"""An agent with two tools. The model is a script here, so that it runs anywhere; put "local" or "ollama:qwen3" in its
place and the rest stays as it is.

    python examples/agent.py
"""

from __future__ import annotations

from callgate import Agent, Replay, tool

STOCK = {"apples": 12, "pears": 0}


@tool(effect="read")
def in_stock(item: str) -> int:
    """How many of an item there are."""
    return STOCK.get(item, 0)


@tool(effect="write")
def order(item: str, count: int) -> str:
    """Orders an item.

    Args:
        item: What to order.
        count: How many.
    """
    STOCK[item] = STOCK.get(item, 0) + count
    return f"ordered {count} {item}"


model = Replay(
    [
        {"calls": [{"name": "in_stock", "arguments": {"item": "pears"}}]},
        {"calls": [{"name": "order", "arguments": {"item": "pears", "count": "5"}}]},  # a number as text: coerced
        {"calls": [{"name": "order", "arguments": {"item": "pears", "count": 5}}]},  # the same write again: not run
        "There were no pears, so I ordered 5.",
    ]
)
result = Agent(model, tools=[in_stock, order]).run_sync("Make sure that there are pears.")

for record in result.calls:
    note = " (answered from the ledger)" if record.result.replayed else ""
    print(f"{record.call.name}({record.call.arguments}) -> {record.result.status}: {record.result.content[:60]}{note}")
print(result.text)
assert STOCK["pears"] == 5, "an identical write runs once"
