"""Goes through JSON of any depth and puts masks in; and finds the places where two values differ.

Law: that of the package (callgate/masking/__init__.py).

Without recursion: a model may nest arguments deeper than Python's stack.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from callgate.masking._names import MAX_NAME, Rule

MAX_DEPTH: Final = 100_000
"""Levels of nesting; JSON that we read is cut far before, so that more is a value that contains itself."""
_INNER: Final = frozenset({"value", "val", "content", "data", "plain", "raw"})
"""Fields of an object that hold what its own name tells: {"password": {"value": …}}."""
_WORD: Final = re.compile(r"[A-Za-z_]{1,24}")
_TITLES: Final = ("name", "key", "field", "header", "id", "param")
"""Fields that name the value beside them: {"name": "password", "value": …}."""


@dataclass(slots=True, frozen=True)
class Rules:
    """What is done with the leaves."""

    text: Callable[[str], str]
    scalar: Callable[[Rule | None, object], object]
    """The value of a field with a telling name, and numbers."""
    rule: Callable[[str], Rule | None]
    key: Callable[[str], str]
    """The names of fields, in which a declared secret may stand as anywhere else."""


@dataclass(slots=True)
class _Frame:
    source: object
    children: Iterator[tuple[object, Rule | None]]
    made: list[object] = field(default_factory=list)
    changed: bool = False
    names: list[object] | None = None
    """The names of the fields, where one of them was changed."""

    def add(self, old: object, new: object) -> None:
        self.made.append(new)
        self.changed = self.changed or old is not new

    def result(self) -> object:
        if not self.changed and self.names is None:
            return self.source
        if not isinstance(self.source, Mapping):
            return self.made
        return dict(zip(self.source if self.names is None else self.names, self.made, strict=True))


def walk(root: object, rules: Rules) -> object:
    """The value with its leaves as the rules make them; the very same object where nothing changed."""
    outer = _Frame([root], iter([(root, None)]))
    stack = [outer]
    while True:
        frame = stack[-1]
        step = next(frame.children, None)
        if step is None:
            stack.pop()
            if not stack:
                return frame.made[0]
            stack[-1].add(frame.source, frame.result())
            continue
        child, rule = step
        if isinstance(child, (Mapping, list, tuple)):
            if len(stack) > MAX_DEPTH:
                raise RecursionError("masking: a value that contains itself")
            inside = _fields(child, rule, rules) if isinstance(child, Mapping) else _items(child, rule, rules)
            names = _names(child, rules) if isinstance(child, Mapping) else None
            stack.append(_Frame(child, inside, names=names))
        elif isinstance(child, str) and rule is None:
            frame.add(child, rules.text(child))
        else:
            frame.add(child, rules.scalar(rule, child))


def _names(source: Mapping[Any, object], rules: Rules) -> list[object] | None:
    """The names of the fields masked, each of them once; None if none was changed."""
    # a word stays, whatever was declared: a model that gives `status` for a password must not break our own journal
    names: list[object] = [
        rules.key(name) if isinstance(name, str) and not _WORD.fullmatch(name) else name for name in source
    ]
    if all(new is old for new, old in zip(names, source, strict=True)):
        return None
    taken: set[object] = {new for new, old in zip(names, source, strict=True) if new is old}
    for index, (new, old) in enumerate(zip(names, source, strict=True)):
        if new is not old and isinstance(new, str):
            names[index] = _free(new, taken)
            taken.add(names[index])
    return names


def _free(name: str, taken: set[object]) -> str:
    """The name, numbered if another field has it: two masked names are two fields still."""
    return next(free for n in count(1) if (free := name if n == 1 else f"{name} ({n})") not in taken)


def _fields(source: Mapping[Any, Any], outer: Rule | None, rules: Rules) -> Iterator[tuple[object, Rule | None]]:
    title = next((source[name] for name in _TITLES if isinstance(source.get(name), str)), None)
    titled = rules.rule(title) if title is not None and not _INNER.isdisjoint(source) else None
    for name, value in source.items():
        known = isinstance(name, str) and len(name) <= MAX_NAME
        rule = rules.rule(name) if known else None
        if rule is None and known and name.lower() in _INNER:
            rule = outer or titled
        yield value, rule


def _items(source: list[Any] | tuple[Any, ...], outer: Rule | None, rules: Rules) -> Iterator[tuple[Any, Rule | None]]:
    if outer is None and len(source) == 2 and all(isinstance(item, str) for item in source):
        rule = rules.rule(source[0])  # a header: ["Authorization", "Token …"]
        yield source[0], None
        # ["password", "username"] is a list of words: what looks like a value counts
        yield source[1], "header" if rule in ("strong", "token") else rule
        return
    for item in source:
        yield item, outer


def differences(old: object, new: object) -> Iterator[str]:
    """JSON pointers (RFC 6901) of the leaves that differ; the two values have one shape."""
    stack = [("", old, new)]
    while stack:
        at, before, after = stack.pop()
        if before is after:
            continue
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            # by place, for a name can be masked as well, and the pointer must not tell it
            for name, inner, (shown, made) in reversed(list(zip(before, before.values(), after.items(), strict=True))):
                step = str(shown).replace("~", "~0").replace("/", "~1")
                stack.append((f"{at}/{step}", inner, made))
                if name != shown:
                    yield f"{at}/{step}"
        elif isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)):
            pairs = list(zip(before, after, strict=True))
            stack += [(f"{at}/{index}", *pairs[index]) for index in reversed(range(len(pairs)))]
        elif before != after:
            yield at
