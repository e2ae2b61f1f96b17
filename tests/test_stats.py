"""The numbers: every one can be counted by hand from the call log."""

from __future__ import annotations

from typing import Any

import pytest

from callgate import Agent, Replay, UpstreamError, tool
from callgate import ledger as ledgers
from callgate.ledger import Ledger
from callgate.stats import Calls, call_log, collect, percentile
from callgate.types import Principal

pytestmark = pytest.mark.anyio


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@tool(effect="read")
def flaky() -> None:
    """Fails."""
    raise UpstreamError("502")


@tool(effect="write", permission="pay")
def pay(cents: int) -> str:
    """Pays."""
    return f"paid {cents}"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def two_runs() -> Ledger:
    ledger = ledgers.open("memory")
    first = Replay(
        [
            {"calls": [call("add", a=1, b=2), call("add", a="3", b=4), call("nobody"), call("flaky")]},
            {"calls": [call("pay", cents=5)], "usage": {"input": 10, "output": 3}},
            {"calls": [call("pay", cents=5)]},
            {"content": "done", "usage": {"input": 20, "output": 4}},
        ]
    )
    agent = Agent(first, tools=[add, flaky, pay], ledger=ledger, dialect="hermes")
    assert (await agent.run("go", principal=Principal("u", grants={"pay"}))).reason == "answered"
    second = Replay([{"calls": [call("pay", cents=7)]}, "done"], model="other")
    agent = Agent(second, tools=[add, flaky, pay], ledger=ledger, dialect="hermes")
    assert (await agent.run("go", principal=Principal("v"))).reason == "answered"
    return ledger


async def test_the_log_has_one_line_a_proposed_call() -> None:
    lines = [line async for line in call_log(await two_runs())]
    assert [(line["tool"], line["status"], line["replayed"]) for line in lines] == [
        ("add", "ok", False),
        ("add", "ok", False),
        ("nobody", "unknown_tool", False),
        ("flaky", "upstream_error", False),
        ("pay", "ok", False),
        ("pay", "ok", True),
        ("pay", "denied", False),
    ]
    assert [bool(line["notes"] or line["flags"]) for line in lines] == [False, True] + [False] * 5
    assert [line["seconds"] is not None for line in lines] == [True, True, False, True, True, False, False]
    assert {(line["model"], line["principal"]) for line in lines} == {("replay", "u"), ("other", "v")}
    assert lines[0]["arguments"] == {"a": 1, "b": 2}


async def test_rates_and_causes_follow_from_the_log() -> None:
    ledger = await two_runs()
    stats = await collect(ledger)
    calls = stats.calls
    assert (calls.proposed, calls.started, calls.ok, calls.replayed, calls.mended) == (7, 4, 4, 1, 1)
    assert calls.effective_rate == pytest.approx(5 / 7), "usable and permitted, also where the tool then failed"
    assert calls.ok_rate == pytest.approx(4 / 7)
    assert calls.success_rate == pytest.approx(3 / 4)
    assert calls.causes == {"unknown_tool": 1, "upstream_error": 1, "denied": 1}
    assert {key: c.proposed for key, c in stats.groups.items()} == {
        ("add", "native"): 2,
        ("flaky", "native"): 1,
        ("nobody", "native"): 1,
        ("pay", "native"): 3,
    }
    assert stats.groups["pay", "native"].effective_rate == pytest.approx(2 / 3)
    assert (stats.runs, stats.requests, stats.failed_requests) == ({"answered": 2}, 6, 0)
    assert 0 < len(stats.first_token_seconds) <= stats.turns
    assert all(0 <= first <= max(stats.answer_seconds) for first in stats.first_token_seconds)
    assert stats.usage == {"input": 30, "output": 7}
    by_model = await collect(ledger, by=["model"])
    assert {key: c.proposed for key, c in by_model.groups.items()} == {("replay",): 6, ("other",): 1}
    assert (await collect(ledger, since=9e12)).calls.proposed == 0


async def test_nothing_is_counted_in_an_empty_ledger() -> None:
    stats = await collect(ledgers.open("memory"))
    assert stats.as_json()["calls"]["effective_rate"] is None
    assert stats.as_json()["first_tokens"] == {"p50": None, "p95": None, "max": None}
    assert stats.as_json()["groups"] == []


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(n) for n in range(1, 101)]
    assert [percentile(values, p) for p in (1, 50, 95, 100)] == [1, 50, 95, 100]
    assert percentile([3.0], 95) == 3.0
    assert percentile([], 50) is None
    assert Calls(seconds=[2.0, 1.0]).as_json()["p50"] == 1.0
