"""Hermes and those who write `<tool_call>` or a tag of their own around a JSON object.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from callgate.dialects._spec import THINK, Calls, Dialect, JsonItems

DIALECTS = (
    Dialect(
        "hermes",
        "Hermes 2 Pro/3/4, Qwen2.5, Qwen3 (not Coder), QwQ, Granite 4, MiMo-VL, Bielik 3, Reka Edge, SmolLM3, "
        "Exaone 4, Trinity",
        calls=(Calls(JsonItems(), open=("<tool_call>",), close=("</tool_call>",), fence=True),),
        regions=(THINK,),
        drop=("<|im_end|>", "<|endoftext|>", "<|end_of_text|>"),
        aliases=("qwen", "qwen25", "xml_tools"),
    ),
    Dialect(
        "ernie45",
        "ERNIE-4.5 thinking",
        calls=(Calls(JsonItems(), open=("<tool_call>",), close=("</tool_call>",)),),
        regions=(THINK,),
        drop=("<response>", "</response>", "<|end_of_sentence|>", "</s>"),
    ),
    Dialect(
        "qwen25_coder",
        "Qwen2.5-Coder (spontaneous)",
        calls=(
            Calls(JsonItems(), open=("<tools>",), close=("</tools>",), fence=True),
            Calls(JsonItems(), guard=True, fence=True, open=("```",)),
        ),
        drop=("<|im_end|>", "<|endoftext|>"),
    ),
)
