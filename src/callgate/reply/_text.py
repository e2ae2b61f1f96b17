"""What reads a raw text for `Reader`: the reader of a dialect, or one that leaves the text as it is.

Law: that of the room (callgate/reply/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from callgate.types import Delta, TextDelta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callgate.dialects import Dialect, Ends, Reader
    from callgate.types import ToolSpec


class TextMachine(Protocol):
    """A machine that keeps the text that it gave."""

    problems: list[str]

    def feed(self, text: str) -> list[Delta]:
        """Deltas that are now certain."""
        ...

    def finish(self) -> list[Delta]:
        """The text is over: everything still held comes out."""
        ...

    def as_written(self, text: str) -> str:
        """The message without its reasoning."""
        ...

    @property
    def reasoned(self) -> int:
        """So many calls, from the first on, stood in reasoning that the prompt had opened."""
        ...

    @property
    def content(self) -> str:
        """The content that has come out so far."""
        ...

    @property
    def thoughts(self) -> str:
        """The reasoning that has come out so far."""
        ...


class Untouched:
    """Reads a text that has no dialect: all of it is content."""

    thoughts = ""
    reasoned = 0

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._pieces: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        """The text."""
        if not text:
            return []
        self._pieces.append(text)
        return [TextDelta(text)]

    def finish(self) -> list[Delta]:
        """Nothing is held back."""
        return []

    def as_written(self, text: str) -> str:
        """The text."""
        return text

    @property
    def content(self) -> str:
        """The text so far."""
        return "".join(self._pieces)


def dialect_reader(
    dialect: str | Dialect | None, tools: Sequence[ToolSpec], tail: str, ends: Ends | None = None
) -> Reader | None:
    """The reader of a dialect; None for None, and then the dialects are not even loaded."""
    if dialect is None:
        return None
    from callgate import dialects

    return dialects.reader(dialect, tools=tools, prompt_tail=tail, ends=ends)
