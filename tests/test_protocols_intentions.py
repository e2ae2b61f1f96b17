"""Only an announcement is reminded of: what will be done now, said of a tool that was not called."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate.protocols.intentions import announced

NAMES = ("get_weather", "search.web", "add", "search")

NOW = (
    "I will call get_weather for Paris.",
    "I'll use the get_weather tool to look that up.",
    "I’ll call `get_weather` with the city set to Paris.",
    "Sure! Let me check the weather with get_weather.",
    "Let me use get_weather to find out. One moment.",
    "I'm going to use **get_weather** now.",
    "I am going to invoke the `get_weather` function with city=Paris.",
    "Calling get_weather for Paris...",
    "Okay, calling get_weather(city=Paris)",
    "First, I need to call get_weather.",
    "To answer this I need to use the get_weather function.",
    "I'm calling get_weather right away.",
    "We will run get_weather, then add up the figures.",
    "Paris is in France. I will call get_weather for Paris.",
    "我准备调用 get_weather 工具，城市参数是北京。",
    "我将调用get_weather来查询北京的天气。",
    "好的，我来使用 `get_weather` 查一下。",
    "让我先调用 get_weather。",
    "接下来我会通过 get_weather 查询。",
    "正在调用 get_weather，请稍等。",
    "现在调用 get_weather 查询北京天气",
    "我需要调用 get_weather 获取数据。",
)
NOT = (
    "I could call get_weather for Paris.",
    "I can use get_weather to look that up.",
    "I called get_weather and it said 20 degrees.",
    "I have called get_weather already.",
    "I will not call get_weather.",
    "I won't use get_weather for this.",
    "If you tell me the city, I will call get_weather.",
    "I will call get_weather once you confirm.",
    "I'll use get_weather. Which city do you mean?",
    "I'll use get_weather. Please tell me the city.",
    "Shall I call get_weather?",
    "Would you like me to use get_weather?",
    "You can call get_weather yourself.",
    "The agent will call get_weather.",
    "I will explain how to use get_weather: it takes a city.",
    "I used get_weather to find this.",
    "Using get_weather is not possible here.",
    'He said "I will call get_weather" and left.',
    "> I will call get_weather for Paris.",
    "```\nI will call get_weather\n```",
    "get_weather tells the weather of a city.",
    "It is sunny in Paris.",
    "I will call you tomorrow.",
    "I would call get_weather, but the city is missing.",
    "Instead of guessing I'd rather have used get_weather.",
    "I will add 3 and 4 now.",
    "Let me search for it.",
    "I will use get_weather_by_day.",
    "我可以调用 get_weather 来查询。",
    "我已经调用 get_weather，结果是晴。",
    "我调用了 get_weather，北京晴。",
    "我不会调用 get_weather。",
    "如果你告诉我城市，我会调用 get_weather。",
    "要我调用 get_weather 吗？",
    "我会调用 get_weather。请告诉我城市。",
    "我将使用 get_weather，你想查哪个城市？",
    "无需调用 get_weather。",
    "你可以用 get_weather 查询天气。",
    "get_weather 用来查询天气。",
    "北京今天晴。",
    "他说“我会调用 get_weather”，然后走了。",
    "刚才我用 get_weather 查询，北京晴。",
)


@pytest.mark.parametrize("text", NOW)
def test_only_what_will_be_done_is_an_announcement(text: str) -> None:
    assert announced(text, NAMES) == "get_weather"
    assert announced(text, NAMES, called=["get_weather"]) is None
    assert announced(text, ()) is None


@pytest.mark.parametrize("text", NOT)
def test_what_could_be_was_or_waits_is_none(text: str) -> None:
    assert announced(text, NAMES) is None


@pytest.mark.parametrize(
    "text", ["I will use the add tool.", "Let me call `add`.", "我来调用 add 工具。", "I'll call add(1, 2)."]
)
def test_a_name_that_is_a_plain_word_is_one_where_it_is_called_a_tool(text: str) -> None:
    assert announced(text, NAMES) == "add"


@given(st.sampled_from(NOW), st.sampled_from([t for t in NOT if "get_weather" not in t]))
def test_other_sentences_change_nothing(now: str, other: str) -> None:
    assert announced(f"{other}\n{now}", NAMES) == "get_weather"


@given(st.text(alphabet="I will calget_wr.?!我调用将。\n`\"“”>' ", max_size=80))
def test_no_text_is_too_odd(text: str) -> None:
    assert announced(text, NAMES) in (None, *NAMES)
