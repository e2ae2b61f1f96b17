"""Where a path into a tool's arguments leads, by the tool's schema.

Law: a path that no valid call can have is an error; where the schema leaves something open, nothing is claimed.
(tests/test_policy_settings.py::test_a_name_with_a_slip_in_it_never_passes)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from callgate.errors import ConfigError
from callgate.policy._match import did_you_mean
from callgate.schema.introspect import allowed_types, follow

if TYPE_CHECKING:
    from callgate.types import ToolSpec

Node: TypeAlias = "Mapping[str, object]"
MAX_DEPTH = 50
"""How deep references and combiners are followed; what lies deeper counts as open."""


def types_at(spec: ToolSpec, path: str, where: str) -> frozenset[str] | None:
    """The JSON types of the argument at a dotted path; lists are gone through. None: the schema leaves it open.

    Raises ConfigError if no call of the tool can have it.
    """
    nodes: list[Node] = [spec.parameters]
    closed = spec.strict  # the gate closes the arguments themselves; what lies inside is closed as its schema says
    for name in path.split("."):
        variants = [v for node in nodes for v in _variants(node, spec.parameters, MAX_DEPTH)]
        found, names, is_open = _step(variants, name)
        if not found:
            if is_open or (not names and not closed):
                return None
            near = did_you_mean(name, names) if names else " (it takes no arguments)"
            raise ConfigError(f"{where}: {spec.name} has no argument {path!r}{near}")
        nodes, closed = found, False
    types = frozenset[str]().union(*(allowed_types(n, spec.parameters) for n in nodes))
    return types - {"array"} | _item_types(nodes, spec.parameters) if "array" in types else types


def _step(variants: Sequence[Node], name: str) -> tuple[list[Node], set[str], bool]:
    """(the schemas of the property, the names that there are, whether others are allowed)."""
    found: list[Node] = []
    names: set[str] = set()
    is_open = False
    for node in variants:
        own = node.get("properties")
        if isinstance(own, Mapping):
            names |= own.keys()
            if name in own:
                found.append(own[name] if isinstance(own[name], Mapping) else {})
                continue
        extra = node.get("additionalProperties")
        if isinstance(extra, Mapping):
            found.append(extra)
        is_open |= extra is True or "patternProperties" in node
    return found, names, is_open


def _variants(node: object, root: Node, depth: int) -> Iterator[Node]:
    """The schema and everything that combines into it; the items of a list stand for the list."""
    if not isinstance(node, Mapping) or depth <= 0:
        return
    yield node
    ref = node.get("$ref")
    inner: list[object] = [follow(ref, root)] if isinstance(ref, str) else []
    for word in ("allOf", "anyOf", "oneOf", "prefixItems"):
        parts = node.get(word)
        inner += parts if isinstance(parts, (list, tuple)) else []
    inner += [node.get(word) for word in ("items", "if", "then", "else")]
    for part in inner:
        yield from _variants(part, root, depth - 1)


def _item_types(nodes: Sequence[Node], root: Node) -> frozenset[str]:
    """The types of the items, one level deep after another; unknown items may be anything."""
    variants = [v for node in nodes for v in _variants(node, root, MAX_DEPTH)]
    items = [item for v in variants if isinstance(item := v.get("items"), Mapping)]
    if not items:
        return allowed_types({})
    return frozenset[str]().union(*(allowed_types(item, root) for item in items))
