"""The options that `ask`, `chat` and `demo` share, and the agent that they come to."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.types import Principal

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True, frozen=True)
class Said:
    """What was said on the command line; None: the setting holds (`callgate.toml`, environment, default)."""

    model: str | None = None
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


def shared(function: F) -> F:
    """Adds the shared options; their values come in as one `Said` by `Said(**values)`."""
    options = [
        click.option("-m", "--model", metavar="MODEL",
                     help='"local", "ollama:NAME", "openai:NAME", or "http://host:port/v1#NAME". Default: "local".'),
        click.option("-t", "--tools", multiple=True, metavar="FILE.py[:NAME]",
                     help="Your functions under @tool, or one of them. Default: demo, the tools of `callgate demo`."),
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


def agent_of(said: Said, approve: Callable[..., Any] | None) -> Agent:
    """The agent that was asked for. Raises ConfigError for what cannot be."""
    from callgate import config, ledger
    from callgate.agent import Agent
    from callgate.apps.toolfile import load

    if said.no_tools and said.tools:
        raise ConfigError("--tools and --no-tools: one or the other")
    names = ("model", "protocol", "dialect", "instructions", "ledger", "max_turns")
    settings = config.load({name: getattr(said, name) for name in names})
    tools = load(() if said.no_tools else said.tools or ("demo",))
    store = ledger.open(settings.where, masking=settings.masking)
    named = settings.agent_options()
    named["options"] = {**settings.options, **options_of(said.option)}
    return Agent(settings.model, tools=tools, approve=approve, ledger=store, **named)


def principal_of(said: Said) -> Principal | None:
    """On whose behalf the tools are called; None if nobody was named."""
    from callgate.types import Principal

    if said.principal is None and not said.grant:
        return None
    return Principal(said.principal or "terminal", frozenset(said.grant))


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
