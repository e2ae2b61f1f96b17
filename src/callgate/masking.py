"""Secrets, masked by rule: what goes into the ledger or an error text is first read for passwords, keys and tokens.

One law: nothing but the secret is changed, and masking twice is masking once.

Two rules. A field whose *name* says that it holds a secret is masked whole (`password`, `api_key`, `authorization` …);
names are compared without case and separators. Inside any text, what *looks* like a secret is masked (keys with a known
prefix, bearer tokens, private keys, passwords in addresses, `password=…`); JSON in a text stays JSON. More names and
patterns are a setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from callgate.errors import ConfigError

MASK = "[masked]"
"""What stands in the place of a secret. A call whose arguments contain it is never run."""

NAMES: frozenset[str] = frozenset(
    """password passwd passphrase pwd secret clientsecret secretkey apikey xapikey accesskey secretaccesskey accesstoken
    refreshtoken authtoken bearertoken idtoken sessiontoken authorization proxyauthorization privatekey credentials
    cookie setcookie cvv cvc""".split()  # noqa: SIM905 - a list of words reads best as words
)
"""Field names that hold secrets, lower case, without separators. `token` alone is not among them: pages have them."""

_SEPARATORS = re.compile(r"[\s_.\-]+")
_BARE = {ord(c): None for c in " \t_.-"}

_FIELD = r"(?:password|passwd|pwd|secret|api[_\-]?key|access[_\-]?token|auth[_\-]?token)"
_NAMED = rf"(?:\b|_){_FIELD}"
_VALUE = r"(?!\[masked\])[^\s\"'&,;\\{}\[\]()<>]{3,}"
_NAMED_HINTS = ("passw", "pwd", "secret", "api", "token")

_LOOKS: tuple[tuple[tuple[str, ...], str], ...] = (
    # OpenAI, Anthropic and their like; Stripe
    (("sk-", "pk-", "rk-"), r"\b(?:sk|pk|rk)-(?:[a-z]+-)*[a-z0-9_\-]{16,}"),
    (("_live_", "_test_"), r"\b(?:sk|pk|rk)_(?:live|test)_[a-z0-9]{10,}"),
    # GitHub, GitLab, Slack, AWS, Google, Hugging Face
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[a-z0-9]{20,}"),
    (("github_pat_",), r"\bgithub_pat_[a-z0-9_]{20,}"),
    (("glpat-",), r"\bglpat-[a-z0-9_\-]{16,}"),
    (("xox",), r"\bxox[abeoprs]-[a-z0-9\-]{10,}"),
    (("akia", "asia"), r"\b(?-i:AKIA|ASIA)[a-z0-9]{16}\b"),
    (("aiza",), r"\baiza[a-z0-9_\-]{30,}"),
    (("hf_",), r"\bhf_[a-z0-9]{20,}"),
    # JSON web tokens; private keys
    (("eyj",), r"\beyj[a-z0-9_\-]{8,}\.eyj[a-z0-9_\-]{8,}\.[a-z0-9_\-]+"),
    (
        ("private key-----",),
        r"-----begin [a-z ]{0,40}private key-----[^\"'<]*?(?:-----end [a-z ]{0,40}private key-----|(?=[\"'<])|\Z)",
    ),
    # what comes before the secret stays: the group
    (("bearer",), r"(?P<a>\bbearer\s+)(?=[^\s\"']*\d)[a-z0-9_\-.~+/=]{12,}"),
    (("basic",), r"(?P<a>\bbasic\s+)(?=[^\s\"']*[\d=])[a-z0-9+/]{15,}={0,2}"),
    (
        ("://",),
        r"(?P<a>\b[a-z][a-z0-9+.\-]{1,20}://[^\s/:@\"'<>]{0,100}:)(?!\[masked\])[^\s/@\"'<>{}\\,]{1,200}(?=@)",
    ),
    (_NAMED_HINTS, rf"(?P<a>{_NAMED}\s{{0,3}}[=:]\s{{0,3}}[\"']?){_VALUE}"),
    (_NAMED_HINTS, rf"(?P<a>--{_FIELD} )(?!-){_VALUE}"),  # on a command line
    # as parameters of calls in XML, and as strings in the family markup of others
    (
        _NAMED_HINTS,
        rf"(?P<a>[=<\"']{_FIELD}[\"']?>(?:\s|\\n){{0,4}}+)(?!\s|\\n)(?!\[masked\])[^<>\"'\\]{{1,200}}?(?=(?:\s|\\n){{0,4}}<)",
    ),
    (_NAMED_HINTS, rf"(?P<a>{_NAMED}[\"']?:<(?:escape|\|\\?[\"']\|)>){_VALUE}"),
    # in JSON: only a string, so that it stays JSON
    (_NAMED_HINTS, rf"(?P<a>{_NAMED}\\?[\"']\s{{0,3}}:\s{{0,3}}\\?[\"']){_VALUE}"),
)
"""(one of these stands in the text, lower case; then this is looked for): long texts are mostly free of hints."""


@dataclass(frozen=True, slots=True)
class _Look:
    hints: tuple[str, ...]
    """Empty: always looked for."""
    pattern: re.Pattern[str]


LEAST = 7
"""Characters of the shortest secret that the built-in rules know in a text: `pwd=abc`."""
_BUILT_IN = tuple(_Look(hints, re.compile(pattern, re.IGNORECASE)) for hints, pattern in _LOOKS)


@dataclass(frozen=True, slots=True)
class Masking:
    """The rules in force."""

    names: frozenset[str] = NAMES
    looks: tuple[_Look, ...] = _BUILT_IN
    _hints: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """All hints; "" where something is always looked for."""
    _names: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The names of which no other one is a part."""

    def __post_init__(self) -> None:
        hints = dict.fromkeys(hint for look in self.looks for hint in look.hints or ("",))
        least = tuple(n for n in self.names if not any(other in n for other in self.names if other != n))
        object.__setattr__(self, "_hints", tuple(hints))
        object.__setattr__(self, "_names", least)

    @classmethod
    def of(cls, names: Iterable[str] = (), patterns: Iterable[str] = ()) -> Masking:
        """The built-in rules, further field names and further regular expressions for texts."""
        extra = []
        for pattern in patterns:
            try:
                extra.append(_Look((), re.compile(pattern)))
            except re.error as error:
                raise ConfigError(f"mask_patterns: {pattern!r} is no regular expression: {error}") from error
        return cls(NAMES | {_plain_name(n) for n in names}, (*_BUILT_IN, *extra))

    def text(self, text: str) -> str:
        """The text with everything that looks like a secret masked."""
        lower = text.lower()
        for look in self.looks:
            if not look.hints or any(hint in lower for hint in look.hints):
                text = look.pattern.sub(_keep_front, text)
        return text

    def may_concern(self, text: str) -> bool:
        """Whether JSON with this text may hold a secret at all; mostly it does not, and this is quick."""
        lower = text.lower()
        for hint in self._hints:  # plain loops: this is done for every entry of the ledger
            if hint in lower:
                return True
        bare = lower.translate(_BARE)
        for name in self._names:  # noqa: SIM110
            if name in bare:
                return True
        return False

    def value(self, value: Any) -> Any:
        """JSON with its secrets masked; the very same object where there is none."""
        if isinstance(value, str):
            short = len(value) < LEAST and self.looks is _BUILT_IN
            return value if short else self.text(value)
        if isinstance(value, Mapping):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            made = [self.value(v) for v in value]
            return made if any(a is not b for a, b in zip(made, value, strict=True)) else value
        return value

    def _mapping(self, value: Mapping[str, Any]) -> Mapping[str, Any]:
        made = {k: self._field(k, v) for k, v in value.items()}
        return made if any(made[k] is not v for k, v in value.items()) else value

    def _field(self, name: Any, value: Any) -> Any:
        secret = isinstance(name, str) and len(name) < 40 and _plain_name(name) in self.names
        if secret and value not in (None, "", MASK) and not isinstance(value, (bool, Mapping, list, tuple)):
            return MASK
        if secret and isinstance(value, (list, tuple)):
            return [MASK for _ in value]
        return self.value(value)


def _keep_front(match: re.Match[str]) -> str:
    kept = match.groupdict().get("a") or ""
    return kept + MASK if len(match.group()) > len(kept) else match.group()


def _plain_name(name: str) -> str:
    return _SEPARATORS.sub("", name).lower()


def is_masked(value: Any) -> bool:
    """Whether something in this JSON was masked."""
    if isinstance(value, str):
        return MASK in value
    if isinstance(value, Mapping):
        return any(is_masked(v) for v in value.values())
    return isinstance(value, (list, tuple)) and any(is_masked(v) for v in value)


DEFAULT = Masking()
