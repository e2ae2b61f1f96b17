"""The calls of one turn on their way to their results.

Law: every call of the batch ends with exactly one result; a batch is closed when all have one, never before (X2).
(tests/test_run.py::test_a_run_always_ends_with_one_result_for_every_call)

A call is `ready` (checked, not judged), `asking` (a person decides), `allowed`, `sent` (handed to the executor),
`begun`, or `done`. Whatever is not done when the run ends is settled as not started.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from callgate.types import (
    EXTERNAL,
    Ask,
    BadCall,
    CallRecord,
    Message,
    RunReason,
    Status,
    ToolCall,
    ToolResult,
    ToolSpec,
)

State = Literal["ready", "asking", "allowed", "sent", "begun", "done"]

WITHOUT_EFFECT: frozenset[str] = frozenset(
    {"failed", "not_found", "denied", "not_started", "invalid_arguments", "unknown_tool"}
)
"""Results of a write that has certainly changed nothing: an identical one may start."""
UNKNOWN: frozenset[str] = frozenset({"unknown_outcome", "timeout", "cancelled"})
"""Results of a started write of which nobody knows how it ended."""
UNKNOWN_WRITE = "unknown_write"
"""The rule of the question whether a write may start although the outcome of another one is open."""
WHY: dict[RunReason, str] = {
    "turn_limit": "the limit of turns is reached",
    "request_limit": "the limit of requests is reached",
    "time_limit": "the time of the run is over",
    "token_limit": "the limit of tokens is reached",
    "call_limit": "the limit of calls is reached",
    "repetition": "the run goes round in circles",
    "cancelled": "the run was cancelled",
    "output_invalid": "the final answer did not have the form that was asked for",
    "provider_error": "the run ended with an error",
    "waiting": "it waits for a person's approval",
}
"""Why what has not started at the end of a run never will."""
_SCALARS = frozenset({str, int, float, bool, type(None)})


@dataclass(slots=True, frozen=True)
class Checked:
    """A call with its final id, name and arguments. With a `refusal` it never runs."""

    call: ToolCall
    spec: ToolSpec | None = None
    refusal: ToolResult | None = None
    shown: ToolCall | BadCall | None = None
    """What `CallProposed` shows, if it is not `call`."""
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Item:
    """One call of the batch."""

    call: ToolCall
    """The run's own copy: nobody outside can change it (X1)."""
    spec: ToolSpec | None
    hash: str = ""
    """Equal for the same tool with the same final arguments; computed once, when the call was read (X4)."""
    state: State = "ready"
    result: ToolResult | None = None
    duration: float | None = None
    copies: tuple[Item, ...] = ()
    """Identical reads of this batch that share its execution."""
    ask: Ask | None = None
    """The question that stands about it."""
    approved: bool = False
    edited: bool = False
    """A person gave it other arguments than the model."""
    confirmed: bool = False
    """A person let it start although the outcome of another write is open."""
    looked_up: bool = False
    refusal: ToolResult | None = None
    """Why it never runs."""
    lost: bool = False
    """Its true arguments are not kept: it cannot run."""

    @property
    def handed(self) -> bool:
        """Whether the application was asked to carry it out itself."""
        return self.ask is not None and self.ask.rule == EXTERNAL

    @property
    def write(self) -> bool:
        """Whether it changes the world."""
        return self.spec is None or self.spec.effect == "write"


@dataclass(slots=True)
class Plan:
    """What may happen next: run these, look these up, ask about these, and the results that are there already."""

    execute: list[Item] = field(default_factory=list)
    look_up: list[Item] = field(default_factory=list)
    ask: list[tuple[Item, Ask]] = field(default_factory=list)
    answered: list[tuple[Item, ToolResult]] = field(default_factory=list)


@dataclass(slots=True)
class Batch:
    """The calls of one turn, in order."""

    items: Sequence[Item]
    message: Message
    """The answer of the model that holds them."""
    before: int = 0
    """How many calls had ended when it was opened."""
    _by_id: dict[str, Item] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # An answer may hold hundreds of calls, and each is looked for several times by its id.
        self._by_id = {item.call.id: item for item in self.items}

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

    def plan(self, writes: dict[str, CallRecord], doubt: Callable[[Item], Ask | None]) -> Plan:
        """The next calls to run: reads up to the first write, or one write, whose fate depends on what came before.

        `writes`: the writes that this run has started and that may have taken effect, by hash (X4). `doubt`: why a
        person must decide about a write first, though the gate let it through.
        """
        plan = Plan()
        reads: dict[str, Item] = {}
        for item in self.of("allowed"):
            assert item.spec is not None
            if item.write:
                # Reads before it go first; whether it may start depends on how they end (X3).
                if not plan.execute:
                    _plan_write(plan, item, writes, doubt)
                return plan
            # The same read twice in one answer is a model's slip, and one execution answers both; a tool that polls
            # means it.
            if len(self.items) > 1 and not item.spec.polling:
                if (same := reads.get(item.hash)) is not None:
                    same.copies = (*same.copies, item)
                    item.state = "sent"
                    continue
                reads[item.hash] = item
            item.state = "sent"
            plan.execute.append(item)
        return plan


def _plan_write(plan: Plan, item: Item, writes: dict[str, CallRecord], doubt: Callable[[Item], Ask | None]) -> None:
    assert item.spec is not None
    # An identical write that may have taken effect is answered from its result and not started again (rule 5): models
    # repeat themselves in a long context.
    earlier = None if item.spec.repeatable else writes.get(item.hash)
    if earlier is None:
        if (ask := doubt(item)) is not None:
            plan.ask.append((item, ask))
        else:
            item.state = "sent"
            plan.execute.append(item)
    # Its outcome may be known by now; once a call, or a lookup that never knows would be asked for ever.
    elif earlier.result.status == "unknown_outcome" and item.spec.has_lookup and not item.looked_up:
        plan.look_up.append(item)
    else:
        plan.answered.append((item, replayed(earlier.result, item.call.id)))


@dataclass(slots=True)
class GateState:
    """What the gate's side keeps from one call to the next.

    What hardly any run needs is a value that changes by replacement: an empty one is shared by all runs.
    """

    batch: Batch | None = None
    ordered: list[CallRecord] = field(default_factory=list)
    """The calls of closed batches, in the order of the model."""
    writes: dict[str, CallRecord] = field(default_factory=dict)
    """By hash: the started writes that may have taken effect."""
    same: frozenset[str] = frozenset()
    """Hashes that a person let through for the whole run."""
    tools: frozenset[str] = frozenset()
    """Tools that a person let through for the whole run."""
    released: frozenset[str] = frozenset()
    """Tools that a person let go on although a write of theirs is open."""
    passed: dict[str, ToolCall] = field(default_factory=dict)
    """Copies of the calls of this turn that were not denied, for rules to see."""


def approve(gate: GateState, item: Item, scope: str) -> None:
    """What a person's yes changes."""
    item.approved = True
    # This yes says "start although the other may have happened", and nothing about permission for later calls.
    if item.ask is not None and item.ask.rule == UNKNOWN_WRITE:
        item.confirmed = True
        if scope == "tool":
            gate.released |= {item.call.name}
        return
    if scope != "once":
        gate.same |= {item.hash}
    if scope == "tool":
        gate.tools |= {item.call.name}


def remember(gate: GateState, hash: str, record: CallRecord) -> None:
    """How a started write ended: one that may have taken effect does not start a second time (X4)."""
    # It certainly changed nothing, so the model may ask for it again as for a new one.
    if record.result.status in WITHOUT_EFFECT:
        gate.writes.pop(hash, None)
    else:
        gate.writes[hash] = record


def settle_write(gate: GateState, call_id: str, result: ToolResult) -> None:
    """How a write ended after its result had been given as unknown."""
    # By the id, since a settlement that comes from the ledger does not know the hash.
    for key, record in list(gate.writes.items()):
        if record.call.id == call_id:
            remember(gate, key, replace(record, result=result))


def replayed(result: ToolResult, call_id: str) -> ToolResult:
    """The result of an earlier call as the answer to an identical one."""
    return replace(result, call_id=call_id, replayed=True)


def settled(call: ToolCall, status: Status, why: str) -> ToolResult:
    """The result of a call that never ran."""
    how = "was not started" if status in ("not_started", "cancelled") else "was not run"
    return ToolResult(call.id, status, f"{call.name} {how}: {why}.")


def first_reads(checked: Sequence[Checked], most: int | None) -> tuple[Sequence[Checked], int]:
    """Of too many calls that are all reads the first ones, and the rest refused; and how many count (X7)."""
    if most is None or len(checked) <= most or any(c.spec is not None and c.spec.effect != "read" for c in checked):
        return checked, len(checked)
    why = f"an answer may have {most} calls and this one had {len(checked)}; ask for the rest in the next one"
    rest = [replace(one, refusal=one.refusal or settled(one.call, "not_started", why)) for one in checked[most:]]
    return [*checked[:most], *rest], most


def copied(call: ToolCall) -> ToolCall:
    """A copy for outside eyes: what they do to its arguments changes nothing."""
    return ToolCall(call.id, call.name, own(call.arguments), call.index, call.flags, call.extra)


def own(value: object) -> Any:
    """A copy of its own; of plain JSON without the detours of `deepcopy`."""
    if type(value) is dict:
        return {key: own(part) for key, part in value.items()}
    if type(value) is list:
        return [own(part) for part in value]
    return value if type(value) in _SCALARS else copy.deepcopy(value)
