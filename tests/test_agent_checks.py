"""What the application says to prompts and answers, and what it makes of results."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, Tool, ToolContext, tool
from callgate.checks import AskAgain, Change, Decision, Refuse
from callgate.errors import ConfigError
from callgate.events import TextChecked
from callgate.types import ToolCall, ToolResult

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


async def test_a_prompt_is_changed_before_the_model_sees_it() -> None:
    model, events = Replay(["Hello."]), list[object]()

    async def check(text: str, context: ToolContext) -> Decision:
        assert context.run_id
        return Change(text.replace("4711", "[number]"))

    result = await Agent(model, check_prompt=check, on_event=events.append).run("My number is 4711.")
    assert model.requests[0].messages[-1].text == "My number is [number]."
    assert result.messages[0].text == "My number is [number]."
    assert TextChecked("prompt", "changed", "", "My number is [number].") in events


async def test_a_refused_prompt_costs_no_request() -> None:
    model = Replay([])
    result = await Agent(model, check_prompt=lambda text: Refuse("not here")).run("Bad.")
    assert (result.reason, result.error, result.requests, model.requests) == ("refused", "not here", 0, [])


async def test_images_stay_beside_a_changed_prompt() -> None:
    model = Replay(["A cat."])
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    await Agent(model, check_prompt=lambda text: Change("changed")).run([{"type": "text", "text": "what"}, image])
    assert model.requests[0].messages[-1].content == ({"type": "text", "text": "changed"}, image)


async def test_an_answer_is_accepted_changed_refused_or_asked_for_again() -> None:
    decisions: dict[str, Decision] = {
        "rude": AskAgain("be polite"),
        "secret": Change("[hidden]"),
        "bad": Refuse("no"),
        "fine": None,
    }
    agent = Agent(Replay(["fine", "secret", "bad", "rude", "fine"]), check_answer=decisions.get)
    assert (await agent.run("?")).text == "fine"
    changed = await agent.run("?")
    assert (changed.text, changed.messages[-1].text, changed.reason) == ("[hidden]", "[hidden]", "answered")
    refused = await agent.run("?")
    assert (refused.reason, refused.text, refused.error, refused.messages[-1].role) == ("refused", "", "no", "user")
    again = await agent.run("?")
    assert (again.text, again.requests) == ("fine", 2)
    assert "be polite" in agent.provider.requests[-1].messages[-1].text  # type: ignore[attr-defined]
    assert [m.text for m in again.messages] == ["?", "fine"]


async def test_asking_again_is_bounded() -> None:
    agent = Agent(Replay(["a", "b", "c", "d"]), check_answer=lambda text: AskAgain("not good"), retries=2)
    result = await agent.run("?")
    assert (result.reason, result.error, result.requests) == ("refused", "not good", 3)
    few = await Agent(Replay(["a", "b", "c"]), check_answer=lambda text: AskAgain("no"), max_requests=1).run("?")
    assert few.reason == "request_limit"


@pytest.mark.parametrize("what", ["check_prompt", "check_answer"])
async def test_a_check_that_fails_refuses(what: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(text: str) -> Decision:
        raise KeyError(text)

    wrong: Any = {what: lambda text: True}
    failing: Any = {what: broken}
    assert (await Agent(Replay(["x"]), **failing).run("?")).reason == "refused"
    result = await Agent(Replay(["x"]), **wrong).run("?")
    assert (result.reason, result.text) == ("refused", "")
    assert "must give None, Change, Refuse or AskAgain" in (result.error or "")
    assert "failed" in caplog.text


async def test_an_output_that_was_changed_is_checked_again() -> None:
    agent = Agent(Replay(["3", "4"]), output=int, check_answer=lambda text: Change("none" if text == "3" else "40"))
    result = await agent.run("?")
    assert (result.output, result.requests) == (40, 2)


async def test_a_resumed_run_keeps_what_was_decided(tmp_path: Path) -> None:
    seen: list[str] = []

    def check(text: str) -> Decision:
        seen.append(text)
        return Change(f"<{text}>")

    ledger = f"sqlite:{tmp_path / 'runs.db'}"
    first = Agent(Replay([call("pay", to="bob")]), tools=[pay], check_prompt=check, ledger=ledger)
    waiting = await first.run("Pay Bob.")
    await first.aclose()
    model = Replay(["Paid."])
    async with Agent(model, tools=[pay], check_prompt=check, ledger=ledger) as second:
        result = await second.resume(waiting.run_id, {waiting.pending[0].id: True})
    assert seen == ["Pay Bob."]
    assert result.messages[0].text == model.requests[0].messages[0].text == "<Pay Bob.>"
    assert (result.text, result.reason) == ("Paid.", "answered")


async def test_a_session_goes_on_with_the_changed_prompt() -> None:
    model = Replay(["One.", "Two."])
    agent = Agent(model, check_prompt=lambda text: Change(f"<{text}>"))
    await agent.run("a", session="s")
    await agent.run("b", session="s")
    assert [m.text for m in model.requests[-1].messages] == ["<a>", "One.", "<b>"]
    assert [m.text for m in await agent.history("s")] == ["<a>", "One.", "<b>", "Two."]


async def test_a_run_can_be_cancelled_while_its_check_hangs() -> None:
    started = asyncio.Event()

    async def hangs(text: str) -> Decision:
        started.set()
        await asyncio.Event().wait()

    agent = Agent(Replay(["x"]), check_answer=hangs)
    run = asyncio.ensure_future(agent.run("?", run_id="r"))
    await started.wait()
    assert await agent.cancel("r")
    result = await run
    assert (result.reason, result.text) == ("cancelled", "")


async def test_the_final_text_of_a_stream_is_the_changed_one() -> None:
    agent = Agent(Replay(["secret"]), check_answer=lambda text: Change("[hidden]"))
    async with agent.stream("?") as stream:
        assert [piece async for piece in stream.text_stream(final_only=True)] == ["[hidden]"]


# --- results ------------------------------------------------------------------------------------------------------


async def test_a_result_is_transformed_for_the_model_the_caller_and_the_ledger() -> None:
    def hide(call: ToolCall, result: ToolResult) -> ToolResult:
        return replace(result, content=result.content.replace("x", "[x]"), value=None, status="failed", call_id="z")

    model = Replay([call("look", at="x"), "ok"])
    agent = Agent(model, tools=[look], on_result=hide)
    result = await agent.run("?")
    record = result.calls[0].result
    assert (record.content, record.status, record.call_id) == ("saw [x]", "ok", result.calls[0].call.id)
    assert model.requests[1].messages[-1].text == "saw [x]"
    assert "saw x" not in str(await agent.ledger.read(result.run_id))


async def test_a_transform_that_fails_withholds_the_result() -> None:
    def broken(call: ToolCall, result: ToolResult) -> ToolResult:
        raise RuntimeError("oops")

    result = await Agent(Replay([call("look", at="x"), "ok"]), tools=[look], on_result=broken).run("?")
    assert result.calls[0].result.content == "The result is withheld: it could not be made ready to be shown."
    assert result.calls[0].result.value is None


async def test_results_from_outside_are_transformed_too() -> None:
    async def louder(call: ToolCall, result: ToolResult) -> ToolResult | None:
        return replace(result, content=result.content.upper())

    scan = Tool.from_schema("scan", "Scans.", {"properties": {}}, effect="read")
    agent = Agent(Replay([call("scan"), "ok"]), tools=[scan], on_result=louder)
    waiting = await agent.run("?")
    result = await agent.resume(waiting.run_id, results={waiting.pending[0].id: "oslo"})
    assert result.calls[0].result.content == "OSLO"


def test_what_is_no_function_is_refused() -> None:
    wrong: Any = "x"
    for name in ("check_prompt", "check_answer", "on_result"):
        with pytest.raises(ConfigError, match=name):
            Agent(Replay([]), **{name: wrong})
