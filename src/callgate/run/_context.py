"""What of a long history is sent: all that fits, and in place of the rest nothing or a summary by the model.

One law: the history of the run itself is never shortened; only what is sent of it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from callgate.history import History, tokens
from callgate.protocols import Query, Turn
from callgate.types import Message, Reply, Request

SHRUNK = 0.6
"""The part of a history that is sent again after the server said that all of it is too long."""
SUMMARY_TOKENS = 400
"""Room that a summary takes."""
TOLD = 2000
"""Characters of each message that the model sums up."""
INSTRUCTIONS = (
    "Sum up this conversation for yourself, so that you can go on with it: what was asked, what was found out with "
    "which tools, what was decided, and what is open. Keep names, numbers and ids exactly. At most 200 words."
)


class Context:
    """The budget of a run's requests, and the summary of what is left out."""

    def __init__(self, budget: int | None) -> None:
        self._budget = budget
        self._summary = ""
        self._covered = 0
        self._covering = 0

    def fit(self, history: History) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """What is sent, and what is left out."""
        if self._budget is None:
            return history.messages, ()
        room = max(self._budget - SUMMARY_TOKENS, self._budget // 2) if self._summary else self._budget
        fitted, dropped = history.fit(room)
        if not dropped or not self._summary:
            return fitted.messages, dropped
        note = Message("user", f"[Summary of the earlier conversation]\n{self._summary}")
        first = next((i for i, m in enumerate(fitted.messages) if m.role != "system"), len(fitted.messages))
        return (*fitted.messages[:first], note, *fitted.messages[first:]), dropped

    def needs_summary(self, dropped: Sequence[Message]) -> bool:
        """Whether something is left out that no summary covers."""
        return len(dropped) > self._covered

    def to_sum_up(self, dropped: Sequence[Message]) -> str:
        """What the next summary is made of: the last one, and what is left out since."""
        self._covering = len(dropped)
        told = [f"Earlier summary: {self._summary}"] if self._summary else []
        for message in dropped[self._covered :]:
            calls = "".join(f" [calls {c.name} {c.arguments}]" for c in message.calls)
            told.append(f"{message.role}{f' {message.name}' if message.name else ''}: {message.text[:TOLD]}{calls}")
        return "\n".join(told)

    def keep_summary(self, text: str) -> bool:
        """Takes the model's summary. Whatever came, it is not asked for a second time."""
        self._covered = self._covering
        self._summary = text.strip()[: SUMMARY_TOKENS * 8] or self._summary
        return bool(text.strip())

    def shrink(self, history: History) -> bool:
        """The server says that the request is too long: send less. False: there is nothing to leave out."""
        sent, _ = self.fit(history)
        smaller = int(sum(tokens(m) for m in sent) * SHRUNK)
        kept, _ = History(tuple(sent)).fit(smaller)
        if len(kept.messages) == len(sent):
            return False
        self._budget = smaller
        return True


def summary_turn(text: str, options: Mapping[str, Any]) -> Turn:
    """Asks the model for a summary; people do not see it being written."""
    messages = (Message("system", INSTRUCTIONS), Message("user", text))
    reply = yield Query(Request(messages, options=options), visible=False)
    assert isinstance(reply, Reply)
    return reply
