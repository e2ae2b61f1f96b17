"""Plug room: may this call run, and may the run go on?

One law: the strictest verdict wins (Deny over Ask over Allow), so adding a rule never loosens anything (G2). A rule
that fails denies.

Rules are pure: they see the call with its final arguments, its `ToolSpec` and a `JudgeContext`, never the tool itself
and never a clock. Beside `judge`, which speaks about one call, a rule may have `check`, which may end the run.

To add a rule: one file with a class `Rule` that has `name` and `judge` (and `check`, if it can end a run) and a
`load(settings)` that makes it from its section of `callgate.toml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from callgate.errors import ConfigError
from callgate.policy._judge import Judge, as_rule, check, judge
from callgate.policy._words import Advisor, Answer, JudgeContext, Limit, Progress, RuleLike, Stop
from callgate.policy._words import Rule as Rule
from callgate.types import Allow, Ask, Deny

__all__ = [
    "Advisor",
    "Allow",
    "Answer",
    "Ask",
    "Deny",
    "Judge",
    "JudgeContext",
    "Limit",
    "Progress",
    "Rule",
    "RuleLike",
    "Stop",
    "as_rule",
    "check",
    "combine",
    "judge",
    "load",
    "names",
]

HERE = Path(__file__).parent


def names() -> tuple[str, ...]:
    """The rules there are."""
    return tuple(sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_")))


def load(settings: Mapping[str, Any]) -> list[Rule]:
    """The rules of a `[policy]` table: one sub-table a rule, `{"rate": {"get_*": "5/s"}, …}`."""
    rules: list[Rule] = []
    for name, section in settings.items():
        if name not in names():
            raise ConfigError(f"policy.{name}: no such rule; there are {', '.join(names())}")
        if not isinstance(section, Mapping):
            raise ConfigError(f"policy.{name}: a table is needed, not {section!r}")
        rules.append(import_module(f"{__name__}.{name}").load(section))
    return rules


def combine(rules: Iterable[RuleLike] | Mapping[str, Any]) -> tuple[Rule, ...]:
    """What `policy=` takes, as rules: a table of settings, or objects with `judge`, functions, and names of rules."""
    if isinstance(rules, Mapping):
        return tuple(load({str(name): section for name, section in rules.items()}))
    out: list[Rule] = []
    for rule in rules:
        if isinstance(rule, str):
            out += load({rule: {}})
        else:
            out.append(as_rule(rule))
    return tuple(out)
