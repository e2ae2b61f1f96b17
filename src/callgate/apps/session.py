"""One run, shown while it goes on, and the person who is asked about a call.

Law: whoever leaves a run early leaves it cancelled and recorded, and the terminal as it was.
    (tests/test_cli_terminal.py::test_ctrl_c_at_a_question_cancels_the_run_and_leaves_the_keyboard_to_the_chat)
Law: the question comes after everything that led to it, once.
    (tests/test_cli_terminal.py::test_the_question_comes_last_and_once)
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from callgate.apps.output import one_line
from callgate.apps.speeds import first_use
from callgate.events import CallJudged, Event
from callgate.policy import Answer
from callgate.providers import activity
from callgate.types import Ask, ToolCall

if TYPE_CHECKING:
    from callgate.agent import Agent, Approve, RunResult, Stream
    from callgate.apps.tui import View
    from callgate.providers import Provider
    from callgate.run import Pending

TICK = 0.1
"""Seconds between two drawings of the live line."""


class Desk:
    """Where a run meets the terminal: shows its events and asks its questions, one after the other."""

    def __init__(self, view: View, mode: str, *, answered: Collection[str] = ()) -> None:
        """`mode` is that of `--approve`; `answered` are ids of calls that were decided before."""
        self.view = view
        self._answered = answered
        self.approve = self._approver(mode)
        self._asks = self.approve == self._ask
        self._shown = 0
        self.provider: Provider | None = None
        """Who answers, if what it does before its first token is to be shown."""

    def _approver(self, mode: str) -> Approve | None:
        """Who decides: `--approve yes` and `no` answer themselves, `ask` asks here if a person is there."""
        if mode != "ask":
            answer = Answer(allow=mode == "yes", by="--approve")
            return lambda _: answer
        return self._ask if sys.stdin.isatty() and sys.stderr.isatty() else None

    async def show(self, stream: Stream) -> RunResult:
        """Shows every event of the run as it comes. Ctrl-C cancels the run, and its end is shown and recorded."""
        async with stream as events:
            ticking = asyncio.create_task(self._tick())
            try:
                with interrupting(events.cancel), without_echo_of_controls():
                    async for event in events:
                        self._event(event)
            finally:
                ticking.cancel()
                self.view.pause()
        if self.provider is not None and (line := first_use(self.provider)):
            self.view.remark(line)
        return events.result

    def _event(self, event: Event) -> None:
        self._shown += 1
        match event:
            case CallJudged(call_id, Ask()) if self._asks or call_id in self._answered:
                pass  # the question shows it, or showed it
            case _:
                self.view.show(event, time.monotonic())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            doing = activity(self.provider) if self.provider is not None else ""
            self.view.tick(time.monotonic(), doing)

    async def _ask(self, _: ToolCall, pending: Pending) -> Answer:
        await self._quiet()
        tool = one_line(pending.name, 80)
        prompt = f"  run it? [y]es, [n]o, [a]lways {tool} in this run: "
        self.view.ask(pending, prompt)
        while True:
            try:
                line = await _line()
            except asyncio.CancelledError:
                self.view.end_line()  # of the prompt
                raise
            match line.strip().lower():
                case "y" | "yes":
                    self.view.note("you allowed it", good=True)
                    return Answer(allow=True, by="terminal")
                case "a" | "always":
                    self.view.note(f"you allowed {tool} in this run", good=True)
                    return Answer(allow=True, scope="tool", by="terminal")
                case "n" | "no" | "":
                    self.view.note("you declined it", good=False)
                    return Answer(allow=False, by="terminal")
            self.view.ask(None, prompt)  # what is no answer is asked again

    async def _quiet(self) -> None:
        """Waits until all earlier events are shown: each round of the event loop hands on those that are there."""
        before = -1
        while before != self._shown:
            before = self._shown
            for _ in range(3):
                await asyncio.sleep(0)


async def once(agent: Agent, stream: Stream, desk: Desk) -> RunResult:
    """One run, after which the agent gives back what it holds."""
    async with agent:
        return await desk.show(stream)


@contextmanager
def interrupting(cancel: Callable[[], object]) -> Iterator[None]:
    """Ctrl-C calls `cancel`, also a second time, instead of ending the program."""
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, cancel)
    except (NotImplementedError, RuntimeError, ValueError):  # Windows, or not the main thread: asyncio's own way holds
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@contextmanager
def without_echo_of_controls() -> Iterator[None]:
    """Ctrl-C writes no `^C` into the text that is being shown; afterwards the terminal is as it was."""
    try:
        import termios
    except ImportError:  # Windows writes none
        yield
        return
    try:
        before = termios.tcgetattr(sys.stdin.fileno())
    except (termios.error, OSError, ValueError):  # no terminal
        yield
        return
    _set(before[3] & ~termios.ECHOCTL)
    try:
        yield
    finally:
        _set(before[3])


def _set(flags: int) -> None:
    import termios

    here = sys.stdin.fileno()
    if os.tcgetpgrp(here) != os.getpgrp():  # in the background the system would stop us for it
        return
    now = termios.tcgetattr(here)
    termios.tcsetattr(here, termios.TCSADRAIN, [*now[:3], flags, *now[4:]])


async def _line() -> str:
    """A line from the terminal; "" at its end. Nobody goes on reading when the run is cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    typed: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not typed.done():
            typed.set_result(sys.stdin.readline())

    try:
        loop.add_reader(sys.stdin, read)
    except NotImplementedError:  # Windows
        return await asyncio.to_thread(sys.stdin.readline)
    try:
        return await typed
    finally:
        loop.remove_reader(sys.stdin)
