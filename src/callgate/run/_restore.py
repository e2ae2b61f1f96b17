"""A run again from its journal: what was recorded is taken over, nothing is read, mended, checked or hashed anew.

Law: at every step of a run its journal gives the state that the live run has; a damaged journal gives a LedgerError.
(tests/test_run_restore.py::test_a_journal_gives_the_state_of_the_live_run_at_every_step)

Theory of operation. Each entry is one change of the state. (1) Where masking changed a value, the entry says so; what
is only shown may be masked, but the arguments of a call that has no result yet come from those *held* beside the
journal, and where these are missing the call is lost: it will not run. (2) A call is allowed only if its verdict, and
where people were asked their answer, stands in the journal; else it is judged anew. (3) A run whose open calls would
meet other tools than they were proposed for is refused, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from callgate.errors import ConfigError, LedgerError, ToolsChanged
from callgate.events import load_event
from callgate.history import History
from callgate.protocols import choose
from callgate.run._asking import AskingState
from callgate.run._batch import Batch, Item, approve, remember, settle_write
from callgate.run._calls import Calls
from callgate.run._checking import with_prompt
from callgate.run._fields import DAMAGE, Fields, as_message, as_result, is_call, one_of
from callgate.run._journal import SHAPE, identity
from callgate.run._pages import READ_RESULT
from callgate.run._state import RunState
from callgate.run._values import Held
from callgate.run.inputs import RunConfig
from callgate.types import (
    EMPTY,
    Allow,
    Ask,
    CallRecord,
    Deny,
    Entry,
    Message,
    ModelInfo,
    Principal,
    RunReason,
    Schema,
    ToolResult,
)

if TYPE_CHECKING:
    from callgate.dialects import Dialect


@dataclass(slots=True, frozen=True)
class Beginning:
    """What a run was started with, as far as it must be the same when it is taken up again."""

    principal: Principal | None
    tools: tuple[str, ...]
    protocol: str
    dialect: str | None
    key: str
    output: Schema | None

    @classmethod
    def of(cls, entries: Sequence[Entry], own: Mapping[str, Dialect] = EMPTY) -> Beginning:
        """From a journal. Raises LedgerError if it has no beginning that can be read, or was begun with a dialect of
        the application that is not among its `own`."""
        if not entries or entries[0].kind != "run_started" or entries[0].data.get("resumed"):
            raise LedgerError("the journal of this run has no beginning: it cannot be taken up again")
        fields = Fields(entries[0])
        try:
            who = fields.maybe("principal", str)
            return cls(
                None if who is None else Principal(who, frozenset(fields.texts("grants"))),
                tuple(fields.texts("tools")),
                _as_protocol(fields.get("protocol", str), fields, own),
                _as_dialect(fields.maybe("dialect", str), fields, own),
                fields.maybe("key", str) or "",
                fields.maybe("output", Mapping),
            )
        # The entries come from a file or a database that others can write to: whatever is damaged in them must be a
        # clear error, and not an IndexError deep in a run.
        except DAMAGE as error:
            raise fields.damaged(str(error)) from error


def restored(config: RunConfig, entries: Sequence[Entry], held: Held | None = None) -> RunState:
    """The state of a run as its journal left it. `held`: the true arguments that the ledger keeps beside it.

    Raises LedgerError for a journal that is damaged, or of an older version and not ended; ToolsChanged if a call that
    waits or has begun finds another tool than it was proposed for.
    """
    Beginning.of(entries, config.own_dialects)
    state = RunState.of(config)
    restoring = _Restoring(state, held or {})
    for entry in entries:
        restoring.apply(entry)
    restoring.finish()
    ended = state.phase == "ended"
    # One that has ended needs nothing more than its history and results, which all shapes have.
    if not ended and entries[0].data.get("shape") != SHAPE:
        raise LedgerError(
            "this run was recorded by an older callgate, which did not keep what it takes to go on with it: cancel it, "
            "and run it again"
        )
    if not ended:
        _same_tools(state, restoring.identities)
    return state


class _Restoring:
    """Takes a journal over into a state, entry by entry."""

    def __init__(self, state: RunState, held: Held) -> None:
        self.state = state
        self.held = held
        self.identities: dict[str, Mapping[str, object]] = {}
        """Call id -> what its tool was."""
        self._answer: tuple[str, str] = ("", "")
        """Content and reasoning of the answer whose calls follow."""
        self._missing: list[ToolResult] = []
        """Results of the turn that enters the history which have no message yet."""

    def apply(self, entry: Entry) -> None:
        """One entry. Raises LedgerError if it is damaged."""
        fields = Fields(entry)
        # Unknown kinds were refused when the entry was read (ledger); these are known ones that change no state.
        change = _CHANGES.get(entry.kind)
        if change is None:
            return
        try:
            # Entries that the ledger itself adds (a late result, a settlement) have no time of the run.
            if entry.data.get("t") is not None:
                self.state.now = max(self.state.now, fields.seconds("t"))
            change(self, fields)
        except DAMAGE as error:
            raise fields.damaged(f"{type(error).__name__}: {error}") from error

    def finish(self) -> None:
        """The journal is over: what was cut off in the middle of a turn is made whole."""
        self._complete()
        state = self.state
        # `callgate runs cancel` writes the results and the end, but no message: the process that could was not there.
        if state.phase == "ended" and state.gate.batch is not None:  # cancelled while nobody carried it out
            state.history = Calls(state).snapshot()
            self._close()
        if state.phase == "new":
            state.phase = "model"
        # What was recorded once is not to be recorded again.
        state.totals()

    # --- the run ----------------------------------------------------------------------------------------------------

    def started(self, fields: Fields) -> None:
        """`run_started`: the beginning, or a resumption."""
        state = self.state
        if fields.data.get("resumed"):
            if state.phase == "ended":
                raise fields.damaged("the run had ended")
            state.reason = state.error = None
            if state.phase == "parked":
                state.phase = "calls"
            return
        if state.phase != "new":
            raise fields.damaged("the run began twice")
        state.phase = "model"
        messages = [as_message(fields, m) for m in fields.get("messages", list)]
        state.history = History(tuple(messages), tuple(fields.texts("notes")))
        state.problems += state.history.notes

    def request(self, fields: Fields) -> None:
        """`request`: a request went out, with the state of the asking; or one failed."""
        # The attempts stand in the next `request` entry, as the state of the asking.
        if "failed" in fields.data:
            return
        self._complete()
        state = self.state
        state.requests = fields.count("n")
        if "protocol" in fields.data:
            state.protocol = _as_protocol(fields.get("protocol", str), fields, state.config.own_dialects)
        state.phase = "model"
        self._totals(fields)
        asking = Fields(fields.entry, fields.maybe("asking", Mapping) or {})
        written = {name: asking.maybe(name, kind) for name, kind in _ASKING.items()}
        kept: dict[str, Any] = {name: value for name, value in written.items() if value is not None}
        state.asking = AskingState(
            **kept,
            scratch=[as_message(fields, m) for m in asking.maybe("scratch", list) or ()],
            covered=frozenset(int(i) for i in asking.maybe("covered", list) or ()),
        )

    def protocol(self, fields: Fields) -> None:
        """`protocol`: the ladder stepped down, or another model is asked."""
        number = fields.maybe("model", int) or 0
        if 0 < number <= len(self.state.config.others):  # whoever goes on with the run may have given it fewer
            self.state.change_model(number)
        if "before" in fields.data:
            own = self.state.config.own_dialects
            self.state.protocol = _as_protocol(fields.get("protocol", str), fields, own)
            self.state.asking.failures = 0

    def check(self, fields: Fields) -> None:
        """`check`: the application looked at a text."""
        if fields.get("what", str) == "prompt":
            self.state.checked = True
            if fields.get("decision", str) == "changed":
                self.state.history = with_prompt(self.state.history, fields.get("text", str))

    def turn(self, fields: Fields) -> None:
        """`turn`: an answer was accepted, or the run is to stop."""
        state = self.state
        if "stopping" in fields.data:
            reason = fields.maybe("reason", str) or "cancelled"
            state.stopping = (one_of(fields, reason, RunReason), fields.maybe("error", str))
            return
        # As in `ModelSide.accepted`: a usable answer ends the row of failures.
        if fields.data.get("counts"):
            state.turn = fields.count("turn")
            state.asking.failures, state.asking.repeats, state.asking.scratch = 0, 0, []
        state.asking.attempts, state.asking.partial, state.asking.last_failure = 0, "", ""
        self._totals(fields)
        self._answer = (fields.maybe("content", str) or "", fields.maybe("reasoning", str) or "")
        if self._answer[0].strip():
            state.text = self._answer[0]

    def _totals(self, fields: Fields) -> None:
        state = self.state
        if "total" in fields.data:
            total = fields.inside("total")
            state.spent = total.count("spent")
            usage = total.get("usage", Mapping)
            state.usage = {str(kind): int(count) for kind, count in usage.items()}
        state.problems += fields.texts("problems")

    def finished(self, fields: Fields) -> None:
        """`run_finished`: it ended, or waits."""
        self._complete()
        state = self.state
        reason = one_of(fields, fields.get("reason", str), RunReason)
        state.reason, state.error = reason, fields.maybe("error", str)
        state.phase = "parked" if reason == "waiting" else "ended"
        state.text = fields.maybe("text", str) or state.text
        state.output = fields.data.get("output")
        self._totals(fields)

    def message(self, fields: Fields) -> None:
        """`message`: the history grew."""
        state = self.state
        message = as_message(fields, fields.get("message", Mapping))
        batch = state.gate.batch
        if message.role == "tool":
            # The messages of a turn are appended one by one, in the order of its calls; any other order is damage.
            if not self._missing or self._missing[0].call_id != message.call_id:
                raise fields.damaged("it answers no call")
            self._missing.pop(0)
        else:
            self._complete()
            if message.calls:
                if batch is None or [c.id for c in message.calls] != [i.call.id for i in batch.items]:
                    raise fields.damaged("its calls were not proposed")
                self._missing = [i.result for i in batch.items if i.result is not None]
                if len(self._missing) < len(batch.items):
                    raise fields.damaged("a call of it has no result")
                self._close()
            elif message.role == "assistant" and message.text.strip():
                state.text = message.text
        state.history = replace(state.history, messages=(*state.history.messages, message))

    def _close(self) -> None:
        gate = self.state.gate
        assert gate.batch is not None
        gate.ordered += [CallRecord(i.call, i.result, i.duration) for i in gate.batch.items if i.result is not None]
        gate.batch = None

    def _complete(self) -> None:
        """Results whose messages were cut off enter the history."""
        messages = self.state.history.messages
        calls = next((m.calls for m in reversed(messages) if m.calls), ())
        names = {call.id: call.name for call in calls}
        for result in self._missing:
            unknown = result.status == "unknown_outcome"
            name = names.get(result.call_id)
            messages = (
                *messages,
                Message("tool", result.content, call_id=result.call_id, name=name, unknown=unknown),
            )
        self._missing = []
        self.state.history = replace(self.state.history, messages=messages)

    # --- calls ------------------------------------------------------------------------------------------------------

    def proposed(self, fields: Fields) -> None:
        """`call_proposed`: a call as it was read and checked."""
        state, gate = self.state, self.state.gate
        call = load_event({**fields.get("call", Mapping), "type": "tool_call"})
        if not is_call(call) or call.id in self.identities:
            raise fields.damaged("its call cannot be read, or was proposed twice")
        tool = Fields(fields.entry, fields.maybe("tool", Mapping) or {})
        names = {name: tool.maybe(name, str) for name in ("effect", "permission", "parameters")}
        self.identities[call.id] = {**names, "fields": tool.texts("fields")}
        # The list of places decides, and not the text "[masked]", which a model can write itself.
        masked = any(place == "" or place.startswith("/call/arguments") for place in fields.texts("masked"))
        true = self.held.get(call.id) if masked else None
        if true is not None:
            call = replace(call, arguments=dict(true))
        item = Item(call, state.specs.get(call.name), fields.maybe("arguments_hash", str) or "")
        # Without its true arguments a call must not run: `[masked]` would be sent to somebody as a password.
        item.lost = masked and true is None
        if gate.batch is None:
            content, reasoning = self._answer
            gate.batch = Batch([], Message("assistant", content, reasoning), len(state.finished))
            gate.passed = {}
        before = gate.batch
        message = replace(before.message, calls=(*before.message.calls, call))
        # One after another, as they were recorded; each entry is complete in itself, so a crash between two leaves a
        # batch that is shorter and otherwise sound.
        gate.batch = Batch([*before.items, item], message, before.before)
        state.phase = "calls"
        if "refusal" in fields.data:
            item.refusal = as_result(fields, "refusal")

    def _item(self, fields: Fields) -> Item:
        batch = self.state.gate.batch
        item = batch.get(fields.get("call_id", str)) if batch else None
        if item is None:
            raise fields.damaged("it is about no call that is open")
        return item

    def judged(self, fields: Fields) -> None:
        """`call_judged`: a verdict."""
        item, gate = self._item(fields), self.state.gate
        verdict = load_event(fields.get("verdict", Mapping))
        if not isinstance(verdict, (Allow, Ask, Deny)):
            raise fields.damaged("its verdict is none")
        if item.state == "done" or isinstance(verdict, Deny):
            return
        gate.passed.setdefault(item.call.id, item.call)
        approved = item.approved or item.hash in gate.same or item.call.name in gate.tools
        # "ready" is judged again on resume, so an Ask without its `ask` entry loses nothing.
        item.state = "allowed" if isinstance(verdict, Allow) or approved else "ready"

    def asked(self, fields: Fields) -> None:
        """`ask`: a person must decide."""
        item = self._item(fields)
        if item.state == "done":
            raise fields.damaged("its call has a result")
        item.state = "asking"
        item.ask = Ask(fields.get("rule", str), fields.get("reason", str))

    def answered(self, fields: Fields) -> None:
        """`answer`: a person decided."""
        item = self._item(fields)
        if fields.get("allow", bool) and fields.data.get("accepted") is True and item.state == "asking":
            if "edited" in fields.data:
                self._edited(item, fields)
            approve(self.state.gate, item, fields.maybe("scope", str) or "once")
            item.state = "ready"

    def _edited(self, item: Item, fields: Fields) -> None:
        """A person gave the call other arguments."""
        masked = any(place.startswith("/edited") for place in fields.texts("masked"))
        true = self.held.get(item.call.id) if masked else fields.get("edited", dict)
        item.lost, item.edited = true is None, True
        item.call = replace(item.call, arguments=dict(true or {}))
        item.hash = fields.get("arguments_hash", str)
        self.state.gate.passed.pop(item.call.id, None)

    def intent(self, fields: Fields) -> None:
        """`call_intent`: a write began."""
        item = self._item(fields)
        if item.state == "done":
            raise fields.damaged("its call has a result")
        item.state = "begun"
        item.hash = fields.get("arguments_hash", str)

    def result(self, fields: Fields) -> None:
        """`call_result`: a call has its one result."""
        state, item = self.state, self._item(fields)
        if item.state == "done":
            raise fields.damaged("its call has a result already")
        self._totals(fields)
        state.requests = fields.maybe("requests", int) or state.requests
        result = as_result(fields)
        duration = fields.maybe("duration", (int, float))
        record = CallRecord(item.call, result, None if duration is None else float(duration))
        # Only what had begun can have taken effect.
        if item.write and (item.state == "begun" or (item.handed and record.duration is not None)):
            remember(state.gate, item.hash, record)
        item.state, item.result, item.duration = "done", result, record.duration
        state.finished.append(record)
        if result.size and READ_RESULT.name not in state.specs:
            state.offer(READ_RESULT)

    def settled(self, fields: Fields) -> None:
        """`call_settled`: how a write of unknown outcome ended after all."""
        settle_write(self.state.gate, fields.get("call_id", str), as_result(fields))


_ASKING: Mapping[str, type] = {
    **dict.fromkeys(("failures", "attempts", "repeats", "budget"), int),
    **dict.fromkeys(("last_failure", "partial", "summary"), str),
    **dict.fromkeys(("corrected", "reminded", "finalizing"), bool),
}
"""The fields of the state of the asking that an entry may hold, with their kinds; the others have parts."""
_CHANGES: Mapping[str, Callable[[_Restoring, Fields], None]] = {
    "run_started": _Restoring.started,
    "request": _Restoring.request,
    "protocol": _Restoring.protocol,
    "check": _Restoring.check,
    "turn": _Restoring.turn,
    "run_finished": _Restoring.finished,
    "message": _Restoring.message,
    "call_proposed": _Restoring.proposed,
    "call_judged": _Restoring.judged,
    "ask": _Restoring.asked,
    "answer": _Restoring.answered,
    "call_intent": _Restoring.intent,
    "call_result": _Restoring.result,
    "call_settled": _Restoring.settled,
}
"""What `delta_merged` holds is for people: nothing is computed from it."""


def _same_tools(state: RunState, identities: Mapping[str, Mapping[str, object]]) -> None:
    """Raises ToolsChanged if an open call would meet another tool than the one it was proposed for."""
    batch = state.gate.batch
    differences: list[str] = []
    for item in batch.items if batch is not None else ():
        # What has its result does not run any more, whatever became of the tool.
        if item.state == "done" or item.refusal is not None:
            continue
        spec = state.specs.get(item.call.name)
        before = identities[item.call.id]
        how = "there is no such tool any more" if spec is None else _difference(before, identity(spec))
        if how:
            differences.append(f"{item.call.name} (call {item.call.id}): {how}")
    if differences:
        raise ToolsChanged(
            f"the run cannot go on with these tools: {'; '.join(differences)}. "
            "Resume it with the tools that it was started with, or cancel it"
        )


def _difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    found = [
        f"its {name} was {before.get(name)!r} and is {now[name]!r}"
        for name in ("effect", "permission")
        if before.get(name) != now[name]
    ]
    old, new = set(before["fields"]), set(now["fields"])
    found += [f"the parameter {name!r} was added" for name in sorted(new - old)]
    found += [f"the parameter {name!r} was removed" for name in sorted(old - new)]
    if not found and before.get("parameters") != now["parameters"]:
        found.append("the schema of its parameters was changed")
    return ", ".join(found)


def _as_protocol(name: str, fields: Fields, own: Mapping[str, Dialect]) -> str:
    try:
        return choose(ModelInfo(""), (), name, own)
    except ConfigError as error:
        raise _unknown(fields, "protocol", name) from error


def _as_dialect(name: str | None, fields: Fields, own: Mapping[str, Dialect]) -> str | None:
    if name is None or name in own:
        return name
    from callgate import dialects  # plug look-up

    try:
        dialects.get(name)
    except ConfigError as error:
        raise _unknown(fields, "dialect", name) from error
    return name


def _unknown(fields: Fields, what: str, name: str) -> LedgerError:
    # One of the application's own is in no ledger, so whoever goes on with the run has to bring it.
    return fields.damaged(f"the {what} {name!r} is unknown; if it is one of your own, give it to the agent")
