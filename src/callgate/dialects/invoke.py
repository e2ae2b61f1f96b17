"""`<invoke name="…">` and named parameters: MiniMax M2 and M3, dots, Step3, MiniCPM5."""

from __future__ import annotations

from callgate.dialects._spec import THINK, Calls, Dialect, JsonArgs, Params, Raw, Region

_TAG = {"name": {">": "", "/>": ""}}
_M3 = "]<]minimax[>["

DIALECTS = (
    Dialect(
        "minimax_m2",
        "MiniMax M2, M2.1",
        calls=(
            Calls(
                Params(open=("<parameter",), close=("</parameter>",), attributes=True),
                section=("<minimax:tool_call>",),
                section_close=("</minimax:tool_call>",),
                open=("<invoke",),
                close=("</invoke>",),
                header=_TAG,
                name="attributes",
                known=True,
            ),
        ),
        regions=(THINK,),
        drop=("[e~[",),
    ),
    Dialect(
        "minimax_m3",
        "MiniMax M3",
        calls=(
            Calls(
                Params(open=(f"{_M3}<",), close=(f"{_M3}</",), nested=_M3),
                section=(f"{_M3}<tool_call>",),
                section_close=(f"{_M3}</tool_call>",),
                open=(f"{_M3}<invoke",),
                close=(f"{_M3}</invoke>",),
                header=_TAG,
                name="attributes",
            ),
        ),
        regions=(Region(("<mm:think>",), ("</mm:think>",)),),
        drop=("[e~[",),
    ),
    Dialect(
        "dots",
        "dots",
        calls=(
            Calls(
                Params(open=("<parameter",), close=("</parameter>",), attributes=True, json_body=True),
                section=("<dots_function_call>",),
                section_close=("</dots_function_call>",),
                open=("<invoke",),
                close=("</invoke>",),
                header=_TAG,
                name="attributes",
                known=True,
            ),
        ),
        regions=(THINK,),
        drop=("<|endofresponse|>",),
    ),
    Dialect(
        "step3",
        "Step3",
        calls=(
            Calls(
                Params(open=("<steptml:parameter",), close=("</steptml:parameter>",), attributes=True),
                section=("<｜tool_calls_begin｜>",),
                section_close=("<｜tool_calls_end｜>",),
                open=(
                    "<｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke",
                    "<steptml:invoke",
                ),
                close=("</steptml:invoke>",),
                inner=("<｜tool_call_end｜>",),
                header=_TAG,
                name="attributes",
            ),
        ),
        regions=(THINK,),
        drop=("<|EOT|>", "<｜end▁of▁sentence｜>"),
    ),
    Dialect(
        "minicpm5",
        "MiniCPM5",
        calls=(
            Calls(
                Params(open=("<param",), close=("</param>",), attributes=True, cdata=True),
                open=("<function",),
                close=("</function>",),
                header=_TAG,
                name="attributes",
            ),
        ),
        regions=(THINK,),
        drop=("<|im_end|>",),
    ),
    Dialect(
        "functionary_v31",
        "Functionary v3.1, Llama 3.1 user-defined form",
        calls=(
            Calls(JsonArgs(), open=("<function=",), close=("</function>",), header={"name": {">": ""}}),
            Calls(Raw(), open=("<|python_tag|>",), close=("<|eom_id|>", "<|eot_id|>"), hook="python_tag"),
        ),
        drop=("<|eot_id|>", "<|eom_id|>"),
    ),
)
