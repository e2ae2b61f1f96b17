"""The starts of calls, over all runs of one agent, in whatever thread or loop they go.

Law: to count a start and to find that it is not one too many is one step, which nothing comes between.
(tests/test_rates.py::test_reservations_never_exceed_a_quota_in_any_order)

A start is *reserved* before its call is recorded, *begun* when the tool is called, and given back if the call did not
start after all. A reserved one counts however long its recording takes: its time is that of its real start.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from callgate.policy import Quota

MAX_STARTS = 10_000
"""Starts of one tool for one principal that are remembered beside those that a quota needs; rules of an application
may count them."""
MANY = 1_000
"""Principals and tools from which on those that have long been quiet are forgotten."""
DAY = 86_400.0


@dataclass(slots=True, eq=False)
class Start:
    """One start. Compared as itself, since two may have one time."""

    who: tuple[str | None, str]
    at: float = inf
    """Seconds of the clock; not yet begun: infinite, so that it is in every span."""


class Starts:
    """Counts starts by principal and tool."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Of threads and not of a loop: `run_sync` in several threads has a loop in each.
        self._lock = threading.Lock()
        self._known: dict[tuple[str | None, str], list[Start]] = {}
        """By time, those that are about to begin last."""
        self._span = DAY
        """The longest span that a quota had."""
        self._sweep_at = MANY

    def recent(self, principal: str | None, tool: str, seconds: float) -> int:
        """How many of the principal's calls of the tool began in the last so many seconds, or are about to."""
        with self._lock:
            return self._count((principal, tool), seconds)

    def reserve(self, principal: str | None, tool: str, quotas: Sequence[Quota]) -> Start | Quota:
        """Counts one more start; the quota that is used up, if one is, and then nothing is counted."""
        start = Start((principal, tool))
        with self._lock:
            for quota in quotas:
                if self._count(start.who, quota.seconds) >= quota.count:
                    return quota
            self._keep(start, quotas)
        return start

    def begin(self, start: Start) -> None:
        """The call begins now."""
        with self._lock:
            if self._drop(start):
                start.at = self._clock()
                insort(self._known[start.who], start, key=_time_of)

    def give_back(self, start: Start) -> None:
        """The call did not start."""
        with self._lock:
            self._drop(start)

    def _drop(self, start: Start) -> bool:
        """Whether it was still there: the oldest of very many are forgotten."""
        kept = self._known.get(start.who, [])
        # From the end, where those stand that are about to begin: a quota may count tens of thousands.
        at = next((at for at in range(len(kept) - 1, -1, -1) if kept[at] is start), None)
        if at is not None:
            del kept[at]
        return at is not None

    def _count(self, who: tuple[str | None, str], seconds: float) -> int:
        since = self._clock() - seconds
        kept = self._known.get(who, [])
        return len(kept) - bisect_right(kept, since, key=_time_of)

    def _keep(self, start: Start, quotas: Sequence[Quota]) -> None:
        for quota in quotas:
            self._span = max(self._span, quota.seconds)
        if len(self._known) >= self._sweep_at:
            self._sweep()
        kept = self._known.setdefault(start.who, [])
        kept.append(start)
        # Never fewer than a quota counts: "20000/day" is a limit as well.
        most = max([MAX_STARTS, *(quota.count for quota in quotas)])
        if len(kept) > most:
            del kept[0]

    def _sweep(self) -> None:
        """Forgets who has been quiet for longer than any span: a server meets new principals for ever."""
        since = self._clock() - self._span
        self._known = {who: kept for who, kept in self._known.items() if any(s.at > since for s in kept)}
        self._sweep_at = max(MANY, 2 * len(self._known))


def _time_of(start: Start) -> float:
    return start.at
