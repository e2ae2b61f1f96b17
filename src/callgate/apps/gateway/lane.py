"""One answer of a model (one choice of it) as it arrives: what its client may see at once, and what became of it.

Law: what waits to be checked is never seen before it is, and nothing else waits.
(tests/test_gateway_mend.py::test_nothing_of_a_call_is_seen_before_it_is_checked)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from callgate.reply import TurnReader
from callgate.types import (
    BadCall,
    CallDelta,
    Delta,
    Finish,
    FinishReason,
    ReasoningDelta,
    Reply,
    TextDelta,
    ToolCall,
    Usage,
)

if TYPE_CHECKING:
    from callgate.protocols import Machine


@dataclass(slots=True, frozen=True)
class Reading:
    """How the answers to one request are read."""

    machine: Callable[[], Machine] | None
    """Makes the reader of an answer's text; None: the text is content, untouched."""
    rescue: bool = False
    """The server should have read the calls itself."""
    live: bool = False
    """Calls go on as they are written."""
    hold_text: bool = False
    """The text waits, too: it has to fit a schema."""
    limit: int | None = None
    """Tokens that the answer may have."""
    ids: str = "call_"
    """How ids begin that have to be made."""
    numbered: bool = True
    """Whether the calls should have come with ids: in a text, and from Ollama, they have none."""


class Lane:
    """Reads one answer."""

    def __init__(self, reading: Reading) -> None:
        machine = reading.machine() if reading.machine is not None else None
        self._turn = TurnReader(machine, rescue=reading.rescue, limit=reading.limit, id_prefix=reading.ids)
        self._reading = reading
        self._named: set[int] = set()
        self._plain = not (reading.live or reading.hold_text)
        self.seen: list[Delta] = []
        """What the client may see of the last text that it may not see as it is."""
        self.characters = 0
        """How much has come, for an estimate where the server counts nothing."""
        self.thought_in_text = False
        """Whether reasoning stood in the content."""
        self.on_wire = 0
        """How many calls the server itself gave; known at the end."""

    def says(self, text: str) -> bool:
        """More text: whether the client may see exactly it, and now; what else it may see is in `seen`."""
        read = self._turn.feed_text(text)
        if len(read) == 1 and self._plain and type(one := read[0]) is TextDelta and one.text == text:
            self.characters += len(text)
            return True
        self.seen = self._visible([TextDelta(text)], read)
        return len(self.seen) == 1 and type(one := self.seen[0]) is TextDelta and one.text == text

    def feed(self, deltas: list[Delta]) -> list[Delta]:
        """What the client may see of these now: text, reasoning, and live calls; never the end."""
        read = self._turn.feed(deltas)
        if len(read) == 1 and self._plain:  # as nearly always
            one = read[0]
            if type(one) is TextDelta:
                self.characters += len(one.text)
                return read
        return self._visible(deltas, read)

    def _visible(self, deltas: list[Delta], read: list[Delta]) -> list[Delta]:
        given = {type(delta) for delta in deltas}
        if ReasoningDelta not in given and any(type(delta) is ReasoningDelta for delta in read):
            self.thought_in_text = True
        if Finish in given:
            self.on_wire += sum(isinstance(delta, (ToolCall, BadCall)) for delta in deltas)
        return [self._with_id(delta) for delta in read if self._is_visible(delta)]

    def _with_id(self, delta: Delta) -> Delta:
        """The first delta of a call with the id that the call will have."""
        if not isinstance(delta, CallDelta) or delta.index in self._named:
            return delta
        self._named.add(delta.index)
        return delta if delta.id else replace(delta, id=f"{self._reading.ids}{delta.index + 1}")

    def _is_visible(self, delta: Delta) -> bool:
        if isinstance(delta, TextDelta):
            self.characters += len(delta.text)
            return not self._reading.hold_text
        if isinstance(delta, CallDelta):
            self.characters += len(delta.arguments)
            return self._reading.live
        if isinstance(delta, ReasoningDelta):
            self.characters += len(delta.text)
            return True
        return False

    @property
    def is_live(self) -> bool:
        """Whether its calls have been seen before they were checked."""
        return self._reading.live

    @property
    def rescues(self) -> bool:
        """Whether a call in its text is one that the server should have read."""
        return self._reading.rescue

    @property
    def numbered(self) -> bool:
        """Whether its calls should have come with ids."""
        return self._reading.numbered

    @property
    def holds_text(self) -> bool:
        """Whether its text waits."""
        return self._reading.hold_text

    @property
    def finished(self) -> bool:
        """Whether the end has come."""
        return self._turn.finished

    @property
    def reply(self) -> Reply:
        """The whole answer."""
        return self._turn.reply


@dataclass(slots=True)
class Outcome:
    """What a client gets of one answer, beside the text that it has seen."""

    finish: FinishReason
    calls: list[ToolCall] = field(default_factory=list)
    live: bool = False
    """Whether the client has seen them already, the withheld ones too: then only the finish can tell."""
    content: str | None = None
    """The content in place of the one that came; None: that one."""
    usage: Usage | None = None
    """Of all requests that were needed; None: not counted."""
    withheld: list[tuple[str, str]] = field(default_factory=list)
    """(tool, why) of calls that were kept back."""
    mended: Counter[str] = field(default_factory=Counter)
    """What was mended, by kind (docs/gateway.md)."""
    retries: int = 0
    problems: tuple[str, ...] = ()
    error: str | None = None
    """What broke the answer off."""
    first: float = 0.0
    """Seconds to the first token."""
    seconds: float = 0.0
    """Seconds to the end."""

    def renamed(self, given: object, word: str) -> bool:
        """Whether the finish has another word than the backend's; told unless something else explains it."""
        if given == word:
            return False
        if not (self.retries or self.withheld or self.mended["leaked"]):
            self.mended["finish"] += 1
        return True

    def note(self) -> dict[str, object]:
        """What is told in the last record; empty if all went on as it came."""
        out: dict[str, object] = {}
        if self.mended:
            out["mended"] = dict(self.mended)
        if self.withheld:
            out["withheld"] = [{"tool": tool, "reason": reason} for tool, reason in self.withheld]
        if self.retries:
            out["retries"] = self.retries
        return out
