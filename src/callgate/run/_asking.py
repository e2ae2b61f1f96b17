"""What the model's side of a run keeps from one request to the next.

Law: it is recorded with each request, so a resumed run asks on from where it was.
(tests/test_run_restore.py::test_a_journal_gives_the_state_of_the_live_run_at_every_step)
"""

from __future__ import annotations

from dataclasses import dataclass, field

from callgate.types import Message


@dataclass(slots=True)
class AskingState:
    """What the model's side keeps from one request to the next; recorded with each request."""

    failures: int = 0
    """Unusable answers in a row."""
    attempts: int = 0
    """Requests in a row that failed."""
    repeats: int = 0
    """Answers that were asked for once more since the last usable one, over all steps of the ladder."""
    last_failure: str = ""
    partial: str = ""
    """What had come of an answer that broke off."""
    corrected: bool = False
    """A call that was only mentioned was asked about."""
    reminded: bool = False
    """The model was reminded of a call that it had only talked about."""
    finalizing: bool = False
    """Only the final answer in its wanted form is asked for."""
    scratch: list[Message] = field(default_factory=list)
    """Answers that could not be used, and why: the model sees them until one can."""
    budget: int | None = None
    """Tokens of history that are sent, since the server found a request too long."""
    summary: str | None = None
    """Stands for the messages `covered`, which are not sent any more."""
    covered: frozenset[int] = frozenset()
    """Places in the history, which only grows."""

    def cause_and(self, error: str) -> str:
        """The first failure is mostly the cause, the last one its consequence: both are told."""
        return error if self.last_failure in ("", error) else f"{self.last_failure}; asked again: {error}"
