"""The laws of the word matcher, by generators: nothing is made up, nothing is offered that the tool refuses."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from callgate.grounding import extract, narrow, numerals, plan, spelt, ungrounded, wording
from callgate.protocols._schemas import ENGINES, arguments_schema
from callgate.types import ToolSpec

FRAGMENTS = st.sampled_from(
    """
    the quarterly bill|weekly|daily|annually|a double room|twice|half an hour|a pair of shoes|a dozen eggs|next week|
    in the language of the country|per second|San Francisco|298K|a salary of 50K|5% off|$1,250.00|-3 degrees|3.5 kg|
    twenty-five|two hundred and three|one or two|the third day|a one-way flight|Ronaldo's goals|at Luigi's for four|
    from Oslo to New York on 2026-05-06|'The Long Road'|Boston, MA|e.g. a, b and c|How?|What is|一下|今天天气|三张票|
    二十三个|千万不要|十分好|周一|北京和上海|把100美元换成人民币|Dr. Smith|rs6034464|[1, 2, 3]|1e-9|10-12 km
    """.replace("\n    ", "")
    .strip()
    .split("|")
)
REQUESTS = st.lists(FRAGMENTS | st.text(max_size=12), min_size=1, max_size=6).map(" ".join)
SPELT = {*spelt.UNITS, *spelt.BIG, *spelt.ORDINALS, "and"}
HAN = set("零〇一二三四五六七八九两十百千万亿")


@settings(max_examples=300, deadline=None)
@given(REQUESTS)
def test_no_number_is_made_up(text: str) -> None:
    """Where a number is found, digits or number words stand, and nothing else does."""
    for number in numerals.numbers(text):
        written = text[number.start : number.end]
        words = re.split(r"[\s-]+", written.lower())
        assert any(c.isdigit() for c in written) or set(words) <= SPELT or set(written) <= HAN, written
        if not number.weak and not number.percent and number.other is None:
            digits = re.sub(r"[^\d.eE-]", "", written).rstrip("eE")
            assert abs(number.value) == abs(float(re.sub(r"(?<!e)-", "", digits.lower())))


@settings(max_examples=300, deadline=None)
@given(REQUESTS)
def test_no_text_is_made_up(text: str) -> None:
    for values in (extract.quoted(text), extract.dates(text), extract.names(text), extract.phrases(text)):
        assert all(value in text for value in values)
    assert all(text[s.start : s.end] == s.text for s in extract.spans(text))
    assert all(item in text for row in extract.text_lists(text) for item in row)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("the quarterly bill", []),
        ("a weekly, daily or annual payment", []),
        ("double it, twice", []),
        ("a block at 298K", [298]),
        ("a salary of 50K", [50000]),
        ("$3M", [3000000]),
        ("10k users", [10000]),
        ("twenty-five people", [25]),
        ("two hundred and three, or one thousand five hundred", [203, 1500]),
        ("two and three", [2, 3]),
        ("a one-way flight", []),
        ("metres per second", []),
        ("搜索一下资料", []),
        ("二十三个人，三万元", [23, 30000]),
        ("千万不要在周一做", []),
        ("三加五等于多少", [3, 5]),
    ],
)
def test_numbers_are_those_that_stand_there(text: str, values: list[float]) -> None:
    assert [n.value for n in numerals.numbers(text)] == values


@settings(max_examples=200, deadline=None)
@given(st.text("abcdefgh", min_size=2, max_size=6), st.text("abcdefgh", min_size=1, max_size=4), st.booleans())
def test_only_whole_words_stand_in_a_request(word: str, more: str, before: bool) -> None:
    longer = more + word if before else word + more
    assert wording.stands(word, f"the {word}, please")
    assert not wording.stands(word, f"the {longer} please") or word == longer
    assume(wording.stem(word) != wording.stem(longer))
    assert not wording.named(word, f"of {longer}")


@pytest.mark.parametrize(
    ("value", "text", "stands"),
    [
        ("France", "a trip to San Francisco", False),
        ("start_date", "by the start date", True),
        ("movie", "all movies", True),
        ("A", "of a DNA with 13 % A", True),
        ("A", "a DNA. A cell", False),
        ("New York", "york is new", False),
        ("北京", "我在北京", True),
    ],
)
def test_a_fixed_value_is_named_by_its_own_words(value: str, text: str, stands: bool) -> None:
    assert wording.named(value, text) is stands


@pytest.mark.parametrize("pair", ["movie movies", "city cities", "calorie calories", "cookie cookies", "day days"])
def test_a_plural_has_the_stem_of_its_singular(pair: str) -> None:
    one, many = pair.split()
    assert wording.stem(one) == wording.stem(many)


# --- what is offered ----------------------------------------------------------------------------------------------

NUMBERS = st.fixed_dictionaries(
    {"type": st.sampled_from(["integer", "number"])},
    optional={
        "minimum": st.integers(-5, 60),
        "maximum": st.integers(60, 500),
        "exclusiveMinimum": st.integers(-5, 60),
        "exclusiveMaximum": st.integers(60, 500),
        "multipleOf": st.sampled_from([1, 2, 5, 0.5]),
        "enum": st.just([3, 5, 25]),
        "not": st.just({"const": 5}),
    },
)
TEXTS = st.fixed_dictionaries(
    {"type": st.just("string")},
    optional={
        "minLength": st.integers(0, 6),
        "maxLength": st.integers(6, 20),
        "pattern": st.sampled_from(["^[A-Z]", "^[a-z ]+$", r"^\d{4}-\d\d-\d\d$"]),
        "enum": st.just(["Oslo", "a", "Boston, MA", "上海"]),
        "description": st.sampled_from(["The city, like 'Oslo'.", "city and state", "date, YYYY/MM/DD", "城市"]),
        "format": st.sampled_from(["email", "date", "uri"]),
    },
)
LISTS = st.fixed_dictionaries(
    {"type": st.just("array"), "items": NUMBERS | TEXTS},
    optional={
        "minItems": st.integers(0, 3),
        "maxItems": st.integers(3, 5),
        "uniqueItems": st.just(True),
        "contains": st.just({"type": "string"}),
    },
)
LEAF = NUMBERS | TEXTS | LISTS | st.just({"type": "boolean", "const": False}) | st.just({"$ref": "#/$defs/limited"})
NAMES = st.sampled_from(["city", "amount", "days", "a/b", "x~y", "names", "on", "数"])
OBJECTS = st.dictionaries(NAMES, LEAF, max_size=4)


def offered(schema: dict[str, Any], path: str = "") -> list[tuple[list[str], Any]]:
    """Every value that a narrowed schema offers, with the names that lead to it."""
    out = []
    for name, slot in schema["properties"].items():
        out += [([path, name] if path else [name], value) for value in slot.get("enum", ())]
        if slot.get("type") == "object":
            out += offered(slot, name)
    return out


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(outer=OBJECTS, inner=OBJECTS, text=REQUESTS, needed=st.booleans())
def test_every_offered_value_is_valid_under_the_tools_own_schema(
    outer: dict[str, Any], inner: dict[str, Any], text: str, needed: bool
) -> None:
    nested = {"type": "object", "properties": inner, "required": sorted(inner) if needed else []}
    schema = {
        "type": "object",
        "properties": {**outer, "nested": nested},
        "required": sorted(outer) if needed else ["nested"],
        "$defs": {"limited": {"type": "integer", "exclusiveMinimum": 5}},
    }
    tool = ToolSpec("f", "Works.", schema)
    made = narrow(tool, arguments_schema(tool, ENGINES["llamacpp"]), text)
    for path, value in offered(made):
        properties = inner if len(path) == 2 else {**outer, "nested": nested}
        own = {"$defs": schema["$defs"], "allOf": [properties[path[-1]]]}
        valid = jsonschema_rs.validator_for(own).is_valid
        if not any(map(valid, properties[path[-1]].get("enum", [value]))):
            continue  # a choice of which the schema takes nothing: the slot keeps the schema it had
        assert valid(value), (path, value)


@settings(max_examples=200, deadline=None)
@given(value=st.integers(0, 400), text=REQUESTS)
def test_a_number_that_does_not_stand_in_the_request_is_not_grounded(value: int, text: str) -> None:
    tool = ToolSpec("pay", "", {"type": "object", "properties": {"amount": {"type": "integer"}}})
    known = {v for n in numerals.numbers(text) if not n.ordinal for v in n.values}
    assert (ungrounded(tool, {"amount": value}, text) == []) is (value in known)


def spec(**properties: Any) -> ToolSpec:
    return ToolSpec("pay", "", {"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("schema", "value", "text", "grounded"),
    [
        ({"type": "integer"}, 4, "the quarterly bill", False),
        ({"type": "integer"}, 52, "a weekly payment", False),
        ({"type": "integer", "exclusiveMinimum": 5}, 5, "for 5 guests", False),
        ({"type": "integer", "exclusiveMinimum": 5}, 6, "for 6 guests", True),
        ({"type": "integer"}, 2, "the second bill", False),
        ({"type": "string"}, "France", "a trip to San Francisco", False),
        ({"type": "string"}, "san  francisco", "a trip to San Francisco", True),
        ({"type": "string", "maxLength": 3}, "Oslo", "to Oslo", False),
        ({"type": "string"}, "English", "the language", False),
        ({"type": "string"}, "2026-05-03", "on May 3rd, 2026", True),
        ({"type": "string"}, "北京", "北京天气", True),
        ({"type": "array", "items": {"enum": ["a", "b"]}}, ["a"], "anything", True),
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, {"n": 7}, "a week", False),
        ({"type": "string", "description": "expression"}, "15 / 100 * 80", "15% of 80", True),
    ],
)
def test_a_value_is_grounded_if_it_stands_there_and_the_schema_takes_it(
    schema: dict[str, Any], value: Any, text: str, grounded: bool
) -> None:
    assert (ungrounded(spec(x=schema), {"x": value}, text) == []) is grounded


# --- parts --------------------------------------------------------------------------------------------------------

AREA = ToolSpec(
    "rectangle_area",
    "Area of a rectangle.",
    {
        "type": "object",
        "properties": {"width": {"type": "integer"}, "length": {"type": "integer"}},
        "required": ["width", "length"],
    },
)
SQUARE = ToolSpec(
    "length_convert",
    "Convert a length of some units.",
    {"type": "object", "properties": {"length": {"type": "integer"}}, "required": ["length"]},
)
CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "城市 city"}}, "required": ["city"]}
WEATHER = ToolSpec("get_weather", "查询城市的天气 Weather of a city.", CITY)
CLOCK = ToolSpec("get_time", "Tell the current time in a city.", CITY)


@pytest.mark.parametrize(
    ("text", "tools", "parts"),
    [
        ("Area of a rectangle with width of 7 units and length of 10 units", (AREA, SQUARE), 1),
        ("What is the area of a rectangle of width 3.5 and length 10?", (AREA, SQUARE), 1),
        ("How is the weather in Oslo and what time is it in Tokyo?", (WEATHER, CLOCK), 2),
    ],
)
def test_a_request_is_cut_only_where_a_new_one_begins(text: str, tools: tuple[ToolSpec, ...], parts: int) -> None:
    needs = plan(text, tools)
    assert len(needs) == parts
    assert all(need.text in text for need in needs)


@pytest.mark.parametrize(
    ("text", "cities"),
    [
        ("北京和上海今天天气怎么样", ["北京", "上海"]),
        ("What is the weather in Paris, London and Rome?", ["Paris", "London", "Rome"]),
        ("What is the weather in Boston, MA?", None),
        ("What is the weather in Trinidad and Tobago?", None),
    ],
)
def test_one_tool_is_called_for_each_of_several_names(text: str, cities: list[str] | None) -> None:
    needs = plan(text, (WEATHER, CLOCK))
    if cities is None:
        assert [need.tool.name for need in needs][:1] == ["get_weather"]
        return
    assert [need.tool.name for need in needs] == ["get_weather"] * len(cities)
    for need, city in zip(needs, cities, strict=True):
        assert city in need.text
        assert not any(other in need.text for other in cities if other != city)
