"""The codec of events: what was dumped and travelled as JSON comes back as it was, and old names stay readable."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callgate import events as e
from callgate.types import (
    Allow,
    Ask,
    BadCall,
    CallDelta,
    Deny,
    Finish,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolResult,
)

TEXT = st.text(max_size=12)
NUMBER = st.integers(0, 99)
SECONDS = st.none() | st.floats(0, 1e6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.just("type"), inner, max_size=3),
    max_leaves=6,
)
USAGE = st.dictionaries(st.sampled_from(["input", "output"]), NUMBER)
CALL = st.builds(
    ToolCall, TEXT, TEXT, st.dictionaries(TEXT, JSON, max_size=3), flags=st.frozensets(st.just("repaired"))
)
BAD = st.builds(BadCall, NUMBER, st.none() | TEXT, TEXT, TEXT)
RESULT = st.builds(ToolResult, TEXT, st.sampled_from(["ok", "denied"]), TEXT, value=JSON)
FINISH = st.builds(Finish, st.just("stop"), st.none() | USAGE, problems=st.lists(TEXT, max_size=2).map(tuple))
VERDICT = st.one_of(st.builds(Allow), st.builds(Ask, TEXT, TEXT), st.builds(Deny, TEXT, TEXT))

EVENTS = {
    "run_started": st.builds(e.RunStarted, TEXT, TEXT, TEXT, st.booleans()),
    "turn_started": st.builds(e.TurnStarted, NUMBER, TEXT),
    "text": st.builds(TextDelta, TEXT),
    "reasoning": st.builds(ReasoningDelta, TEXT),
    "call_delta": st.builds(CallDelta, NUMBER, st.none() | TEXT, st.none() | TEXT, TEXT),
    "call_proposed": st.builds(e.CallProposed, CALL | BAD),
    "call_judged": st.builds(e.CallJudged, TEXT, VERDICT),
    "call_started": st.builds(e.CallStarted, TEXT, TEXT),
    "call_progress": st.builds(e.CallProgress, TEXT, JSON),
    "call_finished": st.builds(e.CallFinished, TEXT, TEXT, RESULT, SECONDS),
    "retrying": st.builds(e.Retrying, NUMBER, TEXT),
    "protocol_changed": st.builds(e.ProtocolChanged, TEXT, TEXT, TEXT),
    "model_changed": st.builds(e.ModelChanged, TEXT, TEXT, TEXT),
    "text_checked": st.builds(e.TextChecked, TEXT, TEXT, TEXT, TEXT),
    "routed": st.builds(e.Routed, TEXT, st.lists(TEXT, max_size=3).map(tuple), SECONDS),
    "turn_finished": st.builds(e.TurnFinished, NUMBER, FINISH, SECONDS),
    "run_finished": st.builds(e.RunFinished, st.just("answered"), TEXT, st.none() | TEXT, USAGE),
    "tool_call": CALL,
    "bad_call": BAD,
    "finish": FINISH,
    "tool_result": RESULT,
    "allow": st.builds(Allow),
    "ask": st.builds(Ask, TEXT, TEXT),
    "deny": st.builds(Deny, TEXT, TEXT),
}


def test_the_names_on_the_wire_are_these() -> None:
    """A name never changes: journals of years ago are read by it."""
    assert list(e.NAMES) == list(EVENTS)


@pytest.mark.parametrize("name", EVENTS)
@given(st.data())
def test_every_event_comes_back_from_json_as_it_was(name: str, data: st.DataObject) -> None:
    event = data.draw(EVENTS[name])
    dumped = e.dump_event(event)
    assert dumped["type"] == name
    assert e.load_event(json.loads(json.dumps(dumped))) == event
    assert e.load_event({**dumped, "added later": 1}) == event
