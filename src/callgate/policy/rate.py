"""Rate: so many calls of a tool in a span of time, for each principal.

Calls of all runs that one agent carries out count, and those of the same turn that have not ended. The verdict comes
early, so that the model hears of it before anything runs; what decides is the count in the moment of the start.

Law: no more calls start in any span than the rate says, however many threads and loops share the agent.
(tests/test_rates.py::test_runs_side_by_side_start_exactly_what_the_rate_says)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from callgate.errors import ConfigError
from callgate.policy._api import Quota
from callgate.policy._judge import Own
from callgate.policy._match import check_names, for_tool, table
from callgate.types import Allow, Deny, ToolCall, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.policy._api import JudgeContext

NAME = "rate"
ALLOW = Allow()
SPANS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0}
SPANS |= {"h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d*)\s*([a-z]+)\s*\Z")


@dataclass(frozen=True)
class Rule(Own):
    """`rates`: tool globs and their rates, beside the rate that a tool has itself."""

    rates: Mapping[str, str] = field(default_factory=dict)
    name: str = NAME

    def __post_init__(self) -> None:
        for glob, rate in table(self.rates, f"policy.{NAME}").items():
            parse(rate, f"policy.{NAME}.{glob}")

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a name that no tool has."""
        check_names(self.rates, specs, f"policy.{NAME}")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny what would be one too many."""
        if not (quotas := self.quotas(spec)):
            return ALLOW
        before = sum(other.name == call.name for other in context.batch)
        for quota in quotas:
            if context.recent(spec.name, quota.seconds) + before >= quota.count:
                return Deny(self.name, quota.reason)
        return ALLOW

    def quotas(self, spec: ToolSpec) -> Sequence[Quota]:
        """The tool's own rate, and those of every glob that covers it."""
        if spec.rate is None and not self.rates:  # most tools: asked twice a call
            return ()
        rates = [*([spec.rate] if spec.rate else []), *for_tool(spec.name, self.rates)]
        return [self._quota(rate, spec.name) for rate in rates]

    def _quota(self, rate: str, tool: str) -> Quota:
        reason = f"at most {rate} calls of {tool}; the limit is reached"
        return Quota(self.name, *parse(rate, f"{tool}.rate"), reason)


def parse(rate: object, where: str = "rate") -> tuple[int, float]:
    """ "5/s", "20/min", "100/h", "10/30s" as a number and seconds."""
    found = _RATE.match(rate) if isinstance(rate, str) else None
    if found is None or found[3] not in SPANS:
        raise ConfigError(f'{where}: {rate!r} is no rate; write "5/s", "20/min" or "100/h"')
    return int(found[1]), SPANS[found[3]] * int(found[2] or 1)


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.rate]`: "search_*" = "5/min"."""
    return Rule(dict(settings))
