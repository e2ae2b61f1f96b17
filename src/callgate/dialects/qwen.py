"""Tagged parameters in `<function=…>`: Qwen3-Coder and its many followers, Seed-OSS.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from callgate.dialects._params import tagged_value
from callgate.dialects._spec import THINK, Calls, Dialect, Params, Region
from callgate.dialects._values import Value

if TYPE_CHECKING:
    from callgate.dialects._json import Sink
    from callgate.dialects._params import Body
    from callgate.dialects._reading import Reading
    from callgate.dialects._take import Parse

_ENTITY_LIMIT: Final = 7
"""Characters of the longest entity that is read."""
_ENTITY: Final = re.compile(r"&(?:amp|lt|gt|quot|apos|#39|#x27|#34);")
_ENTITIES: Final = {
    "&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&#39;": "'", "&#x27;": "'", "&#34;": '"',
}  # fmt: skip


class _Escaped(Value):
    """MiMo's template writes values as in HTML; its own text is unescaped before it is looked at."""

    __slots__ = ("_cut",)

    def __init__(self, sink: Sink, allowed: frozenset[str], *, trim: str = "none") -> None:
        super().__init__(sink, allowed, trim=trim)
        self._cut = ""
        """An entity's beginning."""

    def text(self, text: str) -> None:
        text = self._cut + text
        at = text.rfind("&", max(0, len(text) - _ENTITY_LIMIT))
        at = at if at >= 0 and ";" not in text[at:] else len(text)
        self._cut = text[at:]
        super().text(_unescaped(text[:at]))
        if self._cut and self.carry:  # something follows the newline, so it is not the one before the closer
            self.carry = ""
            self._sink("\\n")

    @property
    def streams(self) -> bool:
        return False

    def end(self) -> None:
        super().text(self._cut)
        super().end()


def _unescaped(text: str) -> str:
    return _ENTITY.sub(lambda match: _ENTITIES[match.group()], text)


def _escaped(r: Reading, body: Body, key: str, kind: str) -> Parse[str | None]:
    return tagged_value(r, body, key, kind, _Escaped)


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
        calls=(_calls("tool_call", replace(_PARAMETER, value=_escaped)),),
    ),
    DIALECTS[0].but(
        models="MiniCPM-V (its reserved tokens are dropped)",
        aliases=("minicpmv", "minicpm_v"),
        drop=(*DIALECTS[0].drop, *(f"<{bar}reserved_{n}{bar}>" for n in range(12, 16) for bar in ("|", ""))),
    ),
)
"""The same dialect as some models bend it, found by alias only."""
