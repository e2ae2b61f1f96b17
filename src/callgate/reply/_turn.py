"""Reads one message of a provider: the deltas of its wire, and of its text, as one message.

Law: nothing is a call before the end of the stream is known to be sound (X1).
(tests/test_reply.py::test_nothing_is_a_call_before_the_end_is_known)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from callgate.reply._settled import Settled
from callgate.types import (
    SOUND,
    BadCall,
    CallDelta,
    Delta,
    Finish,
    FinishReason,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
)

if TYPE_CHECKING:
    from callgate.protocols import Machine

_HALF = re.compile("[\ud800-\udfff]")
_HIGH = re.compile("[\ud800-\udbff]")

_RESCUED = "a call came as text in the content; it was read with the model's dialect"


@runtime_checkable
class KeepsSource(Protocol):
    """A machine that can tell what of a message is its visible text, with the markup of calls left in it."""

    def as_written(self, text: str) -> str:
        """The message without its reasoning."""
        ...


@runtime_checkable
class KnowsThoughts(Protocol):
    """A machine that can tell at a message's end which of its calls stood in reasoning that the prompt had opened."""

    @property
    def reasoned(self) -> int:
        """So many, from the first on."""
        ...


class TurnReader:
    """Reads one message of a provider: its deltas in, the deltas of the whole house out.

    Theory of operation. Deltas of a wire and deltas that `machine` reads out of the text flow into one message:
    1. Text goes through the machine if there is one; everything else passes.
    2. Calls of both sources share one numbering, in the order in which they first appear. A message with calls of one
       source keeps the deltas as they are.
    3. A call is only *proposed* until `Finish` comes; then each index gets its one `ToolCall` or `BadCall`, in order.
       After an unsound end every one of them is a `BadCall` ("unsound_end").
    4. A call without an id gets `call_<n>`; so does the second of two calls that carry one id.
    5. `Finish` tells the truth: a sound end with calls is "tool_calls", without is "stop".
    6. A character that a server cut into UTF-16 halves, one in each of two records, is put together; a half that stays
       alone becomes U+FFFD, for no text with it could be sent or stored.
    7. A call that had to be rescued from the text and has visible text beside it is `loose`: a server that reads calls
       itself would have taken a call that was meant. One that is only `mentioned` is no problem of the server.
    8. Calls that stood in reasoning which the prompt had opened are `mentioned`; only its closer tells, long after.
    9. Calls of an answer that used up all the tokens it was allowed are cut off, whatever the server calls the end: it
       may have closed them itself (vLLM does under `tool_choice`).
    """

    def __init__(
        self,
        machine: Machine | None = None,
        *,
        rescue: bool = False,
        id_prefix: str = "call_",
        limit: int | None = None,
    ) -> None:
        """`rescue`: the server should have read the calls itself, so a call in the text is a problem worth naming.
        `limit`: the tokens that the request allowed (rule 9).
        """
        self._machine = machine
        self._rescue = rescue
        self._limit = limit
        self._numbers: dict[int, int] = {}
        """Rule 2: by the index on the wire; calls of the text are keyed by the complement of theirs."""
        self._waiting: list[ToolCall | BadCall] = []
        self._settled = Settled(id_prefix)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._strip = False
        self._finish: Finish | None = None
        self._source: str | None = None
        self._halves: dict[type[TextDelta | ReasoningDelta], str] = {}
        self._written: list[str] = []
        """The text that the machine was given."""

    @property
    def finished(self) -> bool:
        """Whether `Finish` has come."""
        return self._finish is not None

    @property
    def reply(self) -> Reply:
        """The whole message; before its `Finish` what has come so far, as interrupted."""
        finish = self._finish or Finish("interrupted", problems=tuple(self._settled.problems))
        reasoning = "".join(self._reasoning)
        return Reply(
            content="".join(self._text),
            reasoning=reasoning.strip() if self._strip else reasoning,
            calls=list(self._settled.calls),
            incomplete=list(self._settled.bad),
            finish=finish.reason,
            raw_finish=finish.raw,
            error=finish.error,
            usage=finish.usage,
            problems=list(finish.problems),
            source=self._source,
            extra=finish.extra,
        )

    def feed_text(self, text: str) -> list[Delta]:
        """The same as `feed([TextDelta(text)])`, for what nearly every piece is."""
        machine = self._machine
        if machine is None or self._finish is not None or self._halves or not _is_whole(text):
            return self.feed([TextDelta(text)])
        self._written.append(text)
        read = machine.feed(text)
        if len(read) == 1 and type(one := read[0]) is TextDelta and one.text:
            self._text.append(one.text)
            return read
        out: list[Delta] = []
        for delta in read:
            self._take(delta, out, from_text=True)
        return out

    def feed(self, deltas: Iterable[Delta]) -> list[Delta]:
        """What of these is now certain. After `Finish` nothing counts any more."""
        out: list[Delta] = []
        text: list[str] = []
        for delta in deltas:
            if self._finish is not None:
                return out
            if isinstance(delta, (TextDelta, ReasoningDelta)) and (self._halves or not _is_whole(delta.text)):
                delta = self._mended(delta)  # noqa: PLW2901
            if self._machine is not None and isinstance(delta, TextDelta):
                text.append(delta.text)  # what came in one piece is read in one piece
                continue
            if text:
                self._read(text, out)
            if isinstance(delta, Finish):
                self._end(delta, out)
            else:
                self._take(delta, out)
        if text:
            self._read(text, out)
        return out

    def _mended(self, delta: TextDelta | ReasoningDelta) -> TextDelta | ReasoningDelta:
        """Rule 6."""
        kind = type(delta)
        text = self._halves.pop(kind, "") + delta.text
        if _HIGH.match(text, len(text) - 1):
            self._halves[kind] = text[-1]
            text = text[:-1]
        return kind(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))

    def _read(self, text: list[str], out: list[Delta]) -> None:
        assert self._machine is not None
        whole = text[0] if len(text) == 1 else "".join(text)
        self._written.append(whole)
        for delta in self._machine.feed(whole):  # rule 1
            self._take(delta, out, from_text=True)
        text.clear()

    def _take(self, delta: Delta, out: list[Delta], *, from_text: bool = False) -> None:
        if isinstance(delta, TextDelta):
            if delta.text:
                self._text.append(delta.text)
                out.append(delta)
        elif isinstance(delta, CallDelta):
            number = self._number(delta.index, from_text)
            same = number == delta.index
            out.append(delta if same else CallDelta(number, delta.id, delta.name, delta.arguments))
        elif isinstance(delta, ReasoningDelta):
            if delta.text:
                self._reasoning.append(delta.text)
                self._strip = self._strip or from_text
                out.append(delta)
        elif isinstance(delta, Finish):
            raise AssertionError("a machine never emits Finish")
        else:
            if from_text and self._rescue and "mentioned" not in delta.flags:
                self._settled.note(_RESCUED)
            number = self._number(delta.index, from_text)
            self._waiting.append(delta if number == delta.index else replace(delta, index=number))  # rule 3

    def _number(self, index: int, from_text: bool) -> int:
        """Rule 2."""
        key = ~index if from_text else index
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
        return number

    def _end(self, finish: Finish, out: list[Delta]) -> None:
        self._end_text(out)
        if self._used_up(finish):
            finish = replace(finish, reason="length")
            problem = f"the answer has all {self._limit} tokens that it was allowed: its calls count as cut off"
            self._settled.note(problem)
        sound = finish.reason in SOUND
        self._settle(out, sound=sound)
        reason: FinishReason = finish.reason
        if sound:
            reason = "tool_calls" if self._settled.calls else "stop"  # rule 5
        problems = [*self._settled.problems, *finish.problems]
        if self._machine is not None:
            problems += self._machine.problems
        self._finish = replace(finish, reason=reason, problems=tuple(dict.fromkeys(problems)))
        out.append(self._finish)

    def _end_text(self, out: list[Delta]) -> None:
        """No more text comes: half characters (rule 6), and what the machine still holds."""
        for kind in self._halves:
            if kind is TextDelta and self._machine is not None:
                self._read(["\ufffd"], out)
            else:
                self._take(kind("\ufffd"), out)
        if self._machine is not None:
            for delta in self._machine.finish():
                self._take(delta, out, from_text=True)

    def _settle(self, out: list[Delta], *, sound: bool) -> None:
        """Each call's end, in order (rule 3)."""
        if isinstance(self._machine, KnowsThoughts):  # rule 8
            thoughts = {self._numbers.get(~n) for n in range(self._machine.reasoned)}
            self._waiting = [self._settled.in_thoughts(call, thoughts) for call in self._waiting]
        calls = self._waiting
        if self._rescue and any(not text.isspace() for text in self._text):
            calls = [self._beside_text(call) for call in calls]  # rule 7
        calls.sort(key=lambda call: call.index)
        self._settled.reserved.update(call.id for call in calls if call.id)
        out.extend(self._settled.add(call, sound=sound) for call in calls)
        if self._settled.any_mentioned:
            text = "".join(self._written)
            self._source = self._machine.as_written(text) if isinstance(self._machine, KeepsSource) else text

    def _used_up(self, finish: Finish) -> bool:
        """Rule 9."""
        if self._limit is None or finish.reason not in SOUND or (finish.usage or {}).get("output", 0) < self._limit:
            return False
        return any("mentioned" not in call.flags for call in self._waiting)

    def _beside_text(self, call: ToolCall | BadCall) -> ToolCall | BadCall:
        rescued = any(number == call.index for key, number in self._numbers.items() if key < 0)
        if isinstance(call, BadCall) or not rescued or "mentioned" in call.flags:
            return call
        return replace(call, flags=call.flags | {"loose"})


def _is_whole(text: str) -> bool:
    """Whether no character of the text is half of one."""
    return text.isascii() or text.isprintable() or _HALF.search(text) is None
