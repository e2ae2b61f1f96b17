"""See it work: the embedded model answers with real tool calls, on this machine.

One law: nothing is staged. The prompts are fixed, the answers are not, and a wrong one is shown like a right one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import click

from callgate.apps.cli._options import Said, agent_of, shared

PROMPTS = (
    "What is 17 * 23?",
    "What time is it in Tokyo?",
    "Where is parcel P-1003?",
    "Search the documentation for how to cancel a run.",
    "Calculate (3 + 4) / 5.",
    "Describe the sea in one sentence.",
)

HONEST = """\
What you saw: a model of 135 million parameters, the smallest that is of any
use, on this machine's processor. It is held by the hand: the tool is chosen
by the words of the prompt, the model writes the arguments under the tool's
schema, and its answer stands only if it keeps to the results; else they are
told as they are, with a note. What is not up to the model: every call was
complete, valid and permitted before it ran, once, and is in the ledger
(callgate runs list).

A larger model:      callgate ask -m ollama:qwen3 "…"
Your own functions:  callgate ask --tools FILE.py "…"
A conversation:      callgate chat
"""


@click.command()
@click.argument("prompts", nargs=-1, metavar="[PROMPT]...")
@click.option("--json", "records", is_flag=True, help="Every event as one line of JSON.")
@shared
def command(prompts: tuple[str, ...], records: bool, **values: Any) -> None:
    """See it work: the embedded model answers some prompts with real tool calls, on this machine.

    The first time it fetches the weights (93 MB). Give your own PROMPTs to try others.
    """
    from callgate import config
    from callgate.apps import session, tui
    from callgate.apps.cli.model import fetched

    said = Said(**values)
    if (said.model or config.load().model) == "local":
        fetched()
    view = tui.view(sys.stdout, records=records)
    agent = agent_of(said, session.asker(said.approve, view))
    asked = prompts or PROMPTS
    if not records:
        names = ", ".join(agent.toolbox.names)
        click.secho(f"callgate demo: {agent.provider.model}\ntools: {names}", bold=True)
    began = time.monotonic()
    results = []
    with asyncio.Runner() as runner:
        for number, prompt in enumerate(asked, 1):
            if not records:
                click.secho(f"\n[{number}/{len(asked)}] {prompt}", bold=True)
            results.append(runner.run(session.show(agent.stream(prompt), view)))
            if results[-1].reason == "cancelled":
                break
        runner.run(agent.aclose())
    if results[-1].reason == "cancelled":
        sys.exit(130)
    if not records:
        called = sum(len(result.calls) for result in results)
        fine = sum(record.result.ok for result in results for record in result.calls)
        answered = sum(result.reason == "answered" for result in results)
        click.secho(
            f"\n{answered} of {len(results)} answered, {called} calls, {fine} with a result, "
            f"{time.monotonic() - began:.0f} s",
            bold=True,
        )
        click.echo(HONEST)
    if not all(result.reason == "answered" for result in results):
        sys.exit(1)
