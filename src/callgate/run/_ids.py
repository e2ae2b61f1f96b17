"""The ids of the calls in an answer.

Law: no two calls of a run have one id. (tests/test_run_sides.py::test_the_model_side_asks_a_bounded_number_of_times)
"""

from __future__ import annotations

from callgate.run._answers import free, is_plain
from callgate.run._state import RunState


class CallIds:
    """What the calls of one answer are called, for good."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._made: dict[int, str] = {}
        self._taken: set[str] = set()

    def of(self, index: int, given: str | None) -> str:
        """The call's own id if that is free, else `call_<turn>_<n>`."""
        if index not in self._made:
            if not self._made:
                self._taken = self._state.history.ids()
            made = f"call_{self._state.turns_before + self._state.turn + 1}_{index + 1}"
            # Some servers number the calls of every answer from one, so that two turns collide; others send no ids.
            own = given if given and given != f"call_{index + 1}" and is_plain(given) else None
            self._made[index] = own if own and own not in self._taken else free(made, self._taken)
            self._taken.add(self._made[index])
        return self._made[index]
