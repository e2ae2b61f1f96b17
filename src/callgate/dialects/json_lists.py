"""Markers around a JSON list or JSON lines: Jamba, Apriel, Hunyuan, Nemotron, MiniMax M1, Phi, Pangu …

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._plain import code_tool
from callgate.dialects._spec import THINK, Calls, Dialect, JsonItems, Raw, Region

if TYPE_CHECKING:
    from callgate.dialects._reading import Reading

_TOOL_CALLS = Calls(JsonItems(), open=("<tool_calls>",), close=("</tool_calls>",))


def _code(r: Reading, fields: dict[str, str]) -> tuple[str | None, str | None]:
    """Code for an interpreter: the listed tool that takes code."""
    return code_tool(r), None


DIALECTS = (
    Dialect(
        "jamba",
        "Jamba 1.5/1.6/1.7",
        calls=(_TOOL_CALLS,),
        drop=("<|eom|>", "<|endoftext|>"),
    ),
    Dialect(
        "apriel",
        "Apriel 1.5 / 1.6 Thinker",
        calls=(_TOOL_CALLS,),
        regions=(Region(("Here are my reasoning steps:",), ("[BEGIN FINAL RESPONSE]",), first=True),),
        drop=("[BEGIN FINAL RESPONSE]", "[END FINAL RESPONSE]", "<|end|>"),
    ),
    Dialect(
        "hunyuan_a13b",
        "Hunyuan-A13B",
        calls=(_TOOL_CALLS,),
        regions=(THINK, Region(("助手：",), (), "text", first=True)),
        drop=("<answer>", "</answer>", "<|eos|>"),
    ),
    Dialect(
        "nemotron_toolcall",
        "Nemotron Nano v2",
        calls=(Calls(JsonItems(), open=("<TOOLCALL>",), close=("</TOOLCALL>",)),),
        regions=(THINK,),
        drop=("<SPECIAL_12>", "</s>"),
    ),
    Dialect(
        "minimax_m1",
        "MiniMax M1, Text-01",
        calls=(_TOOL_CALLS,),
        # it plans its calls while it thinks and writes them again afterwards
        regions=(Region(("<think>",), ("</think>",), "sealed"),),
        drop=("<end_of_sentence>",),
        aliases=("minimax",),
    ),
    Dialect(
        "functools",
        "FireFunction v2, Phi-4-mini (vLLM prompt)",
        calls=(Calls(JsonItems(), open=("functools[",)),),
        drop=("<|eot_id|>", "<|end|>", "<|endoftext|>"),
        aliases=("phi4_mini_json",),
    ),
    Dialect(
        "phi4_tool_call",
        "Phi-4-mini (own template)",
        calls=(Calls(JsonItems(), open=("<|tool_call|>",), close=("<|/tool_call|>",)),),
        drop=("<|end|>", "<|endoftext|>"),
    ),
    Dialect(
        "granite3",
        "Granite 3.0–3.3",
        calls=(Calls(JsonItems(several=False), open=("<|tool_call|>", "<tool_call>")),),
        regions=(
            THINK,
            Region(("Here is my thought process:",), ("Here is my response:",), first=True),
        ),
        drop=("<response>", "</response>", "<|end_of_text|>", "</tool_call>"),
    ),
    Dialect(
        "granite_fc",
        "granite-20b-functioncalling",
        calls=(Calls(JsonItems(several=False), open=("<function_call>",)),),
        drop=("<|endoftext|>", "</function_call>"),
        aliases=("granite_20b_fc",),
    ),
    Dialect(
        "pangu",
        "openPangu",
        calls=(
            Calls(JsonItems(), open=("[unused11]", "<|tool_call_start|>"), close=("[unused12]", "<|tool_call_end|>")),
        ),
        regions=(Region(("[unused16]",), ("[unused17]",)),),
        drop=("[unused10]", "</s>"),
    ),
    Dialect(
        "internlm",
        "InternLM 2/2.5, Intern-S1",
        calls=(
            Calls(
                JsonItems(),
                open=("<|action_start|><|plugin|>", "<|action_start|> <|plugin|>"),
                close=("<|action_end|>",),
            ),
            Calls(
                Raw(),
                open=("<|action_start|><|interpreter|>", "<|action_start|> <|interpreter|>"),
                close=("<|action_end|>",),
                header={"name": {"\n": ""}},
                named=_code,
            ),
        ),
        regions=(THINK,),
        drop=("<|im_end|>",),
    ),
    Dialect(
        "rwkv",
        "RWKV-7 G1",
        calls=(
            Calls(JsonItems(several=False), open=("**Tool Call:**",), fence=True),
            Calls(JsonItems(several=False), open=("<tool_call>",), close=("</tool_call>",)),
        ),
        regions=(THINK,),
    ),
    Dialect(
        "gigachat3",
        "GigaChat 3 / 3.1",
        calls=(
            Calls(
                JsonItems(several=False),
                open=(
                    "<|message_sep|>\n\nfunction call<|role_sep|>\n",
                    "<|function_call|>",
                ),
            ),
        ),
        drop=("<|message_sep|>", "</s>"),
    ),
)
