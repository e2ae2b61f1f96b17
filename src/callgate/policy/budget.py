"""Budget: turns, requests, calls, time, tokens and money have limits, checked before anything of a batch runs (X7).

Hitting a limit ends the run with a named reason and what it has so far. A limit of calls for one tool only denies that
call. None switches a limit off.

Law: that of the room (callgate/policy/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from callgate.policy._api import JudgeContext, Progress, Stop
from callgate.policy._judge import Own
from callgate.policy._match import check_names, known, matches, number, table, whole
from callgate.types import Allow, Deny, ToolCall, ToolSpec, Verdict

NAME = "budget"


@dataclass(frozen=True)
class Rule(Own):
    """The limits of one run."""

    turns: int | None = None
    """Answers of the model; calls of the last one are not started, for nobody could read their results."""
    requests: int | None = None
    calls_per_turn: int | None = None
    calls: int | None = None
    """Of the whole run."""
    seconds: float | None = None
    tokens: int | None = None
    """Input and output together, as the server counts them, over all requests."""
    money: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    """Per million tokens: {"input": 0.5, "output": 1.5}; the currency is that of `money`."""
    per_tool: Mapping[str, int] = field(default_factory=dict)
    """Tool globs and how often each may be called in a run."""
    name: str = NAME

    def __post_init__(self) -> None:
        for limit in _NUMBERS:
            if (value := getattr(self, limit)) is not None:
                (whole if limit in _COUNTS else number)(value, f"policy.{NAME}.{limit}")
        for kind, price in table(self.prices, f"policy.{NAME}.prices").items():
            number(price, f"policy.{NAME}.prices.{kind}")
        for glob, count in table(self.per_tool, f"policy.{NAME}.per_tool").items():
            whole(count, f"policy.{NAME}.per_tool.{glob}")

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a name that no tool has."""
        check_names(self.per_tool, specs, f"policy.{NAME}.per_tool")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny a tool that was called often enough."""
        for glob, limit in self.per_tool.items():
            if matches(spec.name, [glob]):
                before = [r.call.name for r in context.records if r.duration is not None]
                if sum(n == spec.name for n in [*before, *(c.name for c in context.batch)]) >= limit:
                    return Deny(self.name, f"{spec.name} may be called {limit} times in a run, and it was")
        return Allow()

    def check(self, progress: Progress) -> Stop | None:
        """The limits, most telling first."""
        return self._of_turns(progress) or self._of_run(progress)

    def _of_turns(self, progress: Progress) -> Stop | None:
        if self.turns is not None and progress.turn >= self.turns:
            return Stop("turn_limit", f"{self.turns} turns (max_turns)")
        if progress.before != "batch":
            return None
        asked = max(progress.asked, len(progress.batch))
        if self.calls_per_turn is not None and asked > self.calls_per_turn:
            return Stop("call_limit", f"{asked} calls in one turn; at most {self.calls_per_turn} (max_calls_per_turn)")
        started = sum(r.duration is not None for r in progress.records)
        if self.calls is not None and started + len(progress.batch) > self.calls:
            return Stop("call_limit", f"{self.calls} calls in a run (max_calls)")
        return None

    def _of_run(self, progress: Progress) -> Stop | None:
        if self.requests is not None and progress.requests >= self.requests:
            return Stop("request_limit", f"{self.requests} requests to the model (max_requests)")
        if self.seconds is not None and progress.seconds >= self.seconds:
            return Stop("time_limit", f"{self.seconds:g} seconds (run_timeout)")
        if self.tokens is not None and progress.tokens >= self.tokens:
            return Stop("token_limit", f"{progress.tokens} tokens of {self.tokens} (max_tokens)")
        if self.money is not None and self.cost(progress.usage) >= self.money:
            return Stop("token_limit", f"{self.cost(progress.usage):.4f} spent of {self.money:g} (budget.money)")
        return None

    def cost(self, usage: Mapping[str, int]) -> float:
        """What the tokens cost at `prices`."""
        return sum(usage.get(kind, 0) * price for kind, price in self.prices.items()) / 1_000_000


_COUNTS = ("turns", "requests", "calls_per_turn", "calls", "tokens")
_NUMBERS = (*_COUNTS, "seconds", "money")


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.budget]`: calls = 50, money = 0.2, prices = {input = 0.5, output = 1.5}, per_tool = {"search" = 3}."""
    known(settings, f"policy.{NAME}", [*_NUMBERS, "prices", "per_tool"])
    return Rule(**settings)
