"""Which tool a written name means (rule A6).

A name is matched exactly; or, for reads only, after case, separators and a known namespace prefix, and only if that
leaves exactly one. What resembles it is a hint for the model, never the answer.

Law: no tool is found by similarity.
(tests/test_tools.py::test_nothing_is_ever_found_by_similarity_or_among_several)
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from callgate.types import ToolSpec

PREFIXES: Final = ("functions", "function", "tools", "tool", "default_api", "api", "namespace", "mcp")
"""Namespaces that model families put before a tool's name."""
HINTS: Final = 3

_SEPARATORS = re.compile(r"[\s_\-.:/]+")
_PREFIX = re.compile(rf"(?:{'|'.join(PREFIXES)})(?:\.|::?|/|__)", re.IGNORECASE)


def resolve_name(name: str, specs: Sequence[ToolSpec]) -> tuple[ToolSpec | None, bool, tuple[str, ...]]:
    """(tool, whether its name was written differently, the nearest names if there is no tool)."""
    for spec in specs:
        if spec.name == name:
            return spec, False, ()
    for written in dict.fromkeys((name, _PREFIX.sub("", name.strip(), count=1))):
        key = folded(written)
        found = [spec for spec in specs if key and folded(spec.name) == key]
        if len(found) == 1 and found[0].effect == "read":
            return found[0], True, ()
        if found:
            return None, False, tuple(spec.name for spec in found[:HINTS])
    return None, False, nearest(name, [spec.name for spec in specs if not spec.hidden])


def folded(name: str) -> str:
    """A name without case and separators: `getWeather`, `get-weather` and `get_weather` are one."""
    return _SEPARATORS.sub("", name).casefold()


def nearest(name: str, names: Sequence[str]) -> tuple[str, ...]:
    """The names that look most like this one, for a hint."""
    by_key = {folded(other): other for other in reversed(names)}
    close = difflib.get_close_matches(folded(name[:100]), list(by_key), n=HINTS, cutoff=0.6)
    return tuple(by_key[key] for key in close)
