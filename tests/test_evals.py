"""Evaluations: matching, statistics, resuming, reports."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from callgate import Agent, Replay, evals, tool
from callgate.apps.cli import cli
from callgate.errors import BadRequest, ConfigError, Unreachable
from callgate.evals import Case, Outcome, Plan
from callgate.evals._match import wrong
from callgate.evals._statistics import mcnemar, median, wilson
from callgate.evals.bfcl import json_schema, sample
from callgate.types import Message, ModelInfo, ToolCall, ToolSpec

FUNCTION = {
    "name": "area",
    "parameters": {
        "type": "dict",
        "properties": {
            "base": {"type": "integer"},
            "height": {"type": "float"},
            "unit": {"type": "string"},
            "sides": {"type": "array", "items": {"type": "string"}},
            "options": {"type": "dict"},
            "rows": {"type": "array", "items": {"type": "dict"}},
            "exact": {"type": "boolean"},
        },
        "required": ["base", "height"],
    },
}
GOLD = {
    "area": {
        "base": [10],
        "height": [5.0],
        "unit": ["square meters", ""],
        "sides": [["A", "b"], ""],
        "options": [{"round": [2, ""], "mode": ["Up"]}, ""],
        "rows": [[{"x": ["one"]}], ""],
        "exact": [True, ""],
    }
}


@pytest.mark.parametrize(
    ("arguments", "right"),
    [
        ({"base": 10, "height": 5.0}, True),
        ({"base": 10, "height": 5}, True),
        ({"base": 10.0, "height": 5}, False),
        ({"base": "10", "height": 5}, False),
        ({"base": 10}, False),
        ({"base": 11, "height": 5}, False),
        ({"base": 10, "height": 5, "more": 1}, False),
        ({"base": 10, "height": 5, "unit": "Square-Meters"}, True),
        ({"base": 10, "height": 5, "unit": "feet"}, False),
        ({"base": 10, "height": 5, "sides": ["a", "B."]}, True),
        ({"base": 10, "height": 5, "sides": ["b", "a"]}, False),
        ({"base": 10, "height": 5, "sides": [1]}, False),
        ({"base": 10, "height": 5, "options": {"mode": "up"}}, True),
        ({"base": 10, "height": 5, "options": {"round": 2}}, False),
        ({"base": 10, "height": 5, "options": {"mode": "up", "x": 1}}, False),
        ({"base": 10, "height": 5, "rows": [{"x": "One"}]}, True),
        ({"base": 10, "height": 5, "rows": [{"x": "One"}, {"x": "One"}]}, False),
        ({"base": 10, "height": 5, "exact": 1}, False),
        ({"base": True, "height": 5}, False),
    ],
)
def test_the_leaderboards_rules(arguments, right):
    reason = wrong([ToolCall("", "area", arguments)], [GOLD], [FUNCTION])
    assert (reason is None) == right, reason


def test_several_calls_count_in_any_order_and_each_once():
    other = {"name": "ping", "parameters": {"type": "dict", "properties": {}, "required": []}}
    calls = [ToolCall("", "ping", {}), ToolCall("", "area", {"base": 10, "height": 5})]
    assert wrong(calls, [GOLD, {"ping": {}}], [FUNCTION, other]) is None
    assert wrong([calls[0]] * 2, [GOLD, {"ping": {}}], [FUNCTION, other]) is not None
    assert wrong(calls[:1], [GOLD, {"ping": {}}], [FUNCTION, other]) == "1 calls, 2 wanted"


def test_the_data_sets_types_become_json_schema():
    made = json_schema(FUNCTION["parameters"])
    assert made["type"] == "object"
    assert made["properties"]["height"] == {"type": "number"}
    assert json_schema({"type": "any", "default": {"type": "float"}}) == {"default": {"type": "float"}}


def test_the_parts_of_a_data_set_never_meet_and_a_seed_draws_the_same():
    cases = [Case(str(i), (), ()) for i in range(90)]
    dev = {c.id for c in sample(cases, 0, seed=1, part="dev")}
    test = {c.id for c in sample(cases, 0, seed=7, part="test")}
    assert len(dev) == 30
    assert dev | test == {c.id for c in cases}
    assert not dev & test
    assert sample(cases, 10, seed=3) == sample(cases, 10, seed=3) != sample(cases, 10, seed=4)


def test_intervals_and_paired_tests():
    low, high = wilson(50, 100)
    assert (round(low, 3), round(high, 3)) == (0.404, 0.596)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 10)[0] == 0
    assert wilson(10, 10)[1] == pytest.approx(1)
    assert mcnemar([(True, True)] * 9) == 1
    assert mcnemar([(True, False)] * 5 + [(True, True)] * 3) == pytest.approx(2 / 32)
    assert mcnemar([(True, False), (False, True)]) == 1
    assert median([3, 1, 2]) == 2
    assert median([]) == 0


# --- cases of one's own -------------------------------------------------------------------------------------------

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LINES = [
    {
        "request": "Weather in Oslo?",
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": CITY}}],
        "calls": [{"name": "get_weather", "arguments": {"city": {"any_of": ["Oslo", "Oslo, Norway"]}}}],
    },
    {"id": "talk", "request": "Hello!", "calls": []},
]


def write(path: Path, rows) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_cases_of_ones_own(tmp_path):
    weather, talk = evals.load_jsonl(write(tmp_path / "my.jsonl", LINES))
    assert (weather.id, talk.id) == ("my:1", "talk")
    assert talk.tools == weather.tools
    assert weather.wrong([ToolCall("", "get_weather", {"city": "oslo, norway"})]) is None
    assert "no call get_weather" in weather.wrong([ToolCall("", "get_weather", {"city": "Rome"})])
    assert talk.wrong([]) is None
    assert "nothing was wanted" in talk.wrong([ToolCall("", "get_weather", {})])


@pytest.mark.parametrize(
    ("want", "value", "fits"),
    [
        ({"a": {"optional": True, "any_of": [1]}}, {}, True),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"a": 1.0}, True),
        ({"a": [1, "X"]}, {"a": [1, "x"]}, True),
        ({"a": [1]}, {"a": [1, 2]}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}, False),
    ],
)
def test_how_arguments_of_ones_own_cases_are_compared(want, value, fits):
    case = Case("x", (), (), calls=({"name": "f", "arguments": want},))
    assert (case.wrong([ToolCall("", "f", value)]) is None) == fits


def test_a_line_that_is_no_case_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"my\.jsonl:1: no case"):
        evals.load_jsonl(write(tmp_path / "my.jsonl", [{"request": "x"}]))


def test_cases_written_are_cases_read(tmp_path):
    cases = evals.load_jsonl(write(tmp_path / "a.jsonl", LINES))
    path = tmp_path / "b.jsonl"
    path.write_text(evals.dump_jsonl(cases))
    assert [(c.id, c.messages, c.calls) for c in evals.load_jsonl(path)] == [(c.id, c.messages, c.calls) for c in cases]


@pytest.mark.anyio
async def test_cases_are_cut_from_runs_that_went_well(tmp_path):
    @tool(effect="read")
    def get_weather(city: str) -> str:
        "Weather."
        if city == "Atlantis":
            raise ValueError("no such city")
        return "cold"

    where = f"sqlite:{tmp_path / 'runs.db'}"
    for city in ("Oslo", "Atlantis"):
        model = Replay([{"calls": [{"name": "get_weather", "arguments": {"city": city}}]}, "Done."])
        await Agent(model, tools=[get_weather], ledger=where).run(f"Weather in {city}?")
    await Agent(Replay(["Hi."]), ledger=where).run("Hello!")
    cases = {c.messages[0].text: c for c in await evals.from_ledger(where)}
    assert set(cases) == {"Weather in Oslo?", "Hello!"}
    assert cases["Weather in Oslo?"].calls == ({"name": "get_weather", "arguments": {"city": "Oslo"}},)
    assert not cases["Hello!"].wants_call


# --- asking -------------------------------------------------------------------------------------------------------

WEATHER = ToolSpec("get.weather", "Current weather in a city.", CITY, effect="read")
WANTED = {"name": "get.weather", "arguments": {"city": "Oslo"}}
CASES = [
    Case(
        "1",
        (Message("user", "Weather in Oslo?"),),
        (WEATHER,),
        ({"name": "get.weather", "arguments": {"city": "Oslo"}},),
    ),
    Case("2", (Message("user", "Hello"),), (WEATHER,)),
]
CALL = '{"tool": "get.weather", "args": {"city": "Oslo"}}'
INFO = ModelInfo("scripted", "replay", frozenset({"tools", "schema"}))


@pytest.mark.anyio
async def test_outcomes_and_their_columns():
    model = Replay([CALL, "Hi."], info=INFO)
    right, talk = await evals.evaluate(Plan(model, ["json"], CASES))
    assert (right.parses, right.valid, right.right_tool, right.right, right.retries) == (True, True, True, True, 0)
    assert (talk.called, talk.right, talk.wants_call) == (False, True, False)


@pytest.mark.anyio
async def test_an_unusable_answer_goes_back_with_the_reason():
    model = Replay(['{"tool": "get.weather", "args": {}}', CALL], info=INFO)
    (outcome,) = await evals.evaluate(Plan(model, ["json"], CASES[:1]))
    assert (outcome.retries, outcome.right) == (1, True)
    assert "city" in model.requests[1].messages[-1].text


@pytest.mark.anyio
async def test_what_is_measured_is_the_real_run():
    """Broken forms are mended as a run mends them, the ladder is taken, and no tool starts."""
    prose = Replay(["Sure: {'tool': 'get.weather', 'args': {'city': 'Oslo'}}"], info=INFO)
    (mended,) = await evals.evaluate(Plan(prose, ["json"], CASES[:1]))
    assert (mended.right, mended.kept, mended.retries) == (True, False, 0)
    steps = Replay(['{"tool": "get.weather", "args": {}}'] * 3 + [f"<<<TOOL>>>{CALL}<<<END>>>"], info=INFO)
    (stepped,) = await evals.evaluate(Plan(steps, ["json"], CASES[:1]))
    assert (stepped.right, stepped.kept, stepped.protocol, len(steps.requests)) == (True, False, "json", 4)
    (kept,) = await evals.evaluate(Plan(Replay([CALL], info=INFO), ["json"], CASES[:1]))
    assert kept.kept


@pytest.mark.anyio
async def test_an_unusable_call_counts_as_not_valid():
    """Also where the run ends with an answer after it."""
    model = Replay(['{"tool": "get.weather", "args": {}}', "I do not know."], info=INFO)
    (outcome,) = await evals.evaluate(Plan(model, ["json"], CASES[:1]))
    assert (outcome.called, outcome.valid, outcome.right) == (True, False, False)


@pytest.mark.anyio
async def test_a_refused_request_is_an_error_though_the_run_steps_down():
    model = Replay([BadRequest("no grammar"), CALL], info=INFO)
    (outcome,) = await evals.evaluate(Plan(model, ["constrained"], CASES[:1]))
    assert outcome.error == "BadRequest: no grammar"
    assert not outcome.right
    (row,) = evals.summary([outcome])
    assert row["errors"] == 1
    assert "| errors |" in evals.markdown([outcome])


@pytest.mark.anyio
async def test_names_that_servers_refuse_are_changed_for_them_and_changed_back():
    model = Replay([{"calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}]}], info=INFO)
    (outcome,) = await evals.evaluate(Plan(model, ["native"], CASES[:1]))
    assert outcome.right
    assert outcome.calls[0]["name"] == "get.weather"


TAKES_X = {"name": "f", "parameters": {"type": "object", "properties": {"x": {"type": "string"}}}}
ODD_LINE_ENDS = "\u2028 \u2029 \x85 \x0b \x0c \x1c \x1d \x1e"
"""Ends of lines for Python's `splitlines`, and ordinary characters in the texts of users and models."""


@pytest.mark.anyio
async def test_what_python_takes_for_ends_of_lines_stays_in_the_text(tmp_path):
    row = json.dumps({"request": ODD_LINE_ENDS, "tools": [TAKES_X], "calls": []}, ensure_ascii=False)
    (tmp_path / "my.jsonl").write_text(row + "\n", "utf-8")
    (case,) = evals.load_jsonl(tmp_path / "my.jsonl")
    assert case.messages[-1].text == ODD_LINE_ENDS
    path = tmp_path / "out.jsonl"
    call = {"calls": [{"name": "f", "arguments": {"x": ODD_LINE_ENDS}}]}
    made = await evals.evaluate(Plan(Replay([call, "done"], info=INFO), ["native"], [case], path=path))
    assert evals.load_outcomes(path) == made
    assert made[0].calls[0]["arguments"] == {"x": ODD_LINE_ENDS}


@pytest.mark.anyio
async def test_it_goes_on_where_it_was_stopped(tmp_path):
    path = tmp_path / "out.jsonl"
    model = Replay([CALL, Unreachable("gone")], info=INFO)
    first = await evals.evaluate(Plan(model, ["json"], CASES, path=path))
    assert first[1].error == "Unreachable: gone"
    with path.open("a") as file:
        file.write('{"cut off by a cra')
    path.write_text(path.read_text() + "\n")
    again = Replay(["Hi."], info=INFO)
    both = await evals.evaluate(Plan(again, ["json"], CASES, path=path))
    assert len(again.requests) == 1
    assert [o.right for o in both] == [True, True]
    assert {o.key: o for o in evals.load_outcomes(path)} == {o.key: o for o in both}


def outcome(case="1", protocol="json", right=True, **more) -> Outcome:
    base = Outcome("m", protocol, "g", case, True, True, True, True, right, right, 0, 10, 5, 0.5, 0.1)
    return replace(base, **more)


def test_the_report_has_every_column_with_its_interval():
    outcomes = [outcome(str(i), right=i < 8) for i in range(10)] + [outcome(str(i), "marker", i < 3) for i in range(10)]
    (row, _) = evals.summary(outcomes)
    assert row["right arguments"] == {"hits": 8, "of": 10, "low": 0.4902, "high": 0.9433}
    assert row["false call"] is None
    text = evals.markdown(outcomes)
    assert "0.80 (0.49–0.94)" in text
    assert "| g | json | marker | 10 | 5 | 0 | 0.0625 |" in text
    page = evals.html(outcomes, title="<b>")
    assert page.count("<svg") == 2
    assert "&lt;b&gt;" in page
    assert "http" not in page.replace("http-equiv", "")


def test_compare_names_what_changed():
    text = evals.compare(
        [outcome("1"), outcome("2", right=False)], [outcome("1", right=False, wrong="x: 3"), outcome("2")]
    )
    assert "| m | json | g | 2 | 0.500 | 0.500 | 1 | 1 | 1.000 |" in text
    assert "- json 1: x: 3" in text
    assert "+ json 2: now right" in text
    assert "no case in common" in evals.compare([outcome("1")], [outcome("9")])


# --- the command --------------------------------------------------------------------------------------------------


def test_the_command_cuts_and_compares(tmp_path):
    run = CliRunner().invoke
    source, target = write(tmp_path / "my.jsonl", LINES), tmp_path / "cut.jsonl"
    done = run(cli, ["eval", str(source), "--cut", str(target)])
    assert done.exit_code == 0, done.output
    assert len(evals.load_jsonl(target)) == 2
    a = tmp_path / "a.jsonl"
    from callgate.evals._outcomes import dump

    a.write_text(dump(outcome()))
    assert "| m | json | g | 1 | 1.000 | 1.000 |" in run(cli, ["eval", "--compare", str(a), str(a)]).output


def test_the_command_says_what_is_missing(tmp_path):
    run = CliRunner().invoke
    assert "SOURCE is missing" in run(cli, ["eval"]).output
    assert isinstance(run(cli, ["eval", str(tmp_path / "no.jsonl")]).exception, ConfigError)


def test_what_words_alone_get_right_asks_no_model():
    """The first value that is offered; what words leave open is no value at all."""
    from callgate.evals._by_words import by_words

    weather, talk = CASES[0], replace(CASES[0], id="t", messages=(Message("user", "Tell me a joke"),), calls=())
    (call,) = by_words(weather)
    assert weather.wrong([call]) is None
    assert by_words(talk) == []


def test_a_refused_request_is_an_error_and_no_answer():
    outcomes = [outcome("1"), outcome("2", right=False, right_tool=False, valid=False, error="Unreachable: gone")]
    (row,) = evals.summary(outcomes)
    assert (row["errors"], row["right arguments"]["of"], row["right tool"]["of"]) == (1, 1, 1)
    assert row["right arguments"]["hits"] == 1


def test_what_words_alone_get_right_has_its_column():
    rows = evals.summary([outcome("1", words=True), outcome("2", words=False), outcome("3", words=None)])
    assert (rows[0]["words alone"]["hits"], rows[0]["words alone"]["of"]) == (1, 2)
    assert "| words alone |" in evals.markdown([outcome("1", words=True)])
