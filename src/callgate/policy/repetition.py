"""Repetition: a model that goes round in circles is warned once, then stopped.

What is counted is one call (tool and arguments) with one result, over the whole run, so alternating pairs and longer
circles are seen too. Counting starts anew when the result changes: that is progress. With `warn=3` the *third*
identical call with an identical result carries the warning, with `stop=4` the fourth is not run and ends the run.

Law: identical calls with identical results end, and progress starts the count anew.
(tests/test_policy.py::test_repetition_counts_identical_calls_with_identical_results)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.errors import ConfigError
from callgate.keys import arguments_hash
from callgate.limits import DEFAULTS
from callgate.policy._api import JudgeContext, Progress, Stop
from callgate.policy._judge import Own
from callgate.policy._match import known, whole
from callgate.types import Allow, CallRecord, ToolCall, ToolSpec, Verdict

NAME = "repetition"
UNCOUNTED = frozenset({"not_started", "cancelled", "invalid_arguments", "unknown_tool"})
"""Results that say nothing about the world; calls that cannot be read have their own remedy, the ladder."""


@dataclass(frozen=True)
class Rule(Own):
    """0 switches a step off. Tools with `polling` are left alone."""

    warn: int = DEFAULTS.repeat_warn
    stop: int = DEFAULTS.repeat_stop
    name: str = NAME

    def __post_init__(self) -> None:
        for step in ("warn", "stop"):
            whole(getattr(self, step), f"policy.{NAME}.{step}")
        if self.stop == 1:
            raise ConfigError(f"policy.{NAME}.stop: 1 would end every run at its first call; 0 switches it off")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Repetition never denies one call; it warns or ends the run."""
        return Allow()

    def check(self, progress: Progress) -> Stop | None:
        """Before a batch: is one of its calls one too many? Before a request: was one of the calls behind us?"""
        batch = progress.before == "batch"
        if not self.stop or not _may_circle(progress.records, self.stop - 1 if batch else self.stop):
            return None
        runs = streaks(progress.records)
        if batch:
            found = [c for c in progress.batch if runs.get(signature(c), 0) >= self.stop - 1]
        else:  # a batch that held one call several times
            found = [r.call for r in progress.records if runs.get(signature(r.call), 0) >= self.stop]
        for call in found:
            if not _polls(progress.specs.get(call.name)):
                return Stop(
                    "repetition", f"{call.name} was called {self.stop} times with the same arguments and result"
                )
        return None

    def advice(self, records: Sequence[CallRecord], since: int, specs: Mapping[str, ToolSpec]) -> Mapping[str, str]:
        """A warning beside the result that is the repetition to be warned of."""
        out: dict[str, str] = {}
        if not self.warn or not _may_circle(records, self.warn):
            return out
        for at, (record, count) in enumerate(zip(records, counts(records), strict=True)):
            if at >= since and count == self.warn and not _polls(specs.get(record.call.name)):
                out[record.call.id] = (
                    f"This is call number {count} of {record.call.name} with the same arguments and the same result. "
                    "Another one will not bring anything new: use the result, do something else, or answer."
                )
        return out


def signature(call: ToolCall) -> str:
    """Equal for the same tool with the same arguments."""
    return arguments_hash(call.name, call.arguments, key=b"")  # compared at once and never kept


def counts(records: Sequence[CallRecord]) -> Iterator[int]:
    """For each record: the how-manieth call it is with this signature and one and the same result; 0: uncounted."""
    latest: dict[str, tuple[object, int]] = {}
    for record in records:
        if record.result.status in UNCOUNTED:
            yield 0
            continue
        key = signature(record.call)
        result = (record.result.status, record.result.content, record.result.parts)
        before, count = latest.get(key, (result, 0))
        count = count + 1 if before == result else 1
        latest[key] = (result, count)
        yield count


def streaks(records: Sequence[CallRecord]) -> dict[str, int]:
    """Signature -> how many of its latest calls had one and the same result."""
    return {signature(r.call): count for r, count in zip(records, counts(records), strict=True) if count}


def _may_circle(records: Sequence[CallRecord], least: int) -> bool:
    """Whether a tool gave one result so often that it is worth comparing the arguments."""
    if len(records) < least:
        return False
    return max(Counter((r.call.name, r.result.content) for r in records).values(), default=0) >= least


def _polls(spec: ToolSpec | None) -> bool:
    return spec is not None and spec.polling


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.repetition]`: warn = 3, stop = 4."""
    known(settings, f"policy.{NAME}", ["warn", "stop"])
    return Rule(**settings)
