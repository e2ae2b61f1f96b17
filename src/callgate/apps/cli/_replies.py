"""What `parse` and `replay` print: deltas as they become certain, or the whole reply.

Law: everything is JSON that any tool reads, also where a model wrote half a character.
    (tests/test_parse_cli.py::test_a_lone_surrogate_is_printed_as_an_escape)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from callgate.apps.output import say_json

if TYPE_CHECKING:
    from callgate.types import Delta, Reply


def print_events(deltas: list[Delta], wanted: bool) -> None:
    """Each delta as one line of JSON, if that is wanted."""
    from callgate.events import dump_event

    if wanted:
        for delta in deltas:
            say_json(dump_event(delta))


def print_reply(reply: Reply) -> None:
    """The reply as one JSON object."""
    say_json(_reply(reply), indent=2)


def _reply(reply: Reply) -> dict[str, object]:
    from callgate.events import dump_event

    def dumped(calls: Iterable[object]) -> list[dict[str, Any]]:
        return [{key: value for key, value in dump_event(call).items() if key != "type"} for call in calls]

    data = {field.name: getattr(reply, field.name) for field in fields(reply)}
    return data | {
        "calls": dumped(reply.calls),
        "incomplete": dumped(reply.incomplete),
        "usage": dict(reply.usage) if reply.usage is not None else None,
        "other_choices": {str(choice): dumped(calls) for choice, calls in reply.other_choices.items()},
    }
