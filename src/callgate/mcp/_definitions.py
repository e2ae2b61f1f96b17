"""A server's tool definitions become `Tool`s, within limits.

A definition that is too large, broken or ambiguous is left out and named; it never costs the others.

Law: what the server declares of its tools loosens nothing, unless the application trusts its hints.
(tests/test_mcp_trust.py::test_hints_of_an_untrusted_server_change_nothing)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final

from callgate.errors import ConfigError
from callgate.tools import Tool, ToolContext
from callgate.types import Effect

MAX_DESCRIPTION: Final = 2_000
"""Characters of a description that a model sees; longer ones are cut: they are prompts, not descriptions."""
MAX_SCHEMA: Final = 100_000
"""Characters of one tool's schema."""
MAX_TOOLS: Final = 1_000
MAX_PAGES: Final = 100
"""Pages of a tool list; a paginator that never ends must not hang us."""
MAX_CALL: Final = 600.0
"""Seconds that progress can extend a call to, counted from its start."""
MAX_TEXT: Final = 1_000
"""Characters of an error that are passed on."""


@dataclass(slots=True, frozen=True)
class Rules:
    """How the application names and declares the tools of one server."""

    prefix: str = ""
    effects: Mapping[str, Effect] = field(default_factory=dict)
    """Tool name or glob -> effect; an exact name wins over globs, of these the first one."""
    hints: bool = False
    """Whether `readOnlyHint` and `idempotentHint` of the server are believed."""
    untrusted: bool = True
    """Whether its results are untrusted text (`policy.taint`)."""
    outgoing: tuple[str, ...] = ()
    """Names and globs of the tools that send data away."""
    timeout: float | None = None
    max_timeout: float = MAX_CALL
    """Seconds until a call ends in any case, however often the server reports progress."""
    resources: bool = False
    """Whether its resources are offered as tools, too."""
    prompts: bool = False
    elicit: Callable[[Any], object] | None = None
    """Answers the server's questions to the person."""

    def effect(self, name: str, reads: bool) -> Effect:
        """What the application says, then what a trusted server says, then a write."""
        if name in self.effects:
            return self.effects[name]
        for glob, effect in self.effects.items():
            if fnmatchcase(name, glob):
                return effect
        return "read" if self.hints and reads else "write"


@dataclass(slots=True, frozen=True)
class Shown:
    """A tool as it was handed out."""

    name: str
    """What the server calls it."""
    fingerprint: str
    """Of its definition: under another one it must not run."""
    reads: bool
    """Whether the application lets it be a read."""


Caller = Callable[[Shown, ToolContext, dict[str, object]], Any]
"""→ coroutine of the call's value."""


def fingerprint(tool: Any) -> str:
    """A hash of what a definition says; another definition under the same name is another tool."""
    definition = {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.input_schema,
        "annotations": tool.annotations.model_dump(mode="json") if tool.annotations else None,
    }
    return hashlib.sha256(json.dumps(definition, sort_keys=True, default=str).encode("utf-8", "replace")).hexdigest()


def tools_of(listed: Sequence[Any], rules: Rules, call: Caller) -> tuple[list[Tool], list[str]]:
    """The tools that can be offered, and what was left out or cut."""
    problems: list[str] = []
    tools: dict[str, Tool] = {}
    names = [tool.name for tool in listed]
    for tool in listed[:MAX_TOOLS]:
        if names.count(tool.name) > 1:
            problems.append(f"{tool.name[:80]!r}: left out; the server lists it {names.count(tool.name)} times")
            continue
        try:
            made = _tool(tool, rules, call, problems)
        except (ConfigError, RecursionError, ValueError) as error:
            problems.append(f"{tool.name[:80]!r}: left out; {str(error)[:MAX_TEXT]}")
            continue
        tools[made.name] = made
    if len(listed) > MAX_TOOLS:
        problems.append(f"only the first {MAX_TOOLS} of {len(listed)} tools are offered (MAX_TOOLS)")
    return list(tools.values()), list(dict.fromkeys(problems))


def _tool(tool: Any, rules: Rules, call: Caller, problems: list[str]) -> Tool:
    size = len(json.dumps(tool.input_schema))
    if size > MAX_SCHEMA:
        raise ConfigError(f"its schema has {size} characters, more than {MAX_SCHEMA} (MAX_SCHEMA)")
    description = tool.description or ""
    if len(description) > MAX_DESCRIPTION:
        problems.append(f"{tool.name!r}: its description was cut from {len(description)} characters (MAX_DESCRIPTION)")
        description = description[: MAX_DESCRIPTION - 1] + "…"
    hints = tool.annotations
    effect = rules.effect(tool.name, bool(hints and hints.read_only_hint))
    made = Tool.from_schema(
        rules.prefix + tool.name,
        description,
        tool.input_schema,
        function_of(Shown(tool.name, fingerprint(tool), effect == "read"), call),
        effect=effect,
        repeatable=effect == "write" and rules.hints and bool(hints and hints.idempotent_hint),
        timeout=rules.timeout,
        untrusted=rules.untrusted,
        outgoing=outgoing(tool.name, rules),
    )
    problems += [f"{tool.name!r}: {note}" for note in made.compiled.notes]
    return made


def outgoing(name: str, rules: Rules) -> bool:
    """Whether the application says that this tool sends data away."""
    return any(fnmatchcase(name, glob) for glob in rules.outgoing)


def function_of(shown: Shown, call: Caller) -> Callable[..., object]:
    """The function of a tool: it calls the server."""

    async def run(callgate_context: ToolContext, /, **arguments: object) -> object:
        return await call(shown, callgate_context, arguments)

    run.__name__ = shown.name
    return run
