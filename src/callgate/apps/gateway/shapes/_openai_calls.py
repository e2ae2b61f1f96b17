"""The calls of chat completions, as clients put them together and as records hold them.

Law: that of the room (callgate/apps/gateway/__init__.py).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callgate.types import CAME, ToolCall

if TYPE_CHECKING:
    from callgate.apps.gateway.shapes import Value


def call_entry(number: int | None, call: ToolCall) -> Value:
    """One call as an entry of `tool_calls`; with a number it is a delta's."""
    extra = {key: value for key, value in call.extra.items() if key not in (CAME, "function")}
    inner = call.extra.get("function")
    function: Value = {"name": call.name, "arguments": json.dumps(call.arguments, ensure_ascii=False)}
    function |= inner if isinstance(inner, dict) else {}
    head: Value = {} if number is None else {"index": number}
    return {**head, "id": call.id, "type": "function", "function": function, **extra}


def accumulated(records: list[Value]) -> list[tuple[str, str, object]] | None:
    """(id, name, arguments) of the calls as any client puts them together; None: it could not."""
    found: dict[object, list[str]] = {}
    for record in records:
        delta = dict_of(dict_of(list_of(record["choices"])[0]).get("delta"))
        if "function_call" in delta:
            return None
        for entry in map(dict_of, list_of(delta.get("tool_calls"))):
            function, index = dict_of(entry.get("function")), entry.get("index")
            if not isinstance(index, int):
                return None
            call = found.setdefault(index, ["", "", ""])
            for n, part in enumerate((entry.get("id"), function.get("name"), function.get("arguments"))):
                if not isinstance(part, (str, type(None))):
                    return None
                if n < 2 and part and call[n]:  # clients differ: some join names, some take the last
                    return None
                call[n] += part or ""
    if list(found) != list(range(len(found))):
        return None
    return _read([(call[0], call[1], call[2]) for call in found.values()])


def whole_calls(message: Value) -> list[tuple[str, str, object]] | None:
    """The same of a message in one piece."""
    calls = []
    for entry in map(dict_of, list_of(message.get("tool_calls"))):
        function = dict_of(entry.get("function"))
        calls.append((entry.get("id"), function.get("name"), function.get("arguments")))
    return None if message.get("function_call") else _read(calls)


def _read(calls: Sequence[tuple[object, object, object]]) -> list[tuple[str, str, object]] | None:
    out: list[tuple[str, str, object]] = []
    for call_id, name, text in calls:
        try:
            value = json.loads(text) if isinstance(text, str) else None
        except (ValueError, RecursionError):
            return None
        if not (isinstance(call_id, str) and isinstance(name, str) and isinstance(value, dict)):
            return None
        out.append((call_id, name, value))
    return out


def list_of(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def dict_of(value: object) -> Value:
    return value if isinstance(value, dict) else {}
