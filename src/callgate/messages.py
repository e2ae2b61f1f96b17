"""Conversations that are kept: messages as JSON and back.

Law: `load_messages(dump_messages(messages)) == messages`, with signatures, parts, ids and flags; what is written is a
list of messages in the OpenAI form, which other programs read.
(tests/test_messages.py::test_messages_come_back_as_they_were)
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from callgate.errors import ConfigError
from callgate.types import Message

__all__ = ["Message", "dump_messages", "load_messages"]


def dump_messages(messages: Iterable[Message]) -> str:
    """The messages as a JSON text."""
    return json.dumps([message.to_dict() for message in messages], ensure_ascii=False)


def load_messages(text: str | bytes) -> list[Message]:
    """The messages that `dump_messages` wrote. Raises ConfigError for what is none."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"load_messages: this is no JSON: {error}") from error
    if not isinstance(data, list):
        raise ConfigError("load_messages: a list of messages is needed")
    return [Message.from_dict(one) for one in data]
