"""The strict servers do refuse: one wrong request for each of the rules of Anthropic's and OpenAI's newer APIs."""

from __future__ import annotations

from typing import Any

import pytest

from strict_server import anthropic, openai_responses

USER = {"role": "user", "content": "x"}
USE = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}


def messages(*blocks: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"model": "m", "max_tokens": 9, "messages": [USER, {"role": "assistant", "content": [*blocks]}], **more}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"model": "m", "messages": [USER]}, "max_tokens"),
        (messages(seed=1), "Extra inputs"),
        (messages(), "non-empty content"),
        (messages(tools=[{"name": "a.b", "input_schema": {"type": "object"}}]), "pattern"),
        (messages(tools=[{"name": "a", "input_schema": {}}]), "type: Field required"),
        (messages(tools=[{"name": "a", "input_schema": {"type": "object", "anyOf": []}}]), "top level"),
        (messages({"type": "text", "text": " "}), "non-whitespace"),
        (messages({"type": "thinking", "thinking": "hm"}), "signature"),
        (messages({**USE, "id": "a b"}), "tool_use.id"),
        (messages({**USE, "name": "a.b"}), "tool_use.name"),
        (messages(USE), "without `tool_result`"),
        ({"model": "m", "max_tokens": 9, "messages": [{"role": "assistant", "content": "x"}]}, "first message"),
        ({"model": "m", "max_tokens": 9, "messages": [USER, {"role": "assistant", "content": "x "}]}, "whitespace"),
    ],
)
def test_a_request_that_anthropic_refuses_is_refused(body: dict[str, Any], words: str) -> None:
    assert words in (anthropic(body) or "")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": [USER], "stop": "x"}, "Unknown parameter"),
        ({"input": [USER], "tools": [{"type": "function", "name": "a.b", "parameters": {}}]}, "pattern"),
        ({"input": [USER], "tools": [{"type": "function", "name": "a", "parameters": {}}]}, "Invalid schema"),
        ({"input": [USER, CALL]}, "No tool output found"),
        ({"input": [USER, {"type": "function_call_output", "call_id": "c", "output": ""}]}, "No tool call found"),
        ({"input": [{**CALL, "call_id": "c" * 65}]}, "too long"),
        ({"input": [{**CALL, "id": "c"}]}, "begins with 'fc'"),
        ({"input": [USER, {"type": "reasoning", "id": "rs_1"}]}, "required following item"),
        ({"input": [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}]}, "Invalid value"),
    ],
)
def test_a_request_that_the_responses_api_refuses_is_refused(body: dict[str, Any], words: str) -> None:
    assert words in (openai_responses({"model": "m", **body}) or "")


def test_a_request_as_it_should_be_is_taken() -> None:
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
    right = messages(USE)
    right["messages"].append(result)
    assert anthropic(right) is None
    output = {"type": "function_call_output", "call_id": "c", "output": "x"}
    assert openai_responses({"model": "m", "input": [USER, CALL, output]}) is None
