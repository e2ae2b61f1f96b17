"""A dialect made ready for reading: its states, and what each marker means in each.

One law: compiled once a dialect, read by everybody, changed by nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from callgate.dialects._marks import Marks, marks
from callgate.dialects._spec import Calls, Dialect, Literals, Region

OPEN: Final = "open"
CLOSE: Final = "close"
END: Final = "end"
DROP: Final = "drop"
CALL: Final = "call"
CHANNEL: Final = "channel"

GUARD_OPENERS: Final = ("{", "[", "```")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a marker means."""

    kind: str
    text: str
    calls: Calls | None = None
    section: bool = False
    region: int = -1
    line: bool = False
    first: bool = False
    always: bool = False
    """A stray closer goes even in the middle of text."""


class State:
    """One state of the scanner: its markers and their rules."""

    __slots__ = ("alert", "by_text", "glance", "lined", "marks", "one", "reasoning", "rules", "silent", "two")

    def __init__(self, rules: list[Rule], *, suffix: bool, reasoning: bool = False, silent: bool = False) -> None:
        by_text: dict[str, Rule] = {}
        for rule in rules:
            by_text.setdefault(rule.text, rule)
        self.by_text = by_text
        self.rules = tuple(by_text.values())
        self.marks: Marks = marks(tuple(by_text), suffix)
        self.reasoning = reasoning
        self.silent = silent
        firsts = self.marks.first
        self.one = firsts[0] if 0 < len(firsts) < 3 else ""
        self.two = firsts[-1] if firsts else ""
        """The characters that may begin a marker, if they are one or two; `in` is faster than any expression."""
        self.alert = self.marks.alert
        self.glance = self.marks.glance
        self.lined = all(rule.line for rule in self.rules)
        """No marker counts in the middle of a line."""


class Plan:
    """All states of a dialect."""

    __slots__ = ("dialect", "regions", "text")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        calls = _call_rules(dialect)
        drops = [Rule(DROP, text) for text in dialect.drop]
        opens = [
            Rule(OPEN, text, region=n, first=region.first, line=region.line)
            for n, region in enumerate(dialect.regions)
            for text in region.open
        ]
        strays = [
            Rule(CLOSE, text, line=region.line, always=text in dialect.drop)
            for region in dialect.regions
            for text in region.close
        ]
        channels = []
        if dialect.channels is not None:
            starters = (
                dialect.channels.start
                if dialect.channels.recipient
                else (*dialect.channels.start, *dialect.channels.body)
            )
            channels = [Rule(CHANNEL, text) for text in starters]
            drops += [Rule(DROP, text) for text in dialect.channels.end]
        self.text = State(opens + strays + drops + calls + channels, suffix=dialect.suffix)
        self.regions: tuple[State, ...] = tuple(
            self._region(n, region, calls, drops) for n, region in enumerate(dialect.regions)
        )

    def _region(self, n: int, region: Region, calls: list[Rule], drops: list[Rule]) -> State:
        if region.kind == "text":
            return self.text
        rules = [Rule(CLOSE, text, region=n, line=region.line) for text in region.close]
        rules += [Rule(END, text, region=n, line=region.line) for text in region.ends_at]
        if region.kind == "reasoning":
            if self.dialect.reasoning_calls:
                rules += [rule for rule in calls if rule.calls is not None and not rule.calls.guard]
            rules += drops
        return State(
            rules, suffix=self.dialect.suffix, reasoning=region.kind == "reasoning", silent=region.kind == "drop"
        )

    @staticmethod
    @lru_cache(maxsize=256)
    def of(dialect: Dialect) -> Plan:
        """The plan of a dialect, made once."""
        return Plan(dialect)

    def start(self, prompt_tail: str) -> State:
        """The state that the end of the prompt leaves the text in (first of all traps)."""
        tail = prompt_tail.rstrip()
        if not tail:
            return self.text
        for region, state in zip(self.dialect.regions, self.regions, strict=True):
            for opener in (*region.open, *region.prefilled):
                if tail.endswith(opener.rstrip()):
                    return state
                if self.dialect.suffix and re.search(re.escape(opener[:-1]) + r":\w{1,32}>\Z", tail):
                    return state
        return self.text

    def header(self, prompt_tail: str) -> str | None:
        """What the prompt has already written of a channel's header, or of its body; None: the text begins in none."""
        channels = self.dialect.channels
        if channels is None:
            return None
        tail = prompt_tail.rstrip()
        if not tail or tail.endswith(channels.tail):
            return ""
        begun = max(tail.rfind(text) for text in channels.tail)
        if begun < 0:
            begun = tail.rfind(channels.start[-1])
        if channels.recipient or begun < 0:
            return None
        head = prompt_tail[begun:]
        return None if any(text in head for text in channels.end) else head


def _call_rules(dialect: Dialect) -> list[Rule]:
    rules = []
    for calls in dialect.calls:
        rules += [Rule(CALL, text, calls, section=True, line=calls.line) for text in calls.section]
        rules += [Rule(CALL, text, calls, line=calls.line) for text in calls.open]
        if calls.guard:
            openers = ("[",) if isinstance(calls.payload, Literals) else GUARD_OPENERS[: 3 if calls.fence else 2]
            openers = openers[2 if calls.fence_only else 0 :]
            rules += [Rule(CALL, text, calls, line=True) for text in openers]
    return rules
