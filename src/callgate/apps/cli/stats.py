"""How well it works: rates, latencies and causes, by tool and protocol, from the ledger.

Law: every number can be counted by hand from the lines of `--log`.
    (tests/test_cli_ledgers.py::test_stats_tell_rates_and_causes)
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from callgate.apps.cli._ledgers import json_option, ledger_option, span, with_ledger
from callgate.apps.output import name, say, say_json
from callgate.apps.wording import count, words
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

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

    Of the calls that a model asked for, the effective rate is the share whose arguments were usable and which were
    permitted; ok is the share that came to a good end, and success that share of those started.
    """
    after = 0.0 if since is None else time.time() - span(since, "--since")

    async def work(ledger: Ledger, settings: Config) -> Stats | None:
        from callgate.stats import GROUPS, call_log, collect

        if log:
            async for line in call_log(ledger, since=after):
                say_json(line)
            return None
        fields = [part.strip() for part in by.split(",") if part.strip()]
        for wanted in fields:
            if wanted not in GROUPS:
                raise ConfigError(f"--by {wanted}: calls are grouped by {', '.join(GROUPS)}")
        return await collect(ledger, since=after, by=fields)

    stats = with_ledger(where, work)
    if stats is None:
        return
    if as_json:
        say_json(stats.as_json())
    else:
        _show(stats)


def _show(stats: Stats) -> None:
    runs = ", ".join(f"{number} {words(reason)}" for reason, number in stats.runs.most_common()) or "none"
    tokens = ", ".join(f"{number:,} {what}" for what, number in sorted(stats.usage.items())) or "not reported"
    say(f"runs      {runs}")
    say(f"requests  {stats.requests}, {stats.failed_requests} failed, {stats.unusable_answers} with an unusable answer")
    say(f"tokens    {tokens}")
    if stats.first_token_seconds:
        first = [_seconds(stats.first_token_seconds, percent) for percent in (50, 95)]
        say(f"first     token after {first[0]} s (median), {first[1]} s (95 of 100)")
    for change, number in stats.ladder.most_common():
        say(f"protocol  changed {change}, {count(number, 'time')}")
    if not stats.calls.proposed:
        say("calls     none")
        return
    width = max(5, *(len(name(_key(key))) for key in stats.groups))
    say()
    say(f"{'calls':{width}}  proposed  effective     ok  started  success  p50 s  p95 s")
    for key, calls in sorted(stats.groups.items(), key=lambda item: -item[1].proposed):
        say(_row(name(_key(key)), calls, width))
    if len(stats.groups) > 1:
        say(_row("all", stats.calls, width))
    say()
    if causes := stats.calls.causes.most_common():
        say(f"not ok    {', '.join(f'{number} {words(_CAUSES.get(cause, cause))}' for cause, number in causes)}")
    if stats.calls.mended:
        say(f"repaired  {count(stats.calls.mended, 'call')}")


_CAUSES = {"(none)": "without a result yet"}


def _key(parts: tuple[str, ...]) -> str:
    return " ".join(parts)


def _row(key: str, calls: Calls, width: int) -> str:
    def share(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    return (
        f"{key:{width}}  {calls.proposed:8}  {share(calls.effective_rate):>9}  {share(calls.ok_rate):>5}  "
        f"{calls.started:7}  "
        f"{share(calls.success_rate):>7}  {_seconds(calls.seconds, 50):>5}  {_seconds(calls.seconds, 95):>5}"
    )


def _seconds(values: Sequence[float], percent: int) -> str:
    from callgate.stats import percentile

    value = percentile(values, percent)
    return "-" if value is None else f"{value:.3f}"
