"""Talk with a model over several turns; it may call tools.

Law: Ctrl-C stops the run that goes on and never the chat, whose history stays.
    (tests/test_cli_terminal.py::test_a_chat_keeps_its_history_and_ctrl_c_stops_the_answer_and_not_the_chat)
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from callgate.apps import output
from callgate.apps.cli import _earlier
from callgate.apps.cli._options import Given, agent_of, principal_of, shared
from callgate.errors import CallgateError

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.apps.session import Desk
    from callgate.types import Message

HELP = "/new starts afresh · /tools lists them · /exit or Ctrl-D leaves · Ctrl-C stops an answer"


@click.command()
@click.option("--json", "records", is_flag=True, help="Every event as one line of JSON.")
@_earlier.option
@shared
def command(records: bool, go_on: bool, earlier: str | None, **values: Any) -> None:
    """Talk with a model; it may call tools. Without a terminal every line of stdin is one prompt.

    \b
    /new forgets the conversation, /tools lists the tools, /exit or Ctrl-D leaves.
    Ctrl-C stops the answer; the chat goes on.
    """
    from callgate.apps import session, tui

    given = Given(**values)
    desk = session.Desk(tui.view(sys.stdout, records=records), given.approve)
    agent = agent_of(given, desk.approve)
    desk.provider = agent.provider
    read = _reader()
    with asyncio.Runner() as runner:
        chat = _Chat(agent, desk, given, runner)
        try:
            chat.history = runner.run(_earlier.history(agent, given, go_on=go_on, earlier=earlier))
            if not records:
                output.page(f"callgate chat with {agent.provider.model}\n{chat.opening()}{HELP}", err=True)
            while (line := read()) is not None and chat.take(line.strip()):
                pass
        finally:
            runner.run(agent.aclose())


class _Chat:
    """A conversation: what was said so far, and what each line does to it."""

    def __init__(self, agent: Agent, desk: Desk, given: Given, runner: asyncio.Runner) -> None:
        self._agent = agent
        self._desk = desk
        self._given = given
        self._runner = runner
        self.history: list[Message] = []

    def opening(self) -> str:
        """Where a conversation that goes on has got to; "" for a new one."""
        asked = [message.text for message in self.history if message.role == "user"]
        return f"going on after: {output.one_line(asked[-1], 100)}\n" if asked else ""

    def take(self, line: str) -> bool:
        """One line that a person typed. False: it was the last."""
        match line:
            case "":
                pass
            case "/exit" | "/quit":
                return False
            case "/help":
                output.say(HELP, err=True)
            case "/new":
                self.history = []
            case "/tools":
                for spec in self._agent.toolbox.specs:
                    output.say(f"{spec.name}: {spec.description}", err=True)
            case _ if line.startswith("/"):
                output.page(f"{line}: no such command\n{HELP}", err=True)
            case _:
                self._ask(line)
        return True

    def _ask(self, text: str) -> None:
        from callgate.apps.cli import _waiting

        try:
            stream = self._agent.stream(text, history=self.history, principal=principal_of(self._given))
            result = self._runner.run(self._desk.show(stream))
            self.history = result.messages
            if result.reason == "waiting":
                hint = _waiting.hint(result, self._given, self._agent.ledger)
                _waiting.print_hint(self._runner.run(hint))
        except CallgateError as error:  # the next one may go well, and the history is not lost
            output.fail(str(error))


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
                output.say("(Ctrl-D or /exit leaves)", err=True)
            except EOFError:
                return None

    return read


def _typed() -> str | None:
    while True:
        try:
            return output.prompt("› ")
        except KeyboardInterrupt:
            output.page("\n(Ctrl-D or /exit leaves)", err=True)
        except EOFError:
            return None


def _next_line() -> str | None:
    return sys.stdin.readline() or None
