"""What a run comes to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callgate.errors import ConfigError
from callgate.run import Pending, Run
from callgate.types import CallRecord, Message, RunReason, Schema


@dataclass(frozen=True)
class RunResult:
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
    output: Any = None
    """The final answer as a value, if a form for it was asked for."""
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


@dataclass(frozen=True)
class Form:
    """The form of a final answer that was asked for."""

    schema: Schema | None = None
    make: Callable[[Any], Any] | None = None
    """Turns the JSON value into one of the caller's type."""

    @classmethod
    def of(cls, output: Any) -> Form:
        """From a JSON Schema, a pydantic model, or None."""
        if output is None or isinstance(output, Mapping):
            return cls(output)
        schema = getattr(output, "model_json_schema", None)
        if schema is None:
            raise ConfigError(f"output: a JSON Schema or a pydantic model is needed, not {output!r}")
        return cls(schema(), output.model_validate)

    def fill(self, result: RunResult) -> RunResult:
        """The result with its output in the caller's type; a value that this refuses is no success."""
        if self.make is None or result.output is None:
            return result
        try:
            return replace(result, output=self.make(result.output))
        except ValueError as error:
            return replace(
                result, output=None, reason="provider_error", error=f"the final answer is not valid: {error}"
            )


def result_of(run: Run) -> RunResult:
    """The result of a run as it stands."""
    return RunResult(
        text=run.text,
        messages=list(run.messages),
        calls=run.records,
        reason=run.reason or "cancelled",
        usage=dict(run.usage),
        run_id=run.config.run_id,
        error=run.error,
        pending=run.pending if run.reason == "waiting" else (),
        output=run.output,
        seconds=run.now,
        turns=run.turn,
        requests=run.requests,
        protocol=run.protocol,
        problems=list(run.problems),
    )
