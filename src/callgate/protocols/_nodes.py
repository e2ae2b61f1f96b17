"""Small parts of schemas: what a node says about its type, its limits, its items and its fixed values.

Law: that of the room (callgate/protocols/__init__.py).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

Node: TypeAlias = dict[str, Any]
KINDS: dict[type, str] = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}


def closed(properties: Node, required: list[str]) -> Node:
    """An object of these properties and no others."""
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def bounds(node: Mapping[str, Any], *, whole: bool) -> Node:
    """The bounds of a number; those of an integer as integers. Draft 4 has a flag for what is exclusive."""
    given = {k: node[k] for k in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum") if k in node}
    made = {k: v for k, v in given.items() if isinstance(v, (int, float)) and not isinstance(v, bool)}
    for side in ("inimum", "aximum"):
        if given.get(f"exclusiveM{side}") is True and f"m{side}" in made:
            made[f"exclusiveM{side}"] = made.pop(f"m{side}")
    return {k: _as_whole(k, v) for k, v in made.items()} if whole else made


def _as_whole(key: str, value: float) -> float:
    if isinstance(value, int) or not math.isfinite(value):
        return value
    # The nearest integer on the side that is allowed: an exclusive 2.5 is an inclusive 3, or an exclusive 2.
    return math.ceil(value) if key in ("minimum", "exclusiveMaximum") else math.floor(value)


def limits(node: Mapping[str, Any], kind: str, usual: int, limit: int) -> tuple[int, int]:
    """The least and the most of a repetition, neither above what an engine's grammar takes."""
    least = min(int(node.get(f"min{kind}", 0)), limit)
    return least, max(least, min(int(node.get(f"max{kind}", max(usual, least))), limit))


def items_of(node: Mapping[str, Any]) -> tuple[Any, list[Any]]:
    """The schema of free items, and those of fixed places; up to 2019-09 a list under `items` was the tuple."""
    items = node.get("items", True)
    if isinstance(items, list):
        return node.get("additionalItems", True), list(items)
    return items, list(node.get("prefixItems") or ())


def values_of(schema: Any) -> list[Any]:
    """The fixed values of a schema."""
    if not isinstance(schema, Mapping):
        return []
    if "const" in schema:
        return [schema["const"]]
    return list(schema["enum"]) if isinstance(schema.get("enum"), list) else []


def texts(values: Any) -> list[str]:
    return [value for value in values or () if isinstance(value, str)]


def fixed(values: Sequence[object]) -> Node:
    """A choice of values, with their type if they have one."""
    types = {KINDS.get(type(v)) for v in values}
    one = types.pop() if len(types) == 1 else None
    return {"type": one, "enum": list(values)} if one else {"enum": list(values)}


def implied(schema: Mapping[str, Any]) -> str:
    """The type that a schema without `type` means by its other keys."""
    for kind, words in _SPEAK_OF.items():
        if words & schema.keys():
            return kind
    return "any"


_SPEAK_OF: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "additionalProperties", "minProperties", "patternProperties", "required"}),
    "array": frozenset({"items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"}),
    "string": frozenset({"pattern", "minLength", "maxLength", "format"}),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
}


def either(branches: list[Node]) -> Node:
    """One of them."""
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


def nullable(schema: Node) -> Node:
    """It, or null."""
    return {"anyOf": distinct([*schema.get("anyOf", [schema]), {"type": "null"}])}


def distinct(schemas: list[Node]) -> list[Node]:
    """Each alternative once."""
    out: list[Node] = []
    for schema in schemas:
        out += [s for s in schema.get("anyOf", [schema]) if s not in out]
    return out
