"""Sarashina: calls are Python dictionaries.

Law: that of the room (callgate/dialects/__init__.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from callgate.dialects._calls import repeated
from callgate.dialects._ends import resync
from callgate.dialects._items import Block, between, items, opened
from callgate.dialects._literals import PYTHON, value
from callgate.dialects._spec import ARGS_KEYS, NAME_KEYS, Calls, Dialect, JsonItems
from callgate.dialects._take import Broken, Cut, Parse
from callgate.jsonstream import load_object

if TYPE_CHECKING:
    from callgate.dialects._plan import MarkerRule
    from callgate.dialects._reading import LookAhead, Reading


def _list(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """Each dictionary is read whole: its keys tell only together what they are."""
    assert rule.calls is not None
    block = Block(r, rule.calls, set())
    yield from repeated(r, r.marks(rule.calls.open), block.flags)
    if (yield from opened(r, block)) != "{":
        return (yield from items(r, block, hold))  # an empty list, or none at all
    r.commit(hold)
    while (yield from _one(r, block)) and (yield from between(r, block)):
        pass
    return True


def _one(r: Reading, block: Block) -> Parse[bool]:
    """One dictionary. False: what follows it is unknown."""
    parts: list[str] = []
    try:
        yield from value(r, PYTHON, parts.append)
    except Cut:
        r.open_call(None, None, block.flags)
        r.drop_call("truncated", "".join(parts))
        return False
    except Broken:
        r.open_call(None, None, block.flags)
        return (yield from resync(r, block.calls, "".join(parts)[1:], listed=block.listed))
    written = "".join(parts)
    item = load_object(written) or {}
    name = next((item[key] for key in NAME_KEYS if isinstance(item.get(key), str)), None)
    arguments = next((item[key] for key in ARGS_KEYS if key in item), None)
    call = r.open_call(name, None, block.flags)
    if name is None:
        r.drop_call("malformed", written)
    else:
        call.complete = True
        r.fragment(json.dumps({} if arguments is None else arguments, ensure_ascii=False))
    return True


DIALECTS = (
    Dialect(
        "sarashina",
        "Sarashina 2.2 and later",
        calls=(Calls(JsonItems(several=False), open=("<|tool_calls|>",), read=_list),),
        drop=("</s>", "<|im_end|>"),
    ),
)
