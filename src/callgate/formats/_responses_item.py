"""One item of a response of OpenAI's Responses API, as it grows.

Law: what an item holds comes out once, whether it came as deltas, whole, or both.
(tests/test_formats_responses.py::test_what_comes_twice_counts_once)
"""

from __future__ import annotations

from collections.abc import Mapping

from callgate.formats._calls import Calls
from callgate.formats._ends import End
from callgate.formats._layout import CALL, TEXT
from callgate.formats._responses_in import thoughts
from callgate.formats._responses_out import ITEM, PARTS
from callgate.types import Delta, ReasoningDelta, TextDelta

_READ = frozenset({"message", "function_call", "reasoning"})
_PLAIN = frozenset({"id", "type", "role", "content", "status"})
"""Fields of a message that need not go back: the server knows no item of a conversation that it does not store."""
_CALL = frozenset({"id", "type", "call_id", "name", "arguments", "status"})


class Item:
    """One item; `number` is its place in the response."""

    __slots__ = ("_calls", "_end", "_key", "_part", "_raw", "_size", "cut", "number", "over")

    def __init__(self, number: int, raw: Mapping[str, object], calls: Calls, end: End) -> None:
        self.number = number
        self.over = False
        """It has come whole."""
        self.cut = False
        """The server says that it is not whole."""
        self._raw = dict(raw)
        self._calls = calls
        self._end = end
        self._size = 0
        """Characters of text, arguments or reasoning that came."""
        self._key = ""
        """Where the reasoning comes from: "summary" or "content"."""
        self._part: object = None

    @property
    def kind(self) -> str:
        """The item's type."""
        return str(self._raw.get("type"))

    def begin(self) -> list[Delta]:
        """The item was announced."""
        if self.kind == "function_call":
            function = {"name": self._raw.get("name")}
            return self._calls.feed([{"index": self.number, "id": self._raw.get("call_id"), "function": function}])
        if self.kind not in _READ:
            self._end.note(f"an item of type {self.kind[:60]!r} is kept for the server and not shown")
        return []

    # --- deltas ---------------------------------------------------------------------------------------------------

    def text(self, delta: object, *, refused: bool = False) -> list[Delta]:
        """More text of a message."""
        if refused:
            self._end.note("the model refused")
        if not isinstance(delta, str) or not delta:
            return []
        self._size += len(delta)
        return [TextDelta(delta)]

    def thought(self, delta: object, key: str, part: object) -> list[Delta]:
        """More reasoning. Servers that show both its text and a summary show one of them here: the first that came."""
        self._key = self._key or key
        if not isinstance(delta, str) or not delta or key != self._key:
            return []
        gap = "\n\n" if self._size and part != self._part else ""
        self._part = part
        self._size += len(delta)
        return [ReasoningDelta(gap + delta)]

    def arguments(self, delta: object) -> list[Delta]:
        """More arguments of a call."""
        if not isinstance(delta, str) or not delta:
            return []
        self._size += len(delta)
        return self._calls.feed([{"index": self.number, "function": {"arguments": delta}}])

    # --- whole ----------------------------------------------------------------------------------------------------

    def whole_arguments(self, value: object) -> list[Delta]:
        """All arguments of a call; an object that should have been text is read, too."""
        if self._size or not value:
            return []
        self._size = 1
        return self._calls.feed([{"index": self.number, "function": {"arguments": value}}])

    def done(self, raw: Mapping[str, object]) -> list[Delta]:
        """The item whole, as it goes back."""
        self.over = True
        self._raw |= raw
        self.cut = raw.get("status") == "incomplete"
        match self.kind:
            case "function_call":
                return self.whole_arguments(raw.get("arguments"))
            case "message" if not self._size:
                return [delta for text, refused in _texts(raw) for delta in self.text(text, refused=refused)]
            case "reasoning" if not self._size and (text := thoughts(raw)):
                self._size = len(text)
                return [ReasoningDelta(text)]
        return []

    # --- the layout -----------------------------------------------------------------------------------------------

    @property
    def goes_back(self) -> bool:
        """Reasoning that is only summed up does not: it is neither what the model thought nor a key to it. Nor does an
        item that is not whole, or a message without text."""
        if self.kind == "reasoning":
            return self.over and bool(self._raw.get("encrypted_content") or self._raw.get("content"))
        return self._size > 0 if self.kind == "message" else self.over or self.kind == "function_call"

    def entry(self) -> dict[str, object]:
        """The item as an entry of the layout."""
        if self.kind == "function_call":
            rest = _rest(self._raw, _CALL)
            return {CALL: self._raw.get("call_id"), **({ITEM: rest} if rest else {})}
        if self.kind == "message":
            rest, parts = _rest(self._raw, _PLAIN), _parts(self._raw)
            return {TEXT: self._size, **({PARTS: parts} if parts else {}), **({ITEM: rest} if rest else {})}
        return self._raw


def _rest(raw: Mapping[str, object], known: frozenset[str]) -> dict[str, object]:
    return {key: value for key, value in raw.items() if key not in known and value is not None}


def _content(raw: Mapping[str, object]) -> list[Mapping[str, object]]:
    content = raw.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


def _texts(raw: Mapping[str, object]) -> list[tuple[object, bool]]:
    """The texts of a whole message, and whether each is a refusal."""
    if isinstance(text := raw.get("content"), str):  # imitators
        return [(text, False)]
    parts = _content(raw)
    return [(p.get("refusal"), True) if p.get("type") == "refusal" else (p.get("text"), False) for p in parts]


def _parts(raw: Mapping[str, object]) -> list[dict[str, object]]:
    """The parts of a message where there is more in them than one text: citations, refusals, several of them."""
    parts = _content(raw)
    plain = len(parts) <= 1 and all(p.get("type") == "output_text" and not p.get("annotations") for p in parts)
    return [] if plain else [_part(part) for part in parts]


def _part(part: Mapping[str, object]) -> dict[str, object]:
    key = "refusal" if part.get("type") == "refusal" else "text"
    if not isinstance(text := part.get(key), str):
        return dict(part)
    return {name: value for name, value in part.items() if name not in (key, "logprobs")} | {TEXT: len(text)}
