"""What a schema admits: `allowed_types` and `property_schema`."""

from __future__ import annotations

from typing import Any

import pytest

from callgate.schema import ALL_TYPES, allowed_types, property_schema

ROOT: dict[str, Any] = {
    "type": "object",
    "$defs": {
        "Area": {"type": "object", "properties": {"n": {"type": "integer"}}},
        "Lim": {"type": "integer"},
        "loop": {"$ref": "#/$defs/loop"},
        "a/b~c": {"$anchor": "odd", "type": "null"},
    },
}


@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({}, ALL_TYPES),
        (True, ALL_TYPES),
        (False, set()),
        ({"type": "string"}, {"string"}),
        ({"type": ["string", "null"]}, {"string", "null"}),
        ({"type": "number"}, {"number", "integer"}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"integer", "null"}),
        ({"oneOf": [{"type": "integer"}, {"enum": ["a"]}]}, {"integer", "string"}),
        ({"allOf": [{"type": "number"}, {"type": ["integer", "string"]}]}, {"integer"}),
        ({"enum": ["a", 1, None, 1.5]}, {"string", "integer", "number", "null"}),
        ({"const": True}, {"boolean"}),
        ({"type": "integer", "enum": [1, "x"]}, {"integer"}),
        ({"$ref": "#/$defs/Lim"}, {"integer"}),
        ({"$ref": "#/$defs/Area/properties/n"}, {"integer"}),
        ({"$ref": "#/%24defs/a~1b~0c"}, {"null"}),
        ({"$ref": "#odd"}, {"null"}),
        ({"$ref": "#"}, {"object"}),
        ({"$ref": "#/$defs/loop"}, ALL_TYPES),
        ({"$ref": "#/$defs/nowhere"}, ALL_TYPES),
        ({"$ref": "https://example.com/s.json"}, ALL_TYPES),
        ({"$ref": "https://example.com/s.json", "type": "array"}, {"array"}),
        ({"type": 7, "enum": "x", "anyOf": "y", "$ref": 3}, ALL_TYPES),
    ],
)
def test_the_types_a_schema_admits(schema: Any, types: set[str]) -> None:
    assert allowed_types(schema, ROOT) == types


def test_a_hostile_schema_costs_neither_time_nor_stack() -> None:
    wide: dict[str, Any] = {"$defs": {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 9} for i in range(60)}}
    assert allowed_types({"$ref": "#/$defs/d0"}, wide) == ALL_TYPES
    assert property_schema({**wide, "$ref": "#/$defs/d0"}, "x") is None
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(50_000):
        deep = {"allOf": [deep]}
    assert allowed_types(deep) == ALL_TYPES
    assert property_schema(deep, "x") is None
    while "allOf" in deep:  # taken apart by hand: freeing such a nest recursively is CPython's business
        deep = deep["allOf"].pop()


def test_a_property_is_found_through_references_and_combiners() -> None:
    schema: dict[str, Any] = {
        "$ref": "#/$defs/A",
        "allOf": [{"properties": {"b": {"type": "integer"}}}],
        "anyOf": [{"properties": {"c": {"const": 1}}}, {"properties": {"c": {"const": "x"}, "d": True}}],
        "$defs": {"A": {"properties": {"a": {"type": "string"}, "b": {"minimum": 1}}}},
    }
    assert property_schema(schema, "a") == {"type": "string"}
    assert property_schema(schema, "b") == {"allOf": [{"minimum": 1}, {"type": "integer"}]}
    assert property_schema(schema, "c") == {"anyOf": [{"const": 1}, {"const": "x"}]}
    assert property_schema(schema, "nothing") is None
    assert property_schema({"additionalProperties": {"type": "integer"}}, "any") == {"type": "integer"}
    assert property_schema({"additionalProperties": False, "properties": {}}, "any") is None
