"""Permission: the principal's grants against what the tool needs (G3).

A tool that needs nothing is open to all; a tool that needs something is closed to a run without a principal.

Law: that of the room (callgate/policy/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from callgate.errors import ConfigError
from callgate.policy._judge import Own
from callgate.policy._match import check_names, for_tool, known, table
from callgate.types import Allow, Deny, ToolCall, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.policy._api import JudgeContext

NAME = "permission"


@dataclass(frozen=True)
class Rule(Own):
    """`needs`: tool globs and the permission they need beside their own."""

    needs: Mapping[str, str] = field(default_factory=dict)
    name: str = NAME

    def __post_init__(self) -> None:
        for glob, permission in table(self.needs, f"policy.{NAME}.needs").items():
            if not isinstance(permission, str) or not permission:
                raise ConfigError(f"policy.{NAME}.needs.{glob}: the name of a permission is needed, not {permission!r}")

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a name that no tool has."""
        check_names(self.needs, specs, f"policy.{NAME}.needs")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny unless every permission that is needed was granted."""
        needed = [spec.permission] if spec.permission else []
        for permission in needed + for_tool(spec.name, self.needs):
            if context.principal is None:
                return Deny(self.name, f"it needs the permission {permission!r} and nobody is known to have it")
            if not granted(permission, context.principal.grants):
                return Deny(self.name, f"the user has not been granted {permission!r}")
        return Allow()


def granted(permission: str, grants: frozenset[str]) -> bool:
    """Whether the grants, with globs, cover the permission."""
    return permission in grants or any(for_tool(permission, dict.fromkeys(grants, True)))


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.permission]`: needs = {"delete_*" = "admin"}."""
    known(settings, f"policy.{NAME}", ["needs"])
    return Rule(settings.get("needs", {}))
