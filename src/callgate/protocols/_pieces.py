"""What a reply in the form of an object is read into while it arrives: a call in progress, a string being decoded.

Law: a piece is taken as it comes and never looked at again.
(tests/test_protocols_object.py::test_megabytes_of_arguments_cost_the_same_a_character)
"""

from __future__ import annotations

import json
import re
from typing import Any

from callgate.jsonstream import DECODE_ERRORS, load
from callgate.types import BadCall, BadReason, CallDelta, Delta, ToolCall

MAX_HELD = 1 << 20
"""Characters of arguments held because their tool is not named yet; an honest call names it first."""


_PLAIN = re.compile(r'[^"\\]+')
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "/": "/", "\\": "\\", '"': '"'}


class CallInProgress:
    """One call in progress."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.name: str | None = None
        self.flags: set[str] = set()
        self._pieces: list[str] = []
        self._size = 0
        self._shown = 0
        self._whole = False
        self._repeated = False

    def add(self, piece: str, out: list[Delta]) -> None:
        """A piece of the arguments."""
        if self._whole:
            self._repeated = True
            return
        self._size += len(piece)
        if self._shown or self._size <= MAX_HELD:
            self._pieces.append(piece)
            self._show(out)

    def named(self, name: str, out: list[Delta]) -> None:
        """The tool's name is known."""
        if self.name is None:
            self.name = name
            out.append(CallDelta(self.index, None, name, ""))
            self._show(out)
        elif name != self.name:
            self._repeated = True

    def whole(self, out: list[Delta]) -> None:
        """The arguments' value is complete; whatever follows under the same key is too much."""
        self._whole = True

    def _show(self, out: list[Delta]) -> None:
        """Rule 3: fragments, as soon as the name is known and the value is an object."""
        if self.name is None or not self._pieces or self._pieces[0][:1] != "{":
            return
        text = "".join(self._pieces[self._shown :])
        self._shown = len(self._pieces)
        if text:
            out.append(CallDelta(self.index, None, None, text))

    def end(self, out: list[Delta]) -> None:
        """The object closed."""
        text = "".join(self._pieces)
        if self.name is None or self._repeated:
            self._bad("malformed", out)
            return
        if not self._shown and self._size > MAX_HELD:
            self._bad("too_large", out)
            return
        arguments = _arguments_of(text)
        if arguments is None:
            self._bad("malformed", out)
            return
        if not self._shown:
            out.append(CallDelta(self.index, None, None, json.dumps(arguments, ensure_ascii=False)))
        out.append(ToolCall("", self.name, arguments, self.index, frozenset(self.flags)))

    def broken(self, out: list[Delta]) -> None:
        """JSON ended where it must not."""
        self._bad("malformed", out)

    def cut_off(self, out: list[Delta]) -> None:
        """The text is over: whole arguments are a call (rule 4)."""
        if self.name is not None and self._whole:
            self.end(out)
        else:
            self._bad("truncated", out)

    def _bad(self, reason: BadReason, out: list[Delta]) -> None:
        out.append(BadCall(self.index, None, self.name, "".join(self._pieces), reason))


class JsonString:
    """Decodes a JSON string as it comes; the opening quote is behind."""

    def __init__(self) -> None:
        self._escape = ""
        self._high = ""

    def feed(self, text: str, at: int) -> tuple[str, int, bool]:
        """The decoded piece, where it ends, and whether the closing quote was reached."""
        out: list[str] = []
        while at < len(text):
            if self._escape:
                at = self._in_escape(text, at, out)
            elif text[at] == '"':
                self._flush(out)
                return "".join(out), at + 1, True
            elif text[at] == "\\":
                self._escape = "\\"
                at += 1
            else:
                match = _PLAIN.match(text, at)
                assert match is not None
                self._flush(out)
                out.append(match.group())
                at = match.end()
        return "".join(out), at, False

    def _in_escape(self, text: str, at: int, out: list[str]) -> int:
        self._escape += text[at]
        if self._escape[1] != "u":
            self._flush(out)
            out.append(_ESCAPES.get(self._escape[1], self._escape[1]))
            self._escape = ""
        elif len(self._escape) == 6:
            self._unit(self._escape[2:], out)
            self._escape = ""
        return at + 1

    def _unit(self, digits: str, out: list[str]) -> None:
        """One UTF-16 unit; the first half of a pair waits for the second."""
        try:
            unit = chr(int(digits, 16))
        except ValueError:
            unit = "\ufffd"
        if "\udc00" <= unit <= "\udfff" and self._high:
            out.append((self._high + unit).encode("utf-16", "surrogatepass").decode("utf-16"))
            self._high = ""
            return
        self._flush(out)
        if "\ud800" <= unit <= "\udbff":
            self._high = unit
        else:
            out.append("\ufffd" if "\udc00" <= unit <= "\udfff" else unit)

    def _flush(self, out: list[str]) -> None:
        if self._high:
            out.append("\ufffd")
            self._high = ""


def _arguments_of(text: str) -> dict[str, Any] | None:
    """The arguments' object: missing and null are `{}`, a JSON string is decoded; None: unreadable."""
    value: Any = text.strip() or "{}"
    for _ in range(2):
        try:
            value = load(value)
        except DECODE_ERRORS:
            return None
        if not isinstance(value, str):
            break
    if value is None:
        return {}
    return value if isinstance(value, dict) else None
