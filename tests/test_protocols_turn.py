"""One turn of each protocol, the ladder, and what tells that a protocol does not work here."""

from __future__ import annotations

import json

import pytest

from callgate import Agent, Replay, protocols, tool
from callgate.errors import ConfigError, Overloaded
from callgate.events import CallFinished, ProtocolChanged, Routed
from callgate.protocols import Chosen
from callgate.reply import TurnReader
from callgate.types import Finish, Message, ModelInfo, Reply, TextDelta, ToolCall, ToolSpec

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolSpec("get_weather", "Current weather in a city.", CITY, effect="read")
PLACE = {"type": "object", "properties": {"place": {"type": "string", "description": "A city."}}, "required": ["place"]}
CLOCK = ToolSpec("time_in", "The time of day in a city or zone.", PLACE, effect="read")
BIG = ModelInfo("big-70b", "test", frozenset({"tools", "schema", "logprobs"}))
SMALL = ModelInfo("SmolLM2-135M", "local", frozenset({"schema", "logprobs"}))
PLAIN = ModelInfo("plain", "test")


def drive(turn, *texts: str):
    """Carries a turn out with these answers: the steps, and the reply."""
    steps, answers, value = [], list(texts), None
    try:
        while True:
            step = turn.send(value)
            steps.append(step)
            if isinstance(step, Chosen):
                value = None
            else:
                reader = TurnReader(step.machine() if step.machine else None, rescue=step.rescue)
                text = answers.pop(0)
                reader.feed([TextDelta(text[i : i + 3]) for i in range(0, len(text), 3)])
                reader.feed([Finish("stop")])
                value = reader.reply
    except StopIteration as stop:
        return steps, stop.value


def turn(name, text="Weather in Oslo?", tools=(WEATHER, CLOCK), info=BIG, **more):
    history = more.pop("history", (Message("user", text),))
    return protocols.turn(name, history=history, tools=tools, info=info, **more)


# --- choosing and the ladder --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("info", "tools", "expected"),
    [
        (BIG, [WEATHER], "native"),
        (BIG, [], "native"),
        (SMALL, [WEATHER], "routed"),
        (ModelInfo("qwen3:0.6b", "ollama", frozenset({"tools", "schema"})), [WEATHER], "routed"),
        (ModelInfo("m", "x", frozenset({"schema"})), [WEATHER], "constrained"),
        (ModelInfo("m", "x", frozenset({"schema"})), [WEATHER] * 11, "routed"),
        (ModelInfo("m", "x", dialect="hermes"), [WEATHER], "hermes"),
        (PLAIN, [WEATHER], "json"),
        (ModelInfo("m", "x", frozenset({"tools"}), extra={"protocol": "marker"}), [WEATHER], "marker"),
    ],
)
def test_the_protocol_goes_by_what_the_model_and_its_server_can_do(info, tools, expected):
    assert protocols.choose(info, tools) == expected


def test_what_is_wanted_is_taken_if_it_exists():
    assert protocols.choose(PLAIN, [], "native") == "native"
    assert protocols.choose(PLAIN, [], "hermes") == "hermes"
    with pytest.raises(ConfigError, match="native, constrained"):
        protocols.choose(PLAIN, [], "nativ")


def steps_down(name, info, why=""):
    out = []
    while (name := protocols.ladder(name, info, why=why)) is not None:
        out.append(name)
    return out


def test_the_ladder_ends_with_a_plain_answer():
    assert steps_down("native", BIG) == ["constrained", "json", "marker", "answer"]
    assert steps_down("routed", SMALL) == ["constrained", "json", "marker", "answer"]
    assert steps_down("native", PLAIN) == ["json", "marker", "answer"]
    assert steps_down("hermes", PLAIN) == ["json", "marker", "answer"]
    assert steps_down("routed", BIG, why="ignored") == ["json", "marker", "answer"]


def test_symptoms():
    assert protocols.symptom("constrained", Reply("Sure!", problems=["structured output ignored: …"])) == "ignored"
    leaked = Reply(problems=["a call came as text in the content; it was read with the model's dialect"])
    assert protocols.symptom("native", leaked) == "leaked"
    assert protocols.symptom("json", leaked) is None
    assert protocols.symptom("native", Reply("Hello")) is None


# --- single requests ----------------------------------------------------------------------------------------------


KEYS = [("name", "arguments"), ("function", "parameters"), ("tool", "input"), ("tool_name", "args")]
"""What models call the parts of a call."""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("json", '{"tool": "get_weather", "args": {"city": "Oslo"}}'),
        ("json", '```json\n{"tool": "get_weather", "args": {"city": "Oslo"}}\n```'),
        ("marker", '<<<TOOL>>>{"tool": "get_weather", "args": {"city": "Oslo"}}<<<END>>>'),
        ("marker", '[TOOL: get_weather(city="Oslo")]'),
        ("marker", "[TOOL: get_weather(city=Oslo)]"),
        ("constrained", '{"tool": "get_weather", "args": {"city": "Oslo"}}'),
        *(("constrained", f'{{"{tool}": "get_weather", "{args}": {{"city": "Oslo"}}}}') for tool, args in KEYS),
        ("hermes", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'),
        ("native", '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'),
    ],
)
def test_a_call_is_read_in_each_protocols_own_form(name, text):
    _, reply = drive(turn(name), text)
    assert [(c.name, c.arguments) for c in reply.calls] == [("get_weather", {"city": "Oslo"})]
    assert reply.content == ""


def test_an_answer_is_text_in_each_protocol():
    for name in ("json", "marker", "hermes", "native", "answer"):
        assert drive(turn(name), "It is cold.")[1].content == "It is cold."
    assert drive(turn("constrained"), '{"answer": "It is cold."}')[1].content == "It is cold."


def test_structured_output_that_was_ignored_is_read_all_the_same_and_named():
    _, reply = drive(turn("constrained"), 'Sure!\n\n```json\n{"tool": "get_weather", "args": {"city": "Oslo"}}\n```')
    assert [c.arguments for c in reply.calls] == [{"city": "Oslo"}]
    assert protocols.symptom("constrained", reply) == "ignored"


def test_tool_choice_reaches_the_request():
    assert next(turn("native", tool_choice="required")).request.tool_choice == "required"
    schema = json.dumps(next(turn("constrained", tool_choice="time_in")).request.schema)
    assert "time_in" in schema
    assert "get_weather" not in schema
    assert '"answer"' not in schema
    assert next(turn("json", tool_choice="none")).request.messages[0].role == "user"


def test_a_wanted_output_reaches_the_server_or_the_prompt():
    form = {"type": "object", "properties": {"degrees": {"type": "number"}}, "required": ["degrees"]}
    schema = next(turn("constrained", output=form)).request.schema
    assert any("degrees" in json.dumps(b["properties"].get("answer", {})) for b in schema["anyOf"])
    assert next(protocols.final(form, history=(Message("user", "?"),), info=BIG)).request.schema["required"] == [
        "degrees"
    ]
    asked = next(turn("json", output=form, info=PLAIN)).request
    assert asked.schema is None
    assert '"degrees"' in asked.messages[0].text
    assert drive(turn("constrained", output=form), '{"answer": {"degrees": -3}}')[1].content == '{"degrees": -3}'


def test_reasons_are_precise_and_in_the_users_language():
    assert "arguments.city: missing" in protocols.reason(
        "invalid_arguments", name="f", detail="arguments.city: missing."
    )
    assert protocols.reason("unknown_tool", name="f", detail="x", language="zh").startswith("没有名为 f 的工具")
    assert protocols.language_of("What is 上海 like in spring?") == "en"
    assert protocols.language_of("上海的天气怎么样？") == "zh"


# --- routed -------------------------------------------------------------------------------------------------------


def test_a_small_model_is_asked_for_the_arguments_of_the_tool_that_the_words_choose():
    steps, reply = drive(turn("routed", "What time is it in Oslo?", info=SMALL), '{"place": "Oslo"}')
    assert isinstance(steps[0], Chosen)
    assert steps[0].tools == ("time_in",)
    assert steps[0].chooser == "lexical"
    assert steps[1].request.schema["properties"]["place"]["enum"][0] == "Oslo"
    assert [(c.name, c.arguments) for c in reply.calls] == [("time_in", {"place": "Oslo"})]


def test_plain_talk_calls_nothing():
    for text in ("Hello!", "Tell me a joke.", "Thank you very much", "Who are you?"):
        steps, reply = drive(turn("routed", text, info=SMALL), "Hi.")
        assert steps[0].tools == ()
        assert reply.content == "Hi."


def test_two_tools_in_a_row():
    text = "What is the weather in Oslo and what time is it in Tokyo?"
    history = [Message("user", text)]
    names = []
    for answer in ('{"city": "Oslo"}', '{"place": "Tokyo"}'):
        _, reply = drive(turn("routed", info=SMALL, history=tuple(history)), answer)
        names.append((reply.calls[0].name, reply.calls[0].arguments))
        call = ToolCall(f"c{len(names)}", reply.calls[0].name, reply.calls[0].arguments)
        history += [Message("assistant", calls=(call,)), Message("tool", "12:00", call_id=call.id, name=call.name)]
    assert names == [("get_weather", {"city": "Oslo"}), ("time_in", {"place": "Tokyo"})]
    _, reply = drive(turn("routed", info=SMALL, history=tuple(history)), "It is 99 degrees on the moon.")
    assert not reply.calls
    assert reply.content == "Oslo: 12:00\nTokyo: 12:00"  # the model's words had a figure of their own


@pytest.mark.parametrize(
    ("said", "stands"),
    [
        ("The time in Oslo is 12:30.", True),
        ("It is 12:30 in Oslo now.", True),
        ("The time in Oslo is 12:30 PM, a sunny afternoon.", False),
        ("The time in Oslo is 14:30.", False),
        ("I do not know.", False),
        ("", False),
    ],
)
def test_a_small_models_answer_stands_only_if_it_keeps_to_the_results(said, stands):
    call = ToolCall("c1", "time_in", {"place": "Oslo"})
    history = (
        Message("user", "What time is it in Oslo?"),
        Message("assistant", calls=(call,)),
        Message("tool", '{"time": "12:30", "date": "Monday"}', call_id="c1", name="time_in"),
    )
    _, reply = drive(turn("routed", info=SMALL, history=history), said)
    assert reply.content == (said if stands else "Oslo: time 12:30, date Monday")


def test_a_follow_up_goes_to_the_tool_of_before():
    history = (
        Message("user", "What time is it in Oslo?"),
        Message("assistant", calls=(ToolCall("c1", "time_in", {"place": "Oslo"}),)),
        Message("tool", "12:30", call_id="c1", name="time_in"),
        Message("assistant", "It is 12:30."),
        Message("user", "And in Lima?"),
    )
    _, reply = drive(turn("routed", info=SMALL, history=history), '{"place": "Lima"}')
    assert [(c.name, c.arguments) for c in reply.calls] == [("time_in", {"place": "Lima"})]


def test_a_doubtful_write_is_asked_about_first():
    pay = ToolSpec("transfer_money", "Transfers money to an account.", CITY, effect="write")
    steps, reply = drive(turn("routed", "money", tools=(pay,), info=SMALL), "")
    assert steps[0].confidence < 0.6
    assert reply.content == "Shall I use transfer_money for this?"


def test_values_that_are_not_in_the_request_are_asked_for_where_a_tool_wants_that():
    from dataclasses import replace

    careful = replace(CLOCK, grounded=True)
    _, reply = drive(turn("routed", "What time is it?", tools=(careful,), info=SMALL), '{"place": "Paris"}', "")
    assert not reply.calls
    assert reply.content == "What should I use for place?"


def test_other_models_choose_a_name_under_a_schema_then_answer_with_that_tool_alone():
    steps, reply = drive(turn("routed"), '"time_in"', '{"tool": "time_in", "args": {"place": "Oslo"}}')
    choice, chosen, query = steps
    assert choice.request.schema == {"enum": [*json.loads(json.dumps(choice.request.schema))["enum"]]}
    assert set(choice.request.schema["enum"]) == {"get_weather", "time_in", "none"}
    assert not choice.visible
    assert chosen.tools == ("time_in",)
    assert "get_weather" not in json.dumps(query.request.schema)
    assert reply.calls[0].arguments == {"place": "Oslo"}


def test_none_leads_to_an_answer():
    steps, reply = drive(turn("routed"), '"none"', "Hello.")
    assert steps[1].tools == ()
    assert reply.content == "Hello."


def test_many_tools_are_chosen_by_their_group_first():
    from dataclasses import replace

    tools = tuple(replace(WEATHER, name=f"w{i}", group="weather") for i in range(8))
    tools += tuple(replace(CLOCK, name=f"t{i}", group="time") for i in range(8))
    steps, _ = drive(turn("routed", tools=tools), '"time"', '"t3"', '{"answer": "ok"}')
    assert [s.chooser for s in steps if isinstance(s, Chosen)] == ["groups", "names"]
    assert set(steps[2].request.schema["enum"]) == {*(f"t{i}" for i in range(8)), "none"}


def test_chinese_requests_choose_among_chinese_tools():
    city = {"type": "object", "properties": {"city": {"type": "string", "description": "城市"}}, "required": ["city"]}
    code = {"type": "object", "properties": {"code": {"type": "string"}}}
    weather = ToolSpec("get_weather", "查询某个城市的天气", city, effect="read")
    stock = ToolSpec("get_stock", "查询股票价格", code, effect="read")
    steps, _ = drive(turn("routed", "北京今天的天气怎么样？", tools=(stock, weather), info=SMALL), '{"city": "北京"}')
    assert steps[0].tools == ("get_weather",)
    assert "根据请求填写" in steps[1].request.messages[0].text
    assert "北京" in steps[1].request.schema["properties"]["city"]["enum"]


# --- the ladder on scripted servers -------------------------------------------------------------------------------


@tool(effect="read")
def get_weather(city: str) -> str:
    "Current weather in a city."
    return f"cold in {city}"


async def run(replies, info, **more):
    agent = Agent(Replay(replies, info=info), tools=[get_weather], **more)
    events = []
    async with agent.stream("Weather in Oslo?") as stream:
        events = [event async for event in stream]
    return events, agent


@pytest.mark.anyio
async def test_a_server_that_fails_on_tools_is_asked_without_them():
    refused = Overloaded("failed to parse tool call", status=500)
    events, _ = await run([refused, '{"answer": "Cold."}'], BIG, retries=0)
    changed = [(e.before, e.after) for e in events if isinstance(e, ProtocolChanged)]
    assert changed[:1] == [("native", "constrained")]


@pytest.mark.anyio
async def test_a_server_that_lets_calls_through_as_text_is_read_all_the_same_and_then_asked_otherwise():
    leaked = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    events, agent = await run([leaked, '{"answer": "Cold."}'], BIG)
    assert [e.result.content for e in events if isinstance(e, CallFinished)] == ["cold in Oslo"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Cold."
    assert [(e.before, e.after) for e in events if isinstance(e, ProtocolChanged)] == [("native", "constrained")]
    assert [(bool(r.tools), r.schema is not None) for r in agent.provider.requests] == [(True, False), (False, True)]


@pytest.mark.anyio
async def test_a_server_that_ignores_the_schema_steps_down_to_json():
    free = 'Sure!\n\n{"tool": "get_weather", "args": {"city": "Oslo"}}'  # a fence beside text would be a mention (A7)
    events, agent = await run([free, "Cold."], ModelInfo("m", "x", frozenset({"schema"})))
    assert [r.schema is not None for r in agent.provider.requests] == [True, False]
    assert [(e.before, e.after) for e in events if isinstance(e, ProtocolChanged)] == [("constrained", "json")]


@pytest.mark.anyio
async def test_how_a_tool_was_chosen_is_an_event():
    events, _ = await run(['{"city": "Oslo"}', "It is cold in Oslo."], SMALL)
    routed = [e for e in events if isinstance(e, Routed)]
    assert routed[0].tools == ("get_weather",)
    assert 0 < routed[0].confidence <= 1


def test_a_tool_without_arguments_is_called_without_asking_the_model():
    version = ToolSpec("get_version", "Version of the program.", effect="read")
    steps, reply = drive(turn("routed", "What is the version?", tools=(version,), info=SMALL))
    assert [type(step).__name__ for step in steps] == ["Chosen"]
    assert [(call.name, call.arguments) for call in reply.calls] == [("get_version", {})]
    assert reply.finish == "tool_calls"


def test_a_refused_call_is_asked_for_again_with_its_reason():
    """It was not made: neither the answer nor the next need is made from it."""
    asked = (
        Message("user", "How is the weather in Oslo?"),
        Message("assistant", calls=(ToolCall("c1", "get_weather", {"city": "Osl"}, 0),)),
        Message("tool", "city: unknown", call_id="c1", name="get_weather"),
    )
    how = {"history": asked, "tools": (WEATHER, CLOCK), "info": SMALL}
    steps, reply = drive(protocols.turn("routed", **how, refused=["c1"]), '{"city": "Oslo"}')
    assert [m.text for m in steps[-1].request.messages][-2:] == ['{"city": "Osl"}', "city: unknown"]
    assert reply.calls[0].arguments == {"city": "Oslo"}
    steps, _ = drive(protocols.turn("routed", **how), "Oslo is unknown.")
    assert "city: unknown" in steps[-1].request.messages[-1].text


def test_one_tool_is_called_once_for_each_name():
    weather = ToolSpec(
        "get_weather",
        "查询城市的天气",
        {"type": "object", "properties": {"city": {"type": "string", "description": "城市"}}, "required": ["city"]},
        effect="read",
    )
    history = [Message("user", "北京和上海今天天气怎么样")]
    for n, city in enumerate(("北京", "上海")):
        made = protocols.turn("routed", history=history, tools=(weather,), info=SMALL)
        _, reply = drive(made, f'{{"city": "{city}"}}')
        assert reply.calls[0].arguments == {"city": city}
        history += [
            Message("assistant", calls=(ToolCall(f"c{n}", "get_weather", {"city": city}, 0),)),
            Message("tool", "晴", call_id=f"c{n}", name="get_weather"),
        ]
    steps, _ = drive(protocols.turn("routed", history=history, tools=(weather,), info=SMALL), "晴")
    assert not [s for s in steps if isinstance(s, Chosen)]
