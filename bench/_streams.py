"""Streams for the wire's benchmark, to the byte as servers write them (no spaces), cut as a network cuts."""

from __future__ import annotations

import json
import random
from typing import Any

WORDS = [
    "The",
    "tide",
    "at",
    "Hull",
    "turns",
    "at",
    "nine,",
    "so",
    "the",
    "ferry",
    "leaves",
    "early;",
    "港口",
    "closes",
    "at",
    "noon.",
    "",
]
ARGUMENTS = json.dumps({"city": "Kingston upon Hull", "days": 3, "units": "metric", "note": "for the ferry at nine"})


compact = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def openai_text(count: int) -> list[dict[str, Any]]:
    """`count` chunks of text and the end, with the fields that OpenAI sends."""
    return [_chunk({"content": WORDS[n % len(WORDS)] + " "}) for n in range(count)] + [_chunk({}, "stop"), _usage()]


def openai_call(count: int) -> list[dict[str, Any]]:
    """A call in `count` fragments and the end."""
    size = -(-len(ARGUMENTS) // count)
    pieces = [ARGUMENTS[n : n + size] for n in range(0, len(ARGUMENTS), size)]
    head = {"index": 0, "id": "call_abc", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    deltas: list[Any] = [{"role": "assistant", "content": None, "tool_calls": [head]}]
    deltas += [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    return [_chunk(delta) for delta in deltas] + [_chunk({}, "tool_calls"), _usage()]


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-C1a2b3c4d5e6f7g8h9i0",
        "object": "chat.completion.chunk",
        "created": 1_764_400_000,
        "model": "some-model-2026-01-01",
        "service_tier": "default",
        "system_fingerprint": "fp_0123456789",
        "choices": [choice],
        "usage": None,
    }


def _usage() -> dict[str, Any]:
    counts = {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150}
    return {**_chunk({}), "choices": [], "usage": counts}


def sse(records: list[dict[str, Any]]) -> bytes:
    """The records as an event stream with its end."""
    return "".join(f"data: {compact(r)}\n\n" for r in records).encode() + b"data: [DONE]\n\n"


def ollama(count: int) -> bytes:
    """A stream of Ollama's: `count` records of text, a call, the end."""
    head = {"model": "qwen3", "created_at": "2026-01-01T00:00:00.123456789Z"}
    texts = [
        {**head, "message": {"role": "assistant", "content": WORDS[n % len(WORDS)]}, "done": False}
        for n in range(count)
    ]
    call = {"function": {"name": "get_weather", "arguments": json.loads(ARGUMENTS)}}
    end = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 9, "total_duration": 5}
    records = [*texts, {**head, "message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False}]
    records.append({**head, "message": {"role": "assistant", "content": ""}, **end})
    return "".join(compact(record) + "\n" for record in records).encode()


def pieces_of(body: bytes, seed: int = 1) -> list[bytes]:
    """The bytes in pieces of 1 to 256."""
    rng, out, at = random.Random(seed), [], 0
    while at < len(body):
        size = rng.randint(1, 256)
        out.append(body[at : at + size])
        at += size
    return out


def records_of(body: bytes) -> list[bytes]:
    """The bytes in pieces of one record each, as most servers flush."""
    end = b"\n\n" if body.startswith(b"data") else b"\n"
    return [piece + end for piece in body.split(end) if piece]
