"""Cohere: Command R's `Action:` list, Command R7B's and Command A's tokens.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from callgate.dialects._calls import repeated
from callgate.dialects._items import Block, items
from callgate.dialects._json import Item
from callgate.dialects._spec import Calls, Dialect, JsonItems, Region

if TYPE_CHECKING:
    from callgate.dialects._plan import MarkerRule
    from callgate.dialects._reading import LookAhead, Reading
    from callgate.dialects._take import Parse


class _Action(Item):
    """Command R's template lists a tool for answering without one."""

    __slots__ = ()

    usual = False

    @property
    def nothing(self) -> bool:
        return self.name in ("directly-answer", "directly_answer")


def _actions(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    assert rule.calls is not None
    block = Block(r, rule.calls, set())
    block.item = _Action
    yield from repeated(r, r.marks(rule.calls.open), block.flags)
    return (yield from items(r, block, hold))


DIALECTS = (
    Dialect(
        "cohere_action",
        "Command R7B, Command A, Command A Reasoning, North Code",
        calls=(Calls(JsonItems(), open=("<|START_ACTION|>",), close=("<|END_ACTION|>",)),),
        regions=(Region(("<|START_THINKING|>",), ("<|END_THINKING|>",)),),
        drop=(
            "<|START_RESPONSE|>",
            "<|END_RESPONSE|>",
            "<|START_TEXT|>",
            "<|END_TEXT|>",
            "<|END_OF_TURN_TOKEN|>",
        ),
    ),
    Dialect(
        "command_r_plus",
        "Command R / R+",
        calls=(
            Calls(
                JsonItems(several=False),
                open=("Action:",),
                line=True,
                fence=True,
                read=_actions,
            ),
        ),
        drop=("<|END_OF_TURN_TOKEN|>",),
    ),
)
