"""One thread that writes for everybody: what waits is written in one transaction (group commit).

Law: a task's future is done only after the transaction that holds it was committed, or it has the reason why not; one
task that fails does not cost the others of its group.
(tests/test_ledger.py::test_one_refused_append_costs_the_others_nothing)

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

    work: Callable[[Ask], object]
    durable: bool
    future: asyncio.Future[object] = field(repr=False)
    prepare: Callable[[], None] | None = None
    """Done in the thread before the transaction, once: what needs no database, so that nobody waits for it there."""
    run: str = ""
    """The run whose row is locked first; a group is done in the order of these, lest two groups block each other."""
    value: object = None
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

    def submit(
        self, work: Callable[[Ask], object], *, durable: bool, prepare: Callable[[], None] | None = None, run: str = ""
    ) -> asyncio.Future[Any]:
        """Queues the work; the future is of the running loop."""
        task = Task(work, durable, asyncio.get_running_loop().create_future(), prepare, run)
        with self._wake:
            if self._closed:
                raise LedgerError("the ledger is closed")
            # One thread and a queue, not a lock: while one transaction is synced to the disk, all that comes meanwhile
            # waits for the next one, and a sync costs the same for one entry as for five hundred.
            self._queue.append(task)
            if not self._running:
                self._running = True
                # A daemon, and none that asyncio joins: a process that forgets its ledger must end nevertheless. What
                # was promised is on the disk when its future is done, so nothing is lost by that.
                threading.Thread(target=self._serve, name=self._name, daemon=True).start()
            self._wake.notify()
        return task.future

    def close(self) -> None:
        """Waits until everything queued is written; blocking."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
            while self._running:
                # With a limit: a thread that died with the interpreter would never notify.
                self._wake.wait(0.1)

    def _serve(self) -> None:
        # Masking is done outside of the transaction: it may take longer than others should wait for the lock.
        while group := self._next_group():
            if ready := [task for task in group if _is_prepared(task)]:
                self._write(ready)
            _wake(group)

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
            # After `Lost` nobody knows whether the whole group is committed: to do its tasks one by one would do some
            # twice.
            if len(group) == 1 or isinstance(error, Lost):
                for task in group:
                    task.error = error
                return
            for task in group:  # one of them may be at fault; the others must not pay for it
                task.value = task.error = None
                self._write([task])


def _is_prepared(task: Task) -> bool:
    try:
        if task.prepare is not None:
            task.prepare()
    except Exception as error:
        task.error = error
    return task.error is None


def _wake(group: list[Task]) -> None:
    """Wakes the waiting tasks, a few in each round of their loop: hundreds at once would keep it from anything else."""
    loops: dict[asyncio.AbstractEventLoop, list[Task]] = {}
    for task in group:
        loops.setdefault(task.future.get_loop(), []).append(task)
    for loop, tasks in loops.items():
        try:
            # `Future.set_result` belongs to the loop's thread (Python's asyncio-dev, "Concurrency and Multithreading").
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
