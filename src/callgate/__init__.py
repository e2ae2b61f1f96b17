"""callgate stands between a language model's token stream and real functions.

Law: `import callgate` loads the bare package.
(tests/test_architecture.py::test_import_callgate_loads_the_bare_package)

The face is lazy: a name loads its module on first use, so that `import callgate` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from callgate.agent import Agent as Agent
    from callgate.agent import RunResult as RunResult
    from callgate.errors import CallgateError as CallgateError
    from callgate.errors import Denied as Denied
    from callgate.errors import NoEffect as NoEffect
    from callgate.errors import NotFound as NotFound
    from callgate.errors import UpstreamError as UpstreamError
    from callgate.providers.replay import Replay as Replay
    from callgate.reply import Reader as Reader
    from callgate.reply import read as read
    from callgate.reply import separate as separate
    from callgate.schema import compile_schema as compile_schema
    from callgate.schema import mend as mend
    from callgate.tools import Inject as Inject
    from callgate.tools import Tool as Tool
    from callgate.tools import Toolbox as Toolbox
    from callgate.tools import ToolContext as ToolContext
    from callgate.tools import tool as tool
    from callgate.types import BadCall as BadCall
    from callgate.types import Message as Message
    from callgate.types import Principal as Principal
    from callgate.types import Reply as Reply
    from callgate.types import ToolCall as ToolCall
    from callgate.types import ToolResult as ToolResult

_HOMES = {
    "Agent": "agent",
    "RunResult": "agent",
    "CallgateError": "errors",
    "Denied": "errors",
    "NoEffect": "errors",
    "NotFound": "errors",
    "UpstreamError": "errors",
    "Replay": "providers.replay",
    "Reader": "reply",
    "read": "reply",
    "separate": "reply",
    "compile_schema": "schema",
    "mend": "schema",
    "Inject": "tools",
    "Tool": "tools",
    "Toolbox": "tools",
    "ToolContext": "tools",
    "tool": "tools",
    "BadCall": "types",
    "Message": "types",
    "Principal": "types",
    "Reply": "types",
    "ToolCall": "types",
    "ToolResult": "types",
}

__all__ = [
    "Agent",
    "BadCall",
    "CallgateError",
    "Denied",
    "Inject",
    "Message",
    "NoEffect",
    "NotFound",
    "Principal",
    "Reader",
    "Replay",
    "Reply",
    "RunResult",
    "Tool",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "Toolbox",
    "UpstreamError",
    "__version__",
    "compile_schema",
    "mend",
    "read",
    "separate",
    "tool",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'callgate' has no attribute {name!r}")
    value = getattr(import_module(f"callgate.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
