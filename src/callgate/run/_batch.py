"""The calls of one turn on their way to their results.

One law (X2): every call of the batch ends with exactly one result; a batch is closed when all have one, never before.

A call is `ready` (checked, not judged), `asking` (a person decides), `allowed`, `sent` (handed to the executor),
`begun`, or `done`. Whatever is not done when the run ends is settled as not started.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from callgate.keys import arguments_hash
from callgate.run._check import Checked, own
from callgate.types import Ask, CallRecord, Status, ToolCall, ToolResult, ToolSpec

State = Literal["ready", "asking", "allowed", "sent", "begun", "done"]

WITHOUT_EFFECT: frozenset[str] = frozenset(
    {"failed", "not_found", "denied", "not_started", "invalid_arguments", "unknown_tool"}
)
"""Results of a write that has certainly changed nothing: an identical one may start."""


@dataclass(slots=True)
class Item:
    """One call of the batch."""

    call: ToolCall
    """The run's own copy: nobody outside can change it (X1)."""
    spec: ToolSpec | None
    state: State = "ready"
    result: ToolResult | None = None
    duration: float | None = None
    copies: list[Item] = field(default_factory=list)
    """Identical reads of this batch that share its execution."""
    ask: Ask | None = None
    """The question that stands about it."""
    approved: bool = False
    looked_up: bool = False
    _key: str = ""

    @property
    def key(self) -> str:
        """Equal for the same tool with the same final arguments."""
        self._key = self._key or arguments_hash(self.call.name, self.call.arguments)
        return self._key

    @property
    def write(self) -> bool:
        """Whether it changes the world."""
        return self.spec is None or self.spec.effect == "write"


@dataclass(slots=True)
class Plan:
    """What may happen next: run these, look these up, and the results that are there already."""

    execute: list[Item] = field(default_factory=list)
    look_up: list[Item] = field(default_factory=list)
    answered: list[tuple[Item, ToolResult]] = field(default_factory=list)


class Batch:
    """The calls of one turn, in order."""

    def __init__(self, checked: Sequence[Checked]) -> None:
        self.items: list[Item] = []
        self._by_id: dict[str, Item] = {}
        for one in checked:
            item = Item(one.call, one.spec)
            self.items.append(item)
            self._by_id[item.call.id] = item

    def get(self, call_id: str) -> Item | None:
        """The call with this id."""
        return self._by_id.get(call_id)

    def of(self, *states: State) -> list[Item]:
        """The calls in these states, in order."""
        return [item for item in self.items if item.state in states]

    @property
    def closed(self) -> bool:
        """Whether every call has its result."""
        return all(item.state == "done" for item in self.items)

    def plan(self, writes: dict[str, CallRecord]) -> Plan:
        """The next calls to run, up to the first whose fate depends on one of them.

        `writes`: the writes that this run has started and that may have taken effect, by key (X4).
        """
        plan = Plan()
        reads: dict[str, Item] = {}
        here: set[str] = set()
        for item in self.of("allowed"):
            assert item.spec is not None
            if item.write and not item.spec.repeatable:
                if (earlier := writes.get(item.key)) is not None:
                    if plan.execute:
                        break  # calls keep their order
                    if earlier.result.status == "unknown_outcome" and item.spec.has_lookup and not item.looked_up:
                        plan.look_up.append(item)
                    else:
                        plan.answered.append((item, replayed(earlier.result, item.call.id)))
                    return plan
                if item.key in here:
                    break
            if item.write:
                reads = {}  # what was read before a write may read differently after it
                here.add(item.key)
            elif len(self.items) == 1:
                pass  # nothing could be equal to it
            elif (same := reads.get(item.key)) is not None and not item.spec.polling:
                same.copies.append(item)
                item.state = "sent"
                continue
            else:
                reads[item.key] = item
            item.state = "sent"
            plan.execute.append(item)
        return plan


def replayed(result: ToolResult, call_id: str) -> ToolResult:
    """The result of an earlier call as the answer to an identical one."""
    return replace(result, call_id=call_id, replayed=True)


def settled(call: ToolCall, status: Status, why: str) -> ToolResult:
    """The result of a call that never ran."""
    said = "was not started" if status in ("not_started", "cancelled") else "was not run"
    return ToolResult(call.id, status, f"{call.name} {said}: {why}.")


def copied(call: ToolCall) -> ToolCall:
    """A copy for outside eyes: what they do to its arguments changes nothing."""
    return ToolCall(call.id, call.name, own(call.arguments), call.index, call.flags, call.extra)
