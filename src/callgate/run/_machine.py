"""The run itself: from one answer of the model to the next. See the room's `__init__` for the theory of operation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, assert_never

from callgate.events import (
    RunFinished,
    RunStarted,
)
from callgate.history import History
from callgate.keys import idempotency_key
from callgate.policy import Progress, Stop, check
from callgate.run import _journal as journal
from callgate.run._asking import Asking
from callgate.run._calls import Calls
from callgate.run._words import (
    Answered,
    Began,
    Broke,
    Cancelled,
    End,
    Failed,
    Input,
    Parked,
    Pending,
    Progressed,
    Ran,
    Received,
    Record,
    Resumed,
    RunConfig,
    Scored,
    Step,
    Tick,
)
from callgate.types import (
    CallRecord,
    Message,
    Reply,
    RunReason,
    ToolCall,
)

Phase = Literal["new", "model", "score", "calls", "parked", "ended"]
BACKOFF = 0.5
"""Seconds before the first repetition of a failed request; doubled each time."""
MAX_BACKOFF = 30.0
"""A server that wishes a longer pause than this is as good as down."""


class Run:
    """One run. `start` it, then feed `receive` what its commands bring."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.phase: Phase = "new"
        self.turn = 0
        """Accepted answers so far."""
        self.reason: RunReason | None = None
        self.error: str | None = None
        self.text = ""
        self.output: Any = None
        """The final answer as a value, where a form for it was asked for."""
        self.problems: list[str] = []
        self.history = History()
        self.now = 0.0
        self.step = Step()
        self.stopping: tuple[RunReason, str | None] | None = None
        """Why the run ends as soon as the calls that run now have ended."""
        self.calls = Calls(self)
        self.asking = Asking(self)

    # --- what is known of it --------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.phase == "ended"

    @property
    def protocol(self) -> str:
        """How the model is asked now."""
        return self.asking.protocol

    @property
    def requests(self) -> int:
        """Requests to the model so far."""
        return self.asking.requests

    @property
    def usage(self) -> dict[str, int]:
        """Tokens so far."""
        return self.asking.usage

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation, always fit to be sent: calls that wait are shown as not started."""
        return self.calls.snapshot().messages

    @property
    def records(self) -> list[CallRecord]:
        """Every call and its result, in the order of the model."""
        return self.calls.in_order()

    def key_of(self, call: ToolCall) -> str:
        """The idempotency key that a write is started with."""
        return idempotency_key(self.config.key or self.config.run_id, call.id)

    @property
    def pending(self) -> tuple[Pending, ...]:
        """The calls that wait for a person."""
        return self.calls.pending()

    # --- inputs ---------------------------------------------------------------------------------------------------

    def start(self, messages: History | Sequence[Message | dict[str, Any]], now: float = 0.0) -> Step:
        """Begin with this history, the prompt last."""
        assert self.phase == "new", "a run starts once"
        self.now, self.step = now, Step()
        self.history = messages if isinstance(messages, History) else History.adopt(messages)
        self.problems += self.history.notes
        self.calls.checker.speak(next((m.text for m in self.history.messages if m.role == "user"), ""))
        self.record("run_started", journal.started(self.config, self.history), durable=True)
        self.step.events.append(RunStarted(self.config.run_id, self.config.info.name, self.protocol))
        self.asking.ask()
        return self.step

    def receive(self, value: Input) -> Step:
        """One input; what follows from it. After the end nothing follows from anything."""
        step = self.step = Step()
        if isinstance(value, Progressed):
            self.calls.progressed(value)
            return step
        self.now = max(self.now, value.now)  # a clock that jumps back moves nothing
        if self.phase == "ended":
            if isinstance(value, Began):  # whoever asks late must not go on
                raise PermissionError(f"call {value.call_id!r} may not begin: the run has ended")
            return step
        match value:
            case Received(deltas):
                self.asking.received(deltas)
            case Scored(scores):
                self.asking.scored(scores)
            case Failed():
                self.asking.failed(value)
            case Began(call_id):
                self.calls.began(call_id)
            case Ran(call_id, result, duration):
                self.calls.ran(call_id, result, duration)
            case Answered(call_id, answer, _, waited):
                self._answered(call_id, answer, waited)
            case Parked():
                self._park()
            case Tick():
                self._tick()
            case Cancelled():
                self._stop("cancelled", None, "cancel")
            case Broke(error):
                self.asking.forget()
                self.stopping = self.stopping or ("provider_error", error)
                self._stop("provider_error", error, "broke")
            case Resumed():
                self._resume()
            case _:
                assert_never(value)
        return step

    # --- for its two sides ----------------------------------------------------------------------------------------

    def progress(self, before: Literal["request", "batch"], batch: Sequence[ToolCall] = (), turn: int = 0) -> Progress:
        """How far the run has come, for the limits."""
        return Progress(
            before,
            turn=turn or self.turn,
            requests=self.requests,
            seconds=self.now,
            usage=self.usage,
            tokens=self.asking.spent,
            records=self.calls.finished,
            batch=batch,
            specs=self.calls.checker.specs,
        )

    def say(self, reply: Reply) -> None:
        """An answer without calls enters the history."""
        if reply.content.strip():
            self.text = reply.content
            self.enter(self.history.say(Message("assistant", reply.content, reply.reasoning)))

    def enter(self, history: History) -> None:
        """The history grew: what is new is recorded."""
        for message in history.messages[len(self.history.messages) :]:
            self.record("message", {"message": journal.dump_message(message)})
        self.history = history

    def note(self, problem: str) -> None:
        """Something odd, told once."""
        if problem not in self.problems:
            self.problems.append(problem)

    def record(self, kind: str, data: dict[str, Any], *, durable: bool = False) -> None:
        """An entry for the journal."""
        self.step.commands.append(Record(journal.entry(kind, data, self.now), durable))

    # --- people, time and the end ---------------------------------------------------------------------------------

    def _answered(self, call_id: str, answer: Any, waited: float) -> None:
        if self.phase != "model":
            self.calls.answered(call_id, answer, waited)

    def _park(self) -> None:
        if not self.calls.pending() or self.phase == "parked":
            return
        self.phase = "parked"
        self._finish("waiting", None)

    def _tick(self) -> None:
        stop = check(self.config.rules, Progress("request", seconds=self.now))
        if stop is not None and stop.reason == "time_limit":
            self._stop("time_limit", stop.message, "tick")

    def _stop(self, reason: RunReason, error: str | None, by: str) -> None:
        """The run must end: at once, or when the calls that run now have been stopped and told how they ended."""
        waits = self.stopping is None and self.calls.in_flight
        if self.stopping is not None and by == "tick":
            return
        data = {"turn": self.turn, "stopping": by, "error": error, "begun": self.calls.begun()}
        self.record("turn", data)
        if waits:
            self.stopping = (reason, error)
            self.calls.withdraw(reason)
        else:
            self.end(reason, error)

    def _resume(self) -> None:
        self.record(
            "run_started",
            {"model": self.config.info.name, "principal": journal.principal(self.config), "resumed": True},
        )
        self.step.events.append(RunStarted(self.config.run_id, self.config.info.name, self.protocol, resumed=True))
        self.reason = self.error = None
        if self.phase in ("model", "score"):
            self.asking.ask_again()
        else:
            self.phase = "calls"
            self.calls.resume()

    def stop(self, stop: Stop) -> None:
        """A limit was hit."""
        self.end(stop.reason, stop.message)

    def end(self, reason: RunReason, error: str | None = None) -> None:
        """The run is over: what is open is settled, and the history stays valid (rule 4)."""
        partial = self.asking.cut_short()
        self.calls.close_for(reason)
        if partial.strip():
            self.text = partial
            self.enter(self.history.say(Message("assistant", partial)))
        self.phase = "ended"
        self._finish(reason, error)

    def _finish(self, reason: RunReason, error: str | None) -> None:
        self.reason, self.error = reason, error
        data: dict[str, Any] = {
            "reason": reason,
            "text": self.text,
            "error": error,
            "usage": dict(self.usage),
        }
        data |= {"turns": self.turn, "requests": self.requests, "seconds": round(self.now, 6)}
        self.record("run_finished", data, durable=True)
        self.step.events.append(RunFinished(reason, self.text, error, dict(self.usage)))
        self.step.commands.append(End(reason))
