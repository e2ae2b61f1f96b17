"""Conversations that the ledger keeps: each run of a session goes on where the last one ended.

Law: a session is the row of its runs, `NAME.1`, `NAME.2` and so on; nothing else is kept, so it is resumed, pruned and
exported like every run, and of two runs that would go on at the same time one wins.
(tests/test_agent_sessions.py::test_of_two_runs_of_a_session_at_once_one_wins)
"""

from __future__ import annotations

from callgate.errors import ConfigError, RunBusy
from callgate.ledger import Ledger
from callgate.run.conversation import Conversation, conversation_in
from callgate.types import Principal

MAX_SEARCHED = 10_000
"""Runs among which a session is looked for whose first runs were pruned."""


async def last_run(ledger: Ledger, session: str, principal: Principal | None) -> int:
    """The number of the session's last run; 0: it has none. The runs are numbered without a gap, so a few looks do."""
    below = 0
    if await ledger.run(f"{session}.1") is None:
        # The first ones may have been pruned: the oldest go first.
        below = await _newest(ledger, session, principal)
        if not below:
            return 0
    above = below + 1
    while await ledger.run(f"{session}.{above}") is not None:
        below, above = above, above * 2
    while above - below > 1:
        middle = (below + above) // 2
        if await ledger.run(f"{session}.{middle}") is None:
            above = middle
        else:
            below = middle
    return below


async def _newest(ledger: Ledger, session: str, principal: Principal | None) -> int:
    """The highest number among the newest runs."""
    runs = await ledger.runs(limit=MAX_SEARCHED, principal=principal.id if principal else None)
    numbers = [run.run_id.removeprefix(f"{session}.") for run in runs if run.run_id.startswith(f"{session}.")]
    return max((int(number) for number in numbers if number.isascii() and number.isdigit()), default=0)


async def conversation_of(ledger: Ledger, session: str, number: int, principal: Principal | None) -> Conversation:
    """The conversation up to a run of the session. Raises ConfigError if it is somebody else's."""
    found = conversation_in(await ledger.read(f"{session}.{number}"))
    # Whoever names a session must not read what somebody else said in it.
    if found.principal != (principal.id if principal else None):
        raise ConfigError(f"session {session!r} belongs to {found.principal or 'nobody'}")
    return found


async def going_on(ledger: Ledger, session: str, principal: Principal | None) -> tuple[str, Conversation]:
    """The id of the session's next run, and the conversation that it goes on with. Raises RunBusy while the last one
    has not ended."""
    number = await last_run(ledger, session, principal)
    if number == 0:
        return f"{session}.1", Conversation()
    found = await conversation_of(ledger, session, number, principal)
    if not found.ended:
        raise RunBusy(f"session {session!r}: its run {session}.{number} has not ended; resume it or cancel it")
    return f"{session}.{number + 1}", found
