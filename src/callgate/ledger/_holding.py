"""A lease kept alive: renewed by a task for as long as the run is carried out.

One law: when the lease is lost, `lost` is set and nothing is renewed after; the fence keeps the loser from writing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Protocol

from callgate.errors import LedgerError, RunBusy
from callgate.ledger._entries import Lease


class _Leases(Protocol):
    async def renew(self, lease: Lease, *, seconds: float) -> tuple[Lease, bool]: ...
    async def release(self, lease: Lease) -> None: ...


class Hold:
    """The right to carry out one run, and the news about it."""

    def __init__(self, ledger: _Leases, lease: Lease, seconds: float) -> None:
        self.lease = lease
        self.cancelled = asyncio.Event()
        """Somebody asked to cancel the run."""
        self.lost = asyncio.Event()
        """Another owner took the run over: stop, and write nothing more."""
        self._ledger = ledger
        self._seconds = seconds
        self._task: asyncio.Task[None] | None = None

    @property
    def fence(self) -> int:
        """What every append of this run carries."""
        return self.lease.fence

    def start(self) -> None:
        """Begins to renew."""
        self._task = asyncio.get_running_loop().create_task(self._renew(), name=f"lease {self.lease.run_id}")

    async def stop(self) -> None:
        """Stops renewing and gives the lease back."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        if not self.lost.is_set():
            with suppress(LedgerError):  # it then runs out by itself
                await self._ledger.release(self.lease)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                self.lease, cancel = await self._ledger.renew(self.lease, seconds=self._seconds)
            except RunBusy:
                self.lost.set()
                return
            except LedgerError:
                continue  # a busy or full store: the next round may succeed, and the fence guards the rest
            if cancel:
                self.cancelled.set()

    @property
    def _pause(self) -> float:
        """Often enough that two renewals may fail, and that a wish to cancel is heard within two seconds."""
        return min(self._seconds / 4, 2.0)
