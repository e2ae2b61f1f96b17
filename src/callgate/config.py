"""The settings: their defaults, and the places where they can be changed.

Every setting has one name. It is a line of `callgate.toml`, with `CALLGATE_` before it and in capitals an environment
variable, and a field of `Config`; and a setting that nobody knows is an error, never ignored.

The later source wins: the defaults, the user's file (`callgate.toml` in the user's configuration folder), the
project's file (`callgate.toml` in the current folder), the environment, and what the program itself gives. With
`CALLGATE_CONFIG` that file is read instead of both. The project's file may have come with somebody else's repository:
until the user trusts exactly this content, it can only tighten (G4).

Law: a project's file that is not trusted never makes anything looser than it is without the file.
(tests/test_config_trust.py::test_an_untrusted_project_file_never_loosens_anything)
Law: each setting is one line of the file, one variable and one field.
(tests/test_config.py::test_every_setting_is_a_variable_and_a_line_of_the_file)
"""

# ruff: noqa: RUF009 - `_setting` makes dataclass fields

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from callgate.errors import ConfigError
from callgate.limits import DEFAULT_NAMES, Limits
from callgate.masking import Masking
from callgate.policy import Rule
from callgate.policy import load as load_policy

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
class Config(Limits):
    """The settings in force; the limits among them are those of `callgate.limits`."""

    model: str = _setting("local", "text", "Who answers: `local`, `ollama:NAME`, `openai:NAME`, `http://host/v1#NAME`.")
    protocol: str = _setting("auto", "text", "How calls are asked for: `auto`, or the name of a protocol or dialect.")
    dialect: str | None = _setting(None, "text?", "How the model writes calls in text; none: it is found out.")
    instructions: str = _setting("", "text", "The system message.")
    options: dict[str, Any] = _setting(
        {}, "table", "Sampling by the OpenAI names: `temperature`, `max_tokens`, `seed` …; for Ollama also `num_ctx`."
    )
    ledger: str = _setting(
        "",
        "text",
        "Where runs are recorded: `memory`, `sqlite:PATH`, `postgresql://…`; else SQLite in the state folder.",
    )
    policy: dict[str, Any] = _setting(
        {}, "table", "Further rules, one table each: `[policy.rate]`, `[policy.arguments]` …"
    )
    mask_names: tuple[str, ...] = _setting((), "list", "Further field names whose values the ledger masks.")
    mask_patterns: tuple[str, ...] = _setting((), "list", "Further regular expressions that the ledger masks in texts.")
    keep_days: float | None = _setting(None, "days?", "Days after which `callgate ledger prune` removes a run.")
    max_ledger_size: int | None = _setting(None, "count?", "Characters of journal that `callgate ledger prune` leaves.")
    sources: dict[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Name -> where it was set; what is missing has its default."""
    project_policy: dict[str, Any] = field(default_factory=dict)
    """Rules of a project's file that is not trusted: they come on top of `policy` and replace nothing of it."""

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
        apart |= {"project_policy"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in apart} | {"policy": self._rules()}

    def _rules(self) -> dict[str, object] | list[Rule]:
        if not self.project_policy:
            return self.policy
        return [*load_policy(self.policy), *load_policy(self.project_policy)]


SETTINGS = tuple(sorted((f for f in fields(Config) if f.metadata), key=lambda f: f.name in DEFAULT_NAMES))
"""The fields that can be set, with `metadata["doc"]`; the limits last."""
NAMES = tuple(f.name for f in SETTINGS)


def load(
    given: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
    warn: Callable[[str], None] | None = None,
) -> Config:
    """The settings in force. `given` is what the program itself sets; None there means "not set".

    `warn` gets one line if settings of the project's file are ignored; without it the line goes to standard error,
    once. Raises ConfigError for a file that cannot be read, an unknown setting or a value that does not fit.
    """
    environ = os.environ if environ is None else environ
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    project = _Project()

    def take(found: Mapping[str, object], source: str) -> None:
        values.update(found)
        sources.update(dict.fromkeys(found, source))

    for path in _files(environ, folder or Path.cwd()):
        content = _bytes(path)
        found = _settings_of(path, content)
        if path == _project_file(environ, folder) and not is_trusted(path, content, environ):
            project = _tightened(found, Config(**values), str(path))
            found = project.limits
            if project.ignored:
                (warn or _warn_once)(
                    f"callgate: {FILE} here is not trusted: ignored {', '.join(project.ignored)}; "
                    "run 'callgate config trust' to accept it"
                )
        take(found, str(path))
    for key, name in _variables(environ):
        take({name: _parsed(name, environ[key], key)}, key)
    # None is "not set": options of a command line that nobody gave stand there as None.
    own = {name: value for name, value in (given or {}).items() if value is not None}
    take({_known(name, name): _checked(name, value, name) for name, value in own.items()}, "given")
    for name, more in project.masks.items():  # added to whatever the later sources say
        values[name] = (*values.get(name, ()), *more)
    return replace(Config(**values), sources=sources, project_policy=project.policy)


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """The variables that are settings, each with the setting's name. Raises ConfigError for a misspelt one; a variable
    of another program that happens to begin alike is left alone."""
    for key in environ:
        name = key.removeprefix(PREFIX).lower()
        if key.startswith(PREFIX) and key.isupper() and name in NAMES:
            yield key, name
        elif key.startswith(PREFIX) and _is_misspelt(name):
            raise ConfigError(f"{key}: no such setting{_nearest(name, PREFIX)}")


# --- the project's file -------------------------------------------------------------------------------------------

LOWER_IS_TIGHTER = frozenset(
    {
        "max_turns",
        "max_requests",
        "max_calls_per_turn",
        "max_calls",
        "max_tokens",
        "tool_timeout",
        "run_timeout",
        "max_parallel",
        "retries",
        "repeat_warn",
        "repeat_stop",
        "max_result",
        "approval_expires",
    }
)
"""Limits that a file of somebody else may lower. None, and 0 for `repeat_*`, is no limit at all. What can be argued
both ways (`grace`, `max_context`) or destroys something (`keep_days`) is not in the list."""
MASKS = frozenset({"mask_names", "mask_patterns"})
TRUSTED = "trusted.json"
"""In the state folder: path of a project's file -> SHA-256 of the content that the user trusts."""


@dataclass(slots=True)
class _Project:
    """What of a project's file holds although nobody trusts it."""

    limits: dict[str, Any] = field(default_factory=dict)
    """Lower than they would be without the file."""
    policy: dict[str, Any] = field(default_factory=dict)
    masks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    """The names of all else."""


def _tightened(found: Mapping[str, Any], base: Config, where: str) -> _Project:
    """The part of the file that only tightens `base`. Raises ConfigError for a rule that cannot be made."""
    out = _Project()
    for name, value in found.items():
        if name in LOWER_IS_TIGHTER and _limit(name, value) <= _limit(name, getattr(base, name)):
            out.limits[name] = value
        elif name in MASKS:
            out.masks[name] = value
        elif name == "policy":
            off = {rule for rule, section in value.items() if _switches_off(section)}
            out.ignored += [f"policy.{rule if rule.isprintable() else ascii(rule)}" for rule in sorted(off)]
            out.policy = {rule: section for rule, section in value.items() if rule not in off}
        elif value != getattr(base, name):
            out.ignored.append(name)
    try:
        load_policy(out.policy)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return out


def _switches_off(section: object) -> bool:
    return section is False or (isinstance(section, Mapping) and section.get("on") is False)


def _limit(name: str, value: float | None) -> float:
    return float("inf") if value is None or (value == 0 and name.startswith("repeat_")) else value


@functools.cache
def _warn_once(line: str) -> None:
    sys.stderr.write(line + "\n")


def _project_file(environ: Mapping[str, str], folder: Path | None) -> Path | None:
    """The file of the current folder, where it is not one that the user has chosen or written himself."""
    path = (folder or Path.cwd()) / FILE
    own = config_folder(environ) / FILE
    if environ.get(f"{PREFIX}CONFIG") or not path.is_file() or (own.is_file() and own.samefile(path)):
        return None
    return path


def is_trusted(path: Path, content: bytes, environ: Mapping[str, str] | None = None) -> bool:
    """Whether the user trusts exactly this content at this place."""
    # The hash, not the name: a file that `git pull` has changed is a new file, which nobody has read.
    return _trusted(environ).get(str(path.resolve())) == hashlib.sha256(content).hexdigest()


def trust(path: Path, environ: Mapping[str, str] | None = None, *, yes: bool = True) -> bool:
    """Trusts the file as it is now, or not any more. False: nothing changed.

    Raises ConfigError for a file that cannot be read or whose settings do not fit.
    """
    known = _trusted(environ)
    before = dict(known)
    key = str(path.resolve())
    known.pop(key, None)
    if yes:
        content = _bytes(path)
        _settings_of(path, content)
        known[key] = hashlib.sha256(content).hexdigest()
    if known == before:
        return False
    file = state_folder(environ) / TRUSTED
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and then renamed: a crash leaves the old list or the new one.
        new = file.with_suffix(".new")
        new.touch(mode=0o600)
        new.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", "utf-8")
        new.replace(file)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be written: {error.strerror}") from error
    return True


def _trusted(environ: Mapping[str, str] | None) -> dict[str, str]:
    """What is trusted; a list that cannot be read trusts nothing."""
    try:
        data = json.loads((state_folder(environ) / TRUSTED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    # Whatever else the file became, nothing in it may grant trust.
    return {str(k): str(v) for k, v in data.items()} if isinstance(data, dict) else {}


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
    paths = [path for path in (config_folder(environ) / FILE, folder / FILE) if path.is_file()]
    # In the user's own settings folder both names are one file, and it is not a project's.
    return paths[:1] if len(paths) == 2 and paths[0].samefile(paths[1]) else paths


MAX_FILE = 1_000_000
"""Bytes of a settings file: a project's one is somebody else's."""


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            # Bounded reading instead of asking for the size first: devices and pipes have none.
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error}") from error
    if len(content) > MAX_FILE:
        raise ConfigError(f"{path}: more than {MAX_FILE} bytes (MAX_FILE)")
    return content


def _settings_of(path: Path, content: bytes) -> dict[str, Any]:
    """The settings of a file's content, each of its kind."""
    try:
        # "-sig": editors on Windows write a byte order mark, which TOML 1.0 does not know.
        data = tomllib.loads(content.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}") from error
    found: dict[str, Any] = {}
    for name, value in data.items():
        where = f"{path}: {name if name.isprintable() else ascii(name)}"
        found[name] = _checked(_known(name, where), value, where)
    return found


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


def _parsed(name: str, text: str, where: str) -> object:
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


def _json(text: str, where: str) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError(f"{where}: JSON is needed: {error}") from error


def _checked(name: str, value: object, where: str) -> object:
    """The value, if it fits the setting."""
    kind = _kind(name)
    if kind.endswith("?") and (value is None or value is False or (isinstance(value, str) and value.lower() in OFF)):
        return None
    return _CHECKS[kind.removesuffix("?")](value, where)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where}: text is needed, not {value!r}")
    return value


def _switch(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: true or false is needed, not {value!r}")
    return value


def _whole(least: int) -> Callable[[object, str], int]:
    def check(value: object, where: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ConfigError(f"{where}: a whole number of at least {least} is needed, not {value!r}")
        return value

    return check


def _seconds(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ConfigError(f"{where}: a number above 0 is needed, not {value!r}")
    return float(value)


def _table(value: object, where: str) -> dict[str, object]:
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
