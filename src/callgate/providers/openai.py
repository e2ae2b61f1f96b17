"""Servers that speak the chat completions API: one row a vendor, one algorithm for all.

Law: what differs between servers is data in `VENDORS`, never a branch.
(tests/test_providers_rows.py::test_what_each_vendor_is_sent)

To add a vendor: one row.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from callgate import dialects
from callgate.errors import BadRequest, CallgateError, ConfigError, ProviderError
from callgate.formats import Accepted, responses
from callgate.formats import openai as api
from callgate.providers._http import HttpClient
from callgate.providers._keyfile import key_of
from callgate.providers._listed import Listed, name_of
from callgate.providers._served import network_of, refuse_unknown
from callgate.types import ModelInfo, Request

MAX_TOOLS = 128
"""OpenAI: "Invalid 'tools': array too long. Expected an array with maximum length 128"; its imitators took it over."""
HOSTED = api.Quirks(max_tools=MAX_TOOLS)
LOCAL = api.Quirks(as_it_came=True, merge=True, schemas=api.LLAMA)
"""Servers that put every message through a model's chat template and schemas through a grammar of llama.cpp's kind."""
OPENAI = replace(HOSTED, max_tokens="max_completion_tokens", call_fields=False)
OLLAMA = "library"
"""Who owns each model in Ollama's list under /v1."""
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
    quirks: api.Quirks = HOSTED
    abilities: frozenset[str] = BOTH
    api: str = "openai"
    """The format of the API that it speaks: chat completions ("openai") or "responses"."""
    known: bool = True
    """False: it is only an address, and is asked what it can do."""


VENDORS: Mapping[str, Vendor] = {
    # hosted
    "openai": Vendor(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        quirks=OPENAI,
    ),
    "azure": Vendor("", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "api-key", OPENAI),
    "cerebras": Vendor("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "dashscope": Vendor("https://dashscope-intl.aliyuncs.com/compatible-mode/v1", "DASHSCOPE_API_KEY"),
    "deepseek": Vendor(
        "https://api.deepseek.com/v1",
        "DEEPSEEK_API_KEY",
        quirks=replace(HOSTED, reasoning="reasoning_content", schema="json_object"),
        abilities=TOOLS,
    ),
    "fireworks": Vendor("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Vendor(
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        quirks=replace(HOSTED, tool_name=True, schemas=api.GEMINI),
    ),
    "groq": Vendor("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": Vendor("https://router.huggingface.co/v1", "HF_TOKEN"),
    "mistral": Vendor(
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        # errors of the API: "Tool call id was … but must be a-z, A-Z, 0-9, with a length of 9", "Unexpected role 'user'
        # after role 'tool'", "extra_forbidden"; mistral_common's validator of requests has the same rules
        quirks=replace(HOSTED, usage=False, short_ids=True, tool_name=True, merge=True, bridge=True, call_fields=False),
    ),
    "moonshot": Vendor(
        "https://api.moonshot.ai/v1",
        "MOONSHOT_API_KEY",
        quirks=replace(HOSTED, reasoning="reasoning_content"),
        abilities=TOOLS,
    ),
    "nvidia": Vendor("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "openrouter": Vendor(
        # openrouter.ai/docs: reasoning_details are passed back unmodified, else `reasoning`
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        quirks=replace(HOSTED, reasoning="reasoning", as_it_came=True),
    ),
    "together": Vendor("https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "xai": Vendor("https://api.x.ai/v1", "XAI_API_KEY"),
    "zhipu": Vendor("https://open.bigmodel.cn/api/paas/v4", "ZHIPUAI_API_KEY", abilities=TOOLS),
    # hosted, by the Responses API
    "openai-responses": Vendor("https://api.openai.com/v1", "OPENAI_API_KEY", "OPENAI_BASE_URL", api="responses"),
    "azure-responses": Vendor("", "AZURE_OPENAI_API_KEY", "AZURE_OPENAI_ENDPOINT", "api-key", api="responses"),
    "groq-responses": Vendor("https://api.groq.com/openai/v1", "GROQ_API_KEY", api="responses"),
    "openrouter-responses": Vendor("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY", api="responses"),
    "xai-responses": Vendor("https://api.x.ai/v1", "XAI_API_KEY", api="responses"),
    # on this machine
    "llama-server": Vendor("http://127.0.0.1:8080/v1", quirks=replace(LOCAL, reasoning="reasoning_content")),
    "lmstudio": Vendor("http://127.0.0.1:1234/v1", quirks=LOCAL),
    "sglang": Vendor("http://127.0.0.1:30000/v1", quirks=replace(LOCAL, reasoning="reasoning_content")),
    "vllm": Vendor("http://127.0.0.1:8000/v1", quirks=replace(LOCAL, reasoning="reasoning_content")),
}
_UNKNOWN = Vendor("", "CALLGATE_API_KEY", quirks=LOCAL, known=False)
"""A server of which only the address is known."""


def open(  # noqa: A001 - the room's verb: providers.open("openai:gpt-…")
    name: str,
    *,
    vendor: str = "openai",
    api: str = "openai",
    base_url: str | None = None,
    key: str | Callable[[], str] | None = None,
    headers: Mapping[str, str] | None = None,
    abilities: frozenset[str] | set[str] | None = None,
    dialect: str | None = None,
    record: str | None = None,
    **options: Any,
) -> OpenAI:
    """A model of an OpenAI-compatible server. `abilities` and `dialect` say what cannot be found out; `api` is the
    format that an address of no known vendor speaks, "openai" (chat completions) or "responses"."""
    row, vendor = _row(vendor, name, base_url, api)
    url = _url(row, vendor, base_url)
    secret = key if key is not None else os.environ.get(row.key or "-", "") or _kept(vendor, row, url)
    if row.key and not secret and row.known and base_url is None:
        raise ConfigError(
            f"{vendor}: no key; run `callgate keys set {vendor.removesuffix('-responses')}`, or set the environment "
            f"variable {row.key} (or key=)"
        )
    network = network_of(options)
    refuse_unknown(vendor, options)
    hint = f" (from {row.key})" if row.key and key is None and secret else "; give key= or set it in the environment"
    client = HttpClient(
        url,
        name=vendor,
        headers=headers or {},
        key=secret,
        key_header=row.header,
        key_hint=hint,
        network=network,
    )
    return _APIS[row.api](client, name, row, abilities=abilities, dialect=dialect, record=record)


def _row(vendor: str, name: str, base_url: str | None, api: str) -> tuple[Vendor, str]:
    """The row of a vendor, and its name; an address alone is looked up among the hosts."""
    row = VENDORS.get(vendor)
    if row is None:
        known = ", ".join(sorted({*VENDORS, "ollama", "local"}))
        raise ConfigError(
            f'model "{vendor}:{name}": no vendor {vendor!r}; there are {known};'
            ' any other server: "http://host:port/v1#MODEL"'
        )
    if base_url is None or vendor != "openai":
        return row, vendor
    row, vendor = _row_of(base_url)
    return replace(row, api=api), vendor


def _url(row: Vendor, vendor: str, base_url: str | None) -> str:
    url = base_url or os.environ.get(row.url_variable or "-") or row.url
    if not url:
        raise ConfigError(f"{vendor}: set {row.url_variable} or base_url to the address of your endpoint")
    moved = row.url_variable == "AZURE_OPENAI_ENDPOINT" and "/openai" not in url
    return url.rstrip("/") + "/openai/v1" if moved else url


def _kept(vendor: str, row: Vendor, url: str) -> str:
    """The key in the user's file. One that is kept for a vendor goes to the vendor's own address only: a variable that
    moves the address, or a settings file, may be somebody else's."""
    own = vendor.removesuffix("-responses")  # another API of the same vendor, under the same key
    if row.url == url or own == "azure":  # an endpoint of Azure is its owner's, and has no address of its own here
        return key_of(own) if row.key else ""
    return key_of(url)


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


class OpenAI(Listed):
    """One model of a server of this API."""

    path = "/chat/completions"

    def __init__(
        self,
        client: HttpClient,
        model: str,
        vendor: Vendor,
        *,
        abilities: frozenset[str] | set[str] | None = None,
        dialect: str | None = None,
        record: str | None = None,
    ) -> None:
        super().__init__(client, model, wire=vendor.api, path=self.path, record=record)
        self._vendor = vendor
        self._abilities = frozenset(abilities) if abilities is not None else None
        self._dialect = dialect
        self._info: ModelInfo | None = None

    def accept(self, request: Request) -> Accepted:
        """The request as this vendor accepts it."""
        return api.accept(request, self._vendor.quirks)

    def body(self, request: Request) -> dict[str, Any]:
        """The body of an accepted request, with the vendor's quirks."""
        return api.render(request, self.model, self._vendor.quirks)

    async def info(self) -> ModelInfo:
        """What can be found out of the model. Nothing is asked where a vendor's row or `abilities` say it; another
        server is asked once, and not waited for."""
        if self._info is None:
            stated = self._abilities is not None and self.model
            if stated or (self._vendor.key and self._vendor.known):
                self._info = self._resolve(self.model, {}, {})
            else:
                self._info = await self._probe()
        return self._info or self._resolve(self.model, {}, {})

    async def _probe(self) -> ModelInfo | None:
        """None if the server is not there now: it is asked again next time."""
        props: Mapping[str, Any] = {}
        try:
            props = await self._props()
            if not self.model:
                await self.prepare()
            found = await self.entries(probe=True)  # llama-server: the size, too
            listed = next((e for e in found if e.get("id") == self.model), {})
            if not listed and len(found) == 1 and props:
                listed = found[0]
            if listed.get("owned_by") == OLLAMA:
                return await self._shown(listed)
        except BadRequest:
            return self._resolve(self.model, {}, props)
        except CallgateError:
            return None
        return self._resolve(self.model, listed, props)

    async def _shown(self, listed: Mapping[str, Any]) -> ModelInfo:
        """Ollama behind /v1 says beside it what its models can do."""
        info = self._resolve(self.model, listed, {})
        shown = await self.client.ask("POST", "//api/show", {"model": self.model}, probe=True)
        stated = shown.get("capabilities") if isinstance(shown, Mapping) else None
        if self._abilities is not None or not isinstance(stated, list):
            return info
        facts = shown.get("model_info")
        size = facts.get("general.parameter_count") if isinstance(facts, Mapping) else None
        abilities = {"schema", *(word for word in stated if word in ("tools", "thinking", "vision"))}
        extra = {**info.extra, "vision": "vision" in stated, **({"parameters": size} if isinstance(size, int) else {})}
        return replace(info, capabilities=frozenset(abilities), extra=extra)

    async def catalogue(self) -> list[ModelInfo]:
        """What the server has, each with what is known of it."""
        found = await self.entries()
        props = await self._props()
        return [self._resolve(name_of(entry), entry, props) for entry in found]

    async def _props(self) -> Mapping[str, Any]:
        """llama.cpp's server tells its chat template under /props, beside /v1; other servers have no such path."""
        if self._vendor.known and self._vendor is not VENDORS["llama-server"]:
            return {}
        try:
            answer = await self.client.ask("GET", "//props", probe=True)
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
        meta = listed.get("meta")
        meta = meta if isinstance(meta, Mapping) else {}
        context = _context_of(listed, meta, props)
        dialect = self._dialect or dialects.detect(chat_template=template, model_name=model)
        facts = {"max_tools": self._vendor.quirks.max_tools, "parameters": meta.get("n_params")}
        return ModelInfo(
            model,
            self.name,
            frozenset(abilities),
            template,
            dialect,
            context if isinstance(context, int) else None,
            {key: value for key, value in facts.items() if isinstance(value, int)},
        )


def _context_of(listed: Mapping[str, Any], meta: Mapping[str, Any], props: Mapping[str, Any]) -> object:
    """The context that a server tells: llama.cpp what it runs with, vLLM, OpenRouter and Groq by names of their own."""
    settings = props.get("default_generation_settings")
    running = settings.get("n_ctx") if isinstance(settings, Mapping) else None
    stated = (listed.get(key) for key in ("max_model_len", "context_length", "context_window"))
    return next((value for value in (running, *stated, meta.get("n_ctx")) if value), None)


class Responses(OpenAI):
    """The same by the Responses API. Nothing is stored by the server: its reasoning comes encrypted, and goes back."""

    path = "/responses"

    def accept(self, request: Request) -> Accepted:
        """The request as the API accepts it."""
        return responses.accept(request)

    def body(self, request: Request) -> dict[str, Any]:
        """The body of an accepted request."""
        return responses.build(request, self.model, stateless=True)


_APIS = {"openai": OpenAI, "responses": Responses}
