"""Dependencies: a shop that belongs to the application, in tools and instructions, and never in the schema.

python examples/dependencies.py
"""

from __future__ import annotations

from dataclasses import dataclass, field

from callgate import Agent, Inject, Principal, Replay, ToolContext, tool


@dataclass
class Shop:
    name: str
    stock: dict[str, int] = field(default_factory=dict)


@tool(effect="read")
def in_stock(item: str, shop: Inject[Shop]) -> int:
    """How many of an item there are."""
    return shop.stock.get(item, 0)


@tool(effect="write")
def order(item: str, count: int, ctx: ToolContext[Shop]) -> str:
    """Orders an item."""
    ctx.deps.stock[item] = ctx.deps.stock.get(item, 0) + count
    return f"ordered for {ctx.principal.id if ctx.principal else 'nobody'}"


def about(ctx: ToolContext[Shop]) -> str:
    return f"You work for the shop {ctx.deps.name}."


model = Replay(
    [
        {"calls": [{"name": "in_stock", "arguments": {"item": "tea"}}]},
        {"calls": [{"name": "order", "arguments": {"item": "tea", "count": 2}}]},
        "I ordered two.",
    ]
)
agent = Agent(model, tools=[in_stock, order], deps_type=Shop, instructions=["Be brief.", about])
shop = Shop("Leaf")
result = agent.run_sync("Make sure that there is tea.", deps=shop, principal=Principal("ann"))

print(model.requests[0].messages[0].text)
print([(record.call.name, record.result.content) for record in result.calls])
assert shop.stock == {"tea": 2}
assert "shop" not in str(in_stock.spec.parameters)
