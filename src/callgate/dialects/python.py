"""Calls written as Python: Llama 4, LFM2, OLMo 3.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._python import python_calls
from callgate.dialects._spec import THINK, Calls, Dialect, Literals

if TYPE_CHECKING:
    from callgate.dialects._plan import MarkerRule
    from callgate.dialects._reading import LookAhead, Reading
    from callgate.dialects._take import Parse


def _one_a_line(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """OLMo 3: the calls of a block stand on lines of their own, without a list."""
    assert rule.calls is not None
    return python_calls(r, rule.calls, hold, set(), lines=True)


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
        calls=(Calls(Literals(), open=("<function_calls>",), close=("</function_calls>",), read=_one_a_line),),
        regions=(THINK,),
        drop=("<|im_end|>", "<|endoftext|>"),
    ),
)
