"""Reads a reply that is one object, a call or an answer, while it is being written:

    {"tool": NAME, "args": {…}}    {"answer": "…"}    {"calls": [{"tool": …}, …]}    {"reply": one of these}

Law: chunk invariance. The answer is shown as text and the arguments as fragments as soon as they are certain; what is
no such object is text, to the byte.
(tests/test_protocols_object.py::test_whole_by_characters_and_at_every_cut)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from callgate.jsonstream import JsonScanner
from callgate.protocols._pieces import CallInProgress, JsonString
from callgate.protocols._rows import IGNORED
from callgate.types import BadCall, CallDelta, Delta, ReasoningDelta, TextDelta, ToolCall

if TYPE_CHECKING:
    from callgate.protocols.steps import Machine

TOOL_KEYS = frozenset({"tool", "name", "tool_name", "function"})
ARGS_KEYS = frozenset({"args", "arguments", "parameters", "input"})
ANSWER_KEYS = frozenset({"answer"})
WRAPPERS = frozenset({"reply"})
ENDED = "the reply ended before its form did"
KNOWN = TOOL_KEYS | ARGS_KEYS | ANSWER_KEYS | WRAPPERS | {"calls"}

_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = re.compile(r"[^,}\]\s]*")


class ObjectReader:
    """A machine for replies in the form of one object.

    Theory of operation. `_state` is the method that reads on; each takes (text, position) and returns the next
    position. `_open` is the stack of what is open: "object" for an object that may be a call, "calls" for the list.
    1. Everything is held until the first key tells that the object is ours; a foreign first key, or no object at
       all, hands the held text and all that follows to `free`, and `problems` says that the form was ignored.
    2. An answer's string is decoded as it comes; another value of `answer` is shown as its JSON text.
    3. Arguments are fragments from their first character on, if they begin with `{` and the tool is named; else they
       are held until both is known.
    4. An object that closes ends its call. At the end of the text, whole arguments are a call, cut-off ones are not.
    5. A call waits for the rest of its line: with visible text behind it there, it was only mentioned (A7).
    """

    def __init__(self, free: Callable[[], Machine] | None = None) -> None:
        self.problems: list[str] = []
        self._make_free = free
        self._free: Machine | None = None
        self._state: Callable[[str, int], int] = self._begin
        self._open: list[str] = []
        self._held = ""
        self._ours = False
        self._seen_object = False
        self._key = ""
        self._raw: list[str] = []
        self._scanner: JsonScanner | None = None
        self._call: CallInProgress | None = None
        self._count = 0
        self._string = JsonString()
        self._end = 0
        self._shift = 0
        self._out: list[Delta] = []
        self._line: list[ToolCall] = []

    def feed(self, text: str) -> list[Delta]:
        """Deltas that are now certain."""
        position = 0
        self._end = len(text)
        while position < self._end:
            position = self._state(text, position)
        return self._take()

    def finish(self) -> list[Delta]:
        """The text is over: a whole call counts, a cut-off one is incomplete."""
        self._end_line()
        if self._free is not None:
            self._emit_free(self._free.finish())
        elif not self._ours:
            if self._held.strip():  # rule 1: a form that was begun and cut off is no text for people
                self._out.append(BadCall(self._next(), None, None, self._held, "truncated"))
            elif not self._seen_object:
                self._say(self._held)
        else:
            self._cut_off()
        self._state = self._ignore
        return self._take()

    def _take(self) -> list[Delta]:
        out, self._out = self._out, []
        return out

    def _say(self, text: str) -> None:
        if text:
            self._out.append(TextDelta(text))

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    # --- states ---------------------------------------------------------------------------------------------------

    def _begin(self, text: str, at: int) -> int:
        """Before an object, the first or a further one."""
        start = at
        at = _skip(text, at)
        if at == len(text):
            self._held += text[start:]
            return at
        # Rule 5: a call whose line has ended is no mention, whatever the next line says.
        if "\n" in self._held or "\n" in text[start:at]:
            self._end_line()
        # Models that mean several calls write them in a row, separated as in a list that has no brackets.
        if self._seen_object and text[at] in ",;":
            return at + 1
        if text[at] != "{":
            return self._go_free(text, start)
        self._held += text[start : at + 1]
        self._ours = False
        self._open.append("object")
        self._state = self._next_key
        return at + 1

    def _next_key(self, text: str, at: int) -> int:
        """Inside an object, before a key or its end."""
        start = at
        at = _skip(text, at)
        self._hold(text[start:at])
        if at == len(text):
            return at
        match text[at]:
            case '"':
                self._raw, self._scanner = [], JsonScanner()
                self._state = self._in_key
                return at
            case "}":
                if not self._ours:
                    return self._go_free(text, at)
                return self._close(at + 1)
            case "," if self._ours:
                return at + 1
            case _:
                return self._broken(text, at)

    def _in_key(self, text: str, at: int) -> int:
        end, done = self._scan(text, at)
        self._hold(text[at:end])
        if self._is_broken():
            return self._broken(text, end)
        if done:
            self._key = _text_of("".join(self._raw))
            # A foreign first key: the object is data that the answer shows, and data is text (A7).
            if not self._ours and self._key not in KNOWN:
                return self._go_free(text, end)
            self._ours, self._held = True, ""
            self._state = self._colon
        return end

    def _colon(self, text: str, at: int) -> int:
        at = _skip(text, at)
        if at == len(text):
            return at
        if text[at] != ":":
            return self._broken(text, at)
        self._state = self._value
        return at + 1

    def _value(self, text: str, at: int) -> int:
        """Before the value of the key."""
        at = _skip(text, at)
        if at == len(text):
            return at
        self._raw = []
        self._scanner = JsonScanner() if text[at] in '{["' else None
        nested = self._key in TOOL_KEYS and self._call is None  # {"tool": {"name": …, "args": …}}
        if (self._key in WRAPPERS or nested) and text[at] == "{":
            self._open.append("object")
            self._state = self._next_key
            return at + 1
        if self._key == "calls" and text[at] == "[":
            self._open.append("calls")
            self._state = self._next_item
            return at + 1
        if self._key in ANSWER_KEYS and text[at] == '"':
            self._string = JsonString()
            self._state = self._in_answer
            return at + 1
        if self._key in TOOL_KEYS | ARGS_KEYS and self._call is None:
            self._call = CallInProgress(self._next())
        self._state = self._in_value
        return at

    def _in_answer(self, text: str, at: int) -> int:
        shown, at, closed = self._string.feed(text, at)
        self._say(shown)
        if closed:
            self._state = self._next_key
        return at

    def _in_value(self, text: str, at: int) -> int:
        end, done = self._scan(text, at)
        piece = text[at:end]
        if self._key in ARGS_KEYS and self._call is not None:
            self._call.add(piece, self._out)
        elif self._key in ANSWER_KEYS:
            self._say(piece)
        if self._is_broken():
            return self._broken(text, end)
        if done:
            self._end_value("".join(self._raw))
        return end

    def _end_value(self, raw: str) -> None:
        self._state = self._next_key
        call = self._call
        if call is not None and self._key in TOOL_KEYS:
            call.named(_text_of(raw), self._out)
        elif call is not None and self._key in ARGS_KEYS:
            call.whole(self._out)
        elif self._key not in ANSWER_KEYS:
            self.problems.append(f"a key that was not asked for: {self._key!r}")
            if call is not None:
                call.flags.add("loose")

    def _next_item(self, text: str, at: int) -> int:
        """Inside the list of calls."""
        at = _skip(text, at)
        if at == len(text):
            return at
        match text[at]:
            case "{":
                self._open.append("object")
                self._state = self._next_key
            case "]":
                self._open.pop()
                self._state = self._next_key
            case ",":
                pass
            case _:
                return self._broken(text, at)
        return at + 1

    def _close(self, at: int) -> int:
        """The end of an object: of its call, and of the reply if nothing else is open."""
        self._open.pop()
        if self._call is not None:
            ended: list[Delta] = []
            self._call.end(ended)
            self._line += [delta for delta in ended if isinstance(delta, ToolCall)]
            self._out += [delta for delta in ended if not isinstance(delta, ToolCall)]
            self._call = None
        if self._open:
            self._state = self._next_item if self._open[-1] == "calls" else self._next_key
        else:
            self._seen_object, self._state = True, self._begin
        return at

    def _end_line(self, *, mentioned: bool = False) -> None:
        """Rule 5."""
        waiting, self._line = self._line, []
        for call in waiting:
            self._out.append(replace(call, flags=call.flags | {"mentioned"}) if mentioned else call)
        if waiting and mentioned:
            self._say_problem("a call with text behind it on its line was only mentioned, so it does not run")

    def _ignore(self, text: str, at: int) -> int:
        return len(text)

    # --- what is no such object -----------------------------------------------------------------------------------

    def _go_free(self, text: str, at: int) -> int:
        """Rule 1: from the held text on, this is the model's own way of writing."""
        self._open.clear()
        self._end_line(mentioned=True)
        text, self._held = self._held + text[at:], ""
        if self._seen_object:
            text = text.lstrip()
        self._say_problem(f"{IGNORED}: the reply is not in the form that was asked for")
        self._free = self._make_free() if self._make_free is not None else _Text()
        self._shift = self._count
        self._emit_free(self._free.feed(text))
        self._state = self._in_free
        return self._end

    def _in_free(self, text: str, at: int) -> int:
        assert self._free is not None
        self._emit_free(self._free.feed(text[at:]))
        return len(text)

    def _emit_free(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self._out.append(_shifted(delta, self._shift))
        assert self._free is not None
        for problem in self._free.problems:
            self._say_problem(problem)

    def _say_problem(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _broken(self, text: str, at: int) -> int:
        """No JSON where JSON must be: what was begun is incomplete, the rest is not shown."""
        if not self._ours:
            return self._go_free(text, at)
        self._end_line()
        self._say_problem(f"the reply is broken JSON near {text[at]!r}")
        if self._call is not None:
            self._call.broken(self._out)
            self._call = None
        elif "calls" in self._open:
            self._out.append(BadCall(self._next(), None, None, text[at], "malformed"))
        self._state = self._ignore
        return len(text)

    def _cut_off(self) -> None:
        """The text ended inside an object of ours (rule 4), or after it."""
        if self._call is not None:
            self._call.cut_off(self._out)
            self._call = None
        if self._open:
            self._say_problem(ENDED)

    # --- scanning -------------------------------------------------------------------------------------------------

    def _hold(self, text: str) -> None:
        if not self._ours:
            self._held += text

    def _scan(self, text: str, at: int) -> tuple[int, bool]:
        """Reads on in one value: where this piece of it ends, and whether the value does."""
        if self._scanner is None:
            match = _SCALAR.match(text, at)
            assert match is not None
            end, done = match.end(), match.end() < len(text)
        else:
            found = self._scanner.feed(text, at)
            end, done = (len(text), False) if found is None else (found, True)
        self._raw.append(text[at:end])
        return end, done

    def _is_broken(self) -> bool:
        return self._scanner is not None and self._scanner.broken


class _Text:
    """The plainest machine: text is text."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def feed(self, text: str) -> list[Delta]:
        return [TextDelta(text)] if text else []

    def finish(self) -> list[Delta]:
        return []


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _text_of(raw: str) -> str:
    try:
        value = json.loads(raw, strict=False)
    except ValueError:
        return raw.strip('"')
    return value if isinstance(value, str) else raw


def _shifted(delta: Delta, by: int) -> Delta:
    """A delta of the free text's reader, its calls counted on from ours."""
    match delta:
        case CallDelta(index, id, name, arguments):
            return CallDelta(index + by, id, name, arguments)
        case ToolCall(id, name, arguments, index, flags, extra):
            return ToolCall(id, name, arguments, index + by, flags, extra)
        case BadCall(index, id, name, text, reason):
            return BadCall(index + by, id, name, text, reason)
        case TextDelta() | ReasoningDelta():
            return delta
        case _:
            raise AssertionError("a machine never emits Finish")
