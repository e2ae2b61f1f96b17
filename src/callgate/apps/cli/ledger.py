"""The ledger itself: prune old runs, verify that nothing is lost or altered, export everything.

Law: what is removed is removed whole, run by run, and a write of unknown outcome only with --with-unknown.
    (tests/test_cli_ledgers.py::test_the_ledger_is_verified_pruned_and_exported)
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from callgate.apps.cli._ledgers import find_run, json_option, ledger_option, size, span, with_ledger
from callgate.apps.output import say, say_json
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.ledger import Ledger, Pruned, Report


@click.group()
def command() -> None:
    """The record of all runs."""


@command.command()
@click.option("--older-than", metavar="SPAN", help="Runs last touched before 30d, 12h … Default: setting keep_days.")
@click.option("--max-size", metavar="SIZE", help="Then the oldest, until this is left. Default: max_ledger_size.")
@click.option("--with-unknown", is_flag=True, help="Also runs with a write of unknown outcome.")
@ledger_option
def prune(older_than: str | None, max_size: str | None, with_unknown: bool, where: str | None) -> None:
    """Removes old runs."""

    async def work(ledger: Ledger, settings: Config) -> Pruned:
        days = settings.keep_days
        age = span(older_than, "--older-than") if older_than else None if days is None else days * 86_400
        most = size(max_size, "--max-size") if max_size else settings.max_ledger_size
        if age is None and most is None:
            raise ConfigError("give --older-than or --max-size, or set keep_days or max_ledger_size")
        return await ledger.prune(older_than=age, max_size=most, keep_unknown=not with_unknown)

    pruned = with_ledger(where, work)
    say(f"removed {pruned.runs} runs, {pruned.entries} entries, {pruned.size} characters")


@command.command()
@click.argument("run_id", required=False)
@json_option
@ledger_option
def verify(run_id: str | None, as_json: bool, where: str | None) -> None:
    """Reads everything and reports what is lost, altered or not settled. Status 1 if something is wrong."""

    async def work(ledger: Ledger, settings: Config) -> Report:
        return await ledger.verify(await find_run(ledger, run_id) if run_id else None)

    report = with_ledger(where, work)
    if as_json:
        found = {"runs": report.runs, "entries": report.entries}
        say_json({**found, "problems": list(report.problems), "notes": list(report.notes)})
    else:
        for note in report.notes:
            say(f"note: {note}")
        for problem in report.problems:
            say(f"wrong: {problem}", err=True)
        state = f"{len(report.problems)} problems" if report.problems else "sound"
        say(f"{report.runs} runs, {report.entries} entries: {state}")
    sys.exit(1 if report.problems else 0)


@command.command()
@click.argument("run_ids", nargs=-1)
@click.option("--since", metavar="SPAN", help="Only entries of the last 30min, 12h, 7d …")
@ledger_option
def export(run_ids: tuple[str, ...], since: str | None, where: str | None) -> None:
    """Every entry as one line of JSON on stdout, of all runs or of these."""
    after = 0.0 if since is None else time.time() - span(since, "--since")

    async def work(ledger: Ledger, settings: Config) -> None:
        chosen: list[str | None] = [await find_run(ledger, start) for start in run_ids]
        for run_id in chosen or [None]:
            async for name, entry in ledger.scan(since=after, run_id=run_id):
                line = {"run_id": name, "seq": entry.seq, "at": entry.at, "kind": entry.kind}
                say_json({**line, "version": entry.version, "data": dict(entry.data)})

    with_ledger(where, work)
