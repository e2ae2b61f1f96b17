"""What is wrong with arguments, in words a model can act on.

Values of fields marked secret (`writeOnly`, `format: password`) are never quoted.

Law: one error a line, `pointer: what was expected, what came`.
(tests/test_schema_words.py::test_errors_say_where_what_was_expected_and_what_came)

Theory of operation. The walk goes down only where the value fails, one alternative of an `anyOf` at most, so it costs
no more than the check (a validator's own list of errors takes all alternatives at every level: a recursive schema makes
it exponential). What a node requires of the value itself is asked of jsonschema-rs, without its sub-schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from callgate.schema._place import Place, escape, items_of, list_of, pointer_of
from callgate.schema._quote import SHOWN, is_secret, resolved, show
from callgate.schema.introspect import MAX_LOOK, allowed_types, follow, property_schema, type_of

if TYPE_CHECKING:
    from callgate.schema.compiled import CompiledSchema

MAX_ERRORS: Final = 20
"""A model mends some errors at a time; a thousand are one."""
_BELOW: Final = frozenset(
    {"properties", "items", "prefixItems", "additionalItems", "$ref", "allOf", "anyOf", "oneOf", "$defs", "definitions"}
)
_WORDS: Final = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_DEEP: Final = frozenset(
    {"not", "if", "then", "else", "contains", "dependentSchemas", "dependencies", "propertyNames", "patternProperties"}
    | {"unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"}
)

Error = tuple[str, str]


def explain(value: object, compiled: CompiledSchema) -> list[Error]:
    """Why a value does not fit, as (pointer, message): each error once, at most MAX_ERRORS."""
    found: dict[Error, None] = {}
    for error in _Walk(compiled).of(value, compiled.root, Place("", "", MAX_LOOK), ()):
        if len(found) == MAX_ERRORS and error not in found:
            return [*found, ("", f"and more; the first {MAX_ERRORS} errors are listed")]
        found[error] = None
    return list(found) or [("", "does not fit the schema")]


class _Walk:
    def __init__(self, compiled: CompiledSchema) -> None:
        self.compiled = compiled

    def of(self, value: object, node: object, at: Place, path: tuple[object, ...]) -> Iterator[Error]:
        """The errors of one part of the value against one part of the schema."""
        if at.left <= 0 or self.compiled.valid_at(at.schema, value):
            return
        if not isinstance(node, Mapping):
            yield at.value, "not allowed here"
            return
        found = False
        for error in self._parts(value, node, at, path):
            found = True
            yield error
        if not found:
            words = ", ".join(sorted(_DEEP & node.keys())) or "schema"
            yield at.value, f"does not meet the conditions of `{words}`{self._got(value, path)}"

    def _parts(self, value: object, node: Mapping[str, object], at: Place, path: tuple[object, ...]) -> Iterator[Error]:
        ref = node.get("$ref")
        if isinstance(ref, str):
            yield from self.of(value, follow(ref, self.compiled.root), at.jump(pointer_of(ref)), path)
        for i, part in enumerate(list_of(node.get("allOf"))):
            yield from self.of(value, part, at.in_schema(f"allOf/{i}"), path)
        for word in ("anyOf", "oneOf"):
            if word in node:
                yield from self._branches(value, list_of(node[word]), at.in_schema(word), path)
        for error in self.compiled.own_errors(at.schema, _shallow(node), value):
            yield from self._own(error, value, node, at.value, path)
        if isinstance(value, dict):
            yield from self._object(value, node, at, path)
        elif isinstance(value, list):
            for i, child in enumerate(value):
                where = items_of(node, i)
                if where:
                    yield from self.of(child, where[1], at.down(where[0], str(i)), (*path, i))

    def _object(
        self, value: dict[str, object], node: Mapping[str, object], at: Place, path: tuple[object, ...]
    ) -> Iterator[Error]:
        properties, extra = node.get("properties"), node.get("additionalProperties")
        properties = properties if isinstance(properties, Mapping) else {}
        for key, child in value.items():
            if key in properties:
                place = at.down(f"properties/{escape(key)}", key)
                yield from self.of(child, properties[key], place, (*path, key))
            elif isinstance(extra, Mapping) and "patternProperties" not in node:
                yield from self.of(child, extra, at.down("additionalProperties", key), (*path, key))

    def _branches(self, value: object, parts: list[Any], at: Place, path: tuple[object, ...]) -> Iterator[Error]:
        """No alternative fits: the errors of the only one that could, or what any of them would take."""
        if any(self.compiled.valid_at(f"{at.schema}/{i}", value) for i in range(len(parts))):
            if sum(self.compiled.valid_at(f"{at.schema}/{i}", value) for i in range(len(parts))) > 1:
                yield at.value, f"fits more than one of the alternatives, must fit exactly one{self._got(value, path)}"
            return
        root = self.compiled.root
        near = [i for i, part in enumerate(parts) if type_of(value) in allowed_types(part, root)]
        named = [i for i in near if self._named(value, parts[i])]
        near = named if len(named) == 1 else near
        if len(near) == 1 and isinstance(value, (dict, list)):
            yield from self.of(value, parts[near[0]], at.in_schema(str(near[0])), path)
            return
        wanted = [self._wanted(part) for part in parts]
        if near and isinstance(value, (dict, list)):
            yield at.value, f"fits none of the {len(parts)} alternatives: {' or '.join(dict.fromkeys(wanted))}"
        else:
            yield at.value, f"expected {' or '.join(dict.fromkeys(wanted))}{self._got(value, path)}"

    def _named(self, value: object, part: Any) -> bool:
        """Whether a branch's constants (a discriminator) stand in the value."""
        if not isinstance(value, dict):
            return False
        root = self.compiled.root
        constants = {
            key: options
            for key in value
            if (options := list_of(_options_of(resolved(property_schema(part, key, root), root))))
        }
        return bool(constants) and all(value[key] in options for key, options in constants.items())

    def _wanted(self, part: Any) -> str:
        here = resolved(part, self.compiled.root)
        options = _options_of(here)
        if options:
            return f"one of {_listed(options)}" if len(options) > 1 else _json(options[0])
        types = allowed_types(part, self.compiled.root)
        if "properties" in here and "object" in types:
            return f"an object with {', '.join(map(str, here.get('required') or here['properties'])) or 'no fields'}"
        return _types(types - {"integer"} if "number" in types else types)

    def _own(
        self, error: Any, value: object, node: Mapping[str, Any], at: str, path: tuple[object, ...]
    ) -> Iterator[Error]:
        """One of jsonschema-rs's errors about the value itself."""
        kind = error.kind
        match type(kind).__name__:
            case "Required":
                yield f"{at}/{escape(str(kind.property))}", "missing"
            case "AdditionalProperties":
                known = ", ".join(map(str, node.get("properties") or ()))
                hint = f"; known: {known}" if known else "; none is taken here"
                for key in kind.unexpected:
                    yield f"{at}/{escape(str(key))}", f"unknown argument{hint}"
            case "Type":
                yield at, f"expected {_types(kind.types)}{self._got(value, path)}"
            case "Enum":
                yield at, f"expected one of {_listed(list_of(node.get('enum')))}{self._got(value, path)}"
            case "Constant":
                yield at, f"expected {_json(node.get('const'))}{self._got(value, path)}"
            case _:
                yield at, error.message + self._got(value, path)

    def _got(self, value: object, path: Sequence[object]) -> str:
        return "" if is_secret(path, self.compiled.root) else f", got {show(value)}"


def _shallow(node: Mapping[str, Any]) -> dict[str, object]:
    """What a node says of the value itself: its sub-schemas taken out, the names of its properties kept."""
    out = {key: value for key, value in node.items() if key not in _BELOW | _WORDS | _DEEP}
    if isinstance(out.get("additionalProperties"), Mapping):
        del out["additionalProperties"]
    if "additionalProperties" in out:
        out["properties"] = {key: {} for key in node.get("properties") or ()}
        if "patternProperties" in node:
            out["patternProperties"] = {key: {} for key in node["patternProperties"]}
    return out


def _options_of(node: Mapping[str, object]) -> list[object]:
    return [node["const"]] if "const" in node else list_of(node.get("enum"))


def _types(types: Any) -> str:
    names = [types] if isinstance(types, str) else sorted(types, key=lambda name: (name == "null", name))
    return " or ".join(names) if len(names) < 7 else "any value"


def _listed(options: Sequence[object]) -> str:
    shown = ", ".join(_json(option) for option in options[:40])
    return shown + (f" and {len(options) - 40} more" if len(options) > 40 else "")


def _json(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 3 * SHOWN else f"{text[: 3 * SHOWN]}…"
