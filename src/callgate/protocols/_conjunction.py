"""What two schemas ask for together, as one schema.

Law: a value that fits the conjunction fits both; what cannot be written as one schema stays under `allOf`.
(tests/test_protocols_grammar.py::test_a_bounded_schema_admits_only_what_the_true_one_takes)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, TypeAlias

Node: TypeAlias = dict[str, Any]

MAX_PRODUCT = 64
"""Alternatives that two lists of alternatives come to together."""
_LARGEST = frozenset({"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"})
_SMALLEST = frozenset({"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"})
_COMMENTS = frozenset({"title", "description", "default", "examples", "$comment", "deprecated", "$defs", "definitions"})


def conjunction(one: Mapping[str, Any], other: Mapping[str, Any]) -> Node:
    """One schema for both. Neither holds a reference or `allOf` at its top."""
    out: Node = dict(one)
    for key, value in other.items():
        if key not in out or out[key] == value or key in _COMMENTS:
            out.setdefault(key, value)
        else:
            _join(out, key, value)
    return out


def _join(out: Node, key: str, value: Any) -> None:
    """The keyword with both of its values in effect; one that is not known here keeps the first."""
    join = _JOINS.get(key)
    if join is not None:
        out[key] = join(out[key], value)


def _largest(one: Any, other: Any) -> Any:
    return max(one, other) if _is_number(one) and _is_number(other) else one


def _smallest(one: Any, other: Any) -> Any:
    return min(one, other) if _is_number(one) and _is_number(other) else one


def _all_properties(one: Mapping[str, Any], other: Mapping[str, Any]) -> Node:
    return {**one, **{n: both(one[n], s) if n in one else s for n, s in other.items()}}


def _common_multiple(one: Any, other: Any) -> Any:
    return math.lcm(one, other) if isinstance(one, int) and isinstance(other, int) else one


def both(one: Any, other: Any) -> Any:
    """Both schemas, joined when they are looked at; a bare false is that no value fits."""
    if one is False or other is False:
        return False
    parts = [part for part in (one, other) if isinstance(part, Mapping) and part]
    return {"allOf": parts} if len(parts) > 1 else parts[0] if parts else True


def _product(one: Iterable[Any], other: Iterable[Any]) -> list[Any]:
    pairs = list(product(one, other))
    return [both(a, b) for a, b in pairs[:MAX_PRODUCT]]


def both_types(one: Any, other: Any) -> Any:
    """The types that both lists of types allow; an integer is a number."""
    kinds = [
        kind for kind in _listed(one) if kind in _listed(other) or (kind == "integer" and "number" in _listed(other))
    ]
    kinds += [kind for kind in _listed(other) if kind == "integer" and "number" in _listed(one) and kind not in kinds]
    return kinds[0] if len(kinds) == 1 else kinds


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_JOINS: Mapping[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(_LARGEST, _largest),
    **dict.fromkeys(_SMALLEST, _smallest),
    **dict.fromkeys(("properties", "patternProperties"), _all_properties),
    **dict.fromkeys(("items", "additionalProperties", "contains", "propertyNames"), both),
    **dict.fromkeys(("pattern", "x-not-pattern", "x-not"), lambda one, other: [*_listed(one), *_listed(other)]),
    **dict.fromkeys(("anyOf", "oneOf"), _product),
    "type": both_types,
    "required": lambda one, other: list(dict.fromkeys([*one, *other])),
    "enum": lambda one, other: [value for value in one if value in other],
    "multipleOf": _common_multiple,
    "uniqueItems": lambda one, other: bool(one or other),
}
