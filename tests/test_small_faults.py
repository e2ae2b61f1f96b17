"""Small faults that the mutation campaign put into the code and that no test noticed. Each has its claim here."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, tool
from callgate import ledger as ledgers
from callgate.agent._driver import failed
from callgate.errors import (
    BadRequest,
    ConfigError,
    ModelMissing,
    Overloaded,
    ProviderError,
    Redirected,
    RefusedKey,
    Unreachable,
)
from callgate.executor import Caller, Executor
from callgate.ledger import _owners
from callgate.ledger._folding import Fold
from callgate.ledger._lines import Line
from callgate.policy import Allow, Answer, JudgeContext, approval, arguments, budget
from callgate.protocols._conjunction import both, conjunction
from callgate.protocols._engines import ENGINES
from callgate.protocols._schemas import arguments_schema
from callgate.run import Answered, AskPerson, Received, Run
from callgate.tools import ToolContext, as_toolbox
from callgate.types import Entry, Finish, Message, ToolCall, ToolSpec
from ledger_stores import started
from run_script import config

pytestmark = pytest.mark.anyio


@tool(effect="write", confirm=True)
def pay(amount: int) -> str:
    "Pay."
    return f"paid {amount}"


def calls(*amounts: int) -> dict[str, Any]:
    return {"calls": [{"name": "pay", "arguments": {"amount": amount}} for amount in amounts]}


# --- run ----------------------------------------------------------------------------------------------------------


def test_an_answer_to_one_of_two_questions_does_not_ask_the_other_again() -> None:
    run = Run(config(rules=(approval.Rule(("pay",)),)))
    run.start([Message("user", "go")])
    deltas = [ToolCall(f"c{n}", "pay", {"n": n}, n) for n in (0, 1)]
    step = run.receive(Received([*deltas, Finish("tool_calls")], 1.0))
    (asked,) = [c for c in step.commands if isinstance(c, AskPerson)]
    assert [p.id for p in asked.pending] == ["c0", "c1"]
    step = run.receive(Answered("c0", Answer(True), 2.0))
    assert not [c for c in step.commands if isinstance(c, AskPerson)], "whoever is asked has both questions already"


# --- agent --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ConfigError, BadRequest, RefusedKey, ModelMissing, Redirected])
def test_a_request_that_can_only_fail_again_is_not_tried_again(error: type[Exception]) -> None:
    assert not failed(error("no"), 0.0).again
    assert failed(Overloaded("busy"), 0.0).again
    assert failed(Unreachable("no route"), 0.0).again


def test_what_the_provider_tried_several_times_the_run_does_not_try_again() -> None:
    error: ProviderError = Overloaded("busy")
    error.tries = 3  # type: ignore[attr-defined]
    assert not failed(error, 0.0).again


async def test_an_agent_gives_back_its_providers_connections_and_its_ledger() -> None:
    class Watched(Replay):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    model, named = Watched(["a"]), Watched(["b"])
    async with Agent(model) as agent:
        await agent.run("go")
        await agent.run("go", model=named)
    assert model.closed == 1
    assert named.closed == 0, "a provider that a run brought is its caller's"


async def test_a_parked_run_is_resumed_where_only_a_callback_can_answer() -> None:
    parked = Agent(Replay([calls(3), "Done."]), tools=[pay])
    first = await parked.run("pay")
    assert first.reason == "waiting"
    result = await parked.resume(first.run_id, approve=lambda call: True)
    assert (result.reason, [r.result.status for r in result.calls]) == ("answered", ["ok"])


async def test_a_parked_run_without_anybody_to_answer_is_left_as_it_is() -> None:
    agent = Agent(Replay([calls(3), "Done."]), tools=[pay])
    first = await agent.run("pay")
    before = len(await agent.ledger.read(first.run_id))
    assert (await agent.resume(first.run_id)).reason == "waiting"
    assert len(await agent.ledger.read(first.run_id)) == before


async def test_output_str_is_the_text_of_the_answer() -> None:
    result = await Agent(Replay(["Paris."]), output=str).run("capital?")
    assert result.output == "Paris."


async def test_a_run_that_is_cancelled_before_its_turn_has_a_beginning_and_an_end_in_its_journal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Busy:
        async def turn(self) -> None:
            waits.set()
            await asyncio.sleep(30)

    waits = asyncio.Event()
    monkeypatch.setattr("callgate.agent._driver.scheduler", Busy)
    agent = Agent(Replay(["never"]))
    task = asyncio.ensure_future(agent.run("go", run_id="r"))
    await waits.wait()
    assert await agent.cancel("r")
    assert (await task).reason == "cancelled"
    kinds = [entry.kind for entry in await agent.ledger.read("r")]
    assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")


# --- policy -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["5", True, -1, -0.5, float("nan"), None, [5]])
def test_a_limit_that_is_no_number_from_zero_is_an_error_of_the_caller(wrong: Any) -> None:
    if wrong is not None:  # None is: no limit
        with pytest.raises(ConfigError, match=r"policy\.budget\.seconds: a number from 0"):
            budget.Rule(seconds=wrong)
    with pytest.raises(ConfigError, match=r"prices\.input: a number from 0"):
        budget.Rule(money=1, prices={"input": wrong})


# --- executor -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_carries_out_none_of_its_parents_writes() -> None:
    script = (
        "import os\nfrom callgate.executor._at_work import SHARED\n"
        "SHARED.begin('k')\npid = os.fork()\n"
        "if not pid:\n    os._exit(int('k' in SHARED))\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 'k' in SHARED)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "True"]


# --- ledger -------------------------------------------------------------------------------------------------------


async def test_a_last_digest_that_does_not_fit_is_found(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    store = ledgers.open(f"sqlite:{path}")
    await store.append("r", [started(), Entry("run_finished", {"reason": "answered"})])
    assert not (await store.verify()).problems
    await store.aclose()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE runs SET digest = 'x'")
        connection.commit()
    store = ledgers.open(f"sqlite:{path}")
    assert any("digest of its last entry" in problem for problem in (await store.verify()).problems)
    await store.aclose()


@pytest.mark.parametrize("odd", [{"name": "x"}, "x", None, 5, {}])
def test_a_message_with_odd_calls_is_folded(odd: Any) -> None:
    fold = Fold()
    fold.add("r", Line("message", 1, {"message": {"role": "assistant", "calls": [odd, {"id": "c1"}]}}, ""), 1.0)
    fold.add("r", Line("message", 1, {"message": {"role": "user", "content": "no calls"}}, ""), 2.0)
    fold.add("r", Line("message", 1, {}, ""), 3.0)
    assert list(fold.asked) == ["c1"]


def test_an_owner_is_described_as_a_process_on_a_machine() -> None:
    name = _owners.me()
    assert _owners.describe(name) == f"process {os.getpid()} on {name.partition('+')[0]}"
    assert _owners.describe("somebody") == "somebody"


# --- protocols ----------------------------------------------------------------------------------------------------


def test_both_of_two_schemas_keeps_what_either_asks_for() -> None:
    text = {"type": "string"}
    for other in ({}, True):
        assert both(text, other) == both(other, text) == text
    assert both({}, True) is True
    assert both(text, False) is False
    assert both(text, {"minLength": 1}) == {"allOf": [text, {"minLength": 1}]}


@pytest.mark.parametrize(("one", "other"), [(2, 0.5), (0.5, 2), (0.25, 0.5), (4, 6)])
def test_two_steps_of_a_number_are_joined_whatever_they_are(one: float, other: float) -> None:
    joined = conjunction({"multipleOf": one}, {"multipleOf": other})["multipleOf"]
    assert joined == (12 if (one, other) == (4, 6) else one)


def test_what_an_engine_does_not_understand_is_not_sent_to_it() -> None:
    """OpenAI's strict mode refuses a schema with `minLength`."""
    schema = {"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 5}}}
    spec = ToolSpec("t", "T.", schema)
    assert "Length" not in json.dumps(arguments_schema(spec, ENGINES["openai"]))
    assert "maxLength" in json.dumps(arguments_schema(spec, ENGINES["vllm"]))


async def test_the_outcome_of_a_call_is_unknown_if_its_tool_has_no_lookup_or_is_not_there() -> None:
    executor = Executor(as_toolbox([pay]))
    caller = Caller(ToolContext(run_id="r"))
    assert await executor.look_up(ToolCall("c1", "pay", {"amount": 1}), caller, "key") is None
    assert await executor.look_up(ToolCall("c1", "nowhere", {}), caller, "key") is None


def test_a_condition_may_allow_a_single_value() -> None:
    rule = arguments.Rule({"pay": {"amount": arguments.between(5, 5)}})
    for amount, allowed in ((5, True), (4, False), (6, False)):
        verdict = rule.judge(ToolCall("c", "pay", {"amount": amount}), pay.spec, JudgeContext())
        assert isinstance(verdict, Allow) == allowed
    with pytest.raises(ConfigError):
        arguments.between(6, 5)


async def test_an_answer_without_json_where_some_was_wanted_says_so() -> None:
    model = Replay(["I cannot."] * 9)
    result = await Agent(model, output={"type": "object", "required": ["a"]}, retries=1).run("go")
    assert result.reason != "answered"
    asked = [m.text for request in model.requests for m in request.messages]
    assert any("no JSON" in text for text in asked) or "no JSON" in (result.error or "")
