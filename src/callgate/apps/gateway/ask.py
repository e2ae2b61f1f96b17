"""What a client asks, read once: the body as it came, and the `Request` that it means.

Law: a history that a provider would refuse is mended by the rules of an agent's, and what is sound in it goes on to the
byte. (tests/test_gateway_openai.py::test_a_history_is_mended_and_its_sound_part_is_not_touched)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from callgate.errors import InvalidRequest
from callgate.history import History
from callgate.types import EMPTY, Message, Request

Body = Mapping[str, object]
Write = Callable[[Message], Sequence[object]]
"""A message as the client's API writes it; most APIs need one entry for it."""


@dataclass(slots=True, frozen=True)
class Ask:
    """One request of a client."""

    body: Body
    """As it goes to a backend of the same API: as it came, its history mended."""
    request: Request
    model: str
    """As the client names it; "": whichever there is."""
    stream: bool
    notes: tuple[str, ...] = ()
    """What was mended in the history."""
    idle: bool = False
    """Nothing is asked: the model is to be loaded, or let go."""
    owner: str = ""
    """Who asks; "": anybody."""
    headers: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    """What its API says in headers and a backend of the same API has to know (`anthropic-beta`)."""

    @property
    def foreign(self) -> bool:
        """Whether calls may come that none of the declared functions are: built-in tools, or none are declared."""
        return not self.request.tools or "tools" in self.request.extra


def ask_of(
    body: Body,
    request: Request,
    *,
    stream: bool,
    write: Write | None = None,
    key: str = "messages",
    idle: bool = False,
) -> Ask:
    """The request with a sound history. `write` renders the messages that had to be mended; None: the body's history
    stays as it is, for a body whose entries are not one a message."""
    model = body.get("model")
    if model is not None and not isinstance(model, str):
        raise InvalidRequest("model", "a string is needed")
    adopted = History.adopt(request.messages)
    if not adopted.notes:
        return Ask(body, request, model or "", stream, idle=idle)
    messages, given = adopted.messages, body.get(key)
    if write is not None and isinstance(given, list) and len(given) == len(request.messages):
        body = {**body, key: _rewritten(messages, request.messages, given, write)}
    return Ask(body, replace(request, messages=messages), model or "", stream, adopted.notes)


def _rewritten(
    messages: Sequence[Message], before: Sequence[Message], given: Sequence[object], write: Write
) -> list[object]:
    """The entries of the sound messages as they came, those of the mended ones anew."""
    out: list[object] = []
    at = 0
    for message in messages:
        found = next((n for n in range(at, len(before)) if before[n] == message), None)
        if found is None:
            out += write(message)
        else:
            out.append(given[found])
            at = found + 1
    return out
