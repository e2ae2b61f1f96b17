"""Many rules, one verdict."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from callgate.errors import ConfigError
from callgate.policy._words import JudgeContext, Limit, Progress, Rule, Stop
from callgate.types import Allow, Ask, Deny, ToolCall, ToolSpec, Verdict

Judge: TypeAlias = Callable[[ToolCall, ToolSpec, JudgeContext], Verdict]
_ALLOW = Allow()


def judge(rules: Sequence[Rule], call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
    """The strictest verdict of all rules; of equally strict ones the first."""
    asked: Ask | None = None
    for rule in rules:
        match _one(rule, call, spec, context):
            case Deny() as verdict:
                return verdict
            case Ask() as verdict:
                asked = asked or verdict
            case _:
                pass
    return asked or _ALLOW


def check(rules: Sequence[Rule], progress: Progress) -> Stop | None:
    """The first limit that is hit."""
    for rule in rules:
        limit: Limit | None = rule if hasattr(rule, "check") else None  # type: ignore[assignment]
        if limit is not None and (stop := limit.check(progress)) is not None:
            return stop
    return None


def _one(rule: Rule, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
    if not isinstance(rule, _OWN):  # a stranger's rule gets a copy: what it judges is what runs
        call = replace(call, arguments=copy.deepcopy(call.arguments))
    try:
        verdict: Any = rule.judge(call, spec, context)
    except Exception as error:  # G2: a rule that cannot tell must not open the gate
        return Deny(rule.name, f"the rule failed: {type(error).__name__}")
    if isinstance(verdict, (Allow, Ask, Deny)):
        return verdict
    return Deny(rule.name, f"the rule gave {type(verdict).__name__}, which is no verdict")


@dataclass(slots=True, frozen=True)
class _Function:
    """A plain function as a rule; it may also give True (allow) or False (deny)."""

    name: str
    function: Callable[[ToolCall, ToolSpec, JudgeContext], Any]

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        verdict = self.function(call, spec, context)
        if verdict is True:
            return _ALLOW
        if verdict is False:
            return Deny(self.name, "not allowed")
        return cast("Verdict", verdict)


def as_rule(rule: Any) -> Rule:
    """A rule object as it is, a function as a rule."""
    if isinstance(rule, Rule):
        return rule
    if callable(rule) and not isinstance(rule, type):
        return _Function(getattr(rule, "__name__", "rule").strip("<>"), rule)
    raise ConfigError(f"policy: {rule!r} is no rule; a rule has `name` and `judge(call, spec, context)`")


class Own:
    """Marks the rules of this room, which are known to leave their arguments alone."""

    __slots__ = ()


_OWN = Own
