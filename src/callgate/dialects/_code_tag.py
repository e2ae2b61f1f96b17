"""Llama's code marker, `<|python_tag|>`: a JSON call, a built-in tool's call, or raw code.

Law: text becomes one string argument, to the character.
(tests/test_dialects.py::test_case_of_a_dialect)

Two families write it, Llama and Functionary, so it stands beside neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from callgate.dialects._ends import after_call, closers_of, resync
from callgate.dialects._items import Block, items
from callgate.dialects._marks import marks
from callgate.dialects._plain import code_tool, raw_text
from callgate.dialects._plan import MarkerRule
from callgate.dialects._python import keywords
from callgate.dialects._spec import Calls, JsonItems, Literals
from callgate.dialects._take import WORD, Broken, Cut, Parse, accept, peek, until

if TYPE_CHECKING:
    from callgate.dialects._reading import LookAhead, Reading

_DOT_CALL: Final = marks((".call(",))


def python_tag(r: Reading, rule: MarkerRule, hold: LookAhead) -> Parse[bool]:
    """Behind Llama's code marker: a JSON call, a built-in's `name.call(key="value")`, or raw code."""
    calls = rule.calls
    assert calls is not None
    own = r.hold(r.pos)
    here = yield from peek(r)
    if here == "{":
        r.unhold(own)
        return (yield from items(r, Block(r, Calls(JsonItems(), open=calls.open), set()), hold))
    try:
        name = (yield from until(r, _DOT_CALL, shape=WORD)).strip()
        yield from accept(r, _DOT_CALL)
    except (Broken, Cut):
        begun = r.unhold(own)
        r.commit(hold)
        r.open_call(None if here == "" else code_tool(r))
        if here == "":
            r.drop_call("truncated", begun)
            return True
        yield from raw_text(r, closers_of(r, calls), "code", begun)
    else:
        r.unhold(own)
        r.commit(hold)
        r.open_call(name)
        try:
            yield from keywords(r, Literals())
        except Cut:
            r.drop_call("truncated")
            return True
        except Broken:
            yield from resync(r, calls)
            return True
    yield from accept(r, closers_of(r, calls))
    yield from after_call(r, calls)
    return True
