"""Where a walk through value and schema stands. Shared by coercion and explanation.

One law: every step lowers `left`, so no loop of references holds a walk for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from callgate.schema._look import escape


@dataclass(slots=True, frozen=True)
class Place:
    """A JSON pointer into the schema, one into the value, and the steps that remain."""

    schema: str
    value: str
    left: int

    def down(self, schema: str, value: str) -> Place:
        """One level down in the value."""
        return Place(f"{self.schema}/{schema}", f"{self.value}/{escape(value)}", self.left - 1)

    def aside(self, schema: str) -> Place:
        """Another part of the schema for the same value."""
        return Place(f"{self.schema}/{schema}", self.value, self.left - 1)

    def jump(self, schema: str) -> Place:
        """Where a reference leads."""
        return Place(schema, self.value, self.left - 1)


def pointer_of(ref: str) -> str:
    """The JSON pointer (or anchor) of a local reference."""
    return unquote(ref[1:])


def list_of(node: Any) -> list[Any]:
    """The node if it is a list, else an empty one."""
    return node if isinstance(node, list) else []


def items_of(node: Mapping[str, Any], index: int) -> tuple[str, Any] | None:
    """(pointer, schema) of the keyword that governs the item at `index`, in today's and in older drafts."""
    word, first, rest = "prefixItems", node.get("prefixItems"), "items"
    if isinstance(node.get("items"), list):  # before 2020-12
        word, first, rest = "items", node["items"], "additionalItems"
    if index < len(list_of(first)):
        return f"{word}/{index}", list_of(first)[index]
    return (rest, node[rest]) if isinstance(node.get(rest), (Mapping, bool)) else None
