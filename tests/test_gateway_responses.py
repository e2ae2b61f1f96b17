"""The gateway to clients of the Responses API."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from callgate.apps.gateway.shapes.responses import Kept
from gateway_server import Options, Running, gateway
from loopback import chunk, head, stream
from test_gateway_mend import GOOD, said
from test_gateway_openai import wait_for

TOOL = {
    "type": "function",
    "name": "get_weather",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client(g: Running) -> openai.OpenAI:
    made = openai.OpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0)
    g.closing.append(made.close)
    return made


def ask(g: Running, **more: Any) -> Any:
    return client(g).responses.create(**{"model": "m", "input": "hi", **more})


def test_a_response_is_continued() -> None:
    with gateway(stream(GOOD), stream(said("Sunny.")), stream(said("Yes."))) as g:
        first = ask(g, tools=[TOOL], instructions="short")
        called = first.output[0]
        assert (called.name, json.loads(called.arguments)) == ("get_weather", {"city": "Oslo"})
        result = {"type": "function_call_output", "call_id": called.call_id, "output": "sun"}
        second = ask(g, input=[result], previous_response_id=first.id)
        assert (second.output_text, second.previous_response_id) == ("Sunny.", first.id)
        sent = g.asked[1]["messages"]
        assert [m["role"] for m in sent] == ["user", "assistant", "tool"]  # instructions are not carried over
        assert sent[1]["tool_calls"][0]["id"] == sent[2]["tool_call_id"] == called.call_id
        third = ask(g, input="sure?", previous_response_id=second.id)
        assert third.output_text == "Yes."
        assert g.asked[2]["messages"][: len(sent)] == sent  # the prefix is the same to the byte
        assert [m["role"] for m in g.asked[2]["messages"][len(sent) :]] == ["assistant", "user"]


def test_a_response_that_is_not_kept_is_not_continued() -> None:
    with gateway(stream(said("a")), options=Options(kept_responses=2)) as g:
        unkept = ask(g, store=False)
        first = ask(g)
        for _ in range(2):
            ask(g)
        for other in (unkept.id, first.id, "resp_x"):
            with pytest.raises(openai.BadRequestError, match="previous_response_id"):
                ask(g, previous_response_id=other)


def test_a_response_belongs_to_who_got_it() -> None:
    kept = Kept(5)
    kept.put("ann", "resp_1", ["x"])
    assert kept.get("ann", "resp_1") == ["x"]
    assert kept.get("bob", "resp_1") is None
    assert kept.get("", "resp_1") is None


def test_what_was_asked_is_repeated() -> None:
    with gateway(stream(said("a"))) as g:
        answer = ask(g, temperature=0.5, metadata={"x": "y"}, tools=[TOOL], max_output_tokens=5)
        assert (answer.temperature, answer.metadata, answer.max_output_tokens) == (0.5, {"x": "y"}, 5)
        assert answer.tools[0].name == "get_weather"
        assert g.asked[0]["max_tokens"] == 5


def test_what_was_mended_stands_in_the_response() -> None:
    bad = said('<tool_call>{"name": "get_weather", "arguments": {"town": 1}}</tool_call>')
    with gateway(stream(bad)) as g:
        answer = ask(g, tools=[TOOL])
        assert (answer.status, answer.incomplete_details.reason, answer.output) == ("incomplete", "content_filter", [])
        assert answer.callgate["withheld"][0]["tool"] == "get_weather"
        with client(g).responses.stream(model="m", input="hi", tools=[TOOL]) as events:  # type: ignore[list-item]
            last = list(events)[-1]
        assert last.type == "response.incomplete"
        assert last.response.callgate == answer.callgate  # type: ignore[attr-defined]


def test_a_form_is_kept_to() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
    with gateway(stream(said('```json\n{"n": "2"}\n```'))) as g:
        assert ask(g, text={"format": form}).output_text == '{"n": 2}'


def test_a_stream_that_was_cut_ends_in_an_error() -> None:
    script = [head(), chunk(said("Hello")[:200]), 0.05, "close"]
    with gateway(script) as g:
        with pytest.raises(openai.APIError):
            list(client(g).responses.create(model="m", input="hi", stream=True))
        wait_for(lambda: g.records)
        assert g.records[0].error == "EndedEarly"
