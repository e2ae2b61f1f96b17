"""The options that `ask`, `chat`, `demo` and `runs resume` share, and the agent that they come to.

Law: the options of a run, printed as a command line, are read back as the same options.
    (tests/test_output.py::test_the_hint_of_a_waiting_run_is_read_back_as_it_was_given)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callgate.apps import dialectfile
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.agent import Agent, Approve
    from callgate.dialects import Dialect
    from callgate.tools import Toolbox
    from callgate.types import Principal

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(slots=True, frozen=True)
class Given:
    """The options as given on the command line; None: the setting holds (`callgate.toml`, environment, default)."""

    model: str | None = None
    protocol: str | None = None
    dialect: str | None = None
    dialect_file: str | None = None
    tags: tuple[str, str] | None = None
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    no_tools: bool = False
    instructions: str | None = None
    ledger: str | None = None
    max_turns: int | None = None
    principal: str | None = None
    grant: tuple[str, ...] = ()
    option: tuple[str, ...] = ()
    approve: str = "ask"

    def words(self) -> list[str]:
        """The options that a resumed run needs again, as words of a command line. The principal is in the ledger."""
        values: list[tuple[str, object]] = [
            ("-m", self.model),
            *(("-t", place) for place in self.tools),
            *(("--mcp", server) for server in self.mcp),
            ("--protocol", self.protocol),
        ]
        values += [("--dialect", self.dialect), ("-s", self.instructions), ("--ledger", self.ledger)]
        values += [("--max-turns", self.max_turns), *(("-o", pair) for pair in self.option)]
        values.append(("--dialect-file", self.dialect_file))
        named = [word for key, value in values if value is not None for word in (key, str(value))]
        named += ["--tags", *self.tags] if self.tags else []
        return [*named, "--no-tools"] if self.no_tools else named


def shared(function: F) -> F:
    """Adds the shared options; their values come in as one `Given` by `Given(**values)`."""
    options = [
        click.option("-m", "--model", metavar="MODEL",
                     help='"local", "local:FILE.gguf", "ollama:NAME", "openai:NAME", or "http://host:port/v1#NAME". '
                          'Default: "local".'),
        click.option("-t", "--tools", multiple=True, metavar="FILE.py[:NAME]",
                     help="Your functions under @tool, or one of them. Default: none, or the demo's for the embedded "
                          "model."),
        click.option("--mcp", multiple=True, metavar="COMMAND|URL", help="The tools of this MCP server, too."),
        click.option("--no-tools", is_flag=True, help="No tools at all."),
        click.option("--protocol", metavar="NAME",
                     help="How calls are asked for: auto, native, constrained, routed, json, marker, or a dialect."),
        click.option("--dialect", metavar="NAME", help="How the model writes calls in text. Default: found out."),
        click.option("-s", "--instructions", "--system", "instructions", metavar="TEXT", help="The system message."),
        click.option("--ledger", metavar="WHERE",
                     help='Where runs are recorded: "memory", "sqlite:PATH", "postgresql://…". '
                          "Default: SQLite in your state directory."),
        click.option("--max-turns", type=click.IntRange(min=1), metavar="N", help="Turns of a run. Default: 6."),
        click.option("--principal", metavar="ID", help="On whose behalf the tools are called."),
        click.option("--grant", multiple=True, metavar="PERMISSION", help="What the principal may do."),
        click.option("-o", "--option", multiple=True, metavar="KEY=VALUE",
                     help="Sampling by the OpenAI names: -o temperature=0.2 -o max_tokens=300."),
        click.option("--approve", type=click.Choice(["ask", "yes", "no"]), default="ask", show_default=True,
                     help="Calls that need approval: ask here, or give all the same answer."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return dialectfile.own(function)


def agent_of(given: Given, approve: Approve | None, *, demo: bool = False) -> Agent:
    """The agent for these options. The demo's tools are there with `demo` and, if no others are named, for the embedded
    model; no other model is sent tools that nobody asked for. Raises ConfigError for what cannot be."""
    from callgate import config, ledger
    from callgate.agent import Agent
    from callgate.apps.toolfile import load

    if given.no_tools and (given.tools or given.mcp):
        raise ConfigError(f"{'--tools' if given.tools else '--mcp'} and --no-tools: one or the other")
    names = ("model", "protocol", "dialect", "instructions", "ledger", "max_turns")
    settings = config.load({name: getattr(given, name) for name in names})
    default = ("demo",) if demo or (settings.model == "local" and not given.mcp) else ()
    tools = load(() if given.no_tools else given.tools or default)
    for server in given.mcp:
        tools = tools + _served(server)
    store = ledger.open(settings.where, masking=settings.masking, hold_secrets=settings.hold_secrets)
    named = settings.agent_options()
    named["options"] = {**settings.options, **options_of(given.option)}
    if (own := _own_dialect(given)) is not None:
        # In tags of one's own a model must be asked; a family's own form it may know, or its server.
        named |= {"dialect": own, "protocol": own} if given.tags and not given.protocol else {"dialect": own}
    return Agent(settings.model, tools=tools, approve=approve, ledger=store, **named)


def _own_dialect(given: Given) -> Dialect | None:
    if given.dialect and (given.tags or given.dialect_file):
        raise ConfigError(f"--dialect and {'--tags' if given.tags else '--dialect-file'}: one or the other")
    return dialectfile.dialect_of(given.tags, given.dialect_file)


def _served(server: str) -> Toolbox:
    """The tools of an MCP server, which is left when the command ends."""
    from callgate.apps.output import fail
    from callgate.mcp import connect

    found = click.get_current_context().with_resource(connect(server))
    for problem in found.problems:
        fail(problem)
    return found.tools


def principal_of(given: Given) -> Principal | None:
    """On whose behalf the tools are called; None: nobody was named."""
    from callgate.types import Principal

    if given.principal is None and not given.grant:
        return None
    return Principal(given.principal or "terminal", frozenset(given.grant))


def options_of(pairs: tuple[str, ...]) -> dict[str, Any]:
    """KEY=VALUE as a dict; a value is JSON where it can be, else text."""
    found: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--option {pair}: write KEY=VALUE, such as temperature=0.2")
        try:
            found[key.strip()] = json.loads(value)
        except ValueError:
            found[key.strip()] = value
    return found
