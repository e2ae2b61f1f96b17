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

    def __init__(self, budget: int | None, *, summarize: bool = False) -> None:
        self._budget = budget
        self._summarize = summarize
        self._summary: str | None = None
        self._covered: set[int] = set()
        """Which messages the summary stands for, by identity: histories only grow."""

    def fit(self, history: History) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """What is sent, and what is left out that no summary covers yet."""
        if self._budget is None:
            return history.messages, ()
        if self._summary is None:
            target = self._budget
        else:
            rest = History(tuple(m for m in history.messages if id(m) not in self._covered))
            target = max(self._budget - SUMMARY_TOKENS, self._budget // 2)
            if sum(tokens(m) for m in rest.messages) <= target:
                return self._with_summary(rest), ()
            history = rest
        fitted, dropped = history.fit(target)
        if dropped and self._summarize:  # more at once, so that not every turn needs a summary
            fitted, dropped = history.fit(int(target * SHRUNK))
        return self._with_summary(fitted), dropped

    def _with_summary(self, history: History) -> tuple[Message, ...]:
        if not self._summary:
            return history.messages
        note = Message("user", f"[Summary of the earlier conversation]\n{self._summary}")
        first = next((i for i, m in enumerate(history.messages) if m.role != "system"), len(history.messages))
        return (*history.messages[:first], note, *history.messages[first:])

    def to_sum_up(self, dropped: Sequence[Message]) -> str:
        """What the next summary is made of: the last one, and what is left out since."""
        self._covered |= {id(m) for m in dropped}
        told = [f"Earlier summary: {self._summary}"] if self._summary else []
        for message in dropped:
            calls = "".join(f" [calls {c.name} {c.arguments}]" for c in message.calls)
            told.append(f"{message.role}{f' {message.name}' if message.name else ''}: {message.text[:TOLD]}{calls}")
        return "\n".join(told)

    def keep_summary(self, text: str) -> bool:
        """Takes the model's summary. Whatever came, it is not asked for a second time."""
        self._summary = text.strip()[: SUMMARY_TOKENS * 8] or self._summary or ""
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
