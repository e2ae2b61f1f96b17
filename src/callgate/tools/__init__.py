"""Tools: functions that a model may ask for, and sets of them.

Law: what a tool declares is all that the layers below know of it; `ToolSpec` carries it, the function stays here.
(tests/test_tools.py::test_what_is_declared_is_in_the_spec)
"""

from __future__ import annotations

from callgate.masking import Secret
from callgate.tools._context import Inject, ToolContext, is_injected
from callgate.tools._names import folded, nearest, resolve_name
from callgate.tools._tool import Kind, Tool, tool
from callgate.tools._toolbox import Toolbox, ToolLike, as_toolbox, from_json
from callgate.tools._undeclared import warn_of_undeclared

__all__ = [
    "Inject",
    "Kind",
    "Secret",
    "Tool",
    "ToolContext",
    "ToolLike",
    "Toolbox",
    "as_toolbox",
    "folded",
    "from_json",
    "is_injected",
    "nearest",
    "resolve_name",
    "tool",
    "warn_of_undeclared",
]
