"""What callers give as `tools=`, as the specs that dialects, protocols and rules see.

Law: that of the room (callgate/reply/__init__.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from callgate.errors import ConfigError
from callgate.types import ToolSpec

ToolLike: TypeAlias = Any
"""A `Tool`, a `ToolSpec`, a plain function, an OpenAI-style JSON dict or the bare function dict in it."""


def tool_specs(tools: Iterable[ToolLike] | ToolLike | None) -> tuple[ToolSpec, ...]:
    """What `tools=` takes everywhere, as the specs that dialects and policy see. One tool is a list of one; None is no
    tools, as in the clients.
    """
    if tools is None:
        return ()
    if isinstance(tools, Mapping) or not isinstance(tools, Iterable):
        tools = (tools,)
    specs: list[ToolSpec] = []
    for tool in tools:
        if isinstance(tool, ToolSpec):
            specs.append(tool)
        elif isinstance(tool, Mapping):
            specs.append(_from_dict(tool))
        elif isinstance(spec := getattr(tool, "spec", None), ToolSpec):
            specs.append(spec)
        elif isinstance(several := getattr(tool, "specs", None), Sequence):
            specs.extend(several)
        elif callable(tool):
            from callgate.tools import Tool

            specs.append(Tool.from_function(tool).spec)
        else:
            raise ConfigError(f"tools: {type(tool).__name__} is no tool; give a function, a Tool or a JSON dict")
    return tuple(specs)


def _from_dict(tool: Mapping[str, Any]) -> ToolSpec:
    """An OpenAI-style tool, or the function object in it, or an MCP or Anthropic tool object."""
    function = tool.get("function", tool)
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or not name:
        raise ConfigError(f"tools: this dict has no name: {str(dict(tool))[:120]}")
    parameters = next(
        (function[key] for key in ("parameters", "input_schema", "inputSchema") if function.get(key) is not None),
        {"type": "object", "properties": {}},
    )
    if not isinstance(parameters, Mapping):
        raise ConfigError(f"tools: {name}.parameters must be a JSON Schema object, not {type(parameters).__name__}")
    return ToolSpec(name, str(function.get("description") or ""), parameters)
