"""Arguments nested deeper than anything can follow: the call is refused, and the run goes on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Agent, Replay, tool
from callgate.events import MAX_DEPTH, TOO_DEEP, CallProgress, dump_event


@pytest.mark.parametrize("shape", ["[", "{"])
@pytest.mark.parametrize("wire", [True, False], ids=["native", "text"])
@settings(max_examples=25, deadline=None)
@given(depth=st.sampled_from([1, 64, 100, 127, 129, 199, 200, 201, 480, 490, 700, 999, 1_000]) | st.integers(1, 5_000))
def test_deep_arguments_are_refused_and_the_run_goes_on(shape: str, wire: bool, depth: int) -> None:
    ran: list[int] = []

    @tool(effect="write")
    def put(x: Any) -> str:
        "Put."
        ran.append(1)
        return "ok"

    value = "[" * depth + "]" * depth if shape == "[" else '{"a":' * depth + "1" + "}" * depth
    arguments = f'{{"x":{value}}}'
    text = f'<tool_call>{{"name":"put","arguments":{arguments}}}</tool_call>'
    first: Any = {"calls": [{"name": "put", "arguments": arguments}]} if wire else text
    result = Agent(Replay([first, "done", "done"]), tools=[put]).run_sync("go")
    assert (result.reason, result.text) == ("answered", "done")
    assert [r.result.status for r in result.calls] == (["ok"] if ran else ["invalid_arguments"])
    assert bool(ran) == (depth < 128)


def test_what_is_written_down_has_a_limited_depth() -> None:
    value: Any = 1
    for _ in range(50_000):
        value = [value]
    data: Any = dump_event(CallProgress("c1", value))["value"]
    for _ in range(MAX_DEPTH):
        (data,) = data
    assert data == TOO_DEEP
