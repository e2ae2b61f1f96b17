"""Gemma: `call:NAME{key:value}` with string marks.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from callgate.dialects._spec import Calls, Dialect, Literals, Region

_CALL = {"_": {"call:": "name", ":": "name", "": "name"}, "name": {"&{": "", "&(": ""}}
"""Small models leave out the label or half of it."""

DIALECTS = (
    Dialect(
        "gemma4",
        "Gemma 4",
        calls=(
            Calls(
                Literals("gemma", mark='<|"|>'),
                open=("<|tool_call>",),
                close=("<tool_call|>",),
                inner=("<tool_call|>",),
                header=_CALL,
                again=("call:",),
            ),
        ),
        regions=(Region(("<|channel>thought\n", "<|channel>thought", "<|channel>"), ("<channel|>",)),),
        drop=("<channel|>", "<tool_call|>", "<|tool_response>", "<turn|>", "<eos>"),
    ),
    Dialect(
        "functiongemma",
        "FunctionGemma 270M (Gemma 3)",
        calls=(
            Calls(
                Literals("gemma", mark="<escape>"),
                open=("<start_function_call>",),
                close=("<end_function_call>",),
                header=_CALL,
                again=("call:",),
            ),
        ),
        drop=("<end_of_turn>", "<start_function_response>", "<eos>"),
    ),
)
