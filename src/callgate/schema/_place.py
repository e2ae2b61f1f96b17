"""Where a walk through value and schema stands. Shared by coercion and explanation.

Law: every step lowers `left`, so no loop of references holds a walk for ever.
(tests/test_schema_mend.py::test_a_bomb_of_alternatives_gives_up_in_time)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import unquote


def escape(key: str) -> str:
    """A key as a part of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer(path: Sequence[object]) -> str:
    """A path as a JSON pointer."""
    return "".join(f"/{escape(str(part))}" for part in path)


@dataclass(slots=True, frozen=True)
class Place:
    """A JSON pointer into the schema, one into the value, and the steps that remain."""

    schema: str
    value: str
    left: int

    def down(self, schema: str, value: str) -> Place:
        """One level down in the value."""
        return Place(f"{self.schema}/{schema}", f"{self.value}/{escape(value)}", self.left - 1)

    def in_schema(self, schema: str) -> Place:
        """Another part of the schema for the same value."""
        return Place(f"{self.schema}/{schema}", self.value, self.left - 1)

    def jump(self, schema: str) -> Place:
        """Where a reference leads."""
        return Place(schema, self.value, self.left - 1)


def pointer_of(ref: str) -> str:
    """The JSON pointer (or anchor) of a local reference."""
    return unquote(ref[1:])


def list_of(node: object) -> list[object]:
    """The node if it is a list, else an empty one."""
    return node if isinstance(node, list) else []


def items_of(node: Mapping[str, object], index: int) -> tuple[str, object] | None:
    """(pointer, schema) of the keyword that governs the item at `index`, in today's and in older drafts."""
    word, first, rest = "prefixItems", node.get("prefixItems"), "items"
    if isinstance(node.get("items"), list):  # before 2020-12
        word, first, rest = "items", node["items"], "additionalItems"
    if index < len(list_of(first)):
        return f"{word}/{index}", list_of(first)[index]
    return (rest, node[rest]) if isinstance(node.get(rest), (Mapping, bool)) else None
