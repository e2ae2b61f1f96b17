"""Apertus: the name is the key of the arguments, `{NAME: {…}}`.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._calls import repeated
from callgate.dialects._items import Block, items
from callgate.dialects._json import Item, arguments_of
from callgate.dialects._spec import Calls, Dialect, JsonItems, Region
from callgate.dialects._take import Broken, Parse

if TYPE_CHECKING:
    from callgate.dialects._plan import MarkerRule
    from callgate.dialects._reading import LookAhead, Reading


class _NameIsKey(Item):
    """The first key of an object is the tool, its value the arguments."""

    __slots__ = ()

    usual = False

    def member(self, r: Reading, key: str, *, wrapped: bool) -> Parse[None]:
        if self.name is not None:
            return self.other_member(r, key)
        if not key.strip():
            raise Broken
        self.name = key
        return arguments_of(r, self)


def _list(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    assert rule.calls is not None
    block = Block(r, rule.calls, set())
    block.item = _NameIsKey
    yield from repeated(r, r.marks(rule.calls.open), block.flags)
    return (yield from items(r, block, hold))


DIALECTS = (
    Dialect(
        "apertus",
        "Apertus 2509",
        calls=(Calls(JsonItems(), open=("<|tools_prefix|>",), close=("<|tools_suffix|>",), read=_list),),
        regions=(Region(("<|inner_prefix|>",), ("<|inner_suffix|>",)),),
        drop=("<|assistant_end|>",),
    ),
)
