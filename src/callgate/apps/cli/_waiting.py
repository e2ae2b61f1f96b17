"""Calls that wait for a person, by our own short numbers.

Law: a number means one call of a run for ever, and no text of a model stands in a command line that we print.
    (tests/test_output.py::test_the_hint_of_a_waiting_run_is_read_back_as_it_was_given)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from callgate.apps.output import name, one_line, say, shell
from callgate.apps.wording import call_text
from callgate.errors import LedgerError

if TYPE_CHECKING:
    from callgate.agent import RunResult
    from callgate.apps.cli._options import Given
    from callgate.ledger import Ledger
    from callgate.types import Entry

SHOWN = 3
"""Waiting calls that are named in an error."""


def numbers(entries: Sequence[Entry]) -> dict[str, str]:
    """Number -> call id, in the order in which the run asked: a later question never changes an earlier number."""
    asked = dict.fromkeys(entry.data["call_id"] for entry in entries if entry.kind == "ask")
    return {str(number): call_id for number, call_id in enumerate(asked, 1)}


def still(entries: Sequence[Entry]) -> dict[str, str]:
    """Number -> call id of the calls that wait for an answer now."""
    done = {e.data["call_id"] for e in entries if e.kind in {"answer", "call_result"}}
    return {number: call_id for number, call_id in numbers(entries).items() if call_id not in done}


def answers(entries: Sequence[Entry], decided: Mapping[str, bool]) -> dict[str, bool]:
    """Call id -> decision, where people gave numbers (or ids). Raises LedgerError for what does not wait."""
    waiting = still(entries)
    found = {}
    for word, allow in decided.items():
        call_id = waiting.get(word, word)
        if call_id not in waiting.values():
            names = ", ".join(list(waiting)[:SHOWN]) or "nothing"
            raise LedgerError(f"call {word}: it does not wait for an answer; waiting: {names}")
        found[call_id] = allow
    return found


async def hint(result: RunResult, given: Given, ledger: Ledger) -> list[str]:
    """What waits, a line each, and the command that goes on."""
    known = {call_id: number for number, call_id in numbers(await ledger.read(result.run_id)).items()}
    lines, yes = [], list[str]()
    for place, pending in enumerate(result.pending, 1):
        number = known.get(pending.id, str(place))
        what = f"{one_line(pending.name, 80)} {call_text(pending.call)}"
        lines.append(f"{number}: {what}: {one_line(pending.reason, 200)} ({name(pending.rule)})")
        yes += ["--yes", number]
    line = shell("callgate", "runs", "resume", result.run_id, *yes, *given.words())
    return [*lines, f"to go on: {line}", "to decline a call: --no instead of --yes"]


def print_hint(lines: Sequence[str]) -> None:
    """On stderr, whole: a command is not cut."""
    for line in lines:
        say(f"callgate: {line}", err=True)
