"""What a request says: its numbers, quoted texts, names, dates and lists, each as it can stand in an argument.

One law: everything found here stands in the request; nothing is made up. Works on the request alone, in English and
Chinese; other languages get quoted texts, digits and whole words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Literal

MAX_TEXT = 4000
"""Characters of a request that are looked at: beyond that it is a document, not a request."""
MAX_EXPRESSION = 1000
"""Characters of a request in which arithmetic is looked for."""
MAX_NUMBERS = 40
"""Numbers of a request that are matched to parameters; a longer row is a list."""
MAX_PHRASE = 6
"""Words of the longest phrase offered as a value."""
MAX_PHRASES = 160
"""Phrases offered for one argument; more would slow the engine's grammar down."""


def word_set(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


STOP = word_set(
    """
    a an the of in on at to for from by with and or is are was were be been do does did can could will would
    should i me my we us our you your it its this that these those what which who whom whose when where why how
    please if as about into than then so not no there here have has had get give tell show find let want need
    like using use per between within during under over up out any all some only also just need needs help
    """
)
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_'’.@:/&+#-]*|[\u4e00-\u9fff]|[^\s\w]", re.UNICODE)
_NUMBER = re.compile(
    r"(?<![\w.^])(?P<sign>[-−+])?(?:[$€£¥]\s?)?(?P<num>\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"(?P<exp>[eE][-+]?\d+)?(?P<suffix>\s?(?:%|percent\b|million\b|billion\b|thousand\b|hundred\b|[kKM](?![A-Za-z]))|"
    r"(?:st|nd|rd|th)\b|[万亿千百])?"
)
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty"
)
_TENS = "thirty forty fifty sixty seventy eighty ninety hundred"
_WORDS: dict[str, float] = {
    **{word: number for number, word in enumerate(str.split(_COUNTED))},
    **{word: 10 * number for number, word in enumerate(str.split(_TENS), 3)},
    "twice": 2,
    "double": 2,
    "dozen": 12,
    "once": 1,
    "pair": 2,
    "half": 0.5,
    "annually": 1,
    "yearly": 1,
    "quarterly": 4,
    "monthly": 12,
    "weekly": 52,
    "daily": 365,
}
_PERIODS = frozenset({"annually", "yearly", "quarterly", "monthly", "weekly", "daily"})
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "tenth": 10}
_HAN = {c: i for i, c in enumerate("零一二三四五六七八九十")} | {"两": 2}
_SCALE: dict[str, float] = {
    "%": 0.01, "percent": 0.01, "million": 1e6, "billion": 1e9, "thousand": 1e3, "hundred": 100, "k": 1e3, "K": 1e3,
    "M": 1e6, "万": 1e4, "亿": 1e8, "千": 1e3, "百": 100,
}  # fmt: skip


@dataclass(slots=True, frozen=True)
class Number:
    """A number of the request, where it stands, and the other value it may mean (5% is 5 or 0.05)."""

    value: float | int
    start: int
    end: int
    other: float | int | None = None
    weak: bool = False
    """Written as a word, which often means something else."""
    percent: bool = False
    in_date: bool = False

    @property
    def values(self) -> tuple[float | int, ...]:
        """What it may mean, the likeliest first."""
        return (self.value,) if self.other is None else (self.value, self.other)


@dataclass(slots=True, frozen=True)
class Word:
    """A word or sign of the request."""

    text: str
    start: int
    end: int

    @property
    def stem(self) -> str:
        """Lower case, without the commonest endings."""
        return stem(self.text)


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """A word without case and the commonest English endings: enough to see that two words are kin."""
    word = word.lower().rstrip(".,:;!?'’").removesuffix("'s").removesuffix("’s")
    for ending, rest in (("ies", "y"), ("sses", "ss"), ("ations", "ate"), ("ation", "ate"), ("ing", ""), ("ed", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending) + rest
            break
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    if word.endswith("e") and len(word) > 4:
        word = word[:-1]
    return word


def stem_set(text: str) -> frozenset[str]:
    """The stems of a text's words."""
    return frozenset(stem(word) for word in text.split())


def words(text: str) -> list[Word]:
    """The words and signs of a text in order."""
    out = []
    for match in _WORD.finditer(text[:MAX_TEXT]):
        found = match.group()
        trimmed = found.rstrip(".:'’,/-") or found
        out.append(Word(trimmed, match.start(), match.start() + len(trimmed)))
    return out


def content(text: str) -> set[str]:
    """The stems that carry meaning: of a request, a name in any case style, a description."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.\-/]", " ", text)
    latin = {w.stem for w in words(spaced) if w.text.lower() not in STOP and w.text.isalnum() and w.text < "\u4e00"}
    return latin | {w.stem for w in words(spaced) if len(w.text) > 1 and w.text.lower() not in STOP} | han_terms(text)


_HAN_RUN = re.compile(r"[\u4e00-\u9fff]+")
_HAN_STOP = re.compile(
    "请问|请|帮我|帮|告诉|查询|查找|查一下|搜索|获取|怎么样|怎样|怎么|什么|哪里|哪个|哪些|多少|一下|现在|今天|某个|某|给定|"
    "指定|可以|需要|我们|我|你|的|了|吗|呢|是|在|有|和|与|或|把|给|个|这|那|几点|为|等于"
)


def han_terms(text: str) -> set[str]:
    """Chinese terms: pairs of neighbouring characters between the words that carry no meaning."""
    out: set[str] = set()
    for run in _HAN_RUN.findall(text[:MAX_TEXT]):
        for part in _HAN_STOP.split(run):
            out |= {part} if len(part) == 1 else {part[i : i + 2] for i in range(len(part) - 1)}
    return out


def is_han(text: str) -> bool:
    """Whether a text is written in Chinese characters for a good part."""
    return sum(len(run) for run in _HAN_RUN.findall(text)) * 3 >= len(text.strip())


def stems(text: str) -> set[str]:
    """All stems, empty words included."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|[_.\-/]", " ", text)
    return {w.stem for w in words(spaced)}


def numbers(text: str) -> list[Number]:
    """The numbers in the order in which they stand, digits and words."""
    text = _BRACKETS.sub(lambda m: m.group().replace(",", ";"), text[:MAX_TEXT])  # no thousands inside a list
    found = [_number(match, text) for match in _NUMBER.finditer(text)]
    days = [(m.start(), m.end()) for m in _DATE.finditer(text)]
    found = [replace(n, in_date=any(s <= n.start < e for s, e in days)) for n in found]
    taken = [(n.start, n.end) for n in found]
    for word in words(text):
        low = word.text.lower()
        value = _WORDS.get(low, _ORDINALS.get(low, _HAN.get(low)))
        if value is not None and not any(s <= word.start < e for s, e in taken):
            found.append(Number(_tidy(float(value)), word.start, word.end, weak=True))
    return sorted(found, key=lambda n: n.start)


def _number(match: re.Match[str], text: str) -> Number:
    digits = match["num"].replace(",", "") + (match["exp"] or "")
    value = _tidy(float(digits)) if "." in digits or match["exp"] else int(digits)
    before = text[match.start() - 1 : match.start()]
    if match["sign"] in ("-", "−") and not before.isalnum() and before != ")":
        value = -value
    elif "." in digits and re.match(r"\s?°?\s?[WS]\b", text[match.end() :]):
        value = -value  # a longitude west, a latitude south
    scale = _SCALE.get((match["suffix"] or "").strip())
    if scale is None:
        return Number(value, match.start(), match.end())
    scaled = _tidy(round(value * scale, 9))
    if scale == 0.01:
        return Number(value, match.start(), match.end(), scaled, percent=True)
    return Number(scaled, match.start(), match.end(), value)


def _tidy(value: float) -> float | int:
    return int(value) if value.is_integer() and abs(value) < 1e15 else value


_QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|「([^」\n]{1,200})」|《([^》\n]{1,200})》|`([^`\n]{1,200})`"
)
_SINGLE = re.compile(r"(?<![A-Za-z0-9])['‘]([^\n]{1,200}?)['’](?![A-Za-z0-9])")
_DATE = re.compile(
    r"\b\d{4}[-/]\d{1,2}[-/]\d{1,2}\b|\b\d{1,2}/\d{1,2}/\d{2,4}\b|"
    r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?\s\d{1,2}(?:st|nd|rd|th)?(?:,?\s\d{4})?\b|"
    r"\b\d{1,2}(?:st|nd|rd|th)?(?:\sof)?\s(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*(?:,?\s\d{4})?\b"
)


def quoted(text: str) -> list[str]:
    """Texts in quotation marks."""
    text = text[:MAX_TEXT]
    found = [(m.start(), next(g for g in m.groups() if g is not None)) for m in _QUOTED.finditer(text)]
    found += [(m.start(), m.group(1)) for m in _SINGLE.finditer(text)]
    return _unique(t.strip() for _, t in sorted(found))


def names(text: str) -> list[str]:
    """Runs of capitalised words, with the small words that stand inside names; not the word that opens a sentence."""
    out: list[str] = []
    run: list[Word] = []
    joiners = {"of", "the", "de", "la", "van", "von", "and", "&", "'s"}
    every = words(text)
    for i, word in enumerate(every):
        opens = i == 0 or text[every[i - 1].end : every[i - 1].end + 1] in (".", "!", "?")
        if run and opens and run[-1].text.lower() not in _TITLES:
            _close(run, text, out)  # a name does not go on in the next sentence
            run = []
        capital = (word.text[:1].isupper() and word.text != "I") or (bool(run) and word.text[:1].isdigit())
        inside = bool(run) and word.text.lower() in joiners and word.text != "and" and _next_capital(every, i)
        first = opens and not run and (word.text.lower() in STOP or not _next_capital(every, i))
        if inside or (capital and not first):
            run.append(word)
        else:
            _close(run, text, out)
            run = []
    _close(run, text, out)
    return _unique([*out, *_han_names(text)])


def _han_names(text: str) -> list[str]:
    """Chinese has no capitals: what stands between the words that carry no meaning may be a name."""
    return [part for run in _HAN_RUN.findall(text[:MAX_TEXT]) for part in _HAN_STOP.split(run) if len(part) > 1]


_TITLES = frozenset({"dr", "mr", "mrs", "ms", "st", "mt", "jr", "vs", "v", "prof"})


def _next_capital(every: list[Word], i: int) -> bool:
    return i + 1 < len(every) and every[i + 1].text[:1].isupper()


def _close(run: list[Word], text: str, out: list[str]) -> None:
    if run:
        out.append(text[run[0].start : run[-1].end])


def dates(text: str) -> list[str]:
    """Dates as written."""
    return _unique(m.group() for m in _DATE.finditer(text[:MAX_TEXT]))


def phrases(text: str) -> list[str]:
    """Runs of up to six words that neither begin nor end with an empty word, the likeliest values first: quoted texts,
    dates, names, then the others from short to long."""
    every = words(text)
    runs: list[str] = []
    for size in range(1, MAX_PHRASE + 1):
        for i in range(len(every) - size + 1):
            part = every[i : i + size]
            if _may_stand(part):
                runs.append(text[part[0].start : part[-1].end])
    return _unique([*quoted(text), *dates(text), *names(text), *runs])[:MAX_PHRASES]


def _may_stand(part: list[Word]) -> bool:
    first, last = part[0].text, part[-1].text
    if not (first[:1].isalnum() and last[-1:].isalnum()):
        return False
    if any(w.text in "?!;.:()[]{}\"'‘’“”=、。？！，" for w in part):
        return False
    if any(w.text == "," and not after.text[:1].isupper() for w, after in pairwise(part)):
        return False
    if len(part) == 1 and "\u4e00" <= first <= "\u9fff":
        return False
    return first.lower() not in STOP and last.lower() not in STOP


@dataclass(slots=True, frozen=True)
class Span:
    """A stretch of the request that can be a value."""

    text: str
    start: int
    end: int
    kind: Literal["quoted", "date", "path", "code", "name", "phrase"]


_PATHLIKE = re.compile(r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.]+|(?:[A-Za-z]:)?[~.\w-]*/[\w./~-]+|\b[\w-]+\.[a-z]{2,4}\b")


_CODELIKE = re.compile(r"#?(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9][\w-]{2,}")


def spans(text: str) -> list[Span]:
    """Everything in the request that can be a text value, the likeliest first; a phrase inside a name or a quoted text
    is not offered."""
    text = text[:MAX_TEXT]
    found: list[Span] = []
    for kind, values in (
        ("quoted", quoted(text)),
        ("date", dates(text)),
        ("path", [m.group().rstrip(".,;?!") for m in _PATHLIKE.finditer(text)]),
        ("code", [w.text for w in words(text) if _CODELIKE.fullmatch(w.text)]),
        ("name", names(text)),
        ("phrase", phrases(text)),
    ):
        for value in values:
            at = text.find(value)
            span = Span(value, at, at + len(value), kind)  # type: ignore[arg-type]
            if not any(s.start <= at and span.end <= s.end for s in found if s.kind != "phrase"):
                found.append(span)
    return found[:MAX_PHRASES]


_MONTHS = {
    m: i for i, m in enumerate(["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"], 1)
}


def date_parts(text: str) -> tuple[int, int, int] | None:
    """Year, month and day of a full date; None if it is none."""
    if match := re.fullmatch(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})", text):
        return int(match[1]), int(match[2]), int(match[3])
    if match := re.fullmatch(r"([A-Za-z]{3})[a-z]*\.?\s(\d{1,2})(?:st|nd|rd|th)?,?\s(\d{4})", text):
        month, day = _MONTHS.get(match[1].lower()), int(match[2])
    elif match := re.fullmatch(r"(\d{1,2})(?:st|nd|rd|th)?(?:\sof)?\s([A-Za-z]{3})[a-z]*,?\s(\d{4})", text):
        month, day = _MONTHS.get(match[2].lower()), int(match[1])
    else:
        return None
    return (int(match[3]), month, day) if month else None


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


_OPERATIONS = (
    (r"\bto the power of\b|\braised to\b", "^"),
    (r"\b(?:multiplied by|times|multiply)\b|[×·]|乘以|乘", "*"),
    (r"\b(?:divided by|over)\b|÷|除以", "/"),
    (r"\b(?:plus|added to|and add)\b|加上|加", "+"),
    (r"\b(?:minus|less|subtract)\b|[−–]|减去|减", "-"),
    (r"\bsquared\b|的平方", "^2"),
    (r"\bcubed\b", "^3"),
    (r"\b(?:modulo|mod)\b", "%"),
)
_ARITHMETIC = re.compile(r"(?:sqrt\(|[-(])*\s*\d[\d.]*(?:\s*(?:\^|\*\*|[-+*/%()])\s*|\s*sqrt\(|\d[\d.]*)*")


@lru_cache(maxsize=256)
def expression(text: str) -> str | None:
    """The arithmetic that a request asks for, as an expression: "15% of 80" is "15 / 100 * 80"; None: there is none."""
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", " ".join(text[:MAX_EXPRESSION].split()))
    for word in words(text):
        if (value := _WORDS.get(word.text.lower())) is not None and word.text.lower() not in _PERIODS:
            text = re.sub(rf"\b{word.text}\b", str(value), text)
    text = re.sub(r"(\d[\d.]*)\s*(?:%|percent)\s+of\s+(?:the\s+)?[$€£]?(\d[\d.]*)", r"\1 / 100 * \2", text, flags=re.I)
    text = re.sub(r"(?:the\s+)?(?:square\s+root|sqrt)\s+of\s+(\d[\d.]*)", r"sqrt(\1)", text, flags=re.I)
    text = re.sub(r"(\d[\d.]*)\s*的平方根", r"sqrt(\1)", text)
    text = re.sub(r"\b(?:sum of|add)\s+(\d[\d.]*)\s+(?:and|to)\s+(\d[\d.]*)", r"\1 + \2", text, flags=re.I)
    text = re.sub(r"\bproduct of\s+(\d[\d.]*)\s+and\s+(\d[\d.]*)", r"\1 * \2", text, flags=re.I)
    text = re.sub(r"\bdivide\s+(\d[\d.]*)\s+by\s+", r"\1 / ", text, flags=re.I)
    text = re.sub(r"\bmultiply\s+(\d[\d.]*)\s+(?:by|with|and)\s+", r"\1 * ", text, flags=re.I)
    text = re.sub(r"\bsubtract\s+(\d[\d.]*)\s+from\s+(\d[\d.]*)", r"\2 - \1", text, flags=re.I)
    for pattern, sign in _OPERATIONS:
        text = re.sub(rf"\s*(?:{pattern})", f" {sign} ", text, flags=re.I)
    text = re.sub(r"(?<=\d)\s*[xX]\s*(?=\d)", " * ", text)
    found = [m.group().strip(" .,") for m in _ARITHMETIC.finditer(text)]
    found = [f for f in found if re.search(r"\d\s*(?:\*\*|[-+*/%^])\s*[\d(s]|sqrt\(", f)]
    best = max(found, key=len, default=None)
    if best is None or re.fullmatch(r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}/\d{1,2}/\d{2,4}", best):
        return None
    return re.sub(r"\s+", " ", best + ")" * (best.count("(") - best.count(")"))).strip(" +*/%^-")


_BRACKETS = re.compile(r"[\[(]([^\[\]()\n]{1,400})[\])]")
_UNIT = r"(?:\s?(?!and\b|or\b)[a-zA-Z°]{1,12})?"
_RUN = re.compile(
    rf"(?<![\w.])[-−]?\d[\d.]*%?{_UNIT}(?:\s*,\s*(?:and\s+)?[-−]?\d[\d.]*%?{_UNIT}|\s+and\s+[-−]?\d[\d.]*)+"
)


def number_lists(text: str) -> list[list[float | int]]:
    """Lists of numbers: in brackets, or in a row with commas and "and"."""
    out: list[list[float | int]] = []
    text = text[:MAX_TEXT]
    spots = [m for m in _BRACKETS.finditer(text) if _only_numbers(m.group(1))]
    taken = [(m.start(), m.end()) for m in spots]
    spots += [m for m in _RUN.finditer(text) if not any(s <= m.start() < e for s, e in taken)]
    for match in sorted(spots, key=lambda m: m.start()):
        values = [n.value for n in numbers(match.group().strip("[]()").replace(",", ";"))]
        if values and values not in out:
            out.append(values)
    return out


def _only_numbers(text: str) -> bool:
    return all(re.fullmatch(r"\s*[-−+]?[\d.]+(?:[eE][-+]?\d+)?\s*", part) for part in text.split(","))


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
    return _unique_lists(out)


def _rows(sentence: str) -> list[list[str]]:
    """A row of items: the ones in the middle are whole; of the first the last words belong, of the last the first."""
    parts = re.split(
        r"\s*(,\s*(?:and|or)\s+|,|、|，|\s+and\s+|\s+or\s+|和|\s+&\s+|\s+plus\s+)\s*", sentence.rstrip(".!?。？ ")
    )
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
    every = item.split()
    if every and every[-1][:1].isupper():
        size = next((i for i, w in enumerate(reversed(every)) if not w[:1].isupper()), len(every))
    kept = every[-max(size, 1) :]
    while len(kept) > 1 and kept[0].lower() in STOP:
        kept = kept[1:]
    return " ".join(kept).strip("'\"“”‘’:")


def _head(item: str, size: int) -> str:
    every = item.split()
    if every and every[0][:1].isupper():
        size = next((i for i, w in enumerate(every) if not w[:1].isupper()), len(every))
    kept: list[str] = []
    for word in every[: max(size, 1)]:
        if word.lower() in STOP and kept:
            break
        kept.append(word)
    return " ".join(kept).strip("'\"“”‘’,")


def _unique(texts: object) -> list[str]:
    return list(dict.fromkeys(t for t in texts if t))  # type: ignore[attr-defined]


def _unique_lists(lists: list[list[str]]) -> list[list[str]]:
    out: list[list[str]] = []
    for one in lists:
        if one not in out:
            out.append(one)
    return out
