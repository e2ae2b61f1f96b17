"""The leaves that everything else imports: the errors, the values, and what remembers."""

from __future__ import annotations

import dataclasses
import re

from callgate import errors, types
from callgate.memo import Memo


def test_the_tree_of_errors_is_the_one_that_its_module_shows() -> None:
    rows = re.findall(r"^    ([│├└─ ]*)(\w+)", errors.__doc__ or "", re.MULTILINE)
    shown: dict[str, str | None] = {}
    above: list[str] = []
    for branch, name in rows:
        depth = len(branch) // 4
        shown[name] = above[depth - 1] if depth else None
        above[depth:] = [name]
    made = {n: c for n, c in vars(errors).items() if isinstance(c, type) and issubclass(c, errors.CallgateError)}
    parents = {n: next((b.__name__ for b in c.__bases__ if b.__name__ in made), None) for n, c in made.items()}
    assert parents == shown


def test_every_value_is_frozen_but_the_deltas() -> None:
    values = [c for c in vars(types).values() if isinstance(c, type) and dataclasses.is_dataclass(c)]
    loose = {c.__name__ for c in values if not c.__dataclass_params__.frozen}  # type: ignore[attr-defined]
    assert len(values) > 15
    assert loose == {"TextDelta", "ReasoningDelta", "CallDelta"}
    assert all("__dict__" not in dir(c) for c in values)


def test_a_memo_gives_what_its_function_gives() -> None:
    asked: list[int] = []

    def size(value: list[int]) -> int:
        asked.append(len(value))
        return len(value)

    memo = Memo(size, size=3)
    kept = [[0] * n for n in range(3)]
    for _ in range(2):
        assert [memo(value) for value in kept] == [0, 1, 2]
    assert asked == [0, 1, 2]
    # Values that are gone leave their identities to others, and more of them than it keeps do no harm.
    assert [memo([0] * n) for n in range(500)] == list(range(500))
    assert [memo(value) for value in kept] == [0, 1, 2]
