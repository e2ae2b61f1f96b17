"""Asks a model every case under every protocol, in a real run up to its first turn.

Law: what is measured is `Agent`, with its retries and its ladder, so it is what users run; no tool ever starts.
(tests/test_evals.py::test_what_is_measured_is_the_real_run)
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callgate import protocols
from callgate.agent import Agent, RunResult
from callgate.errors import ProviderError
from callgate.evals._by_words import by_words
from callgate.evals._outcomes import Outcome, dump, load_outcomes
from callgate.events import Event, ProtocolChanged, Retrying, Routed
from callgate.tools import Tool
from callgate.types import Delta, Message, ModelInfo, Request, ToolCall

if TYPE_CHECKING:
    from callgate.evals._cases import Case
    from callgate.providers import Provider

RETRIES = 2
UNUSABLE = frozenset({"invalid_arguments", "unknown_tool"})


@dataclass(slots=True, frozen=True)
class Plan:
    """What to evaluate."""

    provider: Provider
    protocols: Sequence[str]
    cases: Sequence[Case]
    path: Path | None = None
    """Where outcomes are written, and found again."""
    retries: int = RETRIES
    options: Mapping[str, Any] = field(default_factory=lambda: {"temperature": 0.0})


async def evaluate(plan: Plan, progress: Callable[[Outcome, int, int], None] | None = None) -> list[Outcome]:
    """Every outcome of the plan, those found on disk included. `progress` hears of each new one."""
    info = await plan.provider.info()
    done = {o.key: o for o in load_outcomes(plan.path)} if plan.path else {}
    names = [protocols.choose(info, plan.cases[0].tools, name) if plan.cases else name for name in plan.protocols]
    wanted = [(name, case) for name in names for case in plan.cases]
    for at, (name, case) in enumerate(wanted, 1):
        key = (info.name, name, case.group, case.id)
        if key in done and done[key].error is None:
            continue
        outcome = await _outcome(plan, info, name, case)
        done[key] = outcome
        if plan.path is not None:
            plan.path.parent.mkdir(parents=True, exist_ok=True)
            with plan.path.open("a", encoding="utf-8") as file:
                file.write(dump(outcome))
        if progress is not None:
            progress(outcome, at, len(wanted))
    return [done[(info.name, name, case.group, case.id)] for name, case in wanted]


class _Watched:
    """The provider of the plan, with what it refused noted: the run itself would step down in silence."""

    def __init__(self, inner: Provider) -> None:
        self._inner = inner
        self.name, self.model = inner.name, inner.model
        self.errors: list[str] = []

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[list[Delta]]]:
        """One answer; an error on the way to it is noted and raised."""
        try:
            async with self._inner.stream(request) as deltas:
                yield deltas
        except ProviderError as error:
            self.errors.append(f"{type(error).__name__}: {error}")
            raise

    async def info(self) -> ModelInfo:
        """As the provider says."""
        return await self._inner.info()

    async def catalogue(self) -> list[ModelInfo]:
        """As the provider says."""
        return await self._inner.catalogue()

    async def aclose(self) -> None:
        """It belongs to the caller."""


def _never(**_: Any) -> None:
    raise AssertionError("a tool of an evaluation was started")


async def _outcome(plan: Plan, info: ModelInfo, name: str, case: Case) -> Outcome:
    """One case under one protocol."""
    plain = {t.name: re.sub(r"[^A-Za-z0-9_-]", "_", t.name)[:64] for t in case.tools}
    if not protocols.ROWS.get(name, protocols.ROWS["json"]).native:
        plain = {n: n for n in plain}  # only servers restrict names
    tools = [
        Tool.from_schema(plain[t.name], t.description, t.parameters, _never, effect=t.effect, examples=t.examples)
        for t in case.tools
    ]
    watched = _Watched(plan.provider)
    agent = Agent(
        watched,
        tools,
        instructions="\n\n".join(m.text for m in case.messages if m.role == "system"),
        options=plan.options,
        protocol=name,
        max_turns=1,
        retries=plan.retries,
    )
    talk = [m for m in case.messages if m.role != "system"]
    last = talk.pop().text if talk else ""
    events: list[Event] = []
    started, worked = time.perf_counter(), time.process_time()
    async with agent.stream(last, history=talk) as stream:
        events += [e async for e in stream if isinstance(e, (Retrying, ProtocolChanged, Routed))]
    spent = (round(time.perf_counter() - started, 3), round(time.process_time() - worked, 3))
    return _judge(stream.result, events, watched.errors, (info, name, case, plain), spent)


def _judge(
    result: RunResult,
    events: Sequence[Event],
    errors: Sequence[str],
    asked: tuple[ModelInfo, str, Case, Mapping[str, str]],
    spent: tuple[float, float],
) -> Outcome:
    """What the first turn came to."""
    info, protocol, case, plain = asked
    calls, whole = _usable(result, plain)
    error = _error_of(result, errors)
    usable = error is None and whole
    wrong = error or (case.wrong(calls) if whole else _refusal(result))
    chooser, confidence = _choice(events)
    return Outcome(
        model=info.name,
        protocol=protocol,
        group=case.group,
        case=case.id,
        wants_call=case.wants_call,
        called=bool(result.calls),
        parses=usable and bool(calls or result.text.strip()),
        valid=usable and bool(calls or not result.calls),
        right_tool=tuple(sorted(c.name for c in calls)) == case.names,
        right=usable and wrong is None,
        retries=sum(isinstance(e, Retrying) for e in events),
        input=result.usage.get("input", 0),
        output=result.usage.get("output", 0),
        seconds=spent[0],
        cpu=spent[1],
        wrong=wrong,
        chooser=chooser,
        confidence=confidence,
        error=error,
        calls=[{"name": c.name, "arguments": c.arguments} for c in calls],
        kept=error is None and _clean(result, events) and bool(calls or not case.wants_call),
        words=case.wrong(by_words(case)) is None,
    )


def _choice(events: Sequence[Event]) -> tuple[str | None, float | None]:
    """Who chose the tool last, and how sure it was."""
    last = [(e.chooser, e.confidence) for e in events if isinstance(e, Routed)][-1:]
    return last[0] if last else (None, None)


def _usable(result: RunResult, sent_names: Mapping[str, str]) -> tuple[list[ToolCall], bool]:
    """The calls of the last turn that could have run, under the case's own names, and whether these are all of it."""
    statuses = {record.call.id: record.result.status for record in result.calls}
    last = next((m for m in reversed(result.messages) if m.role == "assistant"), Message("assistant"))
    usable = [c for c in last.calls if statuses.get(c.id) not in UNUSABLE]
    own_names = {sent: own for own, sent in sent_names.items()}
    calls = [ToolCall(c.id, own_names.get(c.name, c.name), c.arguments, c.index, c.flags) for c in usable]
    return calls, not _failed(result) and len(usable) == len(last.calls)


def _failed(result: RunResult) -> bool:
    """Whether the run broke off. One turn is asked for, so the limit of turns is an end as planned."""
    return result.reason not in ("answered", "turn_limit")


def _error_of(result: RunResult, errors: Sequence[str]) -> str | None:
    """What went wrong outside the model: what the provider refused last, else why the run failed."""
    if errors:
        return errors[-1]
    return (result.error or str(result.reason)) if _failed(result) else None


def _refusal(result: RunResult) -> str:
    """Why the last call that could not run was refused."""
    refused = [record.result.content for record in result.calls if record.result.status in UNUSABLE]
    return refused[-1] if refused else "no usable answer"


def _clean(result: RunResult, events: Sequence[Event]) -> bool:
    """Whether the form was kept at once: nothing asked again, no step down the ladder, no problem in the reading."""
    return not result.problems and not any(isinstance(e, (Retrying, ProtocolChanged)) for e in events)
