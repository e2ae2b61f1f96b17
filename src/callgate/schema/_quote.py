"""How messages name and quote a value, and which values they must not quote.

Law: a value of a field marked secret (`writeOnly`, `format: password`) is never quoted.
(tests/test_schema_words.py::test_errors_say_where_what_was_expected_and_what_came)
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from callgate.schema._place import list_of
from callgate.schema.introspect import follow, property_schema, type_of

SHOWN: Final = 60
"""Characters of a value that are quoted."""


def show(value: Any) -> str:
    """A value named and quoted briefly: `the string "abc…"`."""
    kind = type_of(value)
    if kind in ("array", "object"):
        return f"an {kind}" if value else f"an empty {kind}"
    text = json.dumps(value if kind != "string" else value[: SHOWN + 1], ensure_ascii=False)
    text = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return text if kind in ("null", "boolean") else f"the {'number' if kind != 'string' else kind} {text}"


def is_secret(path: Sequence[Any], root: Any) -> bool:
    """Whether a field on this path is marked secret."""
    node: object = root
    for part in path:
        here = resolved(node, root)
        node = here.get("items") if isinstance(part, int) else property_schema(here, part, root)
        if _marked(node, root):
            return True
    return False


def _marked(node: object, root: object) -> bool:
    here = resolved(node, root)
    parts = [
        part for word in ("anyOf", "oneOf", "allOf") for part in list_of(here.get(word)) if isinstance(part, Mapping)
    ]
    return any(part.get("writeOnly") is True or part.get("format") == "password" for part in [here, *parts])


def resolved(node: object, root: object) -> Mapping[str, Any]:
    """The node with what its references lead to; empty for what is no object, or loops."""
    for _ in range(20):
        if not isinstance(node, Mapping):
            return {}
        ref = node.get("$ref")
        if not isinstance(ref, str):
            return node
        target = follow(ref, root)
        node = {**target, **{k: v for k, v in node.items() if k != "$ref"}} if isinstance(target, Mapping) else None
    return {}
