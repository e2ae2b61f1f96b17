"""Where text goes: to the content or to the reasoning, with the white space that waits for what follows.

Law: white space goes out only once something visible follows it, and never more of it is held than SPACE.
(tests/test_dialects_limits.py::test_white_space_is_held_within_its_limit)
"""

from __future__ import annotations

from typing import Final

from callgate.dialects._place import Place
from callgate.types import Delta, ReasoningDelta, TextDelta

SPACE: Final = 8_192
"""White space that waits for what follows; a model that prints more is stuck in a loop."""


class TextSink:
    """Where text goes: content or reasoning, with the white space that waits (rule 2)."""

    __slots__ = ("after", "kept", "make", "marked", "pieces", "place", "seen", "shown", "space", "trim")

    def __init__(self, make: type[TextDelta] | type[ReasoningDelta], trim: bool) -> None:
        self.make = make
        self.place = Place()
        self.pieces = self.place.pieces
        """All text goes here too: where a call stands is read from it, should there be one (A7)."""
        self.shown: list[str] = []
        """What went out: a reply is read from it."""
        self.kept = 0
        """Of a copy: how much had gone out when it was made."""
        self.trim = trim
        """White space at the start always goes."""
        self.space = ""
        self.seen = False
        """Something visible went out."""
        self.marked = False
        """There was markup."""
        self.after = False
        """There was markup since the last visible character."""

    def write(self, out: list[Delta], text: str) -> None:
        """Text goes out; white space at its end waits."""
        body = text.rstrip()
        if not body:
            self.space += text
            if len(self.space) > SPACE:
                self._overflow(out)
            return
        space = text[len(body) :]
        first = not self.seen and (self.trim or self.marked)
        body = body.lstrip() if first else self.space + body
        self.put(out, body)
        self.space = space
        self.seen = True
        self.after = False
        if len(self.space) > SPACE:
            self._overflow(out)

    def rare(self, text: str) -> list[Delta]:
        """What `write` makes of a text that has nothing visible, or more than the white space that may wait."""
        out: list[Delta] = []
        if text:
            self.write(out, text)
        return out

    def put(self, out: list[Delta], text: str) -> None:
        """This goes out as it is."""
        self.shown.append(text)
        out.append(self.make(text))

    def _overflow(self, out: list[Delta]) -> None:
        keep = (len(self.space) - 1) % SPACE + 1
        if self.seen or not (self.trim or self.marked):
            self.put(out, self.space[: len(self.space) - keep])
        self.space = self.space[len(self.space) - keep :]

    def mark(self) -> None:
        self.marked = self.after = True

    def at_line_start(self) -> bool:
        """Whether only white space stands between here and the line's start, or the message's, or markup."""
        return not self.seen or self.after or "\n" in self.space

    def copy(self) -> TextSink:
        """The same sink, to come back to: then `forget` what went out since."""
        other = TextSink(self.make, self.trim)
        other.shown, other.kept = self.shown, len(self.shown)  # a copy of its own would cost all of the text so far
        other.place = self.place.copy()
        other.pieces = other.place.pieces
        other.space, other.seen, other.marked, other.after = self.space, self.seen, self.marked, self.after
        return other

    def forget(self) -> None:
        """What went out since this copy was made did not count."""
        del self.shown[self.kept :]
