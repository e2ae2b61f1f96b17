"""Talk with a model over several turns; it may call tools.

One law: Ctrl-C stops the run that goes on and never the chat; what was said stays said.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from callgate.apps.cli._options import Said, agent_of, principal_of, shared
from callgate.errors import CallgateError

if TYPE_CHECKING:
    from callgate.types import Message

HELP = "/new starts afresh · /tools lists them · /exit or Ctrl-D leaves · Ctrl-C stops an answer"


@click.command()
@click.option("--json", "records", is_flag=True, help="Every event as one line of JSON.")
@shared
def command(records: bool, **values: Any) -> None:
    """Talk with a model; it may call tools. Without a terminal every line of stdin is one prompt.

    \b
    /new forgets the conversation, /tools lists the tools, /exit or Ctrl-D leaves.
    Ctrl-C stops the answer that is being made; the chat goes on.
    """
    from callgate.apps import session, tui

    said = Said(**values)
    view = tui.view(sys.stdout, records=records)
    agent = agent_of(said, session.asker(said.approve, view))
    read = _reader()
    if not records:
        click.echo(f"callgate chat with {agent.provider.model}\n{HELP}", err=True)
    history: list[Message] = []
    with asyncio.Runner() as runner:
        while (line := read()) is not None:
            match line.strip():
                case "":
                    continue
                case "/exit" | "/quit":
                    break
                case "/help":
                    click.echo(HELP, err=True)
                case "/new":
                    history = []
                case "/tools":
                    for spec in agent.toolbox.specs:
                        click.echo(f"{spec.name}: {spec.description}", err=True)
                case text if text.startswith("/"):
                    click.echo(f"{text}: no such command\n{HELP}", err=True)
                case text:
                    try:
                        stream = agent.stream(text, history=history, principal=principal_of(said))
                        history = runner.run(session.show(stream, view)).messages
                    except CallgateError as error:  # the next one may go well, and what was said is not lost
                        click.echo(f"callgate: {error}", err=True)
        runner.run(agent.aclose())


def _reader() -> Callable[[], str | None]:
    """Reads the next prompt; None: there is no more."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return _next_line
    try:
        from prompt_toolkit import PromptSession
    except ImportError:
        return _typed
    prompts: PromptSession[str] = PromptSession()

    def read() -> str | None:
        while True:
            try:
                return prompts.prompt("› ")
            except KeyboardInterrupt:
                click.echo("(Ctrl-D or /exit leaves)", err=True)
            except EOFError:
                return None

    return read


def _typed() -> str | None:
    while True:
        try:
            return input("› ")
        except KeyboardInterrupt:
            click.echo("\n(Ctrl-D or /exit leaves)", err=True)
        except EOFError:
            return None


def _next_line() -> str | None:
    return sys.stdin.readline() or None
