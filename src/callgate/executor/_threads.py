"""Threads for sync tools: started on demand, reused, and given up when they hang.

Law: nobody ever waits for a thread that hangs.
(tests/test_executor.py::test_hanging_threads_are_counted_and_above_the_cap_nothing_starts)

An abandoned thread frees its place at once and is counted until it ends; above `max_abandoned` of them nothing more is
started, since each may still hold memory, locks or a connection.

Threads are daemons: a hanging tool must not keep the process from ending.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from time import monotonic
from typing import Any, TypeAlias

MAX_THREADS = 128
"""At once, in a process: sync tools mostly wait, and a thread costs some 50 kB; further calls queue."""
MAX_ABANDONED = 64
"""Hanging threads, in a process; above it sync tools are refused."""
KEEP_IDLE = 16
"""Idle threads kept for the next call."""

Done: TypeAlias = "Callable[[Any, BaseException | None], None]"


class Job:
    """One function on its way through a thread."""

    def __init__(self, threads: Threads, work: Callable[[], object], done: Done) -> None:
        self.begun: float | None = None
        """When it started, monotonic; None while it waits for a thread."""
        self.ended = False
        self.abandoned = False
        self._threads = threads
        self._work = work
        self._done = done

    def withdraw(self) -> bool:
        """Takes it out of the queue. False: it has begun."""
        return self._threads._withdraw(self)

    def abandon(self) -> None:
        """Gives it up: its thread is no longer waited for, and no longer takes a place."""
        self._threads._abandon(self)

    def run(self) -> None:
        """Does the work and tells; called in a thread."""
        value: object = None
        error: BaseException | None = None
        try:
            value = self._work()
        except BaseException as raised:  # whatever a tool raises is its result, never the end of a thread
            error = raised
        # Before `done` is called: whoever hears of the end may count the hanging threads.
        self._threads._ended(self)
        self._done(value, error)


class Threads:
    """A pool that can lose its threads."""

    def __init__(self, max_threads: int = MAX_THREADS, max_abandoned: int = MAX_ABANDONED) -> None:
        self.max_threads = max_threads
        self.max_abandoned = max_abandoned
        self.forget()

    def forget(self) -> None:
        """As new. A forked process has none of the threads, and perhaps a lock that nobody will give back."""
        self._lock = threading.Lock()
        self._idle: list[SimpleQueue[Job | None]] = []
        self._waiting: deque[Job] = deque()
        self._busy = 0
        self._abandoned = 0

    @property
    def abandoned(self) -> int:
        """How many threads hang."""
        return self._abandoned

    @property
    def busy(self) -> int:
        """How many threads work and are waited for."""
        return self._busy

    def start(self, work: Callable[[], object], done: Done) -> Job | None:
        """Starts or queues the work; `done` is called in its thread. None: too many threads hang already."""
        job = Job(self, work, done)
        with self._lock:
            # A tool that hangs each time would otherwise eat the process's memory, a thread a call.
            if self._abandoned >= self.max_abandoned:
                return None
            self._waiting.append(job)
            self._feed()
        return job

    def _feed(self) -> None:
        """Gives waiting jobs to threads, as long as there is room. The lock is held."""
        while self._waiting and self._busy < self.max_threads:
            job = self._waiting.popleft()
            self._busy += 1
            job.begun = monotonic()
            if self._idle:
                self._idle.pop().put(job)
                continue
            # An inbox for each thread instead of one queue: a job is known to have begun when it is given out, and the
            # last thread to become idle, whose memory is warm, goes first.
            inbox: SimpleQueue[Job | None] = SimpleQueue()
            inbox.put(job)
            threading.Thread(target=self._serve, args=(inbox,), name="callgate tool", daemon=True).start()

    def _serve(self, inbox: SimpleQueue[Job | None]) -> None:
        while (job := inbox.get()) is not None:
            job.run()
            abandoned = job.abandoned
            del job  # a finished job must not keep its values alive while the thread waits
            with self._lock:
                if abandoned or len(self._idle) >= KEEP_IDLE:
                    return
                self._idle.append(inbox)
                self._feed()

    def _ended(self, job: Job) -> None:
        with self._lock:
            job.ended = True
            if job.abandoned:
                self._abandoned -= 1
            else:
                self._busy -= 1
                self._feed()

    def _withdraw(self, job: Job) -> bool:
        with self._lock:
            try:
                self._waiting.remove(job)
            except ValueError:
                return False
            return True

    def _abandon(self, job: Job) -> None:
        with self._lock:
            if job.ended or job.abandoned or job.begun is None:
                return
            job.abandoned = True
            self._abandoned += 1
            self._busy -= 1
            self._feed()


SHARED = Threads()
"""The threads of this process."""
if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=SHARED.forget)
