"""What goes out of one answer: its calls judged, those that do not fit asked for again, the rest withheld.

Law: what is let through fits, and what does not is asked for again before its client sees anything of it.
(tests/test_gateway_mend.py::test_calls_that_do_not_fit_are_asked_for_again)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from callgate.apps.gateway.ask import Ask
from callgate.apps.gateway.gate import Caller, CallOutcome, CallSeen
from callgate.apps.gateway.judge import Judged, judge, repair, report
from callgate.apps.gateway.lane import Lane, Outcome
from callgate.policy import JudgeContext
from callgate.policy import judge as judged_by
from callgate.types import SOUND, Deny, Message, Reply, Request, ToolCall, ToolSpec
from callgate.types import Ask as Asked

Again: TypeAlias = Callable[[Judged, Sequence[Message], bool], Awaitable["Reply | None"]]
"""Asks once more, with these messages behind the conversation, and whether it is the last time; None: nobody answers
any more."""
MAX_ID = 64
"""Characters of a call's id: clients and vendors take 40 to 64."""


class Settling:
    """Settles the answers to one request."""

    def __init__(self, ask: Ask, id: str, caller: Caller | None) -> None:
        self._ask = ask
        self._id = id
        self._caller = caller
        self.seen: tuple[CallSeen, ...] = ()
        self._made = 0
        """Ids that had to be made where none came."""

    def observed(self, reply: Reply) -> Outcome:
        """What would have been done."""
        judged = judge(reply, self._ask.request, foreign=self._ask.foreign)
        outcome = Outcome(reply.finish, mended=Counter(report(judged)))
        for verdict in judged.verdicts:
            self._see(verdict.call.name, "withheld" if not verdict.fits else "mended" if verdict.mended else "passed")
        return outcome

    async def settle(self, reply: Reply, lane: Lane, retries: int, again: Again) -> Outcome:
        """What goes out. Text that the client has seen stays; of later answers it gets the calls."""
        outcome = Outcome(reply.finish, live=lane.is_live)
        first = judge(reply, self._ask.request, foreign=self._ask.foreign)
        if lane.is_live and (first.verdicts or not first.missing):
            retries = 0  # what a client has seen cannot be taken back
        best, words = await self._asked_again(first, reply, outcome, retries, again)
        self._let_through(outcome, best, retried=best is not first)
        self._count(outcome, lane, len(first.verdicts) - lane.on_wire if best is first else 0)
        if self._ask.request.schema is not None and not outcome.calls:
            outcome.content = best.content if best.content is not None else words
        if outcome.retries and not best.again:
            outcome.mended["asked again"] += outcome.retries
        if best.missing and not outcome.calls:
            outcome.withheld.append(("", best.missing))
            outcome.content = "" if lane.holds_text else None
        return outcome

    async def _asked_again(
        self, first: Judged, reply: Reply, outcome: Outcome, retries: int, again: Again
    ) -> tuple[Judged, str | None]:
        """The best of all answers, and its words if it is not the first."""
        judged = best = first
        words: str | None = None
        scratch: list[Message] = []
        while judged.again and reply.finish in SOUND and outcome.retries < retries:
            outcome.retries += 1
            scratch += self._correction(judged, reply, len(scratch))
            answer = await again(judged, scratch, outcome.retries == retries)
            if answer is None:
                break
            reply = answer
            judged = judge(reply, self._ask.request, foreign=self._ask.foreign)
            if not judged.again or len(judged.good) > len(best.good):
                best, words = judged, reply.content
        return best, words

    def _correction(self, judged: Judged, reply: Reply, taken: int) -> list[Message]:
        """The answer and what is wrong with it, for the model."""
        if judged.missing:
            answer = [Message("assistant", reply.content)] if reply.content.strip() else []
            return [*answer, Message("user", judged.missing)]
        return repair(judged.verdicts, reply.content, self._ask.request, taken=taken)

    def _count(self, outcome: Outcome, lane: Lane, leaked: int) -> None:
        """What was mended, beside what the calls themselves tell. `leaked`: calls that the wire did not have."""
        mended = outcome.mended
        mended["reasoning"] += lane.thought_in_text
        if leaked > 0 and lane.rescues:
            mended["leaked"] += leaked
            mended["ids"] -= leaked  # a text has none
        if not lane.numbered:
            mended["ids"] -= self._made
        outcome.mended = +mended

    def _let_through(self, outcome: Outcome, judged: Judged, *, retried: bool) -> None:
        taken: set[str] = set()
        for verdict in judged.verdicts:
            name = verdict.call.name
            denied = self._denied(verdict.call) if verdict.fits else ""
            if denied or not verdict.fits:
                outcome.withheld.append((name, denied or verdict.why))
                self._see(name, "denied" if denied else "withheld")
                continue
            outcome.calls.append(self._identified(verdict.call, taken, outcome, retried=retried))
            self._see(name, "retried" if retried else "mended" if verdict.mended else "passed")
        for name, why in judged.dropped:
            outcome.mended[why.partition(" ")[0]] += 1
            self._see(name, "withheld")
        outcome.mended.update(report(judged))
        if outcome.finish in SOUND:
            outcome.finish = "tool_calls" if outcome.calls else "stop"

    def _see(self, tool: str, outcome: CallOutcome) -> None:
        self.seen += (CallSeen(tool, outcome),)

    def _identified(self, call: ToolCall, taken: set[str], outcome: Outcome, *, retried: bool) -> ToolCall:
        """The call with an id of its own that every client takes."""
        given = call.id
        plain = 0 < len(given) <= MAX_ID and given.isascii() and given.isprintable() and " " not in given
        mine = given.startswith(f"call_{self._id}_")  # the reader made it, because there was none
        made = given if plain and given not in taken and not retried else f"call_{self._id}_{len(taken) + 1}"
        taken.add(made)
        if (made != given or mine) and not retried:
            outcome.mended["ids"] += 1
            self._made += mine or not given
        return call if made == given else replace(call, id=made)

    def _denied(self, call: ToolCall) -> str:
        """Why a rule of the caller's key refuses the call; "": none does."""
        if self._caller is None or not self._caller.rules:
            return ""
        spec = next((t for t in self._ask.request.tools if t.name == call.name), ToolSpec(call.name))
        verdict = judged_by(self._caller.rules, call, spec, JudgeContext(principal=self._caller.principal))
        # Nobody can be asked in the middle of a client's request, so what needs a person is refused.
        return f"rule {verdict.rule}: {verdict.reason}" if isinstance(verdict, (Deny, Asked)) else ""


def wanted(judged: Judged, request: Request) -> str:
    """Which call is forced when it is asked for again: the one that was wrong, if it was the only one, else any; "":
    there are none."""
    if not request.tools:
        return ""
    if request.tool_choice not in ("auto", "none", "required"):
        return request.tool_choice
    names = {verdict.call.name for verdict in judged.verdicts}
    known = {tool.name for tool in request.tools}
    return names.pop() if len(judged.verdicts) == 1 and names <= known else "required"
