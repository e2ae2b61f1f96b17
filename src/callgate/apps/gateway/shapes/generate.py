"""Ollama's `/api/generate`, to clients: one prompt, one text.

Law: what an official client puts together is what was meant, over every backend.
(tests/test_gateway_ollama.py::test_a_prompt_over_chat_completions)

A backend of another API is sent the prompt as a message. `raw`, `suffix`, `template` and `context` are words for
Ollama's own prompt, which other backends do not have: they are named as left out.
"""

from __future__ import annotations

from callgate.apps.gateway.ask import Ask, Body, ask_of
from callgate.apps.gateway.lane import Outcome
from callgate.apps.gateway.shapes import Head, Make, Value
from callgate.apps.gateway.shapes._ollama_edit import GENERATE, Editor, ended, failure, failure_event, line, texts, when
from callgate.formats import ollama as api
from callgate.types import Delta, Reply

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

name = "generate"
wire = "ollama"
path = "/api/generate"
media = "application/x-ndjson"
several = None


def load(body: Body, owner: str = "") -> Ask:
    """What is asked. Without a prompt nothing is: the model is loaded, or let go."""
    request = api.load_request(body)
    return ask_of(body, request, stream=request.stream, idle=not request.messages)


def heartbeat(head: Head) -> bytes:
    """A record that says nothing."""
    return line({"model": head.model, "created_at": when(head.created), "response": "", "done": False})


def editor(ask: Ask, make: Make, *, observe: bool = False) -> Editor:
    """Edits the records of an Ollama backend."""
    return Editor(make, observe=observe, tools=(), place=GENERATE)


class Writer:
    """Writes the records of one answer."""

    def __init__(self, head: Head) -> None:
        self._head: Value = {"model": head.model, "created_at": when(head.created)}

    def start(self) -> bytes:
        """Nothing opens an answer here."""
        return b""

    def feed(self, deltas: list[Delta]) -> bytes:
        """Text and reasoning."""
        return b"".join(line({**self._head, **text, "done": False}) for text in texts(deltas, GENERATE))

    def end(self, outcome: Outcome, raw: str | None) -> bytes:
        """The record that is done."""
        out = line({**self._head, "response": outcome.content, "done": False}) if outcome.content else b""
        return out + line({**self._head, "response": "", **ended(outcome, raw)})


def writer(ask: Ask, head: Head) -> Writer:
    """Writes an answer of any other backend."""
    return Writer(head)


def whole(ask: Ask, head: Head, outcome: Outcome, reply: Reply) -> Value:
    """An answer that is not streamed."""
    content = outcome.content if outcome.content is not None else reply.content
    thought: Value = {"thinking": reply.reasoning} if reply.reasoning else {}
    start: Value = {"model": head.model, "created_at": when(head.created), "response": content}
    return {**start, **thought, **ended(outcome, reply.raw_finish)}
