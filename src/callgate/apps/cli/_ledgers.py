"""What the commands over a ledger share: which ledger and which run it is, spans of time, sizes, dates.

Law: looking for a ledger or a run makes none. (tests/test_cli_ledgers.py::test_looking_for_a_ledger_does_not_make_one)
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callgate.apps.output import one_line
from callgate.apps.wording import arguments_text, words
from callgate.errors import ConfigError, LedgerError

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.ledger import Ledger, RunInfo

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

ALL = 10**9
"""More runs than any ledger holds."""
_SPANS = {"s": 1, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SIZES = {"": 1, "k": 10**3, "kb": 10**3, "m": 10**6, "mb": 10**6, "g": 10**9, "gb": 10**9}


def ledger_option(function: F) -> F:
    """Adds `--ledger`."""
    return click.option(
        "--ledger",
        "where",
        metavar="WHERE",
        help='"sqlite:PATH" or "postgresql://…". Default: the setting `ledger`, else SQLite in your state directory.',
    )(function)


def json_option(function: F) -> F:
    """Adds `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="As JSON, one value a line.")(function)


def with_ledger(where: str | None, work: Callable[[Ledger, Config], Awaitable[T]]) -> T:
    """Opens the ledger, does the work, closes it. A ledger that does not exist is not made by looking for it."""
    from callgate import config, ledger

    settings = config.load({"ledger": where})
    place = settings.where
    if place == "memory":
        raise ConfigError('the ledger is "memory", which ends with its process; name another one with --ledger')

    async def run() -> T:
        store = ledger.open(place, masking=settings.masking, hold_secrets=settings.hold_secrets)
        must_exist(store)
        try:
            return await work(store, settings)
        finally:
            await store.aclose()

    return asyncio.run(run())


def must_exist(store: Ledger) -> None:
    """Raises LedgerError if a ledger in a file is not there; nothing is made by looking."""
    path = getattr(store, "path", None)
    if path is not None and not path.exists():
        raise LedgerError(f"there is no ledger yet at {path}; runs are recorded there once there are some")


async def find_run(ledger: Ledger, start: str) -> str:
    """The id of the run that is called or begins so. Raises LedgerError if there is none, or more than one."""
    if start and await ledger.run(start) is not None:
        return start
    found = [info.run_id for info in await ledger.runs(limit=ALL) if start and info.run_id.startswith(start)]
    if not found:
        raise LedgerError(f"run {start!r}: the ledger has no such run; see `callgate runs list`")
    if len(found) > 1:
        more = f" and {len(found) - 3} more" if len(found) > 3 else ""
        raise LedgerError(f"run {start!r}: {', '.join(found[:3])}{more} begin so; give more of the id")
    return found[0]


def state_of(info: RunInfo) -> str:
    """How far a run is, in words."""
    return words(info.reason) if info.reason else "running" if info.owner else "interrupted"


def span(text: str, option: str) -> float:
    """ "90s", "30min", "12h", "7d", "2w" in seconds."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|min|h|d|w)\s*", text)
    if found is None:
        raise ConfigError(f"{option} {text}: write a span of time such as 90s, 30min, 12h, 7d or 2w")
    return float(found[1]) * _SPANS[found[2]]


def size(text: str, option: str) -> int:
    """ "500k", "100MB", "2G" in characters."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?b?)\s*", text.lower())
    if found is None or found[2] not in _SIZES:
        raise ConfigError(f"{option} {text}: write a size such as 500k, 100MB or 2G")
    return int(float(found[1]) * _SIZES[found[2]])


def date(at: float) -> str:
    """A date for people, in local time."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def brief(value: object, limit: int) -> str:
    """A value on one line, cut."""
    return one_line(arguments_text(value), limit)
