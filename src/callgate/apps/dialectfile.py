"""A dialect of one's own for a command: two tags, a Python file, or the description that a checkpoint carries.

Law: what is wrong with it is one line that says which option and what to do.
    (tests/test_dialects_own.py::test_what_is_wrong_with_a_dialect_file_is_one_line)
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from callgate.apps.toolfile import executed, read_text, split_place
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from callgate.dialects import Dialect

F = TypeVar("F", bound=Callable[..., Any])
OPTION = "--dialect-file "


def own(function: F) -> F:
    """Adds the options that name one: `dialect_file` and `tags`."""
    tags = click.option("--tags", nargs=2, metavar="START END", help="Calls are JSON between these two tags.")
    file = click.option(
        "--dialect-file",
        metavar="FILE",
        help="A dialect of your own: FILE.py[:NAME] with a Dialect, or the JSON of a checkpoint's response_template.",
    )
    return file(tags(function))


def dialect_of(tags: tuple[str, str] | None, place: str | None) -> Dialect | None:
    """The dialect that these options name; None: they name none. Raises ConfigError for what is no dialect."""
    if tags and place:
        raise ConfigError("--tags and --dialect-file: one or the other")
    if place:
        return _from_file(place)
    return _tagged(*tags) if tags else None


def _tagged(start: str, end: str) -> Dialect:
    from callgate.dialects import Dialect

    try:
        return Dialect.tagged(start, end)
    except ValueError as error:
        raise ConfigError("--tags: both need at least one character") from error


def _from_file(place: str) -> Dialect:
    file, name = split_place(place)
    return _described(place) if file.suffix != ".py" else _written(place, name)


def _written(place: str, name: str) -> Dialect:
    from callgate.dialects import Dialect

    file, _ = split_place(place)
    found = vars(executed(file, f"{OPTION}{file}"))
    if name:
        chosen = found.get(name)
        if not isinstance(chosen, Dialect):
            raise ConfigError(f"{OPTION}{place}: {file} has no dialect {name!r}")
        return chosen
    values = [*found.values(), *(one for value in found.values() if isinstance(value, tuple) for one in value)]
    dialects = list({one.name: one for one in values if isinstance(one, Dialect)}.values())
    if len(dialects) != 1:
        names = ", ".join(one.name for one in dialects) or "none"
        raise ConfigError(f"{OPTION}{place}: one dialect is needed, and it has {names}; name one: {OPTION}{file}:NAME")
    return dialects[0]


def _described(place: str) -> Dialect:
    """A `response_template`, alone or in a tokenizer's configuration."""
    from callgate.dialects import Dialect

    try:
        data = json.loads(read_text(place, OPTION.strip()))
        template = data.get("response_template", data) if isinstance(data, dict) else data
        return Dialect.from_response_template(template)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{OPTION}{place}: {error or 'not JSON'}") from error
