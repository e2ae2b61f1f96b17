"""Arguments: what a tool may be called *with*: paths inside a folder, hosts of a list, patterns, one's own conditions.

Paths are compared lexically, and where there is a disk with their links followed as well: both must lie inside.

Law: that of the room (callgate/policy/__init__.py).
"""

from __future__ import annotations

import math
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from callgate.errors import ConfigError
from callgate.masking import nests_repetitions
from callgate.policy._api import JudgeContext
from callgate.policy._judge import Own
from callgate.policy._match import check_names, known, matches, strings, table
from callgate.policy._paths import types_at
from callgate.schema.introspect import type_of
from callgate.types import Allow, Deny, ToolCall, ToolSpec, Verdict

NAME = "arguments"

Condition: TypeAlias = Callable[[Any, JudgeContext], str | None]
"""(value, context) -> what is wrong with it, or None."""
MAX_MATCHED = 10_000
"""Characters of a text that a pattern is given; even a pattern without nested repetitions may need their square."""
_TEXT = frozenset({"string"})
_NUMBER = frozenset({"integer", "number"})


@dataclass(frozen=True)
class Typed:
    """A condition that knows which JSON types it is about, so that it can be compared with a schema beforehand."""

    test: Condition
    types: frozenset[str]
    needs_all: bool = False
    """Each of the types must be possible, not just one of them."""

    def __call__(self, value: object, context: JudgeContext) -> str | None:
        """What is wrong with the value; None: nothing."""
        return self.test(value, context)

    def fits(self, types: frozenset[str]) -> bool:
        """Whether a value of these types can meet the condition."""
        return self.types <= types if self.needs_all else bool(self.types & types)


@dataclass(frozen=True)
class Rule(Own):
    """`conditions`: tool glob -> argument name (dots go inside) -> condition. A missing argument is not checked."""

    conditions: Mapping[str, Mapping[str, Condition]] = field(default_factory=dict)
    name: str = NAME

    def __post_init__(self) -> None:
        for glob, paths in table(self.conditions, f"policy.{NAME}").items():
            conditions = table(paths, f"policy.{NAME}.{glob}")
            if not conditions:
                raise ConfigError(f"policy.{NAME}.{glob}: there is no condition in it, so it would never apply")
            for path, condition in conditions.items():
                if not callable(condition):
                    raise ConfigError(f"policy.{NAME}.{glob}.{path}: a condition is needed, not {condition!r}")

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a tool or an argument that is not there, or of a type that no value can fit."""
        check_names(self.conditions, specs, f"policy.{NAME}")
        for glob, paths in self.conditions.items():
            covered = [spec for spec in specs if matches(spec.name, [glob])]
            for path, condition in paths.items():
                _check_path(covered, path, condition, f"policy.{NAME}.{glob}.{path}")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny the first argument that breaks its condition."""
        for glob, paths in self.conditions.items():
            if not matches(spec.name, [glob]):
                continue
            for path, condition in paths.items():
                for value in _values(call.arguments, path.split(".")):
                    if (wrong := condition(value, context)) is not None:
                        return Deny(self.name, f"arguments.{path}: {wrong}")
        return Allow()


def _check_path(covered: Sequence[ToolSpec], path: str, condition: Condition, where: str) -> None:
    """Of the tools that a pattern covers at least one must have the argument; where it is, the types must fit."""
    missing: ConfigError | None = None
    found = False
    for spec in covered:
        try:
            types = types_at(spec, path, where)
        except ConfigError as error:
            missing = missing or error
            continue
        found = True
        if types is not None and isinstance(condition, Typed) and not condition.fits(types):
            wanted, there = " or ".join(sorted(condition.types)), " or ".join(sorted(types)) or "nothing"
            raise ConfigError(f"{where}: the condition is about {wanted}, but {spec.name}.{path} is {there}")
    if missing is not None and not found:
        raise missing


def _values(value: object, path: list[str]) -> Iterable[object]:
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
    if not isinstance(root, str) or not root.strip() or "\0" in root or root.startswith(("~", "//", "\\\\")):
        raise ConfigError(f"policy.{NAME}: inside: a folder, written out, is needed, not {root!r}")
    top = _normal(root)

    def condition(value: object, context: JudgeContext) -> str | None:
        if not isinstance(value, str) or "\0" in value:
            return "a path is needed"
        # On Windows both are separators, and the rule does not know where the tool will run.
        path = value.replace("\\", "/")
        # A drive, a home or a network share leads elsewhere whatever is joined before it.
        if re.match(r"[A-Za-z]:|~|//", path):
            return f"must lie inside {root}"
        full = _normal(posixpath.join(top, path))
        if not _within(full, top):
            return f"must lie inside {root}"
        if context.resolve is not None and not _within(_normal(context.resolve(full)), _normal(context.resolve(top))):
            return f"must lie inside {root}, its links followed"
        return None

    return Typed(condition, _TEXT)


def _normal(path: str) -> str:
    path = posixpath.normpath(path.replace("\\", "/"))
    return path[1:] if path.startswith("//") else path  # POSIX keeps two leading slashes


def _within(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def hosts(*allowed: str) -> Condition:
    """The URL is http or https and its host is one of these (globs)."""
    names = strings(allowed, f"policy.{NAME}: hosts")

    def condition(value: object, context: JudgeContext) -> str | None:
        try:
            # Python drops line ends and tabs from an address, browsers read a backslash as a slash: another reader may
            # see another host.
            url = urlsplit(value) if isinstance(value, str) and not re.search(r"[\s\\\x00-\x1f]", value) else None
            # `example.org.` is the same host as `example.org`, and host names know no case (RFC 4343).
            host = (url.hostname or "").rstrip(".").lower() if url else ""
            _ = url.port if url else None
        except ValueError:
            return "no URL that can be read"
        if url is None or url.scheme.lower() not in ("http", "https") or not host:
            return "an http or https URL is needed"
        return None if matches(host, names) else f"the host {host!r} is not on the list"

    return Typed(condition, _TEXT)


def matching(pattern: str) -> Condition:
    """The whole text matches the regular expression."""
    try:
        compiled = re.compile(pattern) if isinstance(pattern, str) else None
    except re.error as error:
        raise ConfigError(f"policy.{NAME}: matches: {pattern!r}: {error}") from error
    if compiled is None:
        raise ConfigError(f"policy.{NAME}: matches: a regular expression is needed, not {pattern!r}")
    if nests_repetitions(pattern):  # the text is the model's: it may be made to run for ever
        raise ConfigError(
            f"policy.{NAME}: matches: {pattern!r} repeats a repetition, as in (a+)+; write each part with one"
        )

    def condition(value: object, context: JudgeContext) -> str | None:
        if isinstance(value, str) and len(value) > MAX_MATCHED:
            return f"is longer than {MAX_MATCHED} characters, which is more than is matched (MAX_MATCHED)"
        return None if isinstance(value, str) and compiled.fullmatch(value) else f"does not match {pattern}"

    return Typed(condition, _TEXT)


def one_of(*allowed: object) -> Condition:
    """The value is one of these."""

    def condition(value: object, context: JudgeContext) -> str | None:
        # In Python `1 == True == 1.0`; a condition means the JSON value.
        same = any(type(value) is type(a) and value == a for a in allowed)
        return None if same else f"is none of {', '.join(map(repr, allowed))}"

    return Typed(condition, frozenset(map(type_of, allowed)), needs_all=True)


def between(low: float | None = None, high: float | None = None) -> Condition:
    """The number lies between the two, both included."""
    for name, limit in (("min", low), ("max", high)):
        is_number = isinstance(limit, (int, float)) and not isinstance(limit, bool) and not math.isnan(limit)
        if limit is not None and not is_number:
            raise ConfigError(f"policy.{NAME}: {name}: a number is needed, not {limit!r}")
    if low is not None and high is not None and low > high:
        raise ConfigError(f"policy.{NAME}: min: {low} is more than max: {high}")

    def condition(value: object, context: JudgeContext) -> str | None:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return "a number is needed"
        if not ((low is None or value >= low) and (high is None or value <= high)):
            return f"must lie between {low} and {high}"
        return None

    return Typed(condition, _NUMBER)


_KINDS = ("inside", "hosts", "matches", "one_of", "min", "max")


def load(settings: Mapping[str, object]) -> Rule:
    """`[policy.arguments.read_file.path]`: inside = "/srv"; or hosts = […], matches = "…", one_of = […], min, max."""
    out: dict[str, dict[str, Condition]] = {}
    for tool, paths in table(settings, f"policy.{NAME}").items():
        where = f"policy.{NAME}.{tool}"
        out[tool] = {name: _condition(section, f"{where}.{name}") for name, section in table(paths, where).items()}
    return Rule(out)


def _condition(section: object, where: str) -> Condition:
    if not isinstance(section, Mapping) or not section:
        raise ConfigError(f"{where}: a table with one of {', '.join(_KINDS)} is needed, not {section!r}")
    known(section, where, _KINDS)
    try:
        found = _conditions(section)
    except ConfigError as error:
        raise ConfigError(f"{where}: {str(error).removeprefix(f'policy.{NAME}: ')}") from error
    if len(found) == 1:
        return found[0]
    return Typed(
        lambda value, context: next((w for c in found if (w := c(value, context)) is not None), None),
        frozenset[str].intersection(*(c.types for c in found if isinstance(c, Typed))),
    )


def _conditions(section: Mapping[str, Any]) -> list[Condition]:
    found: list[Condition] = []
    if "inside" in section:
        found.append(inside(section["inside"]))
    if "hosts" in section:
        found.append(hosts(*strings(section["hosts"], "hosts")))
    if "matches" in section:
        found.append(matching(section["matches"]))
    if "one_of" in section:
        members = section["one_of"]
        if not isinstance(members, (list, tuple)):
            raise ConfigError(f"one_of: a list is needed, not {members!r}")
        found.append(one_of(*members))
    if "min" in section or "max" in section:
        found.append(between(section.get("min"), section.get("max")))
    return found
