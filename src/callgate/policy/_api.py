"""What rules see and say.

Law: that of the room (callgate/policy/__init__.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, cast, runtime_checkable

from callgate.errors import ConfigError
from callgate.types import Allow, CallRecord, Deny, Principal, RunReason, ToolCall, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.policy._sources import Sources

Recent: TypeAlias = Callable[[str, float], int]
"""(tool, seconds) -> how many of its calls the principal started in the last so many seconds, over all runs."""


def _none(tool: str, seconds: float) -> int:
    return 0


@dataclass(slots=True, frozen=True)
class Quota:
    """So many starts of one tool in a span of time, for one principal, over all runs."""

    rule: str
    """The rule that sets it."""
    count: int
    seconds: float
    reason: str
    """What the model is told when it is used up."""


@dataclass(slots=True, frozen=True)
class JudgeContext:
    """What a rule may know beside the call."""

    principal: Principal | None = None
    records: Sequence[CallRecord] = ()
    """The finished calls of this run, in order."""
    batch: Sequence[ToolCall] = ()
    """The other calls of the same turn that have not ended and may run as far as is known."""
    now: float = 0.0
    """Seconds since the run began, waiting for people not counted."""
    recent: Recent = _none
    resolve: Callable[[str], str] | None = None
    """Follows the links of a path, where there is a disk; None: paths are compared as they are written."""
    sources: Callable[[], Sources] | None = None
    """What was written and seen so far; read only if a rule asks. None: nothing is known of it."""


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
    arguments: Mapping[str, object] | None = None
    """With a yes: run it with these arguments in place of the model's; they are checked and judged like those."""


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
class Rationed(Protocol):
    """A rule whose limit is shared with other runs.

    `judge` sees only what had begun when it looked, and runs beside this one may begin the same call meanwhile: what
    it lets through is counted, and refused when one too many, in one step when the call starts.
    """

    def quotas(self, spec: ToolSpec) -> Sequence[Quota]:
        """What one principal's calls of the tool may use."""
        ...


@runtime_checkable
class Advisor(Protocol):
    """A rule that has something to say to the model beside a result."""

    def advice(self, records: Sequence[CallRecord], since: int, specs: Mapping[str, ToolSpec]) -> Mapping[str, str]:
        """Call id -> what the model reads beside its result, for the records from number `since` on."""
        ...


@runtime_checkable
class ToolCheck(Protocol):
    """A rule that can tell, before anything runs, that it names a tool or an argument that is not there."""

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a part of the rule that can never apply to these tools."""
        ...


RuleLike: TypeAlias = Rule | Callable[[ToolCall, ToolSpec, JudgeContext], object] | str


@dataclass(slots=True, frozen=True)
class _Function:
    """A plain function as a rule; it may also give True (allow) or False (deny)."""

    name: str
    function: Callable[[ToolCall, ToolSpec, JudgeContext], object]

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        verdict = self.function(call, spec, context)
        if verdict is True:
            return Allow()
        if verdict is False:
            return Deny(self.name, "not allowed")
        return cast("Verdict", verdict)


def as_rule(rule: object) -> Rule:
    """A rule object as it is, a function as a rule."""
    if isinstance(rule, Rule):
        return rule
    if callable(rule) and not isinstance(rule, type):
        return _Function(getattr(rule, "__name__", "rule").strip("<>"), rule)
    raise ConfigError(f"policy: {rule!r} is no rule; a rule has `name` and `judge(call, spec, context)`")
