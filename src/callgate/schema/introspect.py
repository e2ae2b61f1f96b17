"""What a JSON Schema says about a value, without validating one: which types it admits, where a `$ref` leads.

A reference that loops, leads nowhere or leaves the document is as good as `true`, and nothing here ever reads a file or
the network.

Law: when in doubt, a schema constrains nothing.
(tests/test_schema_look.py::test_the_types_a_schema_admits)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from callgate.types import Schema

ALL_TYPES: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
MAX_LOOK: Final = 100
"""How deep references and combiners are followed; deeper than any schema people write, far from Python's own limit."""

_MISSING: Final = object()


def type_of(value: object) -> str:
    """The JSON Schema type of a Python value; whole floats are "integer", as the standard has it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "integer" if value.is_integer() else "number"
        case str():
            return "string"
        case Mapping():
            return "object"
        case _:
            return "array"


def follow(ref: str, root: object) -> object:
    """The schema a local reference (`#`, `#/a/b`, `#anchor`) leads to, or None."""
    if not ref.startswith("#"):
        return None
    place = unquote(ref[1:])
    if place and not place.startswith("/"):
        return _anchor(place, root)
    node: object = root
    for raw in place.split("/")[1:]:
        key = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping):
            node = node.get(key, _MISSING)
        elif isinstance(node, (list, tuple)) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            return None
    return node if isinstance(node, (Mapping, bool)) else None


def _anchor(name: str, root: object) -> object:
    for group in ("$defs", "definitions"):
        definitions = root.get(group) if isinstance(root, Mapping) else None
        for node in definitions.values() if isinstance(definitions, Mapping) else ():
            if isinstance(node, Mapping) and name in (node.get("$anchor"), node.get("$dynamicAnchor")):
                return node
    return None


def allowed_types(schema: Schema | bool, root: Schema | bool | None = None) -> frozenset[str]:
    """The JSON type names a value of this schema may have, through `$ref`, `anyOf`, `oneOf`, `allOf`, `enum`, `const`.

    All seven when nothing constrains it. "number" always comes with "integer". `root` is the document that `#/`
    references start from (default: the schema itself).
    """
    return _Types(schema if root is None else root).of(schema, MAX_LOOK)


class _Types:
    """One look through one document; each node is answered once."""

    def __init__(self, root: object) -> None:
        self.root = root
        self.known: dict[int, frozenset[str]] = {}

    def of(self, schema: object, depth: int) -> frozenset[str]:
        if schema is False:
            return frozenset()
        if not isinstance(schema, Mapping) or depth <= 0:
            return ALL_TYPES
        known = self.known.get(id(schema))
        if known is not None:
            return known
        self.known[id(schema)] = ALL_TYPES  # what a loop finds when it comes round: nothing constrained
        found = self.known[id(schema)] = self._look(schema, depth - 1)
        return found

    def _look(self, schema: Mapping[str, object], depth: int) -> frozenset[str]:
        types = _named(schema.get("type"))
        if "const" in schema:
            types &= _of_values([schema["const"]])
        if isinstance(schema.get("enum"), (list, tuple)):
            types &= _of_values(schema["enum"])
        ref = schema.get("$ref")
        if isinstance(ref, str):
            target = follow(ref, self.root)
            types &= ALL_TYPES if target is None else self.of(target, depth)
        for part in _parts(schema, "allOf"):
            types &= self.of(part, depth)
        for word in ("anyOf", "oneOf"):
            parts = _parts(schema, word)
            if parts:
                types &= frozenset().union(*(self.of(part, depth) for part in parts))
        return types


def _parts(schema: Mapping[str, object], word: str) -> list[object]:
    parts = schema.get(word)
    return list(parts) if isinstance(parts, (list, tuple)) else []


def _named(kind: object) -> frozenset[str]:
    names = [kind] if isinstance(kind, str) else kind if isinstance(kind, (list, tuple)) else None
    if names is None:
        return ALL_TYPES
    found = {name for name in names if isinstance(name, str)} & ALL_TYPES
    return frozenset(found | {"integer"} if "number" in found else found)


def _of_values(values: Any) -> frozenset[str]:
    found = {type_of(value) for value in values}
    return frozenset(found | {"number"} if "integer" in found else found)


def property_schema(schema: Schema | bool, name: str, root: Schema | bool | None = None) -> Schema | bool | None:
    """What a parameters schema says of one top-level property, through `$ref`, `allOf`, `anyOf` and `oneOf`.

    None if it says nothing. References inside the answer still start from `root` (default: the schema itself).
    """
    found = _property(schema, name, schema if root is None else root, MAX_LOOK, set())
    return found if isinstance(found, (Mapping, bool)) else None


def _property(schema: object, name: str, root: object, depth: int, seen: set[int]) -> object:
    if not isinstance(schema, Mapping) or depth <= 0 or id(schema) in seen:
        return None
    seen.add(id(schema))

    def inside(parts: list[object]) -> list[object]:
        return [found for part in parts if (found := _property(part, name, root, depth - 1, seen))]

    own = schema.get("properties")
    found = [own[name]] if isinstance(own, Mapping) and name in own else []
    ref = schema.get("$ref")
    found += inside([follow(ref, root)] if isinstance(ref, str) else [])
    found += inside(_parts(schema, "allOf"))
    for word in ("anyOf", "oneOf"):
        found += _joined("anyOf", inside(_parts(schema, word)))
    extra = schema.get("additionalProperties")
    if not found and isinstance(extra, Mapping):
        return extra
    return next(iter(_joined("allOf", found)), None)


def _joined(word: str, schemas: list[object]) -> list[object]:
    """Several schemas as one of them all, in a list; one as itself."""
    return [{word: schemas}] if len(schemas) > 1 else schemas


def is_recursive(schema: Schema | bool) -> bool:
    """Whether some value of this schema contains another value of the same part of it, without end."""
    done: set[int] = set()

    def loops(node: object, above: frozenset[int], depth: int) -> bool:
        if isinstance(node, (list, tuple)):
            return any(loops(item, above, depth) for item in node)
        if not isinstance(node, Mapping) or id(node) in done or depth <= 0:
            return False
        if id(node) in above:
            return True
        inside = above | {id(node)}
        ref = node.get("$ref")
        children = [value for key, value in node.items() if key not in ("$defs", "definitions", "enum", "const")]
        children += [follow(ref, schema)] if isinstance(ref, str) else []
        if any(loops(child, inside, depth - 1) for child in children):
            return True
        done.add(id(node))
        return False

    return loops(schema, frozenset(), MAX_LOOK)
