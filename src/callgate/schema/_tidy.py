"""Schemas as models and constrained engines want them: no noise, closed, and where asked in OpenAI's strict form.

Law: a tidied schema takes what the original took, no less; a closed one refuses only what nobody named.
(tests/test_tools_describe.py::test_every_kind_of_annotation_goes_to_a_schema_and_back)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NOISE: Final = frozenset({"title", "discriminator"})
"""`title` repeats the name; `discriminator` is OpenAPI's, not JSON Schema's."""


def tidy(schema: Mapping[str, object]) -> dict[str, object]:
    """The schema without noise, its objects closed where it allows no more, unused definitions gone."""
    out = _walk(schema, names=False)
    assert isinstance(out, dict)
    used = _used(out)
    definitions = {name: node for name, node in out.pop("$defs", {}).items() if name in used}
    if definitions:
        out["$defs"] = definitions
    return out


def _walk(node: object, *, names: bool) -> object:
    if isinstance(node, list):
        return [_walk(item, names=False) for item in node]
    if not isinstance(node, Mapping):
        return node
    if names:
        return {key: _walk(value, names=False) for key, value in node.items()}
    out = {
        key: value if key in _DATA else _walk(value, names=key in _NAMED)
        for key, value in node.items()
        if key not in _NOISE
    }
    if out.get("required") == [] and "properties" in out:
        del out["required"]
    if "properties" in out and not (
        {"additionalProperties", "patternProperties", "unevaluatedProperties"} & out.keys()
    ):
        out["additionalProperties"] = False
    return out


def _used(schema: Mapping[str, Any]) -> set[str]:
    """Definitions that something outside them leads to."""
    found: set[str] = set()
    todo: list[object] = [{key: value for key, value in schema.items() if key != "$defs"}]
    while todo:
        node = todo.pop()
        if isinstance(node, Mapping):
            ref = node.get("$ref")
            name = ref.removeprefix("#/$defs/") if isinstance(ref, str) else None
            if name is not None and name not in found:
                found.add(name)
                todo.append(schema.get("$defs", {}).get(name.replace("~1", "/").replace("~0", "~")))
            todo += node.values()
        elif isinstance(node, list):
            todo += node
    return found
