"""Calls as the text of a dialect of one's own: what its data says how to read, it also says how to write.

Law: what is written for a dialect of one's own is read back by it as the same calls.
(tests/test_dialects_own.py::test_what_is_written_in_own_tags_is_read_back)
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable

from callgate.dialects import Calls, Dialect, JsonArgs, JsonItems, Params
from callgate.protocols._write import Write
from callgate.types import ToolCall

One = Callable[[ToolCall], str]


@functools.lru_cache(maxsize=64)
def own_writer(dialect: Dialect) -> Write | None:
    """What writes calls in this dialect; None: its data does not say how (functions read it, or Python's syntax). The
    same each time, so that what a run has written of its conversation stays written."""
    for calls in dialect.calls:
        if (one := _one(calls)) is not None:
            return _several(one, calls)
    return None


def _several(one: One, calls: Calls) -> Write:
    # Without a section each call stands on a line of its own, as models write them.
    if not calls.section:
        return lambda found: "\n".join(map(one, found))
    before, after = calls.section[0], calls.section_close[0] if calls.section_close else ""
    return lambda found: before + "".join(map(one, found)) + after


def _one(calls: Calls) -> One | None:
    """One call between its opener and its closer."""
    if not calls.open or calls.read is not None or calls.arguments is not None or calls.named is not None:
        return None
    inner = _inner(calls)
    if inner is None:
        return None
    before, after = calls.open[0], calls.close[0] if calls.close else ""
    return lambda call: before + inner(call) + after


def _inner(calls: Calls) -> One | None:
    payload = calls.payload
    if isinstance(payload, JsonItems):
        name, arguments = payload.name_keys[0], payload.args_keys[0]
        return lambda call: _json({name: call.name, arguments: call.arguments})
    mark = _end_of_name(calls)
    if mark is None:
        return None
    if isinstance(payload, JsonArgs):
        return lambda call: call.name + mark + _json(call.arguments)
    if isinstance(payload, Params) and not payload.attributes and payload.value is None:
        return lambda call: call.name + mark + "".join(_param(payload, k, v) for k, v in call.arguments.items())
    return None


def _end_of_name(calls: Calls) -> str | None:
    """What stands between a name and its arguments; None: more than that."""
    if set(calls.header) != {"name"} or calls.attributes:
        return None
    ends = [mark for mark, following in calls.header["name"].items() if following == ""]
    # A mark with "&" belongs to what follows and is written there.
    return next(("" if mark.startswith("&") else mark for mark in ends), None)


def _param(payload: Params, key: str, value: object) -> str:
    text = value if isinstance(value, str) else _json(value)
    mid = payload.mid[0] if payload.mid else ""
    return payload.open[0] + key + payload.key_end[0] + mid + text + payload.close[0]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
