"""The limits: one table, and no default a second time."""

from __future__ import annotations

import ast
import inspect
import typing
from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import house
from callgate import Agent, Replay
from callgate.config import Config
from callgate.errors import ConfigError
from callgate.executor import Executor
from callgate.limits import DEFAULTS, LimitOverrides, Limits, limits_of
from callgate.policy import repetition
from callgate.run import RunConfig

FIELDS = {f.name: f for f in fields(Limits)}
TELLING = sorted({f.default for f in FIELDS.values() if type(f.default) in (int, float) and f.default > 100})
"""Numbers that say what they are: 2 or 30 may stand for anything."""
ELSEWHERE = {
    "providers",
    "formats",
    "dialects",
    "protocols",
    "grounding",
    "schema",
    "liveview",
    "apps",
    "masking",
    "ledger",
}
"""Packages with numbers of their own, which no run's limit has to do with."""


def test_no_default_stands_twice() -> None:
    """Neither as the default of a parameter or field of a limit's name, nor as one of their telling numbers."""
    found = []
    for name, _path, tree in house.modules(house.PACKAGE):
        if name == "callgate.limits":
            continue
        for node in ast.walk(tree):
            for target, value in _defaults(node):
                literal = isinstance(value, ast.Constant) and type(value.value) in (int, float)
                if not literal:
                    continue
                assert isinstance(value, ast.Constant)
                telling = value.value in TELLING and name.split(".")[1] not in ELSEWHERE and not target.isupper()
                own = target == "retries" and (value.value == 0 or "providers" in name)  # of a tool, of a connection
                own = (
                    own or ".gateway." in name
                )  # the server's own options: how often it asks, how long it takes to end
                if (target in FIELDS and not own) or telling:
                    found.append(f"{name}:{value.lineno}: {target} = {value.value!r}")
    assert found == []


def _defaults(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    match node:
        case ast.AnnAssign(target=ast.Name(id=name), value=value):
            return [(name, value)]
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return [(name, value)]
        case ast.arguments(args=args, defaults=defaults, kwonlyargs=named, kw_defaults=given):
            last = [*node.posonlyargs, *args][-len(defaults) :] if defaults else []
            pairs: list[tuple[ast.arg, ast.expr | None]] = [*zip(last, defaults, strict=True)]
            return [(arg.arg, value) for arg, value in [*pairs, *zip(named, given, strict=True)]]
    return []


def test_whoever_keeps_to_a_limit_has_its_default_from_the_table() -> None:
    parameters = inspect.signature(Executor).parameters
    for limit, parameter in (
        ("tool_timeout", "timeout"),
        ("max_parallel", "max_parallel"),
        ("grace", "grace"),
        ("max_result", "max_result"),
    ):
        assert parameters[parameter].default == getattr(DEFAULTS, limit)
    rule = repetition.Rule()
    assert (rule.warn, rule.stop) == (DEFAULTS.repeat_warn, DEFAULTS.repeat_stop)
    config = {f.name: f.default for f in fields(RunConfig)}
    assert (config["retries"], config["max_result"]) == (DEFAULTS.retries, DEFAULTS.max_result)
    settings = Config()
    assert {name: getattr(settings, name) for name in FIELDS} == {n: getattr(DEFAULTS, n) for n in FIELDS}


def test_the_keywords_are_the_fields_with_their_types() -> None:
    hints = typing.get_type_hints(Limits)
    assert typing.get_type_hints(LimitOverrides) == {name: hints[name] for name in FIELDS}
    assert LimitOverrides.__optional_keys__ == frozenset(FIELDS)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "count": st.integers(0, 10**9),
    "number": st.integers(0, 10**9),
    "seconds": st.integers(0, 10**6) | st.floats(0, 10**6),
    "switch": st.booleans(),
}
WRONG = st.sampled_from(["six", -1, -0.5, [], {}, object(), float("nan")])


@given(st.data())
def test_each_limit_is_a_keyword_and_a_field_and_refuses_what_does_not_fit(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(FIELDS)))
    kind: str = FIELDS[name].metadata["kind"]
    values = VALUES[kind.removesuffix("?")] | (st.none() if kind.endswith("?") else st.nothing())
    value = data.draw(values)
    if name == "repeat_stop" and value == 1:
        return  # it would end every run at its first call
    agent = Agent(Replay([]), **{name: value})  # type: ignore[arg-type]
    assert getattr(agent.limits, name) == value
    assert Agent(Replay([]), limits=Limits(**{name: value})).limits == agent.limits
    wrong = data.draw(WRONG | (st.nothing() if kind.endswith("?") else st.none()))
    with pytest.raises(ConfigError, match=name):
        Agent(Replay([]), **{name: wrong})


def test_a_keyword_wins_over_the_table_that_is_given() -> None:
    agent = Agent(Replay([]), limits=Limits(max_turns=3, max_calls=9), max_turns=4)
    assert (agent.limits.max_turns, agent.limits.max_calls) == (4, 9)
    with pytest.raises(ConfigError, match="limits"):
        limits_of({"max_turns": 3}, {})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keyword", "near"), [("max_turn", "max_turns"), ("tool_timeot", "tool_timeout"), ("max_token", "max_tokens")]
)
def test_an_unknown_keyword_is_an_error_that_names_the_nearest(keyword: str, near: str) -> None:
    with pytest.raises(ConfigError, match=f"{keyword}: .*did you mean {near}"):
        Agent(Replay([]), **{keyword: 3})  # type: ignore[arg-type]


def test_the_limits_of_the_contract() -> None:
    assert (DEFAULTS.max_turns, DEFAULTS.max_requests, DEFAULTS.max_calls_per_turn) == (20, 60, 16)
    assert (DEFAULTS.max_tokens, DEFAULTS.tool_timeout, DEFAULTS.run_timeout) == (200_000, 30, 600)
    assert (DEFAULTS.retries, DEFAULTS.repeat_warn, DEFAULTS.repeat_stop, DEFAULTS.max_result) == (2, 3, 4, 8000)
