"""Asks a model every case under every protocol: one turn each, with the retries that a run would make.

One law: what is measured is `protocols.turn`, the same steps that a run carries out; tools are never run.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from callgate import protocols
from callgate.errors import ProviderError
from callgate.evals._cases import Case
from callgate.evals._outcomes import Outcome, dump, load_outcomes
from callgate.protocols import Chosen, Query, Score
from callgate.providers import Provider
from callgate.reply import TurnReader
from callgate.schema import mend
from callgate.types import BadCall, Message, ModelInfo, Reply, ToolCall, ToolSpec

RETRIES = 2
FEW_TOKENS = 16


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
    chooser: str = "auto"


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
        outcome = await _Asking(plan, info, name, case).outcome()
        done[key] = outcome
        if plan.path is not None:
            plan.path.parent.mkdir(parents=True, exist_ok=True)
            with plan.path.open("a", encoding="utf-8") as file:
                file.write(dump(outcome))
        if progress is not None:
            progress(outcome, at, len(wanted))
    return [done[(info.name, name, case.group, case.id)] for name, case in wanted]


class _Asking:
    """One case under one protocol."""

    def __init__(self, plan: Plan, info: ModelInfo, name: str, case: Case) -> None:
        self.plan = plan
        self.info = info
        self.name = name
        self.case = case
        self.usage = {"input": 0, "output": 0}
        self.retries = 0
        self.chosen: Chosen | None = None
        self.plain = {t.name: re.sub(r"[^A-Za-z0-9_-]", "_", t.name)[:64] for t in case.tools}
        if not protocols.ROWS.get(name, protocols.ROWS["json"]).native:
            self.plain = {n: n for n in self.plain}  # only servers restrict names
        self.tools = tuple(replace(t, name=self.plain[t.name]) for t in case.tools)
        self.specs = {t.name: t for t in self.tools}
        self.names = {v: k for k, v in self.plain.items()}

    async def outcome(self) -> Outcome:
        """Ask, until the answer can be used or the retries are spent."""
        started, worked = time.perf_counter(), time.process_time()
        reply, faults, error = Reply(), [""], None
        history = self.case.messages
        try:
            reply, faults = await self._ask(history)
            while any(faults) and self.retries < self.plan.retries:
                self.retries += 1
                said = Message("assistant", reply.content or _raw(reply))
                history = (*history, said, Message("user", next(f for f in faults if f)))
                reply, faults = await self._ask(history)
        except ProviderError as raised:
            error = f"{type(raised).__name__}: {raised}"
        spent = (time.perf_counter() - started, time.process_time() - worked)
        return self._judge(reply, faults, error, spent)

    async def _ask(self, history: Sequence[Message]) -> tuple[Reply, list[str]]:
        turn = protocols.turn(
            self.name,
            history=history,
            tools=self.tools,
            info=self.info,
            options=self.plan.options,
            chooser=self.plan.chooser,
        )
        value: Any = None
        while True:
            try:
                step = turn.send(value)
            except StopIteration as stop:
                return self._mended(stop.value)
            match step:
                case Query():
                    value = await self._send(step)
                case Score():
                    value = await self.plan.provider.score(step)
                case Chosen():
                    self.chosen, value = step, None

    async def _send(self, query: Query) -> Reply:
        request = query.request
        if query.machine is None and query.purpose == "turn":  # a plain answer in words is not judged: a few will do
            request = replace(request, options={**request.options, "max_tokens": FEW_TOKENS})
        reader = TurnReader(query.machine() if query.machine else None, rescue=query.rescue)
        async with self.plan.provider.stream(request) as deltas:
            async for some in deltas:
                reader.feed(some)
        for kind, count in (reader.reply.usage or {}).items():
            if kind in self.usage:
                self.usage[kind] += count
        return reader.reply

    def _mended(self, reply: Reply) -> tuple[Reply, list[str]]:
        """The reply with its arguments as a run would have them, and what is wrong with each call ("" for nothing)."""
        calls, faults = [], []
        for call in reply.calls:
            fixed, fault = self._check(call)
            calls.append(fixed)
            faults.append(fault)
        faults += [protocols.reason("malformed", detail=bad.reason) for bad in reply.incomplete]
        if not reply.calls and not reply.incomplete and not reply.content.strip():
            faults.append(protocols.reason("empty"))
        return replace(reply, calls=calls), faults

    def _check(self, call: ToolCall) -> tuple[ToolCall, str]:
        spec: ToolSpec | None = self.specs.get(call.name)
        if spec is None:
            return call, protocols.reason("unknown_tool", name=call.name, detail=", ".join(self.specs))
        mended = mend(call.arguments, spec.parameters)
        if mended.outcome != "ok":
            detail = "; ".join(f"{pointer or 'arguments'}: {message}" for pointer, message in mended.errors)
            return call, protocols.reason("invalid_arguments", name=call.name, detail=detail)
        return replace(call, arguments=mended.value), ""

    def _judge(self, reply: Reply, faults: list[str], error: str | None, spent: tuple[float, float]) -> Outcome:
        calls = [replace(c, name=self.names.get(c.name, c.name)) for c in reply.calls]
        bad: list[BadCall] = reply.incomplete
        valid = error is None and not any(faults)
        wrong = error or next((f for f in faults if f), None) or self.case.wrong(calls)
        return Outcome(
            model=self.info.name,
            protocol=self.name,
            group=self.case.group,
            case=self.case.id,
            wants_call=self.case.wants_call,
            called=bool(calls or bad),
            parses=error is None and not bad and bool(calls or reply.content.strip()),
            valid=valid,
            right_tool=tuple(sorted(c.name for c in calls)) == self.case.names,
            right=valid and wrong is None,
            retries=self.retries,
            input=self.usage["input"],
            output=self.usage["output"],
            seconds=round(spent[0], 3),
            cpu=round(spent[1], 3),
            wrong=wrong,
            chooser=self.chosen.chooser if self.chosen else None,
            confidence=self.chosen.confidence if self.chosen else None,
            error=error,
            calls=[{"name": c.name, "arguments": c.arguments} for c in calls],
        )


def _raw(reply: Reply) -> str:
    """What an unusable answer without text said."""
    return "\n".join(bad.text for bad in reply.incomplete) or "…"
