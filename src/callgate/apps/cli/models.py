"""List the models that would work here, how each would be asked for calls and why, and what is missing for others.

Law: it only asks what there is; no model is loaded. (tests/test_providers_rows.py::test_every_kind_of_server_resolves)
Law: what it tells is what a run gets. (tests/test_cli_models.py::test_what_is_told_is_what_a_run_gets)
Law: whatever of this machine cannot be used now is told with what is missing, and costs the status nothing.
    (tests/test_stores.py::test_what_is_missing_is_told_with_the_way_to_it)
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import click

from callgate.apps import output

if TYPE_CHECKING:
    from callgate.config import Config
    from callgate.types import ModelInfo

_SERVERS = ("ollama", "llama-server", "lmstudio", "vllm", "sglang")
"""The servers that are looked for on this machine, each at its usual address."""
_BESIDE = 520_000_000
"""Bytes that a model takes beside its file: context, prompts that were read, Python. Measured with the embedded model,
whose file has 93 MB, after 170 differing requests: 612 MB. A larger model's context takes more."""


@click.command()
@click.argument("server", required=False)
@click.option("--key", help="The server's key; else its environment variable, or the one that `callgate keys` holds.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(server: str | None, *, key: str | None, as_json: bool) -> None:
    """List the models of SERVER, the protocol and dialect that each would get, and why.

    SERVER is "local", "ollama", a vendor's name ("groq", "openrouter", …) or an address ("http://host:8000/v1").
    Without it: the embedded model, model files that Ollama's store or the hub's cache already holds, and the servers
    that run on this machine; then what is missing for the others. Your settings of protocol, dialect and num_ctx count.
    """
    from callgate import config

    settings = config.load()
    found, missing = asyncio.run(_all(server, key))
    for each in found:
        _show(*each, settings, as_json)
    for reason in missing:
        output.say(output.one_line(f"missing: {reason}", output.ERROR_SHOWN), err=True)


def _show(name: str, info: ModelInfo, path: Path | None, settings: Config, as_json: bool) -> None:
    from callgate import providers
    from callgate.apps import speeds

    info = providers.loaded(replace(info, dialect=settings.dialect or info.dialect), settings.options)
    protocol, why = asked(info, settings.protocol)
    size = path.stat().st_size if path is not None else None
    if as_json:
        output.say_json({**_row(info), "use": name, "size": size, "protocol": protocol, "why": why})
        return
    parts = [name]
    if name == "local":
        parts.append(info.name)
    if size is not None:
        parts.append(f"{size / 1e6:,.0f} MB")
    if info.context_length:
        parts.append(f"{info.context_length:,} tokens")
    output.say("  ".join(output.name(part) for part in parts))
    output.say(f"    protocol {protocol}, dialect {info.dialect or 'auto'}: {why}")
    if path is not None:
        for note in filter(None, (speeds.known_speed(path), _memory(path.stat().st_size))):
            output.say(f"    {note}")


def _memory(size: int) -> str:
    """A warning where the file will not fit in memory; "" if it will, or nobody can tell."""
    free = _free()
    if free is None or size + _BESIDE < free:
        return ""
    return f"too large for the memory that is free here: {(size + _BESIDE) / 1e9:.1f} GB or more of {free / 1e9:.1f} GB"


def _free() -> int | None:
    """Bytes of memory that can be had, as Linux tells it; None elsewhere."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def asked(info: ModelInfo, wanted: str = "auto") -> tuple[str, str]:
    """The protocol that an agent with a tool would choose for this model, and the reason in words. `wanted`: the
    setting."""
    from callgate import protocols
    from callgate.types import ToolSpec

    protocol = protocols.choose(info, (ToolSpec("tool"),), wanted)
    if wanted != "auto":
        return protocol, "your setting of the protocol"
    known = info.extra.get("protocol")
    if protocol == known:
        return protocol, "this worked before"
    reasons = {
        "native": "the server reads the model's calls itself",
        "routed": "a small model, whose output is kept to a schema",
        "constrained": "no tools field, but output is kept to a schema",
        "json": "neither tools nor schemas, and no dialect is known",
    }
    return protocol, reasons.get(protocol, "neither tools nor schemas: the family's own markup goes into the prompt")


def _row(info: ModelInfo) -> dict[str, object]:
    return {
        "provider": info.provider,
        "model": info.name,
        "capabilities": sorted(info.capabilities),
        "dialect": info.dialect,
        "context_length": info.context_length,
    }


Found: TypeAlias = tuple[str, "ModelInfo", "Path | None"]
"""What `-m` takes, what is known of the model, and its file where it is one."""


async def _all(server: str | None, key: str | None) -> tuple[list[Found], list[str]]:
    """The models, and what is missing for others; a server that was named must answer."""
    if server == "local":
        return await _files(must=True)
    if server is not None:
        return await _of(server, key, quick=False), []
    found, missing = await _files(must=False)
    answers = await asyncio.gather(*(_of(name, key, quick=True) for name in _SERVERS), return_exceptions=True)
    for name, answer in zip(_SERVERS, answers, strict=True):
        if isinstance(answer, list):
            found += answer
        else:
            missing.append(_reason(name, answer))
    return found, missing


def _reason(name: str, error: BaseException) -> str:
    from callgate.errors import CallgateError

    if not isinstance(error, CallgateError):
        raise error
    reason = str(error)
    return reason if reason.startswith(name) else f"{name}: {reason}"


async def _files(*, must: bool) -> tuple[list[Found], list[str]]:
    """The embedded model and the files in the stores of other programs. `must`: without any, the reason is raised."""
    from callgate import providers
    from callgate.errors import ConfigError

    found: list[Found] = []
    missing: list[str] = []
    for name in ["local", *(stored.name for stored in providers.stored())]:
        try:
            provider = providers.open(name)
            info = await provider.info()
        except ConfigError as error:
            if str(error) not in missing:  # the engine is missing for all of them
                missing.append(str(error))
            if must and name == "local" and not providers.stored():
                raise
            continue
        found.append((name, info, getattr(provider, "path", None)))
    return found, missing


async def _of(server: str, key: str | None, *, quick: bool) -> list[Found]:
    from callgate import providers

    options: dict[str, object] = {} if key is None else {"key": key}
    if quick:
        options |= {"timeout": 3, "retries": 0}
    provider = providers.server(server, **options)
    try:
        return [(_use(server, info.name), info, None) for info in await provider.catalogue()]
    finally:
        await provider.aclose()


def _use(server: str, model: str) -> str:
    """What `-m` takes for a model of a server."""
    return f"{server}#{model}" if "://" in server else f"{server}:{model}"
