"""OpenAI's strict form of a schema: what its structured outputs accept, and xAI's, Azure's and Groq's after it.

One law: what fits the strict form fits the original once the nulls of optional parameters are dropped, as `mend` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from callgate.types import Schema

_DROPPED: Final = frozenset({"default", "uniqueItems", "minProperties", "maxProperties", "examples", "writeOnly"})
"""Keywords that the strict form refuses and that only narrow or comment; `mend` still checks them."""
_REFUSED: Final = frozenset(
    {"allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "prefixItems"}
    | {"contains", "unevaluatedProperties", "unevaluatedItems", "propertyNames"}
)
_FORMATS: Final = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
MAX_PROPERTIES: Final = 5000
MAX_LEVELS: Final = 10


class _Cannot(Exception):
    """The schema has no strict form."""


def strict_form(schema: Schema) -> dict[str, Any] | None:
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


def _node(node: Any, level: int) -> dict[str, Any]:
    if not isinstance(node, Mapping) or not node or level > MAX_LEVELS or _REFUSED & node.keys():
        raise _Cannot
    out: dict[str, Any] = {}
    for key, value in node.items():
        if key in _DROPPED or (key == "format" and value not in _FORMATS):
            continue
        if key in ("anyOf", "oneOf"):
            out["anyOf"] = [_node(part, level) for part in value]
        elif key == "items":
            out[key] = _node(value, level + 1)
        elif key in ("$defs", "definitions"):
            out[key] = {name: _node(part, 1) for name, part in value.items()}
        elif key not in ("properties", "required", "additionalProperties"):
            out[key] = value
    kinds = node.get("type")
    if "properties" in node or kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
        _close(node, out, level)
    elif not ({"type", "enum", "const", "anyOf", "$ref"} & out.keys()):
        raise _Cannot
    if out.get("type") == "array" and "items" not in out:
        raise _Cannot
    if "$ref" in out:  # beside a reference nothing else may stand
        return {"$ref": out["$ref"]}
    return out


def _close(node: Mapping[str, Any], out: dict[str, Any], level: int) -> None:
    if node.get("additionalProperties", False) is not False or "properties" not in node:
        raise _Cannot
    required = node.get("required") or ()
    out["properties"] = {
        name: _node(part, level + 1) if name in required else _nullable(_node(part, level + 1))
        for name, part in node["properties"].items()
    }
    out["required"] = list(node["properties"])
    out["additionalProperties"] = False


def _nullable(node: dict[str, Any]) -> dict[str, Any]:
    kinds = node.get("type")
    if isinstance(kinds, str) and kinds != "null" and not ({"enum", "const"} & node.keys()):
        return {**node, "type": [kinds, "null"]}
    if {"type": "null"} in node.get("anyOf", ()) or kinds == "null" or (isinstance(kinds, list) and "null" in kinds):
        return node
    if "anyOf" in node and not (node.keys() - {"anyOf", "description"}):
        return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    told = {"description": node.pop("description")} if "description" in node else {}
    return {**told, "anyOf": [node, {"type": "null"}]}
