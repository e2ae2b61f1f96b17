"""What is read out of an answer before it is judged: its mentions, its ids, its fence.

Law: that of the room (callgate/run/__init__.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from callgate.masking import DEFAULT
from callgate.protocols.steps import Query, Turn
from callgate.run._context import SUM_UP
from callgate.types import Message, Reply, Request


def summary_turn(text: str, options: Mapping[str, object]) -> Turn:
    """Asks the model for a summary; people do not see it being written."""
    messages = (Message("system", SUM_UP), Message("user", text))
    reply = yield Query(Request(messages, options=options), visible=False)
    assert isinstance(reply, Reply)
    return reply


_FENCE = re.compile(r"\s*```\w*\n(.*?)\n?```\s*", re.DOTALL)


def unfenced(text: str) -> str:
    """A list or a number is read alone, so the fence around it that models like is taken off here."""
    found = _FENCE.fullmatch(text)
    return text if found is None or "```" in found[1] else found[1]


def spent_thinking(reply: Reply) -> str:
    where = "while the model was still thinking" if reply.reasoning else "before the model had written anything"
    return f"the answer was cut off at the token limit (max_tokens) {where}; raise max_tokens or lower the effort"


def unmentioned(reply: Reply) -> Reply:
    """The reply without the calls that it only mentions (A7). If there are no others, what was written is its text."""
    calls = [call for call in reply.calls if "mentioned" not in call.flags]
    incomplete = [call for call in reply.incomplete if "mentioned" not in call.flags]
    # beside a call that is meant, the quoted ones are part of what the model says
    if calls or incomplete:
        return replace(reply, calls=calls, incomplete=incomplete)
    finish = "stop" if reply.finish == "tool_calls" else reply.finish
    text = reply.content if reply.source is None else reply.source
    return replace(reply, content=text, calls=[], incomplete=[], finish=finish)


def free(name: str, taken: set[str]) -> str:
    """The name, or the first variant of it that is not taken."""
    made, n = name, 1
    while made in taken:
        n += 1
        made = f"{name}_{n}"
    return made


def is_plain(call_id: str) -> bool:
    """Whether a model's id may join entries of the ledger: no secret, and text in every encoding."""
    # The ledger does not mask ids, since calls are found by them: one that looks like a secret must not get in as an
    # id.
    return call_id.isascii() and not DEFAULT.mask(call_id)[1]
