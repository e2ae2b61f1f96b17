"""The finished calls of one message, each with an id of its own.

Law: no two calls of a message carry the same id.
(tests/test_reply.py::test_missing_and_repeated_ids_are_made_distinct)
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

from callgate.types import BadCall, ToolCall

Called = TypeVar("Called", bound=ToolCall | BadCall)


class Settled:
    """Collects calls as they end, and gives an id to those that have none, or one that another call has already."""

    __slots__ = ("_given", "_prefix", "bad", "calls", "problems", "reserved")

    def __init__(self, prefix: str = "call_") -> None:
        self.calls: list[ToolCall] = []
        self.bad: list[BadCall] = []
        self.problems: list[str] = []
        self.reserved: set[str] = set()
        """Ids that later calls bring with them: none of them is given to an earlier call."""
        self._prefix = prefix
        self._given: set[str] = set()

    def add(self, call: ToolCall | BadCall, *, sound: bool) -> ToolCall | BadCall:
        """The call as it counts: after an unsound end it is a `BadCall` ("unsound_end")."""
        if isinstance(call, ToolCall) and sound:
            made = self._id(call)
            if made != call.id:
                call = ToolCall(made, call.name, call.arguments, call.index, call.flags, call.extra)
            self._given.add(call.id)
            self.calls.append(call)
            return call
        if isinstance(call, ToolCall):
            flags = call.flags & {"mentioned"}
            text = json.dumps(call.arguments, ensure_ascii=False)
            call = BadCall(call.index, call.id or None, call.name, text, "unsound_end", flags)
        elif not sound and call.reason == "malformed":
            call = replace(call, reason="unsound_end")
        self.bad.append(call)
        return call

    def in_thoughts(self, call: Called, indices: Collection[int | None]) -> Called:
        """The call as only mentioned, if it is one of these: they stood in reasoning."""
        if call.index not in indices or "mentioned" in call.flags:
            return call
        self.note(f"call {call.index} ({call.name}) stood in reasoning: only mentioned, so it does not run")
        return replace(call, flags=call.flags | {"mentioned"})

    @property
    def any_mentioned(self) -> bool:
        """Whether a call is only quoted or described."""
        calls: list[ToolCall | BadCall] = [*self.calls, *self.bad]
        return any("mentioned" in call.flags for call in calls)

    def note(self, problem: str) -> None:
        """Something odd, once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def _id(self, call: ToolCall) -> str:
        if call.id and call.id not in self._given:
            return call.id
        if call.id:
            self.problems.append(f"two calls had the id {call.id!r}; the later one got another")
        number = call.index + 1
        while (made := f"{self._prefix}{number}") in self._given or made in self.reserved:
            number += 1
        return made
