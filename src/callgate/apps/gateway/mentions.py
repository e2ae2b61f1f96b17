"""Calls in a text: those that are meant are taken out of it, those that are only mentioned stay where they stand.

Law: without a call that is meant, the text that comes out is the text that went in, reasoning aside.
(tests/test_gateway_mend.py::test_mentions_stay_in_the_text_to_the_character)

Theory of operation.
1. A call begins: what follows waits until it is known what the call is (A7), mostly until the end of its line.
2. A mention goes out as it was written, with the white space before it, which the reader kept for what follows.
3. A call that is meant goes out as a call. Several calls in one section are one piece of text: if any of them is
   meant, so is the section.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from callgate.types import BadCall, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall

if TYPE_CHECKING:
    from callgate.dialects import Reader

SLICE = 16_384
"""Characters that are read at once: the reader counts what is left from the end of what it was given."""
_TEXT = frozenset({TextDelta, ReasoningDelta})
SOURCE = 1 << 20
"""Characters of text that are kept to be quoted from; a mention in a longer one is left out."""


class InPlace:
    """Reads one message like the reader that it is given, and leaves mentions in the text."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.problems = reader.problems
        """What was odd."""
        self._spans = reader.spans
        self._raw: list[str] = []
        self._size = 0
        self._waiting: list[Delta] | None = None
        """Rule 1; None: no call is open."""
        self._open: set[int] = set()
        self._begins: dict[int, int] = {}
        self._ends: dict[int, int] = {}
        """First index of a section -> where in the text its markup begins and ends."""
        self._after: int | None = None
        """Where a mention ended of which nothing visible has followed yet."""

    @property
    def reasoned(self) -> int:
        """So many calls, from the first on, stood in reasoning that the prompt had opened."""
        return self._reader.reasoned

    def as_written(self, text: str) -> str:
        """The message without its reasoning."""
        return self._reader.as_written(text)

    def feed(self, text: str) -> list[Delta]:
        """Deltas that are now certain."""
        if len(text) > SLICE:
            return [d for at in range(0, len(text), SLICE) for d in self.feed(text[at : at + SLICE])]
        deltas = self._reader.feed(text)
        self._raw.append(text)
        self._size += len(text)
        calm = self._waiting is None and self._after is None and not self._spans
        if calm and (not deltas or (len(deltas) == 1 and type(deltas[0]) in _TEXT)):  # as nearly always
            return deltas
        return self._sort(deltas)

    def finish(self) -> list[Delta]:
        """The text is over."""
        deltas = self._reader.finish()
        out = self._sort(deltas)
        self._open.clear()
        out += self._thaw()
        return [*out, TextDelta(text)] if (text := self._spaced("", last=True)) else out

    def _sort(self, deltas: list[Delta]) -> list[Delta]:
        for index, left in self._spans:
            (self._begins if index >= 0 else self._ends)[index if index >= 0 else ~index] = self._size - left
        self._spans.clear()
        out: list[Delta] = []
        for delta in deltas:
            match delta:
                case ReasoningDelta():
                    out.append(delta)
                case TextDelta(text):
                    if self._waiting is not None:
                        self._waiting.append(delta)
                    elif text := self._spaced(text):
                        out.append(TextDelta(text))
                case CallDelta(index):
                    self._open.add(index)
                    self._waiting = [*(self._waiting or ()), delta]
                case ToolCall() | BadCall():
                    self._open.discard(delta.index)
                    self._waiting = [*(self._waiting or ()), delta]
                    if not self._open:
                        out += self._thaw()
                case _:
                    out.append(delta)
        return out

    def _thaw(self) -> list[Delta]:
        """Every call so far is known for what it is: what waited goes out."""
        waiting, self._waiting = self._waiting or [], None
        known = {d.index: d for d in waiting if isinstance(d, (ToolCall, BadCall))}
        meant = {self._section(index) for index, d in known.items() if "mentioned" not in d.flags}
        quoted = {index for index, d in known.items() if "mentioned" in d.flags}
        out: list[Delta] = []
        shown: set[int] = set()
        for delta in waiting:
            if isinstance(delta, TextDelta):
                if text := self._spaced(delta.text):
                    out.append(TextDelta(text))
            elif isinstance(delta, (CallDelta, ToolCall, BadCall)) and delta.index in quoted:
                section = self._section(delta.index)
                if section not in meant and section not in shown:
                    shown.add(section)
                    out += self._quote(section)
            else:
                out.append(delta)
        return out

    def _section(self, index: int) -> int:
        """The first index of the section that a call stands in."""
        firsts = sorted(self._begins)
        at = bisect_right(firsts, index) - 1
        return firsts[at] if at >= 0 else index

    def _quote(self, section: int) -> list[Delta]:
        """Rule 2."""
        if section not in self._begins or self._size > SOURCE:
            return []
        raw = "".join(self._raw)
        begin, end = self._begins[section], self._ends.get(section, self._size)
        before, markup = len(raw[:begin].rstrip()), raw[begin:end].rstrip()
        self._after = begin + len(markup)
        return [TextDelta(raw[before:begin] + markup)]

    def _spaced(self, text: str, *, last: bool = False) -> str:
        """The text behind a mention, with the white space that stands there; the reader moves it about (rule 2)."""
        if self._after is None:
            return text
        visible = text.lstrip()
        if not visible and not last:
            return ""
        after, self._after = "".join(self._raw)[self._after :], None
        rest = after.lstrip()
        if not last or rest:
            return after[: len(after) - len(rest)] + visible if rest.startswith(visible) else text
        return after
