"""A tool's schema, closed, bounded, typed and free of references, as an engine can hold a model to it.

Law: a value that fits what is made here fits the tool's own schema, as far as the engine's grammar can say so.
(tests/test_protocols_grammar.py::test_a_bounded_schema_admits_only_what_the_true_one_takes)

Theory of operation. A node is first *resolved*: its reference followed, `allOf`, conditions and dependencies written
into it. Then it is one of alternatives, or of one type, and each type has its way to be bounded.
1. A reference that comes back is unrolled `MAX_UNROLL` times. From there on, and beyond `MAX_DEPTH` and `MAX_NODES`,
   a node is *closing*: only what must be there, by the shortest way to a value that has an end (`_height`).
2. What is narrower than the true schema is fine, as long as some value is left; what is wider is left to the check of
   the arguments, and to the reason that goes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from callgate.errors import ConfigError
from callgate.protocols._conjunction import Node, both, both_types, conjunction
from callgate.protocols._nodes import (
    KINDS,
    bounds,
    closed,
    distinct,
    either,
    fixed,
    implied,
    items_of,
    limits,
    nullable,
    texts,
    values_of,
)
from callgate.protocols._patterns import FORMATS, examples, matches
from callgate.schema.compiled import compile_schema

if TYPE_CHECKING:
    from callgate.protocols._engines import Engine
    from callgate.types import Schema

MAX_STRING = 240
"""Characters of a string argument that sets no length: an unbounded string is what small models loop in."""
MAX_ITEMS = (12, 4, 2)
"""Items of a list that sets no length, of a list in such a list, and of those further inside."""
MAX_UNROLL = 3
"""How often a schema that refers to itself is unrolled."""
MAX_DEPTH = 12
"""Levels from which a node is closing."""
MAX_NODES = 1500
"""Nodes from which every further one is closing: schemas that refer to several others would grow without end."""
MAX_LENGTH = 1999
"""Characters that a sent schema asks for: llama.cpp's grammar (llama-server, Ollama) refuses a request with a
repetition of exactly 2,000, and newer ones every least length above it."""
MAX_LIST = 1000
"""Items that a sent schema asks for: the same limit, with room for what a grammar multiplies it by."""
MAX_NUMBER = 10**15
SMALLEST = 1e-6
"""Bounds of a number that sets none, for engines that would let a model write digits for ever."""
ENDLESS = math.inf
LENGTH_FORMATS = frozenset({"date", "time", "date-time", "uuid"})
"""Formats that fix the length, and that every engine knows."""
_IN_PLACE = ("allOf", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies", "not")
_COMMENTS = frozenset({"description", "title", "default", "examples", "$defs", "definitions", "$schema", "$id"})


@dataclass(slots=True, frozen=True)
class _Path:
    """Where a node stands."""

    seen: Mapping[str, int] = field(default_factory=dict)
    """References on the way here -> how often."""
    depth: int = 0
    lists: int = 0
    """Lists around it."""
    closing: bool = False

    def down(self, **changes: Any) -> _Path:
        """One level further."""
        return replace(self, depth=self.depth + 1, **changes)

    def through(self, ref: str) -> _Path:
        """Past a reference."""
        return replace(self, seen={**self.seen, ref: self.seen.get(ref, 0) + 1})


class Bounder:
    """Rewrites one schema document; `root` is what `#/` references start from."""

    def __init__(self, root: Schema, engine: Engine) -> None:
        self._root = root
        self._engine = engine
        self._nodes = 0
        self._heights: dict[str, float] = {}

    def bound(self) -> Node:
        """The whole document."""
        return self._node(self._root, _Path())

    def _node(self, schema: Any, path: _Path) -> Node:
        if not isinstance(schema, Mapping):
            return self._any()
        self._nodes += 1
        if not path.closing and (path.depth > MAX_DEPTH or self._nodes > MAX_NODES):
            path = replace(path, closing=True)
        node, path = self._resolved(schema, path)
        if path.closing and self._height(node) == ENDLESS:
            return {"type": "null"}  # no value has an end: the tool can only refuse, but the grammar must end
        if "const" in node or (isinstance(node.get("enum"), list) and node["enum"]):
            return self._fixed(node)
        if (alternatives := self._alternatives(node)) is not None:
            return either(distinct([self._node(a, path.down()) for a in self._open(alternatives, path)]))
        return self._typed(node.get("type") or implied(node), node, path)

    def _typed(self, kind: Any, node: Node, path: _Path) -> Node:
        match kind:
            case "object":
                return self._object(node, path)
            case "array":
                return self._array(node, path)
            case "string":
                return self._string(node)
            case "integer" | "number":
                return self._number(kind, node)
            case "boolean" | "null":
                return {"type": kind}
            case _:
                return self._any()

    def _any(self) -> Node:
        return {"anyOf": [self._string({}), self._number("number", {}), {"type": "boolean"}, {"type": "null"}]}

    # --- one node of what stands in several places --------------------------------------------------------------------

    def _resolved(self, schema: Mapping[str, Any], path: _Path) -> tuple[Node, _Path]:
        """The node with everything that holds in its place written into it, and the references passed."""
        node: Node = {k: v for k, v in schema.items() if k != "$ref" and k not in _IN_PLACE}
        inner: set[str] = set()
        if isinstance(ref := schema.get("$ref"), str):
            target = self.look_up(ref)
            inner.add(ref)
            if target is not None:
                found, path = (
                    self._resolved(target, path.through(ref)) if path.seen.get(ref, 0) <= MAX_UNROLL + 1 else ({}, path)
                )
                # Since 2019-09 what stands beside a reference counts too.
                node = conjunction(node, found)
        for part in schema.get("allOf") or ():
            if isinstance(part, Mapping):
                found, path = self._resolved(part, path)
                node = conjunction(node, found)
        return self._conditioned(schema, node), path

    def _conditioned(self, schema: Mapping[str, Any], node: Node) -> Node:
        """Conditions, dependencies and what is excluded, as alternatives or narrower keywords."""
        if isinstance(schema.get("if"), Mapping):
            node = conjunction(node, {"oneOf": self._branches(schema, node)})
        for word in ("dependentRequired", "dependentSchemas", "dependencies"):
            for trigger, wanted in (schema.get(word) or {}).items():
                node = self._dependent(node, trigger, wanted)
        if isinstance(out := schema.get("not"), Mapping):
            node = self._excluded(node, out)
        return node

    def _branches(self, schema: Mapping[str, Any], node: Node) -> list[Node]:
        """A condition holds and its consequence with it; or a fixed value that it names is not taken."""
        condition = schema["if"]
        named = condition.get("properties") or {}
        ways = [{"allOf": [condition, schema.get("then", True)], "required": list(named)}]
        for name, about in named.items():
            fixed = values_of(about)
            known = values_of((node.get("properties") or {}).get(name))
            if fixed and known and (left := [v for v in known if v not in fixed]):
                narrowed = {"properties": {name: {"enum": left}}, "required": [name]}
                ways.append({"allOf": [narrowed, schema.get("else", True)]})
        return ways

    def _dependent(self, node: Node, trigger: str, wanted: Any) -> Node:
        """With the property, what it brings; without it, nothing of it."""
        more = {"required": wanted} if isinstance(wanted, list) else wanted
        if not isinstance(more, Mapping):
            return node
        if trigger in (node.get("required") or ()):
            return conjunction(node, self._resolved(more, _Path())[0])
        without = {"properties": {trigger: False}}
        return conjunction(node, {"anyOf": [without, {"allOf": [more], "required": [trigger]}]})

    def _excluded(self, node: Node, out: Mapping[str, Any]) -> Node:
        if isinstance(kinds := out.get("type"), (str, list)) and len(out) == 1:
            left = [k for k in KINDS.values() if k not in kinds and k != kinds] + ["object", "array"]
            return {**node, "type": both_types(node.get("type", left), [k for k in left if k not in kinds])}
        if values := values_of(out):
            return {**node, "x-not": [*node.get("x-not", ()), *values]}
        if isinstance(out.get("pattern"), str):
            return conjunction(node, {"x-not-pattern": [out["pattern"]]})
        if isinstance(names := out.get("required"), list) and len(names) == 1 and len(out) == 1:
            return conjunction(node, {"properties": {names[0]: False}})
        return node

    def _alternatives(self, node: Node) -> list[Node] | None:
        """The schemas of which a value fits one, each with what stands beside them; None: it is one itself."""
        for word in ("anyOf", "oneOf"):
            if branches := node.get(word):
                rest = {k: v for k, v in node.items() if k not in (word, "default", "title")}
                return [{"allOf": [rest, b]} if rest else dict(b) for b in branches if isinstance(b, Mapping)]
        kind = node.get("type") or implied(node)
        return [{**node, "type": k} for k in kind] if isinstance(kind, list) else None

    def _open(self, alternatives: Sequence[Any], path: _Path) -> Sequence[Any]:
        """Rule 1: the alternatives that may still be gone; when closing, the one that ends first."""
        if not path.closing and (kept := [a for a in alternatives if not self._is_over(a, path)]):
            return kept
        return [min(alternatives, key=self._height)] if alternatives else [{}]

    def _is_over(self, schema: Any, path: _Path) -> bool:
        """Whether a node is a reference that was unrolled often enough."""
        if not isinstance(schema, Mapping):
            return False
        if isinstance(ref := schema.get("$ref"), str) and path.seen.get(ref, 0) >= MAX_UNROLL:
            return True
        return any(self._is_over(part, path) for part in schema.get("allOf") or ())

    def look_up(self, ref: str) -> Mapping[str, Any] | None:
        """What a reference inside the document leads to."""
        if not ref.startswith("#"):
            return None
        found: object = self._root
        for step in ref[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~").replace("%25", "%").replace("%20", " ")
            if isinstance(found, list):
                number = int(key) if key.isdigit() else len(found)
                found = found[number] if number < len(found) else None
            else:
                found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else None

    # --- how soon a value ends ----------------------------------------------------------------------------------------

    def _height(self, schema: Any) -> float:
        """Levels of the flattest value that fits; ENDLESS: there is none."""
        if not isinstance(schema, Mapping):
            return 0
        if isinstance(ref := schema.get("$ref"), str):
            return max(self._ref_height(ref), self._height({k: v for k, v in schema.items() if k != "$ref"}))
        if "const" in schema or "enum" in schema:
            return 0
        own = max([0.0, *(self._height(part) for part in schema.get("allOf") or ())])
        for word in ("anyOf", "oneOf"):
            own = max(own, min((self._height(part) for part in schema.get(word) or ()), default=0))
        return max(own, self._inner_height(schema))

    def _inner_height(self, schema: Mapping[str, Any]) -> float:
        properties = schema.get("properties") or {}
        needed = [properties[name] for name in schema.get("required") or () if name in properties]
        if int(schema.get("minItems", 0)) > 0:
            items = schema.get("items")
            needed += [*(schema.get("prefixItems") or ()), *(items if isinstance(items, list) else [items])]
        return 1 + max(map(self._height, needed)) if needed else 0

    def _ref_height(self, ref: str) -> float:
        """Found by going round until nothing gets lower: references lead to each other."""
        if ref not in self._heights:
            self._heights[ref] = ENDLESS
            before: dict[str, float] = {}
            while before != self._heights:
                before = dict(self._heights)
                for name in before:
                    self._heights[name] = min(self._heights[name], self._height(self.look_up(name) or {}))
        return self._heights[ref]

    # --- types --------------------------------------------------------------------------------------------------------

    def _fixed(self, node: Node) -> Node:
        """The fixed values that the rest of the node takes as well."""
        values = values_of(node)
        rest = {k: v for k, v in node.items() if k not in _COMMENTS | {"enum", "const", "x-not", "x-not-pattern"}}
        excluded = node.get("x-not", ())
        try:
            valid = compile_schema(rest).valid if rest else None
            kept = [v for v in values if v not in excluded and (valid is None or valid(v))]
        except (ConfigError, ValueError):
            kept = values
        return fixed(kept or values)

    def _number(self, kind: str, node: Mapping[str, Any]) -> Node:
        made: Node = {"type": kind, **bounds(node, whole=kind == "integer")}
        if (step := node.get("multipleOf")) is not None and self._engine.digits and isinstance(step, (int, float)):
            # Other engines know digits but not divisibility; the call is checked against the real schema afterwards.
            made["multipleOf"] = step
        if excluded := [v for v in node.get("x-not", ()) if isinstance(v, (int, float))]:
            made |= {"x-not": excluded} if self._engine.grammar else {}
        if not self._engine.digits:
            return made
        if not made.keys() & {"minimum", "exclusiveMinimum"}:
            made["minimum"] = -MAX_NUMBER
        if not made.keys() & {"maximum", "exclusiveMaximum"}:
            made["maximum"] = MAX_NUMBER
        if kind == "number":
            made.setdefault("multipleOf", SMALLEST)
        return made

    def _string(self, node: Mapping[str, Any]) -> Node:
        if not self._engine.grammar and node.get("format") in LENGTH_FORMATS:
            return {"type": "string", "format": node["format"]}
        made: Node = {"type": "string", **self._shape(node)}
        if self._engine.lengths:
            least, most = limits(node, "Length", MAX_STRING, MAX_LENGTH)
            made |= {"minLength": least} if least else {}
            # The pattern's own length is bounded when its grammar is written.
            shaped = self._engine.grammar and bool(made.keys() & {"pattern", "format"})
            made |= {} if shaped and "maxLength" not in node else {"maxLength": most}
        return made

    def _shape(self, node: Mapping[str, Any]) -> Node:
        """What a text must look like, as far as the engine knows such a keyword."""
        # Some engines turn only a subset of regular expressions into a grammar and refuse the others: they get none.
        made = {"pattern": node["pattern"]} if self._engine.patterns and "pattern" in node else {}
        if self._engine.grammar:
            made |= {"format": node["format"]} if node.get("format") in FORMATS else {}
            made |= {k: v for k in ("x-not", "x-not-pattern") if (v := texts(node.get(k)))}
        return made

    def _array(self, node: Node, path: _Path) -> Node:
        items, fixed_items = items_of(node)
        least, most = limits(node, "Items", MAX_ITEMS[min(path.lists, len(MAX_ITEMS) - 1)], MAX_LIST)
        inner = path.down(lists=path.lists + 1)
        if isinstance(node.get("contains"), Mapping) and int(node.get("minContains", 1)) > 0 and not fixed_items:
            needed = int(node.get("minContains", 1))
            fixed_items = [both(items, node["contains"])] * needed + [items] * max(0, least - needed)
        if fixed_items:
            return self._tuple(fixed_items, items, (least, most), inner)
        if items is False or (self._is_over(items, path) or path.closing):
            if least == 0 or items is False:
                return {"type": "array", "items": {"type": "null"}, "minItems": 0, "maxItems": 0}
            most, inner = least, replace(inner, closing=True)
        made = {"type": "array", "items": self._node(items, inner), "minItems": least, "maxItems": most}
        return {**made, "uniqueItems": True} if node.get("uniqueItems") and self._engine.grammar else made

    def _tuple(self, fixed_items: list[Any], items: Any, limits: tuple[int, int], path: _Path) -> Node:
        """A list of its length."""
        least, most = limits
        fixed_items = (fixed_items + [items] * (least - len(fixed_items)))[: min(max(most, least), MAX_LIST)]
        parts = [self._node(item, path) for item in fixed_items]
        # Items that fit any place: OpenAI's strict mode, for one, refuses `prefixItems`.
        made = {"type": "array", "items": either(distinct(parts)), "minItems": len(parts), "maxItems": len(parts)}
        return {**made, "prefixItems": parts} if self._engine.grammar else made

    def _object(self, node: Node, path: _Path) -> Node:
        given = self._properties_of(node)
        required, kept = self._chosen(node, given, path)
        made: Node = {name: self._property(sub, path) for name, sub in given.items() if name in kept}
        if not self._engine.all_required:
            return closed(made, [name for name in made if name in required])
        # OpenAI's strict mode knows no optional property; a null stands for "left out", and `mend` drops it.
        return closed({n: s if n in required else nullable(s) for n, s in made.items()}, list(made))

    def _chosen(self, node: Node, given: Mapping[str, Any], path: _Path) -> tuple[list[str], set[str]]:
        """The properties that must be there, and all that are kept."""
        required = [name for name in dict.fromkeys(node.get("required") or ()) if name in given]
        more = [name for name in given if name not in required]
        # As many more as the number of properties asks for, the first ones first.
        required += more[: max(0, int(node.get("minProperties", 0)) - len(required))]
        free = [name for name in more if name not in required and self._is_free(given[name], path)]
        room = node.get("maxProperties", len(given)) - len(required)
        return required, {*required, *free[: max(0, room)]}

    def _is_free(self, schema: Any, path: _Path) -> bool:
        """Whether a property that may be left out is kept."""
        return not (path.closing or self._is_over(schema, path))

    def _property(self, schema: Any, path: _Path) -> Node:
        return self._node(schema, path.down(closing=path.closing or self._is_over(schema, path)))

    def _properties_of(self, node: Node) -> dict[str, Any]:
        """The properties that may be there, with those that only a pattern or a number asks for."""
        given = {n: s for n, s in (node.get("properties") or {}).items() if s is not False}
        named = node.get("properties") or {}
        for name in node.get("required") or ():
            if name not in named and (schema := self._schema_of(name, node)) is not False:
                given[name] = schema
        for name in self._made_names(node, int(node.get("minProperties", 0)) - len(given)):
            given.setdefault(name, self._schema_of(name, node))
        return given

    def _schema_of(self, name: str, node: Node) -> Any:
        """What a property must be that has no schema of its own."""
        for pattern, schema in (node.get("patternProperties") or {}).items():
            if matches(pattern, name):
                return schema
        return node.get("additionalProperties", True)

    def _made_names(self, node: Node, count: int) -> list[str]:
        """Names for properties of which only the number is asked."""
        if count <= 0:
            return []
        about = node.get("propertyNames") or {}
        if names := values_of(about):
            return [str(name) for name in names][:count]
        pattern = about.get("pattern") or next(iter(node.get("patternProperties") or ()), None)
        if pattern is not None and (found := examples(pattern, count)):
            return found
        return [f"key_{i}" for i in range(1, count + 1)] if node.get("additionalProperties", True) is not False else []
