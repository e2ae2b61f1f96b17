"""List the models of a server, and how each would be asked for calls and why.

One law: it only asks what there is; no model is loaded.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from callgate.types import ModelInfo

_LOCAL = ("ollama", "llama-server", "lmstudio", "vllm", "sglang")
"""The servers that are looked for on this machine, each at its usual address."""


@click.command()
@click.argument("server", required=False)
@click.option("--key", help="The server's key; else its environment variable.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(server: str | None, *, key: str | None, as_json: bool) -> None:
    """List the models of SERVER, the protocol and dialect that each would get, and why.

    SERVER is "local", "ollama", a vendor's name ("groq", "openrouter", …) or an address ("http://host:8000/v1").
    Without it: the embedded model and the servers that run on this machine.
    """
    found, silent = asyncio.run(_all(server, key))
    for info in found:
        protocol, why = asked(info)
        if as_json:
            click.echo(json.dumps({**_row(info), "protocol": protocol, "why": why}, ensure_ascii=False))
        else:
            context = f"{info.context_length:,} tokens" if info.context_length else ""
            click.echo(f"{info.provider}  {info.name}  {context}".rstrip())
            click.echo(f"    protocol {protocol}, dialect {info.dialect or 'auto'}: {why}")
    for words in silent:
        click.echo(words, err=True)


def asked(info: ModelInfo) -> tuple[str, str]:
    """The protocol that an agent with a tool would choose for this model, and the reason in words."""
    from callgate import protocols
    from callgate.types import ToolSpec

    protocol = protocols.choose(info, (ToolSpec("tool"),))
    known = info.extra.get("protocol")
    if protocol == known:
        return protocol, "it is what worked before"
    reasons = {
        "native": "the server reads the model's calls itself",
        "routed": "a small model, whose output is kept to a schema",
        "constrained": "no tools field, but output is kept to a schema",
        "json": "neither tools nor schemas, and no dialect is known",
    }
    return protocol, reasons.get(protocol, "neither tools nor schemas: the family's own markup goes into the prompt")


def _row(info: ModelInfo) -> dict[str, Any]:
    return {
        "provider": info.provider,
        "model": info.name,
        "capabilities": sorted(info.capabilities),
        "dialect": info.dialect,
        "context_length": info.context_length,
    }


async def _all(server: str | None, key: str | None) -> tuple[list[ModelInfo], list[str]]:
    """The models, and for servers without an answer why; a server that was named must answer."""
    from callgate.errors import CallgateError

    if server is not None:
        return await _of(server, key, quick=False), []
    found: list[ModelInfo] = []
    silent: list[str] = []
    answers = await asyncio.gather(*(_of(name, key, quick=True) for name in ("local", *_LOCAL)), return_exceptions=True)
    for name, answer in zip(("local", *_LOCAL), answers, strict=True):
        if isinstance(answer, list):
            found += answer
        elif isinstance(answer, CallgateError):
            words = str(answer)
            silent.append(words if words.startswith(name) else f"{name}: {words}")
        else:
            raise answer
    return found, silent


async def _of(server: str, key: str | None, *, quick: bool) -> list[ModelInfo]:
    from callgate import providers

    options: dict[str, Any] = {} if key is None else {"key": key}
    if quick and server != "local":
        options |= {"timeout": 3, "retries": 0}
    provider = providers.server(server, **options)
    try:
        return await provider.catalogue()
    finally:
        await provider.aclose()
