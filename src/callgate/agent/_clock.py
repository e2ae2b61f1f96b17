"""The clock of a run: it stands still while people think and while the first token is awaited.

Law: `now` never runs backwards, and what is spent in `paused` does not count.
(tests/test_agent_clock.py::test_the_clock_counts_exactly_what_is_not_paused)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic


class Clock:
    """Seconds of one run, and the alarm at its limit."""

    def __init__(
        self, now: float, limit: float | None, alarm: Callable[[], None], *, time: Callable[[], float] = monotonic
    ) -> None:
        self._time = time
        self._began = time() - now
        self._limit = limit
        self._alarm = alarm
        self._paused_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def now(self) -> float:
        """Seconds of the run."""
        # Monotonic: a clock that is set while a run goes on must not end it.
        return (self._time() if self._paused_at is None else self._paused_at) - self._began

    def start(self) -> None:
        """Sets the alarm. In a pause nothing happens: its end sets it."""
        if self._limit is not None and self._paused_at is None and self._timer is None:
            left = max(0.0, self._limit - self.now)
            self._timer = asyncio.get_running_loop().call_later(left, self._alarm)

    def stop(self) -> None:
        """No alarm any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @contextmanager
    def paused(self) -> Iterator[Callable[[], None]]:
        """The clock stands still until the end of the block, or until what is given is called."""
        self.stop()
        self._paused_at = self._time()
        try:
            yield self._go_on
        finally:
            self._go_on()

    def _go_on(self) -> None:
        if self._paused_at is not None:
            self._began += self._time() - self._paused_at
            self._paused_at = None
            self.start()
