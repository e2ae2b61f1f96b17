"""How model families write reasoning and calls in text, and the one reader of all of them.

Law: the same text gives the same deltas however it was cut; nothing is lost, nothing invented.
(tests/test_dialects_laws.py::test_noise_of_markers_is_read_the_same_for_every_cut)

To add a dialect: put it into the file of its family (or a new file with a `DIALECTS` tuple), as data in the words of
`_spec.py`, and its facts and cases into tests/conformance. Nothing else needs to change.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from callgate.dialects._auto import auto_dialect, from_tail
from callgate.dialects._catalogue import by_alias, by_name, plain_name
from callgate.dialects._catalogue import names as names
from callgate.dialects._detect import detect as detect
from callgate.dialects._reader import Ends as Ends
from callgate.dialects._reader import Reader as Reader
from callgate.dialects._spec import Calls as Calls
from callgate.dialects._spec import Channels as Channels
from callgate.dialects._spec import Dialect as Dialect
from callgate.dialects._spec import JsonArgs as JsonArgs
from callgate.dialects._spec import JsonItems as JsonItems
from callgate.dialects._spec import Literals as Literals
from callgate.dialects._spec import Params as Params
from callgate.dialects._spec import Raw as Raw
from callgate.dialects._spec import Region as Region
from callgate.errors import ConfigError, UnknownDialect
from callgate.types import ToolSpec


def get(name: str) -> Dialect:
    """The dialect of that name, of a server's parser or a model, or "auto". Raises UnknownDialect."""
    if not isinstance(name, str):
        raise UnknownDialect(f"dialect: {type(name).__name__} is no name; give a name, a Dialect or None")
    plain = plain_name(name)
    if plain == "auto":
        return auto_dialect()
    dialect = by_name().get(plain) or by_alias().get(plain) or by_name().get(detect(model_name=name) or "")
    if dialect is None:
        near = get_close_matches(plain, [*by_name(), *by_alias()], n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else f"; known: auto, {', '.join(names())}"
        raise UnknownDialect(f"dialect {name!r}: no such dialect{hint}")
    return dialect


def known(name: str) -> Dialect | None:
    """The dialect of exactly that name or alias, if there is one."""
    plain = plain_name(name)
    return by_name().get(plain) or by_alias().get(plain)


def reader(
    dialect: str | Dialect, *, tools: Sequence[ToolSpec] = (), prompt_tail: str = "", ends: Ends | None = None
) -> Reader:
    """A machine that reads one message: `feed(text)` and `finish()` return deltas, never a `Finish`.

    `prompt_tail`: the end of the prompt, which may have begun the reasoning or a header. `"auto"` decides by what is
    seen. `ends` gives each finished call the form in which it goes out (its id).
    """
    if isinstance(dialect, str) and plain_name(dialect) == "auto":
        dialect = from_tail(prompt_tail)
    return Reader(dialect if isinstance(dialect, Dialect) else get(dialect), tools, prompt_tail, ends)


def thinking_tail(dialect: str | Dialect) -> str:
    """The end of a prompt that has begun the reasoning. Raises ConfigError for a dialect that has none."""
    plain = isinstance(dialect, str) and plain_name(dialect) == "auto"
    spec = dialect if isinstance(dialect, Dialect) else get(dialect)
    if plain:
        return "<think>"
    if spec.channels is not None and spec.channels.end:
        return f"{spec.channels.tail[0]}<|channel|>analysis{spec.channels.body[0]}"
    openers = [region.open[0] for region in spec.regions if region.kind in ("reasoning", "sealed")]
    if not openers:
        raise ConfigError(f"dialect {spec.name}: it has no reasoning, so a text cannot begin inside it")
    return openers[0]
