"""Kimi: K2's tokens around `functions.NAME:N`, K3's `<|open|>` and `<|close|>`.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._calls import name_as_written
from callgate.dialects._spec import THINK, Calls, Dialect, JsonArgs, Params, Region

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading


def _counted(r: Reading, fields: dict[str, str]) -> tuple[str | None, str | None]:
    """`functions.NAME:N`, which is the call's id too; K2 sometimes writes nothing but the counter."""
    written = fields.get("name", "")
    head, colon, number = written.rpartition(":")
    name = (head if colon and number.isdigit() else written).removeprefix("functions.")
    if name.isdigit():
        return "", written or None
    return name_as_written(r, {"name": name, "id": written})


DIALECTS = (
    Dialect(
        "kimi_k2",
        "Kimi K2, K2-0905, K2-Thinking, K2.5",
        calls=(
            Calls(
                JsonArgs(),
                section=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>"),
                section_close=("<|tool_calls_section_end|>", "<|tool_call_section_end|>"),
                open=("<|tool_call_begin|>",),
                close=("<|tool_call_end|>",),
                header={"name": {"<|tool_call_argument_begin|>": ""}},
                named=_counted,
            ),
        ),
        regions=(THINK,),
        drop=("<|im_end|>", "[EOS]"),
    ),
    Dialect(
        "kimi_k3",
        "Kimi K3",
        calls=(
            Calls(
                Params(
                    open=("<|open|>argument",),
                    close=("<|close|>argument<|sep|>",),
                    key_end=("<|sep|>",),
                    attributes=True,
                ),
                section=("<|open|>tools<|sep|>",),
                section_close=("<|close|>tools<|sep|>",),
                open=("<|open|>call",),
                close=("<|close|>call<|sep|>",),
                header={"name": {"<|sep|>": ""}},
                attributes=True,
            ),
        ),
        regions=(Region(("<|open|>think<|sep|>",), ("<|close|>think<|sep|>",)),),
        drop=(
            "<|open|>response<|sep|>",
            "<|close|>response<|sep|>",
            '<|open|>message role="assistant"<|sep|>',
            "<|close|>message<|sep|>",
            "<|end_of_msg|>",
        ),
    ),
)
