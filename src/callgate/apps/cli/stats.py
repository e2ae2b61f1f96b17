"""How well it works: rates, latencies and causes, by tool and protocol, from the ledger.

One law: every number can be counted by hand from the lines of `--log`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from callgate.apps.cli._ledgers import json_option, ledger_option, say, say_json, span, with_ledger
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.ledger import Ledger
    from callgate.stats import Calls, Stats


@click.command()
@click.option("--since", metavar="SPAN", help="Only runs of the last 30min, 12h, 7d …")
@click.option("--by", metavar="FIELDS", default="tool,protocol", show_default=True,
              help="What calls are grouped by: tool, protocol, model, principal.")  # fmt: skip
@click.option("--log", is_flag=True, help="Instead: every call as one line of JSON.")
@json_option
@ledger_option
def command(since: str | None, by: str, log: bool, as_json: bool, where: str | None) -> None:
    """How well calls work, by tool and protocol.

    Of the calls that a model proposed, the effective rate is the share that was readable, valid, allowed, run and ok;
    the success rate is the share of those started.
    """
    after = 0.0 if since is None else time.time() - span(since, "--since")

    async def work(ledger: Ledger, settings: Config) -> Stats | None:
        from callgate.stats import GROUPS, call_log, collect

        if log:
            async for line in call_log(ledger, since=after):
                say_json(line)
            return None
        fields = [name.strip() for name in by.split(",") if name.strip()]
        for name in fields:
            if name not in GROUPS:
                raise ConfigError(f"--by {name}: calls are grouped by {', '.join(GROUPS)}")
        return await collect(ledger, since=after, by=fields)

    stats = with_ledger(where, work)
    if stats is None:
        return
    if as_json:
        say_json(stats.as_json())
    else:
        _print(stats)


def _print(stats: Stats) -> None:
    runs = ", ".join(f"{count} {reason}" for reason, count in stats.runs.most_common()) or "none"
    say(f"runs: {runs}")
    say(
        f"requests: {stats.requests}, of which {stats.failed_requests} failed and {stats.unusable_answers} "
        f"gave an unusable answer; tokens: {dict(stats.usage) or 'not told'}"
    )
    for change, count in stats.ladder.most_common():
        say(f"protocol changed {change}: {count}")
    if not stats.calls.proposed:
        say("calls: none")
        return
    width = max(5, *(len(" ".join(key)) for key in stats.groups))
    click.echo()
    say(f"{'calls':{width}}  proposed  effective  started  success  p50 s  p95 s")
    for key, calls in sorted(stats.groups.items(), key=lambda item: -item[1].proposed):
        say(_row(" ".join(key), calls, width))
    if len(stats.groups) > 1:
        say(_row("all", stats.calls, width))
    causes = ", ".join(f"{count} {status}" for status, count in stats.calls.causes.most_common())
    if causes:
        click.echo()
        say(f"not ok: {causes}")
    if stats.calls.mended:
        say(f"mended on the way: {stats.calls.mended}")


def _row(name: str, calls: Calls, width: int) -> str:
    from callgate.stats import percentile

    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    def seconds(percent: int) -> str:
        value = percentile(calls.seconds, percent)
        return "-" if value is None else f"{value:.3f}"

    return (
        f"{name:{width}}  {calls.proposed:8}  {share(calls.effective_rate):>9}  {calls.started:7}  "
        f"{share(calls.success_rate):>7}  {seconds(50):>5}  {seconds(95):>5}"
    )
