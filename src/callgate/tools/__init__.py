"""Tools: functions that a model may ask for, and sets of them.

One law: what a tool declares is all that may be known of it below; `ToolSpec` carries it, the function stays here.
"""

from __future__ import annotations

from callgate.tools._context import Inject, ToolContext
from callgate.tools._lint import CHECKS, Finding, lint
from callgate.tools._names import folded, nearest, resolve_name
from callgate.tools._tool import Kind, Tool, tool
from callgate.tools._toolbox import Toolbox, ToolLike, as_toolbox, from_json

__all__ = [
    "CHECKS",
    "Finding",
    "Inject",
    "Kind",
    "Tool",
    "ToolContext",
    "ToolLike",
    "Toolbox",
    "as_toolbox",
    "folded",
    "from_json",
    "lint",
    "nearest",
    "resolve_name",
    "tool",
]
