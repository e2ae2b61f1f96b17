"""What a run's events say in words, the same in a terminal, in plain lines and in lists.

Law: every event of one moment is at most one line, except the notes about an answer, which have a line each.
    (tests/test_tui.py::test_every_moment_is_told_in_one_line)
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from callgate import events as e
from callgate.apps.output import name, one_line
from callgate.types import Ask, BadCall, Deny, ToolCall, ToolResult

if TYPE_CHECKING:
    from callgate.events import Event
    from callgate.run import Pending

RESULT_SHOWN = 160
"""Characters of a result on its line; the ledger has all of it."""
ARGUMENTS_SHOWN = 300
"""Characters of finished arguments on their line."""
QUESTION_SHOWN = 2000
"""Characters of the arguments that a person is asked to approve."""

CHOOSERS = {"lexical": "keyword match", "likelihood": "likelihood", "names": "the model", "group": "its group"}
FLAGS = {
    "repaired": "arguments repaired",
    "recovered": "recovered",
    "renamed": "name corrected",
    "loose": "without its markers",
    "mentioned": "only mentioned",
}
BAD = {
    "malformed": "its arguments are not readable",
    "truncated": "it was cut off",
    "too_large": "it is too large",
    "unsound_end": "the answer did not end normally",
}


def words(code: str) -> str:
    """A name of the wire as words: `token_limit` is "token limit"."""
    return code.replace("_", " ")


def seconds(value: float) -> str:
    """A duration for people."""
    return f"{value * 1000:.0f} ms" if value < 0.95 else f"{value:.1f} s"


def count(number: int, noun: str) -> str:
    """ "1 call", "2 calls"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def arguments_text(arguments: object) -> str:
    """The arguments of a call as people read them."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False, default=str)


def call_text(call: ToolCall, limit: int = ARGUMENTS_SHOWN) -> str:
    """A call's arguments on one line."""
    return one_line(arguments_text(call.arguments), limit)


def flags_text(call: ToolCall) -> str:
    """What was odd about a call, in brackets; "" if nothing was."""
    odd = ", ".join(FLAGS.get(flag, name(flag)) for flag in sorted(call.flags))
    return f" [{odd}]" if odd else ""


def sentence(event: Event) -> str | None:
    """The event in words; None: it needs none."""
    match event:
        case e.CallProposed() | e.CallJudged() | e.CallFinished():
            return _about_call(event)
        case e.Retrying():
            return f"asked again ({event.attempt}): {one_line(event.reason, ARGUMENTS_SHOWN)}"
        case e.ProtocolChanged():
            change = f"protocol changed from {name(event.before)} to {name(event.after)}"
            return f"{change}: {one_line(event.reason, ARGUMENTS_SHOWN)}"
        case e.ModelChanged():
            change = f"model changed from {name(event.before)} to {name(event.after)}"
            return f"{change}: {one_line(event.reason, ARGUMENTS_SHOWN)}"
        case e.TextChecked() if event.decision != "accepted":
            why = f": {one_line(event.reason, ARGUMENTS_SHOWN)}" if event.reason else ""
            return f"the {name(event.what)} was {name(event.decision).replace('_', ' ')}{why}"
        case e.Routed():
            sure = f" ({event.confidence:.2f})" if event.confidence is not None else ""
            tools = ", ".join(map(name, event.tools))
            how = f"{CHOOSERS.get(event.chooser) or name(event.chooser)}{sure}"
            return f"tool picked by {how}: {tools}" if tools else f"no tool picked, by {how}"
        case e.TurnFinished() if event.finish.problems:
            return "\n".join(f"note: {one_line(problem, ARGUMENTS_SHOWN)}" for problem in event.finish.problems)
        case _:
            return None


def _about_call(event: e.CallProposed | e.CallJudged | e.CallFinished) -> str | None:
    match event:
        case e.CallProposed(call=BadCall() as bad):
            return f"call not usable: {one_line(bad.name or 'no name', 80)} ({BAD.get(bad.reason) or name(bad.reason)})"
        case e.CallProposed(call=ToolCall() as call):
            return f"call {one_line(call.name, 80)} {call_text(call)}{flags_text(call)}"
        case e.CallJudged(verdict=Deny(rule, reason)):
            return f"denied by {name(rule)}: {one_line(reason, ARGUMENTS_SHOWN)}"
        case e.CallJudged(verdict=Ask(rule, reason)):
            return f"{one_line(reason, ARGUMENTS_SHOWN)} ({name(rule)})"
        case e.CallFinished():
            took = f" · {seconds(event.duration)}" if event.duration is not None else ""
            return f"{outcome(event.result)}{took}"
    return None


def outcome(result: ToolResult, tool: str = "") -> str:
    """How a call ended, on one line; `tool` names it where several ran."""
    content = one_line(result.content, RESULT_SHOWN)
    again = " (from the ledger)" if result.replayed else ""
    of = f"{one_line(tool, 80)}: " if tool else ""
    status = "got result" if result.ok else f"{words(result.status)}:"
    repeated = not result.ok and content.lower().startswith(status)  # the content begins with the same words
    return f"{of}{content}{again}" if repeated else f"{of}{status} {content}{again}"


def question(pending: Pending) -> list[str]:
    """The lines above the question whether a call may run: tool, arguments, reason, rule."""
    left = len(arguments_text(pending.call.arguments)) - QUESTION_SHOWN
    more = f" ({count(left, 'more character')}, not shown here)" if left > 0 else ""
    return [
        f"? {one_line(pending.name, 200)} {call_text(pending.call, QUESTION_SHOWN)}{more}",
        f"  {one_line(pending.reason, 500)} ({name(pending.rule)})",
    ]


class Tally:
    """What the lines about a run's end and its times need to know; fed with every event."""

    def __init__(self) -> None:
        self._begin(0.0, "")

    def _begin(self, now: float, protocol: str) -> None:
        self.started = self.turn_started = now
        self.turns = 0
        self.protocol = protocol
        self.usage: dict[str, int] = {}
        self.in_turn = 0
        """Calls of this turn."""
        self._calls: set[str] = set()
        self._bad = 0
        self._asked: set[str] = set()

    @property
    def calls(self) -> int:
        """Calls that were proposed, here or before the run was resumed."""
        return len(self._calls) + self._bad

    def see(self, event: Event, now: float) -> None:
        """Takes an event into account."""
        match event:
            case e.RunStarted():
                self._begin(now, event.protocol)
            case e.TurnStarted():
                self.turns = max(self.turns, event.turn)
                self.turn_started = now
                self.protocol = event.protocol or self.protocol
                self.in_turn = 0
            case e.ProtocolChanged():
                self.protocol = event.after
            case e.CallProposed(call=ToolCall() as call):
                self._calls.add(call.id)
                self.in_turn += 1
            case e.CallProposed():
                self._bad += 1
            case e.CallFinished():
                self._calls.add(event.call_id)
            case e.TurnFinished():
                for key, number in (event.finish.usage or {}).items():
                    self.usage[key] = self.usage.get(key, 0) + number

    def is_repeated(self, event: Event) -> bool:
        """Whether this tells again that a call needs approval: it is judged once more when it is about to run."""
        if not isinstance(event, e.CallJudged) or not isinstance(event.verdict, Ask):
            return False
        known = event.call_id in self._asked
        self._asked.add(event.call_id)
        return known

    def summary(self, event: e.RunFinished, now: float) -> str:
        """The last line of a run."""
        usage = dict(event.usage) or self.usage
        parts = [f"{words(event.reason)} in {seconds(now - self.started)}"]
        parts.append(count(self.turns, "turn"))
        parts.append(count(self.calls, "call"))
        if written := usage.get("output", 0):
            parts.append(f"{written} tokens written")
        if self.protocol:
            parts.append(f"protocol: {name(self.protocol)}")
        return " · ".join(parts)
