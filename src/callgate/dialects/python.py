"""Calls written as Python: Llama 4, LFM2, OLMo 3."""

from __future__ import annotations

from callgate.dialects._spec import THINK, Calls, Dialect, Literals

DIALECTS = (
    Dialect(
        "pythonic",
        "Llama 4, Llama 3.2 1B/3B, ToolACE, Gemma 3 prompts",
        calls=(
            Calls(Literals(), open=("<|python_start|>",), close=("<|python_end|>",)),
            Calls(Literals(), guard=True),
        ),
        drop=("<|python_end|>", "<|eot|>", "<|eom|>", "<|eot_id|>", "<end_of_turn>"),
    ),
    Dialect(
        "lfm2",
        "LFM2, LFM2.5",
        calls=(Calls(Literals(), open=("<|tool_call_start|>",), close=("<|tool_call_end|>",)),),
        regions=(THINK,),
        drop=("<|im_end|>",),
    ),
    Dialect(
        "olmo3",
        "OLMo 3",
        calls=(Calls(Literals(), open=("<function_calls>",), close=("</function_calls>",), separator="\n"),),
        regions=(THINK,),
        drop=("<|im_end|>", "<|endoftext|>"),
    ),
)
