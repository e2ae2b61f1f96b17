"""One thread that writes for everybody: what waits is written in one transaction (group commit).

One law: a task's future is done only after the transaction that holds it was committed, or it has the reason why not;
one task that fails does not cost the others of its group.

The thread starts with the first task and ends when nothing came for a while, so that a forgotten ledger holds neither
a thread nor a file for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from callgate.errors import LedgerError

IDLE_SECONDS = 2.0
"""How long the thread waits for more before it ends: starting one costs a tenth of a millisecond."""
MAX_GROUP = 512
"""Tasks of one transaction: a group this large already costs little a task, and more would make the first one wait."""

WAKE_AT_ONCE = 16
"""Waiting tasks that are woken in one round of a loop: each goes on for a fraction of a millisecond."""

Ask: TypeAlias = "Callable[[str, Sequence[Any]], list[Any]]"
"""Runs one statement with its parameters and gives back its rows."""


@dataclass(slots=True)
class Task:
    """Something to be done inside a transaction."""

    work: Callable[[Ask], Any]
    durable: bool
    future: asyncio.Future[Any] = field(repr=False)
    value: Any = None
    error: Exception | None = None


class Lost(LedgerError):
    """The connection broke: nobody knows whether the transaction was committed, so nothing of it is done over."""


class Writer:
    """The thread and its queue. `transact` does a group in one transaction and sets each task's value or error; it
    raises only if nothing of the group was committed, or `Lost`."""

    def __init__(self, transact: Callable[[Sequence[Task]], None], name: str) -> None:
        self._transact = transact
        self._name = name
        self._queue: deque[Task] = deque()
        self._wake = threading.Condition()
        self._running = False
        self._closed = False

    def submit(self, work: Callable[[Ask], Any], *, durable: bool) -> asyncio.Future[Any]:
        """Queues the work; the future is of the running loop."""
        task = Task(work, durable, asyncio.get_running_loop().create_future())
        with self._wake:
            if self._closed:
                raise LedgerError("the ledger is closed")
            self._queue.append(task)
            if not self._running:
                self._running = True
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            self._wake.notify()
        return task.future

    def close(self) -> None:
        """Waits until everything queued is written; blocking."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            while self._running:
                self._wake.wait(0.1)

    def _serve(self) -> None:
        while group := self._next_group():
            self._write(group)
            _tell(group)

    def _next_group(self) -> list[Task]:
        """What waits, or nothing when it is time to end."""
        with self._wake:
            if not self._queue and not self._closed:
                self._wake.wait(IDLE_SECONDS)
            if not self._queue:
                self._running = False
                self._wake.notify_all()
                return []
            return [self._queue.popleft() for _ in range(min(len(self._queue), MAX_GROUP))]

    def _write(self, group: list[Task]) -> None:
        try:
            self._transact(group)
        except Exception as error:
            if len(group) == 1 or isinstance(error, Lost):
                for task in group:
                    task.error = error
                return
            for task in group:  # one of them may be at fault; the others must not pay for it
                task.value = task.error = None
                self._write([task])


def _tell(group: list[Task]) -> None:
    """Wakes the waiting tasks, a few in each round of their loop: hundreds at once would keep it from anything else."""
    loops: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in group:
        loops.setdefault(task.future.get_loop(), []).append(task)
    for loop, tasks in loops.items():
        try:
            loop.call_soon_threadsafe(_finish, loop, tasks)
        except RuntimeError:  # the loop was closed; nobody waits any more
            continue


def _finish(loop: asyncio.AbstractEventLoop, tasks: list[Task]) -> None:
    if len(tasks) > WAKE_AT_ONCE:
        loop.call_soon(_finish, loop, tasks[WAKE_AT_ONCE:])
    for task in tasks[:WAKE_AT_ONCE]:
        if task.future.done():  # its waiter was cancelled
            continue
        if task.error is not None:
            task.future.set_exception(task.error)
        else:
            task.future.set_result(task.value)
