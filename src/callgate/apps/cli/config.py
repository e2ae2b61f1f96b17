"""The settings in force here, and whether this folder's callgate.toml is trusted.

Law: what `show` prints is what the other commands use here; secrets in it are masked.
(tests/test_config_trust.py::test_the_command_shows_trusts_and_untrusts)
"""

from __future__ import annotations

import json
from pathlib import Path

import click

from callgate.apps.output import say
from callgate.errors import ConfigError


@click.group()
def command() -> None:
    """Settings: show those in force, trust this folder's callgate.toml."""


@command.command()
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
def show(as_json: bool) -> None:
    """The settings in force in this folder, and where each was set."""
    from callgate import config

    settings = config.load()
    rows: dict[str, dict[str, object]] = {}
    for name in config.NAMES:
        value = settings.masking.value(getattr(settings, name))
        rows[name] = {"value": value, "source": settings.sources.get(name, "default")}
    if settings.project_policy:
        rows["policy"]["added by the project"] = settings.project_policy
    if as_json:
        say(json.dumps(rows, default=list))
        return
    for name, row in rows.items():
        more = f" + {json.dumps(settings.project_policy)}" if name == "policy" and settings.project_policy else ""
        say(f"{name} = {json.dumps(row['value'], default=list)}{more}  ({row['source']})")


@command.command()
def trust() -> None:
    """Let this folder's callgate.toml set everything, as long as its content stays as it is now."""
    from callgate import config

    path = _file()
    changed = config.trust(path)
    say(f"{path}: {'trusted as it is now' if changed else 'was trusted already'}")


@command.command()
def untrust() -> None:
    """Take that back: the file may only tighten from now on."""
    from callgate import config

    path = Path.cwd() / config.FILE
    changed = config.trust(path, yes=False)
    say(f"{path}: {'no longer trusted' if changed else 'was not trusted'}")


def _file() -> Path:
    from callgate import config

    path = Path.cwd() / config.FILE
    if not path.is_file():
        raise ConfigError(f"there is no {config.FILE} in this folder")
    return path
