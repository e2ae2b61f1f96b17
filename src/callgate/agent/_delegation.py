"""A call that another agent carries out: what that agent is given, and what comes back.

Law: that of the room (callgate/agent/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from callgate.agent._approver import Approver
    from callgate.ledger import LeaseKeeper, Ledger
    from callgate.limits import Limits
    from callgate.run import Pending
    from callgate.types import Principal, ToolCall, ToolResult


@dataclass(slots=True, frozen=True)
class Delegation:
    """What the run of the other agent shares with the one that asks for it."""

    run_id: str
    """Of the run that asks."""
    call: ToolCall
    principal: Principal | None
    deps: object
    ledger: Ledger
    lease: LeaseKeeper | None
    approver: Approver
    left: Mapping[str, int]
    """Limits -> what the run that asks has left of them."""


@dataclass(slots=True, frozen=True)
class Delegated:
    """What became of it."""

    result: ToolResult | None
    """None: it waits."""
    pending: tuple[Pending, ...] = ()
    """The calls of it that wait, under ids that begin with that of the call."""
    usage: Mapping[str, int] = field(default_factory=dict)
    requests: int = 0
    spent: int = 0


class Delegate(Protocol):
    """An agent that carries calls out."""

    async def carry_out(self, order: Delegation) -> Delegated:
        """Begins the run of this call, or goes on with it."""
        ...


def left_of(limits: Limits, requests: int, spent: int) -> dict[str, int]:
    """What a run has left, for another one within it."""
    used = {"max_requests": requests, "max_tokens": spent}
    known = {name: getattr(limits, name) for name in used}
    return {name: max(1, known[name] - used[name]) for name in used if known[name] is not None}
