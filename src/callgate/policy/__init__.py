"""Plug room: may this call run, and may the run go on?

A rule that fails denies.

Law: the strictest verdict wins (Deny over Ask over Allow), so adding a rule never loosens anything (G2).
(tests/test_policy.py::test_the_strictest_verdict_wins_in_any_order_and_adding_a_rule_never_loosens)

Rules are pure: they see the call with its final arguments, its `ToolSpec` and a `JudgeContext`, never the tool itself
and never a clock. Beside `judge`, which is about one call, a rule may have `check`, which may end the run, and
`check_tools`, which refuses names that no tool has when the agent is made.

To add a rule: one file with a class `Rule` that has `name` and `judge` (and `check`, if it can end a run) and a
`load(settings)` that makes it from its section of `callgate.toml`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path

from callgate.errors import ConfigError
from callgate.policy._api import (
    Advisor,
    Answer,
    JudgeContext,
    Limit,
    Progress,
    Quota,
    Rationed,
    Recent,
    RuleLike,
    Stop,
    ToolCheck,
    as_rule,
)
from callgate.policy._api import Rule as Rule
from callgate.policy._judge import Judge, check, check_tools, judge, quotas
from callgate.policy._sources import Sources
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
    "Quota",
    "Rationed",
    "Recent",
    "Rule",
    "RuleLike",
    "Sources",
    "Stop",
    "ToolCheck",
    "as_rule",
    "check",
    "check_tools",
    "combine",
    "judge",
    "load",
    "names",
    "quotas",
]

HERE = Path(__file__).parent


@functools.cache
def names() -> tuple[str, ...]:
    """The rules there are."""
    return tuple(sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_")))


def load(settings: Mapping[str, object]) -> list[Rule]:
    """The rules of a `[policy]` table: one sub-table a rule, `{"rate": {"get_*": "5/s"}, …}`."""
    rules: list[Rule] = []
    for name, section in settings.items():
        if name == "taint" and section is False:
            section = {"on": False}  # noqa: PLW2901 - the short form of its one switch
        if name not in names():
            raise ConfigError(f"policy: there is no rule {name!r}; there are {', '.join(names())}")
        if not isinstance(section, Mapping):
            raise ConfigError(f"policy.{name}: a table is needed, not {section!r}")
        rules.append(import_module(f"{__name__}.{name}").load(section))
    return rules


def combine(rules: Iterable[RuleLike] | Mapping[str, object]) -> tuple[Rule, ...]:
    """What `policy=` takes, as rules: a table of settings, or objects with `judge`, functions, and names of rules."""
    if isinstance(rules, Mapping):
        return tuple(load({str(name): section for name, section in rules.items()}))
    if rules is None or isinstance(rules, str) or not isinstance(rules, Iterable):
        raise ConfigError(f"policy: a table of settings or a list of rules is needed, not {rules!r}")
    out: list[Rule] = []
    for rule in rules:
        if isinstance(rule, str):
            out += load({rule: {}})
        else:
            out.append(as_rule(rule))
    return tuple(out)
