"""One run, shown while it goes on, and the person who is asked about a call.

One law: whoever leaves a run early leaves it cancelled and recorded, and the terminal as it was.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from callgate.agent import Agent, RunResult, Stream
from callgate.apps.tui import View, arguments_text, one_line, printable
from callgate.policy import Answer
from callgate.run import Pending
from callgate.types import ToolCall

TICK = 0.1
"""Seconds between two drawings of the live line."""


async def show(stream: Stream, view: View) -> RunResult:
    """Shows every event of the run as it comes. Ctrl-C cancels the run, and its end is shown and recorded."""
    async with stream as events:
        ticking = asyncio.create_task(_tick(view))
        try:
            with interrupting(events.cancel):
                async for event in events:
                    view.show(event, time.monotonic())
        finally:
            ticking.cancel()
            view.pause()
    return events.result


async def once(agent: Agent, stream: Stream, view: View) -> RunResult:
    """The same, and what the agent holds is given back."""
    async with agent:
        return await show(stream, view)


@contextmanager
def interrupting(cancel: Callable[[], Any]) -> Iterator[None]:
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


async def _tick(view: View) -> None:
    while True:
        await asyncio.sleep(TICK)
        view.tick(time.monotonic())


def asker(mode: str, view: View) -> Callable[..., Any] | None:
    """Who decides about a call: `--approve yes` and `no` answer themselves, `ask` asks here if a person is there."""
    if mode != "ask":
        answer = Answer(allow=mode == "yes", by="--approve")
        return lambda _: answer
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None

    async def ask(_: ToolCall, pending: Pending) -> Answer:
        view.pause()
        said = one_line(arguments_text(pending.call), 2000)
        _say(f"? {printable(pending.name)} {said}\n  {one_line(pending.reason, 500)}\n")
        while True:
            _say("  run it? [y]es, [n]o, [a]lways this tool in this run: ")
            line = await _line()
            answer = line.strip().lower()
            if answer in {"y", "yes"}:
                return Answer(allow=True, by="terminal")
            if answer in {"a", "always"}:
                return Answer(allow=True, scope="tool", by="terminal")
            if answer in {"n", "no", ""} or not line:
                return Answer(allow=False, by="terminal")

    return ask


def _say(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()


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
