"""Every `loop` row of conformance/reports.jsonl: faults that people reported of agent loops, as scenarios.

The last test holds that each row has its scenario here.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.errors import Overloaded
from callgate.events import CallFinished, TextDelta
from callgate.policy import Answer, approval
from callgate.run import Began, Received, Run, RunConfig
from callgate.types import Finish, Message, ModelInfo, ToolCall, ToolSpec
from patience import busy, eventually
from run_checks import call, calls, run_events, said, valid

ROWS = Path(__file__).parent / "conformance" / "reports.jsonl"


def test_b159_two_calls_of_one_tool_in_one_turn() -> None:
    ran: list[str] = []

    @tool(effect="read")
    def web_find(q: str) -> str:
        "Find."
        ran.append(q)
        return "hit:" + q

    script = [calls(call("web_find", "c1", q="X"), call("web_find", "c2", q="Y")), "ok"]
    result = Agent(Replay(script), tools=[web_find]).run_sync("go")
    assert sorted(ran) == ["X", "Y"]
    assert [(m.call_id, m.content) for m in result.messages if m.role == "tool"] == [("c1", "hit:X"), ("c2", "hit:Y")]
    assert result.text == "ok"


@pytest.mark.anyio
async def test_b161_sync_tools_overlap_and_block_nothing() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who")
    seen: list[str] = []

    @tool(effect="read")
    def nap(n: int) -> str:
        "Sleep."
        seen.append(who.get())
        time.sleep(0.5)
        return "x"

    gaps: list[float] = []

    async def heartbeat() -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.02)
            now = time.monotonic()
            gaps.append(now - last)
            last = now

    who.set("me")
    agent = Agent(Replay(["ready", calls(*(call("nap", n=n) for n in range(3))), "ok"]), tools=[nap])
    await agent.run("load everything: other programs may want the processor too")
    beat = asyncio.create_task(heartbeat())
    began = time.monotonic()
    result = await agent.run("go")
    wall = time.monotonic() - began
    beat.cancel()
    assert result.reason == "answered"
    assert wall < 1.0 * busy()
    assert max(gaps) < 0.15 * busy()
    assert seen == ["me", "me", "me"]


@pytest.mark.anyio
async def test_b163_a_write_that_timed_out_is_unknown_and_not_started_again() -> None:
    rows: list[int] = []

    @tool(effect="write", timeout=0.2)
    def row_add(v: int) -> str:
        "Add a row."
        time.sleep(0.5)
        rows.append(v)
        return "added"

    def later(request: Any) -> Any:
        time.sleep(0.6)
        return calls(call("row_add", "c2", v=1))

    agent = Agent(Replay([calls(call("row_add", "c1", v=1)), later, "done"]), tools=[row_add], grace=0.05)
    result = await agent.run("go")
    first, second = result.calls
    assert first.result.status == "unknown_outcome"
    assert "may have taken effect" in first.result.content
    assert second.result.replayed
    await eventually(lambda: rows)
    assert rows == [1]


@pytest.mark.anyio
async def test_b165_a_cancel_while_a_call_is_streaming() -> None:
    ran: list[str] = []

    @tool(effect="write")
    def edit_big(path: str) -> str:
        "Edit."
        ran.append(path)
        return "ok"

    slow = {"content": "Let me", "calls": [call("edit_big", "c1", path="a" * 40)], "delay": 0.02, "chunks": 6}
    agent = Agent(Replay([slow, "second"]), tools=[edit_big])
    async with agent.stream("go") as events:
        async for event in events:
            if not isinstance(event, TextDelta) and type(event).__name__ == "CallDelta":
                break
    result = events.result
    assert result.reason == "cancelled"
    assert [m.content for m in result.messages] == ["go", "Let me"]
    assert not any(m.calls for m in result.messages)
    again = await agent.run("and now?", history=result.messages)
    valid(again.messages)
    assert (again.text, ran) == ("second", [])


def test_b167_invalid_arguments_stay_readable_in_the_history() -> None:
    ran: list[dict[str, str]] = []

    @tool(effect="write")
    def file_put(path: str, body: str) -> str:
        "Write a file."
        ran.append({"path": path, "body": body})
        return "written"

    broken = {"calls": [{"name": "file_put", "id": "c1", "arguments": "{"}]}
    script = [broken, calls(call("file_put", "c2", path="a", body="b")), "ok"]
    model = Replay(script)
    result = Agent(model, tools=[file_put]).run_sync("go")
    valid(result.messages)
    text = said(result.calls)["c1"]
    assert "{" in text
    assert result.calls[0].result.status == "invalid_arguments"
    assert ran == [{"path": "a", "body": "b"}]
    assert all(isinstance(c.arguments, dict) for m in model.requests[1].messages for c in m.calls)


def test_b169_one_failing_tool_costs_its_siblings_nothing() -> None:
    class Odd(BaseException):
        pass

    @tool(effect="read")
    async def good() -> str:
        "Good."
        await asyncio.sleep(0.1)
        return "G"

    @tool(effect="read")
    def bad() -> str:
        "Bad."
        raise ValueError("no such bay")

    @tool(effect="read")
    def base() -> str:
        "Odd."
        raise Odd("odd")

    script = [calls(call("good", "c1"), call("bad", "c2"), call("base", "c3")), "ok"]
    result = Agent(Replay(script), tools=[good, bad, base]).run_sync("go")
    texts = said(result.calls)
    assert texts["c1"] == "G"
    assert "no such bay" in texts["c2"]
    assert not result.calls[2].result.ok
    assert (result.reason, result.text) == ("answered", "ok")
    assert "Traceback" not in texts["c2"] + texts["c3"]
    assert __file__ not in texts["c2"] + texts["c3"]


@pytest.mark.anyio
async def test_b171_a_tool_that_swallows_its_cancel_does_not_keep_the_run_alive() -> None:
    @tool(effect="write")
    async def term() -> str:
        "A terminal."
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            return "Status: cancelled"
        return "done"

    model = Replay([calls(call("term", "c1")), "must not be asked for"])
    agent = Agent(model, tools=[term])
    async with agent.stream("go") as events:
        async for event in events:
            if type(event).__name__ == "CallStarted":
                await asyncio.sleep(0.01)
                break
    result = events.result
    assert len(model.requests) == 1
    assert result.reason == "cancelled"
    valid(result.messages)
    assert said(result.calls)["c1"] == "Status: cancelled"


@pytest.mark.parametrize("failure", [Overloaded("HTTP 500"), {"error": "HTTP 500"}, RuntimeError("HTTP 500")])
def test_b173_a_repeated_request_runs_no_finished_tool_again(failure: Any) -> None:
    charged: list[int] = []

    @tool(effect="write")
    def fee_charge(n: int) -> str:
        "Charge a fee."
        charged.append(n)
        return "paid"

    model = Replay([calls(call("fee_charge", "c1", n=5)), failure, "done"])
    result = Agent(model, tools=[fee_charge]).run_sync("go")
    assert charged == [5]
    assert (result.reason, result.text) == ("answered", "done")
    assert [m.content for m in model.requests[2].messages if m.role == "tool"] == ["paid"]


def test_b175_after_an_ambiguous_failure_nothing_invites_a_second_try() -> None:
    attempts: list[str] = []

    @tool(effect="write")
    def order_place(sku: str, key: str) -> str:
        "Order."
        attempts.append(sku)
        raise TimeoutError("read timed out, please try again or retry")

    result = Agent(Replay([calls(call("order_place", "c1", sku="K", key="r1")), "ok"]), tools=[order_place]).run_sync(
        "go"
    )
    assert attempts == ["K"]
    text = said(result.calls)["c1"]
    assert "may have taken effect" in text
    assert "try again" not in text.lower()
    assert "retry" not in text.lower()


def test_b177_polling_with_changing_results_is_no_loop() -> None:
    states = iter([*(f"running {n}" for n in range(7)), "exited 0"])

    @tool(effect="read")
    def job_poll(h: int) -> str:
        "Poll."
        return next(states)

    script = [*[calls(call("job_poll", h=1))] * 8, "finished"]
    result = Agent(Replay(script), tools=[job_poll], max_turns=20).run_sync("go")
    assert (result.reason, result.text) == ("answered", "finished")
    assert len(result.calls) == 8


@pytest.mark.parametrize("case", ["one message", "alternating"])
def test_b179_repetition_is_seen_within_a_message_and_in_alternation(case: str) -> None:
    ran: list[str] = []

    @tool(effect="read")
    def a() -> str:
        "A."
        ran.append("a")
        return "A"

    @tool(effect="read")
    def b() -> str:
        "B."
        ran.append("b")
        return "B"

    one = [calls(*[call("a")] * 5), "never"]
    alternating = [calls(call("ab"[n % 2])) for n in range(10)]
    model = Replay(one if case == "one message" else alternating)
    result = Agent(model, tools=[a, b], max_turns=20).run_sync("go")
    assert result.reason == "repetition"
    valid(result.messages)
    if case == "one message":
        assert ran == ["a"]
        assert [r.result.content for r in result.calls] == ["A"] * 5
        assert len(model.requests) == 1
    else:
        assert ran == ["a", "b"] * 3  # the third of each is warned of, the fourth ends the run
        assert len(model.requests) == 7
        warned = [m.content for m in result.messages if m.role == "tool" and "same arguments" in str(m.content)]
        assert len(warned) == 2


def test_b179_a_threshold_of_three_trips_on_the_third_occurrence() -> None:
    @tool(effect="read")
    def a() -> str:
        "A."
        return "A"

    model = Replay([calls(call("a"))] * 5)
    result = Agent(model, tools=[a], repeat_warn=2, repeat_stop=3).run_sync("go")
    assert (result.reason, len(model.requests)) == ("repetition", 3)
    assert [r.result.status for r in result.calls] == ["ok", "ok", "not_started"]


@pytest.mark.anyio
async def test_b181_an_oversized_result_is_cut_into_whole_items() -> None:
    @tool(effect="read")
    def rows() -> list[dict[str, Any]]:
        "Rows."
        return [{"n": n, "name": "Ünïcødé 文字 " * 4} for n in range(5000)]

    @tool(effect="read")
    def fails() -> str:
        "Fails at length."
        raise ValueError("x" * 100_000)

    agent = Agent(
        Replay([calls(call("rows", "c1"), call("fails", "c2")), "ok"]), tools=[rows, fails], max_result=20_000
    )
    result, seen = await run_events(agent, "go")
    text = said(result.calls)["c1"]
    assert len(text) <= 20_000
    items = json.loads(text)
    whole = [i for i in items if isinstance(i, dict)]
    assert all(set(i) == {"n", "name"} for i in whole)
    assert len(whole) > 10
    assert str(5000 - len(whole)) in json.dumps(items[-1]) or "5000" in json.dumps(items[-1])
    finished = next(e for e in seen if isinstance(e, CallFinished) and e.call_id == "c1")
    assert finished.result.size > 300_000
    assert len(finished.result.value) == 5000
    assert len(said(result.calls)["c2"]) <= 20_000


def test_b183_an_unknown_tool_is_a_result_with_a_hint_and_no_guess_runs() -> None:
    ran: list[int] = []

    @tool(effect="read")
    def site_list() -> str:
        "Sites."
        ran.append(1)
        return "[]"

    script = [calls(call("sites_list", "c1"), call("site_list", "c2")), calls(call("site_list", "c3")), "ok"]
    result = Agent(Replay(script), tools=[site_list]).run_sync("go")
    texts = said(result.calls)
    assert "unknown tool" in texts["c1"]
    assert "site_list" in texts["c1"]
    assert texts["c2"] == "[]"
    assert (len(ran), result.reason) == (2, "answered")


def test_b185_a_result_that_json_cannot_hold_is_handed_over_all_the_same() -> None:
    @tool(effect="read")
    def mixed() -> Any:
        "Mixed."
        value: dict[str, Any] = {"s": {1, 2}, "d": date(2024, 5, 1), "b": b"\xff", "x": float("nan")}
        value["self"] = value
        return value

    result = Agent(Replay([calls(call("mixed", "c1")), "ok"]), tools=[mixed]).run_sync("go")
    assert result.reason == "answered"
    valid(result.messages)
    assert "NaN" not in json.dumps(json.loads(said(result.calls)["c1"]))
    assert result.calls[0].result.ok


def wipe_run(answers: dict[str, Any]) -> tuple[Any, list[str], list[str]]:
    ran: list[str] = []
    asked: list[str] = []

    @tool(effect="write", confirm=True)
    def file_wipe(path: str) -> str:
        "Wipe."
        ran.append(path)
        return "wiped"

    def approve(asked_for: ToolCall) -> Any:
        asked.append(asked_for.id)
        return answers[asked_for.id]

    script = [calls(call("file_wipe", f"c{n}", path=p)) for n, p in ((1, "tmp/x"), (2, "home"), (3, "tmp/x"))]
    return Agent(Replay([*script, "ok"]), tools=[file_wipe], approve=approve).run_sync("go"), ran, asked


@pytest.mark.parametrize("third", [True, False])
def test_b187_an_approval_covers_one_call(third: bool) -> None:
    result, ran, asked = wipe_run({"c1": True, "c2": False, "c3": third})
    assert asked == ["c1", "c2", "c3"]
    assert ran == ["tmp/x"]
    assert [r.result.status for r in result.calls] == ["ok", "denied", "ok" if third else "denied"]
    assert result.calls[2].result.replayed is third


def test_b187_a_wider_scope_holds_only_where_it_was_chosen() -> None:
    _, ran, asked = wipe_run({"c1": Answer(True, "same"), "c2": False})
    assert (asked, ran) == (["c1", "c2"], ["tmp/x"])
    _, ran, asked = wipe_run({"c1": Answer(True, "tool")})
    assert (asked, ran) == (["c1"], ["tmp/x", "home"])


def test_b189_what_runs_is_what_was_approved() -> None:
    sent: list[int] = []
    shown: list[dict[str, Any]] = []

    @tool(effect="write", confirm=True)
    def wire_send(amount: int) -> str:
        "Send money."
        sent.append(amount)
        return "sent"

    def approve(asked_for: ToolCall) -> bool:
        shown.append(dict(asked_for.arguments))
        asked_for.arguments["amount"] = 500
        return True

    def rule(judged: ToolCall, spec: Any, context: Any) -> bool:
        judged.arguments["amount"] = 700
        return True

    agent = Agent(
        Replay([calls(call("wire_send", "c1", amount="5")), "ok"]), [wire_send], approve=approve, policy=[rule]
    )
    result = agent.run_sync("go")
    assert shown == [{"amount": 5}]
    assert sent == [5]
    assert result.calls[0].call.arguments == {"amount": 5}


def test_b189_nothing_begins_without_a_decision() -> None:
    spec = ToolSpec("wire_send", confirm=True)
    run = Run(RunConfig("r", ModelInfo("m"), "json", (spec,), rules=(approval.Rule(),)))
    run.start([Message("user", "go")])
    run.receive(Received([ToolCall("c1", "wire_send", {}), Finish("tool_calls")], 0.0))
    assert [p.id for p in run.pending] == ["c1"]
    with pytest.raises(PermissionError):
        run.receive(Began("c1", 0.0))
    with pytest.raises(PermissionError):
        run.receive(Began("c9", 0.0))


@pytest.mark.parametrize("empty", ["", "  \n", {"content": "", "reasoning": "done, I think"}])
def test_b191_a_broken_history_is_mended_and_an_empty_answer_is_no_success(empty: Any) -> None:
    history = [
        {"role": "user", "content": "tide?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c1", "function": {"name": "tide_at", "arguments": '{"p":1}{"p":2}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "high"},
    ]

    @tool(effect="read")
    def tide_at(p: int) -> str:
        "Tide."
        return "high"

    model = Replay([empty] * 30)
    result = Agent(model, tools=[tide_at]).run_sync("and now?", history=history)
    sent = model.requests[0].messages
    valid(list(sent))
    (made,) = [c for m in sent for c in m.calls]
    (answer,) = [m for m in sent if m.role == "tool"]
    assert (made.id, made.arguments, answer.call_id) == ("c1", {}, "c1")
    assert '{"p":1}{"p":2}' in answer.text
    assert "high" in answer.text
    assert result.reason != "answered"
    assert "empty" in str(result.error)


def test_every_loop_row_has_its_scenario() -> None:
    rows = [json.loads(line) for line in ROWS.read_text("utf-8").split("\n") if line.strip()]
    wanted = {row["id"].lower() for row in rows if row["area"] == "loop"}
    here = {name.split("_")[1] for name in globals() if name.startswith("test_b1")}
    assert wanted == here
