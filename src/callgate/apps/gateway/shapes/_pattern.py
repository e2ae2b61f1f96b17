"""Records that differ from each other in their text only: recognized without a parser.

Law: a record is taken only if its JSON is that of the one before, but for the text of its content.
(tests/test_gateway_openai.py::test_a_record_is_known_only_by_all_that_is_not_its_text)

A server repeats everything around a token for each token. Reading that again is most of what a token costs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pydantic_core import from_json

from callgate.apps.gateway.shapes import encoded
from callgate.types import Delta, TextDelta
from callgate.wire import Record

_CONTENT = re.compile(r'"content": ?"')
_PLAIN = re.compile(r'[^"\\\x00-\x1f]+').fullmatch
_PLAIN_BYTES = re.compile(rb'[^"\\\x00-\x1f]+').fullmatch
"""A text that stands in JSON as it is: no escape, no end, nothing that JSON forbids."""


class Pattern:
    """What stands before and behind the text of the last record."""

    __slots__ = ("_before", "_behind", "_head", "_least", "_tail", "same", "texts")

    def __init__(self) -> None:
        self._before = self._behind = ""
        """Both empty: nothing is known."""
        self._head = self._tail = b""
        """The same as the bytes of a whole event."""
        self._least = 0
        self.texts: list[str] = []
        """The texts of the records that wait to be read."""
        self.same: list[str] = []
        """Those records as they came."""

    def takes(self, record: Record) -> bool:
        """Whether the record is like the one before; then it waits."""
        data, before = record.data, self._before
        if not before or record.event or len(data) < self._least or not data.startswith(before):
            return False
        if not data.endswith(self._behind):
            return False
        text = data[len(before) : len(data) - len(self._behind)]
        if not _PLAIN(text):
            return False
        self.texts.append(text)
        self.same.append(data)
        return True

    def text_of(self, piece: bytes) -> str | None:
        """The text of a piece that is one event like the one before, and nothing else; None: it is not."""
        head, tail = self._head, self._tail
        if not head or not piece.startswith(head) or not piece.endswith(tail):
            return None
        text = piece[len(head) : -len(tail)]
        if not _PLAIN_BYTES(text) or len(piece) < len(head) + len(tail):
            return None
        try:
            found = text.decode()
        except UnicodeDecodeError:
            return None
        return found if found.isascii() or encoded(found) == text else None

    def taken(self) -> None:
        """What waited was read."""
        self.texts.clear()
        self.same.clear()

    def forget(self) -> None:
        """The next record is looked at as a whole."""
        self._before = self._behind = ""
        self._head = b""

    def learn(self, data: str, delta: Mapping[str, object], deltas: Sequence[Delta]) -> None:
        """A record that was read: whether the next ones may be compared with it."""
        content = delta.get("content")
        plain = len(delta) == 1 and isinstance(content, str) and _PLAIN(content) and deltas == [TextDelta(content)]
        found = [match.end() for match in _CONTENT.finditer(data)] if plain else []
        if len(found) == 1 and isinstance(content, str) and data.startswith(f'{content}"', found[0]):
            self._before, self._behind = data[: found[0]], data[found[0] + len(content) :]
            self._least = len(self._before) + len(self._behind) + 1
            self._head = f"data: {self._before}".encode("utf-8", "surrogatepass")
            self._tail = f"{self._behind}\n\n".encode("utf-8", "surrogatepass")
        else:
            self.forget()

    def empty(self) -> dict[str, object]:
        """A record of the kind that waits, without a text."""
        value = from_json(self._before + self._behind)
        return value if isinstance(value, dict) else {}
