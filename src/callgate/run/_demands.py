"""What an answer has to hold: the call that the application demanded, or the one that the model itself announced.

Law: where a call is demanded, no answer without it ends the run as answered.
(tests/test_run_asked.py::test_a_demanded_call_never_ends_as_an_answer)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from callgate.protocols.intentions import announced
from callgate.protocols.texts import TEXTS, spoken
from callgate.schema.mending import mend
from callgate.types import CallDelta, Delta, Reply, TextDelta

if TYPE_CHECKING:
    from callgate.run._state import RunState

NAMES_SHOWN = 10
"""More names of tools than this are no help in a reason."""


def demanded(state: RunState) -> tuple[str, ...]:
    """The tools of which one must be called before anything is answered (`tool_choice`)."""
    choice = state.config.tool_choice
    # Of the first turn only: a model that must call a tool each time could never answer.
    if choice in ("auto", "none") or state.turn or state.asking.finalizing:
        return ()
    return tuple(state.specs) if choice == "required" else tuple(name for name in state.specs if name == choice)


def names_of(state: RunState) -> str:
    """The demanded tools, for a reason."""
    return TEXTS["or"][spoken(state.history.messages)].join(demanded(state)[:NAMES_SHOWN])


def promised(state: RunState, reply: Reply) -> str | None:
    """The tool that the model says it will call now, and has not called in this run; asked about once a run."""
    asking = state.asking
    free = state.protocol == "answer" or asking.finalizing or state.config.tool_choice == "none"
    # A text that was cut off may have gone on to the call.
    if free or asking.reminded or reply.finish == "length" or reply.source is not None:
        return None
    return announced(reply.content, tuple(state.specs), {record.call.name for record in state.finished})


def text_of(deltas: Sequence[Delta]) -> str:
    """What the model wrote in one answer, before anything of it was read."""
    return "".join(
        d.text if isinstance(d, TextDelta) else d.arguments for d in deltas if isinstance(d, (TextDelta, CallDelta))
    )


_FENCE = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)


def unfenced(text: str) -> str:
    """A list or a number is read alone, so the fence around it that models like is taken off here."""
    found = _FENCE.fullmatch(text)
    return text if found is None or "```" in found[1] else found[1]


def unfit(state: RunState, reply: Reply) -> str | None:
    """Why the final answer is not of the wanted form; None: it is, and kept as the run's output, or none is wanted."""
    wanted, accept = state.config.output, state.config.accept
    if wanted is None:
        return None
    # As lenient as for arguments: a fence around the JSON or a trailing comma is no reason for another request.
    mended = mend(unfenced(reply.content), wanted)
    if not mended.ok:
        listed = "; ".join(f"{at or '/'}: {what}" for at, what in mended.errors)
        return listed or TEXTS["no_json"][spoken(state.history.messages)]
    refused = accept(mended.value) if accept is not None else None
    if refused is None:
        state.output = mended.value
    return refused
