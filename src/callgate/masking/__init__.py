"""Secrets, masked by rule: declared ones first, then by the names of fields, then by the formats of known tokens.

Law: masking twice is masking once, and JSON in a text stays JSON. (tests/test_masking.py::test_json_stays_json)
Law: the cost of a text is linear in its length. (tests/test_masking.py::test_the_cost_of_a_text_is_linear)

The rules, in this order:
1. *Declared* secrets (`Masking.with_secrets`): their exact values wherever they stand, as they are, escaped in JSON, in
   an address or in base64. These alone are masked on the way to the model.
2. *Names*: a field whose last word says that it holds a secret (`db_password`, `userToken`, `Authorization`), if its
   value looks like a value and not like a type, a label or a placeholder.
3. *Formats* of well-known tokens (those of gitleaks v8.30), private keys, passwords in addresses.
Prose is never guessed at: "Reset your password: click …" stays as it is.

Masking happens on the way out (a ledger that is shown, an export, a log, an error for people); what a tool works with
is never altered. `Masking.mask` tells which places were masked, so that the text `[masked]` itself decides nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from callgate.masking import _assignments, _declared, _patterns, _tokens
from callgate.masking._assignments import HINTS, PROGRAMS
from callgate.masking._declared import Secret, declared
from callgate.masking._names import MAX_NAME, Rule, holds_secret, holds_secret_number, plain, rule_of
from callgate.masking._patterns import nests_repetitions
from callgate.masking._walk import Rules, differences, walk

__all__ = ["DEFAULT", "MASK", "Masking", "Secret", "declared", "is_secret_name", "nests_repetitions"]

MASK = "[masked]"
"""What stands in the place of a secret."""

_PASSES = 8
"""A mask can change how what stands beside it reads, so a text is read until nothing changes; two nearly always do."""
_LEAST = 6
"""Characters of the shortest text in which the built-in rules know a secret."""
_BARE = {ord(char): None for char in " \t_.-/:"}
_HINTS = (
    *HINTS,
    *(json.dumps(hint)[1:-1] for hint in HINTS if not hint.isascii()),
    *(program.translate(_BARE) for program in PROGRAMS),
)
"""As they stand in JSON, whose letters may be escaped."""
_LONG_RUN = re.compile(r"[A-Za-z0-9_\-.~]{16}")


@dataclass(frozen=True, slots=True)
class Masking:
    """The rules in force."""

    names: frozenset[str] = frozenset()
    """Further names of fields, lower case, without separators; any value in them is masked."""
    patterns: tuple[re.Pattern[str], ...] = ()
    """Further patterns for texts; of a pattern with a group `a` only what follows that group is masked."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Declared secrets: these exact texts are masked wherever they stand."""
    _exact: re.Pattern[str] | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", _declared.pattern(self.secrets))

    @classmethod
    def of(cls, names: Iterable[str] = (), patterns: Iterable[str] = (), secrets: Iterable[str] = ()) -> Masking:
        """The built-in rules, further field names, regular expressions for texts, and exact secrets.

        Raises ConfigError for a pattern that is none, or that a hostile text could make run for ever.
        """
        made = tuple(_patterns.compiled(pattern) for pattern in patterns)
        return cls(frozenset(plain(name) for name in names) - {""}, made).with_secrets(secrets)

    def with_secrets(self, values: Iterable[str]) -> Masking:
        """The same rules with further declared secrets; values shorter than 4 characters are left out."""
        known = {value for value in (*self.secrets, *values) if len(value) >= _declared.LEAST and value not in MASK}
        return self if known == set(self.secrets) else replace(self, secrets=tuple(sorted(known)))

    # --- texts --------------------------------------------------------------------------------------------------------

    def text(self, text: str) -> str:
        """The text with its secrets masked; the very same object where there is none."""
        if len(text) < _LEAST and self._exact is None and not self.patterns:
            return text
        for _ in range(_PASSES):
            masked = self._once(text)
            if masked is text:
                break
            text = masked
        return text

    def _once(self, text: str) -> str:
        if self._exact is not None and self._exact.search(text):
            text = self._exact.sub(MASK, text)
        spans = [*_tokens.spans(text), *_assignments.spans(text, self._rule), *_patterns.spans(text, self.patterns)]
        return _masked(text, spans) if spans else text

    def exact(self, text: str) -> str:
        """The text with declared secrets masked and nothing else: the rule for what goes to the model."""
        return text if self._exact is None else self._exact.sub(MASK, text)

    def may_concern(self, text: str) -> bool:
        """Whether JSON with this text may hold a secret at all; False is certain, and quick."""
        if self.secrets or self.names or self.patterns or "://" in text or _LONG_RUN.search(text):
            return True
        # in every message of a model stands "assistant", and in that a word for a bank's one-time codes
        bare = text.lower().translate(_BARE).replace("assistant", "assista\0nt")
        for hint in _HINTS:  # noqa: SIM110 - a generator costs twice as much, and every entry of every run comes here
            if hint in bare:
                return True
        return False

    def _rule(self, name: str) -> Rule | None:
        if self.names and len(name) <= MAX_NAME and plain(name) in self.names:
            return "named"
        return rule_of(name)

    # --- values -------------------------------------------------------------------------------------------------------

    def mask(self, value: object) -> tuple[object, tuple[str, ...]]:
        """The value masked, and the JSON pointers (RFC 6901) of the texts, numbers and names that were changed."""
        masked = self.value(value)
        return masked, tuple(differences(value, masked))

    def value(self, value: object) -> object:
        """JSON with its secrets masked; the very same object where there is none. Nested as deeply as it may be."""
        return walk(value, Rules(self.text, self._scalar, self._rule, self.exact))

    def exact_value(self, value: object) -> object:
        """JSON with declared secrets masked and nothing else."""
        return value if self._exact is None else walk(value, Rules(self.exact, self._number, _no_rule, self.exact))

    def _scalar(self, rule: Rule | None, value: object) -> object:
        if isinstance(value, str):
            masked = self.text(value)
            secret = rule is not None and (holds_secret(rule, value) or holds_secret(rule, masked))
            return MASK if secret and value != MASK else masked
        if rule is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
            return MASK if holds_secret_number(rule, value) else self._number(rule, value)
        return self._number(rule, value)

    def _number(self, _rule: Rule | None, value: object) -> object:
        """A number that was declared secret (a pin)."""
        plain_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return MASK if plain_number and self.secrets and str(value) in self.secrets else value


def _no_rule(_name: str) -> Rule | None:
    return None


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    """The text with these places masked; places that overlap are one."""
    out: list[str] = []
    at = 0
    for start, end in _merged(spans):
        if text[start:end] == MASK:
            continue
        out += [text[at:start], MASK]
        at = end
    return "".join([*out, text[at:]]) if out else text


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return merged


def is_secret_name(name: str) -> bool:
    """Whether a field of this name holds a secret."""
    return rule_of(name) is not None


DEFAULT = Masking()
