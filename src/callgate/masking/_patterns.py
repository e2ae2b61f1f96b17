"""The user's own patterns, compiled so that no text can make them run for long.

Law: a pattern with a repetition inside a repetition is refused, and no pattern sees more than `MAX_PIECE` characters
at once. (tests/test_masking.py::test_patterns_of_the_user_are_bounded)
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any, Final

from callgate.errors import ConfigError

MAX_PIECE: Final = 2000
"""Characters that a user's pattern is given at once, cut at a line end where there is one: a secret is shorter."""


def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern. Raises ConfigError for one that cannot be read, matches nothing, or may run for ever."""
    try:
        made = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigError(f"mask_patterns: {pattern!r} is no regular expression: {error}") from error
    if made.search("") is not None:
        raise ConfigError(f"mask_patterns: {pattern!r} matches the empty text; name at least one character")
    if nests_repetitions(pattern):
        raise ConfigError(
            f"mask_patterns: {pattern!r} repeats a repetition, as in (a+)+, and may run for ever on a hostile text; "
            "write each part with one repetition"
        )
    return made


def nests_repetitions(pattern: str) -> bool:
    """Whether a valid pattern repeats a repetition, as in (a+)+, and may run for ever on a hostile text."""
    parser: Any = import_module("re._parser")  # the only reader of patterns that agrees with `re` in everything
    return _nested(parser.parse(pattern), inside=False)


_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT")


def _nested(node: Any, *, inside: bool) -> bool:
    """Whether a repetition without a small bound stands inside another one."""
    for code, argument in node:
        if str(code) in _REPEATS:
            _, most, inner = argument
            many = most > 1
            if (inside and most > 16) or _nested(inner, inside=inside or many):
                return True
        elif any(_nested(part, inside=inside) for part in _parts(argument)):
            return True
    return False


def _parts(argument: object) -> Iterator[object]:
    """The patterns inside an argument of the parse tree: groups, branches, look-arounds."""
    if hasattr(argument, "data") and hasattr(argument, "pattern") is False and hasattr(argument, "state"):
        yield argument
    elif isinstance(argument, (list, tuple)):
        for item in argument:
            yield from _parts(item)


def spans(text: str, patterns: tuple[re.Pattern[str], ...]) -> Iterator[tuple[int, int]]:
    """Where the patterns match; each sees the text in pieces."""
    if not patterns:
        return
    for start, end in _pieces(text):
        piece = text[start:end]
        for pattern in patterns:
            for found in pattern.finditer(piece):
                named = "a" in pattern.groupindex and found["a"] is not None
                first = found.end("a") if named else found.start()
                if first < found.end():
                    yield start + first, start + found.end()


def _pieces(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        end = min(len(text), start + MAX_PIECE)
        if end < len(text):
            line = text.rfind("\n", start, end)
            blank = text.rfind(" ", end - MAX_PIECE // 4, end)
            end = line + 1 if line > start else blank + 1 if blank > start else end
        yield start, end
        start = end
