"""The gate's verdict on a call, and what people decide about it.

Law: that of `Calls` (callgate/run/_calls.py): a call is `allowed` only after a verdict on exactly its arguments and,
where people were asked, their yes to them (X1, G3).
(tests/test_run_sides.py::test_only_an_allowed_call_is_executed)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from callgate import policy
from callgate.events import CallJudged, dump_event
from callgate.keys import arguments_hash, without_defaults
from callgate.policy import Answer, JudgeContext, Sources
from callgate.run._batch import UNKNOWN_WRITE, Batch, Item, approve, copied, settled
from callgate.run._doubt import open_write
from callgate.types import EXTERNAL, Ask, Deny, ToolCall, ToolResult, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.run._state import RunState

Settle = Callable[[Item, ToolResult], None]
Edit = Callable[[ToolCall, ToolSpec, Answer], "ToolCall | str"]
"""The call with the arguments of a person's answer, or why they do not fit."""


class Judging:
    """Judges the calls of one run."""

    def __init__(self, state: RunState, settle: Settle, edit: Edit | None) -> None:
        self._state = state
        self._config = state.config
        self._gate = state.gate
        self._settle = settle
        self._with_edits = edit
        # Made when a rule first asks: only the rule of taint does, and going through a long history costs.
        self._sources: Sources | None = None

    def judge(self, item: Item) -> None:
        """The verdict on a call, and what follows from it."""
        verdict = self._verdict(item)
        passed = self._gate.passed
        # A call that is asked about counts for the rules as well: two payments that wait together are two payments.
        if not isinstance(verdict, Deny) and item.call.id not in passed:
            passed[item.call.id] = copied(item.call)
        match verdict:
            case Deny():
                self._settle(item, denied(item.call, verdict))
            case Ask() if not self._is_approved(item):
                self._ask(item, verdict)
            case _:
                self._allow(item)

    def _allow(self, item: Item) -> None:
        """It may run: here, or where the application carries it out."""
        item.state = "allowed"
        known = item.write and item.spec is not None and not item.spec.repeatable and item.hash in self._gate.writes
        # An identical write is answered from its result, whoever would carry it out (rule 5).
        if item.call.name not in self._config.external or known:
            return
        doubt = open_write(item, self._gate, self._state.history) if item.write else None
        if doubt is not None:
            self.doubt(item, doubt)
        else:
            self._ask(item, Ask(EXTERNAL, "the application carries it out; its result is awaited"))

    def _is_approved(self, item: Item) -> bool:
        return item.approved or item.hash in self._gate.same or item.call.name in self._gate.tools

    def _ask(self, item: Item, ask: Ask) -> None:
        """A person must decide about the call."""
        item.state, item.ask = "asking", ask
        # Durable: people may answer days later, from another process, and what they saw must stand there.
        data = {"call_id": item.call.id, "tool": item.call.name, "arguments": item.call.arguments}
        self._state.record("ask", data | {"rule": ask.rule, "reason": ask.reason}, durable=True)

    def _verdict(self, item: Item) -> Verdict:
        assert item.spec is not None
        call_id = item.call.id
        context = JudgeContext(
            self._config.principal,
            self._state.finished,
            self._others(call_id),
            self._state.now,
            self._config.recent or (lambda tool, seconds: 0),
            self._config.resolve,
            self._known,
        )
        verdict = policy.judge(self._config.rules, item.call, item.spec, context)
        self.show_verdict(call_id, verdict)
        return verdict

    def _others(self, call_id: str) -> list[ToolCall]:
        if len(self._gate.passed) <= (call_id in self._gate.passed):
            return []
        # Without the call itself: it is judged a second time after its approval, and must not be its own repetition;
        # and without those that have ended, which stand among the records already and must not count twice.
        ended = {item.call.id for item in self._gate.batch.of("done")} if self._gate.batch else set()
        return [call for other, call in self._gate.passed.items() if other != call_id and other not in ended]

    def _known(self) -> Sources:
        """What was written and seen so far."""
        if self._sources is None:
            self._sources = Sources.of(self._config.tools, self._config.instructions)
        return self._sources.update(self._state.history.messages)

    def show_verdict(self, call_id: str, verdict: Verdict) -> None:
        """Shows and records a verdict."""
        self._state.emit(CallJudged(call_id, verdict))
        self._state.record("call_judged", {"call_id": call_id, "verdict": dump_event(verdict)})

    def answered(self, item: Item, answer: Answer, waited: float, batch: Batch) -> None:
        """Takes over a person's decision."""
        expires = self._config.approval_expires
        # Calendar time, and not the run's: this stands still while people think.
        late = expires is not None and waited > expires
        accepted = answer.allow and not late
        wrong = self._edit(item, answer) if accepted and answer.arguments is not None else None
        data = {
            "call_id": item.call.id,
            "allow": answer.allow,
            "scope": answer.scope,
            "by": answer.by,
            "waited": waited,
        }
        data |= {"accepted": accepted and wrong is None}
        held = None
        if item.edited:
            data |= {"tool": item.call.name, "edited": item.call.arguments, "arguments_hash": item.hash}
            held = {item.call.id: item.call.arguments}
        self._state.record("answer", data, durable=True, held=held)
        if not answer.allow:
            self._settle(item, settled(item.call, "denied", "a person declined it"))
        elif late:
            self._settle(item, settled(item.call, "denied", f"the approval came after {expires:g} seconds, too late"))
        elif wrong is not None:
            self._settle(item, settled(item.call, "denied", f"a person gave it arguments that do not fit: {wrong}"))
        else:
            self._approved(item, answer, batch)

    def _approved(self, item: Item, answer: Answer, batch: Batch) -> None:
        approve(self._gate, item, answer.scope)
        self.judge(item)  # once more: permission is checked at the moment of execution (G3)
        for other in batch.of("asking"):  # what the person chose holds for those that wait beside it
            ours = other.ask is None or other.ask.rule in (UNKNOWN_WRITE, EXTERNAL)
            if not ours and self._is_approved(other):
                self.judge(other)

    def _edit(self, item: Item, answer: Answer) -> str | None:
        """Takes over a person's arguments; why they cannot be the call's, or None."""
        assert item.spec is not None
        assert self._with_edits is not None
        made = self._with_edits(item.call, item.spec, answer)
        if isinstance(made, str):
            return made
        item.call, item.edited = made, True
        item.hash = self.hash_of(item.call, item.spec)
        self._gate.passed.pop(item.call.id, None)  # rules are to see what will run
        return None

    def doubt(self, item: Item, ask: Ask) -> None:
        """A person must decide although the gate let the call through."""
        self.show_verdict(item.call.id, ask)
        self._ask(item, ask)

    def hash_of(self, call: ToolCall, spec: ToolSpec | None) -> str:
        """What the call is known by (X4)."""
        arguments = without_defaults(call.arguments, spec.parameters if spec is not None else {})
        return arguments_hash(call.name, arguments, key=self._config.hash_key)


def denied(call: ToolCall, verdict: Deny) -> ToolResult:
    """The result of a call that a rule denies."""
    return settled(call, "denied", f"denied by the rule {verdict.rule!r}: {verdict.reason}")
