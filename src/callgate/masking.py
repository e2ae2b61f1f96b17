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
from dataclasses import dataclass
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

_LOOKS: tuple[str, ...] = (
    r"\b(?:sk|pk|rk)-(?:[A-Za-z]+-)*[A-Za-z0-9_\-]{16,}",  # OpenAI, Anthropic and their like
    r"\b(?:sk|pk|rk)_(?:live|test)_[A-Za-z0-9]{10,}",  # Stripe
    r"\b(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bglpat-[A-Za-z0-9_\-]{16,}",
    r"\bxox[abeoprs]-[A-Za-z0-9\-]{10,}",  # Slack
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b",  # AWS
    r"\bAIza[A-Za-z0-9_\-]{30,}",  # Google
    r"\bhf_[A-Za-z0-9]{20,}",
    r"\beyJ[A-Za-z0-9_\-]{8,}\.eyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]+",  # JSON web tokens
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^\"'<]*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|(?=[\"'<])|\Z)",
)
_NAMED = r"(?:\b|_)(?:password|passwd|pwd|secret|api[_\-]?key|access[_\-]?token|auth[_\-]?token)"
_VALUE = r"(?!\[masked\])[^\s\"'&,;\\{}\[\]()<>]{3,}"
_KEPT: tuple[str, ...] = (  # what comes before the secret stays: the group
    r"(\bbearer\s+)(?=[^\s\"']*\d)[A-Za-z0-9_\-.~+/=]{12,}",
    r"(\bbasic\s+)(?=[^\s\"']*[\d=])[A-Za-z0-9+/]{15,}={0,2}",
    r"(\b[a-z][a-z0-9+.\-]{1,20}://[^\s/:@\"'<>]{0,100}:)(?!\[masked\])[^\s/@\"'<>{}\\,]{1,200}(?=@)",  # in an address
    rf"({_NAMED}\s{{0,3}}[=:]\s{{0,3}}[\"']?){_VALUE}",
    rf"({_NAMED}\\?[\"']\s{{0,3}}:\s{{0,3}}\\?[\"']){_VALUE}",  # in JSON: only a string, so that it stays JSON
)


@dataclass(frozen=True, slots=True)
class Masking:
    """The rules in force. `names` are further field names, `patterns` further regular expressions for texts."""

    names: frozenset[str] = NAMES
    whole: re.Pattern[str] = re.compile("|".join(_LOOKS))
    after: re.Pattern[str] = re.compile("|".join(_KEPT), re.IGNORECASE)

    @classmethod
    def of(cls, names: Iterable[str] = (), patterns: Iterable[str] = ()) -> Masking:
        """The built-in rules and these."""
        extra = []
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"mask_patterns: {pattern!r} is no regular expression: {error}") from error
            extra.append(f"(?:{pattern})")
        return cls(NAMES | {_plain_name(n) for n in names}, re.compile("|".join((*_LOOKS, *extra))))

    def text(self, text: str) -> str:
        """The text with everything that looks like a secret masked."""
        masked = self.whole.sub(MASK, text)
        return self.after.sub(_keep_front, masked)

    def value(self, value: Any) -> Any:
        """JSON with its secrets masked; the very same object where there is none."""
        if isinstance(value, str):
            return self.text(value) if len(value) > 6 else value  # no pattern is shorter
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
    return next((group for group in match.groups() if group), "") + MASK


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
