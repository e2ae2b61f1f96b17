"""The recorded calls: list them, and settle a write whose outcome nobody knew.

One law: a person can say what became of a write, but never make it run.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from callgate.apps.cli._ledgers import brief, date, json_option, ledger_option, say, say_json, span, with_ledger
from callgate.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.ledger import Ledger, Write
    from callgate.types import Entry, ToolResult


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

        async for line in call_log(ledger, since=after):
            status = (line["settled"] or line)["status"]
            if (run_id and line["run_id"] != run_id) or (tool and line["tool"] != tool):
                continue
            if unknown and not await _is_unknown(ledger, line):
                continue
            if as_json:
                say_json(line)
                continue
            place = f"{line['run_id']} {line['call_id']}"
            said = f"{line['tool']} {brief(line['arguments'], 60)}"
            say(f"{place:40}  {date(line['at'])}  {status or 'running':16}  {said}")

    with_ledger(where, work)


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
        raise click.UsageError("say --ok or --failed")
    if result is not None and outcome != "ok":
        raise click.UsageError("--result goes with --ok")

    async def work(ledger: Ledger, settings: Config) -> None:
        write = await ledger.write(run_id, call_id)
        if write is None:
            raise LedgerError(f"run {run_id}, call {call_id}: the ledger has no such write; see `callgate calls list`")
        if not write.unknown:
            status = write.result.status if write.result else ""
            raise LedgerError(f"run {run_id}, call {call_id}: its outcome is known: {status}")
        await _settle(ledger, write, _told(write, outcome or "", result, note))

    with_ledger(where, work)
    say(f"run {run_id}, call {call_id}: settled as {outcome}")


def _told(write: Write, outcome: str, result: str | None, note: str) -> ToolResult:
    from callgate.results import compress
    from callgate.types import ToolResult

    if outcome == "failed":
        return ToolResult(write.call_id, "failed", f"{write.tool} had no effect{f': {note}' if note else ''}.")
    if result is None:
        return ToolResult(write.call_id, "ok", note or f"{write.tool} took effect.")
    try:
        value = json.loads(result)
    except ValueError as error:
        raise ConfigError(f"--result: JSON is needed: {error}") from error
    text, size = compress(value)
    return ToolResult(write.call_id, "ok", text, value=value, size=size)


async def _settle(ledger: Ledger, write: Write, result: ToolResult) -> None:
    """Under the lease, so that no process that carries out the run comes in between."""
    from callgate import ledger as ledgers
    from callgate.events import dump_event
    from callgate.types import Entry

    async with ledgers.hold(ledger, write.run_id) as held:
        data: dict[str, Any] = {"call_id": write.call_id, "tool": write.tool, "result": dump_event(result)}
        entries: list[Entry] = [Entry("call_settled", {**data, "by": "person"})]
        if await ledger.result(write.run_id, write.call_id) is None:  # the run was cut off: this is its result
            before = await ledger.read(write.run_id)
            clock = before[-1].data.get("t", 0.0) if before else 0.0
            entries.insert(0, Entry("call_result", {**data, "duration": 0.0, "t": clock}))
        await ledger.append(write.run_id, entries, fence=held.fence)
