"""The options that `ask`, `chat` and `demo` share, and the agent that they come to."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.types import Principal

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True, frozen=True)
class Settings:
    """What was said on the command line; None: the default holds."""

    model: str = "local"
    protocol: str | None = None
    dialect: str | None = None
    tools: tuple[str, ...] = ()
    no_tools: bool = False
    instructions: str | None = None
    ledger: str | None = None
    max_turns: int | None = None
    principal: str | None = None
    grant: tuple[str, ...] = ()
    option: tuple[str, ...] = ()
    approve: str = "ask"
    extra: Mapping[str, Any] = field(default_factory=dict)


def shared(function: F) -> F:
    """Adds the shared options; their values come in as one `Settings` by `Settings(**values)`."""
    options = [
        click.option("-m", "--model", default="local", show_default=True, metavar="MODEL",
                     help='"local", "ollama:NAME", "openai:NAME", or "http://host:port/v1#NAME".'),
        click.option("-t", "--tools", multiple=True, metavar="FILE.py[:NAME]",
                     help="Your functions under @tool, or one of them. Default: the tools of `callgate demo`."),
        click.option("--no-tools", is_flag=True, help="No tools at all."),
        click.option("--protocol", metavar="NAME",
                     help="How calls are asked for: auto, native, constrained, routed, json, marker, or a dialect."),
        click.option("--dialect", metavar="NAME", help="How the model writes calls in text. Default: found out."),
        click.option("-s", "--instructions", metavar="TEXT", help="The system message."),
        click.option("--ledger", metavar="WHERE",
                     help='Where runs are recorded: "memory", "sqlite:PATH", "postgresql://…". '
                          "Default: SQLite in your state directory."),
        click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Turns of a run. Default: 6."),
        click.option("--principal", metavar="ID", help="On whose behalf the tools are called."),
        click.option("--grant", multiple=True, metavar="PERMISSION", help="What the principal may do."),
        click.option("-o", "--option", multiple=True, metavar="KEY=VALUE",
                     help="Sampling by the OpenAI names: -o temperature=0.2 -o max_tokens=300."),
        click.option("--approve", type=click.Choice(["ask", "yes", "no"]), default="ask", show_default=True,
                     help="Calls that a person must decide: ask here, or the same answer to all."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def agent_of(settings: Settings, approve: Callable[..., Any] | None) -> Agent:
    """The agent that was asked for. Raises ConfigError for what cannot be."""
    from callgate.agent import Agent
    from callgate.apps.toolfile import load

    if settings.no_tools and settings.tools:
        raise ConfigError("--tools and --no-tools: one or the other")
    tools = load(() if settings.no_tools else settings.tools or ("demo",))
    wanted = {
        "instructions": settings.instructions,
        "protocol": settings.protocol,
        "dialect": settings.dialect,
        "max_turns": settings.max_turns,
        "options": options_of(settings.option),
        **settings.extra,
    }
    given = {key: value for key, value in wanted.items() if value not in (None, {})}
    return Agent(settings.model, tools=tools, approve=approve, ledger=ledger_of(settings), **given)


def ledger_of(settings: Settings) -> str:
    """Where runs are recorded."""
    return settings.ledger or "memory"


def principal_of(settings: Settings) -> Principal | None:
    """On whose behalf the tools are called; None if nobody was named."""
    from callgate.types import Principal

    if settings.principal is None and not settings.grant:
        return None
    return Principal(settings.principal or "terminal", frozenset(settings.grant))


def options_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE as a dict; a value is JSON where it can be, else text."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--option {pair}: write KEY=VALUE, such as temperature=0.2")
        try:
            found[key.strip()] = json.loads(value)
        except ValueError:
            found[key.strip()] = value
    return found
