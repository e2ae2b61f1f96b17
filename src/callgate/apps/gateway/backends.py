"""The servers behind the gateway: what each has, and which of them is asked.

Law: a request goes to the first backend that has its model.
(tests/test_gateway_backends.py::test_a_request_goes_to_the_first_that_has_the_model)
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from callgate import providers
from callgate.errors import CallgateError, ModelMissing
from callgate.providers import Provider
from callgate.types import EMPTY, ModelInfo

FRESH = 30.0
"""Seconds for which a list of models counts; servers load and drop models while we run."""
AGAIN = 1.0
"""Seconds after which it is asked again for a model that nobody has: clients with a wrong name ask often."""


def alias(model: str) -> str:
    """The other name of a model: Ollama's clients and servers say ":latest" or leave it out."""
    return model.removesuffix(":latest") if model.endswith(":latest") else f"{model}:latest"


class Waits(Protocol):
    """The settings that tell how long a backend is waited for."""

    @property
    def stalled(self) -> float:
        """Seconds of silence after which it is given up."""
        ...


def network(settings: Waits) -> dict[str, object]:
    """The options of every backend that is an HTTP server."""
    return {"timeout": {"first": settings.stalled, "idle": settings.stalled}}


class Backend:
    """One server. A model in its address ("…#MODEL", "ollama:NAME", "local") is the only one that it offers."""

    def __init__(self, address: str | Provider, options: Mapping[str, object] = EMPTY) -> None:
        self._options = {} if address == "local" else dict(options)  # no network is between us and it
        self._providers: dict[str, Provider] = {}
        self.listed: dict[str, ModelInfo] = {}
        self._asked = float("-inf")
        self._asking = asyncio.Lock()
        self.only: str | None = None
        """The one model that its address names; None: all that it has."""
        if not isinstance(address, str):
            self.address, self._server = f"{address.name}:{address.model}", address
            self.only = address.model
        else:
            named = address == "local" or "#" in address or ("://" not in address and ":" in address)
            self.address = _shown(address)
            open_ = providers.open if named else providers.server
            self._server = open_(address, **self._options)
            self.only = self._server.model if named else None
        self._base = address if isinstance(address, str) else ""

    def provider(self, model: str) -> Provider:
        """Who answers for this model, which it may know under its other name."""
        if model not in self.listed and alias(model) in self.listed:
            model = alias(model)
        if self.only is not None or not self._base:
            return self._server
        found = self._providers.get(model)
        if found is None:
            name = f"{self._base}#{model}" if "://" in self._base else f"{self._base}:{model}"
            found = self._providers[model] = providers.open(name, **self._options)
        return found

    async def models(self, *, older: float = FRESH) -> dict[str, ModelInfo]:
        """What it has, by name; asked again if the list is older than so many seconds. Raises what the server raises
        if there is no list at all."""
        loop = asyncio.get_running_loop()
        async with self._asking:
            if loop.time() - self._asked > older:
                found = [await self._server.info()] if self.only is not None else await self._server.catalogue()
                self.listed = {info.name: info for info in found}
                self._asked = loop.time()
        return self.listed

    async def aclose(self) -> None:
        """Gives its connections back."""
        for provider in (self._server, *self._providers.values()):
            await provider.aclose()


class Backends:
    """All of them, in the order in which they are asked."""

    def __init__(self, addresses: Sequence[str | Provider] = (), options: Mapping[str, object] = EMPTY) -> None:
        self.all = tuple(Backend(address, options) for address in addresses or ("local",))

    async def having(self, model: str) -> list[Backend]:
        """Those that have the model, the first choice first. Raises ModelMissing, or what the only failure was."""
        for older in (FRESH, AGAIN):
            found, failed = await self._look(model, older)
            if found:
                return found
        known = [name for backend in self.all for name in backend.listed]
        if failed and not known:
            raise failed[0]
        error = ModelMissing(f"no backend has the model {model[:200]!r}", status=404)
        error.available = tuple(dict.fromkeys(known))
        raise error

    async def _look(self, model: str, older: float) -> tuple[list[Backend], list[CallgateError]]:
        found: list[Backend] = []
        failed: list[CallgateError] = []
        for backend in self.all:
            try:
                if not model or {model, alias(model)} & {*await backend.models(older=older), backend.only}:
                    found.append(backend)
            except CallgateError as error:
                failed.append(error)
        return found, failed

    async def catalogue(self) -> list[tuple[Backend, ModelInfo]]:
        """Every model once, with the backend that is asked first; backends that do not answer have none."""
        out: dict[str, tuple[Backend, ModelInfo]] = {}
        for backend in self.all:
            try:
                models = await backend.models()
            except CallgateError:
                continue
            for name, info in models.items():
                out.setdefault(name, (backend, info))
        return list(out.values())

    async def ready(self) -> bool:
        """Whether any backend answers."""
        for backend in self.all:
            try:
                await backend.models()
            except CallgateError:
                continue
            return True
        return False

    async def aclose(self) -> None:
        """Gives all connections back."""
        for backend in self.all:
            await backend.aclose()


def _shown(address: str) -> str:
    """The address without a password in it."""
    if "://" not in address:
        return address
    parts = urlsplit(address)
    return address.replace(parts.netloc, parts.netloc.rpartition("@")[2], 1)
