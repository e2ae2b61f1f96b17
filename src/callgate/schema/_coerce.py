"""Turns a value that fails into the one the schema must have meant: `"5"` where only a number fits.

Numbers stay exact; a text that merely begins with a number is none; nothing is made up for a missing field.

Law: only where that very field fails, only what the schema allows, only if exactly one reading fits.
(tests/test_schema_mend.py::test_a_field_that_fails_is_converted_where_exactly_one_reading_fits)

Theory of operation. `fit` walks value and schema together. A part that validates is never entered (so it comes back as
the same object); a part that fails is tried in this order: through `$ref` and `allOf`, into properties and items, by
its own type or enum, through `anyOf` and `oneOf` (where exactly one outcome with the fewest changes must win).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from callgate.schema._loose import CutOff, Unreadable
from callgate.schema._place import Place, escape, items_of, list_of, pointer_of
from callgate.schema._read import Infinite, finite, load
from callgate.schema.introspect import MAX_LOOK, allowed_types, follow, type_of

if TYPE_CHECKING:
    from callgate.schema.compiled import CompiledSchema

WORK: Final = 64
"""How often each node of the arguments may be looked at before coercion gives up: nested `anyOf`s would double it at
every level."""
SPARE: Final = 10_000
"""Looks that small arguments may take beyond that."""

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BOOLEANS: Final = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
# Below 4,300, where Python refuses to read an integer at all (CVE-2020-10735).
_MAX_DIGITS: Final = 4_000
_GONE: Final = object()


class _GiveUp(Exception):
    """The work is over the limit."""


@dataclass(slots=True)
class Fit:
    """One attempt to make one value fit: what it became and what was done."""

    value: Any
    coerced: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    @property
    def cost(self) -> int:
        """How much was changed."""
        return len(self.coerced) + len(self.dropped)


def fit(value: object, compiled: CompiledSchema) -> Fit:
    """The value made to fit as far as possible; it may still be invalid."""
    walk = _Walk(compiled, SPARE + WORK * _size(value))
    try:
        return walk.fit(value, compiled.root, Place("", "", MAX_LOOK))
    except (_GiveUp, RecursionError):
        return Fit(value)


def _size(value: object) -> int:
    count, todo = 1, [value]
    while todo:
        item = todo.pop()
        children = item.values() if isinstance(item, Mapping) else item if isinstance(item, list) else ()
        count += len(children)
        todo += [child for child in children if isinstance(child, (Mapping, list))]
    return count


class _Walk:
    def __init__(self, compiled: CompiledSchema, work: int) -> None:
        self.compiled = compiled
        self.work = work

    def fit(self, value: object, node: object, at: Place) -> Fit:
        """`value` against `node`; the same object comes back if it fits or nothing helps."""
        self.work -= 1 + (len(value) if isinstance(value, (dict, list)) else 0)
        if self.work < 0:
            raise _GiveUp
        if not isinstance(node, Mapping) or at.left <= 0 or self._valid(at, value):
            return Fit(value)
        done = Fit(value)
        ref = node.get("$ref")
        if isinstance(ref, str) and isinstance(target := follow(ref, self.compiled.root), Mapping):
            _take(done, self.fit(done.value, target, at.jump(pointer_of(ref))))
        for i, part in enumerate(list_of(node.get("allOf"))):
            _take(done, self.fit(done.value, part, at.in_schema(f"allOf/{i}")))
        _take(done, self._own(done.value, node, at))
        if isinstance(done.value, dict):
            _take(done, self._object(done.value, node, at))
        elif isinstance(done.value, list):
            _take(done, self._array(done.value, node, at))
        for word in ("anyOf", "oneOf"):
            if word in node:
                _take(done, self._branches(done.value, node, at, word))
        return done

    def _valid(self, at: Place, value: object) -> bool:
        try:
            return self.compiled.valid_at(at.schema, value)
        except ValueError:  # what no validator takes (half characters): reported by the whole check
            return True

    def _own(self, value: object, node: Mapping[str, object], at: Place) -> Fit:
        """By the node's own `type`, `enum` and `const`: for texts only, nothing else is ever converted."""
        # A number where a text is wanted stays: "007" and 7 differ, and nothing tells which was meant.
        if not isinstance(value, str) or not ({"type", "enum", "const"} & node.keys()):
            return Fit(value)
        members = [node["const"]] if "const" in node else list_of(node.get("enum"))
        own = {key: node[key] for key in ("type", "enum", "const") if key in node}
        types = allowed_types(own)
        if members and "string" in types:
            # An enum is a short list of words: one that differs only in case or in outer space has one meaning.
            found = _fold(value, members)
            if found is not _GONE:
                return Fit(found, [at.value])
        if "string" in types and not members:
            return Fit(value)
        for candidate in convert(value, types):
            if members and not any(_same(candidate, member) for member in members):
                continue
            return Fit(candidate, [at.value])
        return Fit(value)

    def _object(self, value: dict[str, object], node: Mapping[str, object], at: Place) -> Fit:
        done = Fit(value)
        properties = node.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        extra = node.get("additionalProperties")
        for key, child in value.items():
            if key in properties:
                place = at.down(f"properties/{escape(key)}", key)
                part = self.fit(child, properties[key], place)
                if part.value is None and not self._valid(place, None) and self._optional(key, node, at):
                    # Strict modes make models send null for what they leave out; for an optional field that is the
                    # same (A2).
                    part = Fit(_GONE, dropped=[place.value])
            elif isinstance(extra, Mapping) and not node.get("patternProperties"):
                part = self.fit(child, extra, at.down("additionalProperties", key))
            else:
                continue
            if part.cost:
                if done.value is value:
                    done.value = dict(value)
                done.value[key] = part.value
                done.coerced += part.coerced
                done.dropped += part.dropped
        if done.dropped:
            done.value = {key: child for key, child in done.value.items() if child is not _GONE}
        return done

    def _optional(self, key: str, node: Mapping[str, object], at: Place) -> bool:
        """Whether nothing near demands the key; a demand from farther off shows when the whole is checked."""
        above = self.compiled.root if at.value == "" and isinstance(self.compiled.root, Mapping) else {}
        return key not in list_of(node.get("required")) and key not in list_of(above.get("required"))

    def _array(self, value: list[object], node: Mapping[str, object], at: Place) -> Fit:
        done = Fit(value)
        for i, child in enumerate(value):
            where = items_of(node, i)
            if where is None:
                break
            part = self.fit(child, where[1], at.down(where[0], str(i)))
            if part.cost:
                if done.value is value:
                    done.value = list(value)
                done.value[i] = part.value
                done.coerced += part.coerced
                done.dropped += part.dropped
        return done

    def _branches(self, value: object, node: Mapping[str, object], at: Place, word: str) -> Fit:
        """The branch that fits after the fewest changes; a draw between different values decides nothing."""
        found: list[Fit] = []
        for i, part in enumerate(list_of(node[word])):
            place = at.in_schema(f"{word}/{i}")
            one = self.fit(value, part, place)
            if self._valid(place, one.value):
                found.append(one)
        if not found:
            return Fit(value)
        least = min(one.cost for one in found)
        # Two ways of equal cost to different values are a guess, and nothing is guessed (A3).
        best = [one for one in found if one.cost == least]
        return best[0] if all(_same(one.value, best[0].value) for one in best) else Fit(value)


def _take(done: Fit, part: Fit) -> None:
    done.value = part.value
    done.coerced += [p for p in part.coerced if p not in done.coerced] if part.coerced else []
    done.dropped += part.dropped


def _same(a: object, b: object) -> bool:
    """Equal as JSON: `True` is not `1`."""
    return bool(a == b) and type_of(a) == type_of(b)


def _fold(value: str, members: list[object]) -> object:
    """The one member that differs only in outer space, else the one that differs only in case."""
    texts = [member for member in members if isinstance(member, str)]
    for key in (str.strip, lambda text: text.strip().casefold()):
        found = [member for member in texts if key(member) == key(value)]
        if found:
            return found[0] if len(found) == 1 else _GONE
    return _GONE


def convert(text: str, types: frozenset[str]) -> Iterator[Any]:
    """What a text may stand for among these types, exact readings only."""
    if types & {"number", "integer"} and len(text) <= _MAX_DIGITS and _NUMBER.fullmatch(text):
        yield from _numbers(text, types)
    elif "boolean" in types and text in _BOOLEANS:
        yield _BOOLEANS[text]
    elif "null" in types and text in ("null", "None"):
        yield None
    elif types & {"array", "object"} and text.lstrip()[:1] in ("[", "{"):
        yield from _containers(text, types)


def _numbers(text: str, types: frozenset[str]) -> Iterator[int | float]:
    """The number that a text is. Integers stay exact, so `"5.0"` is none (A2)."""
    if "integer" in types and _INTEGER.fullmatch(text):
        yield int(text)
    elif "number" in types:
        with suppress(Infinite):  # it overflows
            yield finite(text)


def _containers(text: str, types: frozenset[str]) -> Iterator[object]:
    """A list or an object that was written as a text, as some templates do with every argument."""
    try:
        value = load(text).value
    except (ValueError, RecursionError, CutOff, Unreadable):
        return
    if type_of(value) in types:
        yield value
