"""What a run has written of its conversation for the last request, so that the next one writes only what is new.

Law: a transcript gives what `system_text`, `conversation` and `tokens` give, to the byte; it only remembers.
(tests/test_protocols_transcript.py::test_a_transcript_gives_what_writing_it_all_anew_gives)

A conversation only grows at its end, as a rule, while each request holds all of it: without this a run of n turns
would write n² messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import TYPE_CHECKING

from callgate.history import tokens
from callgate.protocols._prompts import Prompt, add_written, system_text
from callgate.types import Message, ToolSpec

if TYPE_CHECKING:
    from collections.abc import Mapping


class Transcript:
    """The last request of one run. It keeps nothing that the request itself does not hold."""

    __slots__ = ("_costs", "_joined", "_messages", "_prompt", "_source", "_system", "_system_of")

    def __init__(self) -> None:
        self._system_of: tuple[Prompt, tuple[ToolSpec, ...], str] | None = None
        self._system = ""
        self._prompt: tuple[Prompt, str] | None = None
        self._source: tuple[Message, ...] = ()
        self._messages: list[Message] = []
        self._joined = False
        self._costs: Mapping[int, tuple[Message, int]] = {}

    def system(self, prompt: Prompt, tools: tuple[ToolSpec, ...], instructions: str) -> str:
        """See `system_text`."""
        made_of = (prompt, tools, instructions)
        if made_of != self._system_of:
            self._system_of, self._system = made_of, system_text(prompt, tools, instructions)
        return self._system

    def conversation(self, prompt: Prompt, history: tuple[Message, ...], system: str) -> tuple[Message, ...]:
        """See `conversation`."""
        known = len(self._source)
        # By identity, in C: messages never change, and to compare their contents would cost what it is to save.
        grown = (prompt, system) == self._prompt and known <= len(history) and all(map(is_, self._source, history))
        if not grown:
            self._prompt, known, self._joined = (prompt, system), 0, False
            self._messages = [Message("system", system)] if system else []
        self._joined = add_written(prompt, history[known:], self._messages, joined=self._joined)
        self._source = history
        return tuple(self._messages)

    def tokens(self, messages: Sequence[Message]) -> int:
        """What these messages cost, by the estimate of `tokens`."""
        before = self._costs
        # The message stands beside its cost, so that its identity is not given to another one.
        self._costs = {id(m): before.get(id(m)) or (m, tokens(m)) for m in messages}
        return sum(cost for _, cost in self._costs.values())
