"""Approval: a person decides about exactly this tool with exactly these arguments.

`Ask` is a state of the run, so the question survives a restart. An answer counts once, unless the person chose a wider
scope, and not at all after `approval_expires` seconds.

Law: that of the room (callgate/policy/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from callgate.errors import ConfigError
from callgate.policy._judge import Own
from callgate.policy._match import check_names, known, matches, strings
from callgate.types import Allow, Ask, ToolCall, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.policy._api import JudgeContext

NAME = "approval"


@dataclass(frozen=True)
class Rule(Own):
    """Asks about tools that say `confirm`, those that `tools` (globs) names, and with `writes` about every write."""

    tools: tuple[str, ...] = ()
    writes: bool = False
    name: str = NAME

    def __post_init__(self) -> None:
        object.__setattr__(self, "tools", strings(self.tools, f"policy.{NAME}.tools"))
        if not isinstance(self.writes, bool):
            raise ConfigError(f"policy.{NAME}.writes: true or false is needed, not {self.writes!r}")

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a name that no tool has."""
        check_names(self.tools, specs, f"policy.{NAME}.tools")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Ask, or allow."""
        if spec.confirm:
            return Ask(self.name, "this tool needs your approval")
        if matches(spec.name, self.tools):
            return Ask(self.name, "a setting asks for your approval of this tool")
        if self.writes and spec.effect == "write":
            return Ask(self.name, "a setting asks for your approval of every write")
        return Allow()


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.approval]`: tools = ["mail_*"], writes = true."""
    known(settings, f"policy.{NAME}", ["tools", "writes"])
    return Rule(settings.get("tools", ()), settings.get("writes", False))
