"""Ollama, by its own API.

Law: what the server says of a model (`/api/show`) decides how it is asked, never a list of names here.
(tests/test_providers_ollama.py::test_what_a_model_can_do_is_asked_once)
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from callgate import dialects
from callgate.errors import CallgateError, ModelMissing, ProviderError
from callgate.formats import Accepted
from callgate.formats import ollama as api
from callgate.providers._failures import with_available
from callgate.providers._http import HttpClient
from callgate.providers._served import Served, network_of, refuse_unknown
from callgate.types import Finish, ModelInfo, Request

PORT = 11434
CUT_TOKENS = 1000
"""A shorter count says nothing: a prompt that is cached may be counted by what was new in it."""
MOST_CHARACTERS_A_TOKEN = 10
"""No text has more in the mean, except of blanks."""


def open(  # noqa: A001 - the room's verb: providers.open("ollama:qwen3")
    name: str,
    *,
    base_url: str | None = None,
    key: str | Callable[[], str] | None = None,
    headers: Mapping[str, str] | None = None,
    dialect: str | None = None,
    record: str | None = None,
    num_ctx: int | None = None,
    **options: Any,
) -> Ollama:
    """A model of an Ollama server: OLLAMA_HOST, else this machine. A key is needed by Ollama's cloud only. `num_ctx` is
    the context that is asked for with every request; without it the server's own counts."""
    url = base_url or address(os.environ.get("OLLAMA_HOST", ""))
    secret = key if key is not None else os.environ.get("OLLAMA_API_KEY", "")
    network = network_of(options)
    refuse_unknown("ollama", options)
    client = HttpClient(url, name="ollama", headers=headers or {}, key=secret, network=network)
    return Ollama(client, name, dialect=dialect, record=record, num_ctx=num_ctx)


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

    def __init__(
        self,
        client: HttpClient,
        model: str,
        *,
        dialect: str | None = None,
        record: str | None = None,
        num_ctx: int | None = None,
    ) -> None:
        super().__init__(client, model, wire="ollama", path="/api/chat", record=record)
        self._num_ctx = num_ctx
        self._dialect = dialect
        self._info: ModelInfo | None = None

    def accept(self, request: Request) -> Accepted:
        """The request as Ollama accepts it, with the context that was asked for."""
        options = dict(request.options)
        notes: tuple[str, ...] = ()
        if self._num_ctx is not None and not {"num_ctx", "context_length"} & options.keys():
            options["num_ctx"] = self._num_ctx
        cannot = self._info is not None and self._info.extra.get("thinking") is False
        if cannot and (asked := {"think", "reasoning_effort"} & options.keys()):
            options = {key: value for key, value in options.items() if key not in asked}
            notes = (f"sent without {', '.join(sorted(asked))}: {self.model} cannot think",)
        sent = api.accept(replace(request, options=options))
        return replace(sent, notes=(*sent.notes, *notes))

    def doubts(self, request: Request, finish: Finish) -> tuple[str, ...]:
        """Ollama before 0.12 cuts a prompt to its context in silence; the number of tokens that it read shows it."""
        read = (finish.usage or {}).get("input", 0)
        wrote = sum(len(m.text) + len(m.reasoning) for m in request.messages)
        if read < CUT_TOKENS or read * MOST_CHARACTERS_A_TOKEN > wrote:
            return ()
        return (
            f"Ollama read {read} tokens of a prompt of {wrote} characters: it was cut to the server's context; set "
            "num_ctx (options={'num_ctx': …}) or OLLAMA_CONTEXT_LENGTH higher",
        )

    async def models(self) -> tuple[str, ...]:
        """The names of the models that are pulled (`/api/tags`)."""
        answer = await self.client.ask("GET", "/api/tags")
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
                shown = await self.client.ask("POST", "/api/show", {"model": self.model}, model=self.model, probe=True)
            except CallgateError:  # the request itself will tell; ask again next time
                return ModelInfo(self.model, self.name, frozenset({"tools", "schema"}), None, self._dialect)
            self._info = self._resolve(self.model, shown if isinstance(shown, Mapping) else {})
        if "context" not in self._info.extra and (running := await self._running()):
            extra = {**self._info.extra, "context": "running"}
            self._info = replace(self._info, context_length=running, extra=extra)
        return self._info

    async def _running(self) -> int | None:
        """The context with which the model is loaded now (`/api/ps`); None: it is not, or an old server."""
        try:
            answer = await self.client.ask("GET", "/api/ps", probe=True)
        except CallgateError:
            return None
        entries = answer.get("models") if isinstance(answer, Mapping) else None
        for entry in entries if isinstance(entries, list) else ():
            name = entry.get("model") or entry.get("name") if isinstance(entry, Mapping) else None
            if name in (self.model, f"{self.model}:latest") and isinstance(found := entry.get("context_length"), int):
                return found
        return None

    async def catalogue(self) -> list[ModelInfo]:
        """What is pulled, each with what `/api/show` says of it."""
        limit = asyncio.Semaphore(8)

        async def one(name: str) -> ModelInfo:
            async with limit:
                shown = await self.client.ask("POST", "/api/show", {"model": name}, model=name)
            return self._resolve(name, shown if isinstance(shown, Mapping) else {})

        return list(await asyncio.gather(*(one(name) for name in await self.models())))

    def _resolve(self, model: str, shown: Mapping[str, Any]) -> ModelInfo:
        stated = shown.get("capabilities")
        abilities = {"schema"}
        if isinstance(stated, list):
            abilities |= {word for word in stated if word in ("tools", "thinking", "vision")}
        elif ".Tools" in str(shown.get("template")):  # servers before 0.6 list no capabilities
            abilities.add("tools")
        facts = shown.get("model_info")
        facts = facts if isinstance(facts, Mapping) else {}
        most = facts.get(f"{facts.get('general.architecture')}.context_length")
        context = self._num_ctx or _set_context(shown)
        extra: dict[str, Any] = {"context": "num_ctx"} if context is not None else {}
        if isinstance(stated, list):
            extra |= {"vision": "vision" in stated, "thinking": "thinking" in stated}
        extra["parameters"] = facts.get("general.parameter_count")
        template = facts.get("tokenizer.chat_template") or shown.get("template")
        template = template if isinstance(template, str) and template else None
        dialect = self._dialect or dialects.detect(chat_template=template, model_name=model)
        return ModelInfo(
            model,
            self.name,
            frozenset(abilities),
            template,
            dialect,
            context or (most if isinstance(most, int) else None),
            extra,
        )


def _set_context(shown: Mapping[str, Any]) -> int | None:
    """The context that the Modelfile sets (`PARAMETER num_ctx`)."""
    found = re.search(r"^num_ctx\s+(\d+)", str(shown.get("parameters") or ""), re.MULTILINE)
    return int(found[1]) if found else None
