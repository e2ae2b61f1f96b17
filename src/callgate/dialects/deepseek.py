"""DeepSeek: tokens around a name and JSON (V3, V3.1), DSML tags (V3.2 and later), and who writes the same.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from callgate.dialects._spec import THINK, Calls, Dialect, JsonArgs, Params, Texts

_END = ("<｜end▁of▁sentence｜>",)


def _spelt(*markers: str) -> Texts:
    """The marker and its spellings in the wild: underscores or spaces for `▁`."""
    return tuple(marker.replace("▁", space) for marker in markers for space in "▁_ ")


_SECTION = _spelt("<｜tool▁calls▁begin｜>")
_SECTION_CLOSE = _spelt("<｜tool▁calls▁end｜>")
_CALL = _spelt("<｜tool▁call▁begin｜>")
_CALL_CLOSE = _spelt("<｜tool▁call▁end｜>")
_SEP = _spelt("<｜tool▁sep｜>")


def _dsml(name: str, models: str, tag: str, sections: Texts, end: Texts = _END) -> Dialect:
    return Dialect(
        name,
        models,
        calls=(
            Calls(
                Params(
                    open=(f"<{tag}parameter",),
                    close=(f"</{tag}parameter>",),
                    attributes=True,
                    json_body=True,
                ),
                section=tuple(f"<{tag}{section}>" for section in sections),
                section_close=tuple(f"</{tag}{section}>" for section in sections),
                open=(f"<{tag}invoke",),
                close=(f"</{tag}invoke>",),
                header={"name": {">": "", "/>": ""}},
                attributes=True,
            ),
        ),
        regions=(THINK,),
        drop=end,
    )


DIALECTS = (
    Dialect(
        "deepseek_v3",
        "DeepSeek V3, V3-0324, R1, R1-0528, R1 distills, Cogito",
        calls=(
            Calls(
                JsonArgs(),
                section=_SECTION,
                section_close=_SECTION_CLOSE,
                open=_CALL,
                close=_CALL_CLOSE,
                header={"type": dict.fromkeys(_SEP, "name"), "name": {"\n": "", "&```": "", "&{": ""}},
                fence=True,
            ),
        ),
        regions=(THINK,),
        drop=_END,
        aliases=("deepseekv3",),
    ),
    Dialect(
        "deepseek_v31",
        "DeepSeek V3.1",
        calls=(
            Calls(
                JsonArgs(),
                section=_SECTION,
                section_close=_SECTION_CLOSE,
                open=_CALL,
                close=_CALL_CLOSE,
                header={"name": dict.fromkeys(_SEP, "")},
                fence=True,
            ),
        ),
        regions=(THINK,),
        drop=_END,
        aliases=("deepseekv31",),
    ),
    _dsml("deepseek_dsml", "DeepSeek V3.2, V4", "｜DSML｜", ("function_calls", "tool_calls")).but(
        aliases=("deepseek_v32", "deepseekv32", "deepseekv4")
    ),
    _dsml("deepseek_v41", "DeepSeek V4.1", "｜DSML｜ ", ("calls", "tool_calls", "function_calls")),
    _dsml("gigachat35", "GigaChat 3.5", "｜GCML｜", ("tool_calls", "function_calls"), ("<|message_sep|>", "</s>")),
)
