"""The dialects there are: plugs found by their file's name, and the names that each is known by.

Law: that of the room (callgate/dialects/__init__.py). Its machinery finds dialects here and never imports the room
itself, so that no import goes in a circle.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

from callgate.dialects._spec import Dialect

_SEPARATORS: Final = str.maketrans("-. ", "___")


def plain_name(name: str) -> str:
    """A name as names are compared: in lower case, with "_" for "-", "." and blanks."""
    return name.strip().lower().translate(_SEPARATORS)


def _plugs() -> Iterator[ModuleType]:
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith("_"):
            yield import_module(f"{__package__}.{path.stem}")  # plug look-up


@cache
def by_name() -> dict[str, Dialect]:
    """Every dialect by its own name."""
    return {dialect.name: dialect for plug in _plugs() for dialect in plug.DIALECTS}


@cache
def by_alias() -> dict[str, Dialect]:
    """Dialects, and their variants, by the names of parsers and models."""
    variants = [variant for plug in _plugs() for variant in getattr(plug, "VARIANTS", ())]
    return {plain_name(alias): dialect for dialect in (*by_name().values(), *variants) for alias in dialect.aliases}


def names() -> tuple[str, ...]:
    """The names of all dialects, sorted."""
    return tuple(sorted(by_name()))


def all_dialects() -> list[Dialect]:
    """All dialects, by name."""
    return [by_name()[name] for name in names()]
