"""The chat completions API, to clients.

Law: a record of a backend of the same API goes on as it came, with only what was mended changed.
(tests/test_gateway_openai.py::test_unknown_fields_of_records_survive)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from callgate.apps.gateway.ask import Ask, Body, ask_of
from callgate.apps.gateway.lane import Outcome
from callgate.apps.gateway.shapes import Failure, Head, Make, Value
from callgate.apps.gateway.shapes._openai_calls import call_entry, dict_of, list_of
from callgate.apps.gateway.shapes._openai_edit import Editor
from callgate.apps.gateway.shapes._openai_records import dumps, finish_word, sse
from callgate.formats import openai as api
from callgate.types import CallDelta, Delta, Message, Reply, Request

name = "openai"
wire = "openai"
path = ""
media = "text/event-stream; charset=utf-8"

KINDS: Mapping[str, str] = {
    "invalid_request": "invalid_request_error",
    "authentication": "authentication_error",
    "permission": "permission_error",
    "not_found": "invalid_request_error",
    "too_large": "invalid_request_error",
    "rate_limit": "rate_limit_error",
    "overloaded": "server_error",
    "upstream": "upstream_error",
    "timeout": "timeout_error",
    "internal": "server_error",
    "stopped": "server_error",
}


def load(body: Body, owner: str = "") -> Ask:
    """What is asked."""
    request = api.load_request(body)
    return ask_of(body, request, stream=request.stream, write=_written)


def _written(message: Message) -> list[object]:
    return list(api.build(Request((message,)), "")["messages"])


def heartbeat(head: Head) -> bytes:
    """A comment (HTML, 9.2.6): no client sees it."""
    return b": callgate\n\n"


def editor(ask: Ask, make: Make, *, observe: bool = False) -> Editor:
    """Edits the records of a backend of the same API."""
    return Editor(make, observe=observe, tools=tuple(tool.name for tool in ask.request.tools))


class Writer:
    """Writes the chunks of one answer."""

    def __init__(self, ask: Ask, head: Head, *, choice: int = 0, last: bool = True) -> None:
        """`last`: with its end the stream is over."""
        self._choice = choice
        self._last = last
        self._head: Value = {
            "id": f"chatcmpl-{head.id}",
            "object": api.CHUNK,
            "created": head.created,
            "model": head.model,
        }
        self._dumper = api.Dumper(model=head.model, id=f"chatcmpl-{head.id}", created=head.created)
        options = ask.body.get("stream_options")
        self._usage = isinstance(options, Mapping) and bool(options.get("include_usage"))
        self._begun: set[int] = set()

    def start(self) -> bytes:
        """The role: the first byte does not wait for the first token."""
        return _frame(self._chunk({"role": "assistant", "content": ""}))

    def feed(self, deltas: list[Delta]) -> bytes:
        """Text, reasoning and live calls."""
        self._begun.update(delta.index for delta in deltas if isinstance(delta, CallDelta))
        records = self._dumper.feed(deltas)
        if self._choice:
            records = [_of_choice(record, self._choice) for record in records]
        return b"".join(map(_frame, records))

    def end(self, outcome: Outcome, raw: str | None) -> bytes:
        """The calls, the finish, the end of the stream."""
        records: list[Value] = []
        if outcome.content:
            records.append(self._chunk({"content": outcome.content}))
        for number, call in enumerate(outcome.calls):
            if call.index not in self._begun:
                records.append(self._chunk({"tool_calls": [call_entry(number, call)]}))
        last = self._chunk({}, finish_word(outcome, raw))
        records.append(last)
        if self._usage and self._last:
            last = {**self._head, "choices": [], "usage": api.dump_usage(outcome.usage or {})}
            records.append(last)
        if note := outcome.note():
            last["callgate"] = note
        return b"".join(map(_frame, records)) + (api.END if self._last else b"")

    def _chunk(self, delta: Value, finish: str | None = None) -> Value:
        return {**self._head, "choices": [{"index": self._choice, "delta": delta, "finish_reason": finish}]}


def _of_choice(record: Mapping[str, object], choice: int) -> Value:
    return {**record, "choices": [{**dict_of(entry), "index": choice} for entry in list_of(record.get("choices"))]}


class _Several:
    """`n` answers."""

    def writer(self, ask: Ask, head: Head, *, choice: int, of: int) -> Writer:
        """Writes one of them."""
        return Writer(ask, head, choice=choice, last=choice == of - 1)

    def joined(self, values: Sequence[Value]) -> Value:
        """The last one, which has counted all tokens, with the choices of all."""
        numbered = [_of_choice(value, choice) for choice, value in enumerate(values)]
        notes = {f"choice {n}": value["callgate"] for n, value in enumerate(values) if "callgate" in value}
        out = {**values[-1], "choices": [entry for value in numbered for entry in list_of(value["choices"])]}
        return {**out, "callgate": notes} if notes else out


several = _Several()


def _frame(value: Mapping[str, object]) -> bytes:
    return sse(dumps(value))


def writer(ask: Ask, head: Head) -> Writer:
    """Writes an answer of any other backend."""
    return Writer(ask, head)


def whole(ask: Ask, head: Head, outcome: Outcome, reply: Reply) -> Value:
    """An answer that is not streamed."""
    content = outcome.content if outcome.content is not None else reply.content
    message: Value = {"role": "assistant", "content": content or (None if outcome.calls else "")}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if outcome.calls:
        message["tool_calls"] = [call_entry(None, call) for call in outcome.calls]
    choice = {"index": 0, "message": message, "finish_reason": finish_word(outcome, reply.raw_finish)}
    out: Value = {
        "id": f"chatcmpl-{head.id}",
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [choice],
        "usage": api.dump_usage(outcome.usage or {}),
    }
    if note := outcome.note():
        out["callgate"] = note
    return out


def failure(problem: Failure) -> Value:
    """The body of an error."""
    error = {
        "message": problem.message,
        "type": KINDS.get(problem.kind, "server_error"),
        "param": problem.param,
        "code": problem.code or (problem.kind if problem.kind in ("rate_limit", "stopped") else None),
    }
    return {"error": error}


def failure_event(problem: Failure, value: Value | None = None) -> bytes:
    """An error after the first byte of a stream; no [DONE] follows it."""
    return sse(dumps(failure(problem) if value is None else value))
