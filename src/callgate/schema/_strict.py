"""OpenAI's strict form of a schema: what its structured outputs accept, and xAI's, Azure's and Groq's after it.

Law: what fits the strict form fits the original once the nulls of optional parameters are dropped, as `mend` does.
(tests/test_tools_describe.py::test_the_strict_form_obeys_its_rules_and_means_the_same)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from callgate.types import Schema

_DROPPED: Final = frozenset({"default", "uniqueItems", "minProperties", "maxProperties", "examples", "writeOnly"})
"""Keywords that the strict form refuses and that only narrow or comment; `mend` still checks them."""
_REFUSED: Final = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "prefixItems"}
    | {"contains", "unevaluatedProperties", "unevaluatedItems", "propertyNames"}
)
_CLOSED: Final = frozenset({"properties", "required", "additionalProperties"})
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
MAX_LEVELS: Final = 10


class _Cannot(Exception):
    """The schema has no strict form."""


def strict_form(schema: Schema) -> dict[str, object] | None:
    """The schema in strict form: all objects closed, all properties required, optional ones nullable.

    None if it has none (free-form objects, tuples, `allOf` …).
    """
    try:
        out = _node(schema, 0)
    except _Cannot:
        return None
    if out.get("type") != "object" or "anyOf" in out:
        return None
    return out


def _node(node: object, level: int) -> dict[str, object]:
    if not isinstance(node, Mapping) or not node or level > MAX_LEVELS or _REFUSED & node.keys():
        raise _Cannot
    out: dict[str, object] = {}
    for key, value in node.items():
        out |= _keyword(key, value, level)
    if "properties" in node or "object" in _types(node):
        _close(node, out, level)
    elif not ({"type", "enum", "const", "anyOf", "$ref"} & out.keys()):
        raise _Cannot
    if out.get("type") == "array" and "items" not in out:
        raise _Cannot
    if "$ref" in out:  # beside a reference nothing else may stand
        return {"$ref": out["$ref"]}
    return out


def _keyword(key: str, value: Any, level: int) -> dict[str, object]:
    """What one keyword becomes; nothing for those that are dropped, or written by `_close`."""
    if key in _DROPPED or key in _CLOSED or (key == "format" and value not in _FORMATS):
        return {}
    match key:
        case "anyOf" | "oneOf":  # only `anyOf` is taken; `mend` still checks the original
            return {"anyOf": [_node(part, level) for part in value]}
        case "items":
            return {key: _node(value, level + 1)}
        case "$defs" | "definitions":
            return {key: {name: _node(part, 1) for name, part in value.items()}}
        case _:
            return {key: value}


def _types(node: Mapping[str, object]) -> list[object]:
    kinds = node.get("type")
    return kinds if isinstance(kinds, list) else [kinds]


def _close(node: Mapping[str, Any], out: dict[str, object], level: int) -> None:
    if node.get("additionalProperties", False) is not False or "properties" not in node:
        raise _Cannot
    required = node.get("required") or ()
    out["properties"] = {
        name: _node(part, level + 1) if name in required else _nullable(_node(part, level + 1))
        for name, part in node["properties"].items()
    }
    out["required"] = list(node["properties"])
    out["additionalProperties"] = False


def _nullable(node: dict[str, Any]) -> dict[str, object]:
    kinds = node.get("type")
    if isinstance(kinds, str) and kinds != "null" and not ({"enum", "const"} & node.keys()):
        return {**node, "type": [kinds, "null"]}
    if {"type": "null"} in node.get("anyOf", ()) or kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return node
    if "anyOf" in node and not (node.keys() - {"anyOf", "description"}):
        return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    text = {"description": node.pop("description")} if "description" in node else {}
    return {**text, "anyOf": [node, {"type": "null"}]}
