"""The schemas of tools, given to the engines and APIs that must take them."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from callgate import Tool, providers, weights
from callgate.reply import TurnReader
from callgate.schema import strict_form
from callgate.types import Message, Request
from test_tools_describe import ANNOTATIONS


def tool_of(annotation: Any) -> Tool:
    def take(value, other=None):  # type: ignore[no-untyped-def]
        """Takes a value.

        Args:
            value: It.
        """

    take.__annotations__ = {"value": annotation, "other": "int | None"}
    return Tool.from_function(take)


IDS = [str(row[0])[:40] for row in ANNOTATIONS]
TYPES = [row[0] for row in ANNOTATIONS]


def all_at_once(names: dict[str, Any]) -> Tool:
    signature = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, annotation=a) for n, a in names.items()]
    )

    def take(**values: Any) -> None:
        """Takes everything."""

    take.__signature__ = signature  # type: ignore[attr-defined]
    take.__annotations__ = names
    return Tool.from_function(take)


@pytest.mark.model
@pytest.mark.anyio
@pytest.mark.timeout(90)
@pytest.mark.skipif(weights.find() is None, reason="the embedded weights are not here: callgate model pull")
async def test_the_embedded_engine_writes_under_the_schema_of_every_type() -> None:
    loose = all_at_once({f"v{i}": annotation for i, annotation in enumerate(TYPES)}).spec.parameters
    strict = {f"v{i}": a for i, a in enumerate(TYPES) if strict_form(tool_of(a).spec.parameters) is not None}
    closed = strict_form(all_at_once(strict).spec.parameters)
    assert closed is not None
    engine = providers.open("local")
    try:
        for schema in (loose, closed):
            options = {"max_tokens": 12, "temperature": 0}
            turn = TurnReader()
            async with engine.stream(Request((Message("user", "Go."),), schema=schema, options=options)) as deltas:
                async for some in deltas:
                    turn.feed(some)
            assert turn.reply.finish in ("length", "stop"), turn.reply.error
            assert turn.reply.content.lstrip().startswith("{")
    finally:
        await engine.aclose()


@pytest.mark.parametrize("annotation", TYPES, ids=IDS)
def test_the_ollama_client_takes_every_schema_and_loses_none_of_its_parameters(annotation: Any) -> None:
    ollama = pytest.importorskip("ollama", reason="a package of the tests")
    spec = tool_of(annotation).spec
    function = {"name": spec.name, "description": spec.description, "parameters": dict(spec.parameters)}
    taken = ollama.Tool.model_validate({"type": "function", "function": function})
    assert list(taken.function.parameters.properties) == list(spec.parameters["properties"])
    assert list(taken.function.parameters.required) == spec.parameters["required"]
