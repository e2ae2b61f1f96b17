"""Plug room: who answers a `Request`.

One law: a message ends in exactly one `Finish`. What fails before its first byte is raised (errors.py); what fails
later is the `Finish`, for what was already said cannot be unsaid, and is never asked for again.

To add a provider: one file with a class that has the members of `Provider` and an `open(name, **options)` that makes
one; for a server that speaks the OpenAI API a row in openai.py is enough.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from callgate.errors import ConfigError
from callgate.providers._recording import Recording as Recording
from callgate.types import Delta, ModelInfo, Request

if TYPE_CHECKING:
    from callgate.protocols._steps import Score, Scores


@runtime_checkable
class Provider(Protocol):
    """Who answers. Leaving the block of `stream` cancels the request and closes its connection."""

    name: str
    model: str

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[list[Delta]]]:
        """The deltas of one answer, in lists as they arrive."""
        ...

    async def info(self) -> ModelInfo:
        """What is known of the model; asked once and remembered."""
        ...

    async def score(self, request: Score) -> Scores:
        """Log-probabilities; only where `info().capabilities` has "logprobs"."""
        ...

    async def catalogue(self) -> list[ModelInfo]:
        """What the server has, each with what is known of it."""
        ...

    async def aclose(self) -> None:
        """Gives connections back. The provider may be used again; it then connects anew."""
        ...


def open(model: str | Provider, **options: Any) -> Provider:  # noqa: A001 - the room's verb: providers.open("local")
    """The provider of "local", "ollama:NAME", "openai:NAME", "VENDOR:NAME" or "http://host:port/v1#NAME".

    `options` are those of the provider: `key`, `base_url`, `timeout`, `headers`, … ; an unknown one is a `ConfigError`.
    """
    if not isinstance(model, str):
        if options:
            raise ConfigError(f"providers.open: {', '.join(options)}: a provider that exists takes no options")
        if isinstance(model, type) or not hasattr(model, "stream"):
            raise ConfigError(f"model: {model!r} is no provider and no name of a model; {_forms()}")
        return model
    kind, colon, name = model.partition(":")
    if kind in ("http", "https"):
        url, _, name = model.partition("#")
        kind, options = "openai", {"base_url": url, **options}
    elif kind == "local":
        kind = "llamacpp"
    elif kind in plugs() and kind != "replay":
        if not colon or not name:
            raise ConfigError(f'model {model!r}: a model\'s name must follow, as in "{kind}:NAME"')
    else:
        kind, options = "openai", {"vendor": kind, **options}
        if not colon or not name:
            raise ConfigError(f"model {model!r}: unknown; {_forms()}")
    plug = import_module(f"{__name__}.{kind}")
    return cast("Provider", plug.open(name, **options))


def server(name: str, **options: Any) -> Provider:
    """A provider of no model yet, for `catalogue`: "local", "ollama", a vendor's name or an address."""
    kind, colon, rest = name.partition(":")
    if kind in ("http", "https"):
        return open(name, **options)
    if colon:
        raise ConfigError(f"server {name!r}: write {kind!r} alone, without {rest!r}")
    if kind == "local":
        return open("local", **options)
    if kind in plugs() and kind not in ("replay", "llamacpp"):
        return cast("Provider", import_module(f"{__name__}.{kind}").open("", **options))
    return cast("Provider", import_module(f"{__name__}.openai").open("", vendor=kind, **options))


def _forms() -> str:
    return 'write "local", "ollama:NAME", "openai:NAME" (or another vendor), or "http://host:port/v1#NAME"'


def plugs() -> tuple[str, ...]:
    """The providers there are, by file name."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")))
