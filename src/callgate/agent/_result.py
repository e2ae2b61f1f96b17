"""What a run comes to.

Law: a started run never raises, except on cancellation; its result says how it ended and why.
(tests/test_agent.py::test_a_started_run_never_raises)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from callgate.run.inputs import Pending
from callgate.types import EMPTY, CallRecord, Message, RunReason

if TYPE_CHECKING:
    from typing_extensions import TypeVar as DefaultVar  # PEP 696: a plain `RunResult` is a `RunResult[Any]`

    from callgate.run import Run

    Output_co = DefaultVar("Output_co", covariant=True, default=Any)
else:
    Output_co = TypeVar("Output_co", covariant=True)


@dataclass(frozen=True)
class RunResult(Generic[Output_co]):
    """How a run ended, and everything it has so far."""

    text: str
    """The last answer in words; with a limit or a cancel what had come of it."""
    messages: list[Message]
    """The conversation without the instructions, valid as the `history` of a next run."""
    calls: list[CallRecord]
    """Every call and its one result, in the model's order."""
    reason: RunReason
    """`answered` is success; all else says what stopped the run."""
    usage: dict[str, int]
    run_id: str
    error: str | None = None
    """What went wrong, in words, if something did."""
    pending: tuple[Pending, ...] = ()
    """The calls that wait for a person, when the reason is `waiting`; answer them with `agent.resume`."""
    output: Output_co | None = None
    """The final answer as a value, if a form for it was asked for; None unless the run is `answered`."""
    seconds: float = 0.0
    """Without the time that people took to answer."""
    turns: int = 0
    requests: int = 0
    protocol: str = ""
    """The protocol that the run ended with."""
    problems: Sequence[str] = field(default_factory=list)
    """What was odd, and what was done about it."""

    @property
    def ok(self) -> bool:
        """Whether the model answered."""
        return self.reason == "answered"


def result_of(run: Run, notes: Sequence[str] = (), inner: Mapping[str, tuple[Pending, ...]] = EMPTY) -> RunResult[Any]:
    """The result of a run as it stands; `notes` come before what it found odd itself. `inner`: the calls that wait in
    the runs of agents that carry a call out; they stand in that one's place."""
    pending = [one for outer in run.pending for one in inner.get(outer.id) or (outer,)]
    return RunResult(
        text=run.text,
        messages=list(run.messages),
        calls=run.records,
        reason=run.reason or "cancelled",
        usage=dict(run.usage),
        run_id=run.config.run_id,
        error=run.error,
        pending=tuple(pending) if run.reason == "waiting" else (),
        output=run.output,
        seconds=run.now,
        turns=run.turn,
        requests=run.requests,
        protocol=run.protocol,
        problems=[*notes, *run.problems],
    )
