"""What the gateway mends, and what it leaves alone."""

from __future__ import annotations

import itertools
import json
import random
import re
from typing import Any

import jsonschema
import openai
import pytest

from callgate.apps.gateway.answer import machine
from callgate.reply import tool_specs
from callgate.types import BadCall, TextDelta, ToolCall
from gateway_server import Options, gateway
from loopback import refusal, sse, stream
from test_gateway_openai import HI, TEXT, TOOL, call, client, post, record, records_of, wait_for

LEAKED = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo"}}</tool_call>'
GOOD = sse(TEXT[0], record(call('{"city": "Oslo"}')), record({}, "tool_calls"))


def said(text: str, finish: str = "stop", *, size: int = 0) -> bytes:
    """An answer in words, in pieces of so many characters."""
    pieces = [text[at : at + size] for at in range(0, len(text), size)] if size else [text]
    return sse(TEXT[0], *(record({"content": piece}) for piece in pieces), record({}, finish))


def accumulate(g: Any, **more: Any) -> tuple[str, str, list[tuple[str, Any]], str | None, Any]:
    """(content, reasoning, calls, finish, the gateway's note) as the official client puts a stream together."""
    content, reasoning, note, finish = "", "", None, None
    calls: dict[int, list[str]] = {}
    asked: Any = {"messages": HI, "tools": [TOOL], **more}
    for event in client(g).chat.completions.create(model="m", stream=True, **asked):
        note = getattr(event, "callgate", None) or note
        for choice in event.choices:
            content += choice.delta.content or ""
            reasoning += getattr(choice.delta, "reasoning_content", None) or ""
            finish = choice.finish_reason or finish
            for entry in choice.delta.tool_calls or ():
                made = calls.setdefault(entry.index, ["", "", ""])
                made[0] += entry.id or ""
                made[1] += entry.function.name or ""
                made[2] += entry.function.arguments or ""
    assert list(calls) == list(range(len(calls)))
    assert all(made[0] for made in calls.values())
    assert len({made[0] for made in calls.values()}) == len(calls)
    return content, reasoning, [(made[1], json.loads(made[2])) for made in calls.values()], finish, note


# --- calls in the text ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5])
def test_a_call_that_leaked_into_the_text_is_a_call(size: int) -> None:
    with gateway(stream(said(f"I look.\n{LEAKED}", size=size))) as g:
        content, _, calls, finish, note = accumulate(g)
        assert (content, calls, finish) == ("I look.", [("get_weather", {"city": "Oslo"})], "tool_calls")
        assert note == {"mended": {"leaked": 1}}
        wait_for(lambda: g.records)
        assert [(c.tool, c.outcome) for c in g.records[0].calls] == [("get_weather", "passed")]


@pytest.mark.parametrize("size", [0, 1, 3])
@pytest.mark.parametrize(
    "text", [f"Write `{LEAKED}` to call.\nYes", f"```\n{LEAKED}\n```\nis a call", f"> {LEAKED}\n\nso"]
)
def test_a_mention_stays_text(text: str, size: int) -> None:
    with gateway(stream(said(text, size=size))) as g:
        assert accumulate(g) == (text, "", [], "stop", None)


def test_without_tools_nothing_in_a_text_is_a_call() -> None:
    with gateway(stream(said(LEAKED))) as g:
        assert accumulate(g, tools=openai.NOT_GIVEN)[0] == LEAKED


def _texts(seed: int) -> str:
    rng = random.Random(seed)
    call = '<tool_call>{"name":"a","arguments":{"x":"</b> `y`"}}</tool_call>'
    pieces = [
        "word ",
        "\n",
        "`",
        "```\n",
        "\n```\n",
        call,
        " ",
        "\n\n",
        "> ",
        '"',
        ".",
        "<tool",
        "é🙂",
        "    ",
        "- ",
        "| ",
    ]
    return "".join(rng.choice(pieces) for _ in range(rng.randrange(1, 14)))


def test_mentions_stay_in_the_text_to_the_character() -> None:
    """Whatever the text, and however it is cut: without a call that is meant, what goes in comes out."""
    tools = tool_specs([{"type": "function", "function": {"name": "a", "parameters": {"type": "object"}}}])
    quoted = 0
    for seed in range(1500):
        text = _texts(seed)
        seen = set()
        for size in (1, 2, 3, 7, 10_000):
            read = machine("auto", tools)
            deltas = [d for at in range(0, len(text), size) for d in read.feed(text[at : at + size])] + read.finish()
            calls = [d for d in deltas if isinstance(d, (ToolCall, BadCall))]
            seen.add(("".join(d.text for d in deltas if isinstance(d, TextDelta)), str(calls)))
        assert len(seen) == 1, (seed, text, seen)
        shown, calls_text = seen.pop()
        if calls_text == "[]":
            quoted += "<tool_call>" in text
            assert shown == text, (seed, text, shown)
    assert quoted > 200


# --- arguments, ids, finishes, reasoning ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "mended"),
    [
        ([record(call('{"city": "Oslo", "days": "3"}'))], {"arguments": 1}),
        ([record(call('{"city": "Oslo", "days": 3.0}'))], {}),
        ([record(call("{'city': 'Oslo', 'days': 3,}"))], {"arguments": 1}),
        ([record(call('{"city": "Oslo", "days": 3}', id=None))], {"ids": 1}),
        ([record(call('{"city": "Oslo", "days": 3}', id="a b\n"))], {"ids": 1}),
        ([record(call('{"city": "Oslo", "days": 3}', name="functions.get_weather"))], {"name": 1}),
        ([record(call('{"city": "Oslo"', index=7)), record(call(', "days": 3}', index=7, id=None, name=None))], {}),
    ],
)
def test_what_is_mangled_is_mended_and_told(records: list[Any], mended: dict[str, int]) -> None:
    with gateway(stream(sse(TEXT[0], *records, record({}, "stop")))) as g:
        content, _, calls, finish, note = accumulate(g)
        assert (content, calls, finish) == ("", [("get_weather", {"city": "Oslo", "days": 3})], "tool_calls")
        assert (note or {}).get("mended", {}) == {**mended, "finish": 1}


def test_two_calls_with_one_id_get_two() -> None:
    both = [record(call('{"city": "Oslo"}', index=0)), record(call('{"city": "Rome"}', index=1))]
    with gateway(stream(sse(TEXT[0], *both, record({}, "tool_calls")))) as g:
        assert [c[1]["city"] for c in accumulate(g)[2]] == ["Oslo", "Rome"]


@pytest.mark.parametrize("size", [0, 1, 4])
def test_reasoning_in_the_content_is_moved(size: int) -> None:
    with gateway(stream(said("<think>Let me see.</think>\n\nSunny.", size=size))) as g:
        content, reasoning, _, finish, note = accumulate(g)
        assert (content, reasoning, finish) == ("Sunny.", "Let me see.", "stop")
        assert note == {"mended": {"reasoning": 1}}


@pytest.mark.parametrize(
    ("raw", "finish"), [("eos", "stop"), ("end_turn", "stop"), ("max_tokens", "length"), ("x", "length")]
)
def test_a_finish_reason_is_one_that_clients_know(raw: str, finish: str) -> None:
    with gateway(stream(said("Hi", raw))) as g:
        assert accumulate(g)[3] == finish


# --- asked again -----------------------------------------------------------------------------------------------------

BAD = sse(TEXT[0], record({"content": "I look."}), record(call('{"town": 5}')), record({}, "tool_calls"))


def test_calls_that_do_not_fit_are_asked_for_again() -> None:
    with gateway(stream(BAD), stream(GOOD)) as g:
        content, _, calls, finish, note = accumulate(g)
        assert (content, calls, finish) == ("I look.", [("get_weather", {"city": "Oslo"})], "tool_calls")
        assert note == {"mended": {"asked again": 1}, "retries": 1}
        again = g.asked[1]
        assert [m["role"] for m in again["messages"]] == ["user", "assistant", "tool"]
        assert "city" in json.dumps(again["messages"])
        wait_for(lambda: g.records)
        assert (g.records[0].retries, [c.outcome for c in g.records[0].calls]) == (1, ["retried"])


def test_what_never_fits_is_withheld_and_the_finish_says_why() -> None:
    with gateway(stream(BAD)) as g:
        content, _, calls, finish, note = accumulate(g)
        assert (content, calls, finish) == ("I look.", [], "content_filter")
        assert note["retries"] == 2
        assert note["withheld"][0]["tool"] == "get_weather"
        assert "city" in note["withheld"][0]["reason"]
        assert len(g.asked) == 3
        answer = post(g, tools=[TOOL])
        assert answer.headers["x-callgate-withheld"] == "1"


def test_the_last_retry_is_held_to_a_schema_and_does_without_where_that_is_refused() -> None:
    no = refusal("400 Bad Request", {"error": {"message": "response_format is not supported"}})
    with gateway(stream(BAD), stream(BAD), no, stream(GOOD)) as g:
        assert accumulate(g)[2] == [("get_weather", {"city": "Oslo"})]
        assert ["response_format" in asked for asked in g.asked] == [False, False, True, False]
        assert [asked.get("tool_choice") for asked in g.asked] == [None, NAMED, None, None]
        assert g.asked[3]["tools"]


def test_a_forced_retry_that_is_refused_is_asked_for_without_force() -> None:
    """Models that think refuse a forced `tool_choice`."""
    no = refusal("400 Bad Request", {"error": {"message": "tool_choice: thinking models only take auto"}})
    with gateway(stream(BAD), no, stream(GOOD)) as g:
        assert accumulate(g)[2] == [("get_weather", {"city": "Oslo"})]
        assert [asked.get("tool_choice") for asked in g.asked] == [None, NAMED, None]


def test_a_retry_leaves_the_clients_prompt_as_it_was() -> None:
    """A server's cache is keyed by the beginning of the prompt: messages and tools stay, to the byte; calls of the
    retries have ids of their own."""
    messages = [
        {"role": "system", "content": "Be brief.", "x": 1},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}], "name": "bob"},
    ]
    with gateway(stream(BAD), options=Options(retries=3)) as g:
        accumulate(g, messages=messages)
        first = g.asked[0]
        for asked in g.asked[1:3]:
            assert json.dumps(asked["messages"][:2]) == json.dumps(first["messages"]) == json.dumps(messages)
            assert json.dumps(asked["tools"]) == json.dumps(first["tools"])
        ids = [c["id"] for m in g.asked[2]["messages"] for c in m.get("tool_calls", ())]
        assert len(set(ids)) == len(ids) == 2


def test_a_good_call_beside_a_bad_one_is_asked_for_too() -> None:
    """Forced to the bad one alone, the model could not send the good one again."""
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    good, bad = call("{}", name="other"), call("{}", index=1, id="call_b")
    both = sse(TEXT[0], record(good), record(bad), record({}, "tool_calls"))
    whole = sse(TEXT[0], record(good), record(call('{"city": "Oslo"}', index=1, id="b")), record({}, "tool_calls"))
    with gateway(stream(both), stream(whole)) as g:
        assert accumulate(g, tools=[TOOL, other])[2] == [("other", {}), ("get_weather", {"city": "Oslo"})]
        assert g.asked[1]["tool_choice"] == "required"


@pytest.mark.parametrize(
    ("answer", "more"),
    [
        (BAD, {}),
        (sse(TEXT[0], record(call('{"town":')), record({}, "tool_calls")), {}),
        (sse(TEXT[0], record(call("[nope")), record({}, "tool_calls")), {}),
        (sse(TEXT[0], record(call("{}", name="get_wether")), record({}, "tool_calls")), {}),
        (sse(TEXT[0], record(call('{"city": "O"}')), record(call("{}", index=1)), record({}, "tool_calls")), {}),
        (said("好的。"), {"tool_choice": "required"}),
    ],
)
def test_a_chinese_conversation_is_corrected_in_chinese(answer: bytes, more: dict[str, Any]) -> None:
    with gateway(stream(answer)) as g:
        accumulate(g, messages=[{"role": "user", "content": "奥斯陆天气怎么样？"}], **more)
        told = [str(m["content"]) for m in g.asked[1]["messages"] if m["role"] in ("tool", "user")][1:]
        assert told
        for text in told:
            plain = text.replace("get_weather", "").replace("get_wether", "").replace("JSON", "")
            assert not re.search(r"[a-zA-Z]{3,} [a-zA-Z]{2,}", plain), text


def test_a_call_that_is_let_through_fits_the_clients_schema() -> None:
    rng = random.Random(5)
    texts = [
        '{"city": "Oslo"}',
        '{"city": 5}',
        "{}",
        '{"city": null}',
        '{"city": "O", "days": "x"}',
        '{"city',
        "[]",
        "nope",
    ]
    for size in range(12):
        answers = [sse(TEXT[0], record(call(rng.choice(texts))), record({}, "tool_calls")) for _ in range(3)]
        with gateway(*map(stream, answers), options=Options(retries=size % 3)) as g:
            for name, arguments in accumulate(g)[2]:
                assert name == "get_weather"
                jsonschema.validate(arguments, TOOL["function"]["parameters"])


def test_nothing_of_a_call_is_seen_before_it_is_checked() -> None:
    with gateway(stream(BAD)) as g:
        assert "town" not in "".join(str(r) for r in records_of(post(g, stream=True, tools=[TOOL]).text)[:-1])


def test_of_a_good_and_a_bad_call_the_good_one_goes_out() -> None:
    both = sse(
        TEXT[0], record(call('{"city": "Oslo"}')), record(call("{}", index=1, id="call_b")), record({}, "tool_calls")
    )
    with gateway(stream(both)) as g:
        _, _, calls, finish, note = accumulate(g)
        assert (calls, finish) == ([("get_weather", {"city": "Oslo"})], "tool_calls")
        assert len(note["withheld"]) == 1


# --- what a client demands --------------------------------------------------------------------------------------------

NAMED = {"type": "function", "function": {"name": "get_weather"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_that_is_demanded_is_asked_for_again(choice: Any) -> None:
    with gateway(stream(said("It is sunny.")), stream(GOOD)) as g:
        assert accumulate(g, tool_choice=choice)[2] == [("get_weather", {"city": "Oslo"})]
    with gateway(stream(said("It is sunny."))) as g:
        _, _, calls, finish, note = accumulate(g, tool_choice=choice)
        assert (calls, finish) == ([], "content_filter")
        assert note["withheld"]


def test_another_call_than_the_named_one_is_not_let_through() -> None:
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
    wrong = sse(TEXT[0], record(call("{}", name="other")), record({}, "tool_calls"))
    with gateway(stream(wrong), stream(GOOD)) as g:
        assert accumulate(g, tools=[TOOL, other], tool_choice=NAMED)[2] == [("get_weather", {"city": "Oslo"})]


def test_parallel_calls_that_are_forbidden_are_not_let_through() -> None:
    both = sse(
        TEXT[0],
        record(call('{"city": "Oslo"}')),
        record(call('{"city": "Rome"}', index=1, id="b")),
        record({}, "tool_calls"),
    )
    with gateway(stream(both)) as g:
        _, _, calls, _, note = accumulate(g, parallel_tool_calls=False)
        assert calls == [("get_weather", {"city": "Oslo"})]
        assert note == {"mended": {"parallel_tool_calls": 1}}


def test_no_call_is_let_through_where_none_is_wanted() -> None:
    with gateway(stream(GOOD)) as g:
        assert accumulate(g, tool_choice="none")[2:4] == ([], "stop")


FORM = {
    "type": "json_schema",
    "json_schema": {
        "name": "a",
        "strict": True,
        "schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
    },
}


def test_an_answer_is_held_to_its_schema() -> None:
    for first, expected, retries in [
        ('{"n": 1}', '{"n": 1}', 0),
        ('```json\n{"n": "2"}\n```', '{"n": 2}', 0),
        ("four", '{"n": 4}', 1),
    ]:
        with gateway(stream(said(first, size=3)), stream(said('{"n": 4}'))) as g:
            content, _, _, finish, note = accumulate(g, tools=openai.NOT_GIVEN, response_format=FORM)
            assert (content, finish, (note or {}).get("retries", 0)) == (expected, "stop", retries)
    with gateway(stream(said("four"))) as g:
        content, _, _, finish, note = accumulate(g, tools=openai.NOT_GIVEN, response_format=FORM)
        assert (content, finish) == ("", "content_filter")
        assert note["withheld"]


# --- streamed and not -------------------------------------------------------------------------------------------------


def whole(content: str | None, calls: list[Any] | None = None, finish: str = "stop") -> Any:
    message = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return refusal("200 OK", {"id": "a", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]})


@pytest.mark.parametrize(
    ("content", "calls", "finish"),
    [
        (f"I look.\n{LEAKED}", None, "stop"),
        ("<think>a</think>b", None, "stop"),
        (None, call('{"city": "Oslo", "days": "2"}')["tool_calls"], "stop"),
        (None, call('{"town": 1}')["tool_calls"], "tool_calls"),
        (f"Write `{LEAKED}`.", None, "stop"),
    ],
)
def test_streamed_and_unstreamed_answers_are_equal(content: str | None, calls: Any, finish: str) -> None:
    streamed = sse(TEXT[0], record({"content": content} if content else {"tool_calls": calls}), record({}, finish))
    with gateway(stream(streamed)) as g:
        text, thoughts, made, end, note = accumulate(g)
    with gateway(whole(content, calls, finish)) as g:
        answer = client(g).chat.completions.create(model="m", messages=HI, tools=[TOOL])
        choice = answer.choices[0]
        found = [(c.function.name, json.loads(c.function.arguments)) for c in choice.message.tool_calls or ()]
        assert ((choice.message.content or ""), found, choice.finish_reason) == (text, made, end)
        assert (getattr(choice.message, "reasoning_content", None) or "") == thoughts
        assert getattr(answer, "callgate", None) == note


# --- observed, and live -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [said(f"I look.\n{LEAKED}", size=4), BAD, said("<think>a</think>b", "eos"), GOOD])
def test_observing_changes_nothing(data: bytes) -> None:
    with gateway(stream(data), options=Options(observe=True)) as g:
        assert post(g, stream=True, tools=[TOOL]).content == data
        wait_for(lambda: g.records)
        assert len(g.asked) == 1


def test_live_calls_go_on_as_they_are_written() -> None:
    parts = ['{"ci', 'ty": "Os', 'lo"}']
    calls = [record(call(parts[0])), *(record(call(part, id=None, name=None)) for part in parts[1:])]
    with gateway(stream(sse(TEXT[0], *calls, record({}, "tool_calls"))), options=Options(calls="live")) as g:
        seen = records_of(post(g, stream=True, tools=[TOOL]).text)
        fragments = [c["function"]["arguments"] for r in seen for c in r["choices"][0]["delta"].get("tool_calls", ())]
        assert fragments == parts
        assert accumulate(g)[2:4] == ([("get_weather", {"city": "Oslo"})], "tool_calls")


def test_the_cuts_of_a_stream_do_not_matter() -> None:
    data = said(f"<think>hm</think>I look.\n{LEAKED}\n")
    seen = set()
    for size in (1, 7, 100, 10_000):
        pieces = (
            [bytes(part) for part in itertools.batched(data, size)]
            if hasattr(itertools, "batched")
            else [data[at : at + size] for at in range(0, len(data), size)]
        )
        with gateway(stream(*pieces)) as g:
            seen.add(str(accumulate(g)))
    assert len(seen) == 1
