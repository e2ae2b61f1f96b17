"""A bounded schema as a grammar in llama.cpp's own notation (GBNF), for an engine that takes one.

Law: every text that the grammar writes is one line of JSON that fits the schema.
(tests/test_protocols_grammar.py::test_what_a_grammar_writes_fits_its_schema)

llama.cpp's own converter (common/json-schema-to-grammar.cpp) takes any number for `number`, any text for a pattern that
it does not read, the shortest way out of what it does not know, and any blanks anywhere. What is written here implies
the schema instead, and is compact: no token is spent on line ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate.protocols._language import ANY, Language, State, TooLarge, both, literal, negated, states, times
from callgate.protocols._numbers import language_of_number, some_multiples
from callgate.protocols._patterns import FORMATS, Unreadable, language_of_pattern, language_of_patterns

if TYPE_CHECKING:
    from callgate.types import Schema

LONGEST_PATTERN = 64
"""Characters of a text under a pattern that sets no length: `+` is what small models loop in."""
SHORTER = (32, 8)
"""What is tried beyond the least length where a pattern within its length has too many states."""
MAX_SUBSETS = 600
"""Lists of different members of an enum that are written out."""

_RULES = r"""
char ::= [^"\\\x00-\x1F\x7F-\x9F] | "\\" ["\\/nt]
number ::= "-"? ("0" | [1-9] [0-9]{0,14}) ("." [0-9]{1,6})?
integer ::= "-"? ("0" | [1-9] [0-9]{0,14})
boolean ::= "true" | "false"
null ::= "null"
"""
"""Ends are part of it: without them a model may write digits for ever. No `\\u` escapes: they write halves of pairs."""


@lru_cache(maxsize=256)
def _grammar(text: str) -> str:
    writer = _Writer()
    root = writer.value(json.loads(text))
    rules = [f"root ::= {root}", *(f"{name} ::= {body}" for name, body in writer.rules.items())]
    return "\n".join(rules) + _RULES


def grammar(schema: Schema) -> str:
    """The grammar of a bounded schema."""
    return _grammar(json.dumps(schema, ensure_ascii=False, default=dict))


class _Writer:
    """Writes rules; `value` returns what stands for a schema in the body of another rule."""

    def __init__(self) -> None:
        self.rules: dict[str, str] = {}
        self._known: dict[object, str] = {}

    def value(self, schema: Mapping[str, Any]) -> str:
        """What a schema takes."""
        if "enum" in schema:
            return self._rule(" | ".join(dict.fromkeys(_quoted(_json(v)) for v in schema["enum"])))
        if "anyOf" in schema:
            return self._rule(" | ".join(dict.fromkeys(map(self.value, schema["anyOf"]))))
        match schema.get("type"):
            case "object":
                return self._object(schema["properties"], frozenset(schema.get("required") or ()))
            case "array":
                return self._array(schema)
            case "string":
                return self._string(schema)
            case "integer" | "number" as kind:
                return self._number(kind, schema)
            case _ as kind:
                return str(kind)

    def _rule(self, body: str) -> str:
        """The name of a rule with this body; equal bodies share it."""
        if body not in self._known:
            self._known[body] = name = f"r{len(self.rules)}"
            self.rules[name] = body
        return self._known[body]

    # --- objects and lists --------------------------------------------------------------------------------------------

    def _object(self, properties: Mapping[str, Any], required: frozenset[str]) -> str:
        """The properties in their order; those that are not required may be left out."""
        pairs = [(n in required, f"{_quoted(_json(n) + ': ')} {self.value(s)}") for n, s in properties.items()]
        return self._rule(f'"{{" {self._members(pairs, 0, comma=False)} "}}"')

    def _members(self, pairs: Sequence[tuple[bool, str]], at: int, *, comma: bool) -> str:
        """The properties from one on; `comma`: another one stands before."""
        ways: list[str] = []
        for i in range(at, len(pairs)):
            needed, pair = pairs[i]
            ways.append(f"{_quoted(', ') + ' ' if comma else ''}{pair} {self._members(pairs, i + 1, comma=True)}")
            if needed:
                break
        else:
            ways.append('""')
        return self._rule(" | ".join(ways))

    def _array(self, schema: Mapping[str, Any]) -> str:
        least, most = int(schema.get("minItems", 0)), int(schema["maxItems"])
        fixed = [self.value(item) for item in schema.get("prefixItems") or ()]
        if fixed:
            return self._rule('"[" ' + ' ", " '.join(fixed) + ' "]"')
        if most == 0:
            return '"[]"'
        if schema.get("uniqueItems") and (lists := _different(schema["items"], least, most)):
            return self._rule(" | ".join(lists))
        item = self.value(schema["items"])
        rest = f'(", " {item}){{{max(0, least - 1)},{most - 1}}}' if most > 1 else '""'
        return self._rule(f'"[" {item} {rest} "]"' + (' | "[]"' if least == 0 else ""))

    # --- texts and numbers --------------------------------------------------------------------------------------------

    def _string(self, schema: Mapping[str, Any]) -> str:
        least, most = int(schema.get("minLength", 0)), schema.get("maxLength")
        patterns = [schema["pattern"]] if isinstance(schema.get("pattern"), str) else [*schema.get("pattern", ())]
        if schema.get("format") in FORMATS:
            patterns.append(FORMATS[schema["format"]])
        barred = (tuple(schema.get("x-not-pattern", ())), tuple(schema.get("x-not", ())))
        if (patterns or any(barred)) and (found := _text_states(tuple(patterns), barred, least, most)):
            return f'"\\"" {self._states(found, end=_quoted(chr(34)))}'
        # A rule of its own: llama.cpp multiplies repetitions that stand inside each other, and refuses more than 2,000.
        return self._rule(f'"\\"" char{{{least},{most if most is not None else LONGEST_PATTERN}}} "\\""')

    def _number(self, kind: str, schema: Mapping[str, Any]) -> str:
        if not schema.keys() - {"type"}:
            return kind
        found = _number_states(_json({k: v for k, v in schema.items() if k != "type"}), whole=kind == "integer")
        if found:
            return self._states(found, end='""')
        few = some_multiples(schema)
        return self._rule(" | ".join(map(_quoted, few))) if few else kind

    def _states(self, found: Sequence[State], *, end: str) -> str:
        """The rules of a language; each text is closed by `end`."""
        key = (tuple(found), end)
        if key not in self._known:
            self._known[key] = prefix = f"s{len(self.rules)}"
            for at, state in enumerate(found):
                ways = [f"{piece} {prefix}-{to}" for ranges, to in state.ways for piece in _pieces(ranges)]
                self.rules[f"{prefix}-{at}"] = " | ".join([*ways, end] if state.end else ways)
        return f"{self._known[key]}-0"


def _different(items: Mapping[str, Any], least: int, most: int) -> list[str]:
    """The lists of different members of an enum, in its order; none where there are too many."""
    members = [_json(v) for v in items.get("enum", ())]
    most = min(most, len(members))
    lists: list[str] = []
    for size in range(least, most + 1):
        for chosen in combinations(members, size):
            lists.append(_quoted(f"[{', '.join(chosen)}]"))
            if len(lists) > MAX_SUBSETS:
                return []
    return lists


Barred: TypeAlias = tuple[tuple[str, ...], tuple[str, ...]]
"""Patterns that must not be found, and texts that must not be."""


@lru_cache(maxsize=512)
def _text_states(patterns: tuple[str, ...], barred: Barred, least: int, most: int | None) -> tuple[State, ...]:
    """The rules of texts under patterns and a length; none: it is not known what they are."""
    try:
        wanted = language_of_patterns(patterns)
        out = [*(language_of_pattern(p, exact=True) for p in barred[0]), *map(literal, barred[1])]
    except (Unreadable, RecursionError):
        return ()
    wanted = both([wanted, *map(negated, out)])
    longest = max(LONGEST_PATTERN, least) if most is None else most
    for limit in (longest, *(least + more for more in SHORTER if least + more < longest)):
        if found := _states_of(both([wanted, times(ANY, least, limit)])):
            return found
    return ()


@lru_cache(maxsize=512)
def _number_states(schema: str, *, whole: bool) -> tuple[State, ...]:
    about = json.loads(schema)
    barred = [negated(literal(_json(value))) for value in about.get("x-not", ())]
    return _states_of(both([language_of_number(about, whole=whole), *barred]))


def _states_of(language: Language) -> tuple[State, ...]:
    try:
        return states(language)
    except (TooLarge, RecursionError):
        return ()


_ESCAPED = {9: r"\t", 10: r"\n", 13: r"\r", 34: r"\"", 92: "\\\\"}
"""Characters that JSON writes with a stroke."""


def _pieces(ranges: Sequence[tuple[int, int]]) -> list[str]:
    """What stands for one character of these ranges inside a JSON text."""
    plain: list[tuple[int, int]] = []
    out: list[str] = []
    for low, high in ranges:
        at = low
        for code, written in _ESCAPED.items():
            if at <= code <= high:
                out.append(_quoted(written))
                plain += [(at, code - 1)] if at < code else []
                at = code + 1
        plain += [(at, high)] if at <= high else []
    if plain:
        out.insert(0, "[" + "".join(_code(a) if a == b else f"{_code(a)}-{_code(b)}" for a, b in plain) + "]")
    return out


def _code(code: int) -> str:
    char = chr(code)
    if char.isascii() and char.isalnum():
        return char
    return f"\\x{code:02X}" if code < 0x100 else f"\\u{code:04X}" if code < 0x10000 else f"\\U{code:08X}"


def _quoted(text: str) -> str:
    """A literal of the grammar."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
