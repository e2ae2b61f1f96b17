"""The ledger: what happened in every run, so durably that a run survives its process.

Law: when `append` has returned, the entries survive a killed process, durable ones a power cut as well; what was
written is never changed, and no two owners ever write one run at the same time.
(tests/test_crash.py::test_killed_at_every_boundary)

Theory of operation. A run is a list of entries, numbered from 1 without gaps and chained by digests. (1) Before a
write starts, its `call_intent` is appended durably; after it ended, its `call_result`. An intent without a result is a
write of unknown outcome. (2) Whoever carries out a run holds its lease and appends under the lease's fence; a lease
passes to another owner only when it ran out or its holder is certainly dead, and then the old fence is refused for
ever. So of several that resume one run exactly one wins. (3) Secrets are masked before anything is stored, in memory
before anything is read; where masking changed the arguments of a call that waits or has begun, the true ones are held
beside the journal until its outcome is final. (4) Time never runs backwards within a run, whatever the clock does.
(5) What goes wrong is a `LedgerError` that says what to do, and the call that could not be recorded is not run.

To add a store: one file here with a class `Store` that keeps the promises of `Ledger`; `open("name:rest")` finds it by
its file's name and makes it with `Store(rest, masking=…, hold_secrets=…)`. tests/test_ledger.py then holds it to every
law.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from callgate.errors import ConfigError
from callgate.keys import arguments_hash, idempotency_key
from callgate.ledger._closing import closing
from callgate.ledger._entries import (
    KINDS,
    NO_EFFECT,
    Lease,
    Pruned,
    Report,
    RunInfo,
    Write,
    intent,
    load_result,
)
from callgate.ledger._folding import writes_of
from callgate.ledger._leases import LeaseKeeper
from callgate.masking import Masking
from callgate.types import Entry, ToolResult

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "KINDS",
    "LEASE_SECONDS",
    "NO_EFFECT",
    "Lease",
    "LeaseKeeper",
    "Ledger",
    "Pruned",
    "Report",
    "RunInfo",
    "Write",
    "arguments_hash",
    "close",
    "hold",
    "idempotency_key",
    "intent",
    "load_result",
    "names",
    "open",
    "writes_of",
]

HERE = Path(__file__).parent
LEASE_SECONDS = 30.0
"""How long a lease lasts without being renewed: what another machine waits before it may take up a cut-off run."""


@runtime_checkable
class Ledger(Protocol):
    """What every store promises. All methods raise `LedgerError` for what the store cannot do."""

    where: str
    """What `open` would find it by."""

    async def append(
        self, run_id: str, entries: Sequence[Entry], *, durable: bool = True, fence: int | None = None
    ) -> list[Entry]:
        """Adds the entries to the run, all or none, and gives them back numbered and dated.

        `durable`: they survive a power cut as well. `fence`: that of the lease held; refused if another owner came.
        """
        ...

    async def read(self, run_id: str, *, after: int = 0) -> list[Entry]:
        """The entries of a run after number `after`, in order; empty for a run that does not exist."""
        ...

    async def run(self, run_id: str) -> RunInfo | None:
        """What is known of one run; None if nothing of it was ever recorded, though somebody may hold its lease."""
        ...

    async def runs(
        self, *, limit: int = 50, principal: str | None = None, reason: str | None = None, before: float | None = None
    ) -> list[RunInfo]:
        """The runs, last updated first. `reason="open"`: those without an end; `before`: last updated before then."""
        ...

    async def find_write(
        self, *, principal: str | None, tool: str, arguments_hash: str, run_id: str, key: str | None = None
    ) -> Write | None:
        """The earlier write that an identical call is answered from, or None if it may start (X4).

        In the same run: the latest that may have taken effect. In other runs of the same principal: only one whose
        outcome is unknown and whose run is no longer carried out. `key`: only writes with this idempotency key.
        """
        ...

    async def write(self, run_id: str, call_id: str) -> Write | None:
        """The write that this call journalled, with the latest that is known of its outcome."""
        ...

    async def result(self, run_id: str, call_id: str) -> ToolResult | None:
        """The whole result of a call, uncut."""
        ...

    async def held(self, run_id: str) -> dict[str, dict[str, object]]:
        """Call id -> true arguments, of the calls that wait or have begun and whose outcome is not final.

        Only calls whose arguments the journal has not as they were (masked, or not JSON), and only if the ledger may
        hold secrets. To go on with a run; never to be shown, logged or exported.
        """
        ...

    async def hash_key(self) -> bytes:
        """32 random bytes, made once for this ledger: the key of `arguments_hash`."""
        ...

    async def lease(self, run_id: str, *, owner: str | None = None, seconds: float = LEASE_SECONDS) -> Lease:
        """The sole right to carry out the run. Raises `RunBusy` while somebody else holds it."""
        ...

    async def renew(self, lease: Lease, *, seconds: float = LEASE_SECONDS) -> tuple[Lease, bool]:
        """The lease, lasting on, and whether somebody asked to cancel the run. Raises `RunBusy` if it was lost."""
        ...

    async def release(self, lease: Lease) -> None:
        """Gives the lease back; nothing happens if it was lost already."""
        ...

    async def cancel(self, run_id: str) -> bool:
        """Asks the holder of the run to cancel it. False: nobody holds it."""
        ...

    async def prune(
        self, *, older_than: float | None = None, max_size: int | None = None, keep_unknown: bool = True
    ) -> Pruned:
        """Removes whole runs, oldest first: those last updated more than `older_than` seconds ago, and then as many
        as bring the journal under `max_size` characters. Never one that is carried out or waits for an answer, and
        with `keep_unknown` none with a write of unknown outcome."""
        ...

    async def verify(self, run_id: str | None = None) -> Report:
        """Reads everything and reports whatever breaks a law."""
        ...

    def scan(
        self, *, kinds: Collection[str] = (), since: float = 0.0, run_id: str | None = None
    ) -> AsyncIterator[tuple[str, Entry]]:
        """(run id, entry) over all runs or one, run by run, each in order; only these kinds, only since then."""
        ...

    async def aclose(self) -> None:
        """Everything appended is on disk; nothing can be appended any more."""
        ...


@functools.cache
def names() -> tuple[str, ...]:
    """The stores there are."""
    return tuple(sorted(p.stem for p in HERE.glob("*.py") if not p.stem.startswith("_")))


def open(  # noqa: A001 - `ledger.open` is the contract's name
    where: str | Ledger | None = None,
    *,
    masking: Masking | None = None,
    hold_secrets: bool = True,
    keep_runs: int | None = None,
) -> Ledger:
    """The ledger at `where`: "memory", "sqlite:PATH", "postgresql://…"; a ledger is given back as it is.

    `hold_secrets=False`: arguments that are masked in the journal are kept nowhere, so such a call is not taken up
    again by another process. `keep_runs`: how many finished runs one in memory keeps (default 1,000).
    """
    if where is None:
        where = "memory"
    if not isinstance(where, str):
        if not isinstance(where, Ledger):
            raise ConfigError(f"ledger: {type(where).__name__} is no store: it lacks methods of callgate.ledger.Ledger")
        return where
    name, _, rest = where.partition(":")
    if name == "postgresql":
        name, rest = "postgres", where
    if where == "memory" and keep_runs is not None:
        rest = str(keep_runs)
    if name not in names():
        raise ConfigError(
            f'ledger {where!r}: no such store; write "memory", "sqlite:PATH" or "postgresql://USER@HOST/DATABASE"'
        )
    # By name: a plug and its driver are imported when somebody uses them.
    store: Callable[..., Ledger] = import_module(f"{__name__}.{name}").Store
    return store(rest, masking=masking or Masking(), hold_secrets=hold_secrets)


def hold(ledger: Ledger, run_id: str, *, seconds: float = LEASE_SECONDS) -> AbstractAsyncContextManager[LeaseKeeper]:
    """Holds the lease of a run while it is carried out, and keeps it renewed.

    Raises `RunBusy` on entry while another holds it. `hold.fence` goes with every append; `hold.cancelled` is an event
    that is set when somebody asked to cancel the run, `hold.lost` when the lease went to another owner.
    """
    return _hold(ledger, run_id, seconds)


@asynccontextmanager
async def _hold(ledger: Ledger, run_id: str, seconds: float) -> AsyncIterator[LeaseKeeper]:
    # Before the lease is asked for: its holder must give up earlier than the ledger lets others in, never later.
    asked = monotonic()
    held = LeaseKeeper(ledger, await ledger.lease(run_id, seconds=seconds), seconds, asked=asked)
    held.start()
    try:
        yield held
    finally:
        await held.stop()


async def close(ledger: Ledger, run_id: str) -> bool:
    """Ends a run that nobody carries out as cancelled; started writes stay unknown. False: it has ended already, or
    there is no such run. Raises `RunBusy` if somebody carries it out."""
    # First without the lease: taking one makes a row for a run that may not exist.
    if await ledger.run(run_id) is None:
        return False
    async with hold(ledger, run_id) as held:
        info = await ledger.run(run_id)
        if info is None or info.reason not in (None, "waiting"):
            return False
        await ledger.append(run_id, closing(await ledger.read(run_id)), fence=held.fence)
        return True
