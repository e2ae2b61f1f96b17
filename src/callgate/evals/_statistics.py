"""How sure a rate is, and whether two of them differ.

Law: no figure without its interval; two protocols are compared on the same cases, pair by pair.
(tests/test_evals.py::test_intervals_and_paired_tests)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Z95 = 1.959964
"""Of the normal distribution: 95 %."""


def wilson(hits: int, total: int) -> tuple[float, float]:
    """The 95 % interval of a rate; sound for small samples and for rates near 0 and 1."""
    if total == 0:
        return (0.0, 1.0)
    rate, spread = hits / total, Z95 * Z95 / total
    middle = (rate + spread / 2) / (1 + spread)
    half = Z95 * math.sqrt(rate * (1 - rate) / total + spread / (4 * total)) / (1 + spread)
    return (max(0.0, middle - half), min(1.0, middle + half))


def mcnemar(pairs: Sequence[tuple[bool, bool]]) -> float:
    """The exact two-sided probability that as uneven a split of the differing pairs comes by chance."""
    first = sum(a and not b for a, b in pairs)
    second = sum(b and not a for a, b in pairs)
    total, less = first + second, min(first, second)
    if total == 0:
        return 1.0
    tail = sum(math.comb(total, k) for k in range(less + 1))
    return min(1.0, 2 * float(tail) / float(2**total))


def median(values: Sequence[float]) -> float:
    """The middle value; 0 of none."""
    ordered = sorted(values)
    if not ordered:
        return 0.0
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
