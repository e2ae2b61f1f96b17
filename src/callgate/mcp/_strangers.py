"""What a stranger's server says, made safe: its tool definitions become `Tool`s, its results become values.

One law: a definition that is too large, broken or ambiguous is left out and named; it never costs the others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from callgate.errors import ConfigError, ToolFailure
from callgate.tools import Tool, ToolContext
from callgate.types import Effect

MAX_DESCRIPTION: Final = 2_000
"""Characters of a description that a model sees; longer ones are cut: they are prompts, not descriptions."""
MAX_SCHEMA: Final = 100_000
"""Characters of one tool's schema."""
MAX_TOOLS: Final = 1_000
MAX_PAGES: Final = 100
"""Pages of a tool list; a paginator that never ends must not hang us."""
SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
"""Kinds of sound that models take, and how the API calls them."""
MAX_TEXT: Final = 1_000
"""Characters of an error that are passed on."""


class ServerError(ToolFailure):
    """The server ran the tool and said that it failed."""


@dataclass(slots=True, frozen=True)
class Rules:
    """How the tools of one server are named and declared."""

    prefix: str
    effects: Mapping[str, Effect]
    timeout: float | None


Caller = Callable[[str, str, ToolContext, dict[str, Any]], Any]
"""(server's name of the tool, fingerprint of its definition, context, arguments) → coroutine of its value."""


def fingerprint(tool: Any) -> str:
    """A hash of what a definition says; another definition under the same name is another tool."""
    said = {
        "name": tool.name,
        "description": tool.description,
        "schema": tool.input_schema,
        "annotations": tool.annotations.model_dump(mode="json") if tool.annotations else None,
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode("utf-8", "replace")).hexdigest()


def tools_of(listed: Sequence[Any], rules: Rules, call: Caller) -> tuple[list[Tool], list[str]]:
    """The tools that can be offered, and what was left out or cut."""
    problems: list[str] = []
    tools: dict[str, Tool] = {}
    names = [tool.name for tool in listed]
    for tool in listed[:MAX_TOOLS]:
        if names.count(tool.name) > 1:
            problems.append(f"{tool.name[:80]!r}: left out; the server lists it {names.count(tool.name)} times")
            continue
        try:
            made = _tool(tool, rules, call, problems)
        except (ConfigError, RecursionError, ValueError) as error:
            problems.append(f"{tool.name[:80]!r}: left out; {str(error)[:MAX_TEXT]}")
            continue
        tools[made.name] = made
    if len(listed) > MAX_TOOLS:
        problems.append(f"only the first {MAX_TOOLS} of {len(listed)} tools are offered (MAX_TOOLS)")
    return list(tools.values()), list(dict.fromkeys(problems))


def _tool(tool: Any, rules: Rules, call: Caller, problems: list[str]) -> Tool:
    size = len(json.dumps(tool.input_schema))
    if size > MAX_SCHEMA:
        raise ConfigError(f"its schema has {size} characters, more than {MAX_SCHEMA} (MAX_SCHEMA)")
    description = tool.description or ""
    if len(description) > MAX_DESCRIPTION:
        problems.append(f"{tool.name!r}: its description was cut from {len(description)} characters (MAX_DESCRIPTION)")
        description = description[: MAX_DESCRIPTION - 1] + "…"
    hints = tool.annotations
    reads = bool(hints and hints.read_only_hint)
    effect = rules.effects.get(tool.name, "read" if reads else "write")
    made = Tool.from_schema(
        rules.prefix + tool.name,
        description,
        tool.input_schema,
        _function(tool.name, fingerprint(tool), call),
        effect=effect,
        repeatable=effect == "write" and bool(hints and hints.idempotent_hint),
        timeout=rules.timeout,
    )
    problems += [f"{tool.name!r}: {note}" for note in made.compiled.notes]
    return made


def _function(name: str, definition: str, call: Caller) -> Callable[..., Any]:
    async def run(callgate_context: ToolContext, /, **arguments: Any) -> Any:
        return await call(name, definition, callgate_context, arguments)

    run.__name__ = name
    return run


def value_of(result: Any) -> Any:
    """What a tool returned: its structured content, or its text. Raises `ServerError` if it says that it failed."""
    texts = [text for block in result.content if (text := _text(block))]
    if result.is_error:
        raise ServerError(" ".join(texts)[:MAX_TEXT] or "the tool failed without a reason")
    said: Any = "\n".join(texts) if result.structured_content is None else _unwrapped(result.structured_content)
    parts = [part for block in result.content if (part := _part(block)) is not None]
    return [*([said] if said != "" else []), *parts] if parts else said


def _unwrapped(value: Any) -> Any:
    """SDKs wrap a plain value as {"result": value}."""
    return value["result"] if isinstance(value, dict) and list(value) == ["result"] else value


def _text(block: Any) -> str:
    match block.type:
        case "text":
            return str(block.text)
        case "image" | "audio" if _part(block) is not None:
            return ""
        case "image" | "audio":
            return f"[{block.type} {block.mime_type}, {len(block.data) * 3 // 4} bytes]"
        case "resource":
            inner = block.resource
            return str(getattr(inner, "text", None) or f"[resource {inner.uri}]")
        case "resource_link":
            return f"[{block.name}: {block.uri}]"
        case other:
            return f"[{other}]"


def _part(block: Any) -> dict[str, Any] | None:
    """An image, or a sound of a kind that models take, as a content part."""
    kind = str(getattr(block, "mime_type", ""))
    if block.type == "image" and re.fullmatch(r"image/[\w.+-]{1,40}", kind):
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{block.data}"}}
    if block.type == "audio" and (form := SOUNDS.get(kind)) is not None:
        return {"type": "input_audio", "input_audio": {"data": block.data, "format": form}}
    return None
