"""See it work: the embedded model answers with real tool calls, on this machine.

Law: nothing is staged: the prompts are fixed, the answers are not, and a wrong one is shown like a right one.
    (tests/test_cli_terminal.py::test_the_demo_runs_the_closed_loop_on_the_real_model)
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import click

from callgate.apps import output
from callgate.apps.cli._options import Given, agent_of, principal_of, shared

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callgate import RunResult

PROMPTS = (
    "What is 17 * 23?",
    "What time is it in Tokyo?",
    "Where is parcel P-1003?",
    "Search the documentation for how to cancel a run.",
    "Calculate (3 + 4) / 5.",
    "Describe the sea in one sentence.",
)

HONEST = """\
What you saw: a model of 135 million parameters on this machine's processor, a
very small model, used here so that the demo runs anywhere. It gets a lot of
help: the tool is picked by keywords of the prompt, the model writes the
arguments under the tool's schema, and where its answer contradicts the
results, the results are shown instead, with a note. What does not depend on
the model: every call was complete, valid and permitted before it ran, ran
once, and is recorded in the ledger (callgate runs list).

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

    given = Given(**values)
    if (given.model or config.load().model) == "local":
        fetched()
    desk = session.Desk(tui.view(sys.stdout, records=records), given.approve)
    agent = agent_of(given, desk.approve, demo=True)
    desk.provider = agent.provider
    asked = prompts or PROMPTS
    say = _silent if records else output.say
    say(f"callgate demo: {agent.provider.model}", style="bold")
    say(f"tools: {', '.join(agent.toolbox.names)}", style="bold")
    began = time.monotonic()
    results = []
    with asyncio.Runner() as runner:
        for number, prompt in enumerate(asked, 1):
            say()
            say(f"[{number}/{len(asked)}] {prompt}", style="bold")
            results.append(runner.run(desk.show(agent.stream(prompt, principal=principal_of(given)))))
            if results[-1].reason == "cancelled":
                break
        runner.run(agent.aclose())
    if results[-1].reason == "cancelled":
        sys.exit(130)
    answered = sum(result.reason == "answered" for result in results)
    if not records:
        output.say()
        output.say(_summary(results, answered, time.monotonic() - began), style="bold")
        output.page(HONEST)
    if answered < len(results):
        sys.exit(1)


def _silent(text: str = "", *, style: str = "") -> None:
    """With `--json` nothing but the events is printed."""


def _summary(results: Sequence[RunResult], answered: int, seconds: float) -> str:
    called = [record for result in results for record in result.calls]
    fine = sum(record.result.ok for record in called)
    return f"{answered} of {len(results)} answered, {len(called)} calls, {fine} with a result, {seconds:.0f} s"
