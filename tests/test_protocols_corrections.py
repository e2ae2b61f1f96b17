"""What is wrong with a call is told in the language of the run, and quotes to the letter."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import mend
from callgate.protocols.corrections import RAW_SHOWN, arrived, flaws, translated, unfit

SCHEMAS: list[dict[str, object]] = [
    {"minimum": 3},
    {"maximum": -3},
    {"exclusiveMinimum": 3},
    {"exclusiveMaximum": -3.5},
    {"multipleOf": 7},
    {"minLength": 30},
    {"maxLength": 0},
    {"pattern": "^zz, got .*$"},
    {"minItems": 9},
    {"maxItems": 0},
    {"uniqueItems": True},
    {"minProperties": 9},
    {"maxProperties": 0},
    {"contains": {"const": "zz"}},
    {"not": {}},
    {"enum": ["甲", "乙, got it"]},
    {"const": "zz"},
    {"type": ["string", "null"]},
    {"type": "integer"},
    {"type": "array", "items": {"type": "boolean"}},
    {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False},
    {"anyOf": [{"type": "boolean"}, {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}]},
    {"oneOf": [{}, {}]},
    {"anyOf": [{"type": "object", "required": ["p"]}, {"type": "object", "required": ["q"]}]},
    {"prefixItems": [{"type": "string"}], "items": False},
    {"propertyNames": {"pattern": "^zz$"}},
    {"dependentRequired": {"a": ["zz"]}},
    {"if": {}, "then": {"const": 1}},
    {"unevaluatedProperties": False},
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.floats(-9, 9) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abz"), inner, max_size=3),
    max_leaves=5,
)
BROKEN = (
    '{"v": ',
    '{"v" 1}',
    "nope",
    "[1, 2]",
    '{"v": 1} {"v": 2}',
    '{"v": 1e999}',
    '{"v": NaN}',
    "{" * 300,
    '{"v": """x"""}',
    '{"v": "C:\\dir\\", "w": 1}',
    '{"v": "a" "b"]}',
    '{"v": "a"b": "c"}',
    "",
)


@given(st.sampled_from(SCHEMAS), VALUES)
def test_every_message_of_a_schema_has_its_chinese_form(schema: dict[str, object], value: object) -> None:
    tool = {"type": "object", "properties": {"v": schema}, "required": ["v", "w"], "additionalProperties": False}
    mended = mend(json.dumps({"v": value, "x": 1}), tool)
    assert mended.errors
    for _, message in mended.errors:
        made = translated(message, "zh")
        assert re.search("[\u4e00-\u9fff]", made), message
        _, got, quoted = message.rpartition('the string "')
        assert not got or quoted in made


@pytest.mark.parametrize("text", BROKEN)
def test_every_way_of_being_broken_has_its_chinese_form(text: str) -> None:
    mended = mend(text, {"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]})
    for _, message in mended.errors:
        assert re.search("[\u4e00-\u9fff]", translated(message, "zh")), message
    assert re.search("[\u4e00-\u9fff]", unfit(mended, "zh").split("\n")[0]) or mended.ok


def test_english_stays_english() -> None:
    mended = mend(
        '{"city": 5, "x": 1}', {"type": "object", "properties": {"city": {"type": "array"}}, "required": ["day"]}
    )
    assert unfit(mended, "en") == mended.explain()
    assert flaws(mended, "en") == "; ".join(f"{at}: {what}" for at, what in mended.errors)


@given(st.text(max_size=2 * RAW_SHOWN))
def test_what_arrived_is_quoted_to_the_letter_up_to_its_bound(text: str) -> None:
    for language in ("en", "zh"):
        told = arrived(text, language)
        assert (text[:RAW_SHOWN] in told) if text.strip() else told == ""
