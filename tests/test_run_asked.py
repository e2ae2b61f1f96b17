"""What an answer has to be where a call was asked for: retries in the run's language, reminders, demanded calls."""

from __future__ import annotations

import re

import anyio
import pytest

from callgate import Agent, Replay, tool
from callgate.events import ProtocolChanged, Retrying
from callgate.types import ModelInfo

ASKED = ("native", "json", "constrained", "marker", "hermes")
CALL = {"calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}


def agent(*replies: object, protocol: str = "json", **settings: object) -> tuple[Agent, Replay, list[str]]:
    ran: list[str] = []

    @tool(effect="read")
    def get_weather(city: str) -> str:
        """Weather of a city."""
        ran.append(city)
        return "sunny"

    @tool(effect="read")
    def get_news(topic: str, count: int = 3) -> str:
        """News about a topic."""
        ran.append(topic)
        return "no news"

    info = ModelInfo("replay", capabilities=frozenset({"tools", "schema"}))
    model = Replay(list(replies), info=info)
    return Agent(model, tools=[get_weather, get_news], protocol=protocol, **settings), model, ran


def events_of(made: Agent, prompt: str) -> list[object]:
    seen: list[object] = []

    async def watch() -> None:
        async with made.stream(prompt) as stream:
            seen.extend([event async for event in stream])

    anyio.run(watch)
    return seen


# --- a model that only talks about a call -------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ASKED)
@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        ("Weather in Paris?", "I will call get_weather for Paris."),
        ("巴黎天气怎么样？", "我准备调用 get_weather 工具，城市参数是 Paris。"),
    ],
)
def test_a_model_that_only_talks_about_a_call_is_reminded_once(protocol: str, prompt: str, text: str) -> None:
    made, model, ran = agent(text, CALL, text, protocol=protocol)
    result = made.run_sync(prompt)
    assert (ran, result.reason, len(model.requests)) == (["Paris"], "answered", 3)
    assert result.text == text  # it has called the tool by now, so the same words are an answer
    assert any("get_weather" in problem and "reminded" in problem for problem in result.problems)
    reminder = model.requests[1].messages[-1].text
    assert "get_weather" in reminder
    assert bool(re.search("[\u4e00-\u9fff]", reminder)) == (prompt[0] == "巴")


def test_the_reminder_comes_once_a_run_and_is_an_event() -> None:
    made, model, ran = agent(*["I will call get_weather for Paris."] * 3)
    seen = events_of(made, "Weather in Paris?")
    assert [e.attempt for e in seen if isinstance(e, Retrying)] == [1]
    assert (len(model.requests), ran) == (2, [])


@pytest.mark.parametrize("text", ["I could call get_weather for Paris.", "I would use get_weather. Which city?"])
def test_what_a_model_could_do_is_an_answer(text: str) -> None:
    made, model, _ = agent(text)
    assert made.run_sync("Weather?").text == text
    assert len(model.requests) == 1


# --- retries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["json", "constrained", "marker", "hermes"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "get_news", "arguments": {"topic": "巴黎", "count": "many"}},
        {"name": "get_news", "arguments": {}},
        {"name": "get_news", "arguments": {"topic": 5, "count": [], "page": 1}},
        {"name": "get_newz", "arguments": {"topic": "巴黎"}},
    ],
)
def test_a_chinese_run_is_corrected_in_chinese(protocol: str, wrong: dict[str, object]) -> None:
    made, model, ran = agent(
        {"calls": [wrong]}, {"calls": [{"name": "get_news", "arguments": {"topic": "巴黎"}}]}, "好", protocol=protocol
    )
    made.run_sync("有什么关于巴黎的新闻？")
    assert ran == ["巴黎"]
    told = model.requests[1].messages[-1].text
    # names of tools, fields and types of JSON are the only English left
    known = r"get_newz?|get_weather|topic|count|page|many|JSON|Result of"
    assert re.findall(r"[A-Za-z]{3,}", re.sub(known, "", told)) == []


def test_attempts_are_numbered_on_across_the_steps() -> None:
    made, _, _ = agent(*['{"tool": "nope", "args": {}}'] * 7, '{"answer": "x"}', protocol="constrained")
    seen = events_of(made, "How is the weather?")
    assert [e.attempt for e in seen if isinstance(e, Retrying)] == [1, 2, 3, 4, 5, 6, 7]
    assert [e.after for e in seen if isinstance(e, ProtocolChanged)] == ["json", "marker"]


def test_a_usable_answer_ends_the_count() -> None:
    bad = '{"tool": "nope", "args": {}}'
    made, _, _ = agent(bad, CALL, bad, "fine")
    assert [e.attempt for e in events_of(made, "Weather?") if isinstance(e, Retrying)] == [1, 1]


@pytest.mark.parametrize(
    "text",
    [
        "[TOOL: get_news(topic=(1+2)*3)]",
        "[TOOL: get_news(topic='a, count=)]",
        '<<<TOOL>>>{"tool": "get_news", "args": {"topic": "a" "b"]}}<<<END>>>',
        '{"tool": "get_news", "args": {"topic": "a" "b"]}}',
    ],
)
@pytest.mark.parametrize("protocol", ["json", "marker"])
def test_only_what_the_model_wrote_is_quoted(text: str, protocol: str) -> None:
    made, model, _ = agent(text, "never mind", protocol=protocol)
    made.run_sync("News?")
    if len(model.requests) == 1:
        return
    told = model.requests[1].messages[-1].text
    if "What arrived: " in told:
        assert told.partition("What arrived: ")[2].strip() in text


def test_a_cut_in_the_middle_of_reasoning_is_told_and_costs_one_request() -> None:
    cut = {"reasoning": "Let me think about", "finish": "length"}
    made, model, _ = agent(*[cut] * 5)
    result = made.run_sync("Weather?")
    assert (result.reason, len(model.requests)) == ("token_limit", 1)
    assert "still thinking" in (result.error or "")


# --- demanded calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [*ASKED, "routed"])
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_demanded_call_never_ends_as_an_answer(protocol: str, choice: str) -> None:
    made, _, ran = agent(*["It is sunny."] * 40, protocol=protocol, tool_choice=choice)
    result = made.run_sync("How are you?")
    assert ran == []
    assert result.reason == "output_invalid"
    assert "tool_choice" in (result.error or "")
    assert result.text == ""


@pytest.mark.parametrize("protocol", ASKED)
@pytest.mark.parametrize("choice", ["required", "get_weather"])
def test_a_demanded_call_is_asked_for_again_and_then_answered(protocol: str, choice: str) -> None:
    made, model, ran = agent("It is sunny.", CALL, "Sunny.", protocol=protocol, tool_choice=choice)
    result = made.run_sync("How are you?")
    assert (ran, result.reason, result.text) == (["Paris"], "answered", "Sunny.")
    assert "get_weather" in model.requests[1].messages[-1].text


def test_a_call_of_another_tool_than_the_demanded_one_does_not_run() -> None:
    other = {"calls": [{"name": "get_news", "arguments": {"topic": "x"}}]}
    made, _, ran = agent(other, CALL, "ok", tool_choice="get_weather")
    assert made.run_sync("Hello").reason == "answered"
    assert ran == ["Paris"]


@pytest.mark.parametrize("protocol", ["json", "constrained", "marker", "hermes"])
def test_the_prompt_says_what_is_demanded(protocol: str) -> None:
    made, model, _ = agent(CALL, "ok", protocol=protocol, tool_choice="get_weather")
    made.run_sync("Hello")
    assert "must call get_weather" in model.requests[0].messages[0].text
    assert "must call get_weather" not in model.requests[1].messages[0].text
