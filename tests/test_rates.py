"""Rates hold for runs that go side by side: to judge a start and to count it is one step."""

from __future__ import annotations

import asyncio
import random
import threading
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callgate import Agent, Principal, Replay, Tool
from callgate.agent._starts import MANY, Start, Starts
from callgate.events import CallFinished, CallJudged, CallStarted
from callgate.policy import Deny, JudgeContext, Quota, quotas, rate
from callgate.types import ToolCall, ToolSpec

pytestmark = pytest.mark.anyio


def ring(tool: str, effect: Any, began: list[int], *, pause: float = 0.0, **declared: Any) -> Tool:
    """A tool that counts how often it was really called."""

    async def ring(number: int) -> str:
        """Rings."""
        began.append(number)
        await asyncio.sleep(pause)
        return "rang"

    return Tool.from_function(ring, name=tool, effect=effect, **declared)


def answers(tool: str) -> Replay:
    def answer(request: Any) -> Any:
        last = request.messages[-1]
        if last.role != "user":
            return "Done."
        return {"calls": [{"name": tool, "arguments": {"number": int(n)}} for n in last.text.split()]}

    return Replay([answer] * 400)


def in_threads(work: Any, loops: int) -> None:
    """Runs `work(loop number)` in event loops of their own, all at the same moment."""
    ready = threading.Barrier(loops)

    def begin(number: int) -> None:
        ready.wait()
        asyncio.run(work(number))

    threads = [threading.Thread(target=begin, args=(number,)) for number in range(loops)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("effect", ["read", "write"])
@pytest.mark.parametrize(("loops", "runs"), [(1, 12), (2, 6), (12, 1)])
def test_runs_side_by_side_start_exactly_what_the_rate_says(effect: str, loops: int, runs: int) -> None:
    """In one loop, in two, and in a thread each: all of the rate is used, and nothing above it."""
    began: list[int] = []
    agent = Agent(answers("ring"), tools=[ring("ring", effect, began, pause=0.001)], policy={"rate": {"ring": "5/h"}})
    results: list[Any] = []

    async def some(loop: int) -> None:
        prompts = [str(loop * runs + n) for n in range(runs)]
        results.extend(await asyncio.gather(*(agent.run(prompt) for prompt in prompts)))

    in_threads(some, loops)
    statuses = sorted(r.calls[0].result.status for r in results)
    assert statuses == ["denied"] * 7 + ["ok"] * 5
    assert len(began) == 5
    assert all(r.ok for r in results), "a call that is one too many ends no run"


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=2, max_size=6),
    st.integers(1, 8),
    st.sampled_from(["read", "write"]),
    st.integers(1, 3),
)
def test_no_mix_of_runs_principals_and_loops_starts_more(
    plans: list[list[int]], limit: int, effect: str, people: int
) -> None:
    """Whatever is asked for side by side, in one turn or in many: each principal's starts are at most its rate, and as
    many as the rate where enough was asked for."""
    began: list[int] = []
    tool = ring("ring", effect, began, rate=f"{limit}/h")
    agent = Agent(answers("ring"), tools=[tool])
    asked: dict[str, int] = {}
    done: dict[str, int] = {}
    numbers = iter(range(10_000))
    work = []
    for at, plan in enumerate(plans):
        who = f"user{at % people}"
        for size in plan:
            asked[who] = asked.get(who, 0) + size
            work.append((at % 2, who, " ".join(str(next(numbers)) for _ in range(size))))

    async def some(loop: int) -> None:
        mine = [(who, prompt) for number, who, prompt in work if number == loop]
        results = await asyncio.gather(*(agent.run(p, principal=Principal(who)) for who, p in mine))
        for (who, _), result in zip(mine, results, strict=True):
            ok = sum(c.result.status == "ok" for c in result.calls)
            done[who] = done.get(who, 0) + ok

    in_threads(some, 2)
    assert len(began) == sum(done.values())
    for who, count in asked.items():
        assert done[who] <= limit
        # Calls that were judged early may be refused for a start that was given back; here none is.
        assert done[who] == min(limit, count)


async def test_a_call_that_is_one_too_many_at_its_start_is_denied_and_recorded() -> None:
    """The verdict of the start is shown and recorded as any other, and the call has its one result."""
    began: list[int] = []
    tools = [ring("ring", "read", began, rate="1/h")]
    agent = Agent(answers("ring"), tools=tools)
    events: list[Any] = []
    # another run's start, between the verdict and the start
    count = agent._runner._starts.reserve

    def late(principal: str | None, tool: str, limits: Any) -> Any:
        count(principal, tool, ())
        return count(principal, tool, limits)

    agent._runner._starts.reserve = late  # type: ignore[method-assign]
    async with agent.stream("7") as stream:
        events = [event async for event in stream]
    assert began == []
    assert [type(e.verdict).__name__ for e in events if isinstance(e, CallJudged)] == ["Allow", "Deny"]
    assert not [e for e in events if isinstance(e, CallStarted)]
    (finished,) = [e for e in events if isinstance(e, CallFinished)]
    assert (finished.result.status, "at most 1/h" in finished.result.content) == ("denied", True)
    kinds = [e.kind for e in await agent.ledger.read(stream.result.run_id)]
    assert kinds.count("call_judged") == 2
    assert kinds.count("call_result") == 1
    again = await agent.resume(stream.result.run_id)
    assert [c.result.status for c in again.calls] == ["denied"]


async def test_a_call_that_never_started_gives_its_place_back() -> None:
    """A write that could not be recorded, or whose arguments the tool's own types refuse, did not start."""
    began: list[int] = []
    agent = Agent(answers("ring"), tools=[ring("ring", "write", began, rate="1/h")])
    append = agent.ledger.append

    async def failing(run_id: str, entries: Any, **more: Any) -> Any:
        if any(entry.kind == "call_intent" for entry in entries):
            raise OSError("no space left on device")
        return await append(run_id, entries, **more)

    agent.ledger.append = failing  # type: ignore[method-assign]
    assert not (await agent.run("1")).ok
    agent.ledger.append = append  # type: ignore[method-assign]
    result = await agent.run("2")
    assert (result.calls[0].result.status, began) == ("ok", [2])
    assert (await agent.run("3")).calls[0].result.status == "denied"


async def test_a_call_of_the_same_turn_that_has_ended_counts_once() -> None:
    """Two writes in one turn, the second of which waits for a person until the first has ended."""
    began: list[int] = []

    async def ring(number: int) -> str:
        """Rings."""
        began.append(number)
        if number == 1:
            raise ConnectionError("reset")  # its outcome is unknown: the next one of the tool asks (X4)
        return "rang"

    for settings_ in ({"rate": {"ring": "2/h"}}, {"budget": {"per_tool": {"ring": 2}}}):
        began.clear()
        tool = Tool.from_function(ring, effect="write")
        agent = Agent(answers("ring"), tools=[tool], policy=settings_, approve=lambda call: True)
        result = await agent.run("1 2")
        assert [c.result.status for c in result.calls] == ["unknown_outcome", "ok"], settings_
        assert began == [1, 2]


# --- the count itself ---------------------------------------------------------------------------------------------


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), st.sampled_from([None, "ada", "bob"])),
        st.tuples(st.sampled_from(["begin", "give back"]), st.integers(0, 9)),
        st.tuples(st.just("wait"), st.floats(0.1, 8.0)),
    ),
    max_size=60,
)


@settings(max_examples=200, deadline=None)
@given(ACTS, st.integers(1, 4), st.floats(1.0, 10.0))
def test_reservations_never_exceed_a_quota_in_any_order(acts: list[Any], count: int, seconds: float) -> None:
    """In every span there are at most `count` starts, those that are about to begin included; one is refused only if
    there are so many."""
    clock = Time()
    starts = Starts(clock=clock)
    quota = Quota("rate", count, seconds, "")
    waiting: list[Start] = []
    begun: dict[str | None, list[float]] = {}
    for act, value in acts:
        if act == "wait":
            clock.now += value
        elif act == "reserve":
            before = sum(s.who[0] == value for s in waiting)
            before += sum(at > clock.now - seconds for at in begun.get(value, []))
            given_ = starts.reserve(value, "ring", [quota])
            assert isinstance(given_, Quota) == (before >= count)
            if isinstance(given_, Start):
                waiting.append(given_)
        elif waiting:
            start = waiting.pop(value % len(waiting))
            if act == "begin":
                starts.begin(start)
                begun.setdefault(start.who[0], []).append(clock.now)
            else:
                starts.give_back(start)
    for times in begun.values():
        for at in times:
            assert sum(at - seconds < other <= at for other in times) <= count


def test_who_was_quiet_for_longer_than_every_span_is_forgotten() -> None:
    """A server meets new principals for ever; one with a rate a month is remembered for the month."""
    clock = Time()
    starts = Starts(clock=clock)
    starts.begin(starts.reserve("monthly", "ring", [Quota("rate", 1, 30 * 86_400.0, "")]))  # type: ignore[arg-type]
    clock.now = 10 * 86_400.0
    for number in range(MANY):
        starts.begin(starts.reserve(f"user{number}", "ring", ()))  # type: ignore[arg-type]
    assert starts.recent("monthly", "ring", 30 * 86_400.0) == 1
    clock.now = 41 * 86_400.0
    for number in range(2 * MANY):
        starts.begin(starts.reserve(f"other{number}", "ring", ()))  # type: ignore[arg-type]
    assert len(starts._known) <= 2 * MANY + 1
    assert starts.recent("monthly", "ring", 1e9) == 0


def test_a_quota_above_the_memory_is_still_a_limit() -> None:
    starts = Starts()
    quota = Quota("rate", 10_050, 86_400.0, "")
    taken = [starts.reserve(None, "ring", [quota]) for _ in range(10_060)]
    assert sum(isinstance(given_, Start) for given_ in taken) == 10_050


def test_a_start_that_was_forgotten_can_be_given_back() -> None:
    starts = Starts()
    first = starts.reserve(None, "ring", ())
    for _ in range(10_000):
        starts.reserve(None, "ring", ())
    starts.give_back(first)  # type: ignore[arg-type]


def test_every_rate_that_covers_a_tool_is_a_quota() -> None:
    """Its own and those of the policy; a rule without `quotas` has none."""
    rule = rate.Rule({"r*": "5/min", "s*": "1/s"})
    found = quotas((rule, lambda_rule()), ToolSpec("ring", "", {}, rate="2/10s"))
    assert [(q.count, q.seconds) for q in found] == [(2, 10.0), (5, 60.0)]
    chance = random.Random(1)
    for _ in range(50):
        recent, before = chance.randrange(8), chance.randrange(4)
        context = JudgeContext(
            batch=[ToolCall(str(n), "ring", {}) for n in range(before)], recent=lambda tool, seconds, n=recent: n
        )
        verdict = rule.judge(ToolCall("c", "ring", {}), ToolSpec("ring", "", {}), context)
        assert isinstance(verdict, Deny) == (recent + before >= 5)


def lambda_rule() -> Any:
    from callgate.policy import as_rule

    return as_rule(lambda call, spec, context: True)
