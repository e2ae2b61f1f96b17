"""What the word matcher alone would call: `routed` for a tiny model, whose every choice is the first that is offered.

Law: no model is asked, so the difference to the model's own share is what the model adds.
(tests/test_evals.py::test_what_words_alone_get_right_asks_no_model)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from callgate import protocols
from callgate.types import ModelInfo, Reply, ToolCall

if TYPE_CHECKING:
    from callgate.evals._cases import Case

TINY = ModelInfo("none-135m", context_length=8192, capabilities=frozenset({"schema"}))
"""Stands for a model that is asked in the small steps of `routed`."""
_BLANK: Mapping[str, object] = {"string": "", "integer": 0, "number": 0, "boolean": False, "array": (), "null": None}
"""What stands for a value that words do not decide: nothing that could be right by skill."""


def by_words(case: Case) -> list[ToolCall]:
    """The calls of the first turn of a case, as far as words decide."""
    turn = protocols.turn("routed", history=case.messages, tools=case.tools, info=TINY)
    tool, answer = "", None
    try:
        while True:
            match step := turn.send(answer):
                case protocols.Chosen(tools=chosen):
                    tool, answer = (chosen[0] if chosen else ""), None
                case protocols.Query():
                    answer = _answer(step, tool)
    except StopIteration as stop:
        reply: Reply = stop.value
        return reply.calls


def _answer(query: protocols.Query, tool: str) -> Reply:
    if query.purpose != "arguments" or query.request.schema is None:
        return Reply(content="-", finish="stop")
    arguments = _first(query.request.schema)
    assert isinstance(arguments, dict)
    return Reply(calls=[ToolCall("call_1", tool, arguments, 0)], finish="tool_calls")


def _first(schema: Mapping[str, object]) -> object:
    """The first value that a schema offers."""
    if isinstance(options := schema.get("enum"), list):
        return options[0]
    if isinstance(ways := schema.get("anyOf"), list):
        return _first(ways[0])
    if schema.get("type") == "object":
        properties = schema.get("properties")
        needed = schema.get("required")
        names = needed if isinstance(needed, list) else []
        return {n: _first(s) for n, s in properties.items() if n in names} if isinstance(properties, Mapping) else {}
    kind = schema.get("type")
    blank = _BLANK.get(kind if isinstance(kind, str) else "")
    return list(blank) if isinstance(blank, tuple) else blank
