"""What `parse` and `replay` print: deltas as they become certain, or the whole reply.

One law: everything is JSON that any tool reads, also where a model wrote half a character.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from callgate.types import Delta, Reply


def print_events(deltas: list[Delta], wanted: bool) -> None:
    """Each delta as one line of JSON, if that is wanted."""
    from callgate.events import dump_event

    if wanted:
        for delta in deltas:
            click.echo(_json(dump_event(delta)))


def print_reply(reply: Reply) -> None:
    """The reply as one JSON object."""
    click.echo(_json(_reply(reply), indent=2))


def _reply(reply: Reply) -> dict[str, Any]:
    from callgate.events import dump_event

    def dumped(calls: Iterable[Any]) -> list[dict[str, Any]]:
        return [{key: value for key, value in dump_event(call).items() if key != "type"} for call in calls]

    data = {field.name: getattr(reply, field.name) for field in fields(reply)}
    return data | {
        "calls": dumped(reply.calls),
        "incomplete": dumped(reply.incomplete),
        "usage": dict(reply.usage) if reply.usage is not None else None,
        "other_choices": {str(choice): dumped(calls) for choice, calls in reply.other_choices.items()},
    }


def _json(value: Any, indent: int | None = None) -> str:
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # half a surrogate pair, which a model can write, has no UTF-8: escape it again
        return json.dumps(value, indent=indent)
    return text
