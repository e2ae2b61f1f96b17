"""Anthropic, and servers that speak its Messages API.

Law: what the server says of a model (`/v1/models/NAME`) decides how it is asked, never a list of names here.
(tests/test_providers_anthropic.py::test_what_a_model_can_do_is_asked_once)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from callgate.errors import CallgateError, ConfigError
from callgate.formats import Accepted
from callgate.formats import anthropic as api
from callgate.providers._http import HttpClient
from callgate.providers._keyfile import key_of
from callgate.providers._listed import Listed, name_of
from callgate.providers._served import network_of, refuse_unknown
from callgate.types import ModelInfo, Request

URL = "https://api.anthropic.com"
VERSION = "2026-10-21"
"""The version of the API whose shapes the format reads and writes: that of the official package, 2.14."""
MOST_TOKENS = 32_000
"""Of an answer whose length nobody limits. Models take up to 128,000, and what is reserved for the answer is not there
for the prompt."""


def open(  # noqa: A001 - the room's verb: providers.open("anthropic:claude-…")
    name: str,
    *,
    base_url: str | None = None,
    key: str | Callable[[], str] | None = None,
    headers: Mapping[str, str] | None = None,
    abilities: frozenset[str] | set[str] | None = None,
    dialect: str | None = None,
    cache: bool = True,
    record: str | None = None,
    **options: Any,
) -> Anthropic:
    """A model of Anthropic's, or of a server with its API at `base_url` (ANTHROPIC_BASE_URL). The key is that of
    ANTHROPIC_API_KEY. With `cache` the prefix of a conversation that stays the same is marked for the server's cache.
    """
    network = network_of(options)
    refuse_unknown("anthropic", options)
    url = (base_url or os.environ.get("ANTHROPIC_BASE_URL") or URL).rstrip("/")
    found_key = os.environ.get("ANTHROPIC_API_KEY", "") or (key_of("anthropic") if url == URL else "")
    secret = key if key is not None else found_key if base_url is None else key_of(url)
    if not secret and base_url is None:
        raise ConfigError("anthropic: no key; run `callgate keys set anthropic`, or set ANTHROPIC_API_KEY (or key=)")
    found = base_url is None and key is None
    client = HttpClient(
        f"{url.removesuffix('/v1')}/v1",  # the official client's address has no /v1, those of other servers have
        name="anthropic",
        headers={"anthropic-version": VERSION, **(headers or {})},
        key=secret,
        key_header="x-api-key",
        key_hint=" (from ANTHROPIC_API_KEY)" if found else "; give key= or set it in the environment",
        network=network,
    )
    stated = None if abilities is None else frozenset(abilities)
    return Anthropic(client, name, abilities=stated, dialect=dialect, cache=cache, record=record)


class Anthropic(Listed):
    """One model of a server of this API."""

    def __init__(
        self,
        client: HttpClient,
        model: str,
        *,
        abilities: frozenset[str] | None = None,
        dialect: str | None = None,
        cache: bool = True,
        record: str | None = None,
    ) -> None:
        super().__init__(client, model, wire="anthropic", path="/messages", record=record)
        self._abilities = abilities
        self._dialect = dialect
        self._cache = cache
        self._info: ModelInfo | None = None

    def accept(self, request: Request) -> Accepted:
        """The request as the API accepts it, with the length that the model can give where nobody sets one."""
        facts = self._info.extra if self._info is not None else {}
        options = dict(request.options)
        limited = "max_tokens" in options or "max_completion_tokens" in options
        if not limited and isinstance(most := facts.get("max_tokens"), int):
            options["max_tokens"] = min(most, MOST_TOKENS)
        if facts.get("adaptive") and options.get("think") is True:
            del options["think"]
            options["thinking"] = {"type": "adaptive"}  # newer models refuse a budget
        return api.accept(replace(request, options=options))

    def body(self, request: Request) -> dict[str, Any]:
        """The body of an accepted request."""
        return api.build(request, self.model, cache=self._cache)

    async def info(self) -> ModelInfo:
        """What the server says of the model: abilities, context, length of an answer. Asked once, not waited for."""
        if self._info is None:
            if self._abilities is not None and self.model:
                self._info = self._resolve(self.model, {})
            else:
                self._info = await self._probe()
        return self._info or self._resolve(self.model, {})

    async def _probe(self) -> ModelInfo | None:
        """None if the server is not there now: it is asked again next time."""
        try:
            await self.prepare()
            found = next((e for e in await self.entries(probe=True) if name_of(e) == self.model), None)
            if found is None:  # an alias is not in the list, and has an entry of its own
                entry = await self.client.ask("GET", f"/models/{self.model}", model=self.model, probe=True)
                found = entry if isinstance(entry, Mapping) else {}
        except CallgateError as error:
            return None if getattr(error, "status", None) is None else self._resolve(self.model, {})
        return self._resolve(self.model, found)

    async def catalogue(self) -> list[ModelInfo]:
        """What the server has, each with what is known of it."""
        return [self._resolve(name_of(entry), entry) for entry in await self.entries()]

    def _resolve(self, model: str, entry: Mapping[str, object]) -> ModelInfo:
        """A model by its entry; servers that say nothing of what it can do are taken to have tools, as the API does."""
        stated = entry.get("capabilities")
        has = {"tools": True, "schema": False, "thinking": False, "vision": False}
        facts: dict[str, object] = {}
        if isinstance(stated, Mapping):
            has |= {
                "schema": _supported(stated.get("structured_outputs")),
                "thinking": _supported(stated.get("thinking")),
                "vision": _supported(stated.get("image_input")),
            }
            thinking = stated.get("thinking")
            types = thinking.get("types") if isinstance(thinking, Mapping) else None
            facts["adaptive"] = isinstance(types, Mapping) and _supported(types.get("adaptive"))
            facts["vision"] = has["vision"]
        if isinstance(most := entry.get("max_tokens"), int) and most > 0:
            facts["max_tokens"] = most
        abilities = self._abilities if self._abilities is not None else frozenset(k for k, v in has.items() if v)
        context = entry.get("max_input_tokens")
        length = context if isinstance(context, int) else None
        return ModelInfo(model, self.name, abilities, None, self._dialect, length, facts)


def _supported(capability: object) -> bool:
    return isinstance(capability, Mapping) and capability.get("supported") is True
