"""Names with globs, and settings read with a clear word about what is wrong in them.

Law: a setting that could never apply is an error, never a rule that does nothing.
(tests/test_policy_settings.py::test_a_name_with_a_slip_in_it_never_passes)
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.types import ToolSpec

T = TypeVar("T")
BUILT_IN = frozenset({"read_result"})
"""Tools that a run itself offers; a rule may name them although no application lists them."""


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs covers the name; upper and lower case differ."""
    return any(fnmatchcase(name, glob) for glob in globs)


def for_tool(name: str, table: Mapping[str, T]) -> list[T]:
    """The values of every glob of the table that covers the tool."""
    return [value for glob, value in table.items() if fnmatchcase(name, glob)]


def check_names(globs: Iterable[str], specs: Sequence[ToolSpec], where: str) -> None:
    """Refuses a name without wildcards that no tool has.

    With wildcards it may be meant for tools of other programs. An agent without tools has nothing to protect.
    """
    there = [spec.name for spec in specs]
    for glob in globs:
        if specs and not any(sign in glob for sign in "*?[") and glob not in there and glob not in BUILT_IN:
            raise ConfigError(
                f"{where}: no tool is called {glob!r}{did_you_mean(glob, there)}; "
                "a name that is meant for other programs' tools too needs a wildcard"
            )


def did_you_mean(name: str, names: Collection[str]) -> str:
    """The end of a message about an unknown name: the nearest one, or those that there are."""
    close = difflib.get_close_matches(name, list(names), n=1)
    if close:
        return f" (did you mean {close[0]!r}?)"
    listed = ", ".join(sorted(names)[:10])
    return f" (there are {listed}{', …' if len(names) > 10 else ''})" if names else ""


def strings(value: object, where: str) -> tuple[str, ...]:
    """A list of strings of a settings file."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{where}: a list of names is needed, not {value!r}")
    out = tuple(value)
    if not all(isinstance(v, str) for v in out):
        raise ConfigError(f"{where}: a list of names is needed, not {value!r}")
    return out


def table(value: object, where: str) -> Mapping[str, object]:
    """A table whose keys are names."""
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise ConfigError(f"{where}: a table is needed, not {value!r}")
    return value


def number(value: object, where: str) -> float:
    """A number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(f"{where}: a number from 0 is needed, not {value!r}")
    return value


def whole(value: object, where: str) -> int:
    """A whole number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"{where}: a whole number from 0 is needed, not {value!r}")
    return value


def known(settings: Mapping[str, object], where: str, keys: Iterable[str]) -> None:
    """Refuses a key that nobody reads: a limit with a slip in its name would be no limit."""
    for key in settings:
        if key not in (allowed := tuple(keys)):
            raise ConfigError(f"{where}.{key}: unknown; there are {', '.join(allowed)}")
