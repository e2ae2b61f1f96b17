"""What one turn may ask for, as values: the steps that a protocol yields and `run` carries out.

Law: that of the package (callgate/protocols/__init__.py).

A turn is a generator: it yields a `Query`, is sent the `Reply`, and returns the `Reply` that counts as the
answer of the turn. It is pure: it knows nothing of a server, a clock or a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from callgate.types import Delta, Reply, Request


class Machine(Protocol):
    """Reads the text of one message as it arrives: text in, deltas out (never `Finish`: that is the transport's)."""

    problems: list[str]

    def feed(self, text: str) -> list[Delta]:
        """Deltas that are now certain."""
        ...

    def finish(self) -> list[Delta]:
        """The text is over: everything still held comes out."""
        ...


@dataclass(slots=True, frozen=True)
class Query:
    """One request, and how the text of its answer is read."""

    request: Request
    machine: Callable[[], Machine] | None = None
    """Makes the reader of the answer's text; None: the text is content, untouched."""
    purpose: Literal["turn", "choose", "arguments"] = "turn"
    visible: bool = True
    """Whether its deltas are events of the run (a choice of tool is not)."""
    rescue: bool = False
    """The server should have read the calls itself: one found in the text is a problem worth naming (`TurnReader`)."""


@dataclass(slots=True, frozen=True)
class Chosen:
    """A report, answered with None: how the tool was chosen. It becomes the event `Routed`."""

    chooser: str
    tools: tuple[str, ...]
    confidence: float | None = None


Step: TypeAlias = Query | Chosen
Turn: TypeAlias = Generator[Step, "Reply | None", Reply]
