"""The gate's side of a run: from the calls of an answer to their results.

Law: a call reaches `Execute` only checked, judged and, where people were asked, approved with exactly these arguments
(X1, G3); nothing else leads there. (tests/test_run_sides.py::test_only_an_allowed_call_is_executed)

Each method takes what came, writes what it found out into the state, and returns the next move, or None to wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from callgate import policy, results
from callgate.events import CallFinished, CallProgress, CallProposed, CallStarted, dump_event
from callgate.history import History
from callgate.policy import Advisor, Answer
from callgate.run import _journal as journal
from callgate.run._batch import (
    UNKNOWN,
    UNKNOWN_WRITE,
    WHY,
    WITHOUT_EFFECT,
    Batch,
    Checked,
    Item,
    Plan,
    copied,
    first_reads,
    remember,
    replayed,
    settled,
)
from callgate.run._doubt import open_write
from callgate.run._judging import Edit, Judging, denied
from callgate.run._pages import READ_RESULT, page
from callgate.run._state import AskModel, EndRun, Move, RunState, Unusable
from callgate.run.inputs import AskPerson, Execute, LookUp, Pending, Progressed
from callgate.types import (
    Ask,
    CallRecord,
    Deny,
    Message,
    Reply,
    RunReason,
    ToolResult,
)

EDITED = "[A person changed the arguments of this call.]"
"""What the model is told: what it wrote stands in the history, and what ran is another thing."""


class Calls:
    """From the calls of an answer to their results."""

    def __init__(self, state: RunState, edit: Edit | None = None) -> None:
        self._state = state
        self._config = state.config
        self._gate = state.gate
        self._advisors = [cast("Advisor", rule) for rule in self._config.rules if hasattr(rule, "advice")]
        self._judging = Judging(state, self._settle, edit)
        self._own_pages = any(spec.name == READ_RESULT.name for spec in self._config.tools)

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def _batch(self) -> Batch | None:
        return self._gate.batch

    def pending(self) -> tuple[Pending, ...]:
        """The calls that wait for a person."""
        items = self._batch.of("asking") if self._batch else []
        return tuple(Pending(copied(item.call), item.ask.rule, item.ask.reason) for item in items if item.ask)

    def snapshot(self) -> History:
        """The history with the open turn in it, as it would stand if the run ended now."""
        if self._batch is None:
            return self._state.history
        # An open call has its provisional result here: a provider refuses a history with an unanswered call, and
        # whoever reads `messages` while the run waits is to be able to send them.
        pairs = [(r, r.content) for r in (self._as_it_stands(item) for item in self._batch.items)]
        return self._state.history.turn(self._batch.message, pairs)

    def in_order(self) -> list[CallRecord]:
        """Every call and its result, in the order of the model."""
        open_items = self._batch.items if self._batch else []
        return [*self._gate.ordered, *(CallRecord(i.call, self._as_it_stands(i), i.duration) for i in open_items)]

    def _as_it_stands(self, item: Item) -> ToolResult:
        return item.result or self._unfinished(item, self._state.reason or "waiting")

    def waits_for(self, call_id: str) -> bool:
        """Whether this call was handed out and its result is awaited."""
        item = self._batch.get(call_id) if self._batch else None
        return item is not None and item.state in ("sent", "begun")

    def unstarted(self, call_id: str) -> bool:
        """Whether this call was handed out and has not begun."""
        item = self._batch.get(call_id) if self._batch else None
        return item is not None and item.state == "sent"

    def running(self, call_id: str) -> bool:
        """Whether this call runs now."""
        item = self._batch.get(call_id) if self._batch else None
        return item is not None and item.state == "begun"

    def confirmed(self, call_id: str) -> bool:
        """Whether a person let this write start although the outcome of another one is open."""
        item = self._batch.get(call_id) if self._batch else None
        return item is not None and item.confirmed

    def hash_of(self, call_id: str) -> str:
        """The hash of this call's arguments."""
        item = self._batch.get(call_id) if self._batch else None
        return item.hash if item is not None else ""

    def begun(self) -> list[str]:
        """The calls that run now."""
        return [item.call.id for item in self._batch.of("begun")] if self._batch else []

    # --- a new batch ----------------------------------------------------------------------------------------------

    def open(self, reply: Reply, checked: Sequence[Checked]) -> Move | None:
        """The checked calls of an accepted answer: shown, held against the limits, judged."""
        state = self._state
        checked, asked = first_reads(checked, self._config.first_reads)
        valid = [one.call for one in checked if one.refusal is None]
        state.phase = "calls"
        # Copies: the message goes out to callers and providers, and the checked arguments must stay those that are run
        # (X1).
        message = Message("assistant", reply.content, reply.reasoning, tuple(copied(c.call) for c in checked))
        self._gate.batch = batch = Batch([self._item(one) for one in checked], message, len(state.finished))
        self._gate.passed = {}
        if reply.content.strip():
            state.text = reply.content
        # The entry names the turn that the answer belongs to; an answer without a valid call does not count as one.
        turn = state.turn if valid else state.turn + 1
        for one, item in zip(checked, batch.items, strict=True):
            self._propose(one, item, turn)
        if not valid:  # it stays in the history with the reasons, and counts as a failure
            self._close()
            return Unusable(next(one.refusal.content for one in checked if one.refusal is not None))
        # before anything of the batch runs: half a batch would leave the world in a state that nobody asked for (X7)
        stop = policy.check(self._config.rules, state.progress("batch", valid, asked=asked))
        if stop is not None:
            self._close_with(stop.reason)
            return EndRun(stop.reason, stop.message)
        for item in batch.of("ready"):
            self._judging.judge(item)
        return self._proceed()

    def _propose(self, one: Checked, item: Item, turn: int) -> None:
        """Shows and records a call as it was read; one that was refused has its result already."""
        self._state.emit(CallProposed(one.shown or copied(one.call)))
        held = {one.call.id: one.call.arguments} if one.refusal is None else None
        self._state.record("call_proposed", journal.proposed(self._config, one, item.hash, turn), held=held)
        if one.refusal is not None:
            self._settle(item, one.refusal)

    def _item(self, one: Checked) -> Item:
        if one.refusal is not None:
            return Item(one.call, one.spec, refusal=one.refusal)
        # Hashed once, from the truth, when the call is read: a resumed run takes the hash from its journal, where the
        # arguments may be masked (X4).
        return Item(one.call, one.spec, self._judging.hash_of(one.call, one.spec))

    # --- judging ----------------------------------------------------------------------------------------------------

    def answered(self, call_id: str, answer: Answer, waited: float) -> Move | None:
        """A person's decision about a call; it holds for this call, and for more only if the person chose so."""
        batch = self._batch
        item = batch.get(call_id) if batch else None
        # An answer may come twice (two windows, a retried web request), or after the run ended: the first one counts.
        if batch is None or item is None or item.state != "asking":
            return None
        if item.handed and answer.allow:  # what is asked for is its result, and not a yes
            return None
        self._judging.answered(item, answer, waited, batch)
        # One that was approved and is the application's to carry out now waits for its result.
        return self._proceed(asked=item.state != "asking")

    def supplied(self, call_id: str, result: ToolResult) -> Move | None:
        """The application carried the call out itself, and this is its result."""
        item = self._batch.get(call_id) if self._batch else None
        if item is None or item.state != "asking" or not item.handed:
            return None
        if item.write:
            remember(self._gate, item.hash, CallRecord(item.call, result, 0.0))
        self._settle(item, result, 0.0, totals=True)
        return self._proceed(asked=True)

    def contested(self, call_id: str, reason: str) -> Move | None:
        """A write that was about to start is found to be one that another run started, with an open outcome."""
        item = self._batch.get(call_id) if self._batch else None
        # Between the batch and its start another run's write was found in the ledger: only the driver can see that one.
        if item is None or item.state != "sent":
            return None
        self._judging.doubt(item, Ask(UNKNOWN_WRITE, reason))
        return self._proceed()

    def refused(self, call_id: str, verdict: Deny) -> Move | None:
        """A call that was about to start finds a limit used up by other runs: judged in the moment of the start."""
        item = self._batch.get(call_id) if self._batch else None
        if item is None or item.state != "sent":
            return None
        self._judging.show_verdict(call_id, verdict)
        self._settle(item, denied(item.call, verdict))
        return self._proceed()

    # --- running --------------------------------------------------------------------------------------------------

    def _proceed(self, *, asked: bool = False) -> Move | None:
        """Ask, run, look up or close, whichever is next."""
        batch = self._batch
        assert batch is not None
        while True:
            if batch.of("asking"):
                if not asked:
                    self._state.command(AskPerson(self.pending()))
                return None
            # One batch at a time (X3): what comes next is planned when all of this one have ended, since a write may
            # depend on it.
            if batch.of("sent", "begun"):
                return None
            if self._state.stopping is not None:
                return EndRun(*self._state.stopping)
            self._give_pages(batch)
            plan = batch.plan(self._gate.writes, lambda item: open_write(item, self._gate, self._state.history))
            for item, ask in plan.ask:
                self._judging.doubt(item, ask)
                asked = False
            if self._begin(plan):
                return None
            if batch.closed and not plan.ask:
                self._close()
                return self._stopped_by(batch) or AskModel()

    def _stopped_by(self, batch: Batch) -> Move | None:
        """The end of a run whose answer is a tool's result."""
        names = self._config.stop_after
        last = next(
            (i.result for i in reversed(batch.items) if i.call.name in names and i.result and i.result.ok), None
        )
        if last is None:
            return None
        self._state.text, self._state.output = last.content, last.value
        return EndRun("answered")

    def _give_pages(self, batch: Batch) -> None:
        """Our own tool is answered here: what it reads is in the run, and a restored run has it as well."""
        for item in batch.of("allowed"):
            if item.spec is READ_RESULT:
                self._settle(item, page(item.call, self._gate.ordered, self._config.max_result), 0.0)

    def _begin(self, plan: Plan) -> bool:
        """Has the next calls looked up or run; False: there is nothing to wait for."""
        if plan.look_up:
            self._look_up(plan.look_up)
            return True
        for item, result in plan.answered:
            self._settle(item, result)
        if plan.execute:
            self._state.phase = "calls"
            self._state.command(Execute(tuple(copied(item.call) for item in plan.execute)))
        return bool(plan.execute)

    def _look_up(self, items: list[Item]) -> None:
        self._state.phase = "calls"
        writes = self._gate.writes
        # The lookup needs the key of the call that was really started; this one only asks for the same thing.
        started = {i.call.id: writes[i.hash].call.id for i in items if i.hash in writes}
        for item in items:
            item.looked_up = True
            item.state = "begun"
        self._state.command(LookUp(tuple(copied(i.call) for i in items), started))

    def began(self, call_id: str) -> None:
        """The executor is about to run it."""
        item = self._batch.get(call_id) if self._batch else None
        if item is None or item.state != "sent":
            # The last line of defence of X1: whatever the executor or a driver does wrong, a call that was not let
            # through does not begin. It is loud, because it is our mistake and not the model's.
            raise PermissionError(f"call {call_id!r} was not allowed to run")
        item.state = "begun"
        if item.write:
            # Before the tool is called, and durable: after a crash this entry is all that tells a started write from
            # one that was not.
            held = {call_id: item.call.arguments}
            self._state.record("call_intent", journal.intent(self._config, item), durable=True, held=held)
        self._state.emit(CallStarted(call_id, item.call.name))

    def progressed(self, value: Progressed) -> None:
        """What a running tool reports."""
        item = self._batch.get(value.call_id) if self._batch else None
        if item is not None and item.state == "begun":
            self._state.emit(CallProgress(value.call_id, value.value))

    def ran(self, call_id: str, result: ToolResult, duration: float | None) -> Move | None:
        """A call ended, or its outcome was looked up."""
        item = self._batch.get(call_id) if self._batch else None
        # A result after the end or after the call was settled changes nothing: each call has one (X2).
        if item is None or item.state not in ("sent", "begun"):
            return None
        earlier = self._gate.writes.get(item.hash) if item.looked_up else None
        if item.looked_up and earlier is not None and earlier.call.id != call_id:
            self._learn(earlier, item.hash, result)
            if result.status in WITHOUT_EFFECT:  # the earlier one did nothing after all: this one may start
                item.state = "allowed"
                return self._proceed()
            result, duration = replayed(result, call_id), None
        elif item.write and item.state == "begun":
            remember(self._gate, item.hash, CallRecord(item.call, result, duration))
        self._settle(item, result, duration)
        return self._proceed()

    def _learn(self, earlier: CallRecord, hash: str, result: ToolResult) -> None:
        """The outcome of a write became known after its result had been given."""
        # Still nothing is known: the question stays open, and the model is told so once more.
        if result.status in UNKNOWN:
            return
        known = replace(result, call_id=earlier.call.id, replayed=False)
        remember(self._gate, hash, replace(earlier, result=known))
        data = {"call_id": earlier.call.id, "result": dump_event(known), "by": "lookup"}
        self._state.record("call_settled", data, durable=True)

    # --- results --------------------------------------------------------------------------------------------------

    def _settle(self, item: Item, result: ToolResult, duration: float | None = None, *, totals: bool = False) -> None:
        """The one result of a call, and of the identical reads that shared its execution."""
        if item.state == "done":
            return
        item.state, item.result, item.duration = "done", result, duration
        state = self._state
        state.finished.append(CallRecord(item.call, result, duration))
        state.emit(CallFinished(item.call.id, item.call.name, result, duration))
        data: dict[str, object] = {"call_id": item.call.id, "tool": item.call.name, "duration": duration}
        data["result"] = dump_event(result)
        if totals:  # another agent may have used something
            data |= {"requests": state.requests, **state.totals()}
        state.record("call_result", data, durable=item.write and duration is not None)
        # Only from the first cut result on: a tool that is never needed would cost tokens in every request, and confuse
        # small models.
        if result.size and not self._own_pages and READ_RESULT not in state.tools:
            state.offer(READ_RESULT)
        for twin in item.copies:
            self._settle(twin, replace(result, call_id=twin.call.id))

    def _close(self) -> None:
        """Every call has its result: the turn enters the history."""
        batch, ordered = self._batch, self._gate.ordered
        assert batch is not None
        pairs: list[tuple[ToolResult, str]] = []
        first = len(ordered)
        for item in batch.items:
            assert item.result is not None
            ordered.append(CallRecord(item.call, item.result, item.duration))
        # In the order of the model, not of the endings: advice about repetition must not depend on which read was
        # faster.
        records = [*self._state.finished[: batch.before], *ordered[first:]]
        advice = [a.advice(records, batch.before, self._state.specs) for a in self._advisors]
        for item, record in zip(batch.items, ordered[first:], strict=True):
            changed = [EDITED] if item.edited else []
            advised = [f"[{given[record.call.id]}]" for given in advice if record.call.id in given]
            pairs.append((record.result, "\n\n".join([*changed, record.result.content, *advised])))
        self._gate.batch = None
        self._state.enter(self._state.history.turn(batch.message, pairs))

    @property
    def in_flight(self) -> bool:
        """Whether calls run whose end the executor will tell."""
        return self._batch is not None and any(not item.looked_up for item in self._batch.of("begun"))

    def withdraw(self, reason: RunReason) -> None:
        """What has not begun never does."""
        assert self._batch is not None
        for item in self._batch.items:
            # What has begun brings its own result, at the latest when its grace is over (X6).
            if item.state not in ("done", "begun"):
                self._settle(item, self._unfinished(item, reason))

    def close_for(self, reason: RunReason) -> None:
        """The run ends: what has no result gets one."""
        if self._batch is not None:
            self._close_with(reason)

    def _close_with(self, reason: RunReason) -> None:
        assert self._batch is not None
        for item in self._batch.items:
            if item.state != "done":
                self._settle(item, self._unfinished(item, reason), 0.0 if self._has_begun(item) else None)
        self._close()

    def _unfinished(self, item: Item, reason: RunReason) -> ToolResult:
        why = WHY.get(reason, reason)
        if not self._has_begun(item):
            return settled(item.call, "not_started", why)
        if item.write:
            # Never "cancelled" for a write that was started: nobody knows how far it came, and the model would do it
            # again.
            return results.unknown_outcome(item.call, why)
        return settled(item.call, "cancelled", why)

    def _has_begun(self, item: Item) -> bool:
        """Whether it was started itself: one that waits for the lookup of an identical earlier write was not."""
        earlier = self._gate.writes.get(item.hash) if item.looked_up else None
        if item.handed and item.state == "asking":  # the application may have begun it, or not
            return item.write
        return item.state == "begun" and (earlier is None or earlier.call.id == item.call.id)

    # --- taken up again -------------------------------------------------------------------------------------------

    def resume(self) -> Move | None:
        """Started writes are looked up, never started again; everything else is judged afresh."""
        batch = self._batch
        if batch is None:
            return AskModel()
        for item in batch.items:
            if item.refusal is not None:
                self._settle(item, item.refusal)
            elif item.lost and item.state != "done":
                self._give_up(item)
        begun = [item for item in batch.of("begun") if item.write]
        # Reads of a run that was cut off are simply run again; a write that had begun is looked up (X4).
        for item in batch.of("sent", "begun"):
            if item not in begun:
                item.state = "allowed"
            # They are planned anew, and may find each other again.
            item.copies = ()
        # Afresh, because permissions, rules and tools may have changed while the run lay there (G3).
        for item in batch.of("ready", "allowed"):
            self._judging.judge(item)
        if begun:
            self._look_up(begun)
            return None
        return self._proceed()

    def _give_up(self, item: Item) -> None:
        """A call whose true arguments are not kept cannot go on."""
        why = "its arguments held a secret that the ledger does not keep (hold_secrets)"
        if item.state == "begun" and item.write:
            result = results.unknown_outcome(item.call, f"{why}, so it cannot be looked up")
            remember(self._gate, item.hash, CallRecord(item.call, result))
            self._settle(item, result, 0.0)
        else:
            self._settle(item, settled(item.call, "not_started", why))
