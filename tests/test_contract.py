"""The public contract, used exactly as its page says: only names of the face, nothing of the rooms behind it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import callgate
from callgate import Agent, NoEffect, NotFound, Principal, Reader, Replay, mend, read, separate, tool
from callgate.events import CallFinished, RunFinished
from callgate.types import BadCall, CallDelta, Finish, ReasoningDelta, TextDelta, ToolCall

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CALL = {"calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}


@tool(effect="read", timeout=10)
def get_weather(city: str) -> dict[str, Any]:
    "Current weather in a city."
    return {"city": city, "sky": "rain"}


# --- a. read ------------------------------------------------------------------------------------------------------

HERMES = 'Hi. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'


@pytest.mark.parametrize("tools", [[WEATHER], [WEATHER["function"]], [get_weather], []])
@pytest.mark.parametrize("cut", [None, 1, 3])
def test_read_takes_text_whole_or_in_chunks_and_tools_in_every_form(tools: list[Any], cut: int | None) -> None:
    raw = HERMES if cut is None else [HERMES[i : i + cut] for i in range(0, len(HERMES), cut)]
    reply = read(raw, dialect="hermes", tools=tools)
    assert reply.content == "Hi."
    assert reply.reasoning == ""
    assert [(c.name, c.arguments) for c in reply.calls] == [("get_weather", {"city": "Paris"})]
    assert isinstance(reply.calls[0].id, str)
    assert reply.calls[0].id
    assert reply.incomplete == []
    assert reply.finish == "tool_calls"
    assert reply.usage is None
    assert reply.error is None


def test_raw_text_ends_as_stop_or_interrupted() -> None:
    assert read("hello", dialect="hermes").finish == "stop"
    cut = read(HERMES[:-30], dialect="hermes", tools=[WEATHER])
    assert cut.finish == "interrupted"
    assert cut.calls == []
    assert [b.name for b in cut.incomplete] == ["get_weather"]
    assert cut.content == "Hi."


def test_without_a_dialect_content_is_untouched() -> None:
    text = "<think>a</think> " + HERMES
    assert read(text, dialect=None).content == text
    assert read(text, tools=[WEATHER]).content == text


def sse(*records: Any, done: bool = True) -> bytes:
    body = "".join(f"data: {json.dumps(r)}\n\n" for r in records)
    return (body + ("data: [DONE]\n\n" if done else "")).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


TC = {"index": 0, "id": "k1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Pa"}'}}


@pytest.mark.parametrize("cut", [None, 1, 7])
def test_read_a_wire(cut: int | None) -> None:
    raw = sse(
        chunk({"role": "assistant", "content": "Ok. "}),
        chunk({"tool_calls": [TC]}),
        chunk({}, "tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 5}},
    )
    reply = read(raw if cut is None else [raw[i : i + cut] for i in range(0, len(raw), cut)], wire="openai")
    assert (reply.content, reply.finish, reply.raw_finish) == ("Ok. ", "tool_calls", "tool_calls")
    assert [(c.id, c.name, c.arguments) for c in reply.calls] == [("k1", "get_weather", {"city": "Pa"})]
    assert reply.usage is not None
    assert (reply.usage["input"], reply.usage["output"]) == (3, 5)


@pytest.mark.parametrize(
    ("end", "finish"), [("length", "length"), (None, "interrupted"), ("content_filter", "content_filter")]
)
def test_on_an_unsound_end_every_call_is_incomplete(end: str | None, finish: str) -> None:
    reply = read(sse(chunk({"tool_calls": [TC]}), *([chunk({}, end)] if end else []), done=False), wire="openai")
    assert reply.finish == finish
    assert reply.calls == []
    assert [b.name for b in reply.incomplete] == ["get_weather"]


def test_a_dialect_reads_the_content_of_a_wire_and_an_unsound_end_holds_there_too() -> None:
    whole = [chunk({"content": HERMES[:20]}), chunk({"content": HERMES[20:]})]
    assert len(read(sse(*whole, chunk({}, "stop")), wire="openai", dialect="hermes", tools=[WEATHER]).calls) == 1
    cut = read(sse(*whole, done=False), wire="openai", dialect="hermes", tools=[WEATHER])
    assert (cut.calls, cut.finish, len(cut.incomplete)) == ([], "interrupted", 1)


def test_ollama_ndjson() -> None:
    lines = [
        {"message": {"role": "assistant", "content": "", "thinking": "hm"}, "done": False},
        {
            "message": {
                "content": "",
                "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}],
            },
            "done": False,
        },
        {"message": {"content": ""}, "done": True, "done_reason": "stop", "prompt_eval_count": 4, "eval_count": 2},
    ]
    reply = read("".join(json.dumps(x) + "\n" for x in lines).encode(), wire="ollama")
    assert (reply.reasoning, reply.finish, reply.raw_finish) == ("hm", "tool_calls", "stop")
    assert reply.calls[0].arguments == {"city": "Paris"}
    assert dict(reply.usage or {}).items() >= {"input": 4, "output": 2}.items()


# --- b. Reader ----------------------------------------------------------------------------------------------------

QWEN = (
    "plan</think>\n<tool_call>\n<function=get_weather>\n"
    '<parameter=city>\nPa"ris\n</parameter>\n</function>\n</tool_call>'
)


@pytest.mark.parametrize("cut", [1, 2, 5, 1000])
def test_reader_streams_a_call_in_progress(cut: int) -> None:
    reader = Reader(dialect="qwen_xml", tools=[WEATHER], prompt_tail="<think>\n")
    deltas = [d for i in range(0, len(QWEN), cut) for d in reader.feed(QWEN[i : i + cut])]
    deltas += reader.finish()
    assert "".join(d.text for d in deltas if isinstance(d, ReasoningDelta)).strip() == "plan"
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == ""
    fragments = [d for d in deltas if isinstance(d, CallDelta)]
    assert fragments[0].name == "get_weather"
    (call,) = [d for d in deltas if isinstance(d, ToolCall)]
    assert json.loads("".join(d.arguments for d in fragments)) == call.arguments == {"city": 'Pa"ris'}
    assert [type(d) for d in deltas].count(Finish) == 1
    assert isinstance(deltas[-1], Finish)


def test_separate() -> None:
    text = "A<tool_call>one</tool_call>B<tool_call>two"
    assert separate(text, start_tag="<tool_call>", end_tag="</tool_call>") == ("AB", "two", ["one"])
    assert separate("A<tool_", start_tag="<tool_call>", end_tag="</tool_call>") == ("A", None, [])


# --- c. mend ------------------------------------------------------------------------------------------------------


def test_mend() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}, "required": ["n"]}
    m = mend('{"n": "5", "s": "5"}', schema)
    assert (m.outcome, m.value, m.repaired, list(m.coerced)) == ("ok", {"n": 5, "s": "5"}, False, ["/n"])
    m = mend("{'n': 1,}", schema)
    assert (m.outcome, m.value, m.repaired) == ("ok", {"n": 1}, True)
    assert mend({"n": 1}, schema).value == {"n": 1}
    m = mend("{}", schema)
    assert m.outcome == "invalid"
    assert [e[0] for e in m.errors] == ["/n"]
    assert mend('{"n": 1', schema).outcome == "incomplete"
    assert mend("[1]", schema).outcome == "malformed"


# --- d, e. agents -------------------------------------------------------------------------------------------------


def test_a_run() -> None:
    model = Replay([CALL, "Take an umbrella."])
    result = Agent(model, tools=[get_weather]).run_sync("What should I wear in Paris?")
    assert (result.text, result.reason) == ("Take an umbrella.", "answered")
    assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"]
    (record,) = result.calls
    assert (record.call.name, record.call.arguments, record.result.status) == ("get_weather", {"city": "Paris"}, "ok")
    assert json.loads(record.result.content) == {"city": "Paris", "sky": "rain"}
    assert result.messages[2].call_id == record.call.id == result.messages[1].calls[0].id
    assert result.run_id
    assert len(model.requests) == 2


def test_history_goes_on_and_instructions_stay_out_of_it() -> None:
    model = Replay(["one", "two"])
    agent = Agent(model, instructions="Be brief.")
    first = agent.run_sync("a")
    second = agent.run_sync("b", history=first.messages)
    assert [m.content for m in second.messages] == ["a", "one", "b", "two"]
    assert model.requests[1].messages[0].role == "system"
    assert sum(m.role == "system" for m in model.requests[1].messages) == 1


@pytest.mark.anyio
async def test_stream_and_leaving_it() -> None:
    agent = Agent(Replay([CALL, "Done."]), tools=[get_weather])
    async with agent.stream("go") as events:
        seen = [e async for e in events]
    assert isinstance(seen[-1], RunFinished)
    assert seen[-1].reason == "answered"
    assert [e.result.status for e in seen if isinstance(e, CallFinished)] == ["ok"]

    ran = []

    @tool(effect="write")
    async def slow() -> str:
        "Slow."
        await asyncio.sleep(0.2)
        ran.append(1)
        return "x"

    async with Agent(Replay([{"calls": [{"name": "slow", "arguments": {}}]}, "late"]), tools=[slow]).stream(
        "go"
    ) as events:
        async for _ in events:
            break
    await asyncio.sleep(0.3)
    assert ran == []


def test_permission_belongs_to_the_principal_of_the_run() -> None:
    @tool(effect="read", permission="orders.read")
    def orders() -> list[int]:
        "Orders."
        return [1]

    ask = {"calls": [{"name": "orders", "arguments": {}}]}
    for principal, status in [
        (None, "denied"),
        (Principal("u1", grants={"x"}), "denied"),
        (Principal("u1", grants={"orders.read"}), "ok"),
    ]:
        result = Agent(Replay([ask, "ok"]), tools=[orders]).run_sync("…", principal=principal)
        assert result.calls[0].result.status == status
    assert (
        Agent(Replay([ask, "ok"]), tools=[orders])
        .run_sync("…", principal=Principal("u", grants={"orders.*"}))
        .calls[0]
        .result.ok
    )


def test_a_question_survives_a_restart(tmp_path: Path) -> None:
    sent = []

    @tool(effect="write", confirm=True)
    def pay(amount: int) -> str:
        "Pay."
        sent.append(amount)
        return "paid"

    ledger = f"sqlite:{tmp_path / 'runs.db'}"
    first = Agent(
        Replay([{"calls": [{"name": "pay", "arguments": {"amount": 5}}]}]), tools=[pay], ledger=ledger
    ).run_sync("pay 5")
    assert first.reason == "waiting"
    assert sent == []
    (pending,) = first.pending
    again = Agent(Replay(["All paid."]), tools=[pay], ledger=ledger)
    call_id = first.calls[0].call.id if first.calls else pending.id
    result = asyncio.run(again.resume(first.run_id, answers={call_id: True}))
    assert (result.reason, result.text, sent) == ("answered", "All paid.", [5])


def test_approve_callback() -> None:
    ran = []

    @tool(effect="write", confirm=True)
    def wipe(path: str) -> str:
        "Wipe."
        ran.append(path)
        return "ok"

    script = [{"calls": [{"name": "wipe", "arguments": {"path": p}}]} for p in ("a", "b")]
    result = Agent(Replay([*script, "end"]), tools=[wipe], approve=lambda call: call.arguments["path"] == "a").run_sync(
        "x"
    )
    assert ran == ["a"]
    assert [r.result.status for r in result.calls] == ["ok", "denied"]


def test_what_tools_raise() -> None:
    @tool(effect="write")
    def nothing_done() -> str:
        "x"
        raise NoEffect("closed")

    @tool(effect="write")
    def who_knows() -> str:
        "x"
        raise TimeoutError("read timed out")

    @tool(effect="read")
    def missing() -> str:
        "x"
        raise NotFound("no such order")

    @tool(effect="read")
    def broken() -> str:
        "x"
        raise ValueError("no such bay")

    names = ["nothing_done", "who_knows", "missing", "broken", "nowhere"]
    script = {"calls": [{"name": n, "arguments": {}} for n in names]}
    result = Agent(Replay([script, "ok"]), tools=[nothing_done, who_knows, missing, broken]).run_sync("x")
    status = {r.call.name: r.result.status for r in result.calls}
    assert status == {
        "nothing_done": "failed",
        "who_knows": "unknown_outcome",
        "missing": "not_found",
        "broken": "failed",
        "nowhere": "unknown_tool",
    }
    said = {r.call.name: r.result.content for r in result.calls}
    assert "no such bay" in said["broken"]
    assert "may have taken effect" in said["who_knows"]
    assert result.reason == "answered"


def test_the_face_is_small_and_exact() -> None:
    assert len(callgate.__all__) <= 30
    for name in callgate.__all__:
        assert getattr(callgate, name) is not None
    with pytest.raises(AttributeError):
        callgate.nothing  # noqa: B018


def test_a_call_cut_off_is_a_bad_call() -> None:
    reader = Reader(dialect="hermes", tools=[WEATHER])
    deltas = reader.feed(HERMES[:-30]) + reader.finish()
    (bad,) = [d for d in deltas if isinstance(d, BadCall)]
    assert (bad.name, bad.reason) == ("get_weather", "truncated")
