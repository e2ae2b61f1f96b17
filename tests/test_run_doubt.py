"""Writes of unknown outcome hold what may be the same write; approvals and answers; resumes with other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, NoEffect, Principal, Replay, Tool, tool
from callgate.errors import ConfigError, ToolsChanged
from callgate.policy import Answer


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


def flaky(tries: list[Any], **declared: Any) -> Tool:
    """A write whose first attempt breaks off in the middle."""

    def pay(amount: int, memo: str = "") -> str:
        "Pays."
        tries.append((amount, memo))
        if len(tries) == 1:
            raise ConnectionError("reset")
        return "paid"

    return Tool.from_function(pay, effect="write", **declared)


# --- in the run and its session -----------------------------------------------------------------------------------


@pytest.mark.parametrize("unknown", ["tool", "same"])
@pytest.mark.parametrize("memo", ["", "rent"])
def test_while_a_write_is_unknown_a_further_call_of_its_tool_asks(unknown: str, memo: str) -> None:
    """Identical calls are answered from the ledger as ever; reworded ones ask, unless the tool compares arguments."""
    tries: list[Any] = []
    reworded = {"memo": memo} if memo else {}
    script = [call("pay", amount=5), call("pay", amount=5, **reworded), "done"]
    agent = Agent(Replay(script), tools=[flaky(tries, unknown=unknown)])
    result = agent.run_sync("go")
    if not memo:
        assert (result.reason, len(tries), result.calls[1].result.replayed) == ("answered", 1, True)
    elif unknown == "same":
        assert (result.reason, len(tries)) == ("answered", 2)
    else:
        assert (result.reason, len(tries)) == ("waiting", 1)
        assert result.pending[0].rule == "unknown_write"
        assert '"amount": 5' in result.pending[0].reason
        resumed = agent.resume_sync(result.run_id, {result.pending[0].id: True})
        assert (resumed.reason, tries) == ("answered", [(5, ""), (5, memo)])


def test_two_writes_of_one_tool_in_one_answer_are_not_both_under_way() -> None:
    tries: list[Any] = []
    both = {"calls": [{"name": "pay", "arguments": {"amount": n}} for n in (1, 2)]}
    asked: list[Any] = []
    agent = Agent(Replay([both, "done"]), tools=[flaky(tries)], approve=lambda c: asked.append(c.arguments) or False)
    result = agent.run_sync("go")
    assert [r.result.status for r in result.calls] == ["unknown_outcome", "denied"]
    assert (tries, asked) == ([(1, "")], [{"amount": 2}])


def test_an_approval_given_before_is_no_answer_to_the_doubt() -> None:
    """Both were approved, then the first one broke off: the second one is asked about once more."""
    tries: list[Any] = []
    both = {"calls": [{"name": "pay", "arguments": {"amount": n}} for n in (1, 2)]}
    rules: list[str] = []

    def approve(c: Any, pending: Any) -> Answer:
        rules.append(pending.rule)
        return Answer(True, scope="tool")

    result = Agent(Replay([both, "done"]), tools=[flaky(tries, confirm=True)], approve=approve).run_sync("go")
    assert rules == ["approval", "unknown_write"]
    assert [r.result.status for r in result.calls] == ["unknown_outcome", "ok"]


def test_the_session_remembers_what_is_open() -> None:
    tries: list[Any] = []
    agent = Agent(
        Replay([call("pay", amount=5), "open", call("pay", amount=5, memo="again"), "ok"]), tools=[flaky(tries)]
    )
    first = agent.run_sync("go")
    second = agent.run_sync("and?", history=first.messages)
    assert (second.reason, len(tries)) == ("waiting", 1)
    assert "earlier turn" in second.pending[0].reason
    other = Agent(Replay([call("pay", amount=5, memo="again"), "ok"]), tools=[flaky(tries)])
    assert other.run_sync("go").reason == "answered", "another session is not held"


# --- over runs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", ["nothing", "it ran", "it did not"])
@pytest.mark.parametrize("who", ["ada", "bob"])
@pytest.mark.parametrize("key", ["", "mine"])
def test_an_identical_write_of_another_run_is_a_question_not_an_answer(known: str, who: str, key: str) -> None:
    tries: list[Any] = []

    def lookup(key: str, arguments: dict[str, Any]) -> Any:
        if len(tries) == 1 and known == "it did not":
            raise NoEffect("never came")
        return "paid, number 7" if known == "it ran" and looked else None

    looked: list[int] = []
    agent = Agent(Replay([call("pay", amount=5), "ok"] * 2), tools=[flaky(tries, lookup=lookup)])
    if known == "it did not":  # nobody knew while the first run was there
        agent = Agent(Replay([call("pay", amount=5), "ok"] * 2), tools=[flaky(tries)])
    first = agent.run_sync("go", principal=Principal("ada"))
    assert first.calls[0].result.status == "unknown_outcome"
    looked.append(1)
    if known == "it did not":
        agent = Agent(Replay([call("pay", amount=5), "ok"]), tools=[flaky(tries, lookup=lookup)], ledger=agent.ledger)
    second = agent.run_sync("go", principal=Principal(who), key=key)
    if who == "bob" or key or known == "it did not":
        assert (second.reason, len(tries), second.calls[0].result.replayed) == ("answered", 2, False)
        return
    assert (second.reason, len(tries)) == ("waiting", 1)
    reason = second.pending[0].reason
    assert first.run_id in reason
    assert ("paid, number 7" in reason) == (known == "it ran")
    third = agent.resume_sync(second.run_id, {second.pending[0].id: True})
    assert (third.reason, third.calls[0].result.content, len(tries)) == ("answered", "paid", 2)


def test_a_key_of_the_caller_decides_without_asking() -> None:
    tries: list[Any] = []
    agent = Agent(Replay([call("pay", amount=5), "ok"] * 2), tools=[flaky(tries)])
    agent.run_sync("go", key="order-1")
    second = agent.run_sync("go", key="order-1")
    assert (second.reason, len(tries)) == ("answered", 1)
    assert (second.calls[0].result.status, second.calls[0].result.replayed) == ("unknown_outcome", True)


def test_a_contested_write_that_is_declined_does_not_run() -> None:
    tries: list[Any] = []
    both = {"calls": [{"name": "pay", "arguments": {"amount": 5}}, {"name": "note", "arguments": {}}]}
    order: list[str] = []

    @tool(effect="write")
    def note() -> str:
        "Notes."
        order.append("note")
        return "noted"

    def approve(c: Any) -> bool:
        order.append(f"asked {c.name}")
        return False

    agent = Agent(Replay([call("pay", amount=5), "ok", both, "ok"]), tools=[flaky(tries), note], approve=approve)
    agent.run_sync("go")
    result = agent.run_sync("go")
    assert [r.result.status for r in result.calls] == ["denied", "ok"]
    assert (order, len(tries)) == (["asked pay", "note"], 1), "calls keep their order"


# --- answers ------------------------------------------------------------------------------------------------------


def notes(ran: list[str]) -> list[Tool]:
    @tool(effect="write", confirm=True)
    def note(text: str) -> str:
        "Notes."
        ran.append(text)
        return "noted"

    @tool(effect="write", confirm=True)
    def wipe(text: str) -> str:
        "Wipes."
        ran.append("wipe " + text)
        return "wiped"

    return [note, wipe]


FOUR = {
    "calls": [{"name": "note", "arguments": {"text": t}} for t in "abc"]
    + [{"name": "wipe", "arguments": {"text": "d"}}]
}


@pytest.mark.parametrize("first", ["a", "b", "c"])
def test_always_holds_for_the_calls_that_wait_beside_it(first: str) -> None:
    ran: list[str] = []
    agent = Agent(Replay([FOUR, "done"]), tools=notes(ran))
    waits = agent.run_sync("x")
    ids = {p.arguments["text"]: p.id for p in waits.pending}
    again = agent.resume_sync(waits.run_id, {ids[first]: Answer(True, scope="tool")})
    assert (again.reason, [p.arguments["text"] for p in again.pending], ran) == ("waiting", ["d"], [])
    last = agent.resume_sync(waits.run_id, {ids["d"]: False})
    assert (last.reason, ran) == ("answered", ["a", "b", "c"])


def test_always_holds_while_the_others_wait_for_the_callback() -> None:
    ran: list[str] = []
    asked: list[str] = []

    def approve(c: Any) -> Answer:
        asked.append(c.arguments["text"])
        return Answer(c.name == "note", scope="tool")

    Agent(Replay([FOUR, "done"]), tools=notes(ran), approve=approve).run_sync("x")
    assert (asked, ran) == (["a", "d"], ["a", "b", "c"])


def test_answers_for_calls_that_do_not_wait_are_refused() -> None:
    ran: list[str] = []
    agent = Agent(Replay([FOUR, "done"]), tools=notes(ran))
    waits = agent.run_sync("x")
    with pytest.raises(ConfigError, match="call_9 does not wait; waiting: call_1_1, call_1_2, call_1_3, call_1_4"):
        agent.resume_sync(waits.run_id, {"call_9": True})
    agent.resume_sync(waits.run_id, {"call_1_1": False})
    agent.resume_sync(waits.run_id, {"call_1_1": False, "call_1_2": True})  # said again, the same way
    with pytest.raises(ConfigError, match="call_1_1 does not wait"):
        agent.resume_sync(waits.run_id, {"call_1_1": True})
    end = agent.resume_sync(waits.run_id, {"call_1_3": False, "call_1_4": False})
    assert (end.reason, ran) == ("answered", ["b"])
    assert agent.resume_sync(waits.run_id, {"call_1_4": True}).text == "done", "an ended run gives its result"
    with pytest.raises(ConfigError, match="waiting: none"):
        agent.resume_sync(waits.run_id, {"call_9": True})


# --- resumed with other tools ---------------------------------------------------------------------------------------


def test_a_resume_with_another_tool_writes_nothing_and_says_what_differs(tmp_path: Path) -> None:
    where = f"sqlite:{tmp_path}/runs.db"
    tries: list[Any] = []
    script = [call("pay", amount=5), "done"]

    def agent(*tools: Any) -> Agent:
        return Agent(Replay(script), tools=list(tools), ledger=where)

    tries.append("warm")
    waits = agent(flaky(tries, confirm=True)).run_sync("go")
    (pending,) = waits.pending

    def pay(amount: int, to: str = "") -> str:
        "Pays somebody."
        return "paid"

    for tools, words in [
        ([], "no such tool"),
        ([Tool.from_function(pay, confirm=True)], "'memo' was removed"),
        ([flaky(tries, confirm=True, permission="money")], "permission"),
        ([Tool.from_function(pay, effect="read")], "effect"),
    ]:
        one = agent(*tools)
        with pytest.raises(ToolsChanged, match=words):
            one.resume_sync(waits.run_id, {pending.id: True})
    assert agent(flaky(tries)).resume_sync(waits.run_id).reason == "waiting", "nothing was written"

    @tool(effect="read")
    def other() -> str:
        "Another tool."
        return ""

    reworded = flaky(tries, confirm=True, description="Pays, in other words.")
    after = Agent(Replay(["done"]), tools=[other, reworded], ledger=where)
    result = after.resume_sync(waits.run_id, {pending.id: True})
    assert (result.reason, tries[1:]) == ("answered", [(5, "")])
    assert agent().resume_sync(waits.run_id).text == "done", "an ended run gives its result, whatever the tools"
