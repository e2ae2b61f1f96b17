"""Marked calls: section, opener, header, payload, closer."""

from __future__ import annotations

from callgate.dialects._items import items
from callgate.dialects._plan import Rule
from callgate.dialects._reading import Hold, Reading
from callgate.dialects._take import Parse


def read_calls(r: Reading, rule: Rule, hold: Hold) -> Parse[bool]:
    """Calls behind a marker that was taken. False: it was no call, and the text was released."""
    assert rule.calls is not None
    return (yield from items(r, rule.calls, hold, set()))
