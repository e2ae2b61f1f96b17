"""A tool's schema in the form that a vendor accepts; the gate checks the arguments against the true one afterwards.

Law: a sent schema holds nothing that its row refuses, and takes every value that a closed true schema takes.
(tests/test_vendors_schemas.py::test_a_sent_schema_is_accepted_and_refuses_nothing_that_the_true_one_accepts)

What narrows and cannot be written is left out and named. What only comments is left out without a word.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from callgate.types import Schema

Node: TypeAlias = dict[str, Any]


@dataclass(slots=True, frozen=True)
class SchemaRules:
    """What a vendor's validator of tool schemas refuses."""

    refused: frozenset[str] = frozenset()
    """Keywords that it refuses anywhere."""
    formats: frozenset[str] | None = None
    """The formats that it knows; None: any word."""
    plain: bool = False
    """One type a schema, no references, enums of texts only, `anyOf` alone, no empty `properties` (Gemini)."""
    repeats: int | None = None
    """The largest length or count that it takes; a larger one is left out."""
    anchored: bool = False
    """Patterns must begin with ^ and end with $."""


ROOT = frozenset({"anyOf", "oneOf", "allOf", "not", "enum", "const", "if", "then", "else", "$ref"})
"""OpenAI: "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level"; also
Anthropic's input_schema. `if` comes with them in practice, and a reference at the root is no object either."""
OPENAI = SchemaRules()
"""Errors of the API: "array schema missing items", "object schema missing properties"; the rest is taken."""
LLAMA = SchemaRules(refused=frozenset({"not"}), repeats=1999, anchored=True)
"""llama.cpp, common/json-schema-to-grammar.cpp ("Pattern must start with '^' and end with '$'"; `not` is unknown to it)
and src/llama-grammar.cpp (a repetition of 2,000 is refused)."""
GEMINI = SchemaRules(
    refused=frozenset(
        {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "const", "oneOf", "allOf", "not"}
        | {"if", "then", "else", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "propertyNames"}
        | {"patternProperties", "dependentRequired", "dependentSchemas", "dependencies", "prefixItems", "contains"}
        | {"minContains", "maxContains", "additionalItems", "uniqueItems", "multipleOf", "exclusiveMinimum"}
        | {"exclusiveMaximum", "examples", "readOnly", "writeOnly", "deprecated", "contentEncoding"}
        | {"contentMediaType", "contentSchema"}
    ),
    formats=frozenset({"enum", "date-time", "float", "double", "int32", "int64"}),
    plain=True,
)
"""The message `Schema` of the Gemini API (ai.google.dev/api/caching#Schema): a field that is not in it is answered
`Invalid JSON payload received. Unknown name "exclusiveMinimum"`; "any_of … must be the only field set"."""

ANTHROPIC = SchemaRules()
"""Its `input_schema` is an object without combinators at the root, as with OpenAI."""
ANTHROPIC_OUTPUT = SchemaRules(
    refused=frozenset(
        {
            "minimum",
            "maximum",
            "exclusiveMinimum",
            "exclusiveMaximum",
            "multipleOf",
            "minLength",
            "maxLength",
            "pattern",
        }
        | {"minItems", "maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems", "not"}
        | {"if", "then", "else", "patternProperties", "propertyNames", "dependentRequired", "dependentSchemas"}
        | {"minProperties", "maxProperties", "unevaluatedProperties", "unevaluatedItems", "additionalItems"}
    ),
    formats=frozenset(
        {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
    ),
)
"""What its structured output takes, by the schemas that the official package writes for it."""

_COMMENTS = frozenset(
    {"$schema", "$id", "$anchor", "$comment", "$defs", "definitions", "examples", "readOnly", "writeOnly", "deprecated"}
    | {"contentEncoding", "contentMediaType", "contentSchema", "title", "description", "default"}
)
_MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset(
    {"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "additionalItems"}
    | {"unevaluatedProperties", "unevaluatedItems"}
)
_LENGTHS = frozenset({"minLength", "maxLength", "minItems", "maxItems"})
_TYPES = ("string", "number", "boolean", "object", "array")
_DEEP = 24
"""Levels after which a schema is written as any value: references may lead round."""


def sent_schema(schema: Schema, rules: SchemaRules) -> tuple[Node, tuple[str, ...]]:
    """The schema as it is sent, and the keywords that it lacks although they narrow, sorted."""
    writer = _Writer(schema, rules)
    out = writer.root()
    return out, tuple(sorted(writer.lost))


def sent_output(schema: Schema, rules: SchemaRules) -> tuple[Node | None, tuple[str, ...]]:
    """The schema of structured output as it is sent, every object closed, and the keywords that it lacks.

    None: it has a free-form object, which a server that wants closed ones would read as one that must be empty.
    """
    writer = _Writer(schema, rules)
    out = writer.node(schema)
    return (out if _close(out) else None), tuple(sorted(writer.lost))


def _close(node: Any) -> bool:
    """Closes every object; whether all of them name their properties."""
    if isinstance(node, list):
        return False not in [_close(item) for item in node]  # each of them is to be closed
    if not isinstance(node, dict):
        return True
    if "oneOf" in node:
        node["anyOf"] = [*node.get("anyOf", ()), *node.pop("oneOf")]
    named = True
    if node.get("type") == "object" or "properties" in node:
        named = bool(node.get("properties")) and not isinstance(node.get("additionalProperties"), dict)
        named = named or node.get("additionalProperties") is False
        node["additionalProperties"] = False
    maps = [value for key in _MAPS if isinstance(child := node.get(key), dict) for value in child.values()]
    parts = [node[key] for key in (*_LISTS, *_SCHEMAS) if key in node]
    return False not in [named, *(_close(part) for part in [*maps, *parts])]


class _Writer:
    def __init__(self, schema: Schema, rules: SchemaRules) -> None:
        self._schema = schema
        self._rules = rules
        self.lost: set[str] = set()

    # --- the root -------------------------------------------------------------------------------------------------

    def root(self) -> Node:
        """An object with its properties, free of combinators."""
        out = self._node(self._flat(self._schema, 0), 0)
        if self._rules.plain and "anyOf" in out:
            out = {}
        out["type"] = "object"
        out.pop("nullable", None)
        out.setdefault("properties", {})
        if "required" in out:
            out["required"] = [name for name in out["required"] if name in out["properties"]]
        return out

    def _flat(self, node: Any, depth: int) -> Node:
        """The object that a node describes, with the properties of all its branches."""
        if not isinstance(node, Mapping) or depth > _DEEP:
            return {}
        if not ROOT & node.keys():
            return dict(node)
        if "$ref" in node:
            rest = _without(node, {"$ref"})
            parts = [self._resolve(node["$ref"]), *(rest.get("allOf") or ())]
            return self._flat({**rest, "allOf": parts}, depth + 1)
        self.lost |= (ROOT & node.keys()) - {"allOf", "$ref"}
        out = _without(node, ROOT)
        properties = out["properties"] = dict(_mapping(node.get("properties")))
        required = list(node.get("required") or ())
        for part in self._parts(node.get("allOf"), depth):
            _add(properties, part)
            required += part.get("required") or ()
            out.update(_without(part, part.keys() - {"$defs", "definitions"}))
        for key in ("anyOf", "oneOf"):
            branches = self._parts(node.get(key), depth)
            _offer(properties, branches)
            required += _required_by_all(branches)
        _offer(properties, self._parts([node[key] for key in ("then", "else") if key in node], depth))
        if required:
            out["required"] = list(dict.fromkeys(required))
        return out

    def _parts(self, parts: Any, depth: int) -> list[Node]:
        return [self._flat(part, depth + 1) for part in parts] if isinstance(parts, list) else []

    def _resolve(self, ref: Any) -> Any:
        found: Any = self._schema
        if not isinstance(ref, str) or not ref.startswith("#"):
            return {}
        for part in ref[1:].split("/")[1:]:
            word = part.replace("~1", "/").replace("~0", "~")
            found = found.get(word) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else {}

    def node(self, schema: Schema) -> Node:
        """The schema of any value."""
        return self._node(schema, 0)

    # --- any node -------------------------------------------------------------------------------------------------

    def _node(self, node: Any, depth: int) -> Node:
        out = self._branch(node, depth)
        return {**out, "type": "string", "nullable": True} if self._rules.plain and out.get("type") == "null" else out

    def _branch(self, node: Any, depth: int) -> Node:
        """A node that may stand for null alone."""
        if not isinstance(node, Mapping):
            if node is False:
                self.lost.add("false")
            return self._any()
        if depth > _DEEP:
            self.lost.add("$ref")
            return self._any()
        if self._rules.plain:
            node = self._plain(node, depth)
        out: Node = {}
        for key, value in node.items():
            self._keyword(key, value, out, depth)
        if out.get("type") == "array" and not isinstance(out.get("items"), Mapping):
            out["items"] = self._any()
        if isinstance(out.get("required"), list) and isinstance(out.get("properties"), Mapping):
            out["required"] = [
                name for name in out["required"] if self._rules.plain is False or name in out["properties"]
            ]
        return self._shaped(out, depth) if self._rules.plain else out

    def _any(self) -> Node:
        """A schema for any value. Gemini wants a type: the one that a value of any kind can be written as."""
        return {"type": "string"} if self._rules.plain else {}

    def _keyword(self, key: str, value: Any, out: Node, depth: int) -> None:
        if key in self._rules.refused:
            self.lost |= set() if key in _COMMENTS or isinstance(value, bool) else {key}
        elif key in _MAPS and isinstance(value, Mapping):
            out[key] = {str(name): self._node(part, depth + 1) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            out[key] = [self._branch(part, depth + 1) for part in value]
        elif key in _SCHEMAS:
            out[key] = self._part(key, value, depth)
        elif self._narrows_too_much(key, value):
            self.lost.add(key)
        else:
            out[key] = value

    def _part(self, key: str, value: Any, depth: int) -> Any:
        if key == "items" and isinstance(value, list):  # draft 7's tuples: OpenAI wants one schema
            self.lost.add("items")
            return self._any()
        return value if isinstance(value, bool) and key != "items" else self._node(value, depth + 1)

    def _narrows_too_much(self, key: str, value: Any) -> bool:
        rules = self._rules
        if key == "format":
            return rules.formats is not None and value not in rules.formats
        if key == "pattern" and rules.anchored:
            return not (isinstance(value, str) and value.startswith("^") and value.endswith("$"))
        return key in _LENGTHS and rules.repeats is not None and isinstance(value, int) and value > rules.repeats

    # --- Gemini's form --------------------------------------------------------------------------------------------

    def _plain(self, node: Mapping[str, Any], depth: int) -> Node:
        """References and `allOf` merged, `const`, exclusive bounds and lists of types in other words."""
        out = self._merged(dict(node))
        if "oneOf" in out:
            out["anyOf"] = [*(out.get("anyOf") or ()), *out.pop("oneOf")]
        if "const" in out:
            out.setdefault("enum", [out.pop("const")])
        _type_of_enum(out)
        self._bound(out, "exclusiveMinimum", "minimum", 1)
        self._bound(out, "exclusiveMaximum", "maximum", -1)
        return out

    def _merged(self, out: Node) -> Node:
        """The node with its reference and the parts of `allOf` written into it."""
        for _ in range(_DEEP):
            if "$ref" not in out and "allOf" not in out:
                break
            parts = list(out.pop("allOf", None) or ())
            if "$ref" in out:
                parts.insert(0, self._resolve(out.pop("$ref")))
            for part in parts:
                out = self._both(out, _mapping(part))
        return out

    def _bound(self, out: Node, exclusive: str, bound: str, step: int) -> None:
        """An exclusive bound as an inclusive one: exact for whole numbers, else the next wider."""
        limit = out.pop(exclusive, None)
        if not isinstance(limit, (int, float)) or isinstance(limit, bool):
            return
        near: float = limit
        if out.get("type") == "integer":
            near = math.floor(limit) + 1 if step > 0 else math.ceil(limit) - 1
        else:
            self.lost.add(exclusive)
        known = out.get(bound, near)
        out[bound] = max(known, near) if step > 0 else min(known, near)

    def _both(self, one: Node, other: Mapping[str, Any]) -> Node:
        """What two schemas ask for together, as far as it can be written."""
        out = {**other, **one}
        if "properties" in one and "properties" in other:
            out["properties"] = {**_mapping(other["properties"]), **_mapping(one["properties"])}
        if "required" in one and "required" in other:
            out["required"] = list(dict.fromkeys([*other["required"], *one["required"]]))
        if "allOf" in other and "allOf" in one:
            out["allOf"] = [*one["allOf"], *other["allOf"]]
        twice = {key for key in one.keys() & other.keys() if one[key] != other[key]}
        self.lost |= twice - _COMMENTS - {"properties", "required", "allOf"}
        return out

    def _shaped(self, out: Node, depth: int) -> Node:
        """One type; null as `nullable`; enums of texts; `anyOf` alone."""
        if isinstance(kinds := out.get("type"), list):
            self._one_type(out, kinds, depth)
        if isinstance(values := out.get("enum"), list):
            self._texts(out, values)
        if isinstance(branches := out.get("anyOf"), list):
            return self._either(branches, out)
        if out.get("properties") == {} and depth:
            out.pop("properties")
            out.pop("required", None)
        if "type" not in out:
            out["type"] = "object" if "properties" in out else "array" if "items" in out else "string"
        if out["type"] == "array":
            out.setdefault("items", self._any())
        return out

    def _one_type(self, out: Node, kinds: list[Any], depth: int) -> None:
        rest = [kind for kind in kinds if kind != "null"]
        if len(rest) < len(kinds):
            out["nullable"] = True
        out.pop("type")
        if len(rest) == 1:
            out["type"] = rest[0]
        elif rest:
            out["anyOf"] = [self._node({"type": kind}, depth + 1) for kind in rest]

    def _texts(self, out: Node, values: list[Any]) -> None:
        """An enum of texts; one of other values cannot be written."""
        given = [value for value in values if value is not None]
        if len(given) < len(values):
            out["nullable"] = True
        if given and all(isinstance(value, str) for value in given):
            out["enum"], out["type"] = given, "string"
        else:
            self.lost.add("enum")
            out.pop("enum")

    def _either(self, branches: Sequence[Node], whole: Node) -> Node:
        nullable = bool(whole.get("nullable")) or any(_is_null(branch) for branch in branches)
        flat = [part for branch in branches for part in branch.get("anyOf", [branch])]
        rest = [dict(branch) for branch in flat if not _is_null(branch)] or [self._any()]
        self.lost |= whole.keys() - _COMMENTS - {"anyOf", "nullable", "type"}
        if nullable:
            rest[0]["nullable"] = True
        if "description" in whole:
            rest[0].setdefault("description", whole["description"])
        return rest[0] if len(rest) == 1 else {"anyOf": rest}


def _without(node: Mapping[str, Any], keys: AbstractSet[str]) -> Node:
    return {key: value for key, value in node.items() if key not in keys}


def _add(properties: Node, part: Node) -> None:
    """Adds the properties of a schema that holds as well."""
    for name, value in _mapping(part.get("properties")).items():
        known = properties.get(name)
        properties[name] = value if known in (None, value) else {"allOf": [known, value]}


def _required_by_all(branches: Sequence[Node]) -> list[str]:
    sets = [set(branch.get("required") or ()) for branch in branches]
    return sorted(set.intersection(*sets)) if sets else []


def _is_null(branch: Mapping[str, Any]) -> bool:
    return branch.get("type") == "null"


def _type_of_enum(node: Node) -> None:
    """A type for an enum that has none, and bounds in place of a single number."""
    values = node.get("enum")
    if not isinstance(values, list) or not values or "type" in node:
        return
    if all(isinstance(value, bool) for value in values):
        node["type"] = "boolean"
    elif all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        node["type"] = "integer"
    elif all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        node["type"] = "number"


def _offer(properties: Node, branches: Sequence[Node]) -> None:
    """Adds the properties of alternatives; those of one name are alternatives too."""
    found: dict[str, list[Any]] = {}
    for branch in branches:
        for name, value in _mapping(branch.get("properties")).items():
            if value not in found.setdefault(name, []):
                found[name].append(value)
    for name, values in found.items():
        if name not in properties:
            properties[name] = values[0] if len(values) == 1 else {"anyOf": values}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
