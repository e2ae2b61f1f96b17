"""OpenAI's Responses API, to clients.

Law: a response that is named as the previous one is continued, over every backend and only by who got it.
(tests/test_gateway_responses.py::test_a_response_is_continued)

No backend needs to have stored anything: what was asked and answered is kept here, up to `kept_responses` of them, and
goes out with the next request.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace

from callgate.apps.gateway.ask import Ask, Body, ask_of
from callgate.apps.gateway.lane import Outcome
from callgate.apps.gateway.shapes import Failure, Head, Value, encoded
from callgate.errors import InvalidRequest
from callgate.formats import responses as api
from callgate.types import CallDelta, Delta, Finish, FinishReason, ReasoningDelta, Reply, TextDelta

ECHOED = (
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
)
"""Fields of a request that the API repeats in its answer."""
KINDS: Mapping[str, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "invalid_request_error",
    "too_large": "invalid_request_error",
    "rate_limit": "rate_limit_error",
}


class Kept:
    """Responses that may be continued, the last ones only."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: OrderedDict[tuple[str, str], list[object]] = OrderedDict()

    def put(self, owner: str, id: str, items: list[object]) -> None:
        """What was asked and answered until this response."""
        self._items[owner, id] = items
        while len(self._items) > self._limit:
            self._items.popitem(last=False)

    def get(self, owner: str, id: str) -> list[object] | None:
        """The same; None: it is not kept (any more), or was another's."""
        return self._items.get((owner, id))


class Responses:
    """The shape; one for each gateway, because responses are kept."""

    name = "responses"
    wire = ""
    """No backend's events are edited: every answer is written anew, also that of a backend of this API."""
    path = ""
    media = "text/event-stream; charset=utf-8"
    several = None

    def __init__(self, limit: int) -> None:
        self.kept = Kept(limit)

    def load(self, body: Body, owner: str = "") -> Ask:
        """What is asked, with what was asked and answered before."""
        whole = dict(body)
        if (previous := whole.get("previous_response_id")) is not None:
            earlier = self.kept.get(owner, previous) if isinstance(previous, str) else None
            if earlier is None:
                words = f"no response {str(previous)[:80]!r} is kept here (any more)"
                raise InvalidRequest("previous_response_id", words)
            whole["input"] = [*earlier, *_items(body)]
        request = api.load_request({k: v for k, v in whole.items() if k not in ("previous_response_id", "store")})
        return replace(ask_of(whole, request, stream=request.stream), owner=owner)

    def heartbeat(self, head: Head) -> bytes:
        """A comment (HTML, 9.2.6): no client sees it."""
        return b": callgate\n\n"

    def writer(self, ask: Ask, head: Head) -> Writer:
        """Writes an answer of any backend."""
        return Writer(ask, head, self.kept)

    def whole(self, ask: Ask, head: Head, outcome: Outcome, reply: Reply) -> Value:
        """An answer that is not streamed."""
        made = Writer(ask, head, self.kept)
        content = outcome.content if outcome.content is not None else reply.content
        before: list[Delta] = [ReasoningDelta(reply.reasoning)] if reply.reasoning else []
        made.records([*before, *([TextDelta(content)] if content else [])])
        outcome = replace(outcome, content=None)
        response = made.records(made.last(outcome, reply.raw_finish))[-1]["response"]
        return made.noted(response if isinstance(response, dict) else {}, outcome)

    def failure(self, problem: Failure) -> Value:
        """The body of an error."""
        kind = KINDS.get(problem.kind, "server_error")
        code = problem.code or (problem.kind if problem.kind in ("rate_limit", "stopped") else None)
        return {"error": {"message": problem.message, "type": kind, "param": problem.param, "code": code}}

    def failure_event(self, problem: Failure, value: Value | None = None) -> bytes:
        """An error after the first byte of a stream. The official client raises what has an `error`; others look at the
        type of the event."""
        error = self.failure(problem)["error"]
        fields = error if isinstance(error, dict) else {}
        return _event({**fields, "type": "error", "error": error})


class Writer:
    """Writes the events of one answer."""

    def __init__(self, ask: Ask, head: Head, kept: Kept) -> None:
        self._ask = ask
        self._id = f"resp_{head.id}"
        self._kept = kept
        self._dumper = api.Dumper(model=head.model, id=self._id, created=head.created)
        self._echo = {name: ask.body[name] for name in ECHOED if ask.body.get(name) is not None}
        self._begun: set[int] = set()

    def start(self) -> bytes:
        """The head of the response."""
        return b"".join(map(_event, map(self._echoed, self._dumper.start())))

    def feed(self, deltas: list[Delta]) -> bytes:
        """Text, reasoning and live calls."""
        self._begun.update(delta.index for delta in deltas if isinstance(delta, CallDelta))
        return b"".join(map(_event, self.records(deltas)))

    def records(self, deltas: list[Delta]) -> list[Value]:
        """The events for these deltas."""
        return [self._echoed(record) for record in self._dumper.feed(deltas)]

    def _echoed(self, record: Value) -> Value:
        response = record.get("response")
        return {**record, "response": {**response, **self._echo}} if isinstance(response, dict) else record

    def last(self, outcome: Outcome, raw: str | None) -> list[Delta]:
        """The calls and the end, as deltas."""
        out: list[Delta] = [TextDelta(outcome.content)] if outcome.content else []
        for number, call in enumerate(outcome.calls):
            place = number if not self._begun else max(self._begun) + 1 + number  # one that no live call has
            out.append(call if call.index in self._begun else replace(call, index=place))
        return [*out, Finish(_reason(outcome), outcome.usage, raw)]

    def end(self, outcome: Outcome, raw: str | None) -> bytes:
        """The calls, each an item, and the end of the response."""
        *records, last = self.records(self.last(outcome, raw))
        response = last["response"]
        noted = self.noted(response if isinstance(response, dict) else {}, outcome)
        return b"".join(map(_event, [*records, {**last, "response": noted}]))

    def noted(self, response: Value, outcome: Outcome) -> Value:
        """The whole response, with what was mended; it is kept."""
        output = response.get("output")
        if self._ask.body.get("store") is not False and isinstance(output, list):
            self._kept.put(self._ask.owner, self._id, [*_items(self._ask.body), *output])
        note = outcome.note()
        return {**response, "callgate": note} if note else response


def _reason(outcome: Outcome) -> FinishReason:
    """How the response ended; one that was cut is incomplete, and so is one of which something was kept back."""
    if outcome.withheld and (outcome.live or not outcome.calls):
        return "content_filter"
    return "length" if outcome.finish in ("error", "interrupted") else outcome.finish


def _items(body: Body) -> list[object]:
    """The input as items."""
    given = body.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    return list(given) if isinstance(given, list) else []


def _event(value: Mapping[str, object]) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return encoded(f"event: {value.get('type')}\ndata: {text}\n\n")
