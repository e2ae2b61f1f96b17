"""Llama's JSON and xLAM's lists: no markup, or a tag before it.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from callgate.dialects._code_tag import python_tag
from callgate.dialects._spec import THINK, Calls, Dialect, JsonItems, Raw

DIALECTS = (
    Dialect(
        "llama3_json",
        "Llama 3.1/3.2/3.3, Llama 4 JSON template",
        calls=(
            Calls(JsonItems(), guard=True),
            Calls(Raw(), open=("<|python_tag|>",), close=("<|eom_id|>", "<|eot_id|>"), read=python_tag),
        ),
        drop=("<|eom_id|>", "<|eot_id|>", "<|end_of_text|>", "<|eot|>", "<|eom|>"),
        aliases=("llama3", "llama4_json"),
    ),
    Dialect(
        "xlam",
        "xLAM 1/2",
        calls=(
            Calls(JsonItems(), guard=True, fence=True),
            Calls(JsonItems(), open=("<tool_call>",), close=("</tool_call>",)),
            Calls(JsonItems(several=False), open=("[TOOL_CALLS]", "-> tool/function_call\n")),
        ),
        regions=(THINK,),
        drop=("<|im_end|>", "<|eot_id|>", "</s>"),
    ),
)
