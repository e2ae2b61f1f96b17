"""Taint: a write, or a call that sends data away, does not run on untrusted values without a person.

A tool's results are untrusted if it says so (`untrusted=True`; every MCP tool). A value of a call that was first seen
in such a result, and that neither the user nor the application wrote, is asked about with its source. The comparison
is by values and deterministic; no model judges.

Law: a value that is in nothing but an untrusted result never reaches a write or an outgoing tool without a question.
(tests/test_taint.py::test_a_value_of_a_strangers_page_is_asked_about)
Law: a value that the user or the application wrote is never asked about.
(tests/test_taint.py::test_what_the_user_asked_for_is_not_asked_about)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from callgate.errors import ConfigError
from callgate.policy._judge import Own
from callgate.policy._match import check_names, known, matches, strings
from callgate.policy._sources import Origin, Question, TooMuch, forms, number_of, words_of
from callgate.types import Allow, Ask, ToolCall, ToolSpec, Verdict

if TYPE_CHECKING:
    from callgate.policy._api import JudgeContext

NAME = "taint"
MIN_TEXT: Final = 4
"""Characters of a value or of a part of it that are compared; shorter ones are met by chance."""
MIN_DIGITS: Final = 4
"""Digits of a number that are compared, for the same reason."""
MIN_BACKWARDS: Final = 8
"""Characters of an address or identifier that is compared backwards as well: "1234" is "4321" by chance."""
PASSAGE: Final = 8
"""Words in a row that a longer text must share with a result to count as taken from it."""
MAX_CALL: Final = 100_000
"""Characters of all values of one call together that are compared."""
MAX_SUFFIX: Final = 3
"""Characters of the labels of a public suffix as `co.uk`, which is nobody's domain."""
MAX_SHOWN: Final = 80
"""Characters of a value that a question shows."""

_HOST: Final = re.compile(r"[\w-]+(?:\.[\w-]+)+")
_SPECIAL: Final = re.compile(r"\d|[@:._#=&%~\\]\w|/\w.*/|^/\w")
"""Signs of an address, a path, an identifier or a number; a hyphen or an apostrophe is in ordinary words too."""
_EDGES: Final = "\"'`()[]{}<>,;:!?.*$\u20ac\u00a3\u2018\u2019\u201c\u201d\u00ab\u00bb"


@dataclass(frozen=True)
class Rule(Own):
    """`untrusted` and `outgoing`: tool globs beside what the tools say of themselves. `on=False`: never asks."""

    untrusted: tuple[str, ...] = ()
    outgoing: tuple[str, ...] = ()
    on: bool = True
    name: str = NAME

    def __post_init__(self) -> None:
        for field in ("untrusted", "outgoing"):
            object.__setattr__(self, field, strings(getattr(self, field), f"policy.{NAME}.{field}"))

    def check_tools(self, specs: Sequence[ToolSpec]) -> None:
        """Raises ConfigError for a name that no tool has."""
        for field in ("untrusted", "outgoing"):
            check_names(getattr(self, field), specs, f"policy.{NAME}.{field}")

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Ask about the first value that comes from an untrusted result; allow everything else."""
        sends = spec.effect == "write" or spec.outgoing or matches(spec.name, self.outgoing)
        if not self.on or not sends or context.sources is None:
            return Allow()
        sources = context.sources()
        if not any(map(self._is_untrusted, sources.results)):
            return Allow()
        if sources.full:
            return Ask(self.name, "there are more results than can be compared with its values (MAX_SEEN)")
        try:
            for path, value, origin in _origins(call.arguments, _Declared.by(spec), sources.question()):
                if self._is_untrusted(origin):
                    why = f"{path}: {_shown(value)} comes from a result of {origin.tool}, not from the request"
                    return Ask(self.name, why)
        except TooMuch as error:
            return Ask(self.name, f"its values cannot be compared with the results: {error}")
        return Allow()

    def _is_untrusted(self, origin: Origin) -> bool:
        return origin.untrusted or matches(origin.tool, self.untrusted)


def by_default(given: Sequence[object], specs: Sequence[ToolSpec]) -> tuple[Rule, ...]:
    """The rule, where an untrusted tool is offered beside a write or an outgoing one and nobody has set it."""
    due = any(s.untrusted for s in specs) and any(s.effect == "write" or s.outgoing for s in specs)
    return (Rule(),) if due and not any(isinstance(rule, Rule) for rule in given) else ()


# --- the values of a call -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Declared:
    """What the application itself names in the tool's schema."""

    names: frozenset[str]
    """Of arguments."""
    values: frozenset[str]
    """Members of enums, constants and defaults."""

    @classmethod
    def by(cls, spec: ToolSpec) -> _Declared:
        """Reads the schema."""
        names: set[str] = set()
        values: set[str] = set()
        todo: list[object] = [spec.parameters]
        for _ in range(10_000):  # more nodes than a schema within MAX_SCHEMA has
            if not todo:
                break
            node = todo.pop()
            if isinstance(node, Mapping):
                properties = node.get("properties")
                names |= {str(name) for name in properties} if isinstance(properties, Mapping) else set()
                members = node.get("enum")
                several = members if isinstance(members, (list, tuple)) else ()
                found = map(_text, (node.get("const"), node.get("default"), *several))
                values |= {text for text in found if text is not None}
                todo += node.values()
            elif isinstance(node, (list, tuple)):
                todo += node
        return cls(frozenset(names), frozenset(values))


def _text(value: object) -> str | None:
    """A text as it is, a number in its one spelling; None: neither."""
    if isinstance(value, str):
        return value
    return number_of(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _origins(arguments: object, declared: _Declared, question: Question) -> Iterator[tuple[str, str, Origin]]:
    """(where it stands, the value, the result it comes from) for the values that come from a result at all."""
    size = 0
    for path, leaf, is_key in _leaves(arguments, "arguments"):
        text = _text(leaf)
        if text is None or text in (declared.names if is_key else declared.values):
            continue
        size += len(text)
        if size > MAX_CALL:
            raise TooMuch(f"they have more than {MAX_CALL} characters (MAX_CALL)")
        if not isinstance(leaf, str):
            yield from ((path, value, origin) for value, origin in _in_number(text, question))
            continue
        for form in forms(text):
            yield from ((path, value, origin) for value, origin in _in_text(form, question))


def _leaves(value: object, path: str) -> Iterator[tuple[str, object, bool]]:
    """(path, value, whether it is a key) of everything that is no table and no list."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield path, str(key), True
            yield from _leaves(part, f"{path}.{_shown(str(key))[1:-1]}")
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _leaves(part, path)
    else:
        yield path, value, False


def _in_number(number: str, question: Question) -> Iterator[tuple[str, Origin]]:
    if sum(c.isdigit() for c in number) >= MIN_DIGITS and (origin := question.number_origin(number)) is not None:
        yield number, origin


def _in_text(text: str, question: Question) -> Iterator[tuple[str, Origin]]:
    """The whole, its passages, and everything in it that looks like an address, a path, an identifier or a number."""
    words = words_of(text)
    if len(words) <= PASSAGE:
        yield from _value(text, words, question)
    run = 0
    for at, word in enumerate(words):
        run = run + 1 if question.is_seen(word) else 0
        if run >= PASSAGE and len(words) > PASSAGE:
            passage = words[at + 1 - PASSAGE : at + 1]
            if (origin := question.origin(passage)) is not None:
                yield " ".join(passage), origin
    for chunk in text.split():
        core = chunk.strip(_EDGES)
        if len(core) >= MIN_TEXT and _SPECIAL.search(core):
            for part in (core, *(host for host in _HOST.findall(core) if host != core)):
                yield from _value(part, words_of(part), question)
            for host in _HOST.findall(core):
                yield from _domain(host, question)
            yield from _backwards(core, question)


def _backwards(core: str, question: Question) -> Iterator[tuple[str, Origin]]:
    """A value whose letters stand in a result in reverse: a page may ask a model to turn them round."""
    if len(core) < MIN_BACKWARDS or core.isdigit() or question.is_given(words_of(core)):
        return
    if (origin := question.origin(words_of(core[::-1]))) is not None:
        yield core, origin


def _domain(host: str, question: Question) -> Iterator[tuple[str, Origin]]:
    """The domain of a host that no text has: what is sent to `anything.evil.example` arrives at its owner's."""
    labels = host.split(".")
    for at in range(1, len(labels) - 1):
        domain = ".".join(labels[at:])
        if max(map(len, labels[at:])) > MAX_SUFFIX:
            yield from _value(domain, words_of(domain), question)


def _value(text: str, words: list[str], question: Question) -> Iterator[tuple[str, Origin]]:
    """A value that counts by itself, if it is long enough not to be met by chance."""
    if not words or (text.isascii() and sum(map(len, words)) < MIN_TEXT):
        return
    origin = question.origin(words)
    if origin is not None:
        yield text, origin
    elif (number := number_of(text.strip(_EDGES).replace(",", ""))) is not None:
        yield from _in_number(number, question)


def _shown(value: str) -> str:
    """An untrusted value for a person: quoted, cut, with nothing in it that steers a terminal."""
    return repr(value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "\u2026")


def load(settings: Mapping[str, Any]) -> Rule:
    """`[policy.taint]`: untrusted = ["web_*"], outgoing = ["post_*"]; `taint = false` switches it off."""
    known(settings, f"policy.{NAME}", ["untrusted", "outgoing", "on"])
    if not isinstance(settings.get("on", True), bool):
        raise ConfigError(f"policy.{NAME}.on: true or false is needed, not {settings['on']!r}")
    return Rule(**settings)
