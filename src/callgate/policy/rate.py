"""Rate: so many calls of a tool in a span of time, for each principal.

Calls of all runs that one agent carries out count, and those of the same turn that come before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import ConfigError
from callgate.policy._judge import Own
from callgate.policy._match import for_tool
from callgate.policy._words import JudgeContext
from callgate.types import Allow, Deny, ToolCall, ToolSpec, Verdict

NAME = "rate"
SPANS = {"s": 1.0, "sec": 1.0, "second": 1.0, "min": 60.0, "m": 60.0, "minute": 60.0}
SPANS |= {"h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0}
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d*)\s*([a-z]+)\s*\Z")


@dataclass(frozen=True)
class Rule(Own):
    """`rates`: tool globs and their rates, beside the rate that a tool has itself."""

    rates: Mapping[str, str] = field(default_factory=dict)
    name: str = NAME

    def __post_init__(self) -> None:
        for glob, rate in self.rates.items():
            parse(rate, f"policy.rate.{glob}")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny what would be one too many."""
        own = [spec.rate] if spec.rate else []
        for rate in own + for_tool(spec.name, self.rates):
            count, seconds = parse(rate, f"{spec.name}.rate")
            before = sum(other.name == call.name for other in context.batch)
            if context.recent(spec.name, seconds) + before >= count:
                return Deny(self.name, f"at most {rate} calls of {spec.name}; the limit is reached")
        return Allow()


def parse(rate: str, where: str = "rate") -> tuple[int, float]:
    """ "5/s", "20/min", "100/h", "10/30s" as a number and seconds."""
    found = _RATE.match(rate) if isinstance(rate, str) else None
    if found is None or found[3] not in SPANS:
        raise ConfigError(f'{where}: {rate!r} is no rate; write "5/s", "20/min" or "100/h"')
    return int(found[1]), SPANS[found[3]] * int(found[2] or 1)


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.rate]`: "search_*" = "5/min"."""
    return Rule(dict(settings))
