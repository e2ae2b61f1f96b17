"""Forced calls of the embedded model behind the gateway: every argument object that is let through fits its schema.

A sample here, streamed and not in turn; `make long` asks all schemas, each both ways (`CALLGATE_FORCED=all`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import jsonschema
import openai
import pytest

from callgate import weights
from gateway_server import Running, gateway
from test_forced_model import IMPOSSIBLE, KEPT

ALL = bool(os.environ.get("CALLGATE_FORCED"))
NAMES = [name for name in KEPT if name not in IMPOSSIBLE]
WHICH = (
    [(name, streams) for name in NAMES for streams in (False, True)]
    if ALL
    else [*zip(("enum-2", "name-4", "number-4", "recursive-2"), (False, True, False, True), strict=True)]
)

pytestmark = pytest.mark.skipif(weights.find() is None, reason="the weights are not here: callgate model pull")
QUESTION = "Fill in the form for Ada Lovelace, Paris, 3 units at 2.50 each, on 2024-05-01."


@pytest.fixture(scope="module")
def local() -> Iterator[Running]:
    with gateway(backends=["local"]) as g:
        yield g


def forced(g: Running, schema: dict[str, Any], *, streams: bool) -> tuple[list[str], str | None]:
    """The arguments that were let through, as text, and the finish reason."""
    web = openai.OpenAI(base_url=f"{g.url}/v1", api_key="none", max_retries=0, timeout=300)
    asked: Any = {
        "model": web.models.list().data[0].id,
        "messages": [{"role": "user", "content": QUESTION}],
        "tools": [{"type": "function", "function": {"name": "fill", "description": "Fill in.", "parameters": schema}}],
        "tool_choice": {"type": "function", "function": {"name": "fill"}},
    }
    if not streams:
        choice = web.chat.completions.create(**asked).choices[0]
        calls: Any = choice.message.tool_calls or ()
        return [call.function.arguments for call in calls], choice.finish_reason
    made: dict[int, str] = {}
    end = None
    for event in web.chat.completions.create(**asked, stream=True):
        for choice_ in event.choices:
            end = choice_.finish_reason or end
            for entry in choice_.delta.tool_calls or ():
                made[entry.index] = made.get(entry.index, "") + (entry.function.arguments or "")
    return list(made.values()), end


@pytest.mark.parametrize(("name", "streams"), WHICH)
def test_what_is_let_through_fits(local: Running, name: str, streams: bool) -> None:
    schema = KEPT[name]
    texts, end = forced(local, schema, streams=streams)
    for text in texts:
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))
    assert (len(texts), end) == (1, "tool_calls")
