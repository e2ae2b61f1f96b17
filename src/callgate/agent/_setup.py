"""What the runs of an agent are carried out with, and what one run may have otherwise.

Law: a run may tighten the rules of its agent and never loosen them; whatever else is given to a run replaces the
agent's own for this run alone. (tests/test_agent_overrides.py::test_rules_of_a_run_only_add_up)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from callgate import policy as gate
from callgate.agent._checks import Checks
from callgate.agent._dialects import known_protocol, name_of, own_dialects
from callgate.errors import ConfigError
from callgate.executor import Executor
from callgate.limits import DEFAULTS, Limits
from callgate.policy import Rule, RuleLike, approval, budget, permission, rate, repetition, taint
from callgate.tools import Toolbox, warn_of_undeclared
from callgate.types import EMPTY

if TYPE_CHECKING:
    from callgate.dialects import Dialect
    from callgate.history import Loose
    from callgate.types import Message

if TYPE_CHECKING:
    from callgate.providers import Provider

Policy: TypeAlias = "Iterable[RuleLike] | Mapping[str, object]"
TooMany: TypeAlias = Literal["first", "refuse"]
OF_ITS_OWN = {"tool_choice": "tool_choice=", "parallel_tool_calls": "parallel="}
"""Options of servers that would hold for every request of a run; the agent has them for where they make sense."""


@dataclass(frozen=True)
class Setup:
    """Everything about runs that does not differ from one to the next. Raises ConfigError for what cannot be."""

    provider: Provider
    toolbox: Toolbox
    others: tuple[Provider, ...] = ()
    """Who answers when the one before fails, in this order."""
    policy: tuple[Rule, ...] = ()
    """The application's rules; they come on top of those that are always there."""
    limits: Limits = DEFAULTS
    waits: bool = False
    """Whether the wait for first tokens counts as the run's time."""
    instructions: tuple[Any, ...] = ()
    options: Mapping[str, object] = field(default_factory=lambda: EMPTY)
    tool_choice: str = "auto"
    """Of the first turn; every later one is "auto", or the model could never answer."""
    parallel: bool | None = None
    stop_after: frozenset[str] = frozenset()
    """Tools whose result is the answer."""
    too_many: TooMany = "first"
    """What becomes of an answer with too many reads: the first ones run, or the run ends."""
    protocol: str | Dialect = "auto"
    dialect: str | Dialect | None = None
    deps_type: object = None
    process: Callable[[tuple[Message, ...]], Iterable[Loose]] | None = None
    """What is made of the messages of a request before it is sent."""
    checks: Checks = field(default_factory=Checks)
    protocol_name: str = field(init=False)
    dialect_name: str | None = field(init=False)
    own_dialects: Mapping[str, Dialect] = field(init=False)
    """Dialects of the application, by their names."""
    executor: Executor = field(init=False)
    rules: tuple[Rule, ...] = field(init=False)

    def __post_init__(self) -> None:
        if self.process is not None and not callable(self.process):
            raise ConfigError(f"history_processor: a function of the messages is needed, not {self.process!r}")
        if self.too_many not in ("first", "refuse"):
            raise ConfigError(f'too_many: "first" or "refuse" is needed, not {self.too_many!r}')
        if not isinstance(self.tool_choice, str):
            raise ConfigError(f'tool_choice: "auto", "required", "none" or a tool is needed, not {self.tool_choice!r}')
        if self.tool_choice not in ("auto", "none", "required", *self.toolbox.names):
            raise ConfigError(f"tool_choice: there is no tool {self.tool_choice!r}")
        if unknown := sorted(self.stop_after - set(self.toolbox.names)):
            raise ConfigError(f"stop_after: there is no tool {unknown[0]!r}")
        for tool in self.toolbox:
            tool.check_injection(self.deps_type)
        warn_of_undeclared(self.toolbox)
        set_field = object.__setattr__
        set_field(self, "own_dialects", own_dialects(self.protocol, self.dialect))
        set_field(self, "protocol_name", known_protocol(self.protocol, self.own_dialects))
        set_field(self, "dialect_name", name_of(self.dialect))
        set_field(self, "executor", _executor(self.toolbox, self.limits))
        specs = self.toolbox.specs
        set_field(self, "rules", (*_always(self.limits), *taint.by_default(self.policy, specs), *self.policy))

    def check_rules(self) -> Setup:
        """Raises ConfigError if a rule names a tool or an argument that is not there."""
        gate.check_tools(self.rules, self.toolbox.specs)
        return self

    def changed(
        self, *, tools: Iterable[object] | None = None, limits: Limits | None = None, policy: Policy = (), **other: Any
    ) -> Setup:
        """This setup with what one run has otherwise; None and nothing leave it as it is. `tools` are names of the
        agent's (with globs), or further tools; rules of `policy` are added."""
        changes = {name: value for name, value in other.items() if value is not None}
        if "options" in changes:
            changes["options"] = {**self.options, **checked_options(changes["options"])}
        if tools is not None:
            changes["toolbox"] = self._chosen(tools)
            changes["stop_after"] = self.stop_after & set(changes["toolbox"].names)
            if "tool_choice" not in changes and self.tool_choice not in ("none", "required"):
                changes["tool_choice"] = "auto"
        if limits is not None:
            if not isinstance(limits, Limits):
                raise ConfigError(f"limits: callgate.limits.Limits(…) is needed, not {type(limits).__name__}")
            changes |= {"limits": limits, "waits": limits.run_timeout != DEFAULTS.run_timeout}
        if more := gate.combine(policy or ()):
            known = (self.toolbox + changes.get("toolbox", ())) if "toolbox" in changes else self.toolbox
            gate.check_tools(more, known.specs)
            changes["policy"] = (*self.policy, *more)
        return replace(self, **changes) if changes else self

    def _chosen(self, tools: Iterable[object]) -> Toolbox:
        if isinstance(tools, (str, Mapping)) or not isinstance(tools, Iterable):
            raise ConfigError(f"tools: a list of names and tools is needed, not {tools!r}")
        given: list[Any] = list(tools)
        names = [item for item in given if isinstance(item, str)]
        own = self.toolbox.only(*names) if names else Toolbox()
        return own + [item for item in given if not isinstance(item, str)]


def _executor(toolbox: Toolbox, limits: Limits) -> Executor:
    return Executor(
        toolbox,
        timeout=limits.tool_timeout,
        max_parallel=limits.max_parallel,
        grace=limits.grace,
        max_result=limits.max_result,
    )


def _always(limits: Limits) -> tuple[Rule, ...]:
    """The rules that every agent has."""
    return (
        permission.Rule(),
        rate.Rule(),
        approval.Rule(),
        repetition.Rule(limits.repeat_warn, limits.repeat_stop),
        budget.Rule(
            limits.max_turns,
            limits.max_requests,
            limits.max_calls_per_turn,
            limits.max_calls,
            limits.run_timeout,
            limits.max_tokens,
        ),
    )


def checked_names(given: str | Iterable[str], what: str) -> frozenset[str]:
    """The names of tools, one or several."""
    names = {given} if isinstance(given, str) else set(given or ())
    if not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{what}: names of tools are needed, not {given!r}")
    return frozenset(names)


def checked_options(options: Mapping[str, object] | None) -> dict[str, object]:
    """The sampling options, as an own copy."""
    if options is not None and not isinstance(options, Mapping):
        raise ConfigError(f"options: a dict is needed, not {type(options).__name__}")
    for name, better in OF_ITS_OWN.items():
        if options and name in options:
            raise ConfigError(f"options: {name} would hold for every request; give {better} to the agent or the run")
    return dict(options or {})
