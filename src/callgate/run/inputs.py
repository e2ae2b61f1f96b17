"""What goes into a run and what comes out of it: its configuration, its inputs and its commands.

Law: that of the room (callgate/run/__init__.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from callgate.checks import Decision
from callgate.events import Event
from callgate.limits import DEFAULTS
from callgate.types import (
    EMPTY,
    CallRecord,
    Delta,
    Deny,
    Entry,
    Message,
    ModelInfo,
    Principal,
    Request,
    RunReason,
    Schema,
    ToolCall,
    ToolResult,
    ToolSpec,
    Usage,
)

if TYPE_CHECKING:
    from callgate.dialects import Dialect
    from callgate.policy import Answer, Recent, Rule
    from callgate.schema.compiled import CompiledSchema


@dataclass(slots=True, frozen=True)
class ModelChoice:
    """A model that a run may go on with, and how it is asked."""

    info: ModelInfo
    protocol: str
    dialect: str | None = None
    context: int | None = None


@dataclass(slots=True, frozen=True)
class RunConfig:
    """Everything a run is given at its start; the same config and inputs give the same run."""

    run_id: str
    info: ModelInfo
    protocol: str = "native"
    tools: tuple[ToolSpec, ...] = ()
    instructions: str = ""
    options: Mapping[str, object] = field(default_factory=lambda: EMPTY)
    dialect: str | None = None
    own_dialects: Mapping[str, Dialect] = field(default_factory=lambda: EMPTY)
    """Dialects of the application, by the names that `protocol` and `dialect` may have."""
    rules: tuple[Rule, ...] = ()
    principal: Principal | None = None
    retries: int = DEFAULTS.retries
    """How often an unusable answer goes back, and how often a failed request is made again."""
    max_result: int = DEFAULTS.max_result
    """Characters of a result that the model sees, where the tool does not say."""
    adapt: bool = True
    """Step down the ladder also for answers that could be used, if they show that the protocol does not work here."""
    context: int | None = None
    """Tokens that the history may take; None: all of it is sent."""
    summarize: bool = DEFAULTS.summarize
    """Have the model sum up what does not fit, instead of dropping it."""
    process: Callable[[tuple[Message, ...]], Iterable[Message | Mapping[str, Any]]] | None = None
    """Makes of the messages that would be sent those that are; the run's own history stays whole."""
    summary: tuple[str, frozenset[int]] | None = None
    """What an earlier run of the session had summed up, and the places in the history that it stands for."""
    output: Schema | None = None
    """The final answer must be JSON that fits this schema."""
    external: frozenset[str] = frozenset()
    """Tools that the application carries out itself: their results come from `resume`."""
    stop_after: frozenset[str] = frozenset()
    """Tools whose result ends the run."""
    accept: Callable[[object], str | None] | None = None
    """Why the application refuses a final answer that fits the schema; None: it does not."""
    key: str = ""
    """Idempotency keys are made from this instead of the run id, so that another run may continue the same work."""
    hash_key: bytes = b""
    """The ledger's secret for the hashes of arguments."""
    approval_expires: float | None = None
    """Seconds after which an answer to a question comes too late."""
    tool_choice: str = "auto"
    """Of the first turn: "required", "none" or a tool's name."""
    parallel: bool | None = None
    """False: at most one call in an answer; None leaves it to the model."""
    first_reads: int | None = None
    """Of an answer with more reads than this only the first ones run (X7); None: the limit of calls decides."""
    compile: Callable[[ToolSpec], CompiledSchema] | None = None
    """A tool's schema, made ready; None: compiled when it is needed."""
    recent: Recent | None = None
    resolve: Callable[[str], str] | None = None
    others: tuple[ModelChoice, ...] = ()
    """Models to go on with, in this order, when one fails before anything of its answer came."""
    checks: frozenset[str] = frozenset()
    """What the application looks at before it counts: "prompt", "answer"."""


# --- inputs -------------------------------------------------------------------------------------------------------
# `now` is the time in seconds since the run began, without the time that it waited for people or lay stopped.


@dataclass(slots=True, frozen=True)
class Received:
    """Deltas of the answer that is awaited."""

    deltas: list[Delta]
    now: float


@dataclass(slots=True, frozen=True)
class Failed:
    """The request failed before anything of its answer came."""

    error: str
    now: float
    kind: str = ""
    """The error's class in errors.py."""
    again: bool = False
    """Whether the same request may succeed later."""
    after: float | None = None
    """The server's wish, in seconds."""
    status: int | None = None
    """The HTTP status."""


@dataclass(slots=True, frozen=True)
class Began:
    """A call is about to run: for a write, its intent must be durable before it does."""

    call_id: str
    now: float


@dataclass(slots=True, frozen=True)
class Progressed:
    """What a running tool reports."""

    call_id: str
    value: object


@dataclass(slots=True, frozen=True)
class Ran:
    """A call of `Execute` or `LookUp` has its result. `duration` is None if it never started."""

    call_id: str
    result: ToolResult
    duration: float | None
    now: float


@dataclass(slots=True, frozen=True)
class Answered:
    """A person decided. `waited` is how long the question stood, in seconds of the calendar."""

    call_id: str
    answer: Answer
    now: float
    waited: float = 0.0


@dataclass(slots=True, frozen=True)
class Supplied:
    """The application carried a call out itself, or another agent did, with tokens and requests of this run's."""

    call_id: str
    result: ToolResult
    now: float
    usage: Usage = field(default_factory=dict)
    requests: int = 0
    spent: int = 0


@dataclass(slots=True, frozen=True)
class Contested:
    """A write that was about to start is one that another run has started already: a person must decide."""

    call_id: str
    reason: str
    """What became of the other one."""
    now: float


@dataclass(slots=True, frozen=True)
class Refused:
    """A call that was about to start may not: what it shares with other runs was used up since it was judged."""

    call_id: str
    verdict: Deny
    now: float


@dataclass(slots=True, frozen=True)
class Settled:
    """How a write ended whose outcome was unknown; it is in the ledger already."""

    call_id: str
    result: ToolResult
    now: float


@dataclass(slots=True, frozen=True)
class Decided:
    """The application looked at the prompt or the answer."""

    what: str
    decision: Decision
    now: float


@dataclass(slots=True, frozen=True)
class Parked:
    """Nobody is there to answer: the run waits in the ledger."""

    now: float


@dataclass(slots=True, frozen=True)
class Tick:
    """Time went by."""

    now: float


@dataclass(slots=True, frozen=True)
class Cancelled:
    """Stop here."""

    now: float


@dataclass(slots=True, frozen=True)
class Broke:
    """The ledger or the driver itself failed: the run cannot go on."""

    error: str
    now: float


@dataclass(slots=True, frozen=True)
class Resumed:
    """The run is carried out again after its process let go of it, willingly or not."""

    now: float


CallInput: TypeAlias = Began | Progressed | Ran | Answered | Contested | Supplied | Refused | Settled
"""What became of one call."""
Input: TypeAlias = CallInput | Received | Failed | Decided | Parked | Tick | Cancelled | Broke | Resumed


# --- commands -----------------------------------------------------------------------------------------------------


@dataclass(slots=True, frozen=True)
class Record:
    """Write this down before anything that comes after it is carried out."""

    entry: Entry
    durable: bool = False
    """It must survive a power cut."""


@dataclass(slots=True, frozen=True)
class Send:
    """Ask the model, `delay` seconds from now; its deltas come back as `Received`."""

    request: Request
    delay: float = 0.0
    model: int = 0
    """Which model: 0 the run's own, then those of `RunConfig.others`."""


@dataclass(slots=True, frozen=True)
class CheckText:
    """Have the application look at the prompt or the answer."""

    what: str
    text: str


@dataclass(slots=True, frozen=True)
class Execute:
    """Run these calls: allowed, with exactly these arguments, in this order."""

    calls: tuple[ToolCall, ...]


@dataclass(slots=True, frozen=True)
class LookUp:
    """Find out how writes ended that were started and gave no result. Never start them."""

    calls: tuple[ToolCall, ...]
    started_as: Mapping[str, str] = field(default_factory=dict)
    """Call id -> the id of the identical call that was really started, where that is another one."""


@dataclass(slots=True, frozen=True)
class AskPerson:
    """People must decide about these calls."""

    pending: tuple[Pending, ...]


@dataclass(slots=True, frozen=True)
class End:
    """The run is over."""

    reason: RunReason


Command: TypeAlias = Record | Send | CheckText | Execute | LookUp | AskPerson | End


@dataclass(slots=True, frozen=True)
class Pending:
    """A call that waits for a person."""

    call: ToolCall
    rule: str
    reason: str

    @property
    def id(self) -> str:
        """The call's id: the key for `answers`."""
        return self.call.id

    @property
    def call_id(self) -> str:
        """The same, by the name that results use."""
        return self.call.id

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.call.name

    @property
    def arguments(self) -> dict[str, Any]:
        """The final arguments."""
        return self.call.arguments


@dataclass(slots=True)
class Step:
    """What follows from one input."""

    events: list[Event] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)


Records: TypeAlias = list[CallRecord]
