"""A final answer in a form: what the caller's type refuses is asked for again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, field_validator, model_validator

from callgate import Agent, Replay, tool

pytestmark = pytest.mark.anyio


class City(BaseModel):
    """A city, as a caller checks it."""

    name: str
    people: int

    @field_validator("name")
    @classmethod
    def capital(cls, value: str) -> str:
        if not value[:1].isupper():
            raise ValueError("a name begins with a capital letter")
        return value

    @model_validator(mode="after")
    def plausible(self) -> City:
        if self.people < len(self.name):
            raise ValueError("fewer people than letters")
        return self


WRONG: dict[str, Any] = {
    "a capital letter": {"name": "paris", "people": 2_000_000},
    "fewer people": {"name": "Paris", "people": 1},
}
RIGHT = {"name": "Paris", "people": 2_000_000}


@settings(max_examples=20, deadline=None)
@given(st.lists(st.sampled_from(sorted(WRONG)), max_size=4))
def test_an_answer_that_the_type_refuses_is_asked_for_again_with_the_reason(wrong: list[str]) -> None:
    model = Replay([*(json.dumps(WRONG[kind]) for kind in wrong), json.dumps(RIGHT)])
    result = Agent(model, retries=2).run_sync("where?", output=City)
    if len(wrong) <= 2:
        assert (result.reason, result.output) == ("answered", City(**RIGHT))
        assert len(model.requests) == len(wrong) + 1
    else:
        assert (result.reason, result.output) == ("output_invalid", None)
        assert wrong[2] in str(result.error)
    for kind, request in zip(wrong, model.requests[1:], strict=False):
        assert kind in request.messages[-1].text
        assert "pydantic.dev" not in request.messages[-1].text


async def test_a_form_that_is_never_met_ends_the_run_with_its_own_reason() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    result = await Agent(Replay(['{"n": "many"}'] * 9), retries=1).run("how many?", output=schema)
    assert (result.reason, result.output) == ("output_invalid", None)
    assert "/n" in str(result.error)


async def test_a_refused_answer_is_not_the_answer_of_the_run_when_it_is_resumed() -> None:
    agent = Agent(Replay([json.dumps(WRONG["fewer people"]), json.dumps(RIGHT)]))
    result = await agent.run("where?", output=City, run_id="r")
    again = await agent.resume("r")
    assert (again.reason, again.text, again.output) == ("answered", result.text, City(**RIGHT))
    # Another agent, as in another process, knows what the ledger knows: the value, but not its type.
    other = Agent(Replay([]), ledger=agent.ledger)
    assert (await other.resume("r")).output == RIGHT
    assert (await other.resume("r", output=City)).output == City(**RIGHT)


async def test_a_run_that_waited_for_a_person_still_checks_its_answer() -> None:
    @tool(effect="write", confirm=True)
    def pay() -> str:
        "Pay."
        return "paid"

    calls = {"calls": [{"name": "pay", "arguments": {}}]}
    agent = Agent(Replay([calls, json.dumps(WRONG["fewer people"]), json.dumps(RIGHT)]), tools=[pay])
    first = await agent.run("pay, then: where?", output=City)
    result = await agent.resume(first.run_id, {first.pending[0].id: True}, output=City)
    assert (result.reason, result.output) == ("answered", City(**RIGHT))
