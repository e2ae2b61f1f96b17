"""Many rules, one verdict.

Law: that of the room (callgate/policy/__init__.py).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from callgate.policy._match import check_names
from callgate.types import Allow, Ask, Deny, ToolCall, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.policy._api import JudgeContext, Limit, Progress, Quota, Rationed, Rule, Stop, ToolCheck

Judge: TypeAlias = "Callable[[ToolCall, ToolSpec, JudgeContext], Verdict]"
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


def check_tools(rules: tuple[Rule, ...], specs: Sequence[ToolSpec]) -> tuple[Rule, ...]:
    """The rules, if all of them can apply to these tools.

    Raises ConfigError if a rule, or a tool's `after`, names a tool or an argument that is not there.

    Rules of one's own are asked if they have `check_tools`; what a plain function compares names with nobody knows.
    """
    for spec in specs:
        check_names(spec.after, specs, f"tool {spec.name}: after")
    for rule in rules:
        if hasattr(rule, "check_tools"):
            cast("ToolCheck", rule).check_tools(specs)
    return rules


def quotas(rules: Sequence[Rule], spec: ToolSpec) -> tuple[Quota, ...]:
    """What all rules together set for the tool."""
    # By the attribute: an `isinstance` of a protocol costs microseconds, for every rule and call.
    found: tuple[Quota, ...] = ()
    for rule in rules:
        if hasattr(rule, "quotas"):
            found += tuple(cast("Rationed", rule).quotas(spec))
    return found


def _one(rule: Rule, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
    if not isinstance(rule, _OWN):  # a rule from outside gets a copy: what it judges is what runs
        call = replace(call, arguments=copy.deepcopy(call.arguments))
    try:
        verdict: object = rule.judge(call, spec, context)
    except Exception as error:  # G2: a rule that cannot tell must not open the gate
        return Deny(rule.name, f"the rule failed: {type(error).__name__}")
    if isinstance(verdict, (Allow, Ask, Deny)):
        return verdict
    return Deny(rule.name, f"the rule gave {type(verdict).__name__}, which is no verdict")


class Own:
    """Marks the rules of this room, which are known to leave their arguments alone."""

    __slots__ = ()


_OWN = Own
