"""OpenAI's Responses API, the other way: our deltas as its events, read by the official client."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from callgate import Reply, formats
from callgate.formats import responses as api
from test_formats_laws import deltas_of, replies, sound

EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def accumulated(events: list[dict[str, Any]]) -> Any:
    """What the official package makes of these events."""
    state: ResponseStreamState[Any] = ResponseStreamState(text_format=omit, input_tools=omit)
    for event in events:
        checked = EVENT.validate_python(event)
        assert checked.type == event["type"]
        state.handle_event(checked)
    return state._completed_response


@settings(deadline=None)
@given(reply=replies("responses").filter(sound), sizes=st.lists(st.integers(1, 40), min_size=1))
def test_the_openai_package_accumulates_the_same(reply: Reply, sizes: list[int]) -> None:
    response = accumulated(api.Dumper(model="m").feed(deltas_of(reply, sizes)))
    assert response.output_text == reply.content
    thoughts = "".join(part.text for item in response.output if item.type == "reasoning" for part in item.summary)
    found = [(i.call_id, i.name, json.loads(i.arguments)) for i in response.output if i.type == "function_call"]
    assert (thoughts, found) == (reply.reasoning, [(c.id, c.name, c.arguments) for c in reply.calls])
    assert response.status == "completed"
    whole = Response.model_validate(api.dump_whole(reply, model="m"))
    assert whole.output_text == reply.content


@settings(deadline=None)
@given(reply=replies("responses"), sizes=st.lists(st.integers(1, 40), min_size=1))
def test_each_item_is_done_before_the_next_and_events_are_numbered(reply: Reply, sizes: list[int]) -> None:
    events = api.Dumper(model="m").feed(deltas_of(reply, sizes))
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    open_: list[object] = []
    for event in events:
        EVENT.validate_python(event)
        match event["type"]:
            case "response.output_item.added":
                assert not open_
                open_.append(event["output_index"])
            case "response.output_item.done":
                assert open_.pop() == event["output_index"]
            case _ if "output_index" in event:
                assert open_ == [event["output_index"]]
    assert not open_
    assert events[-1]["type"] in ("response.completed", "response.incomplete", "response.failed")


def test_a_call_whose_fragments_were_void_is_done_with_its_true_arguments() -> None:
    chunks = formats.get("openai").Loader()
    function = [{"name": "f", "arguments": '{"a": '}, {"arguments": '{"a": 1}'}]
    calls = [{"tool_calls": [{"index": 0, "id": "c", "function": f}]} for f in function]
    records: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": delta}]} for delta in calls]
    records.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    deltas = [delta for record in records for delta in chunks.take(record)] + chunks.finish()
    (item,) = accumulated(api.Dumper().feed(deltas)).output
    assert json.loads(item.arguments) == {"a": 1}
