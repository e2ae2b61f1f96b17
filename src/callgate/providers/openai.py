"""Servers that speak the chat completions API: one row a vendor, one algorithm for all.

One law: what differs between servers is data in `VENDORS`, never a branch.

To add a vendor: one row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from callgate import dialects
from callgate.errors import BadRequest, CallgateError, ConfigError, ModelMissing, ProviderError
from callgate.formats import openai as api
from callgate.providers._failures import with_available
from callgate.providers._http import Mouth
from callgate.providers._served import Served, network_of
from callgate.types import ModelInfo, Request

BOTH = frozenset({"tools", "schema"})
TOOLS = frozenset({"tools"})


@dataclass(slots=True, frozen=True)
class Vendor:
    """What a server of this API is like."""

    url: str
    key: str = ""
    """The environment variable with the key; "": it wants none."""
    url_variable: str = ""
    """The environment variable that moves `url`."""
    header: str = "Authorization"
    quirks: api.Quirks = api.DEFAULT
    abilities: frozenset[str] = BOTH


VENDORS: Mapping[str, Vendor] = {
    # hosted
    "openai": Vendor(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        quirks=api.Quirks(max_tokens="max_completion_tokens"),
    ),
    "azure": Vendor(
        "", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "api-key", api.Quirks(max_tokens="max_completion_tokens")
    ),
    "cerebras": Vendor("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "dashscope": Vendor("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "deepseek": Vendor(
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        quirks=api.Quirks(reasoning="reasoning_content", schema="json_object"),
        abilities=TOOLS,
    ),
    "fireworks": Vendor("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Vendor(
        "https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY", quirks=api.Quirks(tool_name=True)
    ),
    "groq": Vendor("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": Vendor("https://router.huggingface.co/v1", "HF_TOKEN"),
    "mistral": Vendor(
        "https://api.mistral.ai/v1", "MISTRAL_API_KEY", quirks=api.Quirks(usage=False, short_ids=True, tool_name=True)
    ),
    "moonshot": Vendor(
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        quirks=api.Quirks(reasoning="reasoning_content"),
        abilities=TOOLS,
    ),
    "nvidia": Vendor("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "openrouter": Vendor(
        "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", quirks=api.Quirks(reasoning="reasoning")
    ),
    "together": Vendor("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": Vendor("https://api.x.ai/v1", "XAI_API_KEY"),
    "zhipu": Vendor("https://open.bigmodel.cn/api/paas/v4", "ZHIPUAI_API_KEY", abilities=TOOLS),
    # on this machine
    "llama-server": Vendor("http://127.0.0.1:8080/v1", quirks=api.Quirks(reasoning="reasoning_content")),
    "lmstudio": Vendor("http://127.0.0.1:1234/v1"),
    "sglang": Vendor("http://127.0.0.1:30000/v1", quirks=api.Quirks(reasoning="reasoning_content")),
    "vllm": Vendor("http://127.0.0.1:8000/v1", quirks=api.Quirks(reasoning="reasoning_content")),
}
_UNKNOWN = Vendor("", "CALLGATE_API_KEY")
"""A server of which only the address is known."""


def open(  # noqa: A001 - the room's verb: providers.open("openai:gpt-…")
    name: str,
    *,
    vendor: str = "openai",
    base_url: str | None = None,
    key: str | Callable[[], str] | None = None,
    headers: Mapping[str, str] | None = None,
    abilities: frozenset[str] | set[str] | None = None,
    dialect: str | None = None,
    record: str | None = None,
    **options: Any,
) -> OpenAI:
    """A model of an OpenAI-compatible server. `abilities` and `dialect` say what cannot be found out."""
    row = VENDORS.get(vendor)
    if row is None:
        known = ", ".join(sorted({*VENDORS, "ollama", "local"}))
        raise ConfigError(
            f'model "{vendor}:{name}": no vendor {vendor!r}; there are {known};'
            ' any other server: "http://host:port/v1#MODEL"'
        )
    if base_url is not None and vendor == "openai":
        row, vendor = _row_of(base_url)
    url = base_url or os.environ.get(row.url_variable or "-") or row.url
    if not url:
        raise ConfigError(f"{vendor}: set {row.url_variable} or base_url to the address of your endpoint")
    if vendor == "azure" and "/openai" not in url:
        url = url.rstrip("/") + "/openai/v1"
    secret = key if key is not None else os.environ.get(row.key or "-", "")
    if row.key and not secret and row is not _UNKNOWN and base_url is None:
        raise ConfigError(f"{vendor}: no key; set the environment variable {row.key} (or key=)")
    network = network_of(options)
    if options:
        raise ConfigError(f"{vendor}: unknown options {', '.join(sorted(options))}")
    hint = f" (from {row.key})" if row.key and key is None and secret else "; give key= or set it in the environment"
    mouth = Mouth(
        url,
        name=vendor,
        headers=headers or {},
        key=secret,
        key_header=row.header,
        key_hint=hint,
        network=network,
    )
    return OpenAI(mouth, name, row, abilities=abilities, dialect=dialect, record=record)


def _row_of(url: str) -> tuple[Vendor, str]:
    """The row whose host this address has, and a name for the server."""
    parts = urlsplit(url)
    host = parts.hostname or "server"
    for name, row in VENDORS.items():
        if urlsplit(row.url).hostname == host and not row.url.startswith("http://127."):
            return row, name
    if host.endswith(".openai.azure.com"):
        return VENDORS["azure"], "azure"
    return _UNKNOWN, f"{host}:{parts.port}" if parts.port else host


class OpenAI(Served):
    """One model of a server of this API."""

    def __init__(
        self,
        mouth: Mouth,
        model: str,
        vendor: Vendor,
        *,
        abilities: frozenset[str] | set[str] | None = None,
        dialect: str | None = None,
        record: str | None = None,
    ) -> None:
        super().__init__(mouth, model, wire="openai", path="/chat/completions", record=record)
        self._vendor = vendor
        self._abilities = frozenset(abilities) if abilities is not None else None
        self._dialect = dialect
        self._info: ModelInfo | None = None

    def body(self, request: Request) -> dict[str, Any]:
        """The body of a request, with the vendor's quirks."""
        return api.build(request, self.model, self._vendor.quirks)

    async def prepare(self) -> None:
        """A server whose model was not named must have only one."""
        if self.model:
            return
        try:
            found = await self.models()
        except BadRequest:  # it has no list: let it answer as it is
            return
        if len(found) > 1:
            shown = self.mouth.shown
            raise ConfigError(f"{shown} has several models; write {shown}#NAME: {', '.join(found)}")
        self.model = found[0] if found else ""

    async def models(self) -> tuple[str, ...]:
        """The names of the models that the server has."""
        answer = await self.mouth.ask("GET", "/models")
        return tuple(str(e.get("id") or e.get("name")) for e in _entries(answer))

    async def refine(self, error: Exception) -> Exception:
        """A missing model: what is there; a missing path: what the address should look like."""
        if not isinstance(error, ModelMissing):
            return error
        try:
            available = await self.models()
        except ProviderError:
            if urlsplit(self.mouth.base_url).path in ("", "/"):
                text = f"{error}; base_url {self.mouth.shown} has no path: most servers want {self.mouth.shown}/v1"
                return BadRequest(text, provider=self.name, status=error.status)
            return error
        return with_available(error, available)

    async def info(self) -> ModelInfo:
        """What can be found out of the model. Nothing is asked where a vendor's row or `abilities` say it; another
        server is asked once, and not waited for."""
        if self._info is None:
            told = self._abilities is not None and self.model
            if told or (self._vendor.key and self._vendor is not _UNKNOWN):
                self._info = self._resolve(self.model, {}, {})
            else:
                self._info = await self._probe()
        return self._info or self._resolve(self.model, {}, {})

    async def _probe(self) -> ModelInfo | None:
        """None if the server is not there now: it is asked again next time."""
        try:
            props = await self._props()
            if not self.model:
                await self.prepare()
            listed: Mapping[str, Any] = {}
            if not props:
                found = _entries(await self.mouth.ask("GET", "/models", probe=True))
                listed = next((e for e in found if e.get("id") == self.model), {})
        except BadRequest:
            return self._resolve(self.model, {}, {})
        except CallgateError:
            return None
        return self._resolve(self.model, listed, props)

    async def catalogue(self) -> list[ModelInfo]:
        """What the server has, each with what is known of it."""
        answer = await self.mouth.ask("GET", "/models")
        props = await self._props()
        return [self._resolve(str(e.get("id") or e.get("name")), e, props) for e in _entries(answer)]

    async def _props(self) -> Mapping[str, Any]:
        """llama.cpp's server tells its chat template under /props, beside /v1; other servers have no such path."""
        if self._vendor is not _UNKNOWN and self._vendor is not VENDORS["llama-server"]:
            return {}
        try:
            answer = await self.mouth.ask("GET", "//props", probe=True)
        except ProviderError as error:
            if error.status is None:
                raise
            return {}
        return answer if isinstance(answer, Mapping) else {}

    def _resolve(self, model: str, listed: Mapping[str, Any], props: Mapping[str, Any]) -> ModelInfo:
        template = props.get("chat_template")
        template = template if isinstance(template, str) else None
        abilities = set(self._vendor.abilities)
        if template is not None and "tools" not in template:
            abilities.discard("tools")
        if self._abilities is not None:
            abilities = set(self._abilities)
        meta = listed.get("meta") if isinstance(listed.get("meta"), Mapping) else {}
        settings = props.get("default_generation_settings")
        context = (
            (settings.get("n_ctx") if isinstance(settings, Mapping) else None)
            or listed.get("max_model_len")
            or listed.get("context_length")
            or listed.get("context_window")
            or (meta or {}).get("n_ctx")
        )
        dialect = self._dialect or dialects.detect(chat_template=template, model_name=model)
        return ModelInfo(
            model,
            self.name,
            frozenset(abilities),
            template,
            dialect,
            context if isinstance(context, int) else None,
        )


def _entries(answer: Any) -> list[Mapping[str, Any]]:
    """The models in an answer to /models, whatever it wraps them in."""
    found = (answer.get("data") or answer.get("models")) if isinstance(answer, Mapping) else answer
    return (
        [e for e in found if isinstance(e, Mapping) and (e.get("id") or e.get("name"))]
        if isinstance(found, list)
        else []
    )
