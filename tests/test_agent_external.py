"""Calls that the application carries out itself, arguments that people change, and tools that end a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Agent, Principal, Replay, Tool, tool
from callgate.errors import ConfigError, NoEffect, NotFound, ToolRetry
from callgate.policy import Answer
from callgate.tools import Secret

pytestmark = pytest.mark.anyio
RAN: list[Any] = []
OPEN = Tool.from_schema("open_door", "Opens a door.", {"properties": {"door": {"type": "string"}}}, effect="write")
SEE = Tool.from_schema("see", "Looks.", {"properties": {"at": {"type": "string"}}}, effect="read")


@tool(effect="write", confirm=True)
def pay(to: str, amount: int) -> str:
    "Pays."
    RAN.append((to, amount))
    return f"paid {amount} to {to}"


@tool(effect="read")
def look(at: str) -> str:
    "Looks."
    RAN.append(at)
    return f"saw {at}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def calls(*several: dict[str, Any]) -> dict[str, Any]:
    return {"calls": list(several)}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


# --- external tools ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["memory", "sqlite"])
@pytest.mark.parametrize("approve", [None, lambda call: True])
async def test_a_tool_without_a_function_waits_for_its_result(where: str, approve: Any, tmp_path: Path) -> None:
    place = None if where == "memory" else f"sqlite:{tmp_path / 'runs.db'}"
    script: list[Any] = [calls(call("open_door", door="东门"), call("look", at="x")), "Both."]
    model = Replay(script)
    agent = Agent(model, tools=[OPEN, look], ledger=place, approve=approve)
    first = await agent.run("go")
    assert (first.reason, [(p.rule, p.name, p.arguments) for p in first.pending], RAN) == (
        "waiting",
        [("external", "open_door", {"door": "东门"})],
        [],
    )
    if where == "sqlite":
        await agent.aclose()
        agent = Agent(Replay(script[1:]), tools=[OPEN, look], ledger=place)
    waits = first.pending[0].id
    assert (await agent.resume(first.run_id)).reason == "waiting"  # nothing was brought
    with pytest.raises(ConfigError, match="waits for its result"):
        await agent.resume(first.run_id, {waits: True})
    with pytest.raises(ConfigError, match="results: call_9 does not wait for one; waiting: "):
        await agent.resume(first.run_id, results={"call_9": 1})
    result = await agent.resume(first.run_id, results={waits: {"open": True}})
    assert (result.reason, result.text, RAN) == ("answered", "Both.", ["x"])
    assert [(r.result.status, r.result.content) for r in result.calls] == [("ok", '{"open": true}'), ("ok", "saw x")]
    again = await agent.resume(first.run_id, results={waits: {"open": True}})  # a retried request
    assert again.text == "Both."
    await agent.aclose()


@pytest.mark.parametrize(
    ("value", "status"),
    [("done", "ok"), (None, "ok"), (NotFound("no door"), "not_found"), (NoEffect("locked"), "failed"),
     (ToolRetry("name the floor"), "invalid_arguments"), (RuntimeError("bang"), "unknown_outcome")],
)  # fmt: skip
async def test_what_the_application_brings_ends_like_a_call_of_ours(value: Any, status: str) -> None:
    agent = Agent(Replay([calls(call("open_door", door="a")), "Ok."]), tools=[OPEN])
    first = await agent.run("go")
    result = await agent.resume(first.run_id, results={first.pending[0].id: value})
    assert result.calls[0].result.status == status


async def test_an_identical_external_write_is_answered_and_not_asked_for_twice() -> None:
    agent = Agent(Replay([calls(call("open_door", door="a"))] * 2 + ["Ok."]), tools=[OPEN])
    first = await agent.run("go")
    result = await agent.resume(first.run_id, results={first.pending[0].id: "opened"})
    assert result.reason == "answered"
    assert [(r.result.content, r.result.replayed) for r in result.calls] == [("opened", False), ("opened", True)]


async def test_another_external_write_waits_for_a_person_while_one_is_unknown() -> None:
    agent = Agent(Replay([calls(call("open_door", door="a")), calls(call("open_door", door="b")), "Ok."]), tools=[OPEN])
    first = await agent.run("go")
    second = await agent.resume(first.run_id, results={first.pending[0].id: RuntimeError("line cut")})
    (waits,) = second.pending
    assert (second.reason, waits.rule) == ("waiting", "unknown_write")
    third = await agent.resume(first.run_id, {waits.id: True})
    assert [p.rule for p in third.pending] == ["external"]
    last = await agent.resume(first.run_id, results={waits.id: "opened b"})
    assert (last.reason, [r.result.status for r in last.calls]) == ("answered", ["unknown_outcome", "ok"])


@pytest.mark.parametrize("where", ["here", "there"])
async def test_a_cancelled_external_write_is_unknown_and_a_read_never_ran(where: str, tmp_path: Path) -> None:
    place = f"sqlite:{tmp_path / 'runs.db'}"
    async with Agent(Replay([calls(call("open_door", door="a"), call("see", at="b"))]), tools=[OPEN, SEE],
                     ledger=place) as agent:  # fmt: skip
        first = await agent.run("go")
        assert len(first.pending) == 2
        async with Agent(Replay([]), tools=[OPEN, SEE], ledger=place) as other:
            assert await (agent if where == "here" else other).cancel(first.run_id)
        result = await agent.resume(first.run_id)
    assert [r.result.status for r in result.calls] == ["unknown_outcome", "not_started"]


# --- arguments that people change -------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["callback", "memory", "sqlite"])
async def test_a_person_may_change_the_arguments(where: str, tmp_path: Path) -> None:
    script: list[Any] = [calls(call("pay", to="ann", amount=500)), "Paid."]
    yes = Answer(True, by="bob", arguments={"to": "ann", "amount": 50})
    place = f"sqlite:{tmp_path / 'runs.db'}" if where == "sqlite" else None
    approve = (lambda call: yes) if where == "callback" else None
    agent = Agent(Replay(script), tools=[pay], ledger=place, approve=approve)
    result = await agent.run("go", run_id="r")
    if where != "callback":
        assert RAN == []
        if where == "sqlite":
            await agent.aclose()
            agent = Agent(Replay(script[1:]), tools=[pay], ledger=place)
        result = await agent.resume("r", {result.pending[0].id: yes})
    assert (result.reason, RAN) == ("answered", [("ann", 50)])
    assert result.calls[0].call.arguments == {"to": "ann", "amount": 50}
    assert result.messages[1].calls[0].arguments["amount"] == 500  # what the model wrote stays what it wrote
    assert result.messages[2].text == "[A person changed the arguments of this call.]\n\npaid 50 to ann"
    (entry,) = [e for e in await agent.ledger.read("r") if e.kind == "answer"]
    assert (entry.data["by"], entry.data["edited"]) == ("bob", {"to": "ann", "amount": 50})
    await agent.aclose()


@settings(max_examples=30, deadline=None)
@given(
    st.one_of(
        st.just({"to": "ann"}),
        st.dictionaries(st.sampled_from(["to", "amount", "more"]), st.one_of(st.text(), st.integers(), st.none())),
        st.lists(st.integers()),
        st.text(),
    )
)
async def test_edited_arguments_are_checked_and_judged_like_the_models(arguments: Any) -> None:
    RAN.clear()
    policy = {"arguments": {"pay": {"amount": {"max": 100}}}}
    agent = Agent(Replay([calls(call("pay", to="ann", amount=5)), "Ok."]), tools=[pay], policy=policy)
    first = await agent.run("go", run_id="r")
    amount = arguments.get("amount") if isinstance(arguments, dict) else None
    fits = isinstance(arguments, dict) and arguments.keys() == {"to", "amount"}
    fits = fits and isinstance(arguments["to"], str) and isinstance(amount, int)
    answer = Answer(True, arguments=arguments)
    if not fits and not (isinstance(arguments, dict) and arguments.keys() == {"to", "amount"}):
        with pytest.raises(ConfigError, match="the arguments do not fit pay"):
            await agent.resume("r", {first.pending[0].id: answer})
        assert RAN == []
    elif fits:
        result = await agent.resume("r", {first.pending[0].id: answer})
        assert ([(arguments["to"], amount)] == RAN) == (amount <= 100)
        assert result.calls[0].result.status == ("ok" if amount <= 100 else "denied")


async def test_a_callback_that_gives_wrong_arguments_is_a_no() -> None:
    agent = Agent(
        Replay([calls(call("pay", to="ann", amount=5)), "Ok."]),
        tools=[pay],
        approve=lambda call: Answer(True, arguments={"amount": "lots"}),
    )
    result = await agent.run("go")
    assert (RAN, result.calls[0].result.status) == ([], "denied")
    assert (
        "a person gave it arguments that do not fit: /to: missing; /amount: expected integer"
        in result.calls[0].result.content
    )


async def test_edited_secrets_are_held_and_not_shown(tmp_path: Path) -> None:
    @tool(effect="write", confirm=True)
    def login(word: Annotated[str, Secret]) -> str:
        "Logs in."
        RAN.append(word)
        return "in"

    place = f"sqlite:{tmp_path / 'runs.db'}"
    slow = Tool.from_schema("see", "Sees.", {"properties": {}}, effect="read")
    async with Agent(Replay([calls(call("login", word="hunter2-first"), call("see"))]), tools=[login, slow],
                     ledger=place) as agent:  # fmt: skip
        first = await agent.run("go", run_id="r")
        yes = Answer(True, arguments={"word": "hunter2-second"})
        second = await agent.resume("r", {first.pending[0].id: yes})
        assert (second.reason, RAN) == ("waiting", [])
    async with Agent(Replay(["Ok."]), tools=[login, slow], ledger=place) as agent:
        last = await agent.resume("r", results={first.pending[1].id: "seen"})
        assert (last.reason, RAN) == ("answered", ["hunter2-second"])
        shown = [str(e.data) for e in await agent.ledger.read("r")]
    assert not any("hunter2" in text for text in shown)


# --- tools that end a run, tools that ask again -----------------------------------------------------------------------


async def test_a_run_stops_after_a_tool_with_its_result() -> None:
    model = Replay([calls(call("look", at="x")), "Never asked."])
    agent = Agent(model, tools=[look], stop_after="look")
    result = await agent.run("go")
    assert (result.reason, result.text, result.output, len(model.requests)) == ("answered", "saw x", "saw x", 1)
    assert [m.role for m in result.messages] == ["user", "assistant", "tool"]
    assert (await agent.resume(result.run_id)).text == "saw x"
    failing = Replay([calls(call("look")), "Tell me where."])
    assert (await Agent(failing, tools=[look], stop_after=["look"]).run("go")).text == "Tell me where."
    with pytest.raises(ConfigError, match="stop_after: there is no tool 'lok'"):
        Agent(Replay([]), tools=[look], stop_after="lok")


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_tool_asks_for_another_call(effect: Any) -> None:
    def find(who: str) -> str:
        "Finds."
        if len(who) < 3:
            raise ToolRetry("a name has three letters or more")
        return f"found {who}"

    made = Tool.from_function(find, effect=effect)
    agent = Agent(Replay([calls(call("find", who="a")), calls(call("find", who="ann")), "Ann."]), tools=[made])
    result = await agent.run("go", principal=Principal("u"))
    assert [(r.result.status, r.result.content) for r in result.calls] == [
        ("invalid_arguments", "nothing was done; call find again: a name has three letters or more"),
        ("ok", "found ann"),
    ]
