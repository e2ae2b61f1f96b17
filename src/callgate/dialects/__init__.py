"""How model families write reasoning and calls in text, and the one reader of all of them.

One law: the same text gives the same deltas however it was cut; nothing is lost, nothing invented.

To add a dialect: put it into the file of its family (or a new file with a `DIALECTS` tuple), as data in the words of
`_spec.py`, and its facts and cases into tests/conformance. Nothing else needs to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Final

from callgate.dialects._auto import auto_dialect, from_tail
from callgate.dialects._detect import detect as detect
from callgate.dialects._reader import Reader as Reader
from callgate.dialects._spec import Dialect as Dialect
from callgate.errors import UnknownDialect
from callgate.types import ToolSpec

_SEPARATORS: Final = str.maketrans("-. ", "___")


def _plain(name: str) -> str:
    """Names are compared in lower case, with "_" for "-", "." and blanks."""
    return name.strip().lower().translate(_SEPARATORS)


@cache
def _all() -> dict[str, Dialect]:
    found: dict[str, Dialect] = {}
    for module in iter_modules(__path__):
        if not module.name.startswith("_"):
            for dialect in import_module(f"{__name__}.{module.name}").DIALECTS:
                found[dialect.name] = dialect
    return found


@cache
def _aliases() -> dict[str, Dialect]:
    return {_plain(alias): dialect for dialect in (*_all().values(), *_variants()) for alias in dialect.aliases}


def _variants() -> list[Dialect]:
    modules = (module.name for module in iter_modules(__path__) if not module.name.startswith("_"))
    return [v for name in modules for v in getattr(import_module(f"{__name__}.{name}"), "VARIANTS", ())]


def names() -> tuple[str, ...]:
    """The names of all dialects, sorted."""
    return tuple(sorted(_all()))


def get(name: str) -> Dialect:
    """The dialect of that name, of a server's parser or a model, or "auto". Raises UnknownDialect."""
    if not isinstance(name, str):
        raise UnknownDialect(f"dialect: {type(name).__name__} is no name; give a name, a Dialect or None")
    plain = _plain(name)
    if plain == "auto":
        return auto_dialect()
    dialect = _all().get(plain) or _aliases().get(plain) or _all().get(detect(model_name=name) or "")
    if dialect is None:
        near = get_close_matches(plain, [*_all(), *_aliases()], n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; known: auto, {', '.join(names())}"
        raise UnknownDialect(f"dialect {name!r}: no such dialect{hint}")
    return dialect


def reader(dialect: str | Dialect, *, tools: Sequence[ToolSpec] = (), prompt_tail: str = "") -> Reader:
    """A machine that reads one message: `feed(text)` and `finish()` return deltas, never a `Finish`.

    `prompt_tail`: the end of the prompt, which may have begun the reasoning or a header. `"auto"` decides by what is
    seen.
    """
    if isinstance(dialect, str) and _plain(dialect) == "auto":
        dialect = from_tail(prompt_tail)
    return Reader(dialect if isinstance(dialect, Dialect) else get(dialect), tools, prompt_tail)
