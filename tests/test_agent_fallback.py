"""Several models: the next one is asked when one fails before anything of its answer came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate.errors import BadRequest, CallgateError, ConfigError, Unreachable
from callgate.events import ModelChanged
from callgate.types import Delta, ModelInfo, Request

pytestmark = pytest.mark.anyio


@tool(effect="read")
def look(at: str) -> str:
    "Looks."
    return f"saw {at}"


@tool(effect="write", confirm=True)
def pay(to: str) -> str:
    "Pays."
    return f"paid {to}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"calls": [{"name": name, "arguments": arguments}]}


class Named(Replay):
    """A scripted model with a name, that fails while `down` says so."""

    def __init__(self, name: str, replies: list[Any], down: CallgateError | None = None, tools: bool = True) -> None:
        super().__init__(replies)
        self.model, self.down, self.takes_tools, self.asked = name, down, tools, 0

    async def info(self) -> ModelInfo:
        return ModelInfo(self.model, "test", frozenset({"tools"}))

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[list[Delta]]]:
        self.asked += 1
        if self.down is not None:
            raise self.down
        if request.tools and not self.takes_tools:
            raise BadRequest("this model takes no tools")
        return super().stream(request)


async def test_the_next_model_goes_on_before_the_first_byte() -> None:
    events: list[object] = []
    first, second = Named("one", [], Unreachable("one is down")), Named("two", [call("look", at="x"), "done"])
    async with Agent([first, second], tools=[look], on_event=events.append) as agent:
        result = await agent.run("Go.")
        entries = await agent.ledger.read(result.run_id)
    assert (result.reason, result.text, first.asked) == ("answered", "done", 1)
    assert [e for e in events if isinstance(e, ModelChanged)] == [ModelChanged("one", "two", "one is down")]
    (changed,) = [e.data["changed"] for e in entries if "changed" in e.data]
    assert changed == {"before": "one", "after": "two"}


async def test_a_dead_server_is_left_at_once() -> None:
    result = await Agent(["http://127.0.0.1:9/v1#gone", Named("two", ["done"])]).run("Go.")
    assert (result.text, result.requests) == ("done", 2)


async def test_an_answer_that_broke_off_is_the_first_models_own() -> None:
    first, second = Named("one", [{"content": "half", "error": "broken"}, "whole"]), Named("two", ["other"])
    result = await Agent([first, second]).run("Go.")
    assert (result.text, second.asked) == ("whole", 0)


async def test_the_last_model_fails_as_one_alone_does() -> None:
    models = [Named("one", [], Unreachable("one is down")), Named("two", [], Unreachable("two is down"))]
    result = await Agent(models, retries=0).run("Go.")
    assert (result.reason, result.error) == ("provider_error", "two is down")


async def test_a_resumed_run_goes_on_with_the_model_that_it_had_changed_to() -> None:
    first, second = Named("one", [], Unreachable("one is down")), Named("two", [call("pay", to="bob"), "done"])
    agent = Agent([first, second], tools=[pay])
    waiting = await agent.run("Pay.")
    result = await agent.resume(waiting.run_id, {waiting.pending[0].id: True})
    assert (waiting.reason, result.text, first.asked) == ("waiting", "done", 1)


async def test_a_refused_protocol_is_remembered_of_the_model_that_refused_it() -> None:
    first = Named("one", [call("look", at="x"), "done"], Unreachable("one is down"))
    second = Named("two", ["done", "done"], tools=False)
    agent = Agent([first, second], tools=[look])
    refused = await agent.run("Go.")
    again = await agent.run("Go.")
    assert refused.protocol == again.protocol != "native"
    assert second.asked == 3, "the second run did not offer tools to it again"
    first.down = None
    assert (await agent.run("Go.")).protocol == "native"


async def test_models_can_be_named_for_one_run() -> None:
    agent = Agent(Named("main", ["main"]))
    result = await agent.run("Go.", model=[Named("one", [], Unreachable("down")), Named("two", ["done"])])
    assert (result.text, (await agent.run("Go.")).text) == ("done", "main")


def test_no_model_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs one at least"):
        Agent([])
