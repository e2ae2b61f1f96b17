"""The ways in which a started call may end.

Law: that of the room (callgate/executor/__init__.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from callgate.types import Part


class NeverBegan(Exception):
    """The tool was certainly not begun; the message says why. Raised by our own code only."""


@dataclass(slots=True, frozen=True)
class Rendered:
    """A returned value as the model, the ledger and the caller get it."""

    text: str
    size: int
    value: object
    parts: tuple[Part, ...]


@dataclass(slots=True, frozen=True)
class Returned:
    """The tool returned."""

    value: object
    rendered: Rendered | None = None
    """Made already in the tool's own thread, so that a large value keeps nobody else waiting (X5)."""


@dataclass(slots=True, frozen=True)
class Raised:
    """The tool raised."""

    error: BaseException
    trace: str = ""
    """The traceback, formatted where the tool ran; neither masked nor escaped."""


@dataclass(slots=True, frozen=True)
class Refused:
    """The arguments do not fit the tool's own types, so it was not begun."""

    error: BaseException


@dataclass(slots=True, frozen=True)
class TimedOut:
    """The tool did not end in time."""

    seconds: float


@dataclass(slots=True, frozen=True)
class Stopped:
    """The run was cancelled while the tool ran, and it ended without a value, or was abandoned."""


@dataclass(slots=True, frozen=True)
class NotBegun:
    """The tool was certainly not begun."""

    reason: str


Outcome: TypeAlias = Returned | Raised | Refused | TimedOut | Stopped | NotBegun


def single(error: BaseException) -> BaseException:
    """The one exception inside a group of one; task groups wrap what a tool raised."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
