"""Client shapes: one file an API that clients speak.

Law: that of the room (callgate/apps/gateway/__init__.py).

Each shape reads the client's body (`load`), edits the records of a backend of the same API (`editor`), writes an answer
of any other backend (`writer`), and says in its own form what went wrong (`failure`, `failure_event`).

To add a shape: one file with a class that has the members of `Shape`, and its paths in `routes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from callgate.apps.gateway.ask import Ask, Body
    from callgate.apps.gateway.lane import Lane, Outcome
    from callgate.types import Delta, Reply, Usage
    from callgate.wire import Record

Make: TypeAlias = "Callable[[], Lane]"
Value = dict[str, object]


@dataclass(slots=True, frozen=True)
class Failure:
    """What went wrong, before it is said in any API's words."""

    status: int
    kind: str
    """Our word: "invalid_request", "authentication", "permission", "not_found", "too_large", "rate_limit",
    "overloaded", "upstream", "timeout", "internal", "stopped"."""
    message: str
    code: str | None = None
    """"model_not_found", "context_length_exceeded" …"""
    param: str | None = None
    """The field of the request that is wrong."""
    retry_after: float | None = None


@dataclass(slots=True, frozen=True)
class Head:
    """What the records of a written answer begin with."""

    id: str
    """Letters and digits without a prefix; each API has its own."""
    model: str
    created: int


class Editor(Protocol):
    """Edits the records of a backend that speaks the client's own API."""

    lanes: dict[int, Lane]
    """The answers, by the number of the choice."""

    def same(self, piece: bytes) -> bytes | None:
        """What goes to the client of bytes that are exactly one record, if that needs no reading; None: feed it."""
        ...

    def feed(self, records: list[Record]) -> bytes:
        """What goes to the client now."""
        ...

    def finish(self, error: str | None = None) -> None:
        """The backend's bytes are over; with an error they broke off."""
        ...

    def end(self, outcomes: Mapping[int, Outcome]) -> bytes:
        """What waited, edited, and the end of the stream."""
        ...

    def take(self, value: Value) -> None:
        """The body of an answer that is not streamed."""
        ...

    def whole(self, outcomes: Mapping[int, Outcome]) -> Value:
        """That body, edited."""
        ...

    @property
    def over(self) -> bool:
        """Whether the backend has declared the end."""
        ...

    @property
    def begun(self) -> bool:
        """Whether anything of an answer has come."""
        ...

    @property
    def failed(self) -> Value | None:
        """The error that the backend itself has written, in the words of this API."""
        ...


class Writer(Protocol):
    """Writes an answer in the client's API."""

    def start(self) -> bytes:
        """What can be said before anything has come."""
        ...

    def feed(self, deltas: list[Delta]) -> bytes:
        """Text, reasoning and live calls."""
        ...

    def end(self, outcome: Outcome, raw: str | None) -> bytes:
        """The calls, the finish, the end of the stream; `raw` is the backend's word for it."""
        ...


class Several(Protocol):
    """An API that knows several answers to one request (`n`)."""

    def writer(self, ask: Ask, head: Head, *, choice: int, of: int) -> Writer:
        """Writes one of so many answers, which come one after the other; the last one ends the stream."""
        ...

    def joined(self, values: Sequence[Value]) -> Value:
        """Their whole answers as one."""
        ...


class Shape(Protocol):
    """One API that clients speak."""

    name: str
    wire: str
    """The format of a backend that speaks the same API."""
    path: str
    """Where such a backend is asked; "": where it is asked for chats."""
    media: str
    """The content type of a stream."""
    several: Several | None
    """None: a request has one answer."""

    def load(self, body: Body, owner: str = "") -> Ask:
        """What is asked, and by whom. Raises InvalidRequest."""
        ...

    def heartbeat(self, head: Head) -> bytes:
        """A sign of life that changes nothing for any client."""
        ...

    def editor(self, ask: Ask, make: Make, *, observe: bool = False) -> Editor:
        """Edits the records of a backend of the same API."""
        ...

    def writer(self, ask: Ask, head: Head) -> Writer:
        """Writes an answer of any other backend."""
        ...

    def whole(self, ask: Ask, head: Head, outcome: Outcome, reply: Reply) -> Value:
        """An answer that is not streamed."""
        ...

    def failure(self, failure: Failure) -> Value:
        """The body of an error."""
        ...

    def failure_event(self, failure: Failure, value: Value | None = None) -> bytes:
        """An error after the first byte of a stream; `value` is the backend's own, in this API."""
        ...


_LINE_ENDS = {sign: f"\\u{ord(sign):04x}" for sign in "\x85\u2028\u2029"}
"""Signs that end a line for Python's `splitlines`, and so for clients built on httpx; JSON may hold them."""


def encoded(text: str) -> bytes:
    """Records of JSON as bytes; no sign stands in them that only some clients take for the end of a line."""
    if not text.isascii():
        for sign, escape in _LINE_ENDS.items():
            if sign in text:
                text = text.replace(sign, escape)
    return text.encode("utf-8", "replace")


def dumped_usage(usage: Usage | None) -> tuple[int, int]:
    """(input, output) tokens; 0 where nothing was counted."""
    return (usage or {}).get("input", 0), (usage or {}).get("output", 0)
