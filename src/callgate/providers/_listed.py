"""Providers whose server has a list of its models, in which one that was not named, or is missing, is looked up.

Law: whoever names a model that is not there is told which are.
(tests/test_providers_http.py::test_a_missing_model_lists_what_is_there)
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from callgate.errors import BadRequest, ConfigError, ModelMissing, ProviderError
from callgate.providers._failures import with_available
from callgate.providers._served import Served


class Listed(Served):
    """One model of a server with a list of models at `/models`."""

    async def prepare(self) -> None:
        """A server whose model was not named must have only one."""
        if self.model:
            return
        try:
            found = await self.models()
        except BadRequest:  # it has no list: let it answer as it is
            return
        if len(found) > 1:
            shown = self.client.shown
            raise ConfigError(f"{shown} has several models; write {shown}#NAME: {', '.join(found)}")
        self.model = found[0] if found else ""

    async def models(self) -> tuple[str, ...]:
        """The names of the models that the server has."""
        return tuple(name_of(entry) for entry in await self.entries())

    async def entries(self, *, probe: bool = False) -> list[Mapping[str, object]]:
        """What the server's list says of each model; a probe is for what is nice to know."""
        return entries_of(await self.client.ask("GET", "/models", probe=probe))

    async def refine(self, error: Exception) -> Exception:
        """A missing model: what is there; a missing path: what the address should look like."""
        if not isinstance(error, ModelMissing):
            return error
        try:
            available = await self.models()
        except ProviderError:
            if urlsplit(self.client.base_url).path in ("", "/"):
                text = f"{error}; base_url {self.client.shown} has no path: most servers want {self.client.shown}/v1"
                return BadRequest(text, provider=self.name, status=error.status)
            return error
        return with_available(error, available)


def name_of(entry: Mapping[str, object]) -> str:
    """The name of a model in a list."""
    return str(entry.get("id") or entry.get("name"))


def entries_of(answer: object) -> list[Mapping[str, object]]:
    """The models in an answer to /models, whatever it wraps them in."""
    found = (answer.get("data") or answer.get("models")) if isinstance(answer, Mapping) else answer
    listed = found if isinstance(found, list) else []
    return [e for e in listed if isinstance(e, Mapping) and (e.get("id") or e.get("name"))]
