"""What reaches a tool and what does not: arguments, flags, limits, the ladder, repeated writes, cut results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from callgate import Agent, NoEffect, Principal, Replay, Tool, ToolContext, tool
from callgate.errors import BadRequest, ConfigError, ContextTooLong
from callgate.events import CallProposed, ProtocolChanged, Retrying, TurnStarted
from callgate.history import tokens
from callgate.ledger import memory
from callgate.types import Entry, Message, ModelInfo
from run_checks import run_events, valid

RAN: list[Any] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


@tool(effect="read")
def look(n: int = 0, where: str = "") -> str:
    "Look."
    RAN.append(("look", n))
    return f"seen {n}"


@tool(effect="write")
def put(n: int = 0) -> str:
    "Put."
    RAN.append(("put", n))
    return f"put {n}"


def call(name: str, id: str | None = None, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments, **({"id": id} if id else {})}]}


def raw(name: str, text: str) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": text}]}


def go(script: list[Any], tools: list[Any] | None = None, prompt: str = "go", **more: Any) -> Any:
    principal = more.pop("principal", None)
    result = Agent(Replay(script), tools=tools or [look, put], **more).run_sync(prompt, principal=principal)
    valid(result.messages)
    return result


# --- arguments and flags ------------------------------------------------------------------------------------------


def test_broken_json_is_mended_for_a_read_and_never_for_a_write() -> None:
    result = go([raw("look", "{'n': 1,}"), raw("put", "{'n': 1,}"), "ok"])
    assert [r.result.status for r in result.calls] == ["ok", "invalid_arguments"]
    assert result.calls[0].call.flags == {"repaired"}
    assert RAN == [("look", 1)]


@pytest.mark.parametrize("finish", ["length", "interrupted", "error", "content_filter"])
def test_a_call_of_an_unsound_turn_never_runs(finish: str) -> None:
    result = go([{**call("put", n=1), "finish": finish}, "ok"])
    assert RAN == []
    assert result.reason == ("provider_error" if finish == "content_filter" else "answered")


def test_a_call_cut_off_by_the_length_is_asked_for_again() -> None:
    result = go([{**raw("put", '{"n": 1'), "finish": "length"}, call("put", n=1), "ok"])
    assert [r.result.status for r in result.calls] == ["invalid_arguments", "ok"]
    assert RAN == [("put", 1)]


@pytest.mark.parametrize(
    ("name", "runs"), [("Look", True), ("functions.look", True), ("Put", False), ("functions.put", False)]
)
def test_a_name_written_differently_is_a_read_and_never_a_write(name: str, runs: bool) -> None:
    result = go([call(name, n=1), "ok"])
    assert bool(RAN) is runs
    assert result.calls[0].result.status == ("ok" if runs else "unknown_tool")
    assert runs or "put" in result.calls[0].result.content


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_call_that_only_looks_like_one_never_runs_a_write(effect: str) -> None:
    script = [
        'I would do this: {"tool": "%s", "args": {"n": 1}} and then rest.' % ("look" if effect == "read" else "put")
    ]
    result = go([*script, "ok"], protocol="json", retries=5)
    assert ("put", 1) not in RAN
    assert result.reason == "answered"


def test_unknown_arguments_of_a_raw_schema_are_refused_unless_it_allows_them() -> None:
    def function(**arguments: Any) -> str:
        RAN.append(arguments)
        return "ok"

    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    closed = Tool.from_schema("closed", "Closed.", schema, function)
    open_ = Tool.from_schema("open", "Open.", {**schema, "additionalProperties": True}, function)
    result = go([call("closed", a=1, b=2), call("open", a=1, b=2), "ok"], [closed, open_])
    assert [r.result.status for r in result.calls] == ["invalid_arguments", "ok"]
    assert "b" in result.calls[0].result.content
    assert RAN == [{"a": 1, "b": 2}]


def test_a_model_cannot_supply_who_it_acts_for() -> None:
    @tool(effect="read")
    def inbox(context: ToolContext) -> str:
        "Mail."
        RAN.append(context.principal)
        return "mail"

    result = go([call("inbox", context={"principal": "root"}), call("inbox"), "ok"], [inbox], principal=Principal("me"))
    assert [r.result.status for r in result.calls] == ["invalid_arguments", "ok"]
    assert [p.id for p in RAN] == ["me"]


def test_what_a_tool_does_to_its_arguments_changes_no_record() -> None:
    def eats(**arguments: Any) -> str:
        arguments["items"].clear()
        return "eaten"

    eat = Tool.from_schema("eat", "Eat.", {"type": "object", "properties": {"items": {"type": "array"}}}, eats)
    result = go([call("eat", items=[1, 2]), "ok"], [eat])
    assert result.calls[0].call.arguments == result.messages[1].calls[0].arguments == {"items": [1, 2]}


def test_ids_are_unique_over_the_whole_conversation() -> None:
    agent = Agent(Replay([call("look", "x"), "a", call("look", "x", n=1), "b", call("look", n=2), "c"]), tools=[look])
    first = agent.run_sync("1")
    second = agent.run_sync("2", history=first.messages)
    third = agent.run_sync("3", history=second.messages)
    valid(second.messages)
    valid(third.messages)
    assert len({c.id for m in third.messages for c in m.calls}) == 3


@pytest.mark.anyio
async def test_a_call_in_progress_has_the_id_that_it_will_keep() -> None:
    script = [{"calls": [{"name": "look", "arguments": {"n": n}} for n in (1, 2)]}, "ok"]
    _, seen = await run_events(Agent(Replay(script), tools=[look]), "go")
    streamed = [e.id for e in seen if type(e).__name__ == "CallDelta" and e.name]
    proposed = [e.call.id for e in seen if isinstance(e, CallProposed)]
    assert streamed == proposed == ["call_1_1", "call_1_2"]


# --- limits -------------------------------------------------------------------------------------------------------


def test_fifty_calls_where_sixteen_may_be_run_none() -> None:
    many = {"calls": [{"name": "put", "arguments": {"n": n}} for n in range(50)]}
    result = go([many, "never"])
    assert (result.reason, RAN, len(result.calls)) == ("call_limit", [], 50)
    assert {r.result.status for r in result.calls} == {"not_started"}


@pytest.mark.parametrize(
    ("limits", "reason", "ran"),
    [
        ({"max_turns": 1}, "turn_limit", 0),
        ({"max_requests": 2}, "request_limit", 1),
        ({"max_tokens": 15}, "token_limit", 1),
        ({"max_calls": 2}, "call_limit", 2),
        ({"policy": {"budget": {"calls": 1}}}, "call_limit", 1),
    ],
)
def test_a_limit_is_checked_before_anything_of_a_batch_runs(limits: dict[str, Any], reason: str, ran: int) -> None:
    script = [{**call("put", n=n), "content": f"step {n}", "usage": {"input": 5, "output": 3}} for n in range(9)]
    result = go(script, **limits)
    assert (result.reason, len(RAN)) == (reason, ran)
    assert result.calls[-1].result.status == "not_started"
    assert result.error
    assert result.text == f"step {ran}"


def test_an_answer_cut_off_by_its_length_is_no_success() -> None:
    result = go([{"content": "half an ans", "finish": "length"}])
    assert (result.reason, result.text) == ("token_limit", "half an ans")


# --- asking again and the ladder ----------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_a_model_that_never_gets_it_right_steps_down_to_a_plain_answer() -> None:
    def reply(request: Any) -> Any:
        offered = bool(request.tools) or request.schema is not None or "TOOL" in request.messages[0].text
        offered = offered or '"tool"' in request.messages[0].text
        return call("nowhere") if offered else "I cannot do this."

    result, seen = await run_events(Agent(Replay([reply] * 30), tools=[look, put]), "go")
    assert (result.reason, result.text) == ("answered", "I cannot do this.")
    steps = [(e.before, e.after) for e in seen if isinstance(e, ProtocolChanged)]
    assert steps == [("native", "constrained"), ("constrained", "json"), ("json", "marker"), ("marker", "answer")]
    assert result.protocol == "answer"
    assert sum(isinstance(e, TurnStarted) for e in seen) == 1, "what cannot be used is no turn"
    assert [e.attempt for e in seen if isinstance(e, Retrying)][:4] == [1, 2, 3, 4]
    valid(result.messages)


def test_what_worked_is_remembered_for_the_next_run() -> None:
    def reply(request: Any) -> Any:
        if request.tools:
            raise BadRequest("tools are not supported")
        seen = any("seen" in m.text for m in request.messages)
        return '{"answer": "done"}' if seen else '{"tool": "look", "args": {"n": 1}}'

    model = Replay([reply] * 20)
    agent = Agent(model, tools=[look])
    assert agent.run_sync("go").protocol == "constrained"
    before = len(model.requests)
    result = agent.run_sync("go")
    assert (result.reason, result.protocol) == ("answered", "constrained")
    assert not any(r.tools for r in model.requests[before:])


def test_unreadable_text_goes_back_with_the_reason_and_leaves_no_trace() -> None:
    model = Replay(
        ['<<<TOOL>>>{"tool": "look", "args": {"n": 1', '<<<TOOL>>>{"tool": "look", "args": {"n": 1}}<<<END>>>', "ok"]
    )
    result = Agent(model, tools=[look], protocol="marker").run_sync("go")
    assert (result.reason, RAN) == ("answered", [("look", 1)])
    valid(result.messages)
    assert len(model.requests) == 3


def test_an_empty_answer_after_results_is_asked_for_again() -> None:
    result = go([call("look", n=1), "", "It is there."])
    assert (result.reason, result.text) == ("answered", "It is there.")
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]


# --- a wanted form ------------------------------------------------------------------------------------------------


class City(BaseModel):
    name: str
    people: int


def test_the_final_answer_has_the_form_that_was_asked_for() -> None:
    model = Replay([call("look", n=1), "Paris has two million people.", '{"name": "Paris", "people": "2000000"}'])
    result = Agent(model, tools=[look]).run_sync("go", output=City)
    assert (result.reason, result.output) == ("answered", City(name="Paris", people=2_000_000))
    assert json.loads(json.dumps(result.messages[-1].text))
    valid(result.messages)
    wrong = Agent(Replay(["no"] * 9)).run_sync("go", output=City.model_json_schema())
    assert (wrong.reason, wrong.output) == ("output_invalid", None)
    assert "output" in str(wrong.error)


# --- long conversations -------------------------------------------------------------------------------------------


def long(turns: int) -> list[Message]:
    return [Message("user" if n % 2 == 0 else "assistant", f"word {n} " * 100) for n in range(turns)]


def test_what_does_not_fit_is_left_out_of_requests_and_kept_in_the_result() -> None:
    model = Replay(["ok"])
    result = Agent(model, max_context=800).run_sync("go", history=long(20))
    assert len(result.messages) == 22
    sent = model.requests[0].messages
    assert 1 < len(sent) < 10
    assert sent[0].role == "user"
    assert sent[-1].text == "go"
    assert "left out" in " ".join(result.problems)


def test_what_does_not_fit_may_be_summed_up_by_the_model() -> None:
    def reply(request: Any) -> Any:
        text = request.messages[-1].text
        if "Sum up" in str(request.messages):
            return "They spoke of words 0 to 14."
        return call("look", n=1) if text.endswith("go") else "ok"

    model = Replay([reply] * 20)
    result = Agent(model, tools=[look], max_context=1500, summarize=True).run_sync("go", history=long(20))
    assert result.text == "ok"
    assert "word 0" in model.requests[0].messages[-1].text
    for request in model.requests[-2:]:
        assert "They spoke of words 0 to 14." in request.messages[0].text
    # what is summed up is asked for in slices, each of which fits as well
    assert all(sum(tokens(m) for m in request.messages) <= 1500 for request in model.requests)
    assert len(result.messages) == 24
    assert not any("They spoke" in m.text for m in result.messages)


def test_a_server_that_says_too_long_gets_less() -> None:
    def reply(request: Any) -> Any:
        if len(request.messages) > 6:
            raise ContextTooLong("at most 2048 tokens")
        return "ok"

    result = Agent(Replay([reply] * 9)).run_sync("go", history=long(20))
    assert result.text == "ok"
    alone = Agent(Replay([ContextTooLong("too long")] * 9)).run_sync("go")
    assert (alone.reason, "too long" in str(alone.error)) == ("provider_error", True)


# --- results ------------------------------------------------------------------------------------------------------


def test_a_cut_result_can_be_read_on() -> None:
    @tool(effect="read", max_result=300)
    def rows() -> list[int]:
        "Rows."
        return list(range(1000))

    def more(request: Any) -> Any:
        assert "read_result" in [t.name for t in request.tools]
        return call("read_result", call_id="c1", start=900)

    model = Replay([call("rows", "c1"), more, "ok"])
    result = Agent(model, tools=[rows]).run_sync("go")
    valid(result.messages)
    assert [t.name for t in model.requests[0].tools] == ["rows"]
    assert result.calls[0].result.size > 300
    assert "999" in result.calls[1].result.content
    assert "end" in result.calls[1].result.content


# --- writes -------------------------------------------------------------------------------------------------------


def test_an_identical_write_is_answered_and_a_repeatable_one_runs() -> None:
    @tool(effect="write", repeatable=True)
    def ring() -> str:
        "Ring."
        RAN.append("ring")
        return "rung"

    twice = {"calls": [{"name": "put", "arguments": {"n": 1}}, {"name": "ring"}] * 2}
    result = go([twice, call("put", n=1), "ok"], [put, ring])
    assert RAN == [("put", 1), "ring", "ring"]
    assert [(r.call.name, r.result.replayed) for r in result.calls] == [
        ("put", False), ("ring", False), ("put", True), ("ring", False), ("put", True),
    ]  # fmt: skip
    assert {r.result.content for r in result.calls if r.call.name == "put"} == {"put 1"}


def test_a_write_that_certainly_did_nothing_may_start_again() -> None:
    tries: list[int] = []

    @tool(effect="write")
    def pay() -> str:
        "Pay."
        tries.append(1)
        if len(tries) == 1:
            raise NoEffect("the bank is closed")
        return "paid"

    result = go([call("pay"), call("pay"), "ok"], [pay])
    assert ([r.result.status for r in result.calls], len(tries)) == (["failed", "ok"], 2)


@pytest.mark.parametrize(
    ("known", "status", "runs"),
    [("paid", "ok", 1), (NoEffect("never came"), "failed", 1), (None, "unknown_outcome", 1)],
)
def test_a_write_of_unknown_outcome_is_looked_up(known: Any, status: str, runs: int) -> None:
    def lookup(key: str, arguments: dict[str, Any]) -> Any:
        if isinstance(known, Exception):
            raise known
        return known

    @tool(effect="write", lookup=lookup)
    def pay(n: int) -> str:
        "Pay."
        RAN.append("pay")
        raise ConnectionError("reset")

    result = go([call("pay", n=1), "ok"], [pay])
    assert ([r.result.status for r in result.calls], len(RAN)) == ([status], 1)


@pytest.mark.anyio
@pytest.mark.parametrize("known", ["paid", NoEffect("never came"), None])
async def test_after_a_crash_a_started_write_is_looked_up_and_a_finished_call_stays(known: Any, tmp_path: Path) -> None:
    keys: list[str] = []

    def lookup(key: str, arguments: dict[str, Any]) -> Any:
        keys.append(key)
        if isinstance(known, Exception):
            raise known
        return known

    @tool(effect="write", lookup=lookup)
    def pay(n: int, context: ToolContext) -> str:
        "Pay."
        keys.append(context.idempotency_key)
        RAN.append(n)
        return "paid"

    script = [{"calls": [{"name": n, "arguments": {"n": 1}} for n in ("look", "pay", "put")]}, "Done."]
    whole = Agent(Replay(list(script)), tools=[look, pay, put])
    done = await whole.run("go")
    entries = await whole.ledger.read(done.run_id)
    key = keys.pop()
    at = next(n for n, e in enumerate(entries) if e.kind == "call_intent" and e.data["tool"] == "pay")
    RAN.clear()
    store = memory.Store()
    await store.append("r", [Entry(e.kind, e.data) for e in entries[: at + 1]])
    for e in entries[: at + 1]:
        assert e.kind != "call_result" or e.data["tool"] == "look"
    # the process died right after it recorded that `pay` starts
    again = Agent(Replay(["Done."]), tools=[look, pay, put], ledger=store)
    result = await again.resume("r")
    valid(result.messages)
    status = {"paid": "ok", None: "unknown_outcome"}.get(known if known is None else str(known), "failed")
    assert [(r.call.name, r.result.status) for r in result.calls] == [("look", "ok"), ("pay", status), ("put", "ok")]
    assert RAN == [("put", 1)]
    assert len(keys) >= 1
    assert key
    assert (result.reason, result.text) == ("answered", "Done.")


def test_a_call_that_contains_the_mask_runs_like_any_other() -> None:
    """Masked places are marked beside the entry (tests/test_run_restore.py), so the word itself decides nothing."""
    result = go([call("look", where="[masked]"), "ok"])
    assert (result.calls[0].result.status, RAN) == ("ok", [("look", 0)])


def test_the_model_is_not_told_of_hidden_tools_and_unlisted_ones_do_not_exist() -> None:
    model = Replay([call("get_secret"), "ok"], info=ModelInfo("replay", capabilities=frozenset({"tools"})))
    result = Agent(model, tools=[look]).run_sync("go")
    assert result.calls[0].result.status == "unknown_tool"
    assert [t.name for t in model.requests[0].tools] == ["look"]


def test_a_run_may_have_fewer_tools_also_when_it_is_resumed() -> None:
    @tool(effect="write", confirm=True)
    def pay() -> str:
        "Pay."
        return "paid"

    model = Replay([call("pay"), call("look"), "ok"])
    agent = Agent(model, tools=[look, put, pay])
    first = agent.run_sync("go", tools=["pa*", "put"])
    result = agent.resume_sync(first.run_id, {first.pending[0].id: True})
    assert [r.result.status for r in result.calls] == ["ok", "unknown_tool"]
    assert [[t.name for t in r.tools] for r in model.requests] == [["put", "pay"]] * 3
    with pytest.raises(ConfigError, match="nothing"):
        agent.run_sync("go", tools=["nothing"])


def test_a_hidden_tool_does_not_exist_for_the_model() -> None:
    @tool(effect="read", hidden=True)
    def secret() -> str:
        "Secret."
        RAN.append("secret")
        return "x"

    model = Replay([call("secret"), "ok"])
    result = Agent(model, tools=[look, secret]).run_sync("go")
    assert ([r.result.status for r in result.calls], RAN) == (["unknown_tool"], [])
    assert "secret" not in [t.name for t in model.requests[0].tools]
