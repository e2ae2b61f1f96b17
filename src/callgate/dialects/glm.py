"""Keys and values in `<arg_key>` and `<arg_value>`: GLM, iQuest, Hunyuan 3, K2 Horizon, Solar Open 2."""

from __future__ import annotations

from dataclasses import replace

from callgate.dialects._spec import THINK, Calls, Dialect, Params, Region

_ARGS = Params(open=("<arg_key>",), key_end=("</arg_key>",), mid=("<arg_value>",), close=("</arg_value>",))
_BREAK = "\\n"
"""A line's end spelt out as two characters."""


def _plain(outer: str) -> Calls:
    close = f"</{outer}>"
    return Calls(
        replace(_ARGS, blanks=(_BREAK,)),
        open=(f"<{outer}>",),
        close=(close,),
        header={"name": {"\n": "", _BREAK: "", "&<arg_key>": "", f"&{close}": ""}},
    )


DIALECTS = (
    Dialect(
        "glm_xml",
        "GLM-4.5/4.6/4.7/5, Ling 3, Laguna, Spark 2.5, HyperCLOVA X 32B",
        calls=(_plain("tool_call"),),
        regions=(THINK,),
        drop=("<|user|>", "<|observation|>", "<|endoftext|>", "<|role_end|>", "</assistant>", "<|im_end|>"),
        aliases=("glm", "glm45", "glm47"),
    ),
    Dialect(
        "iquest",
        "iQuest Q1",
        calls=(_plain("iquest_tool_call"),),
        regions=(THINK,),
        drop=("<|im_end|>",),
    ),
    Dialect(
        "hunyuan_v3",
        "Hunyuan 3 (Hy3), Hy4",
        calls=(
            Calls(
                _ARGS,
                section=("<tool_calls>",),
                section_close=("</tool_calls>",),
                open=("<tool_call>",),
                close=("</tool_call>",),
                header={"name": {"<tool_sep>": "", "\n": "", "&<arg_key>": "", "&</tool_call>": ""}},
            ),
        ),
        regions=(THINK,),
        drop=("<answer>", "</answer>", "<|eos|>"),
        suffix=True,
    ),
    Dialect(
        "k2_horizon",
        "K2 Horizon (IFM)",
        calls=(
            Calls(
                Params(
                    open=("<ifm|arg_key>",),
                    key_end=("</ifm|arg_key>",),
                    mid=("<ifm|arg_value>",),
                    close=("</ifm|arg_value>",),
                    type_open=("<ifm|arg_type>",),
                    type_close=("</ifm|arg_type>",),
                    json_body=True,
                ),
                section=("<ifm|tool_calls>",),
                section_close=("</ifm|tool_calls>",),
                open=("<ifm|tool_call>",),
                close=("</ifm|tool_call>",),
                header={"name": {"\n": "", "&{": "", "&<ifm|arg_key>": "", "&</ifm|tool_call>": ""}},
            ),
        ),
        regions=tuple(
            Region((f"<ifm|{name}>",), (f"</ifm|{name}>",)) for name in ("think", "think_fast", "think_faster")
        ),
        drop=("<ifm|end>", "<|im_end|>"),
    ),
    Dialect(
        "solar_open2",
        "Solar Open 2",
        calls=(
            Calls(
                Params(
                    open=("<|tool_arg:start|>",),
                    key_end=("<|tool_arg:value|>",),
                    close=("<|tool_arg:end|>",),
                    tokens=True,
                ),
                open=("<|tool_call:start|>",),
                close=("<|tool_call:end|>",),
                header={"name": {"\n": "", "&<|tool_arg:start|>": "", "&<|tool_call:end|>": ""}},
            ),
        ),
        regions=(Region(("<|think:start|>", "<|think|>"), ("<|think:end|>",)),),
        drop=("<|im:end|>", "<|end|>", "<|calls|>"),
    ),
)
