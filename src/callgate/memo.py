"""What a pure function gave for the last values that it was asked about, by identity.

Law: a memo gives what its function gives, and keeps at most `size` values.
(tests/test_leaves.py::test_a_memo_gives_what_its_function_gives)

For values that never change and cannot be hashed, as the schema of a tool. `functools.lru_cache` does it for others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(Generic[K, V]):
    """A function of one value that must never change. Threads may share it."""

    __slots__ = ("_function", "_known", "_size")

    def __init__(self, function: Callable[[K], V], size: int = 256) -> None:
        self._function = function
        self._size = size
        self._known: dict[int, tuple[K, V]] = {}

    def __call__(self, value: K) -> V:
        """What the function gives."""
        known = self._known.get(id(value))
        if known is None:
            if len(self._known) >= self._size:
                self._known.clear()
            # The value stands beside the result, so that its identity is not given to another one.
            known = self._known[id(value)] = (value, self._function(value))
        return known[1]
