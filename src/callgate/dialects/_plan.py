"""A dialect made ready for reading: its states, and what each marker means in each.

Law: a plan is compiled once a dialect and changed by nobody.
(tests/test_dialects_reading.py::test_a_plan_is_made_once_and_never_changes)
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from callgate.dialects._marks import SPECIAL, Marks, marks
from callgate.dialects._spec import Calls, Channels, Dialect, Literals, Region

OPEN: Final = "open"
CLOSE: Final = "close"
END: Final = "end"
DROP: Final = "drop"
CALL: Final = "call"
CHANNEL: Final = "channel"
OVER: Final = "over"

GUARD_OPENERS: Final = ("{", "[", "```")
_ASSISTANT: Final = re.compile(
    r"(?:[|｜]> ?|<start_of_turn>|<\|turn>|<seed:bos>|<SPECIAL_\d+>|\]~b\])(?:assistant|model|ai)\b"
    r"|<[|｜][^<>|｜\n]{0,24}(?:assistant|chatbot)[^<>|｜\n]{0,24}[|｜]>|<role>assistant</role>|\[/INST\]"
    r'|<\|open\|>message role="assistant"',
    re.IGNORECASE,
)
"""Headers of an assistant's turn, as the templates of the families write them."""


@dataclass(frozen=True, slots=True)
class MarkerRule:
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
    fresh: bool = False
    """Counts only before anything was thought."""
    special: bool = False
    """A special token, which a person does not type: what it begins is meant wherever it stands (A7)."""


class State:
    """One state of the scanner: its markers and their rules."""

    __slots__ = ("alert", "by_text", "glance", "lined", "marks", "one", "reasoning", "rules", "silent", "two")

    def __init__(self, rules: list[MarkerRule], *, suffix: bool, reasoning: bool = False, silent: bool = False) -> None:
        by_text: dict[str, MarkerRule] = {}
        for rule in rules:
            by_text.setdefault(rule.text, rule)
        self.by_text = by_text
        self.rules = tuple(by_text.values())
        self.marks: Marks = marks(tuple(by_text), suffix)
        self.reasoning = reasoning
        self.silent = silent
        firsts = self.marks.first
        self.one = firsts[0] if 0 < len(firsts) < 3 else ""
        self.two = firsts[-1] if len(firsts) == 2 else ""
        """The characters that may begin a marker, if they are one or two; `in` is faster than any expression."""
        self.alert = self.marks.alert
        self.glance = self.marks.glance
        self.lined = all(rule.line for rule in self.rules)
        """No marker counts in the middle of a line."""


class Plan:
    """All states of a dialect."""

    __slots__ = ("_edges", "_edges_of", "_reopened", "answer", "dialect", "regions", "text")

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        calls = _call_rules(dialect)
        drops = [MarkerRule(DROP, text) for text in dialect.drop]
        opens = [
            MarkerRule(OPEN, text, region=n, first=region.first, line=_in_words(region))
            for n, region in enumerate(dialect.regions)
            for text in region.open
        ]
        strays = [
            MarkerRule(CLOSE, text, always=text in dialect.drop) for region in dialect.regions for text in region.close
        ]
        channels = []
        if dialect.channels is not None:
            # a server may drop a header's first token; a line's end alone begins none
            starters = (*dialect.channels.start, *(text for text in dialect.channels.body if text.strip()))
            channels = [MarkerRule(CHANNEL, text, special=True) for text in starters]
            drops += [MarkerRule(OVER, text) for text in dialect.channels.end]
        self.text = State(opens + strays + drops + calls + channels, suffix=dialect.suffix)
        self.answer = State(opens + strays + drops + channels, suffix=dialect.suffix)
        """Text that is addressed to the user: it holds no calls."""
        self.regions: tuple[State, ...] = tuple(
            self._region(n, region, calls, drops) for n, region in enumerate(dialect.regions)
        )
        self._reopened: tuple[State, ...] = tuple(
            self._region(n, region, calls, drops, again=True) for n, region in enumerate(dialect.regions)
        )
        self._edges_of = tuple(_edges(dialect))
        self._edges = marks(tuple(text for text, _ in self._edges_of), dialect.suffix)

    def _region(
        self, n: int, region: Region, calls: list[MarkerRule], drops: list[MarkerRule], *, again: bool = False
    ) -> State:
        """The state of a region; `again`: where the prompt opened it, and the model may repeat that (policy M)."""
        if region.kind == "text":
            return self.text
        rules = [MarkerRule(CLOSE, text, region=n) for text in region.close]
        rules += [MarkerRule(END, text, region=n, line=True) for text in _ends_at(self.dialect, region)]
        reasoning = region.kind in ("reasoning", "sealed")
        if reasoning:
            if region.kind != "sealed":
                rules += [rule for rule in calls if rule.calls is not None and not rule.calls.guard]
            rules += drops
            rules = (_repeated(region) if again else []) + rules
        return State(rules, suffix=self.dialect.suffix, reasoning=reasoning, silent=region.kind == "drop")

    @staticmethod
    @lru_cache(maxsize=256)
    def of(dialect: Dialect) -> Plan:
        """The plan of a dialect, made once."""
        return Plan(dialect)

    def start(self, prompt_tail: str) -> State:
        """The state that the prompt leaves the text in (policy H): that of the last opener behind the last closer."""
        header = max((found.end() for found in _ASSISTANT.finditer(prompt_tail)), default=0)
        tail = prompt_tail[header:].rstrip()
        region, pos = -1, 0
        while True:
            which, start, end = self._edges.find(tail, pos, True)
            if which < 0:
                return self.text if region < 0 else self.regions[region]
            pos = end
            found = self._edges_of[which][1]
            if found >= 0 and _in_words(self.dialect.regions[found]) and tail[:start].rpartition("\n")[2].strip():
                continue
            if end == len(tail) and found >= 0:
                return self._reopened[found]
            region = found if found >= 0 and self.dialect.regions[found].kind in ("reasoning", "sealed") else -1

    def begun(self, prompt_tail: str) -> MarkerRule | None:
        """The call's opener with which the prompt ends."""
        tail = prompt_tail.rstrip()
        if not tail:
            return None
        calls = [rule for rule in self.text.rules if rule.kind == CALL and rule.text not in GUARD_OPENERS]
        rules = [rule for rule in calls if rule.text.strip() and tail.endswith(rule.text.rstrip())]
        return max(rules, key=lambda rule: len(rule.text), default=None)


def begun_header(channels: Channels | None, prompt_tail: str) -> str | None:
    """What the prompt has already written of a header, or of its body; None: the text begins in none."""
    if channels is None:
        return None
    tail = prompt_tail.rstrip()
    if not tail or tail.endswith(channels.tail):
        return ""
    begun = max(tail.rfind(text) for text in channels.tail)
    if begun < 0:
        begun = tail.rfind(channels.start[-1])
    if not channels.end or begun < 0:  # a header that is only a name is over with its line
        return None
    head = prompt_tail[begun:]
    return None if any(text in head for text in channels.end) else head


def _repeated(region: Region) -> list[MarkerRule]:
    """Its openers, and what a short one lacks of a long one: a label."""
    labels = [text.removeprefix(short) for text in region.open for short in region.open if text[-1] == "\n"]
    texts = dict.fromkeys(text for text in (*region.open, *labels) if text)
    return [MarkerRule(DROP, text, line=_in_words(region), fresh=True) for text in texts]


def _in_words(region: Region) -> bool:
    """Whether its markers are words, which count only at the start of a line: `Thought:` stands in prose, too."""
    return not region.close and not region.first


def _ends_at(dialect: Dialect, region: Region) -> list[str]:
    """What ends a region without closers, and stays in the text: whatever else begins."""
    if region.close or region.kind == "text":
        return []
    others = [text for other in dialect.regions if other is not region for text in other.open]
    return others + [text for calls in dialect.calls for text in calls.open]


def _edges(dialect: Dialect) -> list[tuple[str, int]]:
    """Where regions begin (their number) and end (-1), for reading the prompt's end; white space aside."""
    found: dict[str, int] = {}
    for n, region in enumerate(dialect.regions):
        for text in region.open:
            found.setdefault(text.rstrip(), n)
    for region in dialect.regions:
        for text in (*region.close, *_ends_at(dialect, region)):
            found.setdefault(text.rstrip(), -1)
    found.pop("", None)
    return list(found.items())


def _call_rules(dialect: Dialect) -> list[MarkerRule]:
    rules = []
    for calls in dialect.calls:
        if calls.guard:
            openers = ("[",) if isinstance(calls.payload, Literals) else GUARD_OPENERS[: 3 if calls.fence else 2]
            rules += [MarkerRule(CALL, text, calls, line=True) for text in calls.open or openers]
            continue
        rules += [
            MarkerRule(CALL, text, calls, section=section, line=calls.line, special=SPECIAL.search(text) is not None)
            for section, texts in ((True, calls.section), (False, calls.open))
            for text in texts
        ]
    return rules
