"""Tagged parameters in `<function=…>`: Qwen3-Coder and its many followers, Seed-OSS."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from callgate.dialects._spec import THINK, Calls, Dialect, Params, Region


def _calls(outer: str, params: Params) -> Calls:
    return Calls(
        params,
        section=(f"<{outer}>",),
        section_close=(f"</{outer}>",),
        open=("<function=",),
        close=("</function>",),
        header={"name": {">": ""}},
        known=True,
    )


_PARAMETER: Final = Params(open=("<parameter=",), close=("</parameter>",), trim="each", json_body=True)

DIALECTS = (
    Dialect(
        "qwen_xml",
        "Qwen3-Coder, Qwen3.5/3.8, Nemotron 3, Step-3.5-Flash, Nanbeige, iQuest-Coder, MiMo v2, Ornith",
        calls=(_calls("tool_call", _PARAMETER),),
        regions=(THINK,),
        drop=("<|im_end|>", "<|endoftext|>"),
        aliases=("qwen3_xml", "step3p5"),
    ),
    Dialect(
        "seed_oss",
        "Seed-OSS 36B",
        calls=(_calls("seed:tool_call", Params(open=("<parameter=",), close=("</parameter>",), trim="pair")),),
        regions=(Region(("<seed:think>",), ("</seed:think>",)),),
        drop=("<seed:eos>",),
    ),
)

VARIANTS = (
    DIALECTS[0].but(
        models="MiMo v2 (values escaped as in HTML)",
        aliases=("mimo", "mimo_v2", "mimo-v2-flash"),
        calls=(_calls("tool_call", replace(_PARAMETER, entities=True)),),
    ),
)
"""The same dialect as some models bend it, found by alias only."""
