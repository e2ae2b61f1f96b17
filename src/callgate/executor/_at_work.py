"""The writes of this process that are being carried out right now, also those that were given up.

Law: a lookup's word that a write never happened is not believed while anything of ours may still carry it out.
(tests/test_executor_alive.py::test_no_effect_is_not_believed_while_the_call_is_alive)

A write is known by its idempotency key, so two agents on one ledger see each other's. A thread or task that the tool
itself starts and does not wait for is the tool's own affair.
"""

from __future__ import annotations

import os
import threading
from collections import Counter


class Mark:
    """One execution of a write; ended once, from any thread."""

    def __init__(self, marks: AtWork, key: str) -> None:
        self._marks = marks
        self._key: str | None = key

    def end(self) -> None:
        """The execution is over. Calling it again changes nothing."""
        key, self._key = self._key, None
        if key is not None:
            self._marks._end(key)


class AtWork:
    """Counts executions by key. Safe to use from any thread."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """As new: a forked process carries out none of its parent's writes."""
        self._lock = threading.Lock()
        self._keys: Counter[str] = Counter()

    def begin(self, key: str) -> Mark:
        """Counts one execution until its mark is ended."""
        # A Counter's `+=` reads and writes: two threads could lose one.
        with self._lock:
            self._keys[key] += 1
        return Mark(self, key)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def _end(self, key: str) -> None:
        with self._lock:
            self._keys[key] -= 1
            if not self._keys[key]:
                del self._keys[key]


SHARED = AtWork()
"""The writes of this process."""
if hasattr(os, "register_at_fork"):  # not on Windows, which cannot fork
    os.register_at_fork(after_in_child=SHARED.forget)
