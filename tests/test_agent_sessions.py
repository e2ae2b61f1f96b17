"""Conversations that the ledger keeps, and what of long ones is sent."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Principal, Replay, tool
from callgate.errors import ConfigError, RunBusy
from callgate.history import tokens
from callgate.types import Message

pytestmark = pytest.mark.anyio


@tool(effect="write", confirm=True)
def pay() -> str:
    "Pays."
    return "paid"


async def test_a_session_goes_on_in_any_process(tmp_path: Path) -> None:
    place, ann = f"sqlite:{tmp_path / 'runs.db'}", Principal("ann")
    for n in range(1, 6):
        async with Agent(Replay([f"answer {n}"]), ledger=place) as agent:
            result = await agent.run(f"ask {n}", session="chat", principal=ann)
            assert (result.run_id, len(result.messages)) == (f"chat.{n}", 2 * n)
            assert await agent.history("chat", principal=ann) == result.messages
    async with Agent(Replay(["branched"]), ledger=place) as agent:
        assert await agent.history("other") == []
        branch = await agent.run("b", session="branch", history=await agent.history("chat", principal=ann))
        assert len(branch.messages) == 12
        for who in (None, Principal("bob")):
            with pytest.raises(ConfigError, match="belongs to ann"):
                await agent.run("?", session="chat", principal=who)
        with pytest.raises(ConfigError, match="history= is for its first run"):
            await agent.run("?", session="branch", history=[{"role": "user", "content": "x"}])


async def test_of_two_runs_of_a_session_at_once_one_wins() -> None:
    agent = Agent(Replay([{"calls": [{"name": "pay", "arguments": {}}]}, "paid", "next"]), tools=[pay])
    first = await agent.run("go", session="s")
    assert first.reason == "waiting"
    with pytest.raises(RunBusy, match=r"its run s\.1 has not ended"):
        await agent.run("go", session="s")
    await agent.resume(first.run_id, {first.pending[0].id: True})
    assert (await agent.run("go on", session="s")).text == "next"


@pytest.mark.parametrize("name", ["", " ", "a\n", "x" * 101, 5])
async def test_a_session_has_a_name_that_can_be_shown(name: Any) -> None:
    with pytest.raises(ConfigError, match="session: a printable name"):
        await Agent(Replay([])).run("?", session=name)


async def test_a_processor_changes_what_is_sent_and_not_what_is_kept() -> None:
    def last(messages: tuple[Message, ...]) -> tuple[Message, ...]:
        return messages[-1:]

    model = Replay(["one", "two"])
    agent = Agent(model, history_processor=last)
    first = await agent.run("a")
    second = await agent.run("b", history=first.messages)
    assert [m.text for m in model.requests[1].messages] == ["b"]
    assert len(second.messages) == 4
    with pytest.raises(ConfigError, match="history_processor"):
        Agent(model, history_processor=5)  # type: ignore[call-overload]


async def test_summaries_are_made_in_slices_once_for_a_session() -> None:
    history: list[Any] = []
    for n in range(40):
        history += [
            {"role": "user", "content": f"question {n} " + "word " * 150},
            {"role": "assistant", "content": f"a{n}"},
        ]
    seen: list[Any] = []

    def reply(request: Any) -> Any:
        seen.append(request)
        return "it was about words" if "Sum up" in str(request.messages) else "fine"

    agent = Agent(Replay([reply] * 60), max_context=2000, summarize=True)
    result = await agent.run("and now?", session="long", history=history)
    assert result.reason == "answered", result.error
    assert len(seen) > 2
    assert all(sum(tokens(m) for m in request.messages) <= 2000 for request in seen)
    for request in seen:
        roles = [m.role for m in request.messages]
        assert ("user", "user") not in list(itertools.pairwise(roles))
    before = len(seen)
    await agent.run("and then?", session="long")
    assert len(seen) == before + 1  # nothing is summed up anew
