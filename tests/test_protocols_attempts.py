"""Asked for is not met by chance: whatever way a call is written in, it runs, or the model is told why not."""

from __future__ import annotations

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import Agent, Replay, protocols, tool
from callgate.events import Retrying
from callgate.types import BadCall, ToolCall, ToolSpec

ASKED = ("json", "constrained", "marker", "hermes", "qwen_xml")
FORMS = {
    "prose before it": '好的，这是调用：{"tool": "get_weather", "args": {"city": "北京"}}',
    "prose on the line before": 'Sure.\n{"tool": "get_weather", "args": {"city": "北京"}}',
    "full-width quotes": "{“tool”: “get_weather”, “args”: {“city”: “北京”}}",
    "full-width colons": '{"tool"： "get_weather", "args"： {"city"： "北京"}}',
    "nested": '{"tool": {"name": "get_weather", "args": {"city": "北京"}}}',
    "nested function": '{"type": "function", "function": {"name": "get_weather", "arguments": {"city": "北京"}}}',
    "arguments in a string": '我来查：{"name": "get_weather", "arguments": "{\\"city\\": \\"北京\\"}"}',
    "single quotes": "{'tool': 'get_weather', 'args': {'city': '北京'}}",
    "a comment": '{"tool": "get_weather", // weather\n "args": {"city": "北京"}}',
    "bare keys": '{tool: "get_weather", args: {city: "北京"}}',
    "trailing comma": '{"tool": "get_weather", "args": {"city": "北京",},}',
    "other keys": '我来查。{"name": "get_weather", "parameters": {"city": "北京"}}',
    "function key": '{"function": "get_weather", "arguments": {"city": "北京"}}',
    "arguments beside the name": '{"tool": "get_weather", "city": "北京"}',
    "fenced single quotes": "```json\n{'tool': 'get_weather', 'args': {'city': '北京'}}\n```",
    "as in a program": 'get_weather(city="北京")',
    "in a program, with prose": '我准备调用 get_weather(city="北京")。',
    "a mark around a program's call": '<<<TOOL>>>get_weather({"city": "北京"})<<<END>>>',
}


def agent(*replies: str, protocol: str = "json", effect: str = "read") -> tuple[Agent, Replay, list[str]]:
    ran: list[str] = []

    @tool(effect=effect)
    def get_weather(city: str) -> str:
        """Weather of a city."""
        ran.append(city)
        return "sunny"

    model = Replay([*replies, *['{"answer": "晴"}' if protocol == "constrained" else "晴"] * 3])
    return Agent(model, tools=[get_weather], protocol=protocol), model, ran


TOLD = {("constrained", form) for form in ("full-width colons", "a comment", "arguments beside the name")}
"""Read as an object while it arrives, up to where it is none: the model is told."""


@pytest.mark.parametrize("protocol", ASKED)
@pytest.mark.parametrize("form", FORMS)
def test_every_written_form_of_a_call_runs(form: str, protocol: str) -> None:
    clear = '{"tool": "get_weather", "args": {"city": "北京"}}'
    if (protocol, form) in TOLD:
        made, model, ran = agent(FORMS[form], clear, protocol=protocol)
        assert made.run_sync("北京天气怎么样？").text == "晴"
        assert (ran, len(model.requests)) == (["北京"], 3)
        return
    made, model, ran = agent(FORMS[form], protocol=protocol)
    result = made.run_sync("北京天气怎么样？")
    assert ran == ["北京"]
    assert (result.reason, result.text, len(model.requests)) == ("answered", "晴", 2)


@pytest.mark.parametrize("form", FORMS)
def test_a_write_written_so_is_asked_for_once_more(form: str) -> None:
    """It was not clearly a call, or its JSON was broken: reads may run on it, writes may not."""
    made, _, ran = agent(FORMS[form], '{"tool": "get_weather", "args": {"city": "北京"}}', effect="write")
    made.run_sync("北京天气怎么样？")
    assert ran == ["北京"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"tool": "get_news", "args": {"topic": "x"}}', "get_news"),
        ('I will use {"tool": "get_weather", "args": {"city": "北京" "x"]}}.', "get_weather"),
        ("<<<TOOL>>>get_weather 北京<<<END>>>", ""),
        ('{"tool": "get_weather", "args": {"city": "北', ""),
    ],
)
def test_what_cannot_be_read_goes_back_with_the_reason(text: str, why: str) -> None:
    made, model, ran = agent(text, '{"tool": "get_weather", "args": {"city": "上海"}}')
    result = made.run_sync("How is the weather?")
    assert ran == ["上海"]
    assert result.text == "晴"
    assert why in model.requests[1].messages[-1].text


def test_after_two_reasons_the_ladder_steps_down() -> None:
    made, model, _ = agent(*['{"tool": "nope", "args": {}}'] * 3)
    events: list[object] = []

    async def watch() -> None:
        async with made.stream("How is the weather?") as stream:
            events.extend([event async for event in stream])

    anyio.run(watch)
    assert sum(isinstance(e, Retrying) for e in events) >= 2
    assert len(model.requests) == 4


MENTIONS = (
    'Write `{"tool": "get_weather", "args": {"city": "北京"}}` to call it.',
    '> {"tool": "get_weather", "args": {"city": "北京"}}\nThat is what the page says.',
    'He wrote “{"tool": "get_weather", "args": {"city": "北京"}}” to me.',
    'An example:\n```python\nget_weather(city="北京")\n```\nShall I?',
    "The function get_weather() tells the weather, get_weather (the tool) too.",
    '{"name": "Oslo", "people": 700000}',
    '结果是 {"temperature": 3, "tool": "thermometer"}。',
    "The weather is fine.",
)


@pytest.mark.parametrize("protocol", ["json", "constrained", "marker", "hermes"])
@pytest.mark.parametrize("text", MENTIONS)
def test_a_mention_and_data_are_an_answer(text: str, protocol: str) -> None:
    spec = ToolSpec("get_weather", "", {"type": "object", "properties": {"city": {"type": "string"}}})
    assert protocols.attempt(protocol, text, (spec,)) is None


@given(st.text(alphabet="{}[]()\"'`:,<>TOL =gx\n\\“”｛｝", max_size=60), st.sampled_from(ASKED))
def test_no_text_is_too_odd(text: str, protocol: str) -> None:
    """Whatever was written: a call of a known shape, a broken call, or nothing; and no error."""
    spec = ToolSpec("g", "", {"type": "object", "properties": {"x": {"type": "string"}}})
    found = protocols.attempt(protocol, f"{text} g(x='1') {{'tool': 'g'}} {text}", (spec,))
    assert found is None or isinstance(found.call, (ToolCall, BadCall))
    if found is not None and isinstance(found.call, ToolCall):
        assert "loose" in found.call.flags


def test_where_no_form_was_asked_for_nothing_is_one() -> None:
    spec = ToolSpec("get_weather")
    assert protocols.attempt("native", FORMS["nested"], (spec,)) is None
    assert protocols.attempt("answer", FORMS["nested"], (spec,)) is None
    assert protocols.attempt("json", FORMS["nested"], ()) is None
