"""The schemas that hold a small model to a call: one branch a tool, names fixed, arguments typed and bounded.

Law: every schema made here is closed, bounded and free of references, and each text that fits it is a call of a
listed tool with arguments of the right types, or an answer.
(tests/test_protocols_prompts.py::test_bounded_schemas_have_no_references_and_an_end)

An engine's grammar enforces them (llama.cpp, Ollama, vLLM, hosted "strict" modes); what an engine cannot express is
left out here and checked again when the arguments are mended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from callgate.protocols._bounding import MAX_LENGTH, MAX_STRING, Bounder
from callgate.protocols._engines import ENGINES, Engine
from callgate.protocols._grammar import LONGEST_PATTERN, grammar
from callgate.protocols._nodes import either

if TYPE_CHECKING:
    from callgate.types import Schema, ToolSpec

MAX_ANSWER = MAX_LENGTH
"""Characters of an answer."""
TOKEN_MARGIN = 24
"""Tokens beside the values: braces, white space, the end."""
BYTES = 3
"""Of a character, outside of rare scripts: small models spell Chinese byte by byte."""
MAX_TOKENS = 4096
"""No computed token limit is larger."""

ROOT_KEY = "reply"
"""The property that wraps the branches where an engine wants an object without `anyOf` at its root."""


def held_to(schema: Schema, engine: Engine) -> dict[str, Any]:
    """Fields of a request that hold its answer to a bounded schema more strictly than the schema's own field does."""
    return {**engine.copying, "grammar": grammar(schema)} if engine.grammar else dict(engine.copying)


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
        # A model that may write several calls must not write them for ever.
        several = {"type": "array", "items": either(calls), "minItems": 1, "maxItems": 8}
        branches.append(closed({"calls": several}))
    if answer or not calls:
        branches.append(closed({"answer": _answer(output, engine)}))
    whole = either(branches)
    return closed({ROOT_KEY: whole}) if engine.wrapped else whole


def arguments_schema(tool: ToolSpec, engine: Engine) -> dict[str, Any]:
    """The arguments of one tool, closed and bounded."""
    return next((made for made in _shapes(tool, engine) if made.get("type") == "object"), closed({}))


def _shapes(tool: ToolSpec, engine: Engine) -> list[dict[str, Any]]:
    """The objects that the arguments may be: one, save where the schema has alternatives at its root."""
    made = bounded(tool.parameters, engine)
    shapes: list[dict[str, Any]] = made.get("anyOf", [made])
    return [shape for shape in shapes if shape.get("type") == "object"]


def output_schema(schema: Schema, engine: Engine) -> dict[str, Any]:
    """A final output; wrapped where the engine wants an object and this is none. Free-form objects are sent as they
    are where the engine can write them: closed, they could only ever be {}."""
    if not engine.digits and schema.get("type") == "object" and _is_free(schema):
        return dict(schema)
    made = bounded(schema, engine)
    return made if made.get("type") == "object" or not engine.wrapped else closed({ROOT_KEY: made})


def _is_free(node: object) -> bool:
    """Whether there is an object in it whose properties are not named."""
    if isinstance(node, list):
        return any(map(_is_free, node))
    if not isinstance(node, Mapping):
        return False
    more = node.get("additionalProperties")
    if node.get("type") == "object" and (more not in (None, False) or not node.get("properties")):
        return True
    return any(_is_free(value) for key, value in node.items() if key not in ("const", "enum", "default", "examples"))


def names_schema(names: Sequence[str]) -> dict[str, Any]:
    """A choice of one name, as a bare JSON string."""
    return {"enum": list(names)}


def bounded(schema: Schema, engine: Engine = ENGINES["llamacpp"]) -> dict[str, Any]:
    """The schema closed, bounded, typed and without references."""
    return Bounder(schema, engine).bound()


def token_limit(schema: Schema) -> int:
    """`max_tokens` that no text of this bounded schema reaches, as long as a token is at least one byte."""
    return min(MAX_TOKENS, _longest(schema) + TOKEN_MARGIN)


def _call(tool: ToolSpec, engine: Engine) -> dict[str, object]:
    shapes = _shapes(tool, engine) or [closed({})]
    return closed({"tool": {"type": "string", "enum": [tool.name]}, "args": either(shapes)})


def _answer(output: Schema | None, engine: Engine) -> dict[str, object]:
    if output is not None:
        return bounded(output, engine)
    return {"type": "string", "maxLength": MAX_ANSWER} if engine.lengths else {"type": "string"}


def closed(properties: dict[str, object]) -> dict[str, Any]:
    """An object of exactly these properties."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _longest(schema: Schema) -> int:
    """Bytes of the longest text that fits a bounded schema, a generous bound."""
    if "enum" in schema:
        return max(_size(v) for v in schema["enum"])
    if "anyOf" in schema:
        return max(_longest(s) for s in schema["anyOf"])
    match schema.get("type"):
        case "object":
            return 2 + sum(_size(k) + 4 + _longest(v) for k, v in schema["properties"].items())
        case "array":
            return 2 + int(schema["maxItems"]) * (2 + _longest(schema["items"]))
        case "string":
            return 2 + BYTES * int(schema.get("maxLength", _usual_length(schema)))
        case _:
            return 40


def _usual_length(schema: Schema) -> int:
    """Characters of a text whose length nothing says."""
    shaped = "format" in schema or "pattern" in schema
    return LONGEST_PATTERN + int(schema.get("minLength", 0)) if shaped else MAX_STRING


def _size(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
