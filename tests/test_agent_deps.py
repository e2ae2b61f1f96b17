"""Dependencies of a run: given by the application, injected into tools and instructions, unknown to the model."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Protocol

import pytest

from callgate import Agent, Inject, Principal, Replay, Tool, ToolContext, tool
from callgate.errors import ConfigError, ToolError

pytestmark = pytest.mark.anyio


@dataclass
class Shop:
    name: str
    stock: dict[str, int]


class BigShop(Shop):
    """A shop as well."""


class Stocked(Protocol):
    stock: dict[str, int]


@tool(effect="read")
def in_stock(item: str, shop: Inject[Shop]) -> int:
    "How many there are."
    return shop.stock[item]


@tool(effect="read")
async def shop_name(ctx: ToolContext[Shop], who: Principal | None = None) -> str:
    "The shop's name."
    return f"{ctx.deps.name} for {who.id if who else 'nobody'}"


@tool(effect="read")
def by_protocol(item: str, shop: Inject[Stocked]) -> int:
    "The same for whatever has a stock."
    return shop.stock[item]


TOOLS: list[Any] = [in_stock, shop_name, by_protocol]


def calling(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


async def test_each_run_gets_its_own_dependencies_also_at_the_same_time() -> None:
    def model(request: Any) -> Any:
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        return calling("in_stock", item="tea")

    agent = Agent(Replay([model] * 200), tools=TOOLS, deps_type=Shop)
    results = await asyncio.gather(*(agent.run("tea?", deps=Shop("s", {"tea": n})) for n in range(50)))
    assert [r.text for r in results] == [str(n) for n in range(50)]


@pytest.mark.parametrize("deps", [Shop("A", {"tea": 1}), BigShop("A", {"tea": 1})])
async def test_tools_take_them_from_the_context_by_type_or_by_protocol(deps: Shop) -> None:
    calls = {"calls": [*calling("shop_name")["calls"], *calling("by_protocol", item="tea")["calls"]]}
    agent = Agent(Replay([calls, "ok"]), tools=TOOLS, deps_type=Shop)
    result = await agent.run("?", deps=deps, principal=Principal("ann"))
    assert [c.result.content for c in result.calls] == ["A for ann", "1"]


async def test_the_model_neither_sees_nor_chooses_them() -> None:
    model = Replay([calling("in_stock", item="tea", shop={"name": "mine", "stock": {"tea": 99}}), "ok"])
    result = await Agent(model, tools=TOOLS, deps_type=Shop).run("?", deps=Shop("s", {"tea": 1}))
    assert "shop" not in str(model.requests[0].tools[0].parameters)
    assert result.calls[0].result.status == "invalid_arguments"
    assert "/shop" in result.calls[0].result.content


@pytest.mark.parametrize(
    ("deps_type", "reason"),
    [
        (None, "in_stock: parameter 'shop': it wants dependencies of type .*Shop, and there are none"),
        (dict, "in_stock: parameter 'shop': it wants dependencies of type .*Shop, and they are dict"),
    ],
)
def test_what_cannot_be_injected_fails_when_the_agent_is_made(deps_type: Any, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        Agent(Replay([]), tools=TOOLS, deps_type=deps_type)


def test_a_context_of_another_type_and_a_process_of_its_own_fail_as_early() -> None:
    def wrong(ctx: ToolContext[int]) -> None:
        "Wants another context."

    with pytest.raises(ToolError, match="'ctx': it wants dependencies of type int"):
        Agent(Replay([]), tools=[wrong], deps_type=Shop)
    with pytest.raises(ToolError, match="a process=True tool gets none"):
        Agent(Replay([]), tools=[in_stock.with_spec(process=True)], deps_type=Shop)

    def found(key: str, shop: Inject[int]) -> None:
        "A lookup."

    with pytest.raises(ToolError, match="'shop'"):
        Agent(Replay([]), tools=[Tool.from_function(by_protocol.function, lookup=found)], deps_type=Shop)


async def test_a_run_without_them_or_with_others_does_not_start() -> None:
    agent = Agent(Replay(["x"]), tools=TOOLS, deps_type=Shop)
    for given, reason in [({}, "a Shop is needed"), ({"deps": 5}, "a Shop is needed .*not int")]:
        with pytest.raises(ConfigError, match=reason):
            await agent.run("?", **given)
    with pytest.raises(ConfigError, match="no deps_type"):
        await Agent(Replay(["x"])).run("?", deps=5)


async def test_a_run_that_goes_on_is_given_them_again() -> None:
    @tool(effect="write", confirm=True)
    def order(item: str, shop: Inject[Shop]) -> str:
        "Orders."
        shop.stock[item] += 1
        return "ordered"

    shop = Shop("s", {"tea": 0})
    agent = Agent(Replay([calling("order", item="tea"), "done"]), tools=[order], deps_type=Shop)
    first = await agent.run("order tea", deps=shop)
    with pytest.raises(ConfigError, match="deps"):
        await agent.resume(first.run_id, {first.pending[0].id: True})
    assert (await agent.resume(first.run_id, {first.pending[0].id: True}, deps=shop)).text == "done"
    assert shop.stock == {"tea": 1}


async def test_instructions_are_made_for_each_run_from_its_own_context() -> None:
    made: list[str] = []

    def who(ctx: ToolContext[Shop]) -> str:
        made.append(ctx.run_id)
        return f"You sell at {ctx.deps.name} to {ctx.principal.id if ctx.principal else '?'}."

    async def late(ctx: ToolContext[Shop]) -> str:
        await asyncio.sleep(0)
        return f"In stock: {', '.join(ctx.deps.stock)}."

    model = Replay(["a", "b"])
    agent = Agent(model, instructions=["Be brief.", who, late, lambda ctx: ""], deps_type=Shop)
    for n, name in enumerate(["A", "B"]):
        await agent.run("?", deps=Shop(name, {"tea": 1, "jam": 2}), principal=Principal("ann"), run_id=f"r{n}")
        text = model.requests[n].messages[0].text
        assert text == f"Be brief.\n\nYou sell at {name} to ann.\n\nIn stock: tea, jam."
    assert made == ["r0", "r1"]


@pytest.mark.parametrize("wrong", [5, [5], lambda: "no parameter", ["a", lambda a, b: "two"]])
def test_instructions_that_cannot_be_made_are_refused_early(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="instructions"):
        Agent(Replay([]), instructions=wrong)


async def test_what_an_instruction_raises_is_raised_and_nothing_has_started() -> None:
    def broken(ctx: ToolContext) -> str:
        raise LookupError("no such customer")

    model = Replay(["x"])
    agent = Agent(model, instructions=broken)
    with pytest.raises(LookupError, match="no such customer"):
        await agent.run("?", run_id="r")
    assert (model.requests, await agent.ledger.run("r")) == ([], None)
    with pytest.raises(ConfigError, match="gave int"):
        await Agent(model, instructions=lambda ctx: 5).run("?")
