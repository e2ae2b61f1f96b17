"""What a stream of events shows to those who want less than all of it: the text, or the output while it grows.

Law: the pieces of a text view are the run's text, and the last value of an output view is the run's output.
(tests/test_agent_streams.py::test_views_show_the_same_run)
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from callgate.events import CallProposed, Event, Retrying, TextChecked, TurnFinished, TurnStarted
from callgate.liveview import LiveArguments
from callgate.types import TextDelta

OPENERS = '{["-0123456789tfn'
"""What a JSON value can begin with; anything before it (a fence, a blank) is not the value."""

LOOKS = 50
"""Looks at a value while it doubles: to copy it at every token would cost the square of its length."""


class TextView:
    """The text of a run, piece by piece.

    With `final_only` the text of a turn is held until the turn has ended without calls: nobody knows earlier that it
    is the answer, and text beside calls, or of an answer that is asked for again, is left out.
    """

    def __init__(self, *, final_only: bool = False) -> None:
        self._final_only = final_only
        self._held: list[str] = []

    def feed(self, event: Event) -> Iterator[str]:
        """The pieces that this event lets out."""
        match event:
            case TextDelta(text) if not self._final_only:
                yield text
            case TextDelta(text):
                self._held.append(text)
            case TurnStarted() | Retrying():
                self._held = []
            case TextChecked("answer", decision, _, text) if decision != "accepted":
                self._held = [text] if text else []
            case TurnFinished(_, finish) if finish.reason != "tool_calls":
                yield from self._held
                self._held = []
            case _:
                pass


class OutputView:
    """The final answer as a growing JSON value, read from its text."""

    def __init__(self) -> None:
        self._live: LiveArguments | None = None
        self._length = self._shown = 0
        self._object = True
        self._last: object = None

    def feed(self, event: Event) -> Iterator[Any]:
        """A copy of the value so far, if this event made it grow enough to be looked at again."""
        match event:
            case TextDelta(text):
                yield from self._grow(text)
            case TurnStarted() | Retrying() | CallProposed():
                self._live = self._last = None
            case _:
                pass

    def _grow(self, text: str) -> Iterator[Any]:
        if self._live is None:
            start = next((n for n, c in enumerate(text) if c in OPENERS), None)
            if start is None:
                return
            self._live, self._length, self._shown, text = LiveArguments(), 0, 0, text[start:]
            self._object = text[0] == "{"
        self._live.feed(text)
        self._length += len(text)
        value = self._live.value
        # The view begins as {}, whatever comes; and each look is a copy, so of a long value not every token is shown.
        if (value == {} and not self._object) or (self._length - self._shown) * LOOKS < self._length:
            return
        self._shown = self._length
        if value != self._last:
            self._last = copy.deepcopy(value)
            yield copy.deepcopy(value)
