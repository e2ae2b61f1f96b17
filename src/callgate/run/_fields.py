"""The fields of a journal's entries, each of the type that it must have.

Law: what comes out of here is of its type, whatever stands in the journal; all else is a LedgerError.
(tests/test_run_restore.py::test_a_damaged_journal_gives_a_ledger_error_and_nothing_else)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from callgate.errors import LedgerError
from callgate.events import load_event
from callgate.run._values import load_message
from callgate.types import Entry, Message, Role, Status, ToolCall, ToolResult

DAMAGE = (KeyError, IndexError, TypeError, ValueError, AttributeError, AssertionError, RecursionError, OverflowError)
"""What reading a damaged value as one of ours may raise."""


class Fields:
    """The fields of an entry, each of the type that it must have."""

    def __init__(self, entry: Entry, data: Mapping[str, object] | None = None) -> None:
        self.entry = entry
        self.data = entry.data if data is None else data

    def get(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The field. Raises LedgerError if it is missing or of another type."""
        value = self.data.get(name)
        # In Python True is an int: a flag where a number belongs is damage.
        if (isinstance(value, bool) and kind is not bool) or not isinstance(value, kind):
            raise self.damaged(f"its field {name!r} is {type(value).__name__}")
        return value

    def maybe(self, name: str, kind: type | tuple[type, ...]) -> Any:
        """The field, or None if it is missing."""
        return None if self.data.get(name) is None else self.get(name, kind)

    def texts(self, name: str) -> list[str]:
        """A list of texts; empty if it is missing."""
        found = self.maybe(name, list) or []
        if not all(isinstance(text, str) for text in found):
            raise self.damaged(f"its field {name!r} holds more than texts")
        return list(found)

    def inside(self, name: str) -> Fields:
        """The fields of an object in the entry."""
        return Fields(self.entry, self.get(name, Mapping))

    def count(self, name: str) -> int:
        """A number that cannot be negative."""
        value: int = self.get(name, int)
        if value < 0:
            raise self.damaged(f"its field {name!r} is negative")
        return value

    def seconds(self, name: str) -> float:
        """A time."""
        value = float(self.get(name, (int, float)))
        # NaN fails both comparisons.
        if not 0 <= value < 1e12:
            raise self.damaged(f"its field {name!r} is no time")
        return value

    def damaged(self, why: str) -> LedgerError:
        """What is wrong with the entry."""
        return LedgerError(
            f"entry {self.entry.seq} ({self.entry.kind}) of the journal is damaged: {why}; cancel the run"
        )


def as_message(fields: Fields, data: Any) -> Message:
    message = load_message(data)
    content = message.content
    sound = message.role in get_args(Role) and isinstance(message.reasoning, str) and isinstance(message.extra, Mapping)
    sound = sound and (isinstance(content, str) or all(isinstance(part, Mapping) for part in content))
    sound = sound and all(is_call(call) for call in message.calls)
    sound = sound and (message.role != "tool" or isinstance(message.call_id, str))
    if not sound:
        raise fields.damaged("a message in it cannot be read")
    return message


def is_call(call: object) -> bool:
    return (
        isinstance(call, ToolCall)
        and isinstance(call.id, str)
        and isinstance(call.name, str)
        and isinstance(call.arguments, dict)
        and isinstance(call.index, int)
        and all(isinstance(flag, str) for flag in call.flags)
        and isinstance(call.extra, Mapping)
    )


def as_result(fields: Fields, name: str = "result") -> ToolResult:
    result = load_event({**fields.get(name, Mapping), "type": "tool_result"})
    assert isinstance(result, ToolResult)
    one_of(fields, result.status, Status)
    if not isinstance(result.content, str) or not isinstance(result.size, int) or not isinstance(result.call_id, str):
        raise fields.damaged("its result cannot be read")
    if not all(isinstance(part, Mapping) for part in result.parts):
        raise fields.damaged("its result cannot be read")
    return result


def one_of(fields: Fields, value: object, names: object) -> Any:
    if value not in get_args(names):
        raise fields.damaged(f"{value!r} is unknown")
    return value
