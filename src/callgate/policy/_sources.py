"""Where a value of a call was first seen: in what the user and the application wrote, or in a tool's result.

Theory of operation. Texts are compared as sequences of words, so case, white space, punctuation, HTML, percent
encoding, base64 and hexadecimal numbers make no difference, and the cost is that of the words looked at. (1) What the
user and the application wrote is one index, results in the order in which the model saw them are the other; both only
grow, and a message is read once. (2) A value is known if its words stand next to each other in a text. (3) A value that
the user or the application wrote is theirs, wherever else it stands. (4) Otherwise the first result that has it counts:
a tool that merely echoes what it was called with cannot make an untrusted value its own. (5) Identifiers with digits,
and words of scripts without spaces, are also compared without what separates their parts.

Law: the work of one question grows at most with the texts and the call, and stops at a named limit.
(tests/test_taint.py::test_work_grows_with_the_text_and_stops_at_its_limits)
"""

from __future__ import annotations

import base64
import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

if TYPE_CHECKING:
    from callgate.types import Message, ToolSpec

MAX_SEEN: Final = 400_000
"""Characters of results, and as many of what the user and the application wrote, that are compared: far more than a
model's context usually holds, and read in a fraction of a second."""
MAX_WORK: Final = 100_000
"""Places that are looked at for one call."""
MIN_COMPACT: Final = 8
"""Characters that an identifier needs to be compared without its separators; fewer would be met by chance."""

_WORD: Final = re.compile(r"\w+")
# Characters that show nothing are the cheapest way to make a copied value look new.
_INVISIBLE: Final = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_ESCAPE: Final = re.compile(r'\\(?:u([0-9a-fA-F]{4})|([\\"/bfnrt]))')
_TAG: Final = re.compile(r"</?[a-zA-Z][^<>]{0,200}>")
_ENCODED: Final = re.compile(r"[A-Za-z0-9+/_-]{8,4096}={0,2}")
_URL_SAFE: Final = str.maketrans("-_", "+/")
MIN_DECODED: Final = 6
"""Characters of what base64 says; fewer come out of ordinary words by chance."""
_SPELT: Final = re.compile(
    r"([\w.+-]{1,64})\s{0,3}[(\[{]?\s?\bat\b\s?[)\]}]?\s{0,3}"
    r"([\w-]{1,64}(\s{0,3}[(\[{]?\s?\bdot\b\s?[)\]}]?\s{0,3})[\w-]{1,64}(?:\3[\w-]{1,64}){0,3})",
    re.IGNORECASE,
)
"""`name (at) host (dot) com`."""
_SPACED: Final = re.compile(r"(?<!\S)(?:\S\s){7,200}\S(?!\S)")
"""`n a m e @ h o s t`."""
_SMUGGLED: Final = {n: n - 0xE0000 for n in range(0xE0020, 0xE007F)}
"""Unicode's tag characters: invisible to people, letters to a model."""
_NUMBER: Final = re.compile(r"\d[\d.,'\u2019]{2,40}\d")
"""Four digits at least: shorter numbers are not compared by value."""
_UNSPACED: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_GAP: Final = ""
"""A word that no text has: between two texts no sequence goes on."""


class TooMuch(Exception):
    """More would have to be compared than the named limit allows."""


def normalized(text: str) -> str:
    """The text without what makes equal values look different."""
    text = _INVISIBLE.sub("", html.unescape(unicodedata.normalize("NFKC", text.translate(_SMUGGLED))))
    for _ in range(3):  # encoded more often than that it is no address that anybody uses
        if (decoded := unquote(text)) == text:
            break
        text = decoded
    return text.casefold()


def words_of(text: str) -> list[str]:
    """The words of the text as they are compared."""
    return _WORD.findall(normalized(text))


def numbers_of(text: str) -> Iterator[str]:
    """The numbers in the text in one spelling, whichever sign separates thousands."""
    for written in _NUMBER.findall(text):
        if written.isdigit():
            yield written.lstrip("0")
            continue
        # 1,234.50 and 1.234,50 are both read; one of the two is what was meant.
        for thousands, point in ((",'\u2019", "."), (".'\u2019", ",")):
            plain = written.translate({ord(sign): None for sign in thousands}).replace(point, ".")
            if (number := number_of(plain)) is not None:
                yield number


def number_of(value: str | int | float) -> str | None:
    """A number in one spelling: 5000, 5000.0 and "5000.00" are the same. None: it is none."""
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return format(number.normalize(), "f").lstrip("-") if number.is_finite() and abs(number.adjusted()) < 60 else None


@dataclass(slots=True)
class _Index:
    """The words of several texts, in order, and where each of them stands."""

    words: list[str] = field(default_factory=list)
    places: dict[str, list[int]] = field(default_factory=dict)
    starts: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    """Number -> the first text that has it."""
    size: int = 0
    full: bool = False
    """Texts were left out, because there were too many characters."""
    _compact: str = ""
    _bounds: list[int] = field(default_factory=list)

    def add(self, text: str) -> None:
        """One more text; of one that does not fit any more only the beginning."""
        self.full |= self.size + len(text) > MAX_SEEN
        text = text[: max(0, MAX_SEEN - self.size)]
        self.size += len(text)
        self.starts.append(len(self.words))
        for form in forms(text):
            shown = normalized(form)
            new = [*_WORD.findall(shown), _GAP]
            for place, word in enumerate(new, len(self.words)):
                if word in self.places:
                    self.places[word].append(place)
                else:
                    self.places[word] = [place]
            self.words += new
            for number in numbers_of(shown):
                self.numbers.setdefault(number, len(self.starts) - 1)
        self._bounds.clear()

    def first(self, needle: Sequence[str], work: list[int]) -> int | None:
        """The first text in which these words stand next to each other."""
        # The word that stands in the fewest places is looked up first: "the" would lead to thousands.
        rarest = min(range(len(needle)), key=lambda at: len(self.places.get(needle[at], ())))
        for place in self.places.get(needle[rarest], ()):
            work[0] += 1 + len(needle) // 8
            if work[0] > MAX_WORK:
                raise TooMuch(f"more than {MAX_WORK} places to compare (MAX_WORK)")
            start = place - rarest
            if start >= 0 and self.words[start : start + len(needle)] == needle:
                return bisect_right(self.starts, start) - 1
        return None

    def first_compact(self, needle: str, work: list[int]) -> int | None:
        """The same for the bare characters of an identifier."""
        if not self._bounds:
            ends = [*self.starts[1:], len(self.words)]
            parts = ["".join(self.words[a:b]) for a, b in zip(self.starts, ends, strict=True)]
            self._compact, self._bounds = "\0".join(parts), [0]
            for part in parts:
                self._bounds.append(self._bounds[-1] + len(part) + 1)
        work[0] += 1 + len(self._compact) // 1000  # `find` passes as many characters in the time of one place
        at = self._compact.find(needle)
        return None if at < 0 else bisect_right(self._bounds, at) - 1


def forms(text: str) -> tuple[str, ...]:
    """The text as it is and, where it may hide something, as it reads without JSON's escapes, without tags, with
    addresses spelt out or spaced out put together, and what base64 and hexadecimal numbers in it say."""
    found = [text]
    if "\\" in text:
        plain = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else m[2] if m[2] in '\\"/' else " ", text)
        found.append(plain)
    if "<" in text:
        found.append(_TAG.sub("", text))
    parts = [decoded for token in _ENCODED.findall(text) if (decoded := _decoded(token))]
    parts += [m.expand(r"\1@\2").replace(m[3], ".") for m in _SPELT.finditer(text)]
    parts += [re.sub(r"\s", "", m[0]) for m in _SPACED.finditer(text)]
    if parts:
        found.append("\n".join(parts))
    return tuple(found)


def _decoded(token: str) -> str | None:
    """What base64 or a hexadecimal number says, if that is readable text."""
    for decode in (
        bytes.fromhex,
        lambda t: base64.b64decode(t.translate(_URL_SAFE) + "=" * (-len(t) % 4), validate=True),
    ):
        try:
            text = decode(token.rstrip("=")).decode("utf-8")
        except ValueError:
            continue
        if text.isprintable() and len(text) >= MIN_DECODED:
            return text
    return None


@dataclass(slots=True, frozen=True)
class Origin:
    """The result in which a value was first seen."""

    tool: str
    untrusted: bool
    """As its tool declares; a tool that nobody offers is vouched for by nobody."""


class Sources:
    """What was written and seen in one conversation so far."""

    def __init__(self, untrusted: Mapping[str, bool]) -> None:
        self.work = 0
        """Places looked at so far, for tests of what this costs."""
        self._untrusted = untrusted
        self._given = _Index()
        self._seen = _Index()
        self._origins: list[Origin] = []
        self._read = 0
        self._tools: dict[str, str] = {}
        """Call id -> the tool whose result it is."""

    @classmethod
    def of(cls, specs: Sequence[ToolSpec], instructions: str = "") -> Sources:
        """The sources of a conversation with these tools."""
        made = cls({spec.name: spec.untrusted for spec in specs})
        if instructions:
            made._given.add(instructions)
        return made

    @property
    def full(self) -> bool:
        """Whether results were left out because there were too many characters of them."""
        return self._seen.full

    @property
    def results(self) -> Sequence[Origin]:
        """The results so far, in the order in which the model saw them."""
        return self._origins

    def update(self, messages: Sequence[Message]) -> Sources:
        """Reads the messages that are new; a conversation only grows. Gives itself."""
        new, self._read = messages[self._read :], len(messages)
        for message in new:
            for call in message.calls:
                # A result read on keeps the origin of the tool that gave it: `read_result` only shows the rest.
                about = call.arguments.get("call_id") if call.name == "read_result" else None
                self._tools[call.id] = self._tools.get(about, call.name) if isinstance(about, str) else call.name
            if message.role in ("user", "system"):
                self._given.add(message.text)
            elif message.role == "tool":
                tool = self._tools.get(message.call_id or "", message.name or "an unknown tool")
                # Unknown tools count as untrusted: nobody vouches for what they return.
                self._origins.append(Origin(tool, self._untrusted.get(tool, True)))
                self._seen.add(message.text)
        return self

    def question(self) -> Question:
        """Asks about the values of one call."""
        return Question(self)


class Question:
    """Where the values of one call come from. Raises TooMuch when the work of all its answers is over MAX_WORK."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._work = [0]

    def origin(self, words: Sequence[str]) -> Origin | None:
        """The result that these words come from; None: the user or the application wrote them, or no result has."""
        needle = list(words)
        return self._first(lambda index: _find(index, needle, self._work))

    def is_given(self, words: Sequence[str]) -> bool:
        """Whether the user or the application wrote these words."""
        return _find(self._sources._given, list(words), self._work) is not None

    def is_seen(self, word: str) -> bool:
        """Whether a result has the word at all: where not, no passage with it needs to be compared."""
        return word in self._sources._seen.places

    def number_origin(self, number: str) -> Origin | None:
        """The same for a number in the spelling of `number_of`."""
        return self._first(lambda index: index.numbers.get(number))

    def _first(self, find: Callable[[_Index], int | None]) -> Origin | None:
        sources, before = self._sources, self._work[0]
        try:
            # What the user wrote himself is his, even where a result repeats it.
            if find(sources._given) is not None:
                return None
            at = find(sources._seen)
        finally:
            sources.work += self._work[0] - before
        return None if at is None else sources._origins[at]


def _find(index: _Index, words: list[str], work: list[int]) -> int | None:
    at = index.first(words, work)
    compact = "".join(words)
    if not _is_identifier(compact):
        return at
    bare = index.first_compact(compact, work)
    return at if bare is None else bare if at is None else min(at, bare)


def _is_identifier(compact: str) -> bool:
    if _UNSPACED.search(compact):
        return len(compact) >= 2
    return len(compact) >= MIN_COMPACT and any(c.isdigit() for c in compact)
