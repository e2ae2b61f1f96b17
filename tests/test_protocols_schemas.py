"""What is sent to hold a model to a call: no schema that a grammar refuses, whatever the tool's own one says."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import weights
from callgate.protocols._bounding import MAX_LENGTH, MAX_LIST
from callgate.protocols._engines import ENGINES
from callgate.protocols._schemas import arguments_schema, bounded, reply_schema
from callgate.types import ToolSpec

EDGES = (0, 1, 999, 1000, 1001, 1998, 1999, 2000, 2001, 2499, 2500, 5000, 10**12)
"""Around every limit that was found: 2,000 is refused by llama-server and Ollama, more than 2,000 items by the engine
of this package."""


def repetitions(schema: Any) -> Iterator[int]:
    """Every count that a grammar repeats something by."""
    if isinstance(schema, dict):
        yield from (v for k, v in schema.items() if k in ("minLength", "maxLength", "minItems", "maxItems"))
        for inner in schema.values():
            yield from repetitions(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from repetitions(inner)


def limited(kind: str, least: int | None, most: int | None) -> dict[str, Any]:
    """A schema of a text or a list with these limits."""
    word = "Length" if kind == "string" else "Items"
    made: dict[str, Any] = {"type": kind} if kind == "string" else {"type": kind, "items": {"type": "boolean"}}
    made |= {f"min{word}": least} if least is not None else {}
    return made | ({f"max{word}": most} if most is not None else {})


LIMITS = [
    limited(kind, least, most)
    for kind in ("string", "array")
    for least in (None, *EDGES)
    for most in (None, *EDGES)
    if least is None or most is None or least <= most
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("schema", LIMITS, ids=str)
def test_no_repetition_is_sent_that_a_grammar_refuses(engine: str, schema: dict[str, Any]) -> None:
    tool = ToolSpec("f", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    made = reply_schema((tool,), ENGINES[engine], parallel=True)
    assert all(0 <= count <= MAX_LENGTH < 2000 for count in repetitions(made))
    sent = bounded(schema, ENGINES[engine])
    for word, limit in (("Length", MAX_LENGTH), ("Items", MAX_LIST)):
        if f"max{word}" in sent:
            assert sent.get(f"min{word}", 0) <= sent[f"max{word}"] <= limit


SCHEMAS = st.recursive(
    st.sampled_from(LIMITS),
    lambda inner: (
        st.builds(lambda s, n: {"type": "array", "items": s, "maxItems": n}, inner, st.sampled_from(EDGES))
        | st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(lambda p: {"type": "object", "properties": p})
        | st.lists(inner, min_size=1, max_size=3).map(lambda s: {"anyOf": s})
    ),
    max_leaves=6,
)


@given(schema=SCHEMAS, engine=st.sampled_from(sorted(ENGINES)))
def test_nested_limits_stay_below_it_too(schema: dict[str, Any], engine: str) -> None:
    assert all(count <= MAX_LENGTH for count in repetitions(bounded(schema, ENGINES[engine])))


# --- the real server ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """A llama.cpp server with the embedded weights."""
    if weights.find() is None:
        pytest.skip("the embedded weights are not here: callgate model pull")
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = str(weights.path())
    params.n_ctx = 512
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = params.ui = False
    params.verbosity = -1
    held = Server(params)
    yield f"{held.listening_address}/v1/chat/completions"
    del held


KINDS: dict[str, Any] = {
    "text": {"type": "string"},
    "list of lists": {"type": "array", "items": {"type": "array", "items": {"type": "string"}, "maxItems": 50}},
    "long list of objects": {
        "type": "array",
        "maxItems": 4000,
        "items": {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "boolean"}}},
    },
    "tuple": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
    "number": {"type": "number", "minimum": -1.5, "exclusiveMaximum": 3},
    "integer": {"type": "integer", "exclusiveMinimum": 5, "multipleOf": 5},
    "choice": {"enum": ["a", 1, None, True]},
    "constant": {"const": "x"},
    "date": {"type": "string", "format": "date"},
    "uuid": {"type": "string", "format": "uuid"},
    "union": {"type": ["string", "null", "integer"]},
    "any": {},
    "either": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "number"}}]},
    "all": {"allOf": [{"properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
    "free object": {"type": "object", "additionalProperties": {"type": "string"}},
    "odd names": {"type": "object", "properties": {"": {}, 'a "b"\\': {"type": "null"}, "名": {"type": "boolean"}}},
    "recursive": {"type": "object", "properties": {"v": {"type": "integer"}, "next": {"$ref": "#/properties/x"}}},
}


@pytest.mark.model
@pytest.mark.parametrize("engine", ["llamacpp", "ollama", "plain"])
@pytest.mark.parametrize("schema", [*KINDS.values(), *LIMITS[::5]], ids=[*KINDS, *map(str, LIMITS[::5])])
def test_every_kind_of_schema_is_accepted_by_the_real_server(served: str, engine: str, schema: dict[str, Any]) -> None:
    """Alone, among the branches of a reply, and as arguments: one token is enough, the grammar is parsed before it."""
    tool = ToolSpec("f", "", {"type": "object", "properties": {"x": schema}, "required": ["x"]})
    for sent in (reply_schema((tool,), ENGINES[engine], parallel=True), arguments_schema(tool, ENGINES[engine])):
        body = {
            "messages": [{"role": "user", "content": "hi"}],
            "max_tokens": 1,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": sent}},
        }
        request = urllib.request.Request(served, json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                assert response.status == 200
        except urllib.error.HTTPError as error:
            pytest.fail(f"{error.code} {error.read()!r} for {sent}")


def test_alternatives_at_the_root_of_the_arguments_are_kept() -> None:
    """`{}` fits none of them, and was all that the model could write."""
    text, number = {"type": "string"}, {"type": "integer"}
    way = [{"required": ["id"], "properties": {"name": False}}, {"required": ["name"], "properties": {"id": False}}]
    tool = ToolSpec("f", "", {"type": "object", "properties": {"id": number, "name": text}, "oneOf": way})
    for engine in ENGINES.values():
        made = json.dumps(reply_schema([tool], engine, answer=False))
        assert '"id"' in made
        assert '"name"' in made
        assert arguments_schema(tool, engine)["required"] == ["id"]
