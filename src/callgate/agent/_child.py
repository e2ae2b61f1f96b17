"""An agent as a tool of another one.

Law: the run of a call is one run, however often its parent is taken up again: what it has done is not done twice.
(tests/test_agent_as_tool.py::test_a_kill_in_a_childs_write_neither_doubles_nor_loses_it)

The run has an id made of its parent's and of the call's, stands in the parent's ledger and is held by its lease.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from callgate.agent._delegation import Delegated, Delegation
from callgate.agent._request import ResumeRequest, RunRequest
from callgate.agent._result import RunResult
from callgate.results import compress, to_json, unknown_outcome
from callgate.run import Pending
from callgate.types import ToolCall, ToolResult

if TYPE_CHECKING:
    from callgate.agent._approver import Approve
    from callgate.agent._form import Form
    from callgate.agent._runner import Runner
    from callgate.agent._setup import Setup

LOGGER = logging.getLogger("callgate.agent")
TASK = {"type": "object", "properties": {"task": {"type": "string", "description": "What to do, in full."}}}
SCHEMA = {**TASK, "required": ["task"], "additionalProperties": False}


@dataclass(frozen=True)
class Child:
    """Carries out the calls of a tool by runs of an agent."""

    setup: Setup
    form: Form
    runner: Runner

    @property
    def writes(self) -> frozenset[str]:
        """The tools that change something: with one of them its calls are writes for the rules of its parent."""
        return frozenset(spec.name for spec in self.setup.toolbox.specs if spec.effect == "write")

    async def carry_out(self, order: Delegation) -> Delegated:
        """Begins the run of this call, or goes on with it. What cannot be is a failed call."""
        run_id = f"{order.run_id}/{order.call.id}"
        runner = self.runner.lent(order.ledger, _asking(order, self.runner.approve), order.lease)
        known = bool(await order.ledger.read(run_id))
        given: dict[str, Any] = {"principal": order.principal, "limits": self._limits(order)}
        if self.setup.deps_type is not None:
            given["deps"] = order.deps
        form = replace(self.form, _made=[])
        try:
            if known:
                given["results"] = _own(order, order.approver.results)
                work = runner.again(
                    run_id, ResumeRequest.of(self.setup, _own(order, order.approver.answers), form, given)
                )
            else:
                given["run_id"] = run_id
                work = runner.begin(RunRequest.of(self.setup, str(order.call.arguments["task"]), form, given))
            result = await work(None)
        except Exception as error:
            LOGGER.exception("the agent of %s could not be run", order.call.name)
            text = f"{order.call.name} failed: {type(error).__name__}: {error}"
            # It may have been at work before.
            status: Any = "unknown_outcome" if known and self.writes else "failed"
            return Delegated(ToolResult(order.call.id, status, text))
        if result.reason == "waiting":
            return Delegated(None, tuple(_surfaced(order, one) for one in result.pending))
        last = (await order.ledger.read(run_id))[-1].data
        spent = last.get("total", {}).get("spent", 0)
        ended = _result(order.call, result, self.writes, self.setup.limits.max_result)
        return Delegated(ended, (), result.usage, result.requests, int(spent))

    def _limits(self, order: Delegation) -> Any:
        limits = self.setup.limits
        tighter: dict[str, Any] = {}
        for name, left in order.left.items():
            own = getattr(limits, name)
            tighter[name] = left if own is None else min(left, own)
        return replace(limits, **tighter)


def _result(call: ToolCall, result: RunResult[Any], writes: frozenset[str], limit: int) -> ToolResult:
    """The answer of the other agent as the result of the call."""
    if result.ok:
        plain = to_json(result.output) if result.output is not None else result.text
        text, size = compress(plain, limit)
        return ToolResult(call.id, "ok", text, value=plain, size=size)
    why = f"the agent ended as {result.reason}" + (f": {result.error}" if result.error else "")
    # After a write of it, to have the same task done again could do it twice.
    if any(r.call.name in writes and r.result.status in ("ok", "unknown_outcome") for r in result.calls):
        return unknown_outcome(call, why)
    return ToolResult(call.id, "failed", f"{call.name} failed: {why}.")


def _asking(order: Delegation, own: Approve | None) -> Approve | None:
    """The parent's callback, asked about calls of the child under their ids there; else the child's own."""
    if not order.approver.present:
        return own

    async def approve(call: ToolCall, pending: Pending) -> Any:
        return await order.approver.answer(_surfaced(order, replace(pending, call=call)))

    return approve


def _surfaced(order: Delegation, pending: Pending) -> Pending:
    return replace(pending, call=replace(pending.call, id=f"{order.call.id}/{pending.call.id}"))


def _own(order: Delegation, given: Mapping[str, Any]) -> dict[str, Any]:
    """Of what was given by ids of the parent's, that of this child, by its own."""
    start = f"{order.call.id}/"
    return {key.removeprefix(start): value for key, value in given.items() if key.startswith(start)}
