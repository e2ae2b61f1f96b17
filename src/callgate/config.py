"""The settings: what holds if nobody says anything, and where it can be said otherwise.

One law: every setting has one name. It is a line of `callgate.toml`, with `CALLGATE_` before it and in capitals an
environment variable, and a field of `Config`; and a setting that nobody knows is an error, never ignored.

What is said later wins: the defaults, the user's file (`callgate.toml` in the user's configuration folder), the
project's file (`callgate.toml` in the current folder), the environment, and what the program itself gives. With
`CALLGATE_CONFIG` that file is read instead of both.
"""

# ruff: noqa: RUF009 - `_setting` makes dataclass fields

from __future__ import annotations

import difflib
import json
import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from callgate.errors import ConfigError
from callgate.masking import Masking

FILE = "callgate.toml"
PREFIX = "CALLGATE_"
OFF = frozenset({"none", "off", "no", "false", ""})
"""Words that switch a limit off."""


def _setting(default: Any, kind: str, doc: str) -> Any:
    """A field of `Config`: its default, how its text is read, and what it does."""
    meta = {"kind": kind, "doc": doc}
    if isinstance(default, (dict, list)):
        return field(default_factory=type(default), metadata=meta)
    return field(default=default, metadata=meta)


@dataclass(frozen=True)
class Config:
    """The settings in force."""

    model: str = _setting("local", "text", "Who answers: `local`, `ollama:NAME`, `openai:NAME`, `http://host/v1#NAME`.")
    protocol: str = _setting("auto", "text", "How calls are asked for: `auto`, or the name of a protocol or dialect.")
    dialect: str | None = _setting(None, "text?", "How the model writes calls in text; none: it is found out.")
    instructions: str = _setting("", "text", "The system message.")
    options: dict[str, Any] = _setting(
        {}, "table", "Sampling by the OpenAI names: `temperature`, `max_tokens`, `seed` …"
    )
    ledger: str = _setting(
        "",
        "text",
        "Where runs are recorded: `memory`, `sqlite:PATH`, `postgresql://…`; else SQLite in the state folder.",
    )
    max_turns: int | None = _setting(6, "count?", "Answers of the model in a run; calls of the last one do not start.")
    max_requests: int | None = _setting(24, "count?", "Requests in a run, retries and choices of tools included.")
    max_calls_per_turn: int | None = _setting(16, "count?", "Calls in one answer.")
    max_calls: int | None = _setting(None, "count?", "Calls in a run.")
    max_tokens: int | None = _setting(200_000, "count?", "Tokens in a run, read and written.")
    max_context: int | None = _setting(None, "count?", "Tokens of history that are sent; none: what the model holds.")
    summarize: bool = _setting(False, "switch", "Have the model sum up what does not fit, instead of leaving it out.")
    tool_timeout: float = _setting(30.0, "seconds", "Seconds that a tool may take, unless it says otherwise.")
    run_timeout: float | None = _setting(120.0, "seconds?", "Seconds that a run may take, without waiting for people.")
    grace: float = _setting(2.0, "seconds", "Seconds that a tool has to stop once it is told to; then it is abandoned.")
    max_parallel: int = _setting(8, "count", "Reads that overlap at most.")
    retries: int = _setting(2, "number", "How often an unusable answer is asked for again before the protocol changes.")
    repeat_warn: int = _setting(3, "number", "At which identical call with an identical result the model is warned.")
    repeat_stop: int = _setting(4, "number", "At which one the run ends.")
    max_result: int = _setting(8000, "count", "Characters of a result that the model sees at once.")
    approval_expires: float | None = _setting(
        None, "seconds?", "Seconds after which an answer to a question is too late."
    )
    policy: dict[str, Any] = _setting(
        {}, "table", "Further rules, one table each: `[policy.rate]`, `[policy.arguments]` …"
    )
    mask_names: tuple[str, ...] = _setting((), "list", "Further field names whose values the ledger masks.")
    mask_patterns: tuple[str, ...] = _setting((), "list", "Further regular expressions that the ledger masks in texts.")
    keep_days: float | None = _setting(None, "days?", "Days after which `callgate ledger prune` removes a run.")
    max_ledger_size: int | None = _setting(None, "count?", "Characters of journal that `callgate ledger prune` leaves.")
    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Name -> where it was said; what is missing has its default."""

    @property
    def where(self) -> str:
        """The ledger in force."""
        return self.ledger or f"sqlite:{state_folder() / 'runs.db'}"

    @property
    def masking(self) -> Masking:
        """The rules by which secrets are masked."""
        return Masking.of(self.mask_names, self.mask_patterns)

    def agent_options(self) -> dict[str, Any]:
        """What `Agent` takes of it by these very names, `model` and `ledger` apart."""
        apart = {"model", "ledger", "mask_names", "mask_patterns", "keep_days", "max_ledger_size", "sources"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart}


SETTINGS = tuple(f for f in fields(Config) if f.metadata)
"""The fields that can be set, with `metadata["doc"]`."""
NAMES = tuple(f.name for f in SETTINGS)


def load(
    given: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Config:
    """The settings in force. `given` is what the program itself says; None there means "nothing said".

    Raises ConfigError for a file that cannot be read, an unknown setting or a value that does not fit.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(name: str, value: Any, source: str) -> None:
        values[name], sources[name] = value, source

    for path in _files(environ, folder or Path.cwd()):
        for name, value in _read(path).items():
            take(name, _checked(name, value, f"{path}: {name}"), str(path))
    for key, text in environ.items():
        name = key.removeprefix(PREFIX).lower()
        if key.startswith(PREFIX) and key.isupper() and name in NAMES:
            take(name, _parsed(name, text, key), key)
        elif key.startswith(PREFIX) and _is_misspelt(name):
            raise ConfigError(f"{key}: no such setting{_nearest(name, PREFIX)}")
    for name, value in (given or {}).items():
        if value is not None:
            take(_known(name, name), _checked(name, value, name), "given")
    return replace(Config(**values), sources=sources)


OTHERS = frozenset({"config", "models", "cache"})
"""Words after `CALLGATE_` that belong to others than this module."""


def _is_misspelt(name: str) -> bool:
    """Whether an unknown variable was surely meant for us: others may have theirs under the same prefix."""
    return name not in OTHERS and bool(difflib.get_close_matches(name, NAMES, n=1, cutoff=0.85))


def _files(environ: Mapping[str, str], folder: Path) -> list[Path]:
    chosen = environ.get(f"{PREFIX}CONFIG")
    if chosen:
        path = Path(chosen).expanduser()
        if not path.is_file():
            raise ConfigError(f"{PREFIX}CONFIG: there is no file {path}")
        return [path]
    return [path for path in (config_folder(environ) / FILE, folder / FILE) if path.is_file()]


def _read(path: Path) -> dict[str, Any]:
    try:
        data = tomllib.loads(path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    return {_known(name, f"{path}: {name}"): value for name, value in data.items()}


def _known(name: str, where: str) -> str:
    if name not in NAMES:
        raise ConfigError(f"{where}: no such setting{_nearest(name)}")
    return name


def _nearest(name: str, prefix: str = "") -> str:
    close = difflib.get_close_matches(name, NAMES, n=1)
    return f"; did you mean {prefix + close[0].upper() if prefix else close[0]}?" if close else ""


# --- values -------------------------------------------------------------------------------------------------------


def _kind(name: str) -> str:
    return next(str(f.metadata["kind"]) for f in SETTINGS if f.name == name)


def _parsed(name: str, text: str, where: str) -> Any:
    """The value of an environment variable."""
    kind = _kind(name)
    if kind == "text":
        return text
    if kind.endswith("?") and text.strip().lower() in OFF:
        return None
    if kind == "list":
        return _checked(name, _json(text, where) if text.lstrip().startswith("[") else text.split(","), where)
    if kind == "table":
        return _checked(name, _json(text, where), where)
    if kind == "switch":
        words = {"1": True, "true": True, "yes": True, "on": True, "0": False, **dict.fromkeys(OFF, False)}
        if text.strip().lower() not in words:
            raise ConfigError(f"{where}: true or false is needed, not {text!r}")
        return words[text.strip().lower()]
    if kind.startswith("text"):
        return text
    try:
        number = float(text)
    except ValueError:
        raise ConfigError(f"{where}: a number is needed, not {text!r}") from None
    return _checked(name, int(number) if number.is_integer() else number, where)


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: JSON is needed: {error}") from error


def _checked(name: str, value: Any, where: str) -> Any:
    """The value, if it fits the setting."""
    kind = _kind(name)
    if kind.endswith("?") and (value is None or value is False or (isinstance(value, str) and value.lower() in OFF)):
        return None
    return _CHECKS[kind.removesuffix("?")](value, where)


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: text is needed, not {value!r}")
    return value


def _switch(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: true or false is needed, not {value!r}")
    return value


def _whole(least: int) -> Callable[[Any, str], int]:
    def check(value: Any, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{where}: a whole number of at least {least} is needed, not {value!r}")
        return value

    return check


def _seconds(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ConfigError(f"{where}: a number above 0 is needed, not {value!r}")
    return float(value)


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{where}: a table is needed, not {value!r}")
    return dict(value)


def _list(value: Any, where: str) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(item, str) for item in value):
        raise ConfigError(f"{where}: a list of texts is needed, not {value!r}")
    return tuple(item.strip() for item in value if item.strip())


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "text": _text,
    "switch": _switch,
    "count": _whole(1),
    "number": _whole(0),
    "seconds": _seconds,
    "days": _seconds,
    "table": _table,
    "list": _list,
}


# --- folders ------------------------------------------------------------------------------------------------------


def state_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where the ledger is kept if nobody says otherwise."""
    return _folder(environ, "XDG_STATE_HOME", Path(".local") / "state", "LOCALAPPDATA")


def config_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Where the user's `callgate.toml` is."""
    return _folder(environ, "XDG_CONFIG_HOME", Path(".config"), "APPDATA")


def _folder(environ: Mapping[str, str] | None, variable: str, usual: Path, windows: str) -> Path:
    environ = os.environ if environ is None else environ
    if chosen := environ.get(variable):
        return Path(chosen) / "callgate"
    home = Path(environ["HOME"]) if environ.get("HOME") else Path.home()
    if sys.platform == "win32":
        return Path(environ.get(windows) or home / "AppData") / "callgate"
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / "callgate"
    return home / usual / "callgate"


def table() -> str:
    """All settings as a table for docs/settings.md."""
    lines = ["| `callgate.toml` | environment | default | what it does |", "|---|---|---|---|"]
    lines += [f"| `{f.name}` | `{PREFIX}{f.name.upper()}` | {_shown(f)} | {f.metadata['doc']} |" for f in SETTINGS]
    return "\n".join(lines)


def _shown(f: Any) -> str:
    if f.metadata["kind"] in ("table", "list") or f.default == "":
        return ""
    if f.default is None:
        return "none"
    if isinstance(f.default, bool):
        return f"`{str(f.default).lower()}`"
    return f"`{f.default:g}`" if isinstance(f.default, float) else f"`{f.default}`"
