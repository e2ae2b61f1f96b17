"""Harmony and its like: gpt-oss, LLM-jp, Muse Glimmer, Beam, Functionary 3.2."""

from __future__ import annotations

from callgate.dialects._spec import Calls, Channels, Dialect, Params

_START = ("<|start|>", "<|channel|>")
_BODY = ("<|message|>",)
_END = ("<|end|>", "<|return|>", "<|call|>", "<|eom|>", "<|eot|>")
_TAIL = ("<|start|>assistant", "<|start|> assistant")

DIALECTS = (
    Dialect(
        "harmony",
        "gpt-oss 20b/120b",
        channels=Channels(_START, _BODY, _END, _TAIL),
        aliases=("openai",),
    ),
    Dialect(
        "llm_jp_harmony",
        "LLM-jp 4.1",
        channels=Channels(_START, _BODY, _END, _TAIL, space=True),
    ),
    Dialect(
        "beam",
        "Beam",
        channels=Channels(
            _START,
            _BODY,
            _END,
            _TAIL,
            payload=Params(open=("<rfl:parameter",), close=("</rfl:parameter>",), attributes=True, trim="each"),
        ),
    ),
    Dialect(
        "glimmer_atem",
        "Muse Glimmer",
        calls=(
            Calls(
                Params(open=("<atem:parameter",), close=("</atem:parameter>",), attributes=True),
                section=("<atem:function_calls>",),
                section_close=("</atem:function_calls>",),
                open=("<atem:invoke",),
                close=("</atem:invoke>",),
                header={"name": {">": "", "/>": ""}},
                name="double",
            ),
        ),
        channels=Channels(("<|start|>", "<|channel|>"), _BODY, ("<|eom|>", "<|eot|>", "<|end|>"), _TAIL, marked=True),
    ),
    Dialect(
        "functionary_v32",
        "Functionary v3.2",
        channels=Channels((">>>",), ("\n",), (), (">>>",), recipient=True),
        drop=("<|eot_id|>",),
    ),
)
