"""Tools that do not say what they do: taken for writes, and said so once.

Law: a tool without a declared effect is named in the log once in a process, however many agents have it.
(tests/test_tools.py::test_tools_that_declare_no_effect_are_named_once)
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from callgate.schema.signatures import plain_function
from callgate.tools._tool import Tool

LOGGER = logging.getLogger("callgate.tools")
_NAMED: set[tuple[str, str, str]] = set()


def warn_of_undeclared(tools: Iterable[Tool]) -> None:
    """Logs which tools declare no effect, and what follows from that."""
    found = [tool.name for tool in tools if _is_new(tool)]
    if found:
        LOGGER.warning(
            "%s: no effect declared, so taken for a write: an identical call of a run is answered with the first "
            'result, and a failure is an unknown outcome; say @tool(effect="read") or @tool(effect="write")',
            ", ".join(found),
        )


def _is_new(tool: Tool) -> bool:
    # A description without a function is run by somebody else, who knows what it does.
    if tool.function is None or "effect" in tool.declared:
        return False
    function = plain_function(tool.function)
    # By place and not by object: a function that is defined in a loop or a request is the same tool each time.
    place = (tool.name, str(getattr(function, "__module__", "")), str(getattr(function, "__qualname__", "")))
    if place in _NAMED:
        return False
    _NAMED.add(place)
    return True
