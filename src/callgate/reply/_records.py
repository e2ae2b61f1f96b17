"""What a `Reader` is fed with: pieces of text, bytes of an API, or its records as somebody else parsed them.

Law: an answer read from the objects of an API's own client is the answer read from its bytes.
(tests/test_wire_clients.py::test_the_objects_of_the_clients_are_read_as_their_bytes_are)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, TypeGuard, cast

from callgate.errors import ConfigError


class ClientObject(Protocol):
    """A chunk of a vendor's client: theirs are pydantic models, all of them."""

    def model_dump(self) -> dict[str, Any]:
        """Its fields."""
        ...


Chunk: TypeAlias = "str | bytes | bytearray | memoryview[Any] | Mapping[str, Any] | ClientObject"
"""A piece of text or bytes, cut anywhere; or one whole record of a wire, as a dict or an object of a client."""


def is_record(chunk: object) -> TypeGuard[Mapping[str, Any] | ClientObject]:
    """Whether it is a whole record and not a piece of a stream. By shape, so that no client need be installed."""
    return isinstance(chunk, Mapping) or callable(getattr(chunk, "model_dump", None))


def record_of(chunk: Mapping[str, Any] | ClientObject) -> dict[str, Any]:
    """The record as its server wrote it."""
    if isinstance(chunk, Mapping):
        return dict(chunk)
    # What was not sent must not look as if it was (`null` fields of a chunk); fields that the client does not know,
    # like `reasoning_content`, are kept by it.
    dump = cast("Any", chunk).model_dump
    # Their types are not what servers keep to, and pydantic warns of each field that is something else.
    return dict(dump(exclude_unset=True, by_alias=True, warnings=False))


def bytes_of(chunk: object) -> bytes:
    """The bytes of a piece. Raises ConfigError for what is none, with the way out."""
    if isinstance(chunk, (bytes, bytearray, memoryview)):
        return bytes(chunk)
    way = (
        '; give Reader the wire it comes from (wire="openai"), or the chunk\'s text, as in chunk.message.content or '
        "chunk.choices[0].delta.content"
    )
    raise ConfigError(
        f"Reader.feed: a chunk is str or bytes, not {type(chunk).__name__}{way if is_record(chunk) else ''}"
    )
