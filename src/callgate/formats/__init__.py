"""Plug room: how one API writes a message down, both ways.

Law: `load(dump(reply)) == reply`, and a stream that did not end soundly gives no call.
(tests/test_formats_laws.py::test_what_is_dumped_is_read_back)

Each plug is one API: `framing` (bytes to records, see wire.py), `Loader` (records to deltas), `Dumper` (deltas to
records), `frame` and `END` (records to bytes), `build` (a `Request` to the body that asks for it) and `load_request`
(the body of a client's request to a `Request`). All of it is pure, so a gateway uses the same code.

To add a format: one file with these names. Its file name is its name.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from callgate.errors import ConfigError
from callgate.formats._accepted import Accepted as Accepted
from callgate.formats._accepted import accepted as accepted
from callgate.formats._calls import arguments as arguments
from callgate.formats._calls import dump_arguments
from callgate.formats._ends import error_text as error_text
from callgate.formats._ends import output_limit as output_limit
from callgate.formats._ends import reason_of as reason_of
from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, Reply, Request, TextDelta, ToolCall
from callgate.wire import MAX_RECORD, NDJSON, SSE, Record


class Loader(Protocol):
    """Reads the records of one message."""

    other_choices: Mapping[int, list[ToolCall]]
    """The calls of further choices (`n` > 1); the message itself is the first choice."""

    @property
    def over(self) -> bool:
        """Whether the server has declared the end."""
        ...

    def feed(self, record: Record) -> list[Delta]:
        """The deltas of one record."""
        ...

    def take(self, value: Mapping[str, Any], event: str = "") -> list[Delta]:
        """The same for a record that is parsed already."""
        ...

    def finish(self) -> list[Delta]:
        """The stream is over: each call's `ToolCall` or `BadCall`, then the `Finish`."""
        ...

    def fail(self, error: str, *, interrupted: bool = False) -> list[Delta]:
        """The stream broke: like `finish`, with this error."""
        ...


class Dumper(Protocol):
    """Writes one message as records. One that failed or was cut off ends in the API's own error, never in silence."""

    def start(self) -> list[dict[str, Any]]:
        """The records that open a message before anything of it is known; none if it is open, or the API has none."""
        ...

    def feed(self, deltas: list[Delta]) -> list[dict[str, Any]]:
        """The records for these deltas, ready for JSON."""
        ...


class Format(Protocol):
    """One API: what a plug of this room offers."""

    def framing(self, *, limit: int = MAX_RECORD) -> SSE | NDJSON:
        """The reader of its bytes; a record longer than `limit` bytes is a `LimitExceeded`."""
        ...

    def Loader(self, *, tools: tuple[str, ...] = ()) -> Loader:  # noqa: N802 - it is a class in the plug
        """The reader of its records; `tools` are the names of the tools that were offered."""
        ...

    def Dumper(self, *, model: str = ..., id: str = ..., created: int = ...) -> Dumper:  # noqa: N802
        """The writer of its records."""
        ...

    END: bytes
    """What follows the last record of a stream that ended well; nothing follows the error of one that did not."""

    def frame(self, value: Mapping[str, Any]) -> bytes:
        """One record as bytes."""
        ...

    def dump_whole(self, reply: Reply, *, model: str = ..., id: str = ..., created: int = ...) -> dict[str, Any]:
        """A reply as the body of an answer that is not streamed; a failed one is the API's error."""
        ...

    def accept(self, request: Request) -> Accepted:
        """The request with names and schemas that the API accepts; `notes` say what had to be left out."""
        ...

    def build(self, request: Request, model: str) -> dict[str, Any]:
        """The body that asks for an answer to `request`."""
        ...

    def load_request(self, body: Mapping[str, object]) -> Request:
        """What the body of a client's request asks for, `build` the other way; its `model` is left to the caller.

        Fields that are not understood are kept in `extra` of the request, a message, a call or a tool, and `build`
        writes them back as they are. Ids are those of the client: `History.adopt` pairs and mends them.
        Raises InvalidRequest, whose `field` says which field is wrong.
        """
        ...


def dump(wire: str, reply: Reply, *, model: str = "") -> bytes:
    """A reply as the stream of this API; `read(dump(wire, reply), wire=wire)` gives it back."""
    form = get(wire)
    records = form.Dumper(model=model).feed(deltas_of(reply))
    return b"".join(map(form.frame, records)) + (b"" if reply.finish in ("error", "interrupted") else form.END)


def deltas_of(reply: Reply) -> list[Delta]:
    """A whole message as its deltas: reasoning, text, each call, the end."""
    out: list[Delta] = []
    if reply.reasoning:
        out.append(ReasoningDelta(reply.reasoning))
    if reply.content:
        out.append(TextDelta(reply.content))
    calls: list[ToolCall | BadCall] = sorted([*reply.calls, *reply.incomplete], key=lambda call: call.index)
    for call in calls:
        text = call.text if isinstance(call, BadCall) else dump_arguments(call.arguments)
        out.append(CallDelta(call.index, call.id, call.name, text))
    problems = tuple(reply.problems)
    return [*out, *calls, Finish(reply.finish, reply.usage, reply.raw_finish, reply.error, problems, reply.extra)]


@functools.cache
def names() -> tuple[str, ...]:
    """The formats there are."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")))


def get(name: str) -> Format:
    """The format of this name; `ConfigError` lists those there are."""
    if name not in names():
        raise ConfigError(f"wire {name!r}: unknown; there are {', '.join(names())}")
    return cast("Format", import_module(f"{__name__}.{name}"))
