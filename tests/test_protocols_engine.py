"""Generated schemas on the real engine: accepted, kept to, and with an end. Never which words the model picks."""

from __future__ import annotations

import json

import jsonschema_rs
import pytest

from callgate import protocols, providers, weights
from callgate.protocols import Chosen, Query
from callgate.protocols._engines import ENGINES
from callgate.protocols._schemas import bounded, token_limit
from callgate.reply import TurnReader
from callgate.types import Message, Request, ToolSpec

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.skipif(weights.find() is None, reason="the embedded weights are not here: callgate model pull"),
]

SCHEMAS = {
    "number": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
    "integer": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    "text": {"type": "object", "properties": {"x": {"type": "string", "maxLength": 40}}, "required": ["x"]},
    "list": {
        "type": "object",
        "properties": {"x": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}},
        "required": ["x"],
    },
    "union": {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}, "required": ["x"]},
    "recursive": {
        "type": "object",
        "properties": {"v": {"type": "integer"}, "next": {"$ref": "#"}},
        "required": ["v"],
    },
}


async def say(provider, request: Request, machine=None):
    reader = TurnReader(machine() if machine else None)
    async with provider.stream(request) as deltas:
        async for some in deltas:
            reader.feed(some)
    return reader.reply


@pytest.mark.parametrize("name", SCHEMAS)
async def test_a_bounded_schema_is_accepted_kept_and_ends_by_itself(name):
    """The prompt asks for what would never end."""
    provider = providers.open("local")
    schema = bounded(SCHEMAS[name], ENGINES["llamacpp"])
    prompt = (Message("user", "Write 1/3 with all its digits: 0.33333333333333333333333333333333333"),)
    options = {"max_tokens": token_limit(schema), "temperature": 0}
    reply = await say(provider, Request(prompt, schema=schema, options=options))
    assert reply.finish == "stop"
    assert jsonschema_rs.validator_for(SCHEMAS[name]).is_valid(json.loads(reply.content))


async def test_a_routed_turn_of_the_embedded_model_is_a_valid_call():
    place = {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}
    clock = ToolSpec("time_in", "The time of day in a city.", place, effect="read")
    provider = providers.open("local")
    info = await provider.info()
    assert protocols.choose(info, [clock]) == "routed"
    turn = protocols.turn("routed", history=(Message("user", "What time is it in Oslo?"),), tools=(clock,), info=info)
    step = turn.send(None)
    assert isinstance(step, Chosen)
    step = turn.send(None)
    assert isinstance(step, Query)
    with pytest.raises(StopIteration) as stop:
        turn.send(await say(provider, step.request, step.machine))
    reply = stop.value.value
    assert [c.name for c in reply.calls] == ["time_in"]
    assert jsonschema_rs.validator_for(place).is_valid(reply.calls[0].arguments)
