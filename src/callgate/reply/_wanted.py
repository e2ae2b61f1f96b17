"""What a caller wants of a message beyond how it is read: no calls, no reasoning apart, an answer in any case.

Law: nothing that was written for people is lost: what is not a call comes out once, as text or as reasoning.
(tests/test_reply_wanted.py::test_all_that_is_no_call_comes_out_once)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from callgate.types import BadCall, CallDelta, Delta, Finish, ReasoningDelta, Reply, TextDelta, ToolCall

ToolChoice: TypeAlias = Literal["auto", "none"]


class Wanted:
    """Takes the deltas of a message as they come out, and gives those that its caller wants."""

    def __init__(self, *, calls: bool, reasoning: bool, answer: bool) -> None:
        """`calls`: calls come out. `reasoning`: it stays apart, else it is text. `answer`: a message without text and
        without calls has its reasoning as its text."""
        self._calls, self._apart, self._answer = calls, reasoning, answer
        self._text: list[str] = []
        self._thoughts: list[str] = []
        self._thought = False
        """What was shown last was reasoning."""
        self._called = False
        self._left_out: dict[str, None] = {}
        self._moved = False
        self._finish: Finish | None = None

    def take(self, deltas: Sequence[Delta]) -> list[Delta]:
        """What of these is wanted."""
        out: list[Delta] = []
        for delta in deltas:
            if isinstance(delta, Finish):
                self._end(delta, out)
            elif isinstance(delta, TextDelta):
                self._show(delta.text, out, thought=False)
            elif isinstance(delta, ReasoningDelta):
                self._think(delta, out)
            elif self._calls:
                self._called = True
                out.append(delta)
            else:
                self._leave_out(delta)
        return out

    def reply(self, whole: Reply) -> Reply:
        """That message, as it is wanted."""
        reply = replace(
            whole,
            content="".join(self._text),
            reasoning=whole.reasoning if self._apart and not self._moved else "",
            calls=whole.calls if self._calls else [],
            incomplete=whole.incomplete if self._calls else [],
            source=whole.source if self._calls else None,
        )
        if self._finish is None:
            return reply
        return replace(reply, finish=self._finish.reason, problems=list(self._finish.problems))

    def _show(self, text: str, out: list[Delta], *, thought: bool) -> None:
        if self._text and thought is not self._thought:
            text = f"\n\n{text}"  # the white space between them went with the markers
        self._thought = thought
        self._text.append(text)
        out.append(TextDelta(text))

    def _think(self, delta: ReasoningDelta, out: list[Delta]) -> None:
        if not self._apart:
            self._show(delta.text, out, thought=True)
            return
        self._thoughts.append(delta.text)
        out.append(delta)

    def _leave_out(self, call: CallDelta | ToolCall | BadCall) -> None:
        if isinstance(call, CallDelta) or "mentioned" in call.flags:
            return
        self._left_out[f'tool_choice is "none": a call of {call.name or "no tool"} was left out'] = None

    def _end(self, finish: Finish, out: list[Delta]) -> None:
        problems = [*finish.problems, *self._left_out]
        thoughts = "".join(self._thoughts).strip()
        if self._answer and thoughts and not self._called and not "".join(self._text).strip():
            self._moved = True
            self._text.clear()
            self._show(thoughts, out, thought=True)
            problems.append("the message has nothing but reasoning: it is the answer")
        reason = "stop" if finish.reason == "tool_calls" and not self._calls else finish.reason
        self._finish = replace(finish, reason=reason, problems=tuple(problems))
        out.append(self._finish)
