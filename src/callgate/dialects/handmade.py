"""Formats that people make up, and what models write that were taught none.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._plain import text_or_object
from callgate.dialects._spec import Calls, Dialect, JsonArgs, JsonItems, Literals, Region

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading
    from callgate.dialects._take import Parse


def _to_line(r: Reading, calls: Calls, fields: dict[str, str]) -> Parse[None]:
    """ReAct: what stands behind `Action Input:` is an object, or text to the end of its line."""
    return text_or_object(r, calls, to_line=True)


DIALECTS = (
    Dialect(
        "bare_json",
        "human-made protocols, models without a format",
        calls=(Calls(JsonItems(), guard=True, fence=True),),
    ),
    Dialect(
        "heredoc_tool",
        "human-made",
        calls=(Calls(JsonItems(), open=("<<<TOOL>>>",), close=("<<<END>>>",), fence=True),),
    ),
    Dialect(
        "bracket_tool",
        "human-made",
        calls=(
            Calls(
                Literals("words"),
                open=("[TOOL:",),
                close=("]",),
                header={"name": {"(": ""}},
            ),
        ),
    ),
    Dialect(
        "react",
        "any instruction-tuned model",
        calls=(
            Calls(
                JsonArgs(),
                open=("Action:",),
                header={"name": {"\nAction Input:": ""}},
                line=True,
                fence=True,
                arguments=_to_line,
            ),
        ),
        regions=(
            Region(("Thought:",), ()),
            Region(("Final Answer:",), (), "text"),
            Region(("Observation:",), (), "drop"),
        ),
    ),
)
