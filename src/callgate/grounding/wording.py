"""The words of a request or a description: where they stand, their stems, and whether a value stands among them.

Law: a value stands in a text only as whole words or as a whole run of characters; a part of a word is never a value.
(tests/test_grounding_laws.py::test_only_whole_words_stand_in_a_request)
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache

MAX_TEXT = 4000
"""Characters of a request that are looked at: beyond that it is a document, not a request."""


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
# Signs inside a word stay with it: addresses, paths, times (19:00), C++, o'clock.
_WORD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_'’.@:/&+#-]*|[\u4e00-\u9fff]|[^\s\w]", re.UNICODE)
_CASES = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_.\-/]")
"""Where a name in any case style is cut into words."""
_HAN_RUN = re.compile(r"[\u4e00-\u9fff]+")
# Chinese is written without spaces: cutting at the words without meaning of their own gives words that have one.
_EMPTY = (
    "请问|请|帮我|帮|告诉|查询|查找|查一下|查|找|搜索|获取|怎么样|怎样|怎么|什么|哪里|哪个|哪些|多少|一下|一些|现在|今天|明天|"
    "后天|昨天|今晚|本周|下周|某个|某|给定|指定|可以|需要|关于|我们|我|你|的|了|吗|呢|是|在|有|和|与|或|把|给|个|这|那|几点|为|等于"
)
_ACTS = "换成|兑换成|兑换|换算成|换算|翻译成|翻译|播放|预订|从|飞往|发送给|发给|提醒"
"""Verbs that stand between values and are none."""
_HAN_STOP = re.compile(_EMPTY)
_HAN_CUT = re.compile(f"{_EMPTY}|{_ACTS}")


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
    for ending, rest in (("ies", "i"), ("sses", "ss"), ("ations", "ate"), ("ation", "ate"), ("ing", ""), ("ed", "")):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            # A table of endings instead of a stemmer: requests are short, and both sides are cut the same way.
            word = word.removesuffix(ending) + rest
            break
    if word.endswith("s") and not word.endswith("ss") and len(word) > 3:
        word = word[:-1]
    if word.endswith("e") and len(word) > 4:
        word = word[:-1]
    if len(word) > 3 and word.endswith("y") and word[-2] not in "aeou":
        word = word[:-1] + "i"  # so that cities is city, and movies is movie
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
    spaced = _CASES.sub(" ", text)
    latin = {w.stem for w in words(spaced) if w.text.lower() not in STOP and w.text.isalnum() and w.text < "\u4e00"}
    return latin | {w.stem for w in words(spaced) if len(w.text) > 1 and w.text.lower() not in STOP} | han_terms(text)


def stems(text: str) -> set[str]:
    """All stems, empty words included."""
    return {w.stem for w in words(_CASES.sub(" ", text))}


# --- Chinese ------------------------------------------------------------------------------------------------------


def is_han(text: str) -> bool:
    """Whether a text is written in Chinese characters for a good part."""
    # A third of the characters: Chinese requests hold Latin names, numbers and units.
    return sum(len(run) for run in _HAN_RUN.findall(text)) * 3 >= len(text.strip())


def han_parts(text: str) -> list[str]:
    """What stands between the Chinese words that carry no meaning."""
    return [part for run in _HAN_RUN.findall(text[:MAX_TEXT]) for part in _HAN_STOP.split(run) if part]


def han_values(text: str) -> list[str]:
    """The parts that can be values: verbs are left out too."""
    return [part for run in _HAN_RUN.findall(text[:MAX_TEXT]) for part in _HAN_CUT.split(run) if part]


def han_terms(text: str) -> set[str]:
    """Chinese terms: pairs of neighbouring characters between the words that carry no meaning."""
    return {pair for part in han_parts(text) for pair in _pairs(part)}


def _pairs(part: str) -> list[str]:
    # Pairs of neighbours stand in for a dictionary: most Chinese words have two characters.
    return [part] if len(part) == 1 else [part[i : i + 2] for i in range(len(part) - 1)]


def unexplained(text: str, known: AbstractSet[str]) -> set[str]:
    """The Chinese terms of a text beside those that are known. A pair that shares a character with a known one is no
    term of its own: Chinese writes no blanks, and 京天 in 北京天气 is the seam of two words."""
    out: set[str] = set()
    for part in han_parts(text):
        pairs = _pairs(part)
        out |= {p for i, p in enumerate(pairs) if not known & set(pairs[max(0, i - 1) : i + 2])}
    return out


# --- what stands in a text ----------------------------------------------------------------------------------------


def stands(value: str, text: str) -> bool:
    """Whether a value stands in a text, to the letter but for case and blanks, as whole words."""
    value = " ".join(value.split())
    if not value:
        return True
    before = "" if _is_han(value[0]) or not value[0].isalnum() else r"(?<![^\W\u4e00-\u9fff])"
    after = "" if _is_han(value[-1]) or not value[-1].isalnum() else r"(?![^\W\u4e00-\u9fff])"
    pattern = r"\s+".join(re.escape(word) for word in value.split())
    return re.search(f"{before}{pattern}{after}", text, re.IGNORECASE) is not None


def named(value: str, text: str) -> bool:
    """Whether the words of a fixed value stand in a text one after the other, by their stems: "start_date" is named
    by "the start date", "France" not by "San Francisco"."""
    if len(value) == 1 and value.isalpha():
        return _letter_stands(value, text)
    wanted = [w.stem for w in words(_CASES.sub(" ", value))]
    if not wanted or not any(w[:1].isalnum() for w in wanted):
        return bool(value.strip()) and stands(value, text)
    found = [w.stem for w in words(_CASES.sub(" ", text))]
    size = len(wanted)
    return stands(value, text) or any(found[i : i + size] == wanted for i in range(len(found) - size + 1))


def _letter_stands(letter: str, text: str) -> bool:
    """One letter is a value only in its own case, and not as the article or the pronoun that a sentence needs."""
    if _is_han(letter):
        return letter in text
    for match in re.finditer(rf"(?<![\w'’]){re.escape(letter)}(?![\w'’#+])", text):
        article = letter in "AaI" and re.match(r"\s+[a-z]", text[match.end() :])
        if not article:
            return True
    return False


def _is_han(char: str) -> bool:
    return "\u4e00" <= char <= "\u9fff"


def kin(a: str, b: str) -> bool:
    """Two stems that begin alike for five letters: calculat-e, calculat-ion."""
    return min(len(a), len(b)) >= 4 and a[:5] == b[:5]
