"""The heads that models nearly always write before the arguments of a call, as shapes to look ahead for.

Law: a head says nothing that the grammar would not find out; what has another one is read step by step.
(tests/test_dialects_fast.py::test_every_case_is_read_on_the_fast_path_as_on_the_slow_one)
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from callgate.dialects._marks import SPACES, Shape, text_atom

if TYPE_CHECKING:
    from callgate.dialects._spec import JsonItems

_NAME_ATOM: Final = (
    r'"([^\s"\\\x00-\x1f][^"\\\x00-\x1f]{0,255}+)"',
    r'(?:"(?:[^\s"\\\x00-\x1f][^"\\\x00-\x1f]{0,255}+)?)?',
)
_PLAIN_NAME: Final = re.compile(r"[^\s\"\\\x00-\x1f][^\"\\\x00-\x1f]*+")
_KNOWN: Final = 64
"""Names of tools that are searched in one pattern; with more of them an unmarked object is read step by step."""


@lru_cache(maxsize=256)
def item_head(payload: JsonItems, known: frozenset[str] | None = None) -> Shape | None:
    """What nearly all objects that hold a call begin with behind their brace: a name, and then arguments.

    `known`: only these names count.
    """
    name = [_NAME_ATOM]
    if known is not None:
        names = [name for name in known if _PLAIN_NAME.fullmatch(name)]
        if not 0 < len(names) == len(known) <= _KNOWN:
            return None
        name = [text_atom('"'), text_atom(names, group=""), text_atom('"')]
    colon, comma = (SPACES, text_atom(":"), SPACES), (SPACES, text_atom(","), SPACES)
    keys = [text_atom([f'"{key}"' for key in keys]) for keys in (payload.name_keys, payload.args_keys)]
    calm = "" if known else r"[^{}\[\]<\\]*+"
    return Shape(SPACES, keys[0], *colon, *name, *comma, keys[1], *colon, (r"(?=\{)", ""), calm=calm)
