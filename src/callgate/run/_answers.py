"""What is read out of an answer before it is judged: its mentions, its ids, its fence.

Law: that of the room (callgate/run/__init__.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from callgate.history import tokens
from callgate.masking import DEFAULT
from callgate.protocols.steps import Query, Turn
from callgate.run._context import SUM_UP
from callgate.types import Message, Reply, Request

if TYPE_CHECKING:
    from callgate.protocols import Transcript
    from callgate.run.inputs import Failed

SERVER_ERROR = 500
REFUSED = frozenset({"BadRequest", "ProtocolBroken"})
"""Failures, beside a 500, that may come from the tools or the schema in a request: servers fall over their own
parsers. Then a protocol without them is tried."""


def blames_the_form(failed: Failed, query: Query | None) -> bool:
    """Whether the request may have failed because of the tools or the schema in it."""
    if failed.kind not in REFUSED and failed.status != SERVER_ERROR:
        return False
    return query is not None and bool(query.request.tools or query.request.schema)


def spent(reply: Reply, query: Query | None, transcript: Transcript) -> int:
    """The tokens of a request and its answer, estimated where the server does not tell."""
    if reply.usage:
        return reply.usage.get("input", 0) + reply.usage.get("output", 0)
    if query is None:
        return 0
    answer = Message("assistant", reply.content, reply.reasoning, tuple(reply.calls))
    return tokens(answer) + transcript.tokens(query.request.messages)


def summary_turn(text: str, options: Mapping[str, object]) -> Turn:
    """Asks the model for a summary; people do not see it being written."""
    messages = (Message("system", SUM_UP), Message("user", text))
    reply = yield Query(Request(messages, options=options), visible=False)
    assert isinstance(reply, Reply)
    return reply


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
