"""How long one answer may be.

Law: an answer that is longer than `max_answer` characters ends as an error that names the limit.
(tests/test_providers_limits.py::test_an_endless_answer_ends_at_max_answer)
"""

from __future__ import annotations

from callgate.types import CallDelta, Delta, Finish, ReasoningDelta, TextDelta


class AnswerSize:
    """Counts the characters of one answer: text, reasoning and arguments together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0

    def take(self, deltas: list[Delta]) -> list[Delta]:
        """The deltas as they are; beyond the limit the end of the answer in their place."""
        for delta in deltas:
            if isinstance(delta, (TextDelta, ReasoningDelta)):
                self.size += len(delta.text)
            elif isinstance(delta, CallDelta):
                self.size += len(delta.arguments)
        if self.size <= self.limit:
            return deltas
        text = (
            f"the answer is longer than max_answer = {self.limit} characters and was given up; raise the limit if that"
        )
        return [Finish("error", error=f"{text} is meant")]
