"""Approval: a person decides about exactly this tool with exactly these arguments.

`Ask` is a state of the run, so the question survives a restart. An answer counts once, unless the person chose a wider
scope, and not at all after `expires` seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from callgate.errors import ConfigError
from callgate.policy._judge import Own
from callgate.policy._match import known, matches, strings
from callgate.policy._words import JudgeContext
from callgate.types import Allow, Ask, ToolCall, ToolSpec, Verdict

NAME = "approval"


@dataclass(frozen=True)
class Rule(Own):
    """Asks about tools that say `confirm`, those that `tools` (globs) names, and with `writes` about every write."""

    tools: tuple[str, ...] = ()
    writes: bool = False
    name: str = NAME

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Ask, or allow."""
        if spec.confirm:
            return Ask(self.name, "the tool asks before every call")
        if matches(spec.name, self.tools):
            return Ask(self.name, "a setting asks for this tool")
        if self.writes and spec.effect == "write":
            return Ask(self.name, "a setting asks before every write")
        return Allow()


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.approval]`: tools = ["mail_*"], writes = true."""
    known(settings, f"policy.{NAME}", ["tools", "writes"])
    writes = settings.get("writes", False)
    if not isinstance(writes, bool):
        raise ConfigError(f"policy.approval.writes: true or false is needed, not {writes!r}")
    return Rule(strings(settings.get("tools", ()), "policy.approval.tools"), writes)
