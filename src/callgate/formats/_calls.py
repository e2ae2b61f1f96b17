"""Puts the calls of a wire together from their fragments.

Law: arguments are read whole and strictly, or not at all: nothing is closed off, guessed or repaired here.
(tests/test_formats_openai.py::test_what_cannot_be_read_is_incomplete_to_the_character)
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from callgate.jsonstream import DECODE_ERRORS, JsonScanner, load, repeated_key
from callgate.types import CAME, BadCall, BadReason, CallDelta, Delta, ToolCall

MAX_CALLS = 256
"""Calls of one message. Models write a handful; a loop of thousands is a model gone wrong."""
MAX_ARGUMENTS = 32 * 1024 * 1024
"""Characters of one call's arguments: a whole large file fits, an endless stream does not."""

_BARE = (None, None, None)
"""Index, id and name of a fragment that brings none of them."""
_VOID = re.compile(r"\s*(?:\{\s*\}|null)?\s*")
"""Empty arguments: a placeholder that real ones may follow."""


def arguments(text: str) -> tuple[dict[str, Any] | None, BadReason | None]:
    """The object that `text` is, or None and why not: "truncated" or "malformed".

    Empty text and null are {} (a tool without parameters); an object that was encoded twice is decoded (policy S).
    """
    if _VOID.fullmatch(text):
        return {}, None
    try:
        value = load(text)
        if isinstance(value, str):
            return arguments(value) if not value.lstrip().startswith('"') else (None, "malformed")
    except DECODE_ERRORS:
        scan = JsonScanner()
        open_end = text.lstrip()[:1] == "{" and scan.feed(text) is None and not scan.broken
        return None, "truncated" if open_end else "malformed"
    return (value, None) if isinstance(value, dict) else (None, "malformed")


class Call:
    """One call as it grows."""

    __slots__ = (
        "_ended",
        "_scanned",
        "_scanner",
        "extra",
        "fragments",
        "id",
        "name",
        "number",
        "sent",
        "size",
        "whole",
    )

    def __init__(self, number: int, id: str | None, name: str | None) -> None:
        self.number = number
        self.id = id
        self.name = name
        self.fragments: list[str] = []
        self.size = 0
        self.sent = -1
        """How many fragments went out as deltas; -1: not even the header."""
        self.whole = False
        """The arguments do not start like an object: nothing of them goes out before the end."""
        self.extra: dict[str, Any] = {}
        self._scanner = JsonScanner()
        self._scanned = 0
        self._ended = False

    @property
    def text(self) -> str:
        """The arguments so far."""
        return "".join(self.fragments)

    @property
    def void(self) -> bool:
        """Whether the arguments are empty so far."""
        return self.size < 64 and _VOID.fullmatch(self.text) is not None

    def complete(self) -> bool:
        """Whether the arguments so far are a whole object; looks at each fragment once."""
        for fragment in self.fragments[self._scanned :] if not self._ended else ():
            end = self._scanner.feed(fragment)
            self._ended = self._ended or (end is not None and not self._scanner.broken)
        self._scanned = len(self.fragments)
        return self._ended

    def add(self, fragment: str) -> None:
        """The next fragment. An empty placeholder gives way to the arguments that follow it."""
        if self.fragments and self.sent <= 0 and self.void and fragment.strip():
            self._restart()
        self.size += len(fragment)
        if self.size > MAX_ARGUMENTS:
            return
        self.fragments.append(fragment)

    def _restart(self) -> None:
        self.fragments.clear()
        self.size = self._scanned = 0
        self._scanner = JsonScanner()
        self._ended = False

    def deltas(self) -> list[Delta]:
        """The fragments that may go out now. Rule: placeholders and what is no object are held back."""
        if self.name is None:
            return []
        out: list[Delta] = []
        if self.sent < 0:
            self.sent = 0
            out.append(CallDelta(self.number, self.id, self.name, ""))
        if self.sent == 0 and self.fragments:
            if self.void:
                return out
            first = self.text.lstrip()[:1]
            self.whole = first != "{"
        if not self.whole and self.sent < len(self.fragments):
            text = "".join(self.fragments[self.sent :])
            self.sent = len(self.fragments)
            if out:
                out[0] = CallDelta(self.number, self.id, self.name, text)
            elif text:
                out.append(CallDelta(self.number, None, None, text))
        return out


class Calls:
    """Sorts the fragments of a stream into calls.

    Theory of operation. No server keeps all of the API's promises, so index, id and name are evidence, not identity:
    1. A fragment without a name continues: the call of its index, else of its id, else the last one. A new id alone is
       noise (some servers make one a chunk).
    2. A name with another id than the call at hand, or another name, starts a call, unless that call has the same name
       and arguments that are not whole yet (servers that repeat the header).
    3. The same name without ids starts a call only when the arguments at hand are whole and new ones follow.
    4. A name that comes before any arguments, and that lengthens the name at hand to that of a tool, is a piece of it.
    5. Fragments without any evidence, several in one delta, follow the order of the delta before.
    """

    def __init__(self, tools: tuple[str, ...] = ()) -> None:
        self._tools = tools
        self._all: list[Call] = []
        self._by_index: dict[Any, Call] = {}
        self._by_id: dict[str, Call] = {}
        self._row: list[Call] = []
        self._refused = 0
        self.problems: list[str] = []

    def __len__(self) -> int:
        return len(self._all)

    def feed(self, entries: Sequence[Any], *, whole: bool = False) -> list[Delta]:
        """The `tool_calls` of one delta; `whole`: each entry is a call of its own."""
        if len(entries) == 1 and not whole and (delta := self._next(entries[0])) is not None:
            return [delta]
        out: list[Delta] = []
        row: list[Call] = []
        for position, entry in enumerate(entries):
            if not isinstance(entry, dict):
                continue
            call = self._entry(entry, position if len(entries) > 1 else None, whole=whole)
            if call is not None:
                row.append(call)
                out += call.deltas()
        if len(row) > 1:
            self._row = row
        return out

    def _entry(self, entry: Mapping[str, Any], position: int | None, *, whole: bool) -> Call | None:
        """One entry of a delta, added to its call; None: there are too many calls. `position` is its place among
        several."""
        raw = entry.get("function")
        function: Mapping[str, Any] = raw if isinstance(raw, dict) else {}
        index = _hashable(entry.get("index", function.get("index")))
        call_id, name = _word(entry.get("id")), _word(function.get("name"))
        fragment = _fragment(function.get("arguments"))
        call = None if whole else self._find(index, call_id, name, fragment)
        if not whole and position is not None and position < len(self._row) and (index, call_id, name) == _BARE:
            call = self._row[position]  # rule 5
        if call is None and (call := self._new(call_id, name)) is None:
            return None
        self._note(call, index, call_id)
        if len(entry) > 2 or len(function) > 2:
            _keep(call, entry, function)
        if fragment:
            call.add(fragment)
        return call

    def _next(self, entry: Any) -> Delta | None:
        """Nearly every fragment: more arguments, as text, for the call of its index (rule 1)."""
        if type(entry) is not dict or len(entry) > 3 or entry.get("id"):
            return None
        function, index = entry.get("function"), entry.get("index")
        if type(function) is not dict or type(index) is not int or len(function) > 2 or function.get("name"):
            return None
        call, fragment = self._by_index.get(index), function.get("arguments")
        if call is None or call.sent < 1 or call.whole or type(fragment) is not str or not fragment:
            return None
        if call.size + len(fragment) > MAX_ARGUMENTS:
            return None
        call.size += len(fragment)
        call.fragments.append(fragment)
        call.sent = len(call.fragments)
        return CallDelta(call.number, None, None, fragment)

    def _note(self, call: Call, index: Any, id: str | None) -> None:
        call.id = call.id or id
        if index is not None:
            self._by_index[index] = call
        if id:
            self._by_id.setdefault(id, call)

    def _new(self, id: str | None, name: str | None) -> Call | None:
        if len(self._all) >= MAX_CALLS:
            self._refused += 1
            return None
        call = Call(len(self._all), id, name)
        self._all.append(call)
        if id:
            self._by_id[id] = call
        return call

    def _find(self, index: Any, id: str | None, name: str | None, fragment: str) -> Call | None:
        """The call that this fragment continues; None: it starts one."""
        known = self._by_id.get(id) if id else None
        if index is not None:
            at = self._by_index.get(index)
            if at is None:
                return known if not name else None
        else:
            at = known or (self._all[-1] if self._all and (id or name or len(self._row) < 2) else None)
        if at is None or not name:
            return at  # rule 1
        if at.name is None:
            at.name = name
            return at
        return self._named(at, id, name, fragment)

    def _named(self, at: Call, id: str | None, name: str, fragment: str) -> Call | None:
        """The call at hand, if a name that comes with this fragment belongs to it (rules 2 to 4)."""
        if id and at.id and id != at.id:
            return at if name == at.name and at.fragments and not at.complete() else None  # rule 2
        if name == at.name:
            return at if self._repeats(at, id, fragment) else None
        if not at.fragments and self._lengthens(at, id, name):
            at.name = f"{at.name}{name}"  # rule 4
            self.problems.append(f"the name of call {at.number + 1} came in pieces: {at.name!r}")
            return at
        return None

    def _repeats(self, at: Call, id: str | None, fragment: str) -> bool:
        """Rule 3: whether the same name again belongs to the same call."""
        if not fragment.strip() or not at.complete() or at.void:
            return True
        return bool(id and id == at.id) and fragment.startswith(at.text)

    def _lengthens(self, at: Call, id: str | None, name: str) -> bool:
        both = f"{at.name}{name}"
        if self._tools:
            return at.name not in self._tools and any(tool.startswith(both) for tool in self._tools)
        return at.id is not None and id in (None, at.id)

    def whole(self) -> bool:
        """Whether no call's arguments are cut off, as far as their text tells."""
        return all(call.void or call.complete() for call in self._all)

    def finish(self, *, sound: bool) -> list[Delta]:
        """Each call's `ToolCall` or `BadCall`, in order."""
        out: list[Delta] = []
        for call in self._all:
            out += self._settle(call, sound=sound)
        if self._refused:
            self.problems.append(f"{self._refused} fragments beyond MAX_CALLS = {MAX_CALLS} calls were dropped")
        return out

    def _settle(self, call: Call, *, sound: bool) -> list[Delta]:
        text = call.text
        if call.size > MAX_ARGUMENTS:
            self.problems.append(f"call {call.number + 1}: more than MAX_ARGUMENTS = {MAX_ARGUMENTS} characters")
            return [BadCall(call.number, call.id, call.name, text, "too_large")]
        if not sound:
            return [BadCall(call.number, call.id, call.name, text, "unsound_end")]
        if call.name is None:
            self.problems.append(f"call {call.number + 1} has no name")
            return [BadCall(call.number, call.id, None, text, "malformed")]
        value, reason = arguments(text)
        out: list[Delta] = []
        if value is None and (value := _resent(call.fragments)) is not None:
            self.problems.append(
                f"call {call.number + 1} ({call.name}): the server resends all arguments so far (cumulative arguments);"
                " its fragments are void, the final call is right"
            )
        elif value is not None and call.sent < len(call.fragments or [""]):
            held = "{}" if not value else text if text.lstrip()[:1] == "{" else dump_arguments(value)
            out.append(CallDelta(call.number, None, None, held))
        if value is None:
            return [BadCall(call.number, call.id, call.name, text, reason or "malformed")]
        flags: frozenset[str] = frozenset()
        if (twice := repeated_key(text, value)) is not None:
            self.problems.append(f"call {call.number + 1} ({call.name}): duplicate key {twice!r}, the last one counts")
            flags = frozenset({"repaired"})
        return [*out, ToolCall(call.id or "", call.name, value, call.number, flags, extra=call.extra)]


def _resent(fragments: list[str]) -> dict[str, Any] | None:
    """The arguments that a server sent anew with every fragment, or once more as a whole at the end."""
    pieces = [fragment for fragment in fragments if fragment.strip()]
    if len(pieces) < 2:
        return None
    value, _ = arguments(pieces[-1])
    if not value:
        return None
    if all(b.startswith(a) for a, b in pairwise(pieces)):
        return value
    before, _ = arguments("".join(pieces[:-1]))
    return value if before == value else None


def _word(value: Any) -> str | None:
    """An id or a name; blank ones are none."""
    if isinstance(value, str):
        return value.strip() or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _hashable(index: Any) -> Any:
    if isinstance(index, str):
        return int(index) if index.isdecimal() else index or None
    return index if isinstance(index, int) else None


def _fragment(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else dump_arguments(value)  # an object that should have been text


def dump_arguments(value: Any) -> str:
    """Arguments as the JSON text that deltas and messages carry."""
    return json.dumps(value, ensure_ascii=False)


def _keep(call: Call, entry: Mapping[str, Any], function: Mapping[str, Any]) -> None:
    """Fields that only the provider knows, to be sent back with the call (Gemini's thought signatures)."""
    extra = {key: value for key, value in entry.items() if key not in _ENTRY and value is not None}
    inner = {key: value for key, value in function.items() if key not in _FUNCTION and value is not None}
    if inner:
        extra["function"] = {**call.extra.get("function", {}), **inner}
    if extra:
        call.extra.update(extra)


_ENTRY = frozenset({"index", "id", "type", "function", CAME})
_FUNCTION = frozenset({"index", "name", "arguments"})
