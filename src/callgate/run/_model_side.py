"""The model's side of a run: requests go out, answers come in, and what cannot be used is asked for again.

Law: nothing of an answer counts before its `Finish`, and every way of asking again is bounded: `retries` for one
failure, the ladder of protocols for many, the limits of requests, tokens and time over all.
(tests/test_run_sides.py::test_the_model_side_asks_a_bounded_number_of_times)

Each method takes what came, writes what it found out into the state, and returns the next move, or None to wait.
"""

from __future__ import annotations

from dataclasses import replace

from callgate import protocols
from callgate.checks import AskAgain, Change, Decision, Refuse
from callgate.errors import CallgateError
from callgate.events import ModelChanged, ProtocolChanged, Retrying, Routed, TurnFinished, TurnStarted
from callgate.formats import output_limit
from callgate.history import History
from callgate.policy import check
from callgate.protocols.steps import Chosen, Query, Turn
from callgate.protocols.texts import TEXTS, spoken
from callgate.reply import TurnReader
from callgate.run import _journal as journal
from callgate.run._answers import (
    REFUSED,
    blames_the_form,
    spent,
    spent_thinking,
    summary_turn,
    unmentioned,
)
from callgate.run._context import Context
from callgate.run._demands import demanded, names_of, promised, text_of, unfit
from callgate.run._ids import CallIds
from callgate.run._state import AskModel, EndRun, Move, Proposed, RunState
from callgate.run._values import dump_asking, dump_deltas
from callgate.run.inputs import CheckText, Failed, Send
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

BACKOFF = 0.5
"""Seconds before the first repetition of a failed request; doubled each time."""
MAX_BACKOFF = 30.0
"""A server that wishes a longer pause than this is as good as down."""
UNREAD = frozenset({"invalid_arguments", "unknown_tool"})
"""What became of calls that never ran because of how they were written: they are to be written again."""
_NOT_ASKED = {"output": "not the output that was asked for", "forced": "not the call that tool_choice demands"}
"""Answers that are whole and not what was asked for; of others nothing is known but that they are no good."""


class ModelSide:
    """Everything about requests and answers that a run knows."""

    def __init__(self, state: RunState) -> None:
        self._state = state
        self._config = state.config
        self._transcript = protocols.Transcript()
        self._asking = state.asking
        self._context = Context(state.asking, state.config.context, summarize=state.config.summarize)
        self._generator: Turn | None = None
        self._query: Query | None = None
        self._reader: TurnReader | None = None
        self._raw: list[Delta] = []
        self._written = ""
        self._ids = CallIds(state)
        self._announced = 0
        self._sent_at = self._first_at = 0.0
        self._summarizing = False
        self._unchecked: Reply | None = None

    # --- requests -------------------------------------------------------------------------------------------------

    def ask(self) -> Move | None:
        """The next turn begins, or the same one once more."""
        config = self._config
        fitted, dropped = self._context.fit(self._state.history)
        if dropped and config.summarize:
            self._summarizing = True
            self._generator = summary_turn(self._context.to_sum_up(self._state.history, dropped), config.options)
            return self._advance(None)
        if dropped:
            self._state.note(f"{len(dropped)} messages did not fit into the context and were left out")
        if config.process is not None:
            fitted = History.adopt(config.process(fitted)).messages
        history = (*fitted, *self._asking.scratch)
        # Ids of calls belong to one answer: those of an answer that was thrown away may be given again.
        self._query, self._ids, self._sent_at = None, CallIds(self._state), self._state.now
        if self._asking.finalizing:
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
                self._state.protocol,
                history=history,
                tools=self._state.tools,
                instructions=config.instructions,
                info=config.info,
                options=config.options,
                dialect=config.dialect,
                output=config.output,
                # Of the first turn only: a model that must call a tool each time could never answer.
                tool_choice=config.tool_choice if self._state.turn == 0 or config.tool_choice == "none" else "auto",
                parallel=config.parallel,
                refused=[r.call.id for r in self._state.finished if r.result.status in UNREAD],
                transcript=self._transcript,
                own=config.own_dialects,
            )
        return self._advance(None)

    def ask_again(self) -> Move | None:
        """The request whose answer never came, once more."""
        # A restored run knows what was answered, but has no request at hand: its turn begins again.
        return self.ask() if self._query is None else self._send(self._query)

    def _advance(self, reply: Reply | None) -> Move | None:
        """Carries the turn's next steps out, up to one that has to wait (rule 1)."""
        assert self._generator is not None
        try:
            while True:
                match step := self._generator.send(reply):
                    case Query():
                        return self._send(step)
                    case Chosen(chooser, tools, confidence):
                        self._state.emit(Routed(chooser, tools, confidence))
                        data = {"chooser": chooser, "tools": list(tools), "confidence": confidence}
                        self._state.record("protocol", {"protocol": self._state.protocol, "chosen": data})
                        reply = None
        except StopIteration as stop:
            whole: Reply = stop.value
            if self._summarizing:
                return self._summed_up(whole)
            self._announce()  # a turn may need no request
            return self._accept(whole)
        # A turn may refuse what cannot be asked (a dialect without a way to write calls): it ends the run, and nothing
        # is raised.
        except CallgateError as error:
            return EndRun("provider_error", str(error))

    def _send(self, query: Query, delay: float = 0.0) -> Move | None:
        """Sends a request, unless a limit is hit (rule 3)."""
        state = self._state
        # At every request and not at every turn: retries, routing and summaries cost as much as any other.
        if (stop := check(self._config.rules, state.progress("request"))) is not None:
            return EndRun(stop.reason, stop.message)
        state.requests += 1
        self._announce()
        state.phase = "model"
        self._query = query
        machine = query.machine() if query.machine else None
        # A fresh reader for each request: what the last one held back belongs to an answer that is void.
        self._reader = TurnReader(machine, rescue=query.rescue, limit=output_limit(query.request))
        self._raw, self._ids = [], CallIds(state)
        self._sent_at = state.now
        data: dict[str, object] = {"n": state.requests, "turn": state.turn + 1, "protocol": state.protocol}
        data |= {"purpose": query.purpose, **state.totals(), **dump_asking(state.asking)}
        # Before it is sent: a resumed run must count a request whose answer never came (rule 3).
        state.record("request", data)
        state.command(Send(query.request, delay, state.model))
        return None

    def _announce(self) -> None:
        """Shows once that the turn has begun."""
        if self._announced != self._state.turn + 1:
            self._announced = self._state.turn + 1
            self._state.emit(TurnStarted(self._announced, self._state.protocol))

    # --- the answer arrives ---------------------------------------------------------------------------------------

    def received(self, deltas: list[Delta]) -> Move | None:
        """A part of the answer."""
        # Late deltas of a stream that was given up: the answer they belong to is void.
        if self._state.phase != "model" or self._reader is None or self._query is None:
            return None
        if not self._raw:
            self._first_at = self._state.now
        self._raw += deltas
        out = self._reader.feed(deltas)
        # The steps that choose a tool or sum up are no answer: people would see JSON rush by.
        if self._query.visible:
            events = self._state.step.events
            for delta in out:
                if isinstance(delta, (TextDelta, ReasoningDelta)):
                    events.append(delta)
                elif isinstance(delta, CallDelta):
                    events.append(self._named(delta))
        if not self._reader.finished:
            return None
        # A run may wait long for its tools: what read the answer need not wait with it.
        reply, self._reader = self._reader.reply, None
        return self._replied(reply)

    def _named(self, delta: CallDelta) -> CallDelta:
        """The delta under the id that its call will have."""
        if delta.name is None and delta.id is None:
            return delta
        return CallDelta(delta.index, self._ids.of(delta.index, delta.id), delta.name, delta.arguments)

    def _replied(self, reply: Reply) -> Move | None:
        self._record_deltas()
        for kind, count in (reply.usage or {}).items():
            self._state.usage[kind] = self._state.usage.get(kind, 0) + count
        # Estimated where the server does not tell: a budget of reported tokens alone would never end there.
        self._state.spent += spent(reply, self._query, self._transcript)
        self._state.problems += [p for p in reply.problems if p not in self._state.problems]
        # an answer in words under an end that we do not know is one all the same (X1)
        worded = reply.finish == "interrupted" and reply.raw_finish and not (reply.error or reply.incomplete)
        # Nothing of a stream that did not end soundly counts, however complete it looks (X1).
        if reply.finish in ("error", "interrupted") and not (worded and reply.content.strip()):
            error = reply.error or "the stream ended before the answer did"
            return self._lost(Failed(error, self._state.now, again=True), partial=reply.content)
        return self._advance(reply)

    def _record_deltas(self) -> None:
        since = round(self._state.now - self._sent_at, 6)
        data = {"n": self._state.requests, "deltas": dump_deltas(self._raw), "since": since}
        self._state.record("delta_merged", data)
        self._raw, self._written = [], text_of(self._raw)

    def cut_short(self) -> str:
        """The run ends: what has come of an answer so far, recorded."""
        # Recorded and shown as the run's text: a person who cancels wants to keep what was there.
        if self._state.phase == "model" and self._reader is not None and self._raw:
            self._asking.partial = self._reader.reply.content if not self._summarizing else ""
            self._record_deltas()
        return self._asking.partial

    def forget(self) -> None:
        """Something broke: what is half there is not touched any more."""
        # The reader itself may be what broke.
        self._reader, self._raw = None, []

    # --- what can go wrong ----------------------------------------------------------------------------------------

    def failed(self, failed: Failed) -> Move | None:
        """The request failed before anything of its answer came."""
        if self._state.phase != "model":
            return None
        self._state.record("request", journal.dump_failed(failed, self._state.requests))
        # Not a failure of the model or the server: it does not count among the attempts.
        if failed.kind == "ContextTooLong" and self._context.shrink(self._state.history):
            self._retrying(failed.error)
            return AskModel()
        # The next model at once: to wait for a server that is down, or to try it in simpler ways, helps nobody who
        # named another. Only a request that the server calls wrong is first asked in a simpler way.
        if failed.kind not in REFUSED and self._next_model(failed.error):
            return AskModel()
        return self._lost(failed)

    def _next_model(self, reason: str) -> bool:
        """Goes on with the next of the run's models, if there is one."""
        state = self._state
        if state.model >= len(state.config.others):
            return False
        before = state.config.info.name
        state.change_model(state.model + 1)
        changed = {"before": before, "after": state.config.info.name}
        data = {"model": state.model, "changed": changed, "protocol": state.protocol, "reason": reason}
        state.record("protocol", data)
        state.emit(ModelChanged(before, state.config.info.name, reason))
        self._config = state.config
        self._context = Context(state.asking, state.config.context, summarize=state.config.summarize)
        self._transcript = protocols.Transcript()
        return True

    def _lost(self, failed: Failed, partial: str = "") -> Move | None:
        """No answer came, or only a part: ask again, else step down, else end (rule 2)."""
        error = failed.error
        if partial and not self._summarizing:
            self._asking.partial = partial
        self._asking.attempts += 1
        # The server's `Retry-After` wins if it is longer; asked earlier it would only refuse again.
        pause = max(failed.after or 0.0, BACKOFF * 2 ** (self._asking.attempts - 1))
        if failed.again and self._asking.attempts <= self._config.retries and pause <= MAX_BACKOFF:
            self._retrying(error)
            self._asking.last_failure = self._asking.last_failure or error
            return self.ask() if self._query is None else self._send(self._query, pause if failed.kind else 0.0)
        # A server whose own parser of tools falls over answers 500 or 400 each time; without tools in the request it
        # may live.
        if blames_the_form(failed, self._query) and self._step_down(error, "refused"):
            self._asking.attempts = 0
            return AskModel()
        if failed.kind and not partial and self._next_model(error):
            return AskModel()
        return EndRun("provider_error", self._asking.cause_and(error))

    def _reject(self, kind: str, detail: str, reply: Reply) -> Move:
        """The answer holds nothing that can be used: it goes back with the reason and leaves no trace (rule 2)."""
        why = protocols.explain(self._state.history.messages, kind, name=names_of(self._state), detail=detail)
        how = _NOT_ASKED.get(kind, kind)
        self._asking.last_failure = f"the model's answer was {how}" + (f": {detail}" if detail else "")
        if not self.may_ask_again(why):
            return EndRun("output_invalid" if kind in _NOT_ASKED else "provider_error", self._asking.last_failure)
        if reply.content.strip():
            # The model sees its own mistake and the reason until one answer can be used; the history keeps neither
            # (rule 2).
            self._asking.scratch.append(Message("assistant", reply.content))
        self._asking.scratch.append(Message("user", why))
        return AskModel()

    def _correct(self, kind: str, reply: Reply, name: str = "", detail: str = "") -> Move:
        """The answer goes back with a question, and counts neither as a failure nor as a turn."""
        why = protocols.explain(self._state.history.messages, kind, name=name, detail=detail)
        self._retrying(why)
        self._asking.scratch += [Message("assistant", reply.content), Message("user", why)]
        return AskModel()

    def may_ask_again(self, why: str) -> bool:
        """Counts an unusable answer; after `retries` of them the ladder steps down. False: there is no step left."""
        self._asking.failures += 1
        if self._asking.failures > self._config.retries and (self._asking.finalizing or not self._step_down(why, "")):
            return False
        self._retrying(why)
        return True

    def _retrying(self, why: str) -> None:
        """Tells that an answer is asked for once more; numbered on across protocols, for each has its own retries."""
        self._asking.repeats += 1
        self._state.emit(Retrying(self._asking.repeats, why))

    def _step_down(self, reason: str, symptom: str) -> bool:
        state = self._state
        if not state.tools and self._config.output is None and not symptom:  # every way of asking is the same one
            return False
        below = protocols.ladder(state.protocol, self._config.info, why=symptom)
        # The last step has no tools: whoever demands a call cannot be answered there.
        if below is None or (below == "answer" and demanded(state)):
            return False
        state.emit(ProtocolChanged(state.protocol, below, reason))
        state.record("protocol", {"before": state.protocol, "protocol": below, "reason": reason})
        # For the rest of the run: a protocol that failed here `retries` times would fail at every turn.
        state.protocol = below
        self._asking.failures = 0
        return True

    # --- the answer is whole --------------------------------------------------------------------------------------

    def _summed_up(self, reply: Reply) -> Move:
        self._summarizing = False
        self._asking.attempts = 0
        if not self._context.keep_summary(reply.content):
            self._state.note("the summary of earlier messages was empty; they were left out")
        return AskModel()

    def _accept(self, reply: Reply) -> Move | None:
        """What a whole answer means: calls, an answer in words, or something to be asked for again."""
        self._asking.attempts = 0
        self._asking.partial = ""
        self._asking.last_failure = ""
        if reply.source is not None:
            reply = unmentioned(reply)
            if self._only_mentions(reply):
                self._asking.corrected = True
                return self._correct("mentioned", reply)
        # what a content filter left is never asked for again: the same request gives the same end, and costs as much
        if reply.finish == "content_filter":
            return self._final(reply)
        if reply.calls or reply.incomplete:
            return self._with_calls(reply)
        if not reply.content.strip() and reply.finish == "length":  # the same request ends the same way, at full price
            return EndRun("token_limit", spent_thinking(reply))
        if (tried := self._tried(reply)) is not None:
            return tried
        if demanded(self._state):
            return self._reject("forced", "", reply)
        if not reply.content.strip():
            return self._reject("empty", "", reply)
        if (name := promised(self._state, reply)) is not None:
            self._asking.reminded = True
            self._state.note(f"the model said that it would use {name} and did not: it was reminded")
            return self._correct("announced", reply, name)
        if (wrong := unfit(self._state, reply)) is not None:
            self._asking.finalizing = True
            return self._reject("output", wrong, reply)
        return self._final(reply)

    def _final(self, reply: Reply) -> Move | None:
        """An answer that the model's side accepts: the application may want to look at it first."""
        if "answer" not in self._config.checks:
            return self._answered(reply)
        self._unchecked = reply
        self._state.command(CheckText("answer", reply.content))
        return None

    def checked(self, decision: Decision) -> Move | None:
        """What follows from the check of an answer."""
        reply, self._unchecked = self._unchecked, None
        assert reply is not None
        self._state.decided("answer", decision)
        match decision:
            case Change(text):
                reply = replace(reply, content=text)
                if (wrong := unfit(self._state, reply)) is not None:
                    return self._reject("output", wrong, reply)
            case Refuse(reason):
                return self._refused(reply, reason)
            case AskAgain(reason):
                self._asking.failures += 1
                if self._asking.failures > self._config.retries:
                    return self._refused(reply, reason)
                return self._correct("checked", reply, detail=reason)
        return self._answered(reply)

    def _refused(self, reply: Reply, reason: str) -> Move:
        self._turn_finished(reply)
        self._state.text, self._state.output = "", None
        return EndRun("refused", reason)

    def _only_mentions(self, reply: Reply) -> bool:
        """Whether the model wrote about calls without making one, and was not yet asked what it meant."""
        # under "native" the server separates calls from text, so a call in the text is surely one that is only shown
        asked = self._asking.corrected or self._asking.finalizing or self._state.protocol == "native"
        return not (asked or reply.calls or reply.incomplete)

    def _with_calls(self, reply: Reply) -> Move:
        written: list[ToolCall | BadCall] = sorted([*reply.calls, *reply.incomplete], key=lambda call: call.index)
        if self._asking.finalizing or not any(call.name for call in written):
            kind = "truncated" if reply.finish == "length" else "malformed"
            return self._reject(kind, self._words("no_call"), reply)
        symptom = protocols.symptom(self._state.protocol, reply) if self._config.adapt else None
        if symptom is not None:  # usable, but the next turn is asked for in another way
            self._step_down(reply.problems[-1], symptom)
        calls = [replace(c, id=self._ids.of(c.index, c.id)) for c in written if c.name]
        return Proposed(reply, calls, self._written)

    def _tried(self, reply: Reply) -> Move | None:
        """What follows from an answer that tries to be the form that was asked for (B1); None: it is an answer."""
        plain = self._asking.finalizing or self._config.output is not None or reply.source is not None
        found = None if plain else protocols.attempt(self._state.protocol, reply.content, self._state.tools)
        if found is None:
            return None
        # Cut off, so it is unknown what it tries to be.
        if reply.finish == "length":
            return self._reject("truncated", "", reply)
        if not found.call.name:
            return self._reject("malformed", self._words("nameless"), reply)
        # Small models write the call as plain JSON, whatever they were asked for (B1); it is shown and recorded as a
        # call.
        self._state.problems.append("an answer in words tried to be a call")
        made = replace(found.call, id=self._ids.of(found.call.index, None))
        calls, bad = ([made], []) if isinstance(made, ToolCall) else ([], [made])
        shown = replace(reply, content=found.before, calls=calls, incomplete=bad, finish="tool_calls")
        return Proposed(shown, [made], self._written)

    def _words(self, key: str) -> str:
        return TEXTS[key][spoken(self._state.history.messages)]

    def _answered(self, reply: Reply) -> Move:
        """The answer in words is the last of the run."""
        self._turn_finished(reply)
        self._state.enter_answer(reply)
        match reply.finish:
            case "content_filter":
                return EndRun("provider_error", reply.error or "the server's content filter stopped the answer")
            # Not "answered": half an answer looks like a whole one to whoever only reads the text.
            case "length":
                return EndRun("token_limit", "the answer was cut off at the length limit of the request")
            case _:
                return EndRun("answered")

    def accepted(self, reply: Reply, *, usable: bool) -> None:
        """The answer counts: as a turn if something in it could be used, else as one more failure."""
        if usable:
            self._asking.failures = self._asking.repeats = 0
            self._asking.scratch = []
        self._turn_finished(reply, counts=usable, calls=True)

    def _turn_finished(self, reply: Reply, *, counts: bool = True, calls: bool = False) -> None:
        state = self._state
        turn = state.turn + 1
        if counts:
            state.turn = turn
        finish = Finish(reply.finish, reply.usage, reply.raw_finish, reply.error, tuple(reply.problems))
        seconds = round(state.now - self._sent_at, 6)
        data: dict[str, object] = {"turn": turn, "counts": counts, "finish": reply.finish, "seconds": seconds}
        data |= {"usage": dict(reply.usage) if reply.usage else None, "protocol": state.protocol}
        if self._first_at >= self._sent_at and self._query is not None:
            data["first_token"] = round(self._first_at - self._sent_at, 6)
        if calls:  # a run that is cut off before its calls have ended has its message from here
            data |= {"content": reply.content, "reasoning": reply.reasoning}
        state.record("turn", data | state.totals())
        state.emit(TurnFinished(turn, finish, seconds))
