"""Ask once: the answer on stdout, the calls on the way beside it.

One law: stdout carries the answer (or with --json the events) and nothing else, unless it is a terminal.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any

import click

from callgate.apps.cli._options import Said, agent_of, principal_of, shared

if TYPE_CHECKING:
    from callgate.agent import RunResult


@click.command()
@click.argument("prompt", nargs=-1, required=True)
@click.option("--json", "records", is_flag=True, help="Every event as one line of JSON.")
@shared
def command(prompt: tuple[str, ...], records: bool, **values: Any) -> None:
    """Ask a model once; it may call tools. PROMPT "-" is read from stdin.

    \b
    callgate ask "What is 17 * 23?"
    callgate ask -m ollama:qwen3 --tools mytools.py "Which orders are late?"

    The status is 0 for an answer, 3 if a call waits for a person, 1 for anything else, 130 after Ctrl-C.
    """
    from callgate.apps import session, tui

    said = Said(**values)
    text = sys.stdin.read() if prompt == ("-",) else " ".join(prompt)
    if not text.strip():
        raise click.UsageError("the prompt is empty")
    quiet = not records and not sys.stdout.isatty()
    view: tui.View = tui.Lines(sys.stderr, answer=False) if quiet else tui.view(sys.stdout, records=records)
    agent = agent_of(said, session.asker(said.approve, view))
    stream = agent.stream(text, principal=principal_of(said))
    result = asyncio.run(session.once(agent, stream, view))
    if quiet and result.text:
        click.echo(result.text)
    sys.exit(status_of(result, told=not records))


def status_of(result: RunResult, *, told: bool = False) -> int:
    """The exit status, and the line that says why it is not 0, unless the screen has told it."""
    if result.reason == "answered":
        return 0
    if result.reason == "waiting":
        waiting = " ".join(f"--yes {pending.id}" for pending in result.pending)
        names = ", ".join(pending.name for pending in result.pending)
        click.echo(f"callgate: waiting for a person to decide about {names}", err=True)
        click.echo(f"callgate: to go on: callgate runs resume {result.run_id} {waiting} (or --no …)", err=True)
        return 3
    if not told:
        click.echo(f"callgate: {result.reason.replace('_', ' ')}: {result.error or 'no answer'}", err=True)
    return 130 if result.reason == "cancelled" else 1
