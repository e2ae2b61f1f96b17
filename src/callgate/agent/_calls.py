"""The calls of a run: batches are run, writes recorded, lost outcomes looked up.

Law: a write starts only when it is certainly recorded, under a lease that still holds (X4).
(tests/test_agent_lease.py::test_a_write_does_not_start_when_the_lease_ran_out_while_it_was_recorded)
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from callgate import policy
from callgate.agent._delegation import Delegate, Delegated, Delegation, left_of
from callgate.agent._scheduler import scheduler
from callgate.agent._shield import in_thread
from callgate.agent._starts import Start
from callgate.events import CallProgress, CallStarted, dump_event
from callgate.executor import Batch, Caller
from callgate.ledger import NO_EFFECT, Write
from callgate.results import unknown_outcome
from callgate.run.inputs import (
    Began,
    Command,
    Contested,
    Execute,
    LookUp,
    Pending,
    Progressed,
    Ran,
    Refused,
    Settled,
    Step,
)
from callgate.tools import ToolContext
from callgate.types import Deny, Entry, ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from callgate.agent._session import Session

LOGGER = logging.getLogger("callgate.agent")
FATE_SHOWN = 200
"""Characters of another run's result that a person is shown."""
LATE: set[asyncio.Task[Any]] = set()
"""Entries of late results on their way, kept from the garbage collector."""


class CallSide:
    """Carries out `Execute` and `LookUp`; the observer of its batches."""

    def __init__(self, session: Session) -> None:
        config = session.run.config
        self._session = session
        self._runtime = session.runtime
        about = ToolContext(principal=config.principal, run_id=config.run_id, deps=session.runtime.deps)
        self._caller = Caller(about, secrets=session.secrets, ask=self._ask)
        self._asked = 0
        self._batch: Batch | None = None
        self._following: Command | None = None
        self._contested: dict[str, Step] = {}
        """Writes that a person must decide about first, and what the run said to that."""
        self._starts: dict[str, Start] = {}
        """The calls of the batch that are counted."""
        self._refused: dict[str, Deny] = {}
        """Those that were one too many."""

    @property
    def running(self) -> bool:
        """Whether a batch runs: it must be stopped by `cancel`, not by cancelling the task that awaits it."""
        return self._batch is not None

    def cancel(self) -> None:
        """Stops the batch in three grades; all its results still come."""
        if self._batch is not None:
            self._batch.cancel()

    async def execute(self, command: Execute) -> Step:
        """Runs the calls; the step holds what the run wants next."""
        self._following = None
        self._batch = Batch(self._runtime.executor, self._caller, self)
        try:
            await self._batch.carry_out(command.calls)
        finally:
            self._batch = None
        return Step(commands=[self._following] if self._following is not None else [])

    async def _ask(self, call: ToolCall, question: str, details: Mapping[str, object]) -> bool | None:
        """A question that comes up while a call runs. It has an id of its own: an answer that was given to the call
        itself is none to it."""
        self._asked += 1
        about = ToolCall(f"{call.id}/question/{self._asked}", call.name, {"question": question, **details})
        answer = await self._runtime.approver.answer(Pending(about, "question", question))
        return None if answer is None else answer.allow

    async def given(self, call: ToolCall, value: object) -> ToolResult:
        """What the application brings for a call that it carried out itself: what it returned, or an exception."""
        executor = self._runtime.executor
        # In a thread: a large value takes long enough to be noticed by the other runs of this loop.
        result = await in_thread(executor.threads, lambda: executor.rendered(call, self._caller, value))
        return await self._runtime.checks.transformed(call, result, executor)

    async def delegated(self, call: ToolCall, agent: Delegate) -> Delegated:
        """What the agent that carries the call out came to; it may wait."""
        run, runtime = self._session.run, self._runtime
        order = Delegation(
            run.config.run_id,
            call,
            run.config.principal,
            runtime.deps,
            runtime.ledger,
            runtime.lease or runtime.outer,
            runtime.approver,
            left_of(runtime.limits, run.requests, run.state.spent),
        )
        made = await agent.carry_out(order)
        if made.result is None:
            return made
        return replace(made, result=await runtime.checks.transformed(call, made.result, runtime.executor))

    async def look_up(self, command: LookUp) -> Step:
        """Finds out how started writes ended; what nobody knows stays unknown."""
        run, following = self._session.run, None
        for call in command.calls:
            started = replace(call, id=command.started_as.get(call.id, call.id))
            # First the process's own knowledge: an abandoned thread may have come to its end meanwhile, and its word is
            # better than any lookup's.
            known = await self._settled_late(started) or await self._runtime.executor.look_up(
                call, self._caller, run.key_of(started)
            )
            if known is not None:
                known = await self._runtime.checks.transformed(call, known, self._runtime.executor)
            result = replace(known or unknown_outcome(call), call_id=call.id)
            following = await self._session.follow(
                self._session.tell(Ran(call.id, result, 0.0, self._session.clock.now))
            )
        return Step(commands=[following] if following is not None else [])

    async def _settled_late(self, call: ToolCall) -> ToolResult | None:
        """What an abandoned call of this process came to after all: nobody knows better than the call itself."""
        ledger, run_id = self._runtime.ledger, self._session.run.config.run_id
        write = await self._session.ask(ledger.write(run_id, call.id))
        known = write.result if write is not None else None
        return None if known is None or known.status == "unknown_outcome" else known

    # --- the observer of a batch ----------------------------------------------------------------------------------

    def key_of(self, call: ToolCall) -> str:
        """The run's idempotency key."""
        return self._session.run.key_of(call)

    def on_event(self, event: CallStarted | CallProgress) -> None:
        """Shows what happens to a call."""
        session = self._session
        if isinstance(event, CallProgress):
            session.tell(Progressed(event.call_id, event.value))
        elif session.run.calls.running(event.call_id):
            return  # a write, which began when it was recorded
        else:
            session.tell(Began(event.call_id, session.clock.now))
        if isinstance(event, CallStarted):
            self._runtime.starts.begin(self._starts[event.call_id])
        session.show_all()

    def admit(self, call: ToolCall, spec: ToolSpec) -> ToolResult | None:
        """Judges by the limits that other runs share, and counts, in one step (see `policy.Rationed`)."""
        config = self._session.run.config
        who = config.principal.id if config.principal else None
        given = self._runtime.starts.reserve(who, call.name, policy.quotas(config.rules, spec))
        if isinstance(given, policy.Quota):
            self._refused[call.id] = Deny(given.rule, given.reason)
            return unknown_outcome(call)  # nobody sees it: the run makes the result from the verdict
        self._starts[call.id] = given
        return None

    async def before_write(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult | None:
        """Records that a write is about to start (X4). Its result, if an identical one must not start again."""
        # A person has decided already, or the tool says that twice is harmless: then nobody is asked.
        if not spec.repeatable and not self._session.run.calls.confirmed(call.id):
            earlier = await self._earlier(call, key)
            if earlier is not None:
                return earlier
        self._session.tell(Began(call.id, self._session.clock.now))
        # When this returns, the intent is on the disk; only then the executor goes on (X4). If it raises, nothing has
        # started.
        await self._session.write()
        return None

    def obstacle(self) -> str | None:
        """A lease that ran out: another owner may have taken the run over, and would start the write as well."""
        lease = self._runtime.lease or self._runtime.outer
        if lease is not None and lease.is_over:
            # Checked by the clock, and not by asking: a ledger that does not answer must not let a write start late.
            return "the lease of the run ran out before it could start, and another process may have taken the run over"
        return None

    async def after(self, call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        """Brings the run the result."""
        # A batch of a hundred quick calls would otherwise keep every other run of this loop waiting.
        await scheduler().turn()
        session = self._session
        start = self._starts.pop(call.id, None)
        if start is not None and seconds is None:
            self._runtime.starts.give_back(start)
        if seconds is not None:  # what did not run has no result of the tool's
            result = await self._runtime.checks.transformed(call, result, self._runtime.executor)
        step = self._contested.pop(call.id, None) or session.tell(self._end_of(call, result, seconds))
        self._following = await session.follow(step, wait=False)
        # Nothing can be recorded any more, so nothing more may start; what runs is stopped.
        if session.broken is not None:
            self.cancel()

    def _end_of(self, call: ToolCall, result: ToolResult, seconds: float | None) -> Ran | Refused:
        now = self._session.clock.now
        refused = self._refused.pop(call.id, None)
        return Ran(call.id, result, seconds, now) if refused is None else Refused(call.id, refused, now)

    def on_late(self, call: ToolCall, result: ToolResult) -> None:
        """The ledger learns how an abandoned write ended after all, and the run, if it still goes on."""
        # Without the lease's fence: the run may have ended or be somebody else's by now, and a settlement is no step of
        # it.
        task = asyncio.ensure_future(self._settle_late(call, result))
        LATE.add(task)
        task.add_done_callback(_late_done)

    async def _settle_late(self, call: ToolCall, result: ToolResult) -> None:
        result = await self._runtime.checks.transformed(call, result, self._runtime.executor)
        self._session.tell(Settled(call.id, result, self._session.clock.now))
        data = {"call_id": call.id, "result": dump_event(result), "by": "late"}
        entry = Entry("call_settled", data)
        await self._runtime.ledger.append(self._session.run.config.run_id, [entry])

    # --- writes of other runs -------------------------------------------------------------------------------------

    async def _earlier(self, call: ToolCall, key: str) -> ToolResult | None:
        """Looks for an identical write of another run of the same principal whose outcome is unknown. If the caller
        said by `key=` that it is the same work, its outcome is this call's result; else a person decides."""
        config = self._session.run.config
        asked = self._runtime.ledger.find_write(
            principal=config.principal.id if config.principal else None,
            tool=call.name,
            arguments_hash=self._session.run.calls.hash_of(call.id),
            run_id=config.run_id,
            key=key if config.key else None,
        )
        write = await self._session.ask(asked)
        # Writes of this run are the run's own affair: its batch has answered them already.
        if write is None or write.run_id == config.run_id:
            return None
        known = await self._runtime.executor.look_up(call, self._caller, write.key)
        if known is not None:
            await self._settle(write, known)
            if known.status in NO_EFFECT:
                return None
        if config.key:
            return replace(known or write.result or unknown_outcome(call), call_id=call.id, replayed=True)
        self._contested[call.id] = self._session.tell(Contested(call.id, _fate(write, known), self._session.clock.now))
        return unknown_outcome(call)  # nobody sees it: the call waits

    async def _settle(self, write: Write, known: ToolResult) -> None:
        result = dump_event(replace(known, call_id=write.call_id))
        entry = Entry("call_settled", {"call_id": write.call_id, "result": result, "by": "lookup"})
        await self._session.ask(self._runtime.ledger.append(write.run_id, [entry]))


def _fate(write: Write, known: ToolResult | None) -> str:
    """What a person has to know of the other run's write."""
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(write.at))
    became = "its outcome is not known" if known is None else f"it took effect: {known.content[:FATE_SHOWN]}"
    return f"an identical call was started by run {write.run_id} at {when}, and {became}; run it again?"


def _late_done(task: asyncio.Task[object]) -> None:
    LATE.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        LOGGER.warning("a late result could not be recorded: %s", error)
