"""One run of an agent without I/O: inputs go in, events and commands come out.

Law: a run is the fold of its inputs: the same inputs to a fresh `Run` give the same events and commands, so one loop
serves agent, gateway, worker and replay. (tests/test_run.py::test_the_same_inputs_give_the_same_events_and_commands)

Theory of operation. A run goes through phases: `model` (an answer is awaited), `calls` (people decide about calls, and
calls run), `model` again … up to `ended`; `parked` is `calls` after the process let go of a question. What is known of
a run is a `RunState`; its two sides, the model's (`_model_side`) and the gate's (`_calls`), take it, write what they
found out into it and return the next *move*; `Run` makes moves until one has to wait. (1) A turn is a generator of
`protocols`; the run carries its steps out as commands. (2) An answer that cannot be used goes back with the reason,
`retries` times, then the ladder of protocols goes one step down. (3) Limits are checked before each request and before
anything of a batch of calls runs; what is over does not start. (4) Each call gets exactly one result, whatever happens,
and only whole turns enter the history. (5) An identical write of the run is answered, not started. (6) Every input is
recorded before what follows from it is carried out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from callgate.errors import ConfigError
from callgate.events import RunFinished, RunStarted
from callgate.history import History
from callgate.keys import idempotency_key
from callgate.policy import Answer, Progress, check
from callgate.run import _journal as journal
from callgate.run._batch import settle_write
from callgate.run._calls import Calls
from callgate.run._check import Checker
from callgate.run._checking import asked_about_prompt, prompt_decided
from callgate.run._model_side import ModelSide
from callgate.run._restore import Beginning, restored
from callgate.run._state import AskModel, EndRun, Move, Phase, Proposed, RunState, Unusable
from callgate.run._values import Held
from callgate.run.conversation import Conversation, conversation_in
from callgate.run.inputs import (
    Answered,
    AskPerson,
    Began,
    Broke,
    CallInput,
    Cancelled,
    CheckText,
    Command,
    Contested,
    Decided,
    End,
    Execute,
    Failed,
    Input,
    LookUp,
    ModelChoice,
    Parked,
    Pending,
    Progressed,
    Ran,
    Received,
    Record,
    Refused,
    Resumed,
    RunConfig,
    Send,
    Settled,
    Step,
    Supplied,
    Tick,
)
from callgate.types import CallRecord, Entry, Message, RunReason, ToolCall

__all__ = [
    "Answered",
    "AskPerson",
    "Began",
    "Beginning",
    "Broke",
    "Cancelled",
    "CheckText",
    "Command",
    "Contested",
    "Conversation",
    "Decided",
    "End",
    "Execute",
    "Failed",
    "Input",
    "LookUp",
    "ModelChoice",
    "Parked",
    "Pending",
    "Progressed",
    "Ran",
    "Received",
    "Record",
    "Refused",
    "Resumed",
    "Run",
    "RunConfig",
    "Send",
    "Settled",
    "Step",
    "Supplied",
    "Tick",
    "conversation_in",
    "restore",
]


class Run:
    """One run. `start` it, then feed `receive` what its commands bring."""

    def __init__(self, config: RunConfig, state: RunState | None = None) -> None:
        self.config = config
        self.state = state or RunState.of(config)
        self.checker = Checker(self.state)
        self.calls = Calls(self.state, self.checker.edited)
        self.model = ModelSide(self.state)

    # --- what is known of it --------------------------------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """What is awaited."""
        return self.state.phase

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state.phase == "ended"

    @property
    def now(self) -> float:
        """Seconds since it began, without the time that it waited for people or lay stopped."""
        return self.state.now

    @property
    def turn(self) -> int:
        """Accepted answers so far."""
        return self.state.turn

    @property
    def protocol(self) -> str:
        """How the model is asked now."""
        return self.state.protocol

    @property
    def requests(self) -> int:
        """Requests to the model so far."""
        return self.state.requests

    @property
    def usage(self) -> dict[str, int]:
        """Tokens so far."""
        return self.state.usage

    @property
    def reason(self) -> RunReason | None:
        """Why it ended or waits; None while it goes on."""
        return self.state.reason

    @property
    def error(self) -> str | None:
        """What went wrong, in words, if something did."""
        return self.state.error

    @property
    def text(self) -> str:
        """The last answer in words."""
        return self.state.text

    @property
    def output(self) -> object:
        """The final answer as a value, where a form for it was asked for."""
        return self.state.output

    @property
    def problems(self) -> list[str]:
        """What was odd, and what was done about it."""
        return self.state.problems

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, always fit to be sent: calls that wait are shown as not started."""
        return self.calls.snapshot().messages

    @property
    def records(self) -> list[CallRecord]:
        """Every call and its result, in the order of the model."""
        return self.calls.in_order()

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The calls that wait for a person."""
        return self.calls.pending()

    def key_of(self, call: ToolCall) -> str:
        """The idempotency key that a write is started with."""
        return idempotency_key(self.config.key or self.config.run_id, call.id)

    def check_edit(self, call: ToolCall, answer: Answer) -> None:
        """Raises ConfigError for arguments in an answer that the call's tool does not take."""
        spec = next(spec for spec in self.config.tools if spec.name == call.name)
        made = self.checker.edited(call, spec, answer)
        if isinstance(made, str):
            raise ConfigError(f"answers: {call.id}: the arguments do not fit {call.name}: {made}")

    # --- inputs ---------------------------------------------------------------------------------------------------

    def start(self, messages: History | Sequence[Message | dict[str, object]], now: float = 0.0) -> Step:
        """Begins with this history, the prompt last."""
        state = self.state
        assert state.phase == "new", "a run starts once"
        state.now, state.step = now, Step()
        state.history = messages if isinstance(messages, History) else History.adopt(messages)
        state.problems += state.history.notes
        state.totals()  # the notes stand in the first entry
        state.record("run_started", journal.started(self.config, state.history), durable=True)
        state.emit(RunStarted(self.config.run_id, self.config.info.name, state.protocol))
        if not asked_about_prompt(state):
            self._follow(AskModel())
        return state.step

    def receive(self, value: Input) -> Step:
        """Takes one input and returns what follows from it. After the end nothing follows from anything."""
        state = self.state
        step = state.step = Step()
        if isinstance(value, Progressed):
            self.calls.progressed(value)
            return step
        state.now = max(state.now, value.now)  # a clock that jumps back moves nothing
        if state.phase == "ended":
            if isinstance(value, Began):  # a late question must not start anything
                raise PermissionError(f"call {value.call_id!r} may not begin: the run has ended")
            return step
        self._follow(self._dispatch(value))
        return step

    def _dispatch(self, value: Input) -> Move | None:
        match value:
            case Received(deltas):
                return self.model.received(deltas)
            case Failed():
                return self.model.failed(value)
            case Decided(what, decision):
                return prompt_decided(self.state, decision) if what == "prompt" else self.model.checked(decision)
            case Parked():
                self._park()
            case Tick():
                return self._tick()
            case Cancelled():
                return self._stop("cancelled", None, "cancel")
            case Broke(error):
                return self._broke(error)
            case Resumed():
                return self._resume()
            case _:
                return self._of_a_call(value)
        return None

    def _of_a_call(self, value: CallInput) -> Move | None:
        """What became of one call: it began, ended, was decided."""
        match value:
            case Began(call_id):
                self.calls.began(call_id)
            case Progressed():
                self.calls.progressed(value)
            case Ran(call_id, result, duration):
                return self.calls.ran(call_id, result, duration)
            case Answered(call_id, answer, _, waited):
                return self.calls.answered(call_id, answer, waited)
            case Contested(call_id, why):
                return self.calls.contested(call_id, why)
            case Supplied():
                self.state.add_usage(value.usage, value.requests, value.spent)
                return self.calls.supplied(value.call_id, value.result)
            case Refused(call_id, verdict):
                return self.calls.refused(call_id, verdict)
            case Settled(call_id, result):
                settle_write(self.state.gate, call_id, result)
            case _:
                assert_never(value)
        return None

    def _follow(self, move: Move | None) -> None:
        """Makes moves until one has to wait for the world."""
        while move is not None:
            match move:
                case AskModel():
                    move = self.model.ask()
                case Proposed(reply, calls, written):
                    checked = [self.checker.check(call, written) for call in calls]
                    self.model.accepted(reply, usable=any(one.refusal is None for one in checked))
                    move = self.calls.open(reply, checked)
                case Unusable(why):
                    error = f"no usable call in the last answers: {why}"
                    move = AskModel() if self.model.may_ask_again(why) else EndRun("provider_error", error)
                case EndRun(reason, error):
                    self._end(reason, error)
                    move = None
                case _:
                    assert_never(move)

    # --- people, time and the end ---------------------------------------------------------------------------------

    def _park(self) -> None:
        if self.calls.pending() and self.state.phase != "parked":
            self.state.phase = "parked"
            self._finish("waiting", None)

    def _tick(self) -> Move | None:
        stop = check(self.config.rules, Progress("request", seconds=self.state.now))
        if stop is None or stop.reason != "time_limit":
            return None
        return self._stop("time_limit", stop.message, "tick")

    def _broke(self, error: str) -> Move | None:
        """The provider will not answer any more. A reason to stop that was there before stays the run's."""
        self.model.forget()
        self.state.stopping = self.state.stopping or ("provider_error", error)
        return self._stop("provider_error", error, "broke")

    def _stop(self, reason: RunReason, error: str | None, by: str) -> Move | None:
        """The run must end: at once, or when the calls that run now were stopped and brought their results."""
        state = self.state
        waits = state.stopping is None and self.calls.in_flight
        if state.stopping is not None and by == "tick":
            return None
        data = {"turn": state.turn, "stopping": by, "reason": reason, "error": error, "begun": self.calls.begun()}
        state.record("turn", data)
        if not waits:
            return EndRun(reason, error)
        state.stopping = (reason, error)
        self.calls.withdraw(reason)
        return None

    def _resume(self) -> Move | None:
        state, config = self.state, self.config
        state.record("run_started", journal.resumed(config))
        state.emit(RunStarted(config.run_id, config.info.name, state.protocol, resumed=True))
        state.reason = state.error = None
        if state.phase == "model":
            return None if asked_about_prompt(state) else self.model.ask_again()
        state.phase = "calls"
        return self.calls.resume()

    def _end(self, reason: RunReason, error: str | None) -> None:
        """The run is over: what is open is settled, and the history stays valid (rule 4)."""
        state = self.state
        partial = self.model.cut_short()
        self.calls.close_for(reason)
        if partial.strip():
            state.text = partial
            state.enter(state.history.say(Message("assistant", partial)))
        state.phase = "ended"
        self._finish(reason, error)

    def _finish(self, reason: RunReason, error: str | None) -> None:
        state = self.state
        state.reason, state.error = reason, error
        data: dict[str, object] = {"reason": reason, "text": state.text, "error": error, "usage": dict(state.usage)}
        data |= {"turns": state.turn, "requests": state.requests, "seconds": round(state.now, 6), **state.totals()}
        if state.output is not None:
            data["output"] = state.output
        state.record("run_finished", data, durable=True)
        state.emit(RunFinished(reason, state.text, error, dict(state.usage)))
        state.command(End(reason))


def restore(config: RunConfig, entries: Sequence[Entry], held: Held | None = None) -> Run:
    """The run as its journal left it. `held`: the true arguments that the ledger keeps beside it.

    Raises LedgerError for a journal that is damaged, or of an older version and not ended; ToolsChanged if a call that
    waits or has begun finds another tool than it was proposed for.
    """
    return Run(config, restored(config, entries, held))
