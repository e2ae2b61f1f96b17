"""A lease kept alive: renewed by a task for as long as the run is carried out.

Law: when the lease is lost, `lost` is set and nothing is renewed after; the fence keeps the loser from writing.
(tests/test_ledger.py::test_a_lost_lease_is_noticed)
Law: a lease that could not be given back is given back as soon as the ledger answers, and keeps nobody of this process
from the run. (tests/test_ledger_postgres_trouble.py::test_a_run_is_taken_up_at_once_when_the_server_is_back)
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from time import monotonic
from typing import Protocol

from callgate.errors import LedgerError, RunBusy
from callgate.ledger import _owners
from callgate.ledger._entries import Lease

RELEASE_PAUSE = 1.0
"""Seconds between two tries to give a lease back."""
LATER: set[asyncio.Task[None]] = set()
"""Such tries, kept from the garbage collector."""


class _Leases(Protocol):
    async def renew(self, lease: Lease, *, seconds: float) -> tuple[Lease, bool]: ...
    async def release(self, lease: Lease) -> None: ...


class LeaseKeeper:
    """The right to carry out one run, and the news about it."""

    def __init__(self, ledger: _Leases, lease: Lease, seconds: float, *, asked: float | None = None) -> None:
        self.lease = lease
        self.cancelled = asyncio.Event()
        """Somebody asked to cancel the run."""
        self.lost = asyncio.Event()
        """Another owner took the run over: stop, and write nothing more."""
        self.deadline = (monotonic() if asked is None else asked) + seconds
        """Until when the lease holds for certain, on the clock of `time.monotonic`: counted from before it was asked
        for, so that a slow answer makes it shorter and never longer."""
        self._ledger = ledger
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None

    @property
    def fence(self) -> int:
        """What every append of this run carries."""
        return self.lease.fence

    @property
    def is_over(self) -> bool:
        """Whether another owner may have the run already."""
        return self.lost.is_set() or monotonic() >= self.deadline

    def start(self) -> None:
        """Begins to renew."""
        self._task = asyncio.get_running_loop().create_task(self._renew(), name=f"lease {self.lease.run_id}")

    async def stop(self) -> None:
        """Stops renewing and gives the lease back."""
        task = self._task
        try:
            if task is not None:
                task.cancel()
                # Not `await task` with the cancel suppressed: a cancel of the caller looks the same, and would be lost.
                await asyncio.wait({task})
        finally:
            await self._give_back()
        if task is not None and not task.cancelled() and (failure := task.exception()) is not None:
            raise failure  # ours: the renewal expects every error that a ledger may raise

    async def _give_back(self) -> None:
        # The row is another owner's: to release it would take the run from him.
        if self.lost.is_set():
            _owners.retire(self.lease.owner)
            return
        try:
            await self._ledger.release(self.lease)
        except BaseException as error:  # it runs out by itself, but others should not have to wait for that
            task = asyncio.get_running_loop().create_task(self._release_later(), name=f"release {self.lease.run_id}")
            LATER.add(task)
            task.add_done_callback(LATER.discard)
            if not isinstance(error, LedgerError):  # cancelled, because it took too long
                raise

    async def _release_later(self) -> None:
        # After that the lease has run out by itself.
        limit = time.monotonic() + self._seconds
        while time.monotonic() < limit:
            await asyncio.sleep(RELEASE_PAUSE)
            with suppress(LedgerError):
                await self._ledger.release(self.lease)
                return

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            # Before the question: while the answer is on its way the other side counts already.
            asked = monotonic()
            try:
                self.lease, cancel = await self._ledger.renew(self.lease, seconds=self._seconds)
                self.deadline = asked + self._seconds
            except RunBusy:
                self.lost.set()
                return
            # Not `lost`: three renewals fit into a lease, and until its deadline nobody else can have it.
            except LedgerError:
                continue  # a busy or full store: the next round may succeed, and the fence guards the rest
            if cancel:
                self.cancelled.set()

    @property
    def _pause(self) -> float:
        """Often enough that two renewals may fail, and that a wish to cancel is heard within two seconds."""
        return min(self._seconds / 4, 2.0)
