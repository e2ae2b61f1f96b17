"""Keys: who a request comes from, and what that key allows.

Law: a key that is not in the ring opens nothing, and no answer, log or error tells a key.
(tests/test_gateway_access.py::test_no_key_is_told_anywhere)

The file is TOML, one `[[keys]]` a key:

    [[keys]]
    name = "alice"                    # for logs and metrics
    key = "cg-…"                      # or sha256 = "the hexadecimal SHA-256 of the key"
    principal = "alice"               # on whose behalf runs act; default: the name
    grants = ["orders.read"]          # permissions of its runs
    models = ["qwen3*"]               # globs; default: all
    tools = ["get_*"]                 # of the client's own tools, those whose calls are let through; default: all
    rate = "60/min"                   # requests
    tokens = "200000/day"             # read and written together
    streams = 20                      # answers at once
    operator = true                   # sees everybody's runs, and may decide about their calls
    [keys.policy.arguments]           # rules on the client's own calls, as in callgate.toml
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
import tomllib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from callgate import policy
from callgate.apps.gateway.settings import check_key
from callgate.errors import ConfigError
from callgate.policy import JudgeContext, Rule
from callgate.policy.rate import parse as parse_rate
from callgate.types import Allow, Deny, Principal, ToolCall, ToolSpec, Verdict

ANYBODY = "anybody"
"""The name of the one caller of a server without keys."""
FIELDS = frozenset(
    {"name", "key", "sha256", "principal", "grants", "models", "tools", "rate", "tokens", "streams", "operator"}
    | {"policy"}
)


@dataclass(frozen=True)
class OnlyTools:
    """A rule: of the client's own tools only these may be called."""

    globs: tuple[str, ...]
    name: str = "tools"

    def judge(self, call: ToolCall, spec: ToolSpec, context: JudgeContext) -> Verdict:
        """Deny a call of any other tool."""
        if any(fnmatchcase(call.name, glob) for glob in self.globs):
            return Allow()
        return Deny(self.name, f"the key may not call {call.name}")


class Window:
    """How much was used in the last so many seconds, against a limit."""

    def __init__(self, limit: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.limit = limit
        self.seconds = seconds
        self._clock = clock
        self._used: deque[tuple[float, int]] = deque()
        self._sum = 0

    def wait(self) -> float:
        """Seconds until something is left again; 0: something is."""
        now = self._clock()
        while self._used and self._used[0][0] <= now - self.seconds:
            self._sum -= self._used.popleft()[1]
        if self._sum < self.limit:
            return 0.0
        over, freed = self._sum - self.limit, 0
        for at, amount in self._used:
            freed += amount
            if freed > over:
                return max(at + self.seconds - now, 0.001)
        return self.seconds  # a limit of 0 never opens

    def add(self, amount: int) -> None:
        """So much was used now."""
        now = self._clock()
        # What was used within a hundredth of the window counts as one: a day of requests must not be a list of them.
        if self._used and now - self._used[-1][0] < self.seconds / 100:
            at, before = self._used[-1]
            self._used[-1] = (at, before + amount)
        else:
            self._used.append((now, amount))
        self._sum += amount

    @property
    def left(self) -> int:
        """What is left just now."""
        return max(self.limit - self._sum, 0)


@dataclass
class Usage:
    """What a caller does just now; outlives a reload of the keys."""

    active: int = 0
    """Requests that are being answered."""


@dataclass(eq=False)
class Caller:
    """Who asks, and what they may."""

    name: str = ANYBODY
    principal: Principal | None = None
    models: tuple[str, ...] = ()
    """Globs; empty: all."""
    rules: Sequence[Rule] = ()
    """What is checked of calls of the client's own tools."""
    operator: bool = True
    """Sees the runs of all principals, and decides about their calls."""
    streams: int | None = None
    rate: Window | None = None
    tokens: Window | None = None
    usage: Usage = field(default_factory=Usage)

    def may_use(self, model: str) -> bool:
        """Whether this caller may ask (and be told of) the model."""
        return not self.models or any(fnmatchcase(model, glob) for glob in self.models)

    def sees(self, principal: str | None) -> bool:
        """Whether this caller may see what was done on behalf of this principal."""
        return self.operator or (self.principal is not None and principal == self.principal.id)

    def charge(self, tokens: int) -> None:
        """So many tokens were used."""
        if self.tokens is not None and tokens > 0:
            self.tokens.add(tokens)


@dataclass
class Keyring:
    """The keys in force. Without any, everybody is let in as one caller."""

    callers: dict[bytes, Caller] = field(default_factory=dict)
    """Fingerprint of a key -> its caller."""
    anybody: Caller | None = None
    """The caller of a server that needs no key."""

    # Of a secret of this process: how long a look-up takes tells nothing about the keys in the ring, since nobody
    # outside can choose or guess the fingerprints.
    _pepper: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    def find(self, key: str) -> Caller | None:
        """The caller of this key; None: there is no such key."""
        wanted = self._fingerprint(hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest())
        found: Caller | None = None
        for known, caller in self.callers.items():  # all of them, and each in the same time
            if hmac.compare_digest(known, wanted):
                found = caller
        return found

    def add(self, digest: bytes, caller: Caller) -> None:
        """One key more, by its SHA-256. Raises ConfigError if it is there already."""
        mark = self._fingerprint(digest)
        if mark in self.callers:
            raise ConfigError(f"keys: {caller.name} and {self.callers[mark].name} have the same key")
        self.callers[mark] = caller

    def _fingerprint(self, digest: bytes) -> bytes:
        return hashlib.blake2b(digest, key=self._pepper, digest_size=32).digest()

    def keep_usage(self, before: Keyring) -> None:
        """What the callers of the same names have used so far counts on: a reload is no new day."""
        known = {caller.name: caller for caller in before.callers.values()}
        for caller in self.callers.values():
            old = known.get(caller.name)
            if old is None:
                continue
            caller.usage = old.usage
            caller.rate = _same(old.rate, caller.rate)
            caller.tokens = _same(old.tokens, caller.tokens)


def _same(before: Window | None, after: Window | None) -> Window | None:
    if before is None or after is None or before.seconds != after.seconds:
        return after
    before.limit = after.limit
    return before


def make(keys: Sequence[str], file: str | None) -> Keyring:
    """The ring of these keys, which allow everything, and those of the file. Raises ConfigError for what is wrong."""
    ring = Keyring()
    for number, key in enumerate(keys, 1):
        check_key(key, "--key")
        name = "key" if len(keys) == 1 else f"key {number}"
        ring.add(hashlib.sha256(key.encode()).digest(), Caller(name, Principal(name)))
    if file is not None:
        for digest, caller in _of_file(file):
            ring.add(digest, caller)
        if not ring.callers:
            raise ConfigError(f"--keys {file}: there is no key in it; write a [[keys]] table for each")
    if not ring.callers:
        ring.anybody = Caller()
    return ring


def _of_file(path: str) -> list[tuple[bytes, Caller]]:
    try:
        found = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"--keys {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        # Without the parser's own words: they may quote a key.
        raise ConfigError(f"--keys {path}: not TOML{_line_of(error)}") from error
    rows = found.pop("keys", [])
    if found or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ConfigError(f"--keys {path}: a [[keys]] table for each key is needed, and nothing else")
    out = [_caller(row, f"--keys {path}: key {number}") for number, row in enumerate(rows, 1)]
    names = [caller.name for _, caller in out]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"--keys {path}: the name {twice[0]} is given twice")
    return out


def _line_of(error: Exception) -> str:
    found = re.search(r"line (\d+)", str(error))
    return f" (line {found[1]})" if found else ""


def _caller(row: Mapping[str, object], where: str) -> tuple[bytes, Caller]:
    if unknown := sorted(row.keys() - FIELDS):
        raise ConfigError(f"{where}: {unknown[0]} is unknown; known are {', '.join(sorted(FIELDS))}")
    name = _text(row, "name", where) or ""
    if not re.fullmatch(r"[\w.@ -]{1,80}", name):
        raise ConfigError(f"{where}: name: 1 to 80 letters, digits, spaces or .@-_ are needed")
    where = f"{where} ({name})"
    digest = _digest(row, where)
    streams = row.get("streams")
    if streams is not None and (not isinstance(streams, int) or isinstance(streams, bool) or streams < 1):
        raise ConfigError(f"{where}: streams: a whole number from 1 is needed")
    operator = row.get("operator", False)
    if not isinstance(operator, bool):
        raise ConfigError(f"{where}: operator: true or false is needed")
    rules = row.get("policy", {})
    if not isinstance(rules, Mapping):
        raise ConfigError(f"{where}: policy: a table is needed")
    tools = _list(row, "tools", where)
    more: list[Rule] = [OnlyTools(tools)] if "tools" in row else []
    return digest, Caller(
        name,
        Principal(_text(row, "principal", where) or name, _list(row, "grants", where)),
        models=_list(row, "models", where),
        rules=(*more, *policy.load({str(key): value for key, value in rules.items()})),
        operator=operator,
        streams=streams,
        rate=_window(row, "rate", where),
        tokens=_window(row, "tokens", where),
    )


def _digest(row: Mapping[str, object], where: str) -> bytes:
    key, hashed = row.get("key"), row.get("sha256")
    if (key is None) == (hashed is None):
        raise ConfigError(f"{where}: either key or sha256 is needed")
    if isinstance(key, str):
        check_key(key, where)
        return hashlib.sha256(key.encode()).digest()
    if not isinstance(hashed, str) or not re.fullmatch(r"[0-9a-fA-F]{64}", hashed):
        raise ConfigError(f"{where}: key must be a text, sha256 64 hexadecimal digits")
    return bytes.fromhex(hashed)


def _text(row: Mapping[str, object], name: str, where: str) -> str | None:
    value = row.get(name)
    if value is not None and (not isinstance(value, str) or not value):
        raise ConfigError(f"{where}: {name}: a text is needed")
    return value if isinstance(value, str) else None


def _list(row: Mapping[str, object], name: str, where: str) -> tuple[str, ...]:
    value = row.get(name, [])
    if not isinstance(value, list) or not all(isinstance(part, str) for part in value):
        raise ConfigError(f"{where}: {name}: a list of texts is needed")
    return tuple(value)


def _window(row: Mapping[str, object], name: str, where: str) -> Window | None:
    value = row.get(name)
    if value is None:
        return None
    count, seconds = parse_rate(value, f"{where}: {name}")
    return Window(count, seconds)
