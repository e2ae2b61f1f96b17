"""Messages that are kept: as JSON, pickled, copied."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Agent, Replay
from callgate.errors import ConfigError
from callgate.history import History
from callgate.messages import dump_messages, load_messages
from callgate.types import EMPTY, Message, ToolCall

TEXT = st.text('a é東🙂"\\\n', max_size=8)
VALUES = st.recursive(st.none() | st.booleans() | st.integers() | TEXT, lambda v: st.lists(v, max_size=2), max_leaves=4)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=2)
FLAGS = st.frozensets(st.sampled_from(["repaired", "loose"]))
CALLS = st.builds(ToolCall, TEXT, TEXT, OBJECTS, st.integers(0, 3), FLAGS, OBJECTS)
PARTS = st.tuples(st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}))
MESSAGES = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    TEXT | PARTS,
    TEXT,
    st.lists(CALLS, max_size=2).map(tuple),
    st.none() | TEXT,
    st.none() | TEXT,
    OBJECTS,
    st.booleans(),
)


def whole(messages: list[Message]) -> list[Any]:
    """With the fields that equality leaves out."""
    return [(m, dict(m.extra), m.unknown, [(c.flags, dict(c.extra)) for c in m.calls]) for m in messages]


@settings(max_examples=100, deadline=None)
@given(st.lists(MESSAGES, max_size=3))
def test_messages_come_back_as_they_were(messages: list[Message]) -> None:
    assert whole(load_messages(dump_messages(messages))) == whole(messages)
    assert whole(pickle.loads(pickle.dumps(messages))) == whole(messages)
    assert whole(copy.deepcopy(messages)) == whole(messages)


def test_a_stored_history_goes_on_as_dicts_too() -> None:
    call = ToolCall("c1", "look", {"at": "東"}, extra={"thought_signature": "s"})
    history = [Message("user", "go"), Message("assistant", "", "hm", (call,)), Message("tool", "x", call_id="c1")]
    data = json.loads(dump_messages(history))
    assert data[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at": "東"}'}
    assert whole(list(History.adopt(data).messages))[1] == whole(list(History.adopt(history).messages))[1]
    result = Agent(Replay(["yes"])).run_sync("?", history=data)
    assert pickle.loads(pickle.dumps(result)) == copy.deepcopy(result) == result
    assert json.dumps([asdict(m) for m in result.messages[-1:]])


def test_what_is_no_message_is_said_and_the_empty_mapping_stays_empty() -> None:
    for text in ("{", "{}", "[5]", '[{"content": "x"}]', '[{"role": "user", "tool_calls": [{}]}]'):
        with pytest.raises(ConfigError):
            load_messages(text)
    for act in (lambda e: e.update(a=1), lambda e: e.__setitem__("a", 1), lambda e: e.setdefault("a", 1)):
        with pytest.raises(TypeError, match="values never change"):
            act(EMPTY)
    assert pickle.loads(pickle.dumps(EMPTY)) is EMPTY
    assert EMPTY == {}
