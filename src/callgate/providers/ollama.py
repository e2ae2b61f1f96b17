"""Ollama, by its own API.

One law: what the server says of a model (`/api/show`) decides how it is asked, never a list of names here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from callgate import dialects
from callgate.errors import CallgateError, ConfigError, ModelMissing, ProviderError
from callgate.providers._failures import with_available
from callgate.providers._http import Mouth
from callgate.providers._served import Served, network_of
from callgate.types import ModelInfo

PORT = 11434


def open(  # noqa: A001 - the room's verb: providers.open("ollama:qwen3")
    name: str,
    *,
    base_url: str | None = None,
    key: str | Callable[[], str] | None = None,
    headers: Mapping[str, str] | None = None,
    dialect: str | None = None,
    record: str | None = None,
    **options: Any,
) -> Ollama:
    """A model of an Ollama server: OLLAMA_HOST, else this machine. A key is needed by Ollama's cloud only."""
    url = base_url or address(os.environ.get("OLLAMA_HOST", ""))
    secret = key if key is not None else os.environ.get("OLLAMA_API_KEY", "")
    network = network_of(options)
    if options:
        raise ConfigError(f"ollama: unknown options {', '.join(sorted(options))}")
    mouth = Mouth(url, name="ollama", headers=headers or {}, key=secret, network=network)
    return Ollama(mouth, name, dialect=dialect, record=record)


def address(host: str) -> str:
    """The address that OLLAMA_HOST means: scheme, host and port may each be left out."""
    host = host.strip().strip("\"'")
    if not host:
        return f"http://127.0.0.1:{PORT}"
    if "://" not in host:
        host = f"http://{host}"
    parts = urlsplit(host)
    name = parts.hostname or "127.0.0.1"
    name = "127.0.0.1" if name in ("0.0.0.0", "::") else f"[{name}]" if ":" in name else name  # noqa: S104 - a server's
    port = parts.port or {"https": 443}.get(parts.scheme, PORT)
    return f"{parts.scheme}://{name}:{port}{parts.path.rstrip('/')}"


class Ollama(Served):
    """One model of an Ollama server."""

    def __init__(self, mouth: Mouth, model: str, *, dialect: str | None = None, record: str | None = None) -> None:
        super().__init__(mouth, model, wire="ollama", path="/api/chat", record=record)
        self._dialect = dialect
        self._info: ModelInfo | None = None

    async def models(self) -> tuple[str, ...]:
        """The names of the models that are pulled (`/api/tags`)."""
        answer = await self.mouth.ask("GET", "/api/tags")
        entries = answer.get("models") if isinstance(answer, Mapping) else None
        found = [e for e in entries if isinstance(e, Mapping)] if isinstance(entries, list) else []
        return tuple(str(name) for e in found if (name := e.get("model") or e.get("name")))

    async def refine(self, error: Exception) -> Exception:
        """A missing model: what is there, and how to get it."""
        if not isinstance(error, ModelMissing):
            return error
        try:
            available = await self.models()
        except ProviderError:
            return error
        hint = f"{error}; `ollama pull {self.model}` fetches it"
        return with_available(ModelMissing(hint, provider=self.name, status=error.status), available)

    async def info(self) -> ModelInfo:
        """What `/api/show` says: abilities, template, context; asked once."""
        if self._info is None:
            try:
                shown = await self.mouth.ask("POST", "/api/show", {"model": self.model}, model=self.model, probe=True)
            except CallgateError:  # the request itself will tell; ask again next time
                return ModelInfo(self.model, self.name, frozenset({"tools", "schema"}), None, self._dialect)
            self._info = self._resolve(self.model, shown if isinstance(shown, Mapping) else {})
        return self._info

    async def catalogue(self) -> list[ModelInfo]:
        """What is pulled, each with what `/api/show` says of it."""
        limit = asyncio.Semaphore(8)

        async def one(name: str) -> ModelInfo:
            async with limit:
                shown = await self.mouth.ask("POST", "/api/show", {"model": name}, model=name)
            return self._resolve(name, shown if isinstance(shown, Mapping) else {})

        return list(await asyncio.gather(*(one(name) for name in await self.models())))

    def _resolve(self, model: str, shown: Mapping[str, Any]) -> ModelInfo:
        said = shown.get("capabilities")
        abilities = {"schema"}
        if isinstance(said, list):
            abilities |= {word for word in said if word in ("tools", "thinking", "vision")}
        elif ".Tools" in str(shown.get("template")):  # servers before 0.6 list no capabilities
            abilities.add("tools")
        facts = shown.get("model_info")
        facts = facts if isinstance(facts, Mapping) else {}
        context = facts.get(f"{facts.get('general.architecture')}.context_length")
        template = facts.get("tokenizer.chat_template") or shown.get("template")
        template = template if isinstance(template, str) and template else None
        dialect = self._dialect or dialects.detect(chat_template=template, model_name=model)
        return ModelInfo(
            model,
            self.name,
            frozenset(abilities),
            template,
            dialect,
            context if isinstance(context, int) else None,
            {"vision": "vision" in said} if isinstance(said, list) else {},
        )
