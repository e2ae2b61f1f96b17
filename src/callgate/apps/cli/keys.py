"""Keys of hosted models: keep them in a file that only you can read, list whose there are, remove them.

Law: a key is never an argument of a command line, which others on the machine can see, and never printed.
    (tests/test_keyfile.py::test_a_key_is_never_printed_and_never_an_argument)
"""

from __future__ import annotations

import sys

import click

from callgate.apps import output
from callgate.errors import ConfigError

_BARE = 200
"""Characters of a key at most; real ones have up to 180. A file that was piped in by mistake is refused."""


@click.group()
def command() -> None:
    """Keys of hosted models, in a file that only you can read."""


@command.command("set")
@click.argument("name")
def set_(name: str) -> None:
    """Keep the key for NAME: a vendor ("openai", "groq", …) or a server's address ("http://host:8000/v1").

    It is typed without being shown, or read from stdin. The environment variable of a vendor goes before it.
    """
    from callgate import providers

    _check(name)
    key = (_typed(name) if sys.stdin.isatty() else sys.stdin.readline()).strip()
    if not key or len(key) > _BARE or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(f"the key of {name}: one word of printable ASCII is needed, up to {_BARE} characters")
    providers.keep_key(name, key)
    output.say(f"the key of {name} is kept in {providers.keys_place()}", err=True)


@command.command("list")
def list_() -> None:
    """Whose keys there are: kept here, or in environment variables. No key is shown."""
    import os

    from callgate import providers

    for name in sorted(providers.kept_keys()):
        output.say(f"{output.name(name)}  kept in {providers.keys_place()}")
    for name, variable in _variables().items():
        if os.environ.get(variable):
            output.say(f"{name}  from {variable}")


@command.command()
@click.argument("name")
def remove(name: str) -> None:
    """Forget the key for NAME."""
    from callgate import providers

    if not providers.keep_key(name, None):
        kept = ", ".join(sorted(providers.kept_keys())) or "none"
        raise ConfigError(f"{name}: no key is kept for it; there are keys for: {kept}")
    output.say(f"the key of {name} is forgotten", err=True)


def _check(name: str) -> None:
    """Raises ConfigError for what wants no key."""
    known = _variables()
    if name not in known and not name.startswith(("http://", "https://")):
        raise ConfigError(f"{name}: no vendor that wants a key; there are {', '.join(known)}, or give an address")


def _variables() -> dict[str, str]:
    """Vendor -> the environment variable of its key. A vendor's further API has the same key and is not listed."""
    from callgate.providers.openai import VENDORS

    rows = {name: row.key for name, row in VENDORS.items() if row.key and not name.endswith("-responses")}
    return dict(sorted({**rows, "anthropic": "ANTHROPIC_API_KEY"}.items()))


def _typed(name: str) -> str:
    key: str = click.prompt(f"key of {name}", hide_input=True, err=True)
    return key
