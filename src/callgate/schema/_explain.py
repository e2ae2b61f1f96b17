"""What is wrong with arguments, in words a model can act on.

One law: one error a line, `pointer: what was expected, what came`; values of fields marked secret (`writeOnly`,
`format: password`) are never quoted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from callgate.schema._look import escape, follow, property_schema, type_of

MAX_ERRORS: Final = 20
"""A model mends some errors at a time; a thousand are one."""
SHOWN: Final = 60
"""Characters of a value that are quoted."""

Error = tuple[str, str]


def explain(errors: Sequence[Any], value: Any, root: Any) -> list[Error]:
    """jsonschema-rs's errors as (pointer, message), each field once, at most MAX_ERRORS."""
    found: dict[Error, None] = {}
    for error in errors:
        for one in _one(error, value, root):
            found[one] = None
        if len(found) > MAX_ERRORS:
            break
    rows = list(found)
    if len(rows) > MAX_ERRORS:
        rows = [*rows[:MAX_ERRORS], ("", f"and more; the first {MAX_ERRORS} errors are listed")]
    return rows


def pointer(path: Sequence[Any]) -> str:
    """A path as a JSON pointer."""
    return "".join(f"/{escape(str(part))}" for part in path)


def _one(error: Any, value: Any, root: Any) -> list[Error]:
    path = list(error.instance_path)
    at, kind, name = pointer(path), error.kind, type(error.kind).__name__
    if name == "Required":
        return [(f"{at}/{escape(str(kind.property))}", "missing")]
    if name in ("AdditionalProperties", "UnevaluatedProperties"):
        known = _known(error, root)
        hint = f"; known: {', '.join(known)}" if known else "; none is taken here"
        return [(f"{at}/{escape(str(key))}", f"unknown argument{hint}") for key in kind.unexpected]
    got = "" if _secret(path, root) else f", got {show(_at(value, path))}"
    match name:
        case "Type":
            return [(at, f"expected {_types(kind.types)}{got}")]
        case "Enum":
            return [(at, f"expected one of {_options(kind.options)}{got}")]
        case "Constant":
            return [(at, f"expected {_json(kind.expected_value)}{got}")]
        case "AnyOf" | "OneOfNotValid":
            return _branches(error, value, root, got)
        case "FalseSchema":
            return [(at, "not allowed here")]
        case "OneOfMultipleValid":
            return [(at, f"fits more than one of the alternatives, must fit exactly one{got}")]
        case _:
            return [(at, error.message.replace("the value", "the value", 1) + got)]


def _branches(error: Any, value: Any, root: Any, got: str) -> list[Error]:
    """No alternative fits: the errors of the one that came closest, or the types that would do."""
    at = pointer(list(error.instance_path))
    here = len(list(error.instance_path))
    branches = [list(branch) for branch in error.kind.context]
    deeper = [branch for branch in branches if not any(_shallow(one, here) for one in branch)]
    if len(deeper) == 1:
        return [row for one in deeper[0] for row in _one(one, value, root)]
    wanted = [_wanted(branch) for branch in branches]
    if all(wanted):
        return [(at, f"expected {' or '.join(dict.fromkeys(w for w in wanted if w))}{got}")]
    return [(at, f"fits none of the {len(branches)} alternatives{got}")]


def _shallow(error: Any, depth: int) -> bool:
    return len(list(error.instance_path)) <= depth and type(error.kind).__name__ in ("Type", "Enum", "Constant")


def _wanted(branch: Sequence[Any]) -> str | None:
    for error in branch:
        match type(error.kind).__name__:
            case "Type":
                return _types(error.kind.types)
            case "Enum":
                return f"one of {_options(error.kind.options)}"
            case "Constant":
                return _json(error.kind.expected_value)
    return None


def _types(types: Any) -> str:
    names = [types] if isinstance(types, str) else sorted(types)
    return " or ".join(names)


def _options(options: Any) -> str:
    values = json.loads(options) if isinstance(options, str) else options
    shown = ", ".join(_json(option) for option in values[:40])
    return shown + (f" and {len(values) - 40} more" if len(values) > 40 else "")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def show(value: Any) -> str:
    """A value named and quoted briefly: `the string "abc…"`."""
    kind = type_of(value)
    if kind in ("array", "object"):
        return f"an {kind}" if value else f"an empty {kind}"
    text = _json(value)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return text if kind in ("null", "boolean") else f"the {'number' if kind != 'string' else kind} {text}"


def _at(value: Any, path: Sequence[Any]) -> Any:
    for part in path:
        value = value[part]
    return value


def _known(error: Any, root: Any) -> list[str]:
    """The names that the failing object schema does know."""
    node: Any = root
    for part in list(error.schema_path)[:-1]:
        if isinstance(node, Mapping) and isinstance(node.get("$ref"), str) and part not in node:
            node = follow(node["$ref"], root)
        if part == "$ref":
            node = follow(node["$ref"], root) if isinstance(node, Mapping) else None
        elif isinstance(node, Mapping):
            node = node.get(part)
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            node = node[part]
    known = node.get("properties") if isinstance(node, Mapping) else None
    return list(known)[:30] if isinstance(known, Mapping) else []


def _secret(path: Sequence[Any], root: Any) -> bool:
    """Whether a field on this path is marked secret."""
    node: Any = root
    for part in path:
        here = _resolved(node, root)
        node = here.get("items") if isinstance(part, int) else property_schema(here, part, root)
        if _marked(node, root):
            return True
    return False


def _marked(node: Any, root: Any) -> bool:
    here = _resolved(node, root)
    if here.get("writeOnly") is True or here.get("format") == "password":
        return True
    parts = [part for word in ("anyOf", "oneOf", "allOf") for part in here.get(word, ()) if isinstance(part, Mapping)]
    return any(part.get("writeOnly") is True or part.get("format") == "password" for part in parts)


def _resolved(node: Any, root: Any) -> Mapping[str, Any]:
    for _ in range(20):
        if not isinstance(node, Mapping):
            return {}
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return node
        target = follow(ref, root)
        node = {**target, **{k: v for k, v in node.items() if k != "$ref"}} if isinstance(target, Mapping) else None
    return {}
