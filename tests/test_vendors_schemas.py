"""Schemas as vendors take them: seeded schemas of every kind, each row's validator played to the letter."""

from __future__ import annotations

import random
from typing import Any

import jsonschema_rs
import pytest

import strict_server
from callgate.formats._sent_schema import GEMINI, LLAMA, OPENAI, SchemaRules, sent_schema

ROWS = {
    "openai": (OPENAI, strict_server.openai_schema),
    "llama": (LLAMA, strict_server.llama_schema),
    "gemini": (GEMINI, strict_server.gemini_schema),
}
Node = dict[str, Any]


class Maker:
    """Makes schemas, and values that mostly fit them."""

    def __init__(self, seed: int, *, items: bool) -> None:
        self.items = items  # Gemini knows no array of anything
        self.random = random.Random(seed)

    def root(self) -> Node:
        pick = self.random.random()
        out: Node = self.object(0) if pick < 0.8 else {"type": "object"}
        if self.random.random() < 0.5:
            key = self.random.choice(["anyOf", "oneOf", "allOf"])
            closed = {} if key == "allOf" else {"additionalProperties": False}
            out[key] = [{**self.object(1), **closed} | self.chance({"not": {"required": ["zz"]}}) for _ in range(2)]
        if self.random.random() < 0.2:
            out |= {"if": {"properties": {"a": {"const": "x"}}}, "then": {"required": ["a"]}}
        if self.random.random() < 0.2:
            out["not"] = {"required": ["zz"]}
        out["$defs"] = {"leaf": self.leaf(), "tree": {"type": "object", "properties": {"c": {"$ref": "#/$defs/tree"}}}}
        return out | self.chance({"$schema": "https://json-schema.org/draft/2020-12/schema"})

    def chance(self, value: Node) -> Node:
        return value if self.random.random() < 0.3 else {}

    def object(self, depth: int) -> Node:
        names = self.random.sample("abcd", self.random.randint(0, 3))
        out: Node = {"type": "object", "properties": {name: self.node(depth + 1) for name in names}}
        if names and self.random.random() < 0.5:
            out["required"] = names[:1]
        if not depth and self.random.random() < 0.3:
            return out
        return out | self.chance({"additionalProperties": {"type": "integer"}})

    def node(self, depth: int) -> Node:
        pick = self.random.random()
        if depth > 2 or pick < 0.5:
            return self.leaf()
        if pick < 0.6:
            return self.object(depth)
        if pick < 0.7:
            items = {"items": self.node(depth + 1), "uniqueItems": True}
            return {"type": "array"} | (items if self.items else self.chance(items))
        if pick < 0.8:
            return {self.random.choice(["anyOf", "oneOf"]): [self.leaf(), {"type": "null"}, self.object(depth + 1)]}
        if pick < 0.9:
            return {"$ref": self.random.choice(["#/$defs/leaf", "#/$defs/tree"])}
        return {"allOf": [self.object(depth + 1), {"description": "both"}]}

    def leaf(self) -> Node:
        return dict(
            self.random.choice(
                [
                    {"type": "string", "maxLength": 2000},
                    {"type": "string", "pattern": "x+", "format": "email"},
                    {"type": "string", "format": "date-time", "description": "when"},
                    {"type": "string", "enum": ["x", "y"]},
                    {"enum": ["x", "y", None]},
                    {"const": "x"},
                    {"const": 3},
                    {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
                    {"type": "integer", "minimum": 1, "exclusiveMaximum": 9, "multipleOf": 1},
                    {"type": "number", "exclusiveMinimum": 0.5},
                    {"type": ["string", "null"]},
                    {"type": ["integer", "string"], "default": 1},
                    {"type": "boolean"},
                    {"enum": [1, 2, 3]},
                ]
            )
        )

    def value(self, depth: int = 0) -> Any:
        pick = self.random.random()
        if depth == 0 or (pick < 0.3 and depth < 3):
            return {name: self.value(depth + 1) for name in self.random.sample("abcd", self.random.randint(0, 3))}
        return self.random.choice(["x", "y", "xx", 1, 2, 3, 0.7, True, None, [], ["x"], [1], "2026-01-01T00:00:00Z"])


def written_out(node: Any) -> Any:
    """A sent schema in JSON Schema's words: `nullable` as a type."""
    if isinstance(node, list):
        return [written_out(part) for part in node]
    if not isinstance(node, dict):
        return node
    out = {key: written_out(value) for key, value in node.items() if key != "nullable"}
    return {"anyOf": [out, {"type": "null"}]} if node.get("nullable") is True else out


@pytest.mark.parametrize("row", ROWS)
def test_a_sent_schema_is_accepted_and_refuses_nothing_that_the_true_one_accepts(row: str) -> None:
    rules, refuses = ROWS[row]
    fitting = 0
    for seed in range(400):
        maker = Maker(seed, items=row == "gemini")
        schema = maker.root()
        sent, _ = sent_schema(schema, rules)
        assert refuses(sent) is None, (seed, schema, sent)
        true, made = jsonschema_rs.validator_for(schema), jsonschema_rs.validator_for(written_out(sent))
        for _ in range(40):
            value = maker.value()
            if true.is_valid(value):
                fitting += 1
                assert made.is_valid(value), (seed, schema, sent, value)
    assert fitting > 1000


@pytest.mark.parametrize(
    ("rules", "schema", "sent", "lost"),
    [
        (OPENAI, {"type": "object"}, {"type": "object", "properties": {}}, ()),
        (OPENAI, {}, {"type": "object", "properties": {}}, ()),
        (
            OPENAI,
            {
                "type": "object",
                "anyOf": [
                    {"properties": {"a": {"type": "string"}}, "required": ["a"]},
                    {"properties": {"b": {"type": "string"}}, "required": ["b"]},
                ],
            },
            {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}},
            ("anyOf",),
        ),
        (
            OPENAI,
            {"$ref": "#/$defs/A", "$defs": {"A": {"type": "object", "properties": {"a": {"type": "array"}}}}},
            {
                "type": "object",
                "properties": {"a": {"type": "array", "items": {}}},
                "$defs": {"A": {"type": "object", "properties": {"a": {"type": "array", "items": {}}}}},
            },
            (),
        ),
        (
            GEMINI,
            {
                "type": "object",
                "properties": {"n": {"type": "integer", "exclusiveMinimum": 0}, "m": {"const": "fast"}},
                "required": ["n"],
                "additionalProperties": False,
            },
            {
                "type": "object",
                "properties": {"n": {"type": "integer", "minimum": 1}, "m": {"enum": ["fast"], "type": "string"}},
                "required": ["n"],
            },
            (),
        ),
        (
            GEMINI,
            {"type": "object", "properties": {"n": {"enum": [1, 2]}, "p": {"type": "string", "format": "email"}}},
            {"type": "object", "properties": {"n": {"type": "integer"}, "p": {"type": "string"}}},
            ("enum", "format"),
        ),
        (
            LLAMA,
            {"type": "object", "properties": {"p": {"type": "string", "pattern": "a", "maxLength": 2000}}},
            {"type": "object", "properties": {"p": {"type": "string"}}},
            ("maxLength", "pattern"),
        ),
    ],
)
def test_what_is_sent_of_a_schema(rules: SchemaRules, schema: Node, sent: Node, lost: tuple[str, ...]) -> None:
    assert sent_schema(schema, rules) == (sent, lost)
