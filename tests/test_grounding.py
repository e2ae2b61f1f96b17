"""What a request says, and which parameter it says it for."""

from __future__ import annotations

import time

import jsonschema_rs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate.grounding import extract, numerals, rank, ungrounded
from callgate.grounding import narrow as narrow_slots
from callgate.grounding.slots import offers
from callgate.protocols._schemas import ENGINES, arguments_schema
from callgate.types import ToolSpec


def spec(name="f", required=None, description="", **properties):
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return ToolSpec(name, description, schema, effect="read")


def narrow(tool, text):
    """The tool's arguments as a small model on the embedded engine is asked for them."""
    return narrow_slots(tool, arguments_schema(tool, ENGINES["llamacpp"]), text)


def fixed(tool, text):
    """The arguments that are decided without the model, by name."""
    slots = narrow(tool, text)["properties"]
    return {name: s["enum"][0] for name, s in slots.items() if len(s.get("enum", ())) == 1}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("base of 10 and height of 5.5", [10, 5.5]),
        ("a discount of 12% on $1,250.00", [12, 1250]),
        ("213 million people, 8.5 million km", [213000000, 8500000]),
        ("from -3 to +4", [-3, 4]),
        ("the list [200,300,400]", [200, 300, 400]),
        ("3x^2 + 2x - 4", [3, 2, 4]),
        ("charges of 1e-9 and 2e-9", [1e-09, 2e-09]),
        ("two adults and one child", [2, 1]),
        ("the coordinates 33.45 N, 112.07 W", [33.45, -112.07]),
        ("三张票，2万元", [3, 20000]),
        ("10-12 km", [10, 12]),
        ("rs6034464", []),
    ],
)
def test_numbers(text, values):
    assert [n.value for n in numerals.numbers(text)] == values


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Liverpool F.C. Include its stats.", ["Liverpool F.C"]),
        ("We met Dr. Smith in St. Louis.", ["Dr. Smith", "St. Louis"]),
        ("Find the Museum of Modern Art in New York", ["Museum of Modern Art", "New York"]),
        ("What is this?", []),
        ("Can I find an Italian place?", ["Italian"]),
    ],
)
def test_names(text, names):
    assert extract.names(text) == names


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        ("a progression of C, F and G for 4 measures", [["C", "F", "G"]]),
        ("the amount of protein, calories and carbs in an avocado", [["protein", "calories", "carbs"]]),
        ("organic fruits and vegetables", [["fruits", "vegetables"]]),
        ("with ['red', 'blue']", [["red", "blue"]]),
        ("players Alex, Sam and Robert", [["Alex", "Sam", "Robert"]]),
        ("nothing here", []),
    ],
)
def test_lists_of_texts(text, lists):
    found = extract.text_lists(text)
    assert all(one in found for one in lists)
    assert bool(found) == bool(lists)


def test_lists_of_numbers():
    assert numerals.number_lists("the numbers 12, 15, 18 and 21") == [[12, 15, 18, 21]]
    assert numerals.number_lists("[1, 2] and [3, 4]") == [[1, 2], [3, 4]]


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("What is 17 times 23?", "17 * 23"),
        ("15% of 80", "15 / 100 * 80"),
        ("the square root of 144", "sqrt(144)"),
        ("Add 5 and 7", "5 + 7"),
        ("(3 + 4) / 5 please", "(3 + 4) / 5"),
        ("two to the power of ten", "2 ^ 10"),
        ("1,200 + 35.5", "1200 + 35.5"),
        ("17乘以23等于多少？", "17 * 23"),
        ("How do I cancel a run?", None),
        ("parcel P-1001 on 2026-05-06", None),
        ("call me at 5", None),
    ],
)
def test_arithmetic_in_words(text, expression):
    assert numerals.expression(text) == expression


NUMBER, TEXT = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("tool", "text", "arguments"),
    [
        (spec(base=NUMBER, height=NUMBER), "a triangle with height 5 and base 10", {"base": 10, "height": 5}),
        (spec(a=NUMBER, b=NUMBER), "the two numbers 12 and 15", {"a": 12, "b": 15}),
        (
            spec(start_date=TEXT, end_date=TEXT),
            "from July 10, 2022 to July 20, 2022",
            {"start_date": "July 10, 2022", "end_date": "July 20, 2022"},
        ),
        (
            spec(day={"type": "string", "description": "The date in the format YYYY-MM-DD."}),
            "on March 5th, 2026",
            {"day": "2026-03-05"},
        ),
        (spec(origin=TEXT, destination=TEXT), "fly to Rome from Oslo", {"origin": "Oslo", "destination": "Rome"}),
        (spec(rank=TEXT, suit=TEXT), "a card of rank 'Queen' and suit 'Hearts'", {"rank": "Queen", "suit": "Hearts"}),
        (
            spec(rate={"type": "number", "description": "Annual rate as a decimal."}, years=NUMBER),
            "5% for 10 years",
            {"rate": 0.05, "years": 10},
        ),
        (spec(values={"type": "array", "items": NUMBER}), "the mean of 3, 4 and 8", {"values": [3, 4, 8]}),
        (spec(kind={"enum": ["red", "blue"]}), "the blue one", {"kind": "blue"}),
        (spec(required=[], unit=TEXT), "the distance in miles", {"unit": "miles"}),
        (spec(required=[], include_stats={"type": "boolean"}), "include the stats", {"include_stats": True}),
        (spec(required=[], include_stats={"type": "boolean"}), "the last game", {}),
        (spec(required=[], n={"type": "integer", "description": "How many."}), "some of them", {}),
    ],
)
def test_words_decide_where_they_can(tool, text, arguments):
    assert fixed(tool, text) == arguments


def test_where_words_do_not_decide_the_model_picks_among_phrases_of_the_request():
    slots = narrow(spec(topic=TEXT), "something about the history of tea in Japan")["properties"]
    assert len(slots["topic"]["enum"]) > 1
    assert all(v in "something about the history of tea in Japan" for v in slots["topic"]["enum"])


def test_a_slot_with_nothing_to_copy_keeps_its_schema():
    slots = narrow(spec(n={"type": "integer", "minimum": 1, "maximum": 9}, on={"type": "boolean"}), "do it")[
        "properties"
    ]
    assert slots == {"n": {"type": "integer", "minimum": 1, "maximum": 9}, "on": {"type": "boolean"}}


def test_values_outside_the_tools_own_schema_are_not_offered():
    slot = narrow(spec(n={"type": "integer", "maximum": 9}), "take 50")["properties"]["n"]
    assert (slot["maximum"], slot.get("enum")) == (9, None)
    short = narrow(spec(code={"type": "string", "maxLength": 3}), "use ABC or ABCDEF")["properties"]["code"]["enum"]
    assert all(len(v) <= 3 for v in short)


def test_offers_of_a_description():
    about = {"description": "Supports 'teaspoon', 'cup'. E.g. metric, imperial or both."}
    assert offers(about)[:2] == ["teaspoon", "cup"]
    assert "metric" in offers(about)


def test_ungrounded_values_are_named():
    assert ungrounded(ToolSpec("f"), {"city": "Oslo", "n": 3, "x": "Rome", "k": 9, "on": True}, "Oslo, 3 days") == [
        "x",
        "k",
    ]


SCHEMAS = st.dictionaries(
    st.sampled_from(["city", "count", "rate", "items", "mode", "on", "start_date", "opt"]),
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "maxLength": 5},
            {"type": "string", "description": "One of 'fast', 'slow'."},
            {"type": "integer", "minimum": 0, "maximum": 50},
            {"type": "number"},
            {"type": "boolean"},
            {"enum": ["a", "b"]},
            {"type": "array", "items": {"type": "string"}, "maxItems": 2},
            {"type": "array", "items": {"type": "integer"}},
            {"type": "object", "properties": {"x": {"type": "integer"}}},
            True,
        ]
    ),
    max_size=5,
)


@settings(max_examples=150, deadline=None)
@given(
    properties=SCHEMAS, text=st.text(max_size=60) | st.sampled_from(["a, b and c in Oslo on 2026-01-02 for 5% fast"])
)
def test_narrowing_never_admits_what_the_tool_refuses(properties, text):
    schema = {"type": "object", "properties": properties, "required": list(properties)[:2]}
    made = narrow(ToolSpec("f", parameters=schema), text)
    assert set(made["properties"]) <= set(properties)
    for name, slot in made["properties"].items():
        if properties[name] is not True:
            validator = jsonschema_rs.validator_for(properties[name])
            assert all(validator.is_valid(value) for value in slot.get("enum", ()))


# --- choosing -----------------------------------------------------------------------------------------------------

HOTELS = (
    spec("SearchHotel", description="Find hotels at a place.", place=TEXT),
    spec("ReserveHotel", description="Reserve a room in a hotel.", place=TEXT),
    spec("get_weather", description="Weather of a city.", city=TEXT),
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Find me a hotel in Rome", "SearchHotel"),
        ("Please reserve a hotel room in Rome", "ReserveHotel"),
        ("How is the weather in Rome?", "get_weather"),
    ],
)
def test_words_choose_the_tool(text, name):
    ranked = rank(text, HOTELS)
    assert ranked.tools[0].name == name
    assert ranked.fit > 0.5
    assert 0 <= ranked.margin <= 1


@pytest.mark.parametrize(
    "text", ["Hello", "What is the meaning of life?", "你好", "", "Translate this poem into Latin"]
)
def test_what_no_tool_is_for_fits_badly(text):
    assert rank(text, HOTELS).fit < 0.27


def test_a_request_like_a_worked_example_fits_well():
    from dataclasses import replace

    plain = spec("q", description="Works.", x=TEXT)
    assert rank("Any word on parcel B-2?", (plain,)).fit < 0.27
    shown = replace(plain, examples=({"request": "Any word on parcel A-1?", "arguments": {"x": "A-1"}},))
    assert rank("Any word on parcel B-2?", (shown,)).fit > 0.5


HOSTILE = {
    "digits": "1" * 5000,
    "numbers": "1 " * 2500,
    "commas": "1a," * 1500,
    "capitals": "Ab " * 1500,
    "brackets": "(" * 5000,
    "quotes": "'a " * 1500,
    "blanks": " " * 5000,
    "dashes": "-" * 5000,
    "dates": "2022-01-01 " * 400,
    "Han": "北京天气" * 1200,
    "a book": "word " * 200_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_request_is_too_much(name):
    """Each of these took seconds, or a regular expression without end, until it was bounded."""
    properties = {f"n{i}": NUMBER for i in range(6)} | {f"t{i}": TEXT for i in range(4)} | {"expression": TEXT}
    tool = spec(**properties)
    started = time.process_time()
    narrow(tool, HOSTILE[name])
    rank(HOSTILE[name], (tool,) * 3)
    assert time.process_time() - started < 3


@pytest.mark.parametrize(
    "text", ["Show me films with Tom Hanks", "Is there a cinema near Rome?", "Which movie is on in Rome?"]
)
def test_a_thing_is_found_under_the_other_words_for_it(text):
    tools = (*HOTELS, spec("find_movies", description="Find movies by actor or place.", place=TEXT))
    assert rank(text, tools).tools[0].name == "find_movies"


def test_a_tool_whose_required_texts_are_not_said_stands_back():
    times = spec("movie_times", description="Times of a movie.", movie=TEXT, theatre=TEXT, city=TEXT)
    found = spec("movie_search", description="Search of a movie.", city=TEXT)
    assert rank("a movie in Rome", (times, found)).tools[0].name == "movie_search"
    assert rank("times of the movie 'Heat' at the Odeon in Rome", (found, times)).tools[0].name == "movie_times"


def test_a_request_that_a_tool_explains_wholly_is_about_it():
    pay = spec("transfer_money", description="Transfers money to an account.", account=TEXT)
    assert 0.46 <= rank("money", (pay,)).fit < 0.6
