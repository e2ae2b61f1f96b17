"""Objects written the way models write JSON wrongly, with the value that was meant: for a test and a benchmark.

One law: every text is one that some model wrote, or one slip away from it; what was meant is known.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

KEYS = ("a", "b", "c d", "it's", 'q"q', "n", "key: x")
TEXTS = (
    "north quay", "it's", 'say "hi"', 'say "hi", then "go"', "a, b: c", "{x} [y]", "\\d+", "\\", "\\\\", "// no",
    "/* c */", "# h", "“q”", "‘s’", "é😀", "line\nbreak", "tab\there", "", "true", "null", "0020", "1e5", "x" * 30,
    'key": "v', "}", "]}", "```", "“", "”", "a “b” c", '"', "'", "''", '""', ", ", ":", "http://x.y/z?a=b&c={d}",
    "I said 'no', ok", 'def f(x):\n    return {"a": x}\n', '<a href="b">c</a>',
)  # fmt: skip
QUOTES = (*[('"', '"')] * 4, *[("'", "'")] * 3, ("“", "”"), ("”", "”"), ("＂", "＂"), ("‘", "’"))


@dataclass(slots=True, frozen=True)
class Style:
    """How one text is written."""

    quotes: tuple[str, str]
    lone_backslashes: bool
    bare_inner_quotes: bool
    raw_controls: bool
    python_words: bool
    trailing_commas: bool
    bare_keys: bool
    colon: str
    comma: str
    spaces: tuple[str, ...]


def style(chance: random.Random) -> Style:
    """One of many ways."""

    def often(share: float) -> bool:
        return chance.random() < share

    return Style(
        chance.choice(QUOTES),
        often(0.15),
        often(0.25),
        often(0.3),
        often(0.3),
        often(0.3),
        often(0.2),
        chance.choice([": ", ":", "：", " : "]),
        chance.choice([", ", ",", "，", " , ", ",\n"]),
        chance.choice([("",), ("", "\n  "), ("", '/* hm, "x": 1 */', " // yes, 'no'\n")]),
    )


def value(chance: random.Random, depth: int = 0) -> Any:
    """Any JSON, with texts that are hard to quote."""
    kind = chance.random()
    if depth < 3 and kind < 0.2:
        return {chance.choice(KEYS): value(chance, depth + 1) for _ in range(chance.randint(0, 3))}
    if depth < 3 and kind < 0.35:
        return [value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    return chance.choice([*TEXTS, 1, -2.5, True, None, 10**20, False, 0])


def case(chance: random.Random) -> tuple[dict[str, Any], str]:
    """(the object that was meant, how it was written)."""
    meant = {chance.choice(KEYS): value(chance) for _ in range(chance.randint(1, 4))}
    text = written(meant, style(chance), chance)
    if chance.random() < 0.1:
        text = f"Sure: {text} There."
    if chance.random() < 0.1:
        text = f"```json\n{text}\n```"
    return meant, text


def written(item: Any, how: Style, chance: random.Random, *, key: bool = False) -> str:
    """The item in that style."""
    match item:
        case str():
            return _text(item, how, key)
        case None:
            return "None" if how.python_words else "null"
        case bool():
            return str(item) if how.python_words else str(item).lower()
        case dict():
            pairs = [written(k, how, chance, key=True) + how.colon + written(v, how, chance) for k, v in item.items()]
            return "{" + chance.choice(how.spaces) + _joined(pairs, how, chance) + chance.choice(how.spaces) + "}"
        case list():
            return "[" + _joined([written(child, how, chance) for child in item], how, chance) + "]"
        case _:
            return json.dumps(item)


def _joined(parts: list[str], how: Style, chance: random.Random) -> str:
    tail = "," if parts and how.trailing_commas and chance.random() < 0.7 else ""
    return how.comma.join(parts) + tail


def _text(text: str, how: Style, key: bool) -> str:
    if key and how.bare_keys and text.isidentifier():
        return text
    opener, closer = how.quotes
    out = text.replace("\\\\", "\\\\\\\\") if how.lone_backslashes else text.replace("\\", "\\\\")
    if key or not how.bare_inner_quotes:
        for quote in {opener, closer}:
            out = out.replace(quote, "\\" + quote)
    if not how.raw_controls:
        out = out.replace("\n", "\\n").replace("\t", "\\t")
    return opener + out + closer
