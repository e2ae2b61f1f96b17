"""A JSON Schema made ready: checked once, references made safe, its validators kept.

jsonschema-rs always gets `offline=True`.

Law: a reference that leaves the document, leads nowhere or loops constrains nothing and is named in `notes`.
(tests/test_schema_mend.py::test_a_reference_that_leads_nowhere_constrains_nothing_and_is_noted)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from callgate.errors import ConfigError
from callgate.schema._place import escape
from callgate.schema.introspect import allowed_types, follow

if TYPE_CHECKING:
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
        # Most tools are checked by the schema alone; the fast path asks this one flag.
        self.plain = self.known is None and check is None
        self._registry: object = None
        self._own: dict[str, Any] = {}
        self._subs: dict[str, Any] = {"": self.valid}

    def valid_at(self, pointer: str, value: object) -> bool:
        """Whether a value fits the part of the schema at this JSON pointer."""
        valid = self._subs.get(pointer)
        if valid is None:
            if self._registry is None:
                self._registry = _load().Registry([(_URI, self.root)])
            # A reference into the registered document, not the part alone: inside it, `#/$defs/…` still starts at the
            # root.
            part = {**self._draft(), "$ref": f"{_URI}#{quote(pointer, safe=_URI_SAFE)}"}
            try:
                valid = _validator(part, registry=self._registry).is_valid
            except ConfigError:  # under a keyword that this draft does not know, so it constrains nothing
                valid = _anything
            self._subs[pointer] = valid
        return bool(valid(value))

    def accepts(self, value: object) -> bool:
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

    def _draft(self) -> dict[str, object]:
        return {"$schema": self.root["$schema"]} if isinstance(self.root, dict) and "$schema" in self.root else {}

    def own_errors(self, pointer: str, node: Mapping[str, object], value: object) -> list[object]:
        """jsonschema-rs's errors for the part at `pointer`, reduced to `node`; values never stand in their messages."""
        found = self._own.get(pointer)
        if found is None:
            # `mask`: jsonschema-rs quotes values in its messages, and a value may be a secret.
            found = self._own[pointer] = _validator({**self._draft(), **node}, mask="the value")
        return list(found.iter_errors(value))


def _anything(value: object) -> bool:
    return True


_URI: Final = "urn:callgate:schema"
_URI_SAFE: Final = "/~!$&'()*+,;=:@"


Check = Callable[[Mapping[str, object]], list[tuple[str, str]]]


def known_names(root: object) -> frozenset[str] | None:
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


def _validator(schema: object, **options: object) -> Any:
    rs = _load()
    try:
        return rs.validator_for(
            # `offline`: a schema may come from a server, and must not make this machine fetch addresses.
            schema,
            offline=True,
            pattern_options=rs.FancyRegexOptions(backtrack_limit=BACKTRACKS),
            **options,
        )
    except rs.ValidationError as error:
        where = "".join(f"/{escape(str(part))}" for part in error.instance_path)
        raise ConfigError(f"schema: {where + ': ' if where else ''}{error.message}") from error
    except (rs.ReferencingError, ValueError, TypeError) as error:
        first = str(error).split("\n")[0]
        raise ConfigError(f"schema: {first}") from error


def _load() -> Any:
    import jsonschema_rs

    return jsonschema_rs


class _Safe:
    """Copies a schema without references that must not be followed."""

    def __init__(self, schema: object, notes: list[str]) -> None:
        self.source = schema
        self.notes = notes
        self.nodes = 0
        draft = schema.get("$schema") if isinstance(schema, Mapping) else None
        # Up to 2019-09 a list under `items` was the tuple; `prefixItems` is of 2020-12.
        self.old = isinstance(draft, str) and ("/draft-0" in draft or "/2019-09/" in draft)

    def copy(self) -> Any:
        if not isinstance(self.source, (Mapping, bool)):
            raise ConfigError(f"schema: expected an object, got {type(self.source).__name__}")
        return self._copy(self.source, 0)

    def _copy(self, node: object, depth: int, *, keywords: bool = True, data: bool = False) -> object:
        """A copy of one node. `keywords`: its keys are the standard's; `data`: it is no schema but a value."""
        if not isinstance(node, (Mapping, list, tuple)):
            return node
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise ConfigError(f"schema: more than {MAX_NODES} objects and lists (MAX_NODES)")
        if depth > MAX_SCHEMA_DEPTH:
            raise ConfigError(f"schema: nested deeper than {MAX_SCHEMA_DEPTH} levels (MAX_SCHEMA_DEPTH)")
        if not isinstance(node, Mapping):
            return [self._copy(item, depth + 1, data=data) for item in node]
        for key in node:
            if not isinstance(key, str):
                raise ConfigError(f"schema: the key {key!r} is no text")
        if data:
            return {key: self._copy(value, depth + 1, data=True) for key, value in node.items()}
        if not keywords:
            return {key: self._copy(value, depth + 1) for key, value in node.items()}
        return self._copy_keywords(node, depth)

    def _copy_keywords(self, node: Mapping[str, object], depth: int) -> dict[str, object]:
        out: dict[str, object] = {}
        for key, value in node.items():
            if self._says_nothing(key, value, node):
                continue
            if reason := self._refused(key, value, node):
                self.notes.append(f"schema: {key} {value!r} {reason}; it constrains nothing")
                continue
            copied = self._local(value) if key == "$ref" and isinstance(value, str) else value
            out[key] = self._copy(copied, depth + 1, keywords=key not in _NAMED, data=key in _DATA)
        return out

    def _says_nothing(self, key: str, value: object, node: Mapping[str, object]) -> bool:
        """Keywords that are dropped without a note."""
        if key in ("$id", "id"):
            # Without a base all references are local, and those to the schema itself are made so.
            return node is self.source and isinstance(value, str)
        return key == "prefixItems" and self.old  # not a word of that draft (2020-12, section 10.3.1.1)

    def _local(self, ref: str) -> str:
        """A reference to the schema by its own name, as one inside the document."""
        own = self.source.get("$id") or self.source.get("id") if isinstance(self.source, Mapping) else None
        if not isinstance(own, str) or not own or not ref.startswith(own.removesuffix("#")):
            return ref
        rest = ref.removeprefix(own.removesuffix("#"))
        return rest if rest.startswith("#") else "#" if not rest else ref

    def _refused(self, key: str, value: object, node: Mapping[str, object]) -> str | None:
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

    def _loops(self, ref: str, node: object) -> bool:
        """Whether following this reference leads back to it without going a level down in the value."""
        seen: set[int] = set()
        todo = [follow(ref, self.source)]
        while todo:
            at = todo.pop()
            # Only references and combiners keep to the same value; below `properties` a loop is an ordinary recursive
            # type.
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
