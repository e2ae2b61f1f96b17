"""Puts the calls of a wire together from their fragments.

One law: arguments are read whole and strictly, or not at all. Nothing is closed off, guessed or repaired here.
"""

from __future__ import annotations

import json
import re
from typing import Any

_VOID = re.compile(r"\s*(?:\{\s*\}|null)?\s*")
"""Arguments that say nothing (yet): a placeholder that real ones may follow."""
_STOP = re.compile(r'["\\]')
_JUMP = re.compile(r'[^"{}\[\]\\]+')


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def arguments(text: str) -> tuple[dict[str, Any] | None, str]:
    """The object that `text` is, or None and why not: "truncated" or "malformed".

    Empty text and null are {} (a tool without parameters); an object that was encoded twice is decoded (policy S).
    """
    if _VOID.fullmatch(text):
        return {}, ""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if isinstance(value, str):
            return arguments(value) if not value.lstrip().startswith('"') else (None, "malformed")
    except (ValueError, RecursionError):
        scan = Extent()
        scan.feed(text)
        return None, "malformed" if scan.ended or scan.broken else "truncated"
    return (value, "") if isinstance(value, dict) else (None, "malformed")


class Extent:
    """Where the first JSON object of a growing text ends; looks at each character once."""

    __slots__ = ("_depth", "_escaped", "_string", "broken", "ended", "rest")

    def __init__(self) -> None:
        self._depth = 0
        self._string = self._escaped = False
        self.ended = False
        self.broken = False
        self.rest = False
        """Whether anything but white space followed the end."""

    def feed(self, text: str) -> None:
        """The next fragment."""
        at, size = 0, len(text)
        while at < size:
            if self._escaped:
                self._escaped = False
                at += 1
            elif self._string:
                found = _STOP.search(text, at)
                if found is None:
                    return
                at = found.end()
                if found.group() == "\\":
                    self._escaped = True
                else:
                    self._string = False
                    self._close(0)
            elif self.ended:
                self.rest = self.rest or not text[at:].isspace()
                return
            else:
                at = self._structure(text, at)

    def _structure(self, text: str, at: int) -> int:
        if jump := _JUMP.match(text, at):
            if not self._depth and not jump.group().isspace():
                self.broken = True
            return jump.end()
        char = text[at]
        if char == '"':
            self._string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._close(1)
        else:
            self.broken = True
        return at + 1

    def _close(self, by: int) -> None:
        self._depth -= by
        if self._depth < 0:
            self.broken = True
        if self._depth <= 0:
            self.ended = True
