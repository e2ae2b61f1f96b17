"""What is known of a run, and what its two sides decide should happen next.

Law: the state knows neither side; both take it, write what they found out into it, and return the next move.
(tests/test_run_sides.py::test_the_state_knows_neither_side)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from callgate.checks import AskAgain, Change, Decision, Refuse
from callgate.events import Event, TextChecked
from callgate.history import History
from callgate.policy import Progress
from callgate.run._asking import AskingState
from callgate.run._batch import GateState
from callgate.run._values import Held, dump_message, entry
from callgate.run.inputs import Command, Record, RunConfig, Step
from callgate.types import BadCall, CallRecord, Message, Reply, RunReason, ToolCall, ToolSpec, Usage

DECISIONS: Mapping[type, str] = {type(None): "accepted", Change: "changed", Refuse: "refused", AskAgain: "asked_again"}
"""How decisions about texts are called on the wire."""
Phase: TypeAlias = Literal["new", "model", "calls", "parked", "ended"]


@dataclass(slots=True, frozen=True)
class AskModel:
    """The model is asked for its next answer."""


@dataclass(slots=True, frozen=True)
class Proposed:
    """An answer with calls was accepted; the calls have their final ids."""

    reply: Reply
    calls: Sequence[ToolCall | BadCall]
    written: str = ""
    """All that the model wrote in it, as it came."""


@dataclass(slots=True, frozen=True)
class Unusable:
    """Nothing of the last answer could be used; the results tell the model why."""

    why: str


@dataclass(slots=True, frozen=True)
class EndRun:
    """The run ends."""

    reason: RunReason
    error: str | None = None


Move: TypeAlias = AskModel | Proposed | Unusable | EndRun


@dataclass(slots=True)
class RunState:
    """One run so far."""

    config: RunConfig
    protocol: str
    """How the model is asked now."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools that are offered to the model; for it there are no others (G1)."""
    phase: Phase = "new"
    turn: int = 0
    """Accepted answers so far."""
    model: int = 0
    """The model that is asked: 0 the run's own, then those of `RunConfig.others`."""
    requests: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    spent: int = 0
    """Tokens for the budget: as the server counts, and estimated where it does not tell."""
    checked: bool = False
    """The prompt was looked at."""
    reason: RunReason | None = None
    error: str | None = None
    text: str = ""
    output: object = None
    """The final answer as a value, where a form for it was asked for."""
    problems: list[str] = field(default_factory=list)
    history: History = field(default_factory=History)
    finished: list[CallRecord] = field(default_factory=list)
    """Calls with their results, in the order in which they ended."""
    now: float = 0.0
    """Seconds since the run began, without the time that it waited for people or lay stopped."""
    stopping: tuple[RunReason, str | None] | None = None
    """Why the run ends as soon as the calls that run now have ended."""
    step: Step = field(default_factory=Step)
    """What follows from the input that is being dealt with."""
    specs: dict[str, ToolSpec] = field(default_factory=dict)
    """`tools` by name."""
    asking: AskingState = field(default_factory=AskingState)
    gate: GateState = field(default_factory=GateState)
    _recorded: int = 0
    """How many of the problems stand in the journal."""

    @classmethod
    def of(cls, config: RunConfig) -> RunState:
        """A run that has not begun."""
        state = cls(config, config.protocol)
        if config.summary is not None:
            state.asking.summary, state.asking.covered = config.summary[0], frozenset(config.summary[1])
        for spec in config.tools:
            # A hidden tool is in the toolbox for the application itself; the model does not hear of it.
            if not spec.hidden:
                state.offer(spec)
        return state

    def change_model(self, number: int) -> None:
        """Another of its models is asked from now on, in that one's own way."""
        choice = self.config.others[number - 1]
        self.config = replace(self.config, info=choice.info, dialect=choice.dialect, context=choice.context)
        self.model, self.protocol = number, choice.protocol
        # What was found out about the one before says nothing about this one.
        self.asking.failures = self.asking.attempts = 0
        self.asking.budget = None

    def offer(self, spec: ToolSpec) -> None:
        """Offers the model one more tool."""
        self.tools = (*self.tools, spec)
        self.specs[spec.name] = spec

    @property
    def turns_before(self) -> int:
        """Answers with calls in the history that the run began with, and those that did not count as turns."""
        # For the numbers in made-up ids, which must not collide with those in the history.
        return sum(bool(m.calls) for m in self.history.messages) - self.turn

    def progress(self, before: Literal["request", "batch"], batch: Sequence[ToolCall] = (), asked: int = 0) -> Progress:
        """How far the run has come, for the limits."""
        return Progress(
            before,
            turn=self.turn,
            requests=self.requests,
            seconds=self.now,
            usage=self.usage,
            tokens=self.spent,
            records=self.finished,
            batch=batch,
            asked=asked,
            specs=self.specs,
        )

    # --- what follows ---------------------------------------------------------------------------------------------

    def emit(self, event: Event) -> None:
        """Adds an event of the run."""
        self.step.events.append(event)

    def command(self, command: Command) -> None:
        """Has something done."""
        self.step.commands.append(command)

    def record(self, kind: str, data: dict[str, Any], *, durable: bool = False, held: Held | None = None) -> None:
        """Writes an entry of the journal; `held` are true arguments that are kept beside it."""
        self.step.commands.append(Record(entry(kind, data, self.now, held), durable))

    def totals(self) -> dict[str, object]:
        """What the run has used so far, and the problems since the last time; a resumed run goes on from there."""
        found, self._recorded = self.problems[self._recorded :], len(self.problems)
        made: dict[str, object] = {"total": {"usage": dict(self.usage), "spent": self.spent}}
        return made | ({"problems": list(found)} if found else {})

    def enter(self, history: History) -> None:
        """Takes over a history that grew, and records what is new in it."""
        for message in history.messages[len(self.history.messages) :]:
            self.record("message", {"message": dump_message(message)})
        self.history = history

    def enter_answer(self, reply: Reply) -> None:
        """Takes an answer without calls into the history."""
        if reply.content.strip():
            self.text = reply.content
            self.enter(self.history.say(Message("assistant", reply.content, reply.reasoning, extra=reply.extra)))

    def add_usage(self, usage: Usage, requests: int, spent: int) -> None:
        """What another agent used for this run."""
        for kind, count in usage.items():
            self.usage[kind] = self.usage.get(kind, 0) + count
        self.requests += requests
        self.spent += spent

    def decided(self, what: str, decision: Decision) -> None:
        """Records and shows what the application said to a text."""
        made = DECISIONS[type(decision)]
        reason, text = getattr(decision, "reason", ""), getattr(decision, "text", "")
        self.record("check", {"what": what, "decision": made, "reason": reason, "text": text})
        self.emit(TextChecked(what, made, reason, text))

    def note(self, problem: str) -> None:
        """Keeps something odd, once."""
        if problem not in self.problems:
            self.problems.append(problem)
