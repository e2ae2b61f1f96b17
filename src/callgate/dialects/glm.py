"""Keys and values in `<arg_key>` and `<arg_value>`: GLM, iQuest, Hunyuan 3, K2 Horizon, Solar Open 2.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from callgate.dialects._calls import name_as_written
from callgate.dialects._params import tagged_value
from callgate.dialects._spec import THINK, Calls, Dialect, Params, Region
from callgate.dialects._take import Parse, accept, spaces, until

if TYPE_CHECKING:
    from callgate.dialects._params import Body
    from callgate.dialects._reading import Reading

_BREAK = "\\n"
"""A line's end spelt out as two characters."""


def _behind_label(r: Reading, fields: dict[str, str]) -> tuple[str | None, str | None]:
    """A known tool's name behind a label and a slash."""
    name = fields.get("name", "")
    last = name.rpartition("/")[2]
    return name_as_written(r, {**fields, "name": last if name not in r.known and last in r.known else name})


def _typed(r: Reading, body: Body, key: str, kind: str) -> Parse[str | None]:
    """K2 Horizon: a tag between key and value tells the type."""
    yield from spaces(r)
    if (yield from accept(r, r.marks(("<ifm|arg_type>",)))) >= 0:
        closer = r.marks(("</ifm|arg_type>",))
        kind = (yield from until(r, closer)).strip()
        yield from accept(r, closer)
    return (yield from tagged_value(r, body, key, kind))


def _args(prefix: str) -> Params:
    return Params(
        open=(f"<{prefix}arg_key>",),
        key_end=(f"</{prefix}arg_key>",),
        mid=(f"<{prefix}arg_value>",),
        close=(f"</{prefix}arg_value>",),
        blanks=(_BREAK,),
    )


def _plain(outer: str, prefix: str = "") -> Calls:
    payload, close = _args(prefix), f"</{outer}>"
    return Calls(
        payload,
        open=(f"<{outer}>",),
        close=(close,),
        header={"name": {"\n": "", _BREAK: "", f"&{payload.open[0]}": "", f"&{close}": ""}},
        or_items=True,
    )


def _flash(calls: Calls) -> Calls:
    """GLM-5.3-Flash also writes `NAME>{JSON}`, often without a closer, and a label before the name: `Label/NAME`."""
    payload = calls.payload
    assert isinstance(payload, Params)
    header = {"name": {">": "", **calls.header["name"]}}
    return replace(calls, payload=replace(payload, json_body=True), header=header, named=_behind_label)


DIALECTS = (
    Dialect(
        "glm_xml",
        "GLM-4.5/4.6/4.7/5/5.3-Flash, Ling 3, Laguna, Spark 2.5/3, HyperCLOVA X 32B",
        calls=(_flash(_plain("tool_call")),),
        regions=(THINK,),
        drop=("<|user|>", "<|observation|>", "<|endoftext|>", "<|role_end|>", "</assistant>", "<|im_end|>"),
        aliases=("glm", "glm45", "glm47", "glm53_flash", "spark3"),
    ),
    Dialect(
        "iquest",
        "iQuest Q1",
        calls=(_plain("iquest_tool_call"),),
        regions=(THINK,),
        drop=("<|im_end|>",),
    ),
    Dialect(
        "longcat",
        "LongCat-Flash",
        calls=(_plain("longcat_tool_call", "longcat_"),),
        regions=(Region(("<longcat_think>",), ("</longcat_think>",)),),
        drop=("</longcat_s>",),
    ),
    Dialect(
        "hunyuan_v3",
        "Hunyuan 3 (Hy3), Hy4",
        calls=(
            Calls(
                replace(_args(""), blanks=()),
                section=("<tool_calls>",),
                section_close=("</tool_calls>",),
                open=("<tool_call>",),
                close=("</tool_call>",),
                header={"name": {"<tool_sep>": "", "\n": "", "&<arg_key>": "", "&</tool_call>": ""}},
                or_items=True,
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
                    value=_typed,
                    json_body=True,
                ),
                section=("<ifm|tool_calls>",),
                section_close=("</ifm|tool_calls>",),
                open=("<ifm|tool_call>",),
                close=("</ifm|tool_call>",),
                header={"name": {"\n": "", "&{": "", "&<ifm|arg_key>": "", "&</ifm|tool_call>": ""}},
                or_items=True,
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
