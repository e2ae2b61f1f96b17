"""Anthropic's Messages API, to clients.

Law: one block is closed before the next opens, whatever the backend's order was.
(tests/test_gateway_anthropic.py::test_one_block_is_closed_before_the_next_opens)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from callgate.apps.gateway.ask import Ask, Body, ask_of
from callgate.apps.gateway.lane import Outcome
from callgate.apps.gateway.shapes import Failure, Head, Make, Value
from callgate.apps.gateway.shapes._anthropic_edit import TEXT, THINKING, Editor, event, stop_word, tool_use
from callgate.formats import anthropic as api
from callgate.types import CallDelta, Delta, Finish, Message, Reply, Request, TextDelta

name = "anthropic"
wire = "anthropic"
path = ""
media = "text/event-stream; charset=utf-8"
several = None

KINDS: Mapping[str, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "not_found_error",
    "too_large": "request_too_large",
    "rate_limit": "rate_limit_error",
    "overloaded": "overloaded_error",
    "stopped": "overloaded_error",
}


def load(body: Body, owner: str = "") -> Ask:
    """What is asked."""
    request = api.load_request(body)
    ask = ask_of(body, request, stream=request.stream)
    given = body.get("messages")
    if not ask.notes or not isinstance(given, list):
        return ask
    return replace(ask, body={**body, "messages": _mended(given, request.messages, ask.request.messages)})


def _mended(given: Sequence[object], before: Sequence[Message], after: Sequence[Message]) -> list[object]:
    """The entries up to the first that had to be mended as they came, the rest anew: one entry may be several
    messages."""
    same = next(
        (n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after))
    )
    at = next((n for n, message in enumerate(before) if message.role != "system"), len(before))
    kept = 0
    for entry in given:
        size = len(api.load_request({"messages": [entry]}).messages)
        if at + size > same:
            break
        at, kept = at + size, kept + 1
    rest = api.build(Request(tuple(after[at:])), "")["messages"] if at < len(after) else []
    return [*given[:kept], *rest]


def heartbeat(head: Head) -> bytes:
    """The API's own sign of life."""
    return event({"type": "ping"})


def editor(ask: Ask, make: Make, *, observe: bool = False) -> Editor:
    """Edits the events of a backend of the same API."""
    return Editor(make, observe=observe, tools=tuple(tool.name for tool in ask.request.tools))


class Writer:
    """Writes the events of one answer."""

    def __init__(self, head: Head) -> None:
        self._dumper = api.Dumper(model=head.model, id=f"msg_{head.id}", created=head.created)
        self._begun: set[int] = set()

    def start(self) -> bytes:
        """The head of the message."""
        return b"".join(map(event, self._dumper.start()))

    def feed(self, deltas: list[Delta]) -> bytes:
        """Text, reasoning and live calls."""
        self._begun.update(delta.index for delta in deltas if isinstance(delta, CallDelta))
        return b"".join(map(event, self._dumper.feed(deltas)))

    def end(self, outcome: Outcome, raw: str | None) -> bytes:
        """The calls, each a block, and the end of the message."""
        last: list[Delta] = [TextDelta(outcome.content)] if outcome.content else []
        for number, call in enumerate(outcome.calls):
            last.append(call if call.index in self._begun else replace(call, index=_place(number, self._begun)))
        records = self._dumper.feed([*last, Finish("stop", outcome.usage)])
        note = outcome.note()
        for record in records:
            if record["type"] == "message_delta":
                record["delta"]["stop_reason"] = stop_word(outcome, raw)
                if note:
                    record["callgate"] = note
        return b"".join(map(event, records))


def _place(number: int, begun: set[int]) -> int:
    """A number that no live call has."""
    return number if not begun else max(begun) + 1 + number


def writer(ask: Ask, head: Head) -> Writer:
    """Writes an answer of any other backend."""
    return Writer(head)


def whole(ask: Ask, head: Head, outcome: Outcome, reply: Reply) -> Value:
    """An answer that is not streamed."""
    content = outcome.content if outcome.content is not None else reply.content
    blocks: list[Value] = [{**THINKING, "thinking": reply.reasoning}] if reply.reasoning else []
    if content:
        blocks.append({**TEXT, "text": content})
    out: Value = {
        "id": f"msg_{head.id}",
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [*blocks, *map(tool_use, outcome.calls)],
        "stop_reason": stop_word(outcome, reply.raw_finish),
        "stop_sequence": None,
        "usage": api.dump_usage(outcome.usage) or {"input_tokens": 0, "output_tokens": 0},
    }
    note = outcome.note()
    return {**out, "callgate": note} if note else out


def failure(problem: Failure) -> Value:
    """The body of an error."""
    kind = KINDS.get(problem.kind, "api_error")
    return {"type": "error", "error": {"type": kind, "message": problem.message}}


def failure_event(problem: Failure, value: Value | None = None) -> bytes:
    """An error after the first byte of a stream."""
    return event({"type": "error", **(failure(problem) if value is None else value)})
