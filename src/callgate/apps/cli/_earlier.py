"""The conversation that `--continue` and `--from` go on with, out of the ledger.

Law: only a run that has ended is gone on with, and only one of the same principal.
    (tests/test_continue.py::test_continue_goes_on_with_the_latest_run_of_the_same_principal)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callgate.apps.cli._ledgers import find_run, must_exist
from callgate.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.apps.cli._options import Given
    from callgate.ledger import Ledger
    from callgate.types import Message

F = TypeVar("F", bound=Callable[..., Any])

LOOKED_AT = 50
"""Runs among which the latest that has ended is looked for: others may be waiting or under way."""


def option(function: F) -> F:
    """Adds `--continue` and `--from`."""
    function = click.option("--from", "earlier", metavar="RUN", help="Go on with the conversation of this run.")(
        function
    )
    return click.option("-c", "--continue", "go_on", is_flag=True, help="Go on with the latest conversation.")(function)


async def history(agent: Agent, given: Given, *, go_on: bool, earlier: str | None) -> list[Message]:
    """The messages of the run to go on with; none if that is not asked for."""
    if go_on and earlier:
        raise ConfigError("--continue and --from: one or the other")
    if not go_on and not earlier:
        return []
    must_exist(agent.ledger)
    run_id = await find_run(agent.ledger, earlier) if earlier else await _latest(agent.ledger, given)
    info = await agent.ledger.run(run_id)
    if info is None or info.reason in {None, "waiting"}:
        raise LedgerError(f"run {run_id}: it has not ended; `callgate runs resume {run_id}` resumes it")
    if info.principal != _principal(given):
        raise LedgerError(f"run {run_id}: it was carried out for another principal; give the same --principal")
    return (await agent.resume(run_id)).messages  # of an ended run this asks and runs nothing


async def _latest(ledger: Ledger, given: Given) -> str:
    for info in await ledger.runs(limit=LOOKED_AT):
        if info.reason not in {None, "waiting"} and info.principal == _principal(given):
            return info.run_id
    raise LedgerError("--continue: the ledger has no conversation that has ended; see `callgate runs list`")


def _principal(given: Given) -> str | None:
    from callgate.apps.cli._options import principal_of

    who = principal_of(given)
    return who.id if who is not None else None
