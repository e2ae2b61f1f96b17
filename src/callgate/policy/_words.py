"""What rules see and say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from callgate.types import CallRecord, Principal, RunReason, ToolCall, ToolSpec, Verdict

Recent: TypeAlias = Callable[[str, float], int]
"""(tool, seconds) -> how many of its calls the principal started in the last so many seconds, over all runs."""


def _none(tool: str, seconds: float) -> int:
    return 0


@dataclass(slots=True, frozen=True)
class JudgeContext:
    """What a rule may know beside the call."""

    principal: Principal | None = None
    records: Sequence[CallRecord] = ()
    """The finished calls of this run, in order."""
    batch: Sequence[ToolCall] = ()
    """The calls of the same turn that come before this one and may run as far as is known."""
    now: float = 0.0
    """Seconds since the run began, waiting for people not counted."""
    recent: Recent = _none
    resolve: Callable[[str], str] | None = None
    """Follows the links of a path, where there is a disk; None: paths are compared as they are written."""


@dataclass(slots=True, frozen=True)
class Progress:
    """How far a run has come, asked before each request to the model and before each batch of calls."""

    before: Literal["request", "batch"]
    turn: int = 0
    """Accepted answers so far, the one with this batch included."""
    requests: int = 0
    seconds: float = 0.0
    usage: Mapping[str, int] = field(default_factory=dict)
    """As far as the server tells."""
    tokens: int = 0
    """Input and output together; estimated where the server does not tell."""
    records: Sequence[CallRecord] = ()
    batch: Sequence[ToolCall] = ()
    """The calls that may run."""
    asked: int = 0
    """Calls of this answer, with those that cannot run."""
    specs: Mapping[str, ToolSpec] = field(default_factory=dict)


@dataclass(slots=True, frozen=True)
class Stop:
    """The run ends here, with this reason; the message says which limit and which setting moves it."""

    reason: RunReason
    message: str


@dataclass(slots=True, frozen=True)
class Answer:
    """A person's answer to an `Ask`."""

    allow: bool
    scope: Literal["once", "same", "tool"] = "once"
    """What else it covers in this run: nothing, the same tool with the same arguments, every call of the tool."""
    by: str = ""


@runtime_checkable
class Rule(Protocol):
    """One rule of the gate."""

    @property
    def name(self) -> str:
        """What verdicts and the ledger call it."""
        ...

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """The verdict on exactly these arguments."""
        ...


@runtime_checkable
class Limit(Protocol):
    """A rule that can also end the run."""

    def check(self, progress: Progress) -> Stop | None:
        """None: go on."""
        ...


@runtime_checkable
class Advisor(Protocol):
    """A rule that has something to say to the model beside a result."""

    def advice(self, records: Sequence[CallRecord], since: int, specs: Mapping[str, ToolSpec]) -> Mapping[str, str]:
        """Call id -> what the model is told beside its result, for the records from number `since` on."""
        ...


RuleLike: TypeAlias = Rule | Callable[[ToolCall, ToolSpec, JudgeContext], Any] | str
