"""A JSON Schema made ready: checked once, references made safe, its validators kept.

One law: a schema never reaches out. jsonschema-rs always gets `offline=True`; a reference that leaves the document,
leads nowhere or loops is cut out (it constrains nothing) and named in `notes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote

from callgate.errors import ConfigError
from callgate.schema._look import allowed_types, escape, follow
from callgate.types import Schema

MAX_NODES: Final = 50_000
"""Objects and lists in one schema. The largest real tool schemas have some hundreds."""
MAX_SCHEMA_DEPTH: Final = 100
"""Levels of one schema; jsonschema-rs itself stops at 255."""
BACKTRACKS: Final = 100_000
"""Steps a regular expression may go back; a pattern that needs more than this is an attack or a mistake."""

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_DATA: Final = frozenset({"const", "default", "enum", "examples"})
_NAMED: Final = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose keys are the author's names, not keywords."""


class CompiledSchema:
    """A schema with its validators. Made by `compile_schema`; safe to share between threads."""

    __slots__ = (
        "_own",
        "_registry",
        "_subs",
        "check",
        "known",
        "notes",
        "plain",
        "root",
        "schema",
        "types",
        "valid",
        "wants_object",
    )

    def __init__(self, schema: Schema | bool, *, closed: bool = False, check: Check | None = None) -> None:
        self.schema = schema
        """As it was given."""
        found: list[str] = []
        self.root = _Safe(schema, found).copy()
        """The same without what may not be followed."""
        self.notes = tuple(dict.fromkeys(found))
        self.types = allowed_types(self.root)
        self.wants_object = self.types == {"object"}
        self.valid = _validator(self.root).is_valid
        self.known = known_names(self.root) if closed else None
        """The only arguments that are taken; None: the schema alone decides (A5)."""
        self.check = check
        """What the tool's own types refuse beyond the schema."""
        self.plain = self.known is None and check is None
        self._registry: Any = None
        self._own: dict[str, Any] = {}
        self._subs: dict[str, Any] = {"": self.valid}

    def valid_at(self, pointer: str, value: Any) -> bool:
        """Whether a value fits the part of the schema at this JSON pointer."""
        valid = self._subs.get(pointer)
        if valid is None:
            if self._registry is None:
                self._registry = _load().Registry([(_URI, self.root)])
            part = {**self._draft(), "$ref": f"{_URI}#{quote(pointer, safe=_URI_SAFE)}"}
            try:
                valid = _validator(part, registry=self._registry).is_valid
            except ConfigError:  # under a keyword that this draft does not know, so nothing is said there
                valid = _anything
            self._subs[pointer] = valid
        return bool(valid(value))

    def accepts(self, value: Any) -> bool:
        """Whether a value may be used as it is."""
        try:
            return self.valid(value) and (self.plain or not self.refusals(value))
        except ValueError:  # half characters
            return False

    def refusals(self, value: Any) -> list[tuple[str, str]]:
        """What is wrong with a value that fits the schema: unknown arguments, or what the tool's types refuse."""
        if self.known is not None and isinstance(value, dict) and not value.keys() <= self.known:
            hint = f"known: {', '.join(sorted(self.known))}" if self.known else "none is taken here"
            return [(f"/{escape(key)}", f"unknown argument; {hint}") for key in value if key not in self.known]
        return self.check(value) if self.check is not None else []

    def _draft(self) -> dict[str, Any]:
        return {"$schema": self.root["$schema"]} if isinstance(self.root, dict) and "$schema" in self.root else {}

    def own_errors(self, pointer: str, node: Mapping[str, Any], value: Any) -> list[Any]:
        """jsonschema-rs's errors for the part at `pointer`, reduced to `node`; values never stand in their messages."""
        found = self._own.get(pointer)
        if found is None:
            found = self._own[pointer] = _validator({**self._draft(), **node}, mask="the value")
        return list(found.iter_errors(value))


def _anything(value: Any) -> bool:
    return True


_URI: Final = "urn:callgate:schema"
_URI_SAFE: Final = "/~!$&'()*+,;=:@"


Check = Callable[[Mapping[str, Any]], list[tuple[str, str]]]


def known_names(root: Any) -> frozenset[str] | None:
    """Every argument that a parameters schema names, through references and combiners.

    None if it takes others explicitly: a word about additional or pattern properties that is not a plain no.
    """
    names: set[str] = set()
    seen: set[int] = set()
    todo = [root]
    while todo:
        node = todo.pop()
        if node is None or not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        if node.get("patternProperties") or any(
            node.get(word) not in (None, False) for word in ("additionalProperties", "unevaluatedProperties")
        ):
            return None
        properties = node.get("properties")
        names |= properties.keys() if isinstance(properties, Mapping) else set()
        ref = node.get("$ref")
        todo += [follow(ref, root)] if isinstance(ref, str) else []
        todo += [node.get(word) for word in ("then", "else")]
        for word in _IN_PLACE:
            todo += node.get(word) or ()
        dependent = node.get("dependentSchemas")
        todo += dependent.values() if isinstance(dependent, Mapping) else ()
    return frozenset(names)


def compile_schema(schema: Schema | bool | CompiledSchema) -> CompiledSchema:
    """A schema made ready for `mend`. Raises ConfigError for what is no JSON Schema."""
    return schema if isinstance(schema, CompiledSchema) else CompiledSchema(schema)


def _validator(schema: Any, **options: Any) -> Any:
    rs = _load()
    try:
        return rs.validator_for(
            schema, offline=True, pattern_options=rs.FancyRegexOptions(backtrack_limit=BACKTRACKS), **options
        )
    except rs.ValidationError as error:
        where = "".join(f"/{escape(str(part))}" for part in error.instance_path)
        raise ConfigError(f"schema: {where + ': ' if where else ''}{error.message}") from error
    except (rs.ReferencingError, ValueError, TypeError) as error:
        raise ConfigError(f"schema: {str(error).splitlines()[0]}") from error


def _load() -> Any:
    import jsonschema_rs

    return jsonschema_rs


class _Safe:
    """Copies a schema without references that must not be followed."""

    def __init__(self, schema: Any, notes: list[str]) -> None:
        self.source = schema
        self.notes = notes
        self.nodes = 0
        draft = schema.get("$schema") if isinstance(schema, Mapping) else None
        self.old = isinstance(draft, str) and ("/draft-0" in draft or "/2019-09/" in draft)

    def copy(self) -> Any:
        if not isinstance(self.source, (Mapping, bool)):
            raise ConfigError(f"schema: expected an object, got {type(self.source).__name__}")
        return self._copy(self.source, 0)

    def _copy(self, node: Any, depth: int, *, names: bool = False, data: bool = False) -> Any:
        if not isinstance(node, (Mapping, list, tuple)):
            return node
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ConfigError(f"schema: more than {MAX_NODES} objects and lists (MAX_NODES)")
        if depth > MAX_SCHEMA_DEPTH:
            raise ConfigError(f"schema: nested deeper than {MAX_SCHEMA_DEPTH} levels (MAX_SCHEMA_DEPTH)")
        if not isinstance(node, Mapping):
            return [self._copy(item, depth + 1, data=data) for item in node]
        out: dict[str, Any] = {}
        for key, value in node.items():
            if not isinstance(key, str):
                raise ConfigError(f"schema: the key {key!r} is no text")
            keyword = not (names or data)
            if keyword and key in ("$id", "id") and node is self.source and isinstance(value, str):
                continue  # without a base all references are local, and those to the schema itself are made so
            if keyword and key == "prefixItems" and self.old:
                continue  # not a word of that draft: it says nothing
            if keyword and (reason := self._refused(key, value, node)):
                self.notes.append(f"schema: {key} {value!r} {reason}; it constrains nothing")
                continue
            if keyword and key == "$ref" and isinstance(value, str):
                value = self._local(value)  # noqa: PLW2901
            out[key] = self._copy(
                value, depth + 1, names=keyword and key in _NAMED, data=data or (keyword and key in _DATA)
            )
        return out

    def _local(self, ref: str) -> str:
        """A reference to the schema by its own name, as one inside the document."""
        own = self.source.get("$id") or self.source.get("id") if isinstance(self.source, Mapping) else None
        if not isinstance(own, str) or not own or not ref.startswith(own.removesuffix("#")):
            return ref
        rest = ref.removeprefix(own.removesuffix("#"))
        return rest if rest.startswith("#") else "#" if not rest else ref

    def _refused(self, key: str, value: Any, node: Mapping[str, Any]) -> str | None:
        """Why this keyword is left out; None: it stays."""
        if key == "$schema" and isinstance(value, str):
            return None if "json-schema.org/" in value else "is no known dialect of JSON Schema"
        if key in ("$id", "id") and isinstance(value, str):
            return None if value.startswith("#") else "would move the references below it"
        if key not in ("$ref", "$dynamicRef", "$recursiveRef") or not isinstance(value, str):
            return None
        value = self._local(value)
        if not value.startswith("#"):
            return "leaves the document"
        if follow(value, self.source) is None:
            return "leads nowhere"
        return "loops" if self._loops(value, node) else None

    def _loops(self, ref: str, node: Any) -> bool:
        """Whether following this reference leads back to it without going a level down in the value."""
        seen: set[int] = set()
        todo = [follow(ref, self.source)]
        while todo:
            at = todo.pop()
            if at is node:
                return True
            if not isinstance(at, Mapping) or id(at) in seen:
                continue
            seen.add(id(at))
            inner = at.get("$ref")
            todo += [follow(inner, self.source)] if isinstance(inner, str) else []
            for word in _IN_PLACE:
                parts = at.get(word)
                todo += parts if isinstance(parts, (list, tuple)) else []
        return False
