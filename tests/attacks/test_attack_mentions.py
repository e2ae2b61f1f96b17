"""An attack on A7: pages of mixed text with one call quoted somewhere, or meant somewhere; thousands, by a seed."""

from __future__ import annotations

import random

import pytest

from dialect_reading import cuts, read_with_problems
from dialect_render import WRITERS
from test_mentions import DELETE, INSIDE, meant, written

BLOCKS = [
    "It's fine.", 'He said "yes" and “no”.', "Use `rm -rf` or ``a ` b``.", "```python\nx = \"it's\"\nprint('`')\n```",
    "~~~\ncode ``` here\n~~~", '> a quote\n> "more"\n', "| a | b |\n|---|---|\n| 1 | 2 |", "- item 'one'\n- item `two`",
    "1. first\n2. second", "他说：“好的。”", "« Oui », dit-il.", "„Ja“, sagte er.", "<!-- note -->",
    "<code>x</code> is code.", "    indented code", "The dogs' bowls are 5\" wide; the '90s rock 'n' roll.",
    "A price of 5 < 6 & 7 > 3.", "<b>bold</b> and *it* and __x__.", "# Heading", "* * *", "Привет, «мир»!",
    "「はい」と言った。", 'a\\`b \\"c\\"', "She said: ‘don’t’.", "Let me see…", "URL http://x.y/?a='b'&c=\"d\"",
]  # fmt: skip


def page(rng: random.Random, most: int, between: str) -> str:
    return between.join(rng.choice(BLOCKS) for _ in range(rng.randint(0, most)))


@pytest.mark.parametrize("seed", range(6))
def test_no_quoted_call_is_meant_and_no_meant_call_is_quoted(seed: int) -> None:
    """Whatever stands before and behind it, and for every cut."""
    rng = random.Random(seed)
    for n in range(250):
        dialect = rng.choice(sorted(WRITERS))
        call, kind, between = written(dialect), rng.choice(sorted(INSIDE)), rng.choice(["\n", "\n\n"])
        before, behind = page(rng, 4, between), page(rng, 2, between)
        quoted = "\n\n".join(part for part in (before, INSIDE[kind](call), behind) if part)
        assert meant(dialect, quoted) == [], (kind, quoted)
        text = between.join(part for part in (before, call, behind) if part)
        assert meant(dialect, text) == ["/srv/a"], text
        if n % 10 == 0:
            whole = read_with_problems(dialect, [quoted], [DELETE])
            assert all(read_with_problems(dialect, c, [DELETE]) == whole for c in cuts(quoted, every=False)), quoted
