"""`<invoke name="…">` and named parameters: MiniMax M2, dots, Step3, MiniCPM5.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._params import tagged_value
from callgate.dialects._spec import THINK, Calls, Dialect, Params
from callgate.dialects._take import Cut, Parse, accept, peek
from callgate.dialects._values import Value

if TYPE_CHECKING:
    from callgate.dialects._params import Body
    from callgate.dialects._reading import Reading

_TAG = {"name": {">": "", "/>": ""}}


def _cdata(r: Reading, body: Body, key: str, kind: str) -> Parse[str | None]:
    """MiniCPM5 puts what its template calls unsafe into a CDATA section, in which no tag counts."""
    if (yield from accept(r, r.marks(("<![CDATA[",), plain=True))) < 0:
        return (yield from tagged_value(r, body, key, kind))
    body.key(r, key)
    value = Value(r.fragment, body.types(key, kind))
    ending = r.marks(("]]>",), plain=True)
    while True:
        which, start, end = ending.find(r.buf, r.pos, r.over)
        value.text(r.buf[r.pos : start])
        r.pos = start
        if which >= 0:
            break
        if r.over:
            raise Cut
        yield
    r.pos = end
    yield from peek(r)
    yield from accept(r, body.marks.param_close)
    value.end()
    return None


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
                attributes=True,
                known=True,
            ),
        ),
        regions=(THINK,),
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
                attributes=True,
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
                attributes=True,
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
                Params(open=("<param",), close=("</param>",), attributes=True, value=_cdata),
                open=("<function",),
                close=("</function>",),
                header=_TAG,
                attributes=True,
            ),
        ),
        regions=(THINK,),
        drop=("<|im_end|>",),
    ),
)
