"""The gate of a run: from the calls of an answer to their results.

One law: a call reaches `Execute` only checked, judged and, where people were asked, approved with exactly these
arguments (X1, G3); nothing else leads there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from callgate import policy, results
from callgate.events import CallFinished, CallJudged, CallProgress, CallProposed, CallStarted, dump_event
from callgate.history import History
from callgate.policy import Advisor, Answer, JudgeContext
from callgate.run import _journal as journal
from callgate.run._batch import WITHOUT_EFFECT, Batch, Item, copied, replayed, settled
from callgate.run._check import Checked, Checker
from callgate.run._words import AskPerson, Execute, LookUp, Pending, Progressed
from callgate.types import (
    Ask,
    BadCall,
    CallRecord,
    Deny,
    Message,
    Reply,
    RunReason,
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
)

if TYPE_CHECKING:
    from callgate.run._machine import Run

READ_RESULT = ToolSpec(
    "read_result",
    "Read a later part of a result that was cut. Give the call_id of the cut result, and where to start: the number of "
    "items of a list, or of characters of a text, that were already read.",
    {
        "type": "object",
        "properties": {
            "call_id": {"type": "string", "description": "id of the call whose result was cut"},
            "start": {"type": "integer", "minimum": 0, "description": "items or characters to skip"},
        },
        "required": ["call_id", "start"],
        "additionalProperties": False,
    },
    effect="read",
    polling=True,
)
"""Offered from the first result on that had to be cut (X9)."""
WHY: dict[RunReason, str] = {
    "turn_limit": "the limit of turns is reached",
    "request_limit": "the limit of requests is reached",
    "time_limit": "the time of the run is over",
    "token_limit": "the limit of tokens is reached",
    "call_limit": "the limit of calls is reached",
    "repetition": "the run goes round in circles",
    "cancelled": "the run was cancelled",
    "provider_error": "the run ended with an error",
    "waiting": "it waits for a person's approval",
}


class Calls:
    """Everything about calls that a run knows."""

    def __init__(self, run: Run) -> None:
        config = run.config
        self._run = run
        self._config = config
        self._advisors = [cast("Advisor", rule) for rule in config.rules if hasattr(rule, "advice")]
        self._own_pages = any(spec.name == READ_RESULT.name for spec in config.tools)
        self.checker = Checker(tuple(s for s in config.tools if not s.hidden), config.max_result, config.compile)
        self.checker.said = self._said
        self.finished: list[CallRecord] = []
        """In the order in which they ended."""
        self._ordered: list[CallRecord] = []
        self._batch: Batch | None = None
        self._message = Message("assistant")
        self._before = 0
        self._writes: dict[str, CallRecord] = {}
        self._same: set[str] = set()
        self._tools: set[str] = set()
        self._judged: dict[str, int] = {}
        self._passed: dict[str, ToolCall] = {}
        """Copies of the calls of this turn that were not denied, for rules to see."""

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def turns_before(self) -> int:
        """Answers with calls in the history that the run began with, and those that did not count as turns."""
        return sum(bool(m.calls) for m in self._run.history.messages) - self._run.turn

    def offered(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is told of; for it there are no others (G1)."""
        return self.checker.tools

    def pending(self) -> tuple[Pending, ...]:
        """The calls that wait for a person."""
        items = self._batch.of("asking") if self._batch else []
        return tuple(Pending(copied(item.call), item.ask.rule, item.ask.reason) for item in items if item.ask)

    def snapshot(self) -> History:
        """The history with the open turn in it, as it would stand if the run ended now."""
        if self._batch is None:
            return self._run.history
        pairs = [(r, r.content) for r in (self._as_it_stands(item) for item in self._batch.items)]
        return self._run.history.turn(self._message, pairs)

    def in_order(self) -> list[CallRecord]:
        """Every call and its result, in the order of the model."""
        open_items = self._batch.items if self._batch else []
        return [*self._ordered, *(CallRecord(i.call, self._as_it_stands(i), i.duration) for i in open_items)]

    def _as_it_stands(self, item: Item) -> ToolResult:
        return item.result or self._unfinished(item, self._run.reason or "waiting")

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

    def begun(self) -> list[str]:
        """The calls that run now."""
        return [item.call.id for item in self._batch.of("begun")] if self._batch else []

    # --- a new batch ----------------------------------------------------------------------------------------------

    def open(self, reply: Reply, written: Sequence[ToolCall | BadCall]) -> None:
        """The calls of an accepted answer: checked, shown, held against the limits, judged."""
        run = self._run
        checked = [self._check(call) for call in written]
        valid = [one.call for one in checked if one.refusal is None]
        turn = run.turn + 1
        run.asking.accepted(reply, usable=bool(valid))
        run.phase = "calls"
        self._batch = Batch(checked)
        self._passed = {}
        self._before = len(self.finished)
        self._message = Message("assistant", reply.content, reply.reasoning, tuple(copied(c.call) for c in checked))
        if reply.content.strip():
            run.text = reply.content
        for one, item in zip(checked, self._batch.items, strict=True):
            shown = one.shown or copied(one.call)
            run.step.events.append(CallProposed(shown))
            data = {"call": dump_event(one.call), "turn": turn, "notes": list(one.notes)}
            if isinstance(shown, BadCall):
                data["bad"] = dump_event(shown)
            run.record("call_proposed", data)
            if one.refusal is not None:
                self._settle(item, one.refusal)
        if not valid:
            return self._useless(checked)
        progress = replace(run.progress("batch", valid, turn), asked=len(written))
        if (stop := policy.check(self._config.rules, progress)) is not None:
            self._close_with(stop.reason)
            return run.stop(stop)
        for item in self._batch.of("ready"):
            self._weigh(item)
        return self._proceed()

    def _said(self) -> str:
        return "\n".join(m.text for m in self._run.history.messages if m.role in ("user", "tool"))

    def _check(self, call: ToolCall | BadCall) -> Checked:
        made = self._run.asking.id_of(call.index, call.id)
        return self.checker.check(call, made, masked_is_fine=made in self._config.verdicts)

    def _useless(self, checked: Sequence[Checked]) -> None:
        """Nothing in the answer could be used: it stays in the history with the reasons, and counts as a failure."""
        why = next(one.refusal.content for one in checked if one.refusal is not None)
        self._close()
        if self._run.asking.failed_once(why):
            self._run.asking.ask()
        else:
            self._run.end("provider_error", f"no usable call in the last answers: {why}")

    # --- judging --------------------------------------------------------------------------------------------------

    def _weigh(self, item: Item) -> None:
        """The verdict on a call, and what follows from it."""
        verdict = self._verdict(item)
        if not isinstance(verdict, Deny) and item.call.id not in self._passed:
            self._passed[item.call.id] = copied(item.call)
        match verdict:
            case Deny(rule, reason):
                self._settle(item, settled(item.call, "denied", f"denied by the rule {rule!r}: {reason}"))
            case Ask() if not (item.approved or item.key in self._same or item.call.name in self._tools):
                item.state, item.ask = "asking", verdict
                data = {"call_id": item.call.id, "tool": item.call.name, "arguments": item.call.arguments}
                self._run.record("ask", data | {"rule": verdict.rule, "reason": verdict.reason}, durable=True)
            case _:
                item.state = "allowed"

    def _verdict(self, item: Item) -> Verdict:
        assert item.spec is not None
        assert self._batch is not None
        call_id = item.call.id
        number = self._judged[call_id] = self._judged.get(call_id, 0) + 1
        recorded = self._config.verdicts.get(call_id, ())
        if number <= len(recorded):
            verdict = recorded[number - 1]
        else:
            context = JudgeContext(
                self._config.principal,
                self.finished,
                [call for other, call in self._passed.items() if other != call_id],
                self._run.now,
                self._config.recent or _no_recent,
                self._config.resolve,
            )
            verdict = policy.judge(self._config.rules, item.call, item.spec, context)
        self._run.step.events.append(CallJudged(call_id, verdict))
        self._run.record("call_judged", {"call_id": call_id, "verdict": dump_event(verdict)})
        return verdict

    def answered(self, call_id: str, answer: Answer, waited: float) -> None:
        """A person's decision about a call; it holds for this call, and for more only if the person chose so."""
        item = self._batch.get(call_id) if self._batch else None
        if item is None or item.state != "asking":
            return
        data = {"call_id": call_id, "allow": answer.allow, "scope": answer.scope, "by": answer.by, "waited": waited}
        self._run.record("answer", data, durable=True)
        expires = self._config.approval_expires
        if not answer.allow:
            self._settle(item, settled(item.call, "denied", "a person declined it"))
        elif expires is not None and waited > expires:
            self._settle(item, settled(item.call, "denied", f"the approval came after {expires:g} seconds, too late"))
        else:
            item.approved = True
            if answer.scope != "once":
                self._same.add(item.key)
            if answer.scope == "tool":
                self._tools.add(item.call.name)
            self._weigh(item)  # once more: permission is checked at the moment of execution (G3)
        self._proceed(asked=True)

    # --- running --------------------------------------------------------------------------------------------------

    def _proceed(self, *, asked: bool = False) -> None:
        """Ask, run, look up or close, whichever is next."""
        batch = self._batch
        assert batch is not None
        while True:
            if batch.of("asking"):
                if not asked:
                    self._run.step.commands.append(AskPerson(self.pending()))
                return None
            if batch.of("sent", "begun"):
                return None
            if self._run.stopping is not None:
                reason, error = self._run.stopping
                return self._run.end(reason, error)
            for item in batch.of("allowed"):
                if item.spec is READ_RESULT:
                    self._settle(item, self._page(item.call), 0.0)
            plan = batch.plan(self._writes)
            if plan.look_up:
                return self._look_up(plan.look_up)
            for item, result in plan.answered:
                self._settle(item, result)
            if plan.execute:
                self._run.phase = "calls"
                self._run.step.commands.append(Execute(tuple(copied(item.call) for item in plan.execute)))
                return None
            if batch.closed:
                self._close()
                return self._run.asking.ask()

    def _look_up(self, items: list[Item]) -> None:
        self._run.phase = "calls"
        started = {i.call.id: self._writes[i.key].call.id for i in items if i.key in self._writes}
        for item in items:
            item.looked_up = True
            item.state = "begun"
        self._run.step.commands.append(LookUp(tuple(copied(i.call) for i in items), started))

    def began(self, call_id: str) -> None:
        """The executor is about to run it."""
        item = self._batch.get(call_id) if self._batch else None
        if item is None or item.state != "sent":
            raise PermissionError(f"call {call_id!r} was not allowed to run")
        item.state = "begun"
        if item.write:
            self._run.record("call_intent", journal.intent(self._config, item.call), durable=True)
        self._run.step.events.append(CallStarted(call_id, item.call.name))

    def progressed(self, value: Progressed) -> None:
        """What a running tool reports."""
        item = self._batch.get(value.call_id) if self._batch else None
        if item is not None and item.state == "begun":
            self._run.step.events.append(CallProgress(value.call_id, value.value))

    def ran(self, call_id: str, result: ToolResult, duration: float | None) -> None:
        """A call ended, or its outcome was looked up."""
        item = self._batch.get(call_id) if self._batch else None
        if item is None or item.state not in ("sent", "begun"):
            return None
        earlier = self._writes.get(item.key) if item.looked_up else None
        if item.looked_up and earlier is not None and earlier.call.id != call_id:
            if result.status in WITHOUT_EFFECT:  # the earlier one did nothing after all: this one may start
                del self._writes[item.key]
                item.state = "allowed"
                return self._proceed()
            result, duration = replayed(result, call_id), None
        elif item.write and item.state == "begun":
            self._remember(item, result, duration)
        self._settle(item, result, duration)
        return self._proceed()

    def _remember(self, item: Item, result: ToolResult, duration: float | None) -> None:
        if result.status in WITHOUT_EFFECT:
            self._writes.pop(item.key, None)
        else:
            self._writes[item.key] = CallRecord(item.call, result, duration)

    def _page(self, call: ToolCall) -> ToolResult:
        """A later part of a result that was cut: kept whole, and read without running anything."""
        wanted, start = str(call.arguments["call_id"]), int(call.arguments["start"])
        found = next((r.result for r in self._ordered if r.call.id == wanted), None)
        if found is None or found.value is None:
            return ToolResult(call.id, "not_found", f"no result of a call {wanted!r} is kept")
        text, following = results.page(found.value, start, self._config.max_result - 80)
        more = f"\n[goes on at start={following}]" if following is not None else "\n[this is the end]"
        return ToolResult(call.id, "ok", text + more)

    # --- results --------------------------------------------------------------------------------------------------

    def _settle(self, item: Item, result: ToolResult, duration: float | None = None) -> None:
        """The one result of a call, and of the identical reads that shared its execution."""
        if item.state == "done":
            return
        item.state, item.result, item.duration = "done", result, duration
        self.finished.append(CallRecord(item.call, result, duration))
        run = self._run
        run.step.events.append(CallFinished(item.call.id, item.call.name, result, duration))
        data = {"call_id": item.call.id, "tool": item.call.name, "result": dump_event(result), "duration": duration}
        run.record("call_result", data, durable=item.write and duration is not None)
        if result.size and not self._own_pages and READ_RESULT not in self.checker.tools:
            self.checker.add(READ_RESULT)
        for twin in item.copies:
            self._settle(twin, replace(result, call_id=twin.call.id))

    def _close(self) -> None:
        """Every call has its result: the turn enters the history."""
        assert self._batch is not None
        pairs: list[tuple[ToolResult, str]] = []
        first = len(self._ordered)
        for item in self._batch.items:
            assert item.result is not None
            self._ordered.append(CallRecord(item.call, item.result, item.duration))
        records = [*self.finished[: self._before], *self._ordered[first:]]
        advice = [a.advice(records, self._before, self.checker.specs) for a in self._advisors]
        for record in self._ordered[first:]:
            told = [f"[{given[record.call.id]}]" for given in advice if record.call.id in given]
            pairs.append((record.result, "\n\n".join([record.result.content, *told])))
        message, self._batch = self._message, None
        self._run.enter(self._run.history.turn(message, pairs))

    @property
    def in_flight(self) -> bool:
        """Whether calls run whose end the executor will tell."""
        return self._batch is not None and any(not item.looked_up for item in self._batch.of("begun"))

    def withdraw(self, reason: RunReason) -> None:
        """What has not begun never does."""
        assert self._batch is not None
        for item in self._batch.items:
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
                began = item.state == "begun"
                self._settle(item, self._unfinished(item, reason), 0.0 if began else None)
        self._close()

    def _unfinished(self, item: Item, reason: RunReason) -> ToolResult:
        why = WHY.get(reason, reason)
        if item.state != "begun":
            return settled(item.call, "not_started", why)
        if item.write:
            return results.unknown_outcome(item.call, why)
        return settled(item.call, "cancelled", why)

    # --- taken up again -------------------------------------------------------------------------------------------

    def resume(self) -> None:
        """Started writes are looked up, never started again; everything else is judged afresh."""
        batch = self._batch
        if batch is None:
            return self._run.asking.ask()
        lost = [item for item in batch.of("begun") if item.write]
        for item in batch.of("sent", "begun"):
            if item not in lost:
                item.state = "allowed"
            item.copies.clear()
        for item in batch.of("allowed"):
            self._weigh(item)
        if lost:
            return self._look_up(lost)
        return self._proceed()


def _no_recent(tool: str, seconds: float) -> int:
    return 0
