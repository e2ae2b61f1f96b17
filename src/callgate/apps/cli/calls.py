"""The recorded calls: list them, and settle a write whose outcome nobody knew.

Law: a person can say what became of a write, but never make it run.
    (tests/test_cli_ledgers.py::test_a_settled_call_of_a_cut_off_run_is_its_result_when_it_goes_on)
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from callgate.apps.cli._ledgers import brief, date, find_run, json_option, ledger_option, span, with_ledger
from callgate.apps.output import name, say, say_json
from callgate.apps.wording import words
from callgate.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.ledger import Ledger


@click.group()
def command() -> None:
    """The calls in the ledger."""


@command.command("list")
@click.option("--unknown", is_flag=True, help="Only writes whose outcome is unknown.")
@click.option("--run", "run_id", metavar="RUN", help="Only calls of this run.")
@click.option("--tool", metavar="NAME", help="Only calls of this tool.")
@click.option("--since", metavar="SPAN", help="Only runs of the last 30min, 12h, 7d …")
@json_option
@ledger_option
def list_(
    *, unknown: bool, run_id: str | None, tool: str | None, since: str | None, as_json: bool, where: str | None
) -> None:
    """Calls, oldest first."""
    after = 0.0 if since is None else time.time() - span(since, "--since")

    async def work(ledger: Ledger, settings: Config) -> None:
        from callgate.stats import call_log

        only = await find_run(ledger, run_id) if run_id else None
        async for line in call_log(ledger, since=after):
            if (only and line["run_id"] != only) or (tool and line["tool"] != tool):
                continue
            if unknown and not await _is_unknown(ledger, line):
                continue
            if as_json:
                say_json(line)
                continue
            place = f"{name(line['run_id'])} {name(line['call_id'])}"
            call = f"{line['tool']} {brief(line['arguments'], 60)}"
            say(f"{place:40}  {date(line['at'])}  {await _state(ledger, line):16}  {call}")

    with_ledger(where, work)


async def _state(ledger: Ledger, line: dict[str, Any]) -> str:
    """How far a call is, in words."""
    status = (line["settled"] or line)["status"]
    if status:
        return words(status)
    info = await ledger.run(line["run_id"])
    if info is None or (info.reason is None and info.owner is None):
        return "interrupted"
    return "running" if info.reason is None else "waiting" if info.reason == "waiting" else "no result"


async def _is_unknown(ledger: Ledger, line: dict[str, Any]) -> bool:
    write = await ledger.write(line["run_id"], line["call_id"])
    return write is not None and write.unknown


@command.command()
@click.argument("run_id")
@click.argument("call_id")
@click.option("--ok", "outcome", flag_value="ok", help="It took effect.")
@click.option("--failed", "outcome", flag_value="failed", help="It had no effect, and will have none.")
@click.option("--result", metavar="JSON", help="With --ok: what it would have returned.")
@click.option("--note", metavar="TEXT", default="", help="How you know; it is recorded.")
@ledger_option
def settle(*, run_id: str, call_id: str, outcome: str | None, result: str | None, note: str, where: str | None) -> None:
    """Records what became of a write of unknown outcome."""
    if outcome is None:
        raise click.UsageError("give --ok or --failed")
    if result is not None and outcome != "ok":
        raise click.UsageError("--result goes with --ok")

    value = _value(result)

    async def work(ledger: Ledger, settings: Config) -> str:
        from callgate.apps import settling

        found = await find_run(ledger, run_id)
        write = await ledger.write(found, call_id)
        if write is None:
            raise LedgerError(f"run {found}, call {call_id}: the ledger has no such write; see `callgate calls list`")
        if not write.unknown:
            status = write.result.status if write.result else ""
            raise LedgerError(f"run {found}, call {call_id}: its outcome is known: {words(status)}")
        await settling.settle(ledger, write, settling.outcome(write, outcome or "", value, note))
        return f"run {found}, call {call_id}: settled as {outcome}"

    say(with_ledger(where, work))


def _value(result: str | None) -> object:
    if result is None:
        return None
    try:
        return json.loads(result)
    except ValueError as error:
        raise ConfigError(f"--result: JSON is needed: {error}") from error
