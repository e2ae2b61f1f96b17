"""An agent as a tool of another one: one run inside the other."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Principal, Replay, ToolContext, tool
from callgate.policy import Answer

pytestmark = pytest.mark.anyio
RAN: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    RAN.clear()


@tool(effect="read")
def look(at: str, context: ToolContext) -> str:
    "Looks."
    RAN.append((at, context.principal))
    return f"saw {at}"


@tool(effect="write", confirm=True)
def pay(to: str, amount: int = 1) -> str:
    "Pays."
    RAN.append((to, amount))
    return f"paid {to} {amount}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def cashier(*replies: Any, tools: Any = (pay,), **options: Any) -> Any:
    return Agent(Replay(list(replies)), tools=tools, **options).as_tool("cashier", "Pays people.")


async def test_its_answer_is_the_result_and_its_principal_the_parents() -> None:
    scout = Agent(Replay([call("look", at="x"), "I saw x."]), tools=[look]).as_tool("scout", "Looks around.")
    assert (scout.spec.effect, cashier().spec.effect) == ("read", "write")
    agent = Agent(Replay([call("scout", task="Look at x."), "Done."]), tools=[scout])
    result = await agent.run("Go.", principal=Principal("ann"), run_id="r")
    assert (result.text, result.calls[0].result.content) == ("Done.", "I saw x.")
    assert [("x", Principal("ann"))] == RAN
    kinds = [entry.kind for entry in await agent.ledger.read(f"r/{result.calls[0].call.id}")]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")


async def test_what_it_asks_waits_in_the_parent_and_one_resume_covers_both() -> None:
    tool_of = cashier(call("pay", to="bob"), "Paid.")
    agent = Agent(Replay([call("cashier", task="Pay Bob."), "Done."]), tools=[tool_of])
    waiting = await agent.run("Go.")
    (pending,) = waiting.pending
    assert (waiting.reason, pending.name, pending.arguments, RAN) == ("waiting", "pay", {"to": "bob"}, [])
    again = await agent.resume(waiting.run_id)
    assert (again.reason, [one.id for one in again.pending]) == ("waiting", [pending.id])
    result = await agent.resume(waiting.run_id, {pending.id: Answer(True, arguments={"to": "bob", "amount": 2})})
    assert (result.text, RAN) == ("Done.", [("bob", 2)])
    assert (await agent.resume(waiting.run_id, {pending.id: True})).text == "Done."
    assert RAN == [("bob", 2)]


async def test_the_parents_callback_is_asked() -> None:
    asked: list[str] = []
    agent = Agent(
        Replay([call("cashier", task="Pay Bob."), "Done."]),
        tools=[cashier(call("pay", to="bob"), "Paid.")],
        approve=lambda one: asked.append(one.name) or True,
    )
    assert ((await agent.run("Go.")).text, asked, RAN) == ("Done.", ["pay"], [("bob", 1)])


async def test_budgets_are_shared() -> None:
    scout = Agent(Replay([call("look", at="x"), call("look", at="y"), "Seen."]), tools=[look]).as_tool("scout")
    agent = Agent(Replay([call("scout", task="Look."), "Done."]), tools=[scout])
    assert (await agent.run("Go.")).requests == 5
    few = Agent(Replay([call("scout", task="Look."), "Done."]), tools=[cashier_of_two()], max_requests=2)
    result = await few.run("Go.")
    assert (result.reason, result.requests) == ("request_limit", 2)


def cashier_of_two() -> Any:
    return Agent(Replay([call("look", at="x"), call("look", at="y"), "Seen."]), tools=[look]).as_tool("scout")


async def test_a_failure_after_a_write_is_no_reason_to_do_it_again() -> None:
    child = cashier(call("pay", to="bob"), {"error": "gone"}, approve=lambda one: True, retries=0)
    result = await Agent(Replay([call("cashier", task="Pay."), "Hm."]), tools=[child]).run("Go.")
    assert (result.calls[0].result.status, RAN) == ("unknown_outcome", [("bob", 1)])


async def test_a_cancel_of_the_parent_ends_the_child() -> None:
    began = asyncio.Event()

    @tool(effect="read")
    async def hang() -> str:
        "Hangs."
        began.set()
        await asyncio.Event().wait()
        return ""

    child = Agent(Replay([call("hang")]), tools=[hang]).as_tool("child")
    agent = Agent(Replay([call("child", task="x")]), tools=[child])
    run = asyncio.ensure_future(agent.run("Go.", run_id="r"))
    await began.wait()
    assert await agent.cancel("r")
    result = await run
    (last,) = (await agent.ledger.read(f"r/{result.calls[0].call.id}"))[-1:]
    assert (result.reason, last.data["reason"]) == ("cancelled", "cancelled")


def test_a_value_is_given_as_json() -> None:
    child = Agent(Replay(['{"n": 3}']), output={"type": "object"}).as_tool("child")
    result = Agent(Replay([call("child", task="x"), "Done."]), tools=[child]).run_sync("Go.")
    assert result.calls[0].result.value == {"n": 3}


@pytest.mark.parametrize("point", ["before", "after", "child.answers", "parent.answers"])
def test_a_kill_in_a_childs_write_neither_doubles_nor_loses_it(point: str, tmp_path: Path) -> None:
    def live(point: str, what: str) -> int:
        program = Path(__file__).with_name("child_bank.py")
        return subprocess.run([sys.executable, str(program), str(tmp_path), point, what], timeout=60).returncode

    assert live(point, "begin") == -signal.SIGKILL
    assert live("none", "resume") == 0
    told = json.loads((tmp_path / "told.json").read_text())
    assert (told["reason"], told["text"], told["calls"]) == ("answered", "done", ["ok"]), told
    bank = tmp_path / "bank"
    written = bank.read_text().splitlines() if bank.exists() else []
    assert len(written) == (0 if point == "before" else 1), "paid once, or known not to be"
