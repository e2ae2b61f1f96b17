"""The run itself: from one answer of the model to the next. See the room's `__init__` for the theory of operation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, assert_never

from callgate import protocols
from callgate.errors import CallgateError
from callgate.events import (
    ProtocolChanged,
    Retrying,
    Routed,
    RunFinished,
    RunStarted,
    TurnFinished,
    TurnStarted,
)
from callgate.history import History
from callgate.keys import idempotency_key
from callgate.policy import Progress, Stop, check
from callgate.protocols import Chosen, Query, Score, Scores
from callgate.reply import TurnReader
from callgate.run import _journal as journal
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
    ScoreText,
    Send,
    Step,
    Tick,
)
from callgate.types import (
    BadCall,
    CallDelta,
    CallRecord,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    RunReason,
    TextDelta,
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
        self.protocol = config.protocol
        self.turn = 0
        """Accepted answers so far."""
        self.requests = 0
        self.usage: dict[str, int] = {}
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
        self._generator: protocols.Turn | None = None
        self._query: Query | None = None
        self._score: Score | None = None
        self._reader: TurnReader | None = None
        self._raw: list[Delta] = []
        self._ids: dict[int, str] = {}
        self._scratch: list[Message] = []
        self._failures = 0
        self._attempts = 0
        self._announced = 0
        self._sent_at = 0.0
        self._last_failure = ""
        self._partial = ""

    # --- what is known of it --------------------------------------------------------------------------------------

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.phase == "ended"

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

    def start(self, messages: Sequence[Message | dict[str, Any]], now: float = 0.0) -> Step:
        """Begin with this history, the prompt last."""
        assert self.phase == "new", "a run starts once"
        self.now, self.step = now, Step()
        self.history = History.adopt(messages)
        self.problems += self.history.notes
        self.calls.checker.speak(next((m.text for m in self.history.messages if m.role == "user"), ""))
        self._record("run_started", journal.started(self.config, self.history), durable=True)
        self.step.events.append(RunStarted(self.config.run_id, self.config.info.name, self.protocol))
        self.ask()
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
                self._received(deltas)
            case Scored(scores):
                self._scored(scores)
            case Failed():
                self._failed(value)
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
                self.stopping = self.stopping or ("provider_error", error)
                self._stop("provider_error", error, "broke")
            case Resumed():
                self._resume()
            case _:
                assert_never(value)
        return step

    # --- asking the model -----------------------------------------------------------------------------------------

    def ask(self) -> None:
        """The next turn begins."""
        fitted = self._fit()
        self._generator = protocols.turn(
            self.protocol,
            history=(*fitted, *self._scratch),
            tools=self.calls.offered(),
            instructions=self.config.instructions,
            info=self.config.info,
            options=self.config.options,
            dialect=self.config.dialect,
            output=self.config.output,
        )
        self._advance(None)

    def _fit(self) -> tuple[Message, ...]:
        if self.config.context is None:
            return self.history.messages
        fitted, dropped = self.history.fit(self.config.context)
        if dropped:
            self._note(f"{len(dropped)} messages did not fit into the context and were left out")
        return fitted.messages

    def _advance(self, value: Reply | Scores | None) -> None:
        """Carry the turn's next steps out, up to one that has to wait (rule 1)."""
        assert self._generator is not None
        try:
            while True:
                match step := self._generator.send(value):
                    case Query():
                        return self._send(step)
                    case Score():
                        return self._ask_scores(step)
                    case Chosen(chooser, tools, confidence):
                        self.step.events.append(Routed(chooser, tools, confidence))
                        data = {"chooser": chooser, "tools": list(tools), "confidence": confidence}
                        self._record("protocol", {"protocol": self.protocol, "chosen": data})
                        value = None
        except StopIteration as stop:
            reply: Reply = stop.value
            return self._accept(reply)
        except CallgateError as error:
            return self.end("provider_error", str(error))

    def _send(self, query: Query, delay: float = 0.0) -> None:
        if not self._may_ask():
            return
        self.phase = "model"
        self._query = query
        self._reader = TurnReader(query.machine() if query.machine else None, rescue=query.rescue)
        self._raw, self._ids = [], {}
        self._sent_at = self.now
        data = {"n": self.requests, "turn": self.turn + 1, "protocol": self.protocol, "purpose": query.purpose}
        self._record("request", data)
        self.step.commands.append(Send(query.request, delay))

    def _ask_scores(self, score: Score) -> None:
        if not self._may_ask():
            return
        self.phase = "score"
        self._score = score
        self._record("request", {"n": self.requests, "turn": self.turn + 1, "protocol": "score"})
        self.step.commands.append(ScoreText(score))

    def _may_ask(self) -> bool:
        """Counts a request, unless a limit is hit (rule 3)."""
        if (stop := check(self.config.rules, self.progress("request"))) is not None:
            self.end(stop.reason, stop.message)
            return False
        self.requests += 1
        if self._announced != self.turn + 1:
            self._announced = self.turn + 1
            self.step.events.append(TurnStarted(self.turn + 1, self.protocol))
        return True

    def progress(self, before: Literal["request", "batch"], batch: Sequence[ToolCall] = (), turn: int = 0) -> Progress:
        """How far the run has come, for the limits."""
        return Progress(
            before,
            turn=turn or self.turn,
            requests=self.requests,
            seconds=self.now,
            usage=self.usage,
            records=self.calls.finished,
            batch=batch,
            specs=self.calls.checker.specs,
        )

    # --- the answer arrives ---------------------------------------------------------------------------------------

    def _received(self, deltas: list[Delta]) -> None:
        if self.phase != "model":
            return
        assert self._reader is not None
        assert self._query is not None
        self._raw += deltas
        out = self._reader.feed(deltas)
        if self._query.visible:
            events = self.step.events
            for delta in out:
                if isinstance(delta, (TextDelta, ReasoningDelta)):
                    events.append(delta)
                elif isinstance(delta, CallDelta):
                    events.append(self._named(delta))
        if self._reader.finished:
            self._replied(self._reader.reply)

    def _named(self, delta: CallDelta) -> CallDelta:
        """The delta under the id that its call will have."""
        if delta.name is None and delta.id is None:
            return delta
        return replace(delta, id=self.id_of(delta.index, delta.id))

    def id_of(self, index: int, given: str | None) -> str:
        """The call's id for good: its own if that is free, else `call_<turn>_<n>`."""
        if index not in self._ids:
            made = f"call_{self.calls.turns_before + self.turn + 1}_{index + 1}"
            taken = self.calls.taken | set(self._ids.values())
            own = given if given and given != f"call_{index + 1}" else None
            self._ids[index] = own if own and own not in taken else free(made, taken)
        return self._ids[index]

    def _replied(self, reply: Reply) -> None:
        self._record_deltas()
        for kind, count in (reply.usage or {}).items():
            self.usage[kind] = self.usage.get(kind, 0) + count
        self.problems += reply.problems
        if reply.finish in ("error", "interrupted"):
            error = reply.error or "the stream ended before the answer did"
            return self._lost(error, again=True, partial=reply.content)
        return self._advance(reply)

    def _record_deltas(self) -> None:
        deltas = journal.dump_deltas(self._raw)
        self._record(
            "delta_merged", {"n": self.requests, "deltas": deltas, "since": round(self.now - self._sent_at, 6)}
        )
        self._raw = []

    def _scored(self, scores: Scores) -> None:
        if self.phase == "score":
            self._record("protocol", {"protocol": self.protocol, "scores": [list(row) for row in scores.values]})
            self._advance(scores)

    # --- what can go wrong with it --------------------------------------------------------------------------------

    def _failed(self, failed: Failed) -> None:
        if self.phase not in ("model", "score"):
            return
        self._record("request", journal.dump_failed(failed, self.requests))
        self._lost(failed.error, again=failed.again, kind=failed.kind, after=failed.after)

    def _lost(self, error: str, *, again: bool, kind: str = "", after: float | None = None, partial: str = "") -> None:
        """No answer came, or only a part: ask again, else step down, else end (rule 2)."""
        self._attempts += 1
        self._partial = partial
        pause = max(after or 0.0, BACKOFF * 2 ** (self._attempts - 1))
        if again and self._attempts <= self.config.retries and pause <= MAX_BACKOFF and self._query is not None:
            self.step.events.append(Retrying(self._attempts, error))
            if self.phase == "score":
                assert self._score is not None
                return self._ask_scores(self._score)
            return self._send(self._query, pause if kind else 0.0)
        refused = kind in ("Overloaded", "BadRequest") and self.calls.offered()
        if refused and self._step_down(error, "refused"):
            self._attempts = 0
            return self.ask()
        if self._last_failure:
            error = f"{self._last_failure}; asked again: {error}"
        return self.end("provider_error", error)

    def reject(self, kind: str, detail: str, reply: Reply) -> None:
        """The answer holds nothing that can be used: it goes back with the reason and leaves no trace (rule 2)."""
        why = self.calls.checker.say(kind, detail=detail)
        self._last_failure = f"the model's answer was {kind}" + (f": {detail}" if detail else "")
        if not self.failed_once(why):
            return self.end("provider_error", self._last_failure)
        if reply.content.strip():
            self._scratch.append(Message("assistant", reply.content))
        if self._scratch or self.history.messages[-1:]:
            self._scratch.append(Message("user", why))
        return self.ask()

    def failed_once(self, why: str) -> bool:
        """Counts an unusable answer; after `retries` of them the ladder steps down. False: there is no step left."""
        self._failures += 1
        if self._failures > self.config.retries and not self._step_down(why, ""):
            return False
        self.step.events.append(Retrying(self._failures, why))
        return True

    def _step_down(self, reason: str, symptom: str) -> bool:
        below = protocols.ladder(self.protocol, self.config.info, why=symptom)
        if below is None:
            return False
        self.step.events.append(ProtocolChanged(self.protocol, below, reason))
        self._record("protocol", {"before": self.protocol, "protocol": below, "reason": reason})
        self.protocol = below
        self._failures = 0
        return True

    # --- the answer is whole --------------------------------------------------------------------------------------

    def _accept(self, reply: Reply) -> None:
        self._attempts = 0
        self._partial = ""
        written: list[ToolCall | BadCall] = sorted([*reply.calls, *reply.incomplete], key=lambda call: call.index)
        named = [call for call in written if call.name]
        if reply.finish == "content_filter":
            self._turn_finished(reply)
            self._say(reply)
            return self.end("provider_error", reply.error or "the server's content filter stopped the answer")
        if named:
            return self.calls.open(reply, named)
        if written:
            return self.reject("truncated" if reply.finish == "length" else "malformed", "no call was complete", reply)
        if not reply.content.strip():
            return self.reject("empty", "", reply)
        self._turn_finished(reply)
        self._say(reply)
        if reply.finish == "length":
            return self.end("token_limit", "the answer was cut off at the length limit of the request")
        return self.end("answered")

    def accepted(self, reply: Reply, *, usable: bool) -> None:
        """The answer counts: as a turn if something in it could be used, else as one more failure."""
        if usable:
            self._failures = 0
            self._scratch = []
        self._turn_finished(reply, counts=usable)

    def _turn_finished(self, reply: Reply, *, counts: bool = True) -> None:
        turn = self.turn + 1
        if counts:
            self.turn = turn
        finish = Finish(reply.finish, reply.usage, reply.raw_finish, reply.error, tuple(reply.problems))
        seconds = round(self.now - self._sent_at, 6)
        self._record(
            "turn",
            {
                "turn": turn,
                "counts": counts,
                "finish": reply.finish,
                "usage": reply.usage and dict(reply.usage),
                "seconds": seconds,
                "protocol": self.protocol,
            },
        )
        self.step.events.append(TurnFinished(turn, finish, seconds))

    def _say(self, reply: Reply) -> None:
        """An answer without calls enters the history."""
        if reply.content.strip():
            self.text = reply.content
            self.enter(self.history.say(Message("assistant", reply.content, reply.reasoning)))

    def enter(self, history: History) -> None:
        """The history grew: what is new is recorded."""
        for message in history.messages[len(self.history.messages) :]:
            self._record("message", {"message": journal.dump_message(message)})
        self.history = history

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
        self._record("turn", data)
        if waits:
            self.stopping = (reason, error)
            self.calls.withdraw(reason)
        else:
            self.end(reason, error)

    def _resume(self) -> None:
        self._record(
            "run_started",
            {"model": self.config.info.name, "principal": journal.principal(self.config), "resumed": True},
        )
        self.step.events.append(RunStarted(self.config.run_id, self.config.info.name, self.protocol, resumed=True))
        if self.phase == "model":
            assert self._query is not None
            self._send(self._query)
        elif self.phase == "score":
            assert self._score is not None
            self._ask_scores(self._score)
        else:
            self.phase = "calls"
            self.calls.resume()

    def stop(self, stop: Stop) -> None:
        """A limit was hit."""
        self.end(stop.reason, stop.message)

    def end(self, reason: RunReason, error: str | None = None) -> None:
        """The run is over: what is open is settled, and the history stays valid (rule 4)."""
        partial = self._partial
        if self.phase == "model" and self._reader is not None and self._raw:
            partial = self._reader.reply.content
            self._record_deltas()
        self.calls.close_for(reason)
        if partial.strip() and self.reason is None:
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
        self._record("run_finished", data, durable=True)
        self.step.events.append(RunFinished(reason, self.text, error, dict(self.usage)))
        self.step.commands.append(End(reason))

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _record(self, kind: str, data: dict[str, Any], *, durable: bool = False) -> None:
        self.step.commands.append(Record(journal.entry(kind, data, self.now), durable))

    record = _record


def free(name: str, taken: set[str]) -> str:
    """The name, or the first variant of it that is not taken."""
    made, n = name, 1
    while made in taken:
        n += 1
        made = f"{name}_{n}"
    return made
