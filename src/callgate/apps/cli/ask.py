"""Ask once: the answer on stdout, the calls on the way beside it.

Law: stdout carries the answer (or with --json the events) and nothing else, unless it is a terminal.
    (tests/test_cli.py::test_the_answer_goes_to_stdout_and_the_calls_beside_it)
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from callgate.apps import output
from callgate.apps.cli import _earlier
from callgate.apps.cli._options import Given, agent_of, principal_of, shared
from callgate.apps.wording import words
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.agent import Agent, RunResult, Stream
    from callgate.apps.session import Desk


@click.command()
@click.argument("prompt", nargs=-1)
@click.option("--json", "records", is_flag=True, help="Every event as one line of JSON.")
@click.option("--schema", metavar="FILE", help="The answer is JSON that fits the JSON Schema in this file.")
@click.option("-a", "--attach", multiple=True, metavar="FILE", help="An image, sound, PDF or text beside the prompt.")
@_earlier.option
@shared
def command(
    prompt: tuple[str, ...],
    *,
    records: bool,
    schema: str | None,
    attach: tuple[str, ...],
    go_on: bool,
    earlier: str | None,
    **values: Any,
) -> None:
    """Ask a model once; it may call tools. What comes on stdin stands before PROMPT.

    \b
    callgate ask "What is 17 * 23?"
    callgate ask -m ollama:qwen3 --tools mytools.py "Which orders are late?"
    cat letter.txt | callgate ask -m ollama:qwen3 "Summarize this."
    callgate ask -m ollama:qwen3 --continue "Shorter, please."

    The status is 0 for an answer, 3 if a call waits for approval, 1 for anything else, 130 after Ctrl-C.
    """
    from callgate.apps import attach as attached
    from callgate.apps import session, tui

    given = Given(**values)
    asked = attached.prompt(_prompt(prompt), attach)
    quiet = not records and not sys.stdout.isatty()
    view: tui.View = tui.Lines(sys.stderr, answer=False) if quiet else tui.view(sys.stdout, records=records)
    desk = session.Desk(view, given.approve)
    form = _schema(schema) if schema else None
    agent = agent_of(given, desk.approve)
    desk.provider = agent.provider

    async def work() -> tuple[RunResult, list[str]]:
        async with agent:  # so that it is closed too where there is nothing to go on with
            before = await _earlier.history(agent, given, go_on=go_on, earlier=earlier)
            stream = agent.stream(asked, history=before, principal=principal_of(given), output=form)
            return await carried(agent, stream, desk, given)

    result, hint = asyncio.run(work())
    if quiet and form is not None and result.reason == "answered":
        output.say_json(result.output)
    elif quiet and result.text:
        output.answer(result.text)
    sys.exit(status_of(result, hint, shown=not records))


def _schema(path: str) -> dict[str, object]:
    from callgate.apps.toolfile import read_text

    try:
        found = json.loads(read_text(path, "--schema"))
    except ValueError as error:
        raise ConfigError(f"--schema: {path}: not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(f"--schema: {path}: a JSON Schema is an object")
    return found


def _prompt(given: tuple[str, ...]) -> str:
    """What was piped in, an empty line, and the prompt; "-" stands for stdin alone."""
    piped = "" if given != ("-",) and (sys.stdin is None or sys.stdin.isatty()) else _read()
    typed = "" if given == ("-",) else " ".join(given)
    if not (piped.strip() or typed.strip()):
        raise click.UsageError('the prompt is empty: callgate ask "…", or pipe a text in')
    return f"{piped.rstrip()}\n\n{typed}" if piped.strip() and typed.strip() else typed or piped


def _read() -> str:
    try:
        return sys.stdin.buffer.read().decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"stdin: not UTF-8 text (byte {error.start})") from error


async def carried(agent: Agent, stream: Stream, desk: Desk, given: Given) -> tuple[RunResult, list[str]]:
    """The run's result, and for one that waits what to do."""
    from callgate.apps.cli import _waiting

    async with agent:
        result = await desk.show(stream)
        waits = result.reason == "waiting"
        return result, await _waiting.hint(result, given, agent.ledger) if waits else []


def status_of(result: RunResult, hint: list[str], *, shown: bool = False) -> int:
    """The exit status, and the lines that say why it is not 0, unless the screen has shown it."""
    from callgate.apps.cli import _waiting

    if result.reason == "answered":
        return 0
    if result.reason == "waiting":
        _waiting.print_hint(hint)
        return 3
    if not shown:
        output.fail(f"{words(result.reason)}: {result.error or 'no answer'}")
    return 130 if result.reason == "cancelled" else 1
