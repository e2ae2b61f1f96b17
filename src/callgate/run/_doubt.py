"""Why a person must decide about a write first, although the gate let it through.

Law: while a write is unknown, a further call of its tool asks a person.
(tests/test_run_doubt.py::test_while_a_write_is_unknown_a_further_call_of_its_tool_asks)
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from callgate.history import History
from callgate.run._batch import UNKNOWN, UNKNOWN_WRITE, GateState, Item
from callgate.types import Ask, CallRecord

ARGUMENTS_SHOWN = 200
"""Characters of an open write's arguments that a person is shown."""


def open_write(item: Item, gate: GateState, history: History) -> Ask | None:
    """Why a person must decide first: another write of this tool may have taken effect, and this may be the same
    thing in other words."""
    spec = item.spec
    if spec is None or spec.repeatable or spec.unknown == "same" or item.confirmed:
        return None
    if item.call.name in gate.released:
        return None
    # By tool and not by hash: a model that got "outcome unknown" likes to try the same thing in other words, or one
    # cent more.
    found = next((r for r in gate.writes.values() if _is_open(r, item)), None)
    if found is not None:
        which = f"{found.call.name} {_short_json(found.call.arguments)} (call {found.call.id})"
    elif (earlier := _open_before(item.call.name, gate, history)) is not None:
        which = f"{item.call.name} of an earlier turn (call {earlier})"
    else:
        return None
    why = f"it is not known whether {which} took effect; this call may do the same once more"
    return Ask(UNKNOWN_WRITE, why)


def _open_before(tool: str, gate: GateState, history: History) -> str | None:
    """The id of a write of this tool in the history that the run began with whose outcome is unknown."""
    # The history that the run began with is known only by its messages: their outcome is a flag there.
    here = {record.call.id for record in gate.ordered}
    for message in history.messages:
        if message.unknown and message.name == tool and message.call_id not in here:
            return message.call_id
    return None


def _is_open(record: CallRecord, item: Item) -> bool:
    return record.call.name == item.call.name and record.result.status in UNKNOWN


def _short_json(arguments: Mapping[str, object]) -> str:
    text = json.dumps(arguments, ensure_ascii=False, default=str)
    return text if len(text) <= ARGUMENTS_SHOWN else text[:ARGUMENTS_SHOWN] + "…"
