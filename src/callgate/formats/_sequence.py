"""Puts the deltas of a message in an order in which one block is closed before the next one opens.

Law: what comes out is what went in, and between the first and the last fragment of a call nothing else comes.
(tests/test_formats_sequence.py::test_one_block_is_closed_before_the_next_opens)

Chat completions may mix the fragments of several calls, and text with them; the Messages and the Responses API write
one block after the other. So a call stays open until its arguments are whole, and what comes meanwhile waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from callgate.formats._calls import dump_arguments
from callgate.jsonstream import JsonScanner
from callgate.types import BadCall, CallDelta, Delta, Finish, ToolCall


class InSequence:
    """Deltas in, the same deltas out; a call that had no fragment gets one with all of its arguments.

    Theory of operation.
    1. One call may be open: its fragments pass, everything else waits.
    2. It is whole when its arguments are a whole object, when its `ToolCall` or `BadCall` comes, or when that of
       another call comes (then no fragment of it can follow: ends come after all fragments). What waited goes on.
    3. A fragment of a call that is whole is blank or the call is bad: it is left out.
    """

    def __init__(self) -> None:
        self._waiting: list[Delta] = []
        self._open: int | None = None
        self._scanner: JsonScanner | None = None
        """Finds the end of the open call; None: nothing of its arguments has come."""
        self._begun: set[int] = set()
        self._whole: set[int] = set()

    def feed(self, deltas: Iterable[Delta]) -> Iterator[Delta]:
        """What may be written now."""
        for delta in deltas:
            yield from self._take(delta)

    def _take(self, delta: Delta) -> Iterator[Delta]:
        match delta:
            case CallDelta():
                yield from self._fragment(delta)
            case ToolCall() | BadCall():
                yield from self._settle(delta)
            case Finish():
                while self._waiting:
                    yield from self._next()
                yield delta
            case _ if self._open is None:
                yield delta
            case _:
                self._waiting.append(delta)

    def _fragment(self, delta: CallDelta) -> Iterator[Delta]:
        if self._open is None and delta.index not in self._whole:
            self._open, self._scanner = delta.index, None
            self._begun.add(delta.index)
        if self._open == delta.index:
            yield delta
            if self._ends(delta.arguments):
                yield from self._next()
        elif delta.index not in self._whole:  # rule 3
            self._waiting.append(delta)

    def _ends(self, fragment: str) -> bool:
        """Whether the arguments are a whole object now. What begins as anything else has no end that could be seen."""
        if self._scanner is None:
            if not (start := fragment.lstrip()[:1]):
                return False
            self._scanner = JsonScanner()
            self._scanner.broken = start != "{"
        return not self._scanner.broken and self._scanner.feed(fragment) is not None and not self._scanner.broken

    def _next(self) -> Iterator[Delta]:
        """The open call is whole (rule 2): what waited for it, as far as that does not wait for another one."""
        if self._open is not None:
            self._whole.add(self._open)
        self._open = None
        waiting, self._waiting = self._waiting, []
        for delta in waiting:
            yield from self._take(delta)

    def _settle(self, call: ToolCall | BadCall) -> Iterator[Delta]:
        if self._open not in (None, call.index):
            mine: list[Delta] = [d for d in self._waiting if isinstance(d, CallDelta) and d.index == call.index]
            rest = [d for d in self._waiting if not (isinstance(d, CallDelta) and d.index == call.index)]
            self._waiting = mine
            yield from self._next()
            self._waiting += rest
        if call.index not in self._begun:
            self._begun.add(call.index)
            text = call.text if isinstance(call, BadCall) else dump_arguments(call.arguments)
            yield CallDelta(call.index, call.id, call.name, text)
        self._whole.add(call.index)
        yield call
        if self._open in (None, call.index):
            yield from self._next()
