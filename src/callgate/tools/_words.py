"""The words of a description or a name, in any script, as far as checks of descriptions need them.

Law: a description in one language is judged as its translation is.
(tests/test_tools_lint.py::test_a_description_is_judged_alike_in_every_script)

Chinese and Japanese write no blanks: there the runs between the smallest words are cut into pairs of characters, of
which most words consist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

STOP: Final = frozenset(
    [
        "the",
        "a",
        "an",
        "of",
        "for",
        "to",
        "in",
        "on",
        "by",
        "with",
        "and",
        "or",
        "from",
        "this",
        "that",
        "is",
        "are",
        "it",
    ]
)
VAGUE: Final = frozenset(
    ["data", "stuff", "thing", "item", "info", "information", "something", "process", "handle", "do", "does", "tool"]
)
"""Words that tell nothing of what a tool is for."""
_EAST = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_EAST}]+|[^\W_{_EAST}]+")
_EAST_RUN = re.compile(rf"[{_EAST}]+")
_EAST_STOP = re.compile(
    "一个|一下|一些|以及|的|地|得|了|在|是|和|与|或|并|及|将|把|被|对|为|从|到|中|个|を|は|が|の|に|で|と|する|します"
)
_EAST_VAGUE = re.compile(
    "数据|信息|内容|东西|事情|处理|操作|执行|进行|工具|函数|功能|接口|相关|某个|データ|情報|処理|ツール"
)


def words(text: str) -> list[str]:
    """The words of a text or a name, lower case, without the smallest ones and plural endings; of a run of Chinese the
    pairs of neighbours."""
    parts = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", text).lower()
    return [word for run in _WORD.findall(parts) for word in (_pairs(run) if _is_east(run) else _plain(run))]


def telling(text: str) -> float:
    """How many words a description has that can tell something; two characters of Chinese are one word."""
    return sum(_weight(run) for run in _WORD.findall(text.lower()))


def only_vague(text: str, name: str) -> bool:
    """Whether a description says no more than the tool's name and words that tell nothing."""
    known = {*words(name), *VAGUE, *STOP}
    left = [w for run in _WORD.findall(text.lower()) for w in (_east_left(run) if _is_east(run) else [run])]
    return all(known & {word, word.removesuffix("s"), _stem(word)} for word in left)


def _is_east(run: str) -> bool:
    return _EAST_RUN.fullmatch(run) is not None


def _plain(word: str) -> list[str]:
    return [] if word in STOP else [_stem(word)]


def _east_left(run: str) -> list[str]:
    return [part for part in _EAST_STOP.split(_EAST_VAGUE.sub("的", run)) if part]


def _pairs(run: str) -> Iterator[str]:
    for part in _EAST_STOP.split(run):
        if part:
            yield from [part] if len(part) == 1 else (part[i : i + 2] for i in range(len(part) - 1))


def _weight(run: str) -> float:
    if not _is_east(run):
        return float(run not in STOP)
    return sum(len(part) for part in _EAST_STOP.split(run)) / 2


def _stem(word: str) -> str:
    for end in ("ing", "es", "ed", "s"):
        if word.endswith(end) and len(word) - len(end) >= 3:
            return word.removesuffix(end)
    return word
