"""A world for the pure `Run`: answers its commands by chance or by script, and keeps what went in and came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from callgate.events import CallFinished, CallProposed
from callgate.policy import Answer, Rule, approval, budget, permission, repetition
from callgate.run import (
    Answered,
    AskPerson,
    Began,
    Cancelled,
    End,
    Execute,
    Failed,
    LookUp,
    Parked,
    Ran,
    Received,
    Record,
    Resumed,
    Run,
    RunConfig,
    Send,
    Step,
    Tick,
)
from callgate.types import (
    BadCall,
    CallDelta,
    Delta,
    Entry,
    Finish,
    Message,
    ModelInfo,
    ReasoningDelta,
    TextDelta,
    ToolCall,
    ToolResult,
    ToolSpec,
)

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
SPECS = (
    ToolSpec("look", "Look.", SCHEMA, effect="read"),
    ToolSpec("poll", "Poll.", SCHEMA, effect="read", polling=True),
    ToolSpec("put", "Put.", SCHEMA, effect="write"),
    ToolSpec("pay", "Pay.", SCHEMA, effect="write", confirm=True, has_lookup=True),
    ToolSpec("secret", "Secret.", SCHEMA, effect="read", permission="secrets"),
)
INFO = ModelInfo("scripted", capabilities=frozenset({"tools", "schema"}))
LIMITS = budget.Rule(turns=6, requests=24, calls_per_turn=16, seconds=100.0, tokens=10_000)
RULES: tuple[Rule, ...] = (permission.Rule(), approval.Rule(), repetition.Rule(), LIMITS)


def config(**more: Any) -> RunConfig:
    """A run that may use everything above."""
    given: dict[str, Any] = {"protocol": "native", "dialect": "hermes", "tools": SPECS, "rules": RULES, **more}
    return RunConfig("run1", INFO, **given)


class Script:
    """Carries the commands of a run out with what `choose` says: choose(label, options) -> one of them."""

    def __init__(self, run: Run, choose: Callable[[str, list[Any]], Any]) -> None:
        self.run = run
        self.choose = choose
        self.inputs: list[Any] = []
        self.steps: list[Step] = []
        self.entries: list[Entry] = []
        self.ran: list[str] = []
        self.cleared: set[Any] = set()
        """Writes that turned out to have had no effect when they were looked up."""
        self.now = 0.0

    @property
    def events(self) -> list[Any]:
        return [event for step in self.steps for event in step.events]

    def play(self) -> None:
        """From the beginning to the end of the run."""
        self.keep(self.run.start([Message("user", "go")]))
        self._drive()

    def go_on(self) -> None:
        """To the end of a run that was folded from its journal."""
        self.now = self.run.now
        self.feed(Resumed(self.now))
        self._drive()

    def _drive(self, most: int = 2000) -> None:
        while not self.run.ended:
            most -= 1
            assert most, "the run does not end"
            act = [c for c in self.steps[-1].commands if not isinstance(c, Record)]
            assert len(act) == 1, f"one act at a time, not {act}"
            if isinstance(act[0], End) and self.run.phase == "parked":
                self.feed(Resumed(self.now))
                continue
            self.act(act[0])

    def feed(self, value: Any) -> Step:
        """One input."""
        self.inputs.append(value)
        step = self.run.receive(value)
        self.keep(step)
        return step

    def keep(self, step: Step) -> None:
        """What a step said, and what it wrote down."""
        self.steps.append(step)
        self.entries += [
            Entry(c.entry.kind, json.loads(json.dumps(c.entry.data))) for c in step.commands if isinstance(c, Record)
        ]

    def tick(self) -> float:
        """A little later."""
        self.now += self.choose("seconds", [0.0, 0.001, 0.5, 30.0])
        return self.now

    def act(self, command: Any) -> None:
        """What the world makes of a command."""
        if self.choose("interrupt", [False] * 12 + [True]):
            self.feed(self.choose("how", [Cancelled(self.tick()), Tick(self.tick())]))
            if self.run.ended:
                return
        match command:
            case Send():
                self._answer()
            case Execute(calls) | LookUp(calls):
                self._execute(list(calls), started=isinstance(command, LookUp))
            case AskPerson(pending):
                self._decide([p.id for p in pending])

    def _decide(self, ids: list[str]) -> None:
        for call_id in ids:
            match self.choose("person", ["yes", "no", "same", "away"]):
                case "away":
                    continue
                case said:
                    scope = "same" if said == "same" else "once"
                    self.feed(Answered(call_id, Answer(said != "no", scope), self.tick()))
        if self.run.pending:
            self.feed(Parked(self.tick()))

    def _execute(self, calls: list[ToolCall], *, started: bool) -> None:
        assert calls
        while calls and not self.run.ended:
            call = calls.pop(self.choose("which", list(range(len(calls)))))
            if not started and not self.run.calls.unstarted(call.id):
                continue  # withdrawn meanwhile
            begins = started or self.choose("begins", [True, True, True, False])
            if begins and not started:
                self.feed(Began(call.id, self.tick()))
                self.ran.append(call.id)
                if self.choose("interrupt", [False] * 12 + [True]):
                    self.feed(Cancelled(self.tick()))
            statuses = ["ok", "ok", "failed", "timeout", "not_found", "unknown_outcome"] if begins else ["not_started"]
            result = ToolResult(call.id, self.choose("status", statuses), self.choose("content", ["A", "A", "B"]))
            if started and result.status in ("failed", "not_found"):
                self.cleared.add((call.name, str(sorted(call.arguments.items()))))
            self.feed(Ran(call.id, result, 0.1 if begins else None, self.tick()))

    def _answer(self) -> None:
        """An answer of the model, or none."""
        if self.choose("request fails", [False] * 8 + [True]):
            self.feed(Failed("down", self.tick(), "Overloaded", again=self.choose("again", [True, False])))
            return
        deltas = self._deltas()
        while deltas and self.run.phase == "model":
            size = self.choose("cut", [1, 2, 50])
            self.feed(Received(deltas[:size], self.tick()))
            deltas = deltas[size:]

    def _deltas(self) -> list[Delta]:
        out: list[Delta] = []
        if self.choose("thinks", [False, True]):
            out += [ReasoningDelta("so "), ReasoningDelta("…")]
        if self.choose("speaks", [False, True]):
            out += [TextDelta("Well"), TextDelta(", then.")]
        count = self.choose("calls", [0, 1, 1, 2, 3, 50])
        settled: list[Delta] = []
        for index in range(count):
            name = self.choose("name", ["look", "put", "pay", "poll", "secret", "nowhere", "LOOK", "Put", None])
            own = self.choose("id", [None, "", "c1", f"call_{index + 1}", "same", f"own_{self.now}_{index}"])
            arguments = self.choose("arguments", [{}, {"n": 1}, {"n": 1}, {"n": "2"}, {"n": "x"}, {"other": 1}])
            out.append(CallDelta(index, own or None, name, json.dumps(arguments)))
            bad = self.choose("bad", [None, None, None, "malformed", "truncated"])
            if bad or name is None:
                text = self.choose("text", ["{", "{'n': 1}", "", "nonsense"])
                settled.append(BadCall(index, own, name, text, bad or "truncated"))
            else:
                flags = self.choose("flags", [frozenset(), frozenset(), frozenset({"loose"}), frozenset({"recovered"})])
                settled.append(ToolCall(own or "", name, dict(arguments), index, flags))
        finish = self.choose("finish", ["stop"] * 6 + ["length", "error", "interrupted", "content_filter"])
        return [*out, *settled, Finish(finish, {"input": 5, "output": 5})]


def check_calls(script: Script, *, whole: bool = True) -> None:
    """Every call that was proposed has exactly one result, and the history holds it. `whole`: all events are there."""
    run = script.run
    proposed = [e.call.id for e in script.events if isinstance(e, CallProposed)]
    finished = [e.call_id for e in script.events if isinstance(e, CallFinished)]
    assert len(proposed) == len(set(proposed))
    recorded = [r.call.id for r in run.records]
    assert recorded == [c.id for m in run.messages for c in m.calls]
    if whole:
        assert sorted(proposed) == sorted(finished)
        assert recorded == proposed
    open_calls: list[str] = []
    for message in run.messages:
        if message.role == "tool":
            assert open_calls, message
            assert message.call_id == open_calls.pop(0)
        else:
            assert not open_calls
            open_calls = [c.id for c in message.calls]
    assert not open_calls
