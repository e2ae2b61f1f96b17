"""What is written for a model reads back as the same calls."""

from __future__ import annotations

import pytest

from callgate import dialects, read
from callgate.protocols._write import WRITERS, write_object, writer_of
from callgate.types import ToolCall, ToolSpec

PROPERTIES = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "on": {"type": "boolean"},
    "items": {"type": "array", "items": {"type": "string"}},
}
TOOLS = tuple(ToolSpec(name, parameters={"type": "object", "properties": PROPERTIES}) for name in ("look_up", "save"))
CALLS = (
    ToolCall("1", "look_up", {"text": "a $NAME b", "count": 3}),
    ToolCall("2", "save", {"text": 'näher "ja"', "on": True, "items": ["x", "y"]}),
)


def test_every_dialect_has_a_writer():
    assert set(dialects.names()) == set(WRITERS)


@pytest.mark.parametrize("name", sorted(WRITERS))
def test_calls_read_back_in_their_dialect(name):
    for calls in (CALLS[:1], CALLS[1:], CALLS):
        if (
            name == "bare_json"
            or len(calls) == 1
            or name not in ("functionary_v32", "gigachat3", "llama3_json", "react")
        ):
            got = read(writer_of(name)(calls), dialect=name, tools=TOOLS).calls
            assert [(c.name, c.arguments) for c in got] == [(c.name, c.arguments) for c in calls], name


def test_the_object_of_constrained_reads_back():
    from callgate.protocols._object import ObjectReader

    reader = ObjectReader()
    deltas = reader.feed(write_object(CALLS)) + reader.finish()
    got = [d for d in deltas if isinstance(d, ToolCall)]
    assert [(c.name, c.arguments) for c in got] == [(c.name, c.arguments) for c in CALLS]
