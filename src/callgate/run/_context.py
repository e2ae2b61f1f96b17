"""What of a long history is sent: all that fits, and in place of the rest nothing or a summary by the model.

Law: the history of the run itself is never shortened; only what is sent of it is.
(tests/test_run_gate.py::test_what_does_not_fit_is_left_out_of_requests_and_kept_in_the_result)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from callgate.history import History, tokens
from callgate.run._asking import AskingState
from callgate.types import Message

SHRUNK = 0.6
"""The part of a history that is sent again after the server said that all of it is too long."""
SUMMARY_TOKENS = 400
"""Tokens that a summary takes."""
MESSAGE_SHOWN = 2000
"""Characters of each message that the model sums up."""


SUM_UP = (
    "Sum up this conversation for yourself, so that you can go on with it: what was asked, what was found out with "
    "which tools, what was decided, and what is open. Keep names, numbers and ids exactly. At most 200 words."
)
"""Of the request for a summary."""


CHARACTERS = 3
"""Characters of a token, at least: a slice that is a little too small costs less than one that is refused."""


def _shown(message: Message) -> str:
    """A message as the model that sums it up sees it."""
    calls = "".join(f" [calls {c.name} {c.arguments}]" for c in message.calls)
    name = f" {message.name}" if message.name else ""
    return f"{message.role}{name}: {message.text[:MESSAGE_SHOWN]}{calls[:MESSAGE_SHOWN]}"


class Context:
    """The budget of a run's requests, and the summary of what is left out."""

    def __init__(self, asking: AskingState, budget: int | None, *, summarize: bool = False) -> None:
        self._asking = asking
        self._given = budget
        self._summarize = summarize

    @property
    def _budget(self) -> int | None:
        return self._given if self._asking.budget is None else self._asking.budget

    def fit(self, history: History) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """What is sent, and what is left out that no summary covers yet."""
        if self._budget is None:
            return history.messages, ()
        if self._asking.summary is None:
            target = self._budget
        else:
            rest = History(tuple(m for i, m in enumerate(history.messages) if i not in self._asking.covered))
            # Half at least: a budget smaller than a summary must still send the question itself.
            target = max(self._budget - SUMMARY_TOKENS, self._budget // 2)
            # No new summary as long as the rest fits: each one is a request, and loses something.
            if sum(tokens(m) for m in rest.messages) <= target:
                return self._with_summary(rest), ()
            history = rest
        fitted, dropped = history.fit(target)
        if dropped and self._summarize:  # more at once, so that not every turn needs a summary
            fitted, dropped = history.fit(int(target * SHRUNK))
        return self._with_summary(fitted), dropped

    def _with_summary(self, history: History) -> tuple[Message, ...]:
        if not self._asking.summary:
            return history.messages
        text = f"[Summary of the earlier conversation]\n{self._asking.summary}"
        # Behind the instructions, which servers want first, and before everything that it stands for.
        first = next((i for i, m in enumerate(history.messages) if m.role != "system"), len(history.messages))
        before, rest = history.messages[:first], history.messages[first:]
        if rest and rest[0].role == "user":  # two messages of the user in a row are refused by some servers
            words = rest[0].content
            both = f"{text}\n\n{words}" if isinstance(words, str) else ({"type": "text", "text": text}, *words)
            return (*before, replace(rest[0], content=both), *rest[1:])
        return (*before, Message("user", text), *rest)

    def to_sum_up(self, history: History, dropped: Sequence[Message]) -> str:
        """What the next summary is made of: the last one, and what is left out since."""
        # By identity: two messages may be equal ("yes"), and only one of them was left out.
        dropped = self._slice(dropped)
        gone = {id(m) for m in dropped}
        self._asking.covered |= {i for i, m in enumerate(history.messages) if id(m) in gone}
        parts = [f"Earlier summary: {self._asking.summary}"] if self._asking.summary else []
        return "\n".join([*parts, *map(_shown, dropped)])

    def _slice(self, dropped: Sequence[Message]) -> Sequence[Message]:
        """The first of them that fit into one request; the others are summed up by the next."""
        # Half of the budget: the summary so far and the answer need room as well, and a token is only estimated.
        room = (self._budget or 0) // 2 * CHARACTERS
        taken = 0
        for message in dropped:
            room -= len(_shown(message))
            if taken and room < 0:
                break
            taken += 1
        return dropped[:taken]

    def keep_summary(self, text: str) -> bool:
        """Takes the model's summary. Whatever came, it is not asked for a second time."""
        # Four characters a token, twice over: a model that does not know how to be brief must not fill what it has
        # emptied.
        self._asking.summary = text.strip()[: SUMMARY_TOKENS * 8] or self._asking.summary or ""
        return bool(text.strip())

    def shrink(self, history: History) -> bool:
        """The server says that the request is too long: send less. False: there is nothing to leave out."""
        sent, _ = self.fit(history)
        # Our count of tokens is an estimate, and the server's refusal says only that it is too much: a good part goes
        # at once.
        smaller = int(sum(tokens(m) for m in sent) * SHRUNK)
        kept, _ = History(tuple(sent)).fit(smaller)
        if len(kept.messages) == len(sent):
            return False
        self._asking.budget = smaller
        return True
