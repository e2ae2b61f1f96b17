"""Formats that people make up, and what models write that were taught none."""

from __future__ import annotations

from callgate.dialects._spec import Calls, Dialect, JsonArgs, JsonItems, Literals, Region

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
                Literals(bare_words=True),
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
                JsonArgs(text_key="", to_line=True),
                open=("Action:",),
                header={"name": {"\nAction Input:": ""}},
                line=True,
                fence=True,
            ),
        ),
        regions=(
            Region(("Thought:",), (), ends_at=("Action:", "Final Answer:", "Observation:"), line=True),
            Region(("Final Answer:",), (), "text", line=True),
            Region(
                ("Observation:",),
                (),
                "drop",
                ends_at=("Thought:", "Action:", "Final Answer:"),
                line=True,
                note="an observation that the model invented: dropped",
            ),
        ),
    ),
)
