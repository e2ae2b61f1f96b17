"""The model's side of a run: requests go out, answers come in, and what cannot be used is asked for again.

One law: nothing of an answer counts before its `Finish`, and every way of asking again is bounded: `retries` for one
failure, the ladder of protocols for many, the limits of requests, tokens and time over all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from callgate import protocols
from callgate.errors import CallgateError
from callgate.events import ProtocolChanged, Retrying, Routed, TurnFinished, TurnStarted
from callgate.history import tokens
from callgate.policy import check
from callgate.protocols import Chosen, Query, Score, Scores, Turn
from callgate.reply import TurnReader
from callgate.run import _journal as journal
from callgate.run._context import Context, summary_turn
from callgate.run._words import Failed, ScoreText, Send
from callgate.schema import mend
from callgate.types import (
    BadCall,
    CallDelta,
    Delta,
    Finish,
    Message,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
)

if TYPE_CHECKING:
    from callgate.run._machine import Run

BACKOFF = 0.5
"""Seconds before the first repetition of a failed request; doubled each time."""
MAX_BACKOFF = 30.0
"""A server that wishes a longer pause than this is as good as down."""
REFUSED = frozenset({"BadRequest", "ProtocolBroken"})
"""Failures, beside a 500, that may come from the tools or the schema in a request: servers fall over their own
parsers. Then a protocol without them is tried."""


class Asking:
    """Everything about requests and answers that a run knows."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._config = run.config
        self.protocol = run.config.protocol
        self.requests = 0
        self.usage: dict[str, int] = {}
        self.spent = 0
        """Tokens for the budget: as the server counts, and estimated where it does not tell."""
        self._weighed: dict[int, tuple[Message, int]] = {}
        """What the messages of the last request were taken to cost, by identity."""
        self._context = Context(run.config.context, summarize=run.config.summarize)
        self._generator: Turn | None = None
        self._query: Query | None = None
        self._score: Score | None = None
        self._reader: TurnReader | None = None
        self._raw: list[Delta] = []
        self._ids: dict[int, str] = {}
        self._taken: set[str] = set()
        self._scratch: list[Message] = []
        """Answers that could not be used, and why: the model sees them until one can."""
        self._failures = 0
        self._attempts = 0
        self._announced = 0
        self._sent_at = 0.0
        self._last_failure = ""
        self._partial = ""
        self._finalizing = False
        self._summarizing = False

    # --- requests -------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """The next turn begins, or the same one once more."""
        config = self._config
        fitted, dropped = self._context.fit(self._run.history)
        if dropped and config.summarize:
            self._summarizing = True
            self._generator = summary_turn(self._context.to_sum_up(dropped), config.options)
            return self._advance(None)
        if dropped:
            self._run.note(f"{len(dropped)} messages did not fit into the context and were left out")
        history = (*fitted, *self._scratch)
        if self._finalizing:
            assert config.output is not None
            self._generator = protocols.final(
                config.output,
                history=history,
                instructions=config.instructions,
                info=config.info,
                options=config.options,
            )
        else:
            self._generator = protocols.turn(
                self.protocol,
                history=history,
                tools=self._run.calls.offered(),
                instructions=config.instructions,
                info=config.info,
                options=config.options,
                dialect=config.dialect,
                output=config.output,
            )
        return self._advance(None)

    def ask_again(self) -> None:
        """The request whose answer never came, once more."""
        if self._run.phase == "score":
            assert self._score is not None
            self._ask_scores(self._score)
        else:
            assert self._query is not None
            self._send(self._query)

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
                        self._run.step.events.append(Routed(chooser, tools, confidence))
                        data = {"chooser": chooser, "tools": list(tools), "confidence": confidence}
                        self._run.record("protocol", {"protocol": self.protocol, "chosen": data})
                        value = None
        except StopIteration as stop:
            reply: Reply = stop.value
            return self._summed_up(reply) if self._summarizing else self._accept(reply)
        except CallgateError as error:
            return self._run.end("provider_error", str(error))

    def _send(self, query: Query, delay: float = 0.0) -> None:
        run = self._run
        if not self._may_ask():
            return
        run.phase = "model"
        self._query = query
        self._reader = TurnReader(query.machine() if query.machine else None, rescue=query.rescue)
        self._raw, self._ids = [], {}
        self._sent_at = run.now
        data = {"n": self.requests, "turn": run.turn + 1, "protocol": self.protocol, "purpose": query.purpose}
        run.record("request", data)
        run.step.commands.append(Send(query.request, delay))

    def _ask_scores(self, score: Score) -> None:
        if not self._may_ask():
            return
        self._run.phase = "score"
        self._score = score
        self._run.record("request", {"n": self.requests, "turn": self._run.turn + 1, "protocol": "score"})
        self._run.step.commands.append(ScoreText(score))

    def _may_ask(self) -> bool:
        """Counts a request, unless a limit is hit (rule 3)."""
        run = self._run
        if (stop := check(self._config.rules, run.progress("request"))) is not None:
            run.end(stop.reason, stop.message)
            return False
        self.requests += 1
        if self._announced != run.turn + 1:
            self._announced = run.turn + 1
            run.step.events.append(TurnStarted(run.turn + 1, self.protocol))
        return True

    # --- the answer arrives ---------------------------------------------------------------------------------------

    def received(self, deltas: list[Delta]) -> None:
        """A part of the answer."""
        if self._run.phase != "model":
            return
        assert self._reader is not None
        assert self._query is not None
        self._raw += deltas
        out = self._reader.feed(deltas)
        if self._query.visible:
            events = self._run.step.events
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
        return CallDelta(delta.index, self.id_of(delta.index, delta.id), delta.name, delta.arguments)

    def id_of(self, index: int, given: str | None) -> str:
        """The call's id for good: its own if that is free, else `call_<turn>_<n>`."""
        if index not in self._ids:
            if not self._ids:
                self._taken = self._run.history.ids()
            made = f"call_{self._run.calls.turns_before + self._run.turn + 1}_{index + 1}"
            own = given if given and given != f"call_{index + 1}" else None
            self._ids[index] = own if own and own not in self._taken else free(made, self._taken)
            self._taken.add(self._ids[index])
        return self._ids[index]

    def _replied(self, reply: Reply) -> None:
        self._record_deltas()
        for kind, count in (reply.usage or {}).items():
            self.usage[kind] = self.usage.get(kind, 0) + count
        self.spent += self._spent(reply)
        self._run.problems += reply.problems
        if reply.finish in ("error", "interrupted"):
            error = reply.error or "the stream ended before the answer did"
            return self._lost(error, again=True, partial=reply.content)
        return self._advance(reply)

    def _spent(self, reply: Reply) -> int:
        if reply.usage:
            return reply.usage.get("input", 0) + reply.usage.get("output", 0)
        if self._query is None:
            return 0
        sent = self._query.request.messages
        said = Message("assistant", reply.content, reply.reasoning, tuple(reply.calls))
        before, self._weighed = self._weighed, {}
        for m in sent:  # most of them were sent and weighed with the last request too
            known = before.get(id(m))
            self._weighed[id(m)] = known or (m, tokens(m))
        return tokens(said) + sum(self._weighed[id(m)][1] for m in sent)

    def _record_deltas(self) -> None:
        since = round(self._run.now - self._sent_at, 6)
        data = {"n": self.requests, "deltas": journal.dump_deltas(self._raw), "since": since}
        self._run.record("delta_merged", data)
        self._raw = []

    def scored(self, scores: Scores) -> None:
        """The likelihoods are there."""
        if self._run.phase == "score":
            data = {"protocol": self.protocol, "scores": [list(row) for row in scores.values]}
            self._run.record("protocol", data)
            self._advance(scores)

    def cut_short(self) -> str:
        """The run ends: what has come of an answer so far, recorded."""
        if self._run.phase == "model" and self._reader is not None and self._raw:
            self._partial = self._reader.reply.content if not self._summarizing else ""
            self._record_deltas()
        return self._partial

    def forget(self) -> None:
        """Something broke: what is half there is not touched any more."""
        self._reader, self._raw = None, []

    # --- what can go wrong ----------------------------------------------------------------------------------------

    def failed(self, failed: Failed) -> None:
        """The request failed before anything of its answer came."""
        if self._run.phase in ("model", "score"):
            self._run.record("request", journal.dump_failed(failed, self.requests))
            refused = failed.kind in REFUSED or failed.status == 500
            self._lost(failed.error, again=failed.again, kind=failed.kind, after=failed.after, refused=refused)

    def _lost(
        self,
        error: str,
        *,
        again: bool,
        kind: str = "",
        after: float | None = None,
        refused: bool = False,
        partial: str = "",
    ) -> None:
        """No answer came, or only a part: ask again, else step down, else end (rule 2)."""
        run = self._run
        if partial and not self._summarizing:
            self._partial = partial
        if kind == "ContextTooLong" and self._context.shrink(run.history):
            run.step.events.append(Retrying(1, error))
            return self.ask()
        self._attempts += 1
        pause = max(after or 0.0, BACKOFF * 2 ** (self._attempts - 1))
        if again and self._attempts <= self._config.retries and pause <= MAX_BACKOFF:
            run.step.events.append(Retrying(self._attempts, error))
            self._last_failure = self._last_failure or error
            if run.phase == "score" or self._query is None:
                return self.ask_again()
            return self._send(self._query, pause if kind else 0.0)
        asked_much = self._query is not None and (self._query.request.tools or self._query.request.schema)
        if refused and asked_much and self._step_down(error, "refused"):
            self._attempts = 0
            return self.ask()
        if self._last_failure not in ("", error):
            error = f"{self._last_failure}; asked again: {error}"
        return run.end("provider_error", error)

    def _reject(self, kind: str, detail: str, reply: Reply) -> None:
        """The answer holds nothing that can be used: it goes back with the reason and leaves no trace (rule 2)."""
        why = self._run.calls.checker.say(kind, detail=detail)
        how = "not the output that was asked for" if kind == "output" else kind
        self._last_failure = f"the model's answer was {how}" + (f": {detail}" if detail else "")
        if not self.failed_once(why):
            return self._run.end("provider_error", self._last_failure)
        if reply.content.strip():
            self._scratch.append(Message("assistant", reply.content))
        self._scratch.append(Message("user", why))
        return self.ask()

    def failed_once(self, why: str) -> bool:
        """Counts an unusable answer; after `retries` of them the ladder steps down. False: there is no step left."""
        self._failures += 1
        if self._failures > self._config.retries and (self._finalizing or not self._step_down(why, "")):
            return False
        self._run.step.events.append(Retrying(max(self._failures, 1), why))
        return True

    def _step_down(self, reason: str, symptom: str) -> bool:
        below = protocols.ladder(self.protocol, self._config.info, why=symptom)
        if below is None:
            return False
        self._run.step.events.append(ProtocolChanged(self.protocol, below, reason))
        self._run.record("protocol", {"before": self.protocol, "protocol": below, "reason": reason})
        self.protocol = below
        self._failures = 0
        return True

    # --- the answer is whole --------------------------------------------------------------------------------------

    def _summed_up(self, reply: Reply) -> None:
        self._summarizing = False
        self._attempts = 0
        if not self._context.keep_summary(reply.content):
            self._run.note("the summary of earlier messages was empty; they were left out")
        self.ask()

    def _accept(self, reply: Reply) -> None:
        run = self._run
        self._attempts = 0
        self._partial = ""
        self._last_failure = ""
        written: list[ToolCall | BadCall] = sorted([*reply.calls, *reply.incomplete], key=lambda call: call.index)
        named = [call for call in written if call.name]
        if reply.finish == "content_filter":
            self._turn_finished(reply)
            run.say(reply)
            return run.end("provider_error", reply.error or "the server's content filter stopped the answer")
        if named and not self._finalizing:
            symptom = protocols.symptom(self.protocol, reply) if self._config.adapt else None
            if symptom is not None:  # usable, but the next turn is asked for in another way
                self._step_down(reply.problems[-1], symptom)
            return run.calls.open(reply, named)
        if written:
            return self._reject("truncated" if reply.finish == "length" else "malformed", "no call was complete", reply)
        if not reply.content.strip():
            return self._reject("empty", "", reply)
        if self._config.output is not None and (wrong := self._unfit(reply)) is not None:
            self._finalizing = True
            return self._reject("output", wrong, reply)
        self._turn_finished(reply)
        run.say(reply)
        if reply.finish == "length":
            return run.end("token_limit", "the answer was cut off at the length limit of the request")
        return run.end("answered")

    def _unfit(self, reply: Reply) -> str | None:
        """Why the final answer is not of the wanted form; None: it is, and kept as the run's output."""
        assert self._config.output is not None
        mended = mend(reply.content, self._config.output)
        if mended.ok:
            self._run.output = mended.value
            return None
        return "; ".join(f"{at or '/'}: {what}" for at, what in mended.errors) or "no JSON"

    def accepted(self, reply: Reply, *, usable: bool) -> None:
        """The answer counts: as a turn if something in it could be used, else as one more failure."""
        if usable:
            self._failures = 0
            self._scratch = []
        self._turn_finished(reply, counts=usable)

    def _turn_finished(self, reply: Reply, *, counts: bool = True) -> None:
        run = self._run
        turn = run.turn + 1
        if counts:
            run.turn = turn
        finish = Finish(reply.finish, reply.usage, reply.raw_finish, reply.error, tuple(reply.problems))
        seconds = round(run.now - self._sent_at, 6)
        data: dict[str, Any] = {"turn": turn, "counts": counts, "finish": reply.finish, "seconds": seconds}
        data |= {"usage": dict(reply.usage) if reply.usage else None, "protocol": self.protocol}
        run.record("turn", data)
        run.step.events.append(TurnFinished(turn, finish, seconds))


def free(name: str, taken: set[str]) -> str:
    """The name, or the first variant of it that is not taken."""
    made, n = name, 1
    while made in taken:
        n += 1
        made = f"{name}_{n}"
    return made
