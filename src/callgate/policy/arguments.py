"""Arguments: what a tool may be called *with*: paths inside a folder, hosts of a list, patterns, one's own conditions.

Paths are compared lexically, and where there is a disk with their links followed as well: both must lie inside.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from callgate.errors import ConfigError
from callgate.policy._judge import Own
from callgate.policy._match import known, matches, strings
from callgate.policy._words import JudgeContext
from callgate.types import Allow, Deny, ToolCall, ToolSpec, Verdict

NAME = "arguments"

Condition: TypeAlias = Callable[[Any, JudgeContext], str | None]
"""(value, context) -> what is wrong with it, or None."""


@dataclass(frozen=True)
class Rule(Own):
    """`conditions`: tool glob -> argument name (dots go inside) -> condition. An absent argument is no concern."""

    conditions: Mapping[str, Mapping[str, Condition]] = field(default_factory=dict)
    name: str = NAME

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny the first argument that breaks its condition."""
        for glob, table in self.conditions.items():
            if not matches(spec.name, [glob]):
                continue
            for path, condition in table.items():
                for value in _values(call.arguments, path.split(".")):
                    if (wrong := condition(value, context)) is not None:
                        return Deny(self.name, f"arguments.{path}: {wrong}")
        return Allow()


def _values(value: Any, path: list[str]) -> Iterable[Any]:
    """Every value at the path; lists are gone through."""
    if isinstance(value, list):
        for item in value:
            yield from _values(item, path)
    elif not path:
        yield value
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _values(value[path[0]], path[1:])


def inside(root: str) -> Condition:
    """The path lies in the folder `root`, whatever dots and links it has; a relative one is taken from there."""
    top = _normal(root)

    def condition(value: Any, context: JudgeContext) -> str | None:
        if not isinstance(value, str) or "\0" in value:
            return "a path is needed"
        path = value.replace("\\", "/")
        if re.match(r"[A-Za-z]:|~|//", path):
            return f"must lie inside {root}"
        full = _normal(posixpath.join(top, path))
        if not _within(full, top):
            return f"must lie inside {root}"
        if context.resolve is not None and not _within(_normal(context.resolve(full)), _normal(context.resolve(top))):
            return f"must lie inside {root}, its links followed"
        return None

    return condition


def _normal(path: str) -> str:
    path = posixpath.normpath(path.replace("\\", "/"))
    return path[1:] if path.startswith("//") else path  # POSIX keeps two leading slashes


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def hosts(*allowed: str) -> Condition:
    """The URL is http or https and its host is one of these (globs)."""

    def condition(value: Any, context: JudgeContext) -> str | None:
        try:
            url = urlsplit(value) if isinstance(value, str) and not re.search(r"[\s\\\x00-\x1f]", value) else None
            host = (url.hostname or "").rstrip(".").lower() if url else ""
            _ = url.port if url else None
        except ValueError:
            return "no URL that can be read"
        if url is None or url.scheme.lower() not in ("http", "https") or not host:
            return "an http or https URL is needed"
        return None if matches(host, allowed) else f"the host {host!r} is not on the list"

    return condition


def matching(pattern: str) -> Condition:
    """The whole text matches the regular expression."""
    compiled = re.compile(pattern)

    def condition(value: Any, context: JudgeContext) -> str | None:
        return None if isinstance(value, str) and compiled.fullmatch(value) else f"does not match {pattern}"

    return condition


def one_of(*allowed: Any) -> Condition:
    """The value is one of these."""

    def condition(value: Any, context: JudgeContext) -> str | None:
        same = any(type(value) is type(a) and value == a for a in allowed)
        return None if same else f"is none of {', '.join(map(repr, allowed))}"

    return condition


def between(low: float | None = None, high: float | None = None) -> Condition:
    """The number lies between the two, both included."""

    def condition(value: Any, context: JudgeContext) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "a number is needed"
        if not ((low is None or value >= low) and (high is None or value <= high)):
            return f"must lie between {low} and {high}"
        return None

    return condition


_KINDS = ("inside", "hosts", "matches", "one_of", "min", "max")


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.arguments.read_file.path]`: inside = "/srv"; or hosts = […], matches = "…", one_of = […], min, max."""
    out: dict[str, dict[str, Condition]] = {}
    for tool, table in settings.items():
        if not isinstance(table, Mapping):
            raise ConfigError(f"policy.{NAME}.{tool}: a table of arguments is needed, not {table!r}")
        out[tool] = {name: _condition(section, f"policy.{NAME}.{tool}.{name}") for name, section in table.items()}
    return Rule(out)


def _condition(section: Any, where: str) -> Condition:
    if not isinstance(section, Mapping) or not section:
        raise ConfigError(f"{where}: a table with one of {', '.join(_KINDS)} is needed, not {section!r}")
    known(section, where, _KINDS)
    found: list[Condition] = []
    if "inside" in section:
        found.append(inside(str(section["inside"])))
    if "hosts" in section:
        found.append(hosts(*strings(section["hosts"], f"{where}.hosts")))
    if "matches" in section:
        try:
            found.append(matching(str(section["matches"])))
        except re.error as error:
            raise ConfigError(f"{where}.matches: {error}") from error
    if "one_of" in section:
        found.append(one_of(*section["one_of"]))
    if "min" in section or "max" in section:
        found.append(between(section.get("min"), section.get("max")))
    return lambda value, context: next((w for c in found if (w := c(value, context)) is not None), None)
