"""The records of chat completions: what stands in them, and how they are written.

Law: that of the room (callgate/apps/gateway/__init__.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from callgate.apps.gateway.lane import Lane, Outcome
from callgate.apps.gateway.shapes import Value, encoded
from callgate.apps.gateway.shapes._openai_calls import call_entry, dict_of, list_of, whole_calls
from callgate.formats import openai as api
from callgate.types import CallDelta, Delta, ReasoningDelta, Reply, TextDelta

FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
"""The finish reasons that clients of this API know."""
REASONING = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
CALLS = ("tool_calls", "function_call")
MOST_CHOICES = 128
"""That the API allows (`n`)."""
WITHHELD = "content_filter"
"""The API's word for an answer of which something was left out: no client takes it for a whole one."""


def dumps(value: Mapping[str, object]) -> str:
    """JSON as short as servers write it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def sse(data: str) -> bytes:
    """One event of one line."""
    return encoded(f"data: {data}\n\n")


def finish_word(outcome: Outcome, raw: str | None) -> str:
    """The finish reason in the words of this API; the server's own, if it is one of them and true."""
    if outcome.withheld and (outcome.live or not outcome.calls):
        return WITHHELD
    if outcome.finish == "stop" and raw in ("stop", "function_call"):
        return "stop"
    if outcome.finish in FINISHES:
        return outcome.finish
    return "stop" if outcome.finish not in ("error", "interrupted") else "length"


def whole_choice(entry: Value, lane: Lane, outcome: Outcome) -> Value:
    """One choice of an answer in one piece, with only what was mended changed."""
    message = dict_of(entry.get("message"))
    out = _whole_message(message, lane.reply, outcome)
    word = finish_word(outcome, lane.reply.raw_finish)
    given = entry.get("finish_reason")
    legacy = given == "function_call" and word in ("tool_calls", "stop")
    changed = {"finish_reason": word} if not legacy and outcome.renamed(given, word) else {}
    return {**entry, **({} if out == message else {"message": out}), **changed}


def _whole_message(message: Value, reply: Reply, outcome: Outcome) -> Value:
    """The message with the text, the reasoning and the calls that go out."""
    out = dict(message)
    content = outcome.content if outcome.content is not None else reply.content
    if content != (message.get("content") or ""):
        out["content"] = content or (None if outcome.calls else "")
    key = _reasoning_key(message)
    if reply.reasoning and reply.reasoning != message.get(key) and "reasoning_details" not in message:
        out[key] = reply.reasoning
    if whole_calls(message) != [(c.id, c.name, c.arguments) for c in outcome.calls]:
        out.pop("tool_calls", None)
        out.pop("function_call", None)
        if outcome.calls:
            out["tool_calls"] = [call_entry(None, call) for call in outcome.calls]
    return out


def _reasoning_key(delta: Value) -> str:
    """The name that the server has for reasoning."""
    return next((key for key in REASONING if delta.get(key)), REASONING[0])


def ordinary(value: object, event: str) -> tuple[Value, Value, Value] | None:
    """(the record, its choice, its delta) if it is more of the only choice and nothing else; else None."""
    if type(value) is not dict or event or value.get("usage") or value.get("error"):
        return None
    choices = value.get("choices")
    choice = choices[0] if type(choices) is list and len(choices) == 1 else None
    if type(choice) is not dict or choice.get("index") != 0 or choice.get("finish_reason") is not None:
        return None
    delta = choice.get("delta")
    if type(delta) is not dict or choice.get("error") or _is_in_parts(delta):
        return None
    return value, choice, delta


def _is_in_parts(delta: Value) -> bool:
    """Whether the content is no text but a list of parts, as Mistral writes it: clients of this API join texts."""
    return type(delta.get("content")) not in (str, type(None))


def number_of(entry: Value) -> int:
    """The number of a choice."""
    index = entry.get("index")
    return index if isinstance(index, int) and 0 <= index < MOST_CHOICES else 0


def with_delta(value: Value, entry: Value) -> tuple[Value, Value]:
    """The record and its choice with a delta, whatever came in its place."""
    if "delta" not in entry and isinstance(message := entry.get("message"), dict):  # `stream` was not heeded
        left = {key: part for key, part in entry.items() if key != "message"}
        return {**value, "object": api.CHUNK}, left | {"delta": _numbered(message)}
    if entry.get("delta", {}) is None:  # clients look into it
        entry = {**entry, "delta": {}}
        return {**value, "choices": [entry]}, entry
    return value, entry


def _numbered(message: Value) -> Value:
    """A whole message as a delta: its calls have numbers."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    return {**message, "tool_calls": [{"index": n, **dict_of(call)} for n, call in enumerate(calls)]}


def contents(records: list[Value]) -> str:
    texts = (dict_of(dict_of(list_of(r["choices"])[0]).get("delta")).get("content") for r in records)
    return "".join(text if isinstance(text, str) else "" for text in texts)


def with_part(value: Value, entry: Value, delta: Value) -> Value:
    """The record with this delta in it."""
    return {**value, "choices": [{**entry, "delta": delta}]}


def live_entries(visible: Sequence[Delta]) -> list[object]:
    """Fragments of calls as entries of `tool_calls`."""
    out: list[object] = []
    for d in visible:
        if isinstance(d, CallDelta):
            named: Value = {"id": d.id, "type": "function"} if d.name is not None else {}
            function: Value = {"name": d.name} if d.name is not None else {}
            out.append({"index": d.index, **named, "function": {**function, "arguments": d.arguments}})
    return out


def same(deltas: list[Delta], visible: list[Delta]) -> bool:
    """Whether the client may see exactly this."""
    return len(deltas) == len(visible) and (not deltas or deltas == visible)


def _text(deltas: Sequence[Delta], kind: type[TextDelta] | type[ReasoningDelta]) -> str:
    return "".join(d.text for d in deltas if isinstance(d, kind))


def changed(delta: Value, deltas: list[Delta], seen: list[Delta]) -> list[Value]:
    """The delta with this text and reasoning in it, in as many records as their order needs."""
    texts = [d for d in seen if isinstance(d, (TextDelta, ReasoningDelta))]
    content, thought = _text(texts, TextDelta), _text(texts, ReasoningDelta)
    parts = _is_in_parts(delta)
    if parts or content != _text(deltas, TextDelta):
        delta["content"] = content
    if (parts and thought) or thought != _text(deltas, ReasoningDelta):
        delta[_reasoning_key(delta)] = thought
    kinds = [type(d) for d in texts]
    if thought and content and kinds.index(TextDelta) < len(kinds) - 1 - kinds[::-1].index(ReasoningDelta):
        first: Value = {**delta, "content": "", REASONING[0]: ""}
        rest: list[Value] = [{"content" if isinstance(d, TextDelta) else REASONING[0]: d.text} for d in texts]
        return [first, *rest]
    return [delta]


def says_something(delta: Value) -> bool:
    return any(part not in (None, "", []) for part in delta.values())


def live(value: Value, entry: Value, kept: Value, read: tuple[list[Delta], list[Delta]]) -> list[str]:
    """The record with those fragments of calls that may be seen."""
    deltas, visible = read
    if [d for d in deltas if isinstance(d, CallDelta)] == visible:
        return [dumps(value)]
    parts: list[Value] = [*changed(kept, deltas, visible), {"tool_calls": live_entries(visible)}]
    return [dumps(with_part(value, entry, part)) for part in parts if says_something(part)]
