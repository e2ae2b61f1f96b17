"""What the journal of an ended run tells the next run of its conversation.

Law: the messages in a journal are those of the run's result.
(tests/test_agent_sessions.py::test_a_session_goes_on_in_any_process)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from callgate.errors import LedgerError
from callgate.run._checking import changed_prompt
from callgate.run._fields import DAMAGE, Fields, as_message
from callgate.types import Entry, Message


@dataclass(slots=True, frozen=True)
class Conversation:
    """The messages of a run, and what of them had been summed up."""

    messages: tuple[Message, ...] = ()
    summary: tuple[str, frozenset[int]] | None = None
    principal: str | None = None
    ended: bool = True


def conversation_in(entries: Sequence[Entry]) -> Conversation:
    """What a journal tells of it. Raises LedgerError for one that is damaged."""
    messages: list[Message] = []
    summary: tuple[str, frozenset[int]] | None = None
    reason = None
    for entry in entries:
        fields = Fields(entry)
        try:
            _follow(messages, fields)
            if entry.kind == "request":
                summary = _summary_in(entry.data.get("asking") or {}) or summary
            elif entry.kind == "run_finished":
                reason = fields.get("reason", str)
        except DAMAGE as error:
            raise fields.damaged(f"{type(error).__name__}: {error}") from error
    if not entries or entries[0].kind != "run_started":
        raise LedgerError("the journal has no beginning that can be read")
    principal = entries[0].data.get("principal")
    ended = reason not in (None, "waiting")
    return Conversation(tuple(messages), summary, None if principal is None else str(principal), ended)


def _follow(messages: list[Message], fields: Fields) -> None:
    """The conversation after one more entry."""
    entry = fields.entry
    if entry.kind == "run_started" and not entry.data.get("resumed"):
        messages += [as_message(fields, one) for one in fields.get("messages", list)]
    elif entry.kind == "check" and (entry.data["what"], entry.data["decision"]) == ("prompt", "changed"):
        messages[:] = changed_prompt(tuple(messages), fields.get("text", str))
    elif entry.kind == "message":
        messages.append(as_message(fields, entry.data["message"]))


def _summary_in(asking: Mapping[str, Any]) -> tuple[str, frozenset[int]] | None:
    """What of a conversation had been summed up when a request went out."""
    if not asking.get("summary"):
        return None
    return str(asking["summary"]), frozenset(map(int, asking.get("covered") or ()))
