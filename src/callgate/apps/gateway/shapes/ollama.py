"""Ollama's chat API (`/api/chat`), to clients.

Law: what an official client puts together is what was meant, over every backend.
(tests/test_gateway_ollama.py::test_over_chat_completions)

A stream has no place for a comment, so a sign of life is a record with an empty text.
"""

from __future__ import annotations

from callgate.apps.gateway.ask import Ask, Body, ask_of
from callgate.apps.gateway.lane import Outcome
from callgate.apps.gateway.shapes import Head, Make, Value
from callgate.apps.gateway.shapes._ollama_edit import (
    CHAT,
    Editor,
    call_entry,
    ended,
    failure,
    failure_event,
    line,
    texts,
    when,
)
from callgate.formats import ollama as api
from callgate.types import Delta, Message, Reply, Request

__all__ = [
    "editor",
    "failure",
    "failure_event",
    "heartbeat",
    "load",
    "media",
    "name",
    "path",
    "several",
    "whole",
    "wire",
    "writer",
]

name = "ollama"
wire = "ollama"
path = ""
media = "application/x-ndjson"
several = None


def load(body: Body, owner: str = "") -> Ask:
    """What is asked. Without messages nothing is: the model is loaded, or let go."""
    request = api.load_request(body)
    return ask_of(body, request, stream=request.stream, write=_written, idle=not request.messages)


def _written(message: Message) -> list[object]:
    return list(api.build(Request((message,)), "")["messages"])


def heartbeat(head: Head) -> bytes:
    """A record that says nothing."""
    message = {"role": "assistant", "content": ""}
    return line({"model": head.model, "created_at": when(head.created), "message": message, "done": False})


def editor(ask: Ask, make: Make, *, observe: bool = False) -> Editor:
    """Edits the records of a backend of the same API."""
    return Editor(make, observe=observe, tools=tuple(tool.name for tool in ask.request.tools))


class Writer:
    """Writes the records of one answer."""

    def __init__(self, head: Head) -> None:
        self._head: Value = {"model": head.model, "created_at": when(head.created)}

    def _record(self, message: Value) -> bytes:
        return line({**self._head, "message": {"role": "assistant", **message}, "done": False})

    def start(self) -> bytes:
        """Nothing opens an answer here."""
        return b""

    def feed(self, deltas: list[Delta]) -> bytes:
        """Text and reasoning; the API has no place for fragments of a call."""
        return b"".join(map(self._record, texts(deltas, CHAT)))

    def end(self, outcome: Outcome, raw: str | None) -> bytes:
        """The calls, each whole, and the record that is done."""
        out = [self._record({"content": outcome.content})] if outcome.content else []
        for number, call in enumerate(outcome.calls):
            out.append(self._record({"content": "", "tool_calls": [call_entry(number, call)]}))
        message: Value = {"role": "assistant", "content": ""}
        return b"".join([*out, line({**self._head, "message": message, **ended(outcome, raw)})])


def writer(ask: Ask, head: Head) -> Writer:
    """Writes an answer of any other backend."""
    return Writer(head)


def whole(ask: Ask, head: Head, outcome: Outcome, reply: Reply) -> Value:
    """An answer that is not streamed."""
    content = outcome.content if outcome.content is not None else reply.content
    message: Value = {"role": "assistant", "content": content}
    if reply.reasoning:
        message["thinking"] = reply.reasoning
    if outcome.calls:
        message["tool_calls"] = [call_entry(n, call) for n, call in enumerate(outcome.calls)]
    start: Value = {"model": head.model, "created_at": when(head.created), "message": message}
    return {**start, **ended(outcome, reply.raw_finish)}
