"""Numbers that are written in words, English and Chinese.

Law: every number found stands in the request; none is worked out from what a word implies.
(tests/test_grounding_laws.py::test_no_number_is_made_up)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass


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
    ordinal: bool = False
    """A place in a row: no quantity."""

    @property
    def values(self) -> tuple[float | int, ...]:
        """What it may mean, the likeliest first."""
        return (self.value,) if self.other is None else (self.value, self.other)


_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
UNITS: dict[str, int] = {word: number for number, word in enumerate(_COUNTED.split())}
UNITS |= {word: 10 * number for number, word in enumerate(_TENS.split(), 2)}
BIG = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9}
ORDINALS = {"first": 1, "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9}
ORDINALS |= {"second": 2, "tenth": 10}
_SPELT = "|".join([*UNITS, *BIG])
_PHRASE = re.compile(rf"(?<![\w-])(?:{_SPELT})\b(?:(?:[\s-]+(?:and\s+)?)(?:{_SPELT})\b)*(?!-[a-z]|['’])", re.IGNORECASE)
"""Not inside a compound: a one-way flight is no 1."""
_ORDINAL = re.compile(rf"\b(?:the|my|our|its|their|his|her)\s+({'|'.join(ORDINALS)})\b", re.IGNORECASE)
"""Without an article before it, "second" is a unit of time as often as not."""


def english(text: str) -> Iterator[Number]:
    """The numbers written in English words, and places in a row behind an article."""
    for match in _PHRASE.finditer(text):
        spelt = [w.lower() for w in re.split(r"[\s-]+", match.group())]
        at = match.start()
        for group, start, end in _groups(spelt, match.group()):
            yield Number(_spelt_value(group), at + start, at + end, weak=True)
    for match in _ORDINAL.finditer(text):
        yield Number(ORDINALS[match[1].lower()], match.start(1), match.end(1), weak=True, ordinal=True)


def _groups(spelt: list[str], phrase: str) -> Iterator[tuple[list[str], int, int]]:
    """The numbers of a run of number words: "two and three" are two numbers, "two hundred and three" is one."""
    spots = [(m.start(), m.end()) for m in re.finditer(r"[A-Za-z]+", phrase)]
    group: list[str] = []
    start = end = 0
    joined = False
    for word, (low, high) in zip(spelt, spots, strict=True):
        if word == "and":
            joined = True
            continue
        if group and not _goes_on(group, word, joined=joined):
            yield group, start, end
            group = []
        if not group:
            start = low
        group.append(word)
        end, joined = high, False
    if group:
        yield group, start, end


def _goes_on(group: list[str], word: str, *, joined: bool) -> bool:
    last = group[-1]
    if word in BIG:
        return not joined and (last not in BIG or BIG[word] > BIG[last])
    if last in BIG:
        return UNITS[word] < BIG[last]
    return not joined and last in _TENS.split() and 0 < UNITS[word] < 10


def _spelt_value(group: list[str]) -> int:
    total = current = 0
    for word in group:
        if word in UNITS:
            current += UNITS[word]
        elif word == "hundred":
            current = max(current, 1) * 100
        else:
            total, current = total + max(current, 1) * BIG[word], 0
    return total + current


_HAN_DIGITS = {c: i for i, c in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000}
_HAN_NUMBER = re.compile(r"[零〇一二三四五六七八九两十百千万亿]+")
_MEASURE = (
    "个张位人天点分秒年月日号斤公里米元块次份杯本只条件间家台辆瓶盒岁度楼层周小时倍页首部套双名桌场度克吨升毫厘美欧英磅"
    "加减乘除的是和到至、，。,?？!！)）等平立以"
)
"""What stands behind a Chinese numeral that counts something, or goes on reckoning with it."""
_BEFORE = "加减乘除以为是到至和第约共、(（"
_NO_NUMBER = re.compile(
    "一下|一些|一起|一样|一般|一直|一定|一点(?!钟|半)|一共|一切|一旦|一边|一家人|统一|唯一|万一|千万|百度|十分(?!钟)|三明治|四川|"
    "九江|三亚|七夕|五一|十一国庆|(?:周|星期|礼拜|第)[一二三四五六日天十]"
)
"""Words that are written with a numeral and are none: 一下 is "for a moment"."""


def chinese(text: str) -> Iterator[Number]:
    """The numbers written in Chinese characters that count something."""
    none = [(m.start(), m.end()) for m in _NO_NUMBER.finditer(text)]
    for match in _HAN_NUMBER.finditer(text):
        if any(s < match.end() and match.start() < e for s, e in none):
            continue
        after, before = text[match.end() : match.end() + 1], text[match.start() - 1 : match.start()]
        counted = not after or after in _MEASURE or (before and before in _BEFORE)
        value = _han_value(match.group())
        if counted and value is not None:
            yield Number(value, match.start(), match.end(), weak=True)


def _han_value(numeral: str) -> int | None:
    """The value of a numeral (二十三, 两百, 三万, 二〇二六); None: it begins with a unit that nothing counts."""
    if all(c in _HAN_DIGITS for c in numeral):
        return int("".join(str(_HAN_DIGITS[c]) for c in numeral))
    total = section = digit = 0
    for char in numeral:
        if char in _HAN_DIGITS:
            digit = _HAN_DIGITS[char]
        elif char in _HAN_UNITS:
            if not digit and char != "十":
                return None
            section, digit = section + (digit or 1) * _HAN_UNITS[char], 0
        elif section + digit == 0:
            return None
        else:
            total, section, digit = (total + section + digit) * (10**4 if char == "万" else 10**8), 0, 0
    return total + section + digit
