"""The limits of agents and runs: the one place where each default stands.

Law: no default of a limit stands a second time in the code. (tests/test_limits.py::test_no_default_stands_twice)

`Agent(limits=Limits(max_calls=100))` sets them together; each is also a keyword of `Agent`, a line of `callgate.toml`
and an environment variable. To add one: a field here, its line in `LimitOverrides`, and whoever keeps to it.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeAlias, TypedDict

from callgate.errors import ConfigError

__all__ = ["DEFAULTS", "LimitOverrides", "Limits", "limits_of"]

Kind: TypeAlias = Literal["count", "count?", "number", "seconds", "seconds?", "switch"]


def _limit(default: Any, kind: Kind, doc: str) -> Any:
    """A field: its default, what values it takes ("?": None lifts it), and what it does."""
    return field(default=default, metadata={"kind": kind, "doc": doc})


@dataclass(frozen=True)
class Limits:
    """What a run may use, and how long things may take. Raises ConfigError for a value that does not fit."""

    max_turns: int | None = _limit(20, "count?", "Answers of the model in a run; calls of the last one do not start.")
    max_requests: int | None = _limit(60, "count?", "Requests in a run, retries and choices of tools included.")
    max_calls_per_turn: int | None = _limit(16, "count?", "Calls in one answer.")
    max_calls: int | None = _limit(None, "count?", "Calls in a run.")
    max_tokens: int | None = _limit(200_000, "count?", "Tokens in a run, read and written.")
    max_answer: int = _limit(4_000_000, "count", "Characters of one answer: text, reasoning and arguments together.")
    max_context: int | None = _limit(None, "count?", "Tokens of history that are sent; none: what the model holds.")
    summarize: bool = _limit(False, "switch", "Have the model sum up what does not fit, instead of leaving it out.")
    tool_timeout: float = _limit(30.0, "seconds", "Seconds that a tool may take, unless it says otherwise.")
    run_timeout: float | None = _limit(
        600.0,
        "seconds?",
        "Seconds that a run may take, without waiting for people; where it is not set, also without first tokens.",
    )
    grace: float = _limit(2.0, "seconds", "Seconds that a tool has to stop once it is cancelled; then it is abandoned.")
    max_parallel: int = _limit(8, "count", "Reads that overlap at most.")
    retries: int = _limit(2, "number", "How often an unusable answer is asked for again before the protocol changes.")
    repeat_warn: int = _limit(3, "number", "At which identical call with an identical result the model is warned.")
    repeat_stop: int = _limit(4, "number", "At which one the run ends.")
    max_result: int = _limit(8000, "count", "Characters of a result that the model sees at once.")
    approval_expires: float | None = _limit(
        None, "seconds?", "Seconds after which an answer to a question is too late."
    )
    ledger_timeout: float = _limit(10.0, "seconds", "Seconds that the ledger may take to answer; then the run ends.")
    hold_secrets: bool = _limit(
        True, "switch", "Hold the true arguments of calls that wait or run beside the journal, which masks them."
    )
    keep_runs: int = _limit(
        1000, "count", "Finished runs that a ledger in memory keeps; those that wait are kept, too."
    )

    def __post_init__(self) -> None:
        for f in fields(Limits):
            check(f.name, getattr(self, f.name))


DEFAULT_NAMES = tuple(f.name for f in fields(Limits))


class LimitOverrides(TypedDict, total=False):
    """The limits as keywords."""

    max_turns: int | None
    max_requests: int | None
    max_calls_per_turn: int | None
    max_calls: int | None
    max_tokens: int | None
    max_answer: int
    max_context: int | None
    summarize: bool
    tool_timeout: float
    run_timeout: float | None
    grace: float
    max_parallel: int
    retries: int
    repeat_warn: int
    repeat_stop: int
    max_result: int
    approval_expires: float | None
    ledger_timeout: float
    hold_secrets: bool
    keep_runs: int


def limits_of(limits: Limits | None, named: Mapping[str, Any]) -> Limits:
    """These limits, or the defaults, with those that are named. Raises ConfigError for a name that is none."""
    if limits is not None and not isinstance(limits, Limits):
        raise ConfigError(f"limits: callgate.limits.Limits(…) is needed, not {type(limits).__name__}")
    for name in named:
        if name not in DEFAULT_NAMES:
            close = difflib.get_close_matches(name, DEFAULT_NAMES, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ConfigError(f"{name}: there is no such option of Agent and no such limit{hint}")
    return replace(limits or DEFAULTS, **named)


def check(name: str, value: object) -> None:
    """Raises ConfigError if the value does not fit the limit of this name."""
    kind: str = next(f.metadata["kind"] for f in fields(Limits) if f.name == name)
    if value is None and kind.endswith("?"):
        return
    match kind.removesuffix("?"):
        case "switch":
            fits, what = isinstance(value, bool), "True or False"
        case "seconds":
            fits, what = _is_number(value) and isinstance(value, (int, float)), "a number from 0"
        case _:
            fits, what = _is_number(value) and isinstance(value, int), "a whole number from 0"
    if not fits:
        raise ConfigError(f"{name}: {what} is needed, not {value!r}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0


DEFAULTS = Limits()
