"""The texts of a request that can be values: quoted texts, dates, names, paths, codes, phrases and rows of them.

Law: everything found here stands in the request to the letter; nothing is made up.
(tests/test_grounding_laws.py::test_no_text_is_made_up)

English and Chinese; other languages get quoted texts and whole words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from callgate.grounding.dates import DATE
from callgate.grounding.spelt import chinese
from callgate.grounding.wording import MAX_TEXT, STOP, Word, han_values, word_set, words

MAX_PHRASE = 6
"""Words of the longest phrase offered as a value."""
MAX_PHRASES = 160
"""Phrases offered for one argument; more would slow the engine's grammar down."""

_QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|「([^」\n]{1,200})」|《([^》\n]{1,200})》|`([^`\n]{1,200})`"
)
# Not after a letter or digit, else the apostrophe of "don't" would open a quotation.
_SINGLE = re.compile(r"(?<![A-Za-z0-9])['‘]([^\n]{1,200}?)['’](?![A-Za-z0-9])")
_HAN_DATE = re.compile(
    r"大后天|今天|明天|后天|昨天|前天|今晚|明早|[上下本这]?(?:周|星期|礼拜)[一二三四五六日天末]|[上下本]周|[上下本]个?月|"
    r"(?:\d{4}年)?\d{1,2}月(?:\d{1,2}[日号])?|[一二三四五六七八九十]+月[一二三四五六七八九十]+[日号]"
)


def quoted(text: str) -> list[str]:
    """Texts in quotation marks."""
    text = text[:MAX_TEXT]
    found = [(m.start(), next(g for g in m.groups() if g is not None)) for m in _QUOTED.finditer(text)]
    found += [(m.start(), m.group(1)) for m in _SINGLE.finditer(text)]
    return _unique(t.strip() for _, t in sorted(found))


def dates(text: str) -> list[str]:
    """Dates as written."""
    text = text[:MAX_TEXT]
    return _unique(m.group() for pattern in (DATE, _HAN_DATE) for m in pattern.finditer(text))


# --- names --------------------------------------------------------------------------------------------------------

_JOINERS = word_set("of the de la van von and & 's")
_TITLES = word_set("dr mr mrs ms st mt jr vs v prof")
_ENDS = (".", "!", "?", "。", "？", "！")


def names(text: str, known: AbstractSet[str] = frozenset()) -> list[str]:
    """Runs of capitalised words, with the small words that stand inside names; not the word that opens a sentence, no
    date, and without the possessive of what belongs to them. `known` are Chinese terms that are no part of a name."""
    out: list[str] = []
    run: list[Word] = []
    every = words(text)
    days = [(m.start(), m.end()) for m in DATE.finditer(text[:MAX_TEXT])]
    for i, word in enumerate(every):
        opens = i == 0 or every[i - 1].text in _ENDS or text[every[i - 1].end : every[i - 1].end + 1] in _ENDS
        if run and opens and run[-1].text.lower() not in _TITLES:
            _close(run, text, out)  # a name does not go on in the next sentence
        dated = any(s <= word.start < e for s, e in days)
        if not dated and _joins(every, i, run, opens=opens):
            run.append(word)
        else:
            _close(run, text, out)
        if run and _owns(every, i):
            _close(run, text, out)
    _close(run, text, out)
    return _unique([*out, *_han_names(text, known)])


def _joins(every: list[Word], i: int, run: list[Word], *, opens: bool) -> bool:
    """Whether a word is part of a name."""
    word = every[i].text
    # "and" joins two names as often as it stands in one ("Paris and Rome"), so it ends a name.
    if run and word.lower() in _JOINERS and word != "and":
        return _next_capital(every, i)
    capital = (word[:1].isupper() and word != "I") or (bool(run) and word[:1].isdigit())
    # A sentence begins with a capital whatever the word is; two in a row are a name even there.
    first = opens and not run and (word.lower() in STOP or not _next_capital(every, i))
    return capital and not first


def _owns(every: list[Word], i: int) -> bool:
    """Whether the word is a possessive before the thing that is owned: "Ronaldo's goals", not "at Luigi's for four"."""
    if not every[i].text.endswith(("'s", "’s")) or i + 1 == len(every):
        return False
    after = every[i + 1].text
    return after[:1].isalpha() and after[:1].islower() and after.lower() not in STOP


def _next_capital(every: list[Word], i: int) -> bool:
    return i + 1 < len(every) and every[i + 1].text[:1].isupper()


def _close(run: list[Word], text: str, out: list[str]) -> None:
    """The run is a name, and a new one may begin."""
    if run:
        name = text[run[0].start : run[-1].end]
        after = text[run[-1].end :].lstrip()[:1]
        owns = after.isalpha() and after.islower() and not _stops(text[run[-1].end :])
        out.append(re.sub("['’]s$", "", name) if owns else name)
        run.clear()


def _stops(text: str) -> bool:
    following = re.match(r"\s*([A-Za-z]+)", text)
    return following is not None and following[1].lower() in STOP


def _han_names(text: str, known: AbstractSet[str] = frozenset()) -> list[str]:
    """Chinese has no capitals: what stands between the words that carry no meaning may be a name; without the terms
    that the tool itself is described in, as far as something is left."""
    text = _HAN_DATE.sub("，", text[:MAX_TEXT])
    for number in chinese(text):
        text = text[: number.start] + "，" * (number.end - number.start) + text[number.end :]
    parts = [part for part in han_values(text) if len(part) > 1]
    if not known:
        return parts
    left = [piece for part in parts for piece in _without(part, known) if len(piece) > 1]
    return left or parts


def _without(part: str, known: AbstractSet[str]) -> list[str]:
    """What is left of a run of Chinese when the known pairs of characters are cut out of it."""
    kept = list(part)
    for i in range(len(part) - 1):
        if part[i : i + 2] in known:
            kept[i] = kept[i + 1] = " "
    return "".join(kept).split()


# --- phrases ------------------------------------------------------------------------------------------------------


def phrases(text: str, known: AbstractSet[str] = frozenset()) -> list[str]:
    """Runs of up to six words that neither begin nor end with an empty word, the likeliest values first: quoted texts,
    dates, names, then the others from short to long."""
    every = words(text)
    runs: list[str] = []
    for size in range(1, MAX_PHRASE + 1):
        for i in range(len(every) - size + 1):
            part = every[i : i + size]
            if _may_stand(part):
                runs.append(text[part[0].start : part[-1].end])
    return _unique([*quoted(text), *dates(text), *names(text, known), *runs])[:MAX_PHRASES]


def _may_stand(part: list[Word]) -> bool:
    first, last = part[0].text, part[-1].text
    if not (first[:1].isalnum() and last[-1:].isalnum()):
        return False
    if any(w.text in "?!;.:()[]{}\"'‘’“”=、。？！，" for w in part):
        return False
    if any(w.text == "," and not after.text[:1].isupper() for w, after in pairwise(part)):
        return False
    if any("\u4e00" <= w.text <= "\u9fff" for w in part):
        return False  # Chinese words are no single characters: those between empty words are names already
    return first.lower() not in STOP and last.lower() not in STOP


Kind: TypeAlias = Literal["quoted", "date", "path", "code", "name", "phrase"]


@dataclass(slots=True, frozen=True)
class Span:
    """A stretch of the request that can be a value."""

    text: str
    start: int
    end: int
    kind: Kind


_PATHLIKE = re.compile(r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.]+|(?:[A-Za-z]:)?[~.\w-]*/[\w./~-]+|\b[\w-]+\.[a-z]{2,4}\b")
_CODELIKE = re.compile(r"#?(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w-]{2,}")


def spans(text: str, known: AbstractSet[str] = frozenset()) -> list[Span]:
    """Everything in the request that can be a text value, the likeliest first; a phrase inside a name or a quoted text
    is not offered."""
    text = text[:MAX_TEXT]
    found: list[Span] = []
    kinds: tuple[tuple[Kind, list[str]], ...] = (
        ("quoted", quoted(text)),
        ("date", dates(text)),
        ("path", [m.group().rstrip(".,;?!") for m in _PATHLIKE.finditer(text)]),
        ("code", [w.text for w in words(text) if _CODELIKE.fullmatch(w.text)]),
        ("name", names(text, known)),
        ("phrase", phrases(text, known)),
    )
    for kind, values in kinds:
        for value in values:
            at = text.find(value)
            span = Span(value, at, at + len(value), kind)
            if not any(s.start <= at and span.end <= s.end for s in found if s.kind != "phrase"):
                found.append(span)
    return found[:MAX_PHRASES]


_UNITS = word_set(
    """
    km/h m/s mph miles mile kilometers kilometer km meters meter feet foot inches inch cm mm celsius fahrenheit kelvin
    pounds kilograms kg grams ounces liters gallons usd eur gbp dollars euros degrees radians hours minutes seconds
    """
)


def unit_asked(text: str) -> list[str]:
    """The unit that an answer is wanted in: "in miles"."""
    found = re.findall(r"\b(?:in|to|into|as)\s+([A-Za-z/°]+)", text)
    return [word for word in found if word.lower().rstrip(".?") in _UNITS]


# --- rows ---------------------------------------------------------------------------------------------------------

_BRACKETS = re.compile(r"[\[(]([^\[\]()\n]{1,400})[\])]")
_MARKS = re.compile(r"\s*(,\s*(?:and|or)\s+|,|、|，|\s+and\s+|\s+or\s+|和|\s+&\s+|\s+plus\s+)\s*")


def text_lists(text: str) -> list[list[str]]:
    """Lists of texts: in brackets, or in a row with commas and "and"."""
    out: list[list[str]] = []
    text = text[:MAX_TEXT]
    for match in _BRACKETS.finditer(text):
        items = [i.strip().strip("'\"“”‘’") for i in match.group(1).split(",")]
        if len(items) > 1 and all(items):
            out.append(items)
    for sentence in re.split(r"(?<=[.!?;:])\s|\n", text):
        out += _rows(sentence)
    return [one for i, one in enumerate(out) if one not in out[:i]]


def _rows(sentence: str) -> list[list[str]]:
    """A row of items: the ones in the middle are whole; of the first the last words belong, of the last the first."""
    parts = _MARKS.split(sentence.rstrip(".!?。？ "))
    items, marks = parts[0::2], parts[1::2]
    out: list[list[str]] = []
    start = 0
    for i, mark in enumerate(marks):
        long = len(items[i + 1].split()) > 4  # such an item ends one row and may begin the next
        if not (_ends_row(mark) or long or i == len(marks) - 1):
            continue
        row = items[start : i + 2]
        if len(row) >= 2 and all(row) and (_ends_row(mark) or len(row) > 2):
            middle = max((len(r.split()) for r in row[1:-1]), default=0)
            out.append([_tail(row[0], middle), *row[1:-1], _head(row[-1], middle)])
        start = i + 1
    return [r for r in out if all(r)]


def _ends_row(mark: str) -> bool:
    return bool(re.search(r"and|or|和|&|plus", mark))


def _tail(item: str, size: int) -> str:
    spots = list(re.finditer(r"\S+", item))
    if spots and spots[-1].group()[:1].isupper():
        size = next((i for i, w in enumerate(reversed(spots)) if not w.group()[:1].isupper()), len(spots))
    kept = spots[-max(size, 1) :]
    while len(kept) > 1 and kept[0].group().lower() in STOP:
        kept = kept[1:]
    return item[kept[0].start() :].strip("'\"“”‘’: ") if kept else ""


def _head(item: str, size: int) -> str:
    spots = list(re.finditer(r"\S+", item))
    if spots and spots[0].group()[:1].isupper():
        size = next((i for i, w in enumerate(spots) if not w.group()[:1].isupper()), len(spots))
    kept = spots[: max(size, 1)]
    end = next((i for i, w in enumerate(kept) if i and w.group().lower() in STOP), len(kept))
    return item[: kept[end - 1].end()].strip("'\"“”‘’, ") if kept else ""


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(t for t in texts if t))
