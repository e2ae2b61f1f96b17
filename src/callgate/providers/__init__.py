"""Plug room: who answers a `Request`.

Law: a message ends in exactly one `Finish`. What fails before its first byte is raised (errors.py); what fails later is
the `Finish`, and no provider asks again: the run may, after `Retrying`, which makes the text before it void.
(tests/test_providers_limits.py::test_an_answer_that_broke_off_is_asked_for_again_by_the_run_only)

To add a provider: one file with a class that has the members of `Provider` and an `open(name, **options)` that makes
one; for a server that speaks the OpenAI API a row in openai.py is enough.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from callgate.errors import ConfigError
from callgate.providers._http import Stream as Stream
from callgate.providers._keyfile import keep_key as keep_key
from callgate.providers._keyfile import kept_keys as kept_keys
from callgate.providers._keyfile import keys_place as keys_place
from callgate.providers._recording import Recording as Recording
from callgate.providers._served import MAX_RECORD as MAX_RECORD
from callgate.providers._served import Served as Served
from callgate.providers._stores import Stored as Stored
from callgate.providers._stores import stored as stored
from callgate.types import Delta, ModelInfo, Request


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

    async def catalogue(self) -> list[ModelInfo]:
        """What the server has, each with what is known of it."""
        ...

    async def aclose(self) -> None:
        """Gives connections back. The provider may be used again; it then connects anew."""
        ...


def open(model: str | Provider, **options: Any) -> Provider:  # noqa: A001 - the room's verb: providers.open("local")
    """The provider of "local", "local:FILE.gguf", "local:ollama/NAME", "local:hf/OWNER/REPO", "ollama:NAME",
    "openai:NAME", "VENDOR:NAME" or "http://host:port/v1#NAME".

    An address may end in the path of its API: `/chat/completions`, `/responses` or `/messages` (Anthropic's).

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
        kind, chosen = _api_of(url)
        options = {**chosen, **options}
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


_PATHS: Mapping[str, tuple[str, dict[str, str]]] = {
    "/chat/completions": ("openai", {}),
    "/responses": ("openai", {"api": "responses"}),
    "/messages": ("anthropic", {}),
}
"""The paths of the APIs, each with the plug that speaks it and what that is told."""


def _api_of(url: str) -> tuple[str, dict[str, str]]:
    """The plug for an address, and its options; one that names no API speaks chat completions."""
    for path, (plug, options) in _PATHS.items():
        if url.rstrip("/").endswith(path):
            return plug, {"base_url": url.rstrip("/").removesuffix(path), **options}
    return "openai", {"base_url": url}


def loaded(info: ModelInfo, options: Mapping[str, Any]) -> ModelInfo:
    """The model as requests with these options find it: Ollama loads it with the context that `num_ctx` asks for."""
    asked = options.get("num_ctx") or options.get("context_length")
    if info.provider != "ollama" or isinstance(asked, bool) or not isinstance(asked, int):
        return info
    return replace(info, context_length=asked)


def secrets_of(provider: Provider) -> tuple[str, ...]:
    """The keys that a provider sends, as far as they are known: declared secrets of every run that it answers."""
    return tuple(getattr(provider, "secrets", ()))


def warm(provider: Provider) -> None:
    """Loads what the provider's first request needs; takes its time, in the caller's thread. Most need nothing."""
    if (load := getattr(provider, "warm", None)) is not None:
        load()


def activity(provider: Provider) -> str:
    """What the provider does before its first token, in words ("reading, 512 of 1,024 tokens"); "": it does not say."""
    return str(getattr(provider, "activity", ""))


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


@functools.cache
def plugs() -> tuple[str, ...]:
    """The providers there are, by file name."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("_")))
