"""The tools of an agent: an ordered set of names.

Law: one name, one tool; two tools of one name are an error when they meet, never a matter of order.
(tests/test_tools.py::test_a_toolbox_keeps_order_and_refuses_two_tools_of_one_name)
"""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias, cast

from callgate.errors import ToolError
from callgate.tools._tool import Tool
from callgate.types import ToolSpec

ToolLike: TypeAlias = "Tool | Callable[..., Any] | Mapping[str, Any] | Toolbox"


class Toolbox:
    """Tools by name, in order. Never changes; every method that narrows or joins gives a new one."""

    __slots__ = ("_tools",)

    def __init__(self, tools: Iterable[ToolLike] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for item in tools:
            for tool in _tools_of(item):
                if self._tools.setdefault(tool.name, tool) is not tool:
                    raise ToolError(f"two tools are called {tool.name!r}; rename one or use Toolbox.prefixed()")

    def get(self, name: str) -> Tool | None:
        """The tool of exactly this name."""
        return self._tools.get(name)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """What models, dialects and rules may know of them, in order."""
        return tuple(tool.spec for tool in self._tools.values())

    @property
    def names(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(self._tools)

    @property
    def groups(self) -> dict[str, Toolbox]:
        """The tools by `group`; those without one under ""."""
        found: dict[str, list[Tool]] = {}
        for tool in self:
            found.setdefault(tool.spec.group or "", []).append(tool)
        return {name: Toolbox(tools) for name, tools in found.items()}

    def only(self, *names: str) -> Toolbox:
        """Those whose names match one of these globs. Raises ToolError for a name that matches nothing."""
        found = [tool for tool in self if any(fnmatch.fnmatchcase(tool.name, name) for name in names)]
        for name in names:
            if not any(fnmatch.fnmatchcase(tool.name, name) for tool in found):
                raise ToolError(f"no tool is called {name!r}; there are: {', '.join(self.names)}")
        return Toolbox(found)

    def without(self, *names: str) -> Toolbox:
        """All but those whose names match one of these globs."""
        return Toolbox(tool for tool in self if not any(fnmatch.fnmatchcase(tool.name, name) for name in names))

    def filter(self, keep: Callable[[ToolSpec], bool]) -> Toolbox:
        """Those whose spec passes."""
        return Toolbox(tool for tool in self if keep(tool.spec))

    def prefixed(self, prefix: str) -> Toolbox:
        """The same tools under longer names."""
        return Toolbox(tool.with_spec(name=prefix + tool.name) for tool in self)

    def grouped(self, group: str) -> Toolbox:
        """The same tools as one group."""
        return Toolbox(tool.with_spec(group=group) for tool in self)

    def __add__(self, other: ToolLike | Iterable[ToolLike]) -> Toolbox:
        """Both together."""
        return Toolbox([self, as_toolbox(other)])

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __repr__(self) -> str:
        return f"Toolbox({', '.join(self._tools)})"


def as_toolbox(tools: Iterable[ToolLike] | ToolLike | None) -> Toolbox:
    """A toolbox from tools, functions, JSON descriptions, toolboxes, or a mix; one is enough, None is no tools."""
    if isinstance(tools, Toolbox):
        return tools
    if tools is None:
        return Toolbox(())
    if isinstance(tools, (Mapping, str)) or not isinstance(tools, Iterable):  # a name is no list of letters
        return Toolbox([cast("ToolLike", tools)])
    return Toolbox(tools)


def _tools_of(item: ToolLike) -> Iterable[Tool]:
    if isinstance(item, (Toolbox,)):
        return item
    if isinstance(item, Tool):
        return (item,)
    if isinstance(item, Mapping):
        return (from_json(item),)
    if isinstance(item, ToolSpec):
        return (Tool(item, None),)
    if callable(item):
        return (Tool.from_function(item),)
    raise ToolError(f"{item!r} is no tool: give a function, a Tool, a Toolbox or a JSON description")


def from_json(data: Mapping[str, object]) -> Tool:
    """A tool from its JSON description, OpenAI's wrapped or bare one, or MCP's; it can be read and judged, not run."""
    inner = data.get("function") if isinstance(data.get("function"), Mapping) else data
    assert isinstance(inner, Mapping)
    name = inner.get("name")
    if not isinstance(name, str):
        raise ToolError(f"a tool without a name: {str(dict(data))[:100]}")
    schema = next((inner[k] for k in ("parameters", "inputSchema", "input_schema") if inner.get(k) is not None), None)
    if schema is not None and not isinstance(schema, Mapping):
        raise ToolError(f"tool {name}: its parameters are no JSON Schema object")
    return Tool.from_schema(name, str(inner.get("description") or ""), schema)
