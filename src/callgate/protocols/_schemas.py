"""The schemas that hold a small model to a call: one branch a tool, names fixed, arguments typed and bounded.

One law: every schema made here is closed, bounded and free of references, and each text that fits it is a call of a
listed tool with arguments of the right types, or an answer.

An engine's grammar enforces them (llama.cpp, Ollama, vLLM, hosted "strict" modes); what an engine cannot express is
left out here and checked again when the arguments are mended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.types import ModelInfo, Schema, ToolSpec

MAX_STRING = 240
"""Characters of a string argument that sets no length: an unbounded string is what small models loop in."""
MAX_ITEMS = 12
"""Items of a list that sets no length."""
MAX_UNROLL = 3
"""How often a schema that refers to itself is unrolled."""
MAX_DEPTH = 12
"""Deeper schemas become a bounded string there."""
MAX_ANSWER = 2000
"""Characters of an answer: llama.cpp refuses repetitions over 2,000."""
MAX_NUMBER = 10**15
SMALLEST = 1e-6
"""Bounds of a number that sets none, for engines that would let a model write digits for ever."""
TOKEN_MARGIN = 24
"""Tokens beside the values: braces, white space, the end."""
BYTES = 3
"""Of a character, outside of rare scripts: small models spell Chinese byte by byte."""
MAX_TOKENS = 4096
"""No computed token limit is larger."""

ROOT_KEY = "reply"
"""The property that wraps the branches where an engine wants an object without `anyOf` at its root."""


@dataclass(slots=True, frozen=True)
class Engine:
    """What one structured-output engine accepts."""

    name: str
    wrapped: bool = False
    """The root must be one object: the branches stand under `ROOT_KEY`."""
    all_required: bool = False
    """Every property must be required; optional ones admit null."""
    lengths: bool = True
    """`minLength` and `maxLength` are understood."""
    patterns: bool = False
    digits: bool = False
    """Numbers have no end of their own: they need bounds and a smallest step."""
    compact: Mapping[str, Any] = field(default_factory=dict)
    """Keys beside a schema that forbid superfluous white space: a fifth of the tokens of a short object."""
    copying: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a request that turn off penalties on repetition: arguments repeat the request on purpose."""


ENGINES: dict[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine("openai", wrapped=True, all_required=True, lengths=False, patterns=True),
        Engine("ollama"),
        Engine(
            "llamacpp",
            digits=True,
            compact={"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}},
            copying={"dry_multiplier": 0.0},
        ),
        Engine("plain"),
        Engine("vllm", patterns=True),
    )
}


def engine_of(info: ModelInfo) -> Engine:
    """The engine behind a model; unknown ones get the plainest form."""
    name = str(info.extra.get("engine") or info.provider)
    return ENGINES.get("llamacpp" if name == "local" else name, ENGINES["plain"])


def reply_schema(
    tools: Sequence[ToolSpec],
    engine: Engine,
    *,
    answer: bool = True,
    output: Schema | None = None,
    parallel: bool = False,
) -> dict[str, Any]:
    """The schema of a whole reply: one branch a tool, with `answer` one for an answer, with `parallel` one for several
    calls at once."""
    calls = [_call(tool, engine) for tool in tools]
    branches = list(calls)
    if parallel and calls:
        several = {"type": "array", "items": _either(calls), "minItems": 1, "maxItems": 8}
        branches.append(closed({"calls": several}))
    if answer or not calls:
        branches.append(closed({"answer": _answer(output, engine)}))
    either = _either(branches)
    return closed({ROOT_KEY: either}) if engine.wrapped else either


def arguments_schema(tool: ToolSpec, engine: Engine) -> dict[str, Any]:
    """The arguments of one tool, closed and bounded."""
    made = bounded(tool.parameters, engine)
    return made if made.get("type") == "object" else closed({})


def output_schema(schema: Schema, engine: Engine) -> dict[str, Any]:
    """A final output; wrapped where the engine wants an object and this is none."""
    made = bounded(schema, engine)
    return made if made.get("type") == "object" or not engine.wrapped else closed({ROOT_KEY: made})


def names_schema(names: Sequence[str]) -> dict[str, Any]:
    """A choice of one name, as a bare JSON string."""
    return {"enum": list(names)}


def bounded(schema: Schema, engine: Engine = ENGINES["llamacpp"]) -> dict[str, Any]:
    """The schema closed, bounded, typed and without references."""
    return _Bounder(schema, engine).bound(schema, {}, 0)


def token_limit(schema: Schema) -> int:
    """`max_tokens` that no text of this bounded schema reaches, as long as a token is at least one byte."""
    return min(MAX_TOKENS, _longest(schema) + TOKEN_MARGIN)


def _call(tool: ToolSpec, engine: Engine) -> dict[str, Any]:
    return closed({"tool": {"type": "string", "enum": [tool.name]}, "args": arguments_schema(tool, engine)})


def _answer(output: Schema | None, engine: Engine) -> dict[str, Any]:
    if output is not None:
        return bounded(output, engine)
    return {"type": "string", "maxLength": MAX_ANSWER} if engine.lengths else {"type": "string"}


def closed(properties: dict[str, Any]) -> dict[str, Any]:
    """An object of exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _either(branches: list[dict[str, Any]]) -> dict[str, Any]:
    return branches[0] if len(branches) == 1 else {"anyOf": branches}


class _Bounder:
    """Rewrites one schema document; `root` is what `#/` references start from."""

    def __init__(self, root: Schema, engine: Engine) -> None:
        self.root = root
        self.engine = engine

    def bound(self, schema: Any, seen: Mapping[str, int], depth: int) -> dict[str, Any]:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
            return self._any()
        if "$ref" in schema:
            return self._reference(schema, seen, depth)
        if "const" in schema:
            return _fixed([schema["const"]])
        if isinstance(schema.get("enum"), list) and schema["enum"]:
            return _fixed(schema["enum"])
        if schema.get("allOf"):
            return self.bound(self._merged(schema), seen, depth + 1)
        for key in ("anyOf", "oneOf"):
            if schema.get(key):
                rest = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", "default", "title")}
                return _either(_distinct([self.bound({**rest, **b}, seen, depth + 1) for b in schema[key]]))
        kind = schema.get("type") or _implied(schema)
        if isinstance(kind, list):
            return _either(_distinct([self.bound({**schema, "type": k}, seen, depth + 1) for k in kind])) or self._any()
        return self._typed(str(kind), schema, seen, depth)

    def _typed(self, kind: str, schema: Schema, seen: Mapping[str, int], depth: int) -> dict[str, Any]:
        match kind:
            case "object":
                return self._object(schema, seen, depth)
            case "array":
                return self._array(schema, seen, depth)
            case "string":
                return self._string(schema)
            case "integer" | "number":
                return self._number(kind, schema)
            case "boolean" | "null":
                return {"type": kind}
            case _:
                return self._any()

    def _number(self, kind: str, schema: Schema) -> dict[str, Any]:
        keep = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
        made = {"type": kind, **{k: schema[k] for k in keep if isinstance(schema.get(k), (int, float))}}
        if not self.engine.digits:
            made.pop("multipleOf", None)
            return made
        if not made.keys() & {"minimum", "exclusiveMinimum"}:
            made["minimum"] = -MAX_NUMBER
        if not made.keys() & {"maximum", "exclusiveMaximum"}:
            made["maximum"] = MAX_NUMBER
        if kind == "number":
            made.setdefault("multipleOf", SMALLEST)
        return made

    def _object(self, schema: Schema, seen: Mapping[str, int], depth: int) -> dict[str, Any]:
        properties = schema.get("properties") or {}
        required = [k for k in schema.get("required") or () if k in properties]
        made: dict[str, Any] = {}
        for name, sub in properties.items():
            if self._endless(sub, seen):
                if name in required:
                    made[name] = {"type": "null"}
                continue
            made[name] = self.bound(sub, seen, depth + 1)
            if self.engine.all_required and name not in required:
                made[name] = _nullable(made[name])
        names = list(made) if self.engine.all_required else [k for k in required if k in made]
        return {"type": "object", "properties": made, "required": names, "additionalProperties": False}

    def _array(self, schema: Schema, seen: Mapping[str, int], depth: int) -> dict[str, Any]:
        items = schema.get("items", {})
        if self._endless(items, seen):
            return {"type": "array", "items": {"type": "null"}, "minItems": 0, "maxItems": 0}
        least = schema.get("minItems", 0)
        most = schema.get("maxItems", max(MAX_ITEMS, least))
        tuple_items = schema.get("prefixItems")
        if isinstance(tuple_items, list) and tuple_items:
            return {
                "type": "array",
                "items": _either(_distinct([self.bound(i, seen, depth + 1) for i in tuple_items])),
                "minItems": len(tuple_items),
                "maxItems": len(tuple_items),
            }
        return {"type": "array", "items": self.bound(items, seen, depth + 1), "minItems": least, "maxItems": most}

    def _string(self, schema: Schema) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "string"}
        if schema.get("format") in ("date", "time", "date-time", "uuid"):
            return {**made, "format": schema["format"]}
        if self.engine.patterns and isinstance(schema.get("pattern"), str):
            made["pattern"] = schema["pattern"]
        if self.engine.lengths:
            least = schema.get("minLength", 0)
            made |= {"minLength": least} if least else {}
            made["maxLength"] = min(schema.get("maxLength", max(MAX_STRING, least)), MAX_ANSWER)
        return made

    def _any(self) -> dict[str, Any]:
        text = self._string({})
        return {"anyOf": [text, {"type": "number"}, {"type": "boolean"}, {"type": "null"}]}

    def _reference(self, schema: Schema, seen: Mapping[str, int], depth: int) -> dict[str, Any]:
        target, name = self._look_up(schema), str(schema["$ref"])
        if target is None or self._endless(schema, seen):
            return self._any()
        rest = {k: v for k, v in schema.items() if k != "$ref"}
        return self.bound({**target, **rest}, {**seen, name: seen.get(name, 0) + 1}, depth + 1)

    def _endless(self, schema: Any, seen: Mapping[str, int]) -> bool:
        """A reference that was already unrolled often enough."""
        return isinstance(schema, Mapping) and seen.get(str(schema.get("$ref")), 0) >= MAX_UNROLL

    def _look_up(self, schema: Schema) -> Mapping[str, Any] | None:
        path = str(schema["$ref"])
        if not path.startswith("#"):
            return None
        found: Any = self.root
        for step in path[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        return found if isinstance(found, Mapping) else None

    def _merged(self, schema: Schema) -> dict[str, Any]:
        """`allOf` as one schema: later keys win, properties and required names are united."""
        out = {k: v for k, v in schema.items() if k != "allOf"}
        for part in schema["allOf"]:
            full = (self._look_up(part) or {}) if isinstance(part, Mapping) and "$ref" in part else part
            for key, value in full.items() if isinstance(full, Mapping) else ():
                if key == "properties":
                    out[key] = {**out.get(key, {}), **value}
                elif key == "required":
                    out[key] = [*out.get(key, ()), *value]
                else:
                    out.setdefault(key, value)
        return out


def _fixed(values: Sequence[Any]) -> dict[str, Any]:
    kinds = {bool: "boolean", str: "string", int: "integer", float: "number", type(None): "null"}
    types = {kinds.get(type(v)) for v in values}
    one = types.pop() if len(types) == 1 else None
    return {"type": one, "enum": list(values)} if one else {"enum": list(values)}


def _implied(schema: Schema) -> str:
    """The type that a schema without `type` means by its other keys."""
    if "properties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    return "any"


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    branches = schema.get("anyOf", [schema])
    return {"anyOf": _distinct([*branches, {"type": "null"}])}


def _distinct(schemas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for schema in schemas:
        out += [s for s in schema.get("anyOf", [schema]) if s not in out]
    return out


def _longest(schema: Schema) -> int:
    """Bytes of the longest text that fits a bounded schema, a generous bound."""
    if "enum" in schema:
        return max(len(json.dumps(v, ensure_ascii=False).encode()) for v in schema["enum"])
    if "anyOf" in schema:
        return max(_longest(s) for s in schema["anyOf"])
    match schema.get("type"):
        case "object":
            return 2 + sum(len(k) + 6 + _longest(v) for k, v in schema["properties"].items())
        case "array":
            return 2 + int(schema["maxItems"]) * (2 + _longest(schema["items"]))
        case "string":
            return 2 + BYTES * int(schema.get("maxLength", 40 if "format" in schema else MAX_STRING))
        case _:
            return 40
