"""Names with globs, and settings read with a clear word about what is wrong in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from callgate.errors import ConfigError

T = TypeVar("T")


def matches(name: str, globs: Iterable[str]) -> bool:
    """Whether one of the globs covers the name; upper and lower case differ."""
    return any(fnmatchcase(name, glob) for glob in globs)


def for_tool(name: str, table: Mapping[str, T]) -> list[T]:
    """The values of every glob of the table that covers the tool."""
    return [value for glob, value in table.items() if fnmatchcase(name, glob)]


def strings(value: Any, where: str) -> tuple[str, ...]:
    """A list of strings of a settings file."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ConfigError(f"{where}: a list of names is needed, not {value!r}")
    out = tuple(value)
    if not all(isinstance(v, str) for v in out):
        raise ConfigError(f"{where}: a list of names is needed, not {value!r}")
    return out


def number(value: Any, where: str) -> float:
    """A number that is not negative."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value >= 0:
        raise ConfigError(f"{where}: a number from 0 is needed, not {value!r}")
    return value


def known(settings: Mapping[str, Any], where: str, keys: Iterable[str]) -> None:
    """Refuses a key that nobody reads: a limit with a slip in its name would be no limit."""
    for key in settings:
        if key not in (allowed := tuple(keys)):
            raise ConfigError(f"{where}.{key}: unknown; there are {', '.join(allowed)}")
