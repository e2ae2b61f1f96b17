"""An attack on X1: answers of both wires and of scripts whose end only looks sound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from callgate import Agent, Replay, tool

CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "wipe", "arguments": '{"path": "/a"}'}}
OLLAMA = {"function": {"name": "wipe", "arguments": {"path": "/a"}}}
WORDS = [
    "MAX_TOKENS", "model_length", "model_context_window_exceeded", "preempted", "interrupted", "abort",
    "cancelled", "timeout", "error", "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII",
    "MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "LANGUAGE", "OTHER", "FINISH_REASON_UNSPECIFIED",
    "TOO_MANY_TOOL_CALLS", "refusal", "pause_turn", "repetition", "degenerate", "network_error", "server_error",
    "insufficient_system_resource", "sensitive", "guardrail_intervened", "time_limit", "token_limit",
    "ERROR_TOXIC", "USER_CANCEL", "compliance", "overloaded", "shutdown", "evicted", "incomplete",
    "in_progress", "requires_action", "null", "None", "unknown", "0", "true", "partial", "cutoff", "stopped",
    "kv_cache_full", "budget", "quota", "moderation", "unfinished", "eos_timeout", "stop,length", "stop|abort",
    "stop_error", "tool_calls_limit", "end",
]  # fmt: skip


def runs(body: Any, wire: str | None = None, **options: Any) -> int:
    """How often the write of this first answer runs."""
    paths: list[str] = []

    @tool(effect="write")
    def wipe(path: str) -> str:
        """Deletes a file."""
        paths.append(path)
        return "ok"

    last = {
        None: "Done.",
        "openai": sse(piece({"content": "Done."}), piece({}, "stop")),
        "ollama": said("Done.", "stop"),
    }
    replies: list[Any] = [body, *[last[wire]] * 4]
    Agent(Replay(replies, wire=wire), tools=[wipe], options=options or None).run_sync("Go.")
    return len(paths)


def sse(*records: Any) -> bytes:
    return b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in records) + b"data: [DONE]\n\n"


def piece(delta: dict[str, Any], finish: Any = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, **more}
    return {"id": "x", "object": "chat.completion.chunk", "choices": [choice]}


def said(content: str, reason: Any, calls: Any = (), **more: Any) -> bytes:
    message = {"role": "assistant", "content": content, "tool_calls": list(calls)}
    return json.dumps({"message": message, "done": True, "done_reason": reason, **more}).encode() + b"\n"


@pytest.mark.parametrize("word", WORDS)
def test_no_word_of_a_server_makes_a_cut_answer_whole(word: str) -> None:
    """At the end, with the call, in one body, and on the other wire."""
    whole = {"choices": [{"index": 0, "message": {"content": None, "tool_calls": [CALL]}, "finish_reason": word}]}
    assert runs(sse(piece({"tool_calls": [CALL]}), piece({}, word)), "openai") == 0
    assert runs(sse(piece({"tool_calls": [CALL]}, word)), "openai") == 0
    assert runs(json.dumps(whole).encode(), "openai") == 0
    assert runs(said("", word, [OLLAMA]), "ollama") == 0


@pytest.mark.parametrize("word", [1, True, ["stop"], {"type": "stop"}, 0.5])
def test_a_finish_reason_that_is_no_text_is_not_known_to_be_sound(word: Any) -> None:
    """On both wires."""
    assert runs(sse(piece({"tool_calls": [CALL]}), piece({}, word)), "openai") == 0
    assert runs(said("", word, [OLLAMA]), "ollama") == 0


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"native_finish_reason": "MAX_TOKENS"}, 0),
        ({"native_finish_reason": "abort"}, 0),
        ({"native_finish_reason": "content_filtered"}, 0),
        ({"native_finish_reason": "STOP"}, 1),
        ({"native_finish_reason": "completed"}, 1),
        ({"native_finish_reason": "<|eot|>"}, 1),
        ({"native_finish_reason": None}, 1),
        ({"stop_reason": "max_tokens"}, 0),
        ({"stop_reason": 151645}, 1),
        ({"stop_reason": "</tool_call>"}, 1),
    ],
)
def test_the_model_servers_own_word_counts_beside_a_gateways(more: dict[str, Any], expected: int) -> None:
    """A gateway says `stop` for what it does not know; a word that nobody knows beside it changes nothing."""
    for word in ("stop", "tool_calls"):
        assert runs(sse(piece({"tool_calls": [CALL]}), piece({}, word, **more)), "openai") == expected


def test_tokens_at_the_limit_are_counted_under_every_name() -> None:
    """The request's limit wherever it was set."""
    for usage in ({"completion_tokens": 5}, {"output_tokens": 5}, {"completion_tokens": 5.0}):
        body = sse(piece({"tool_calls": [CALL]}), {**piece({}, "tool_calls"), "usage": usage})
        assert (runs(body, "openai", max_tokens=5), runs(body, "openai", max_completion_tokens=5)) == (0, 0)
        assert runs(body, "openai", max_tokens=6) == 1
    assert runs(said("", "stop", [OLLAMA], eval_count=5), "ollama", max_tokens=5) == 0


def test_a_script_ends_as_its_servers_word_says() -> None:
    """`raw_finish` without `finish`."""
    calls = [{"name": "wipe", "arguments": {"path": "/a"}}]
    assert [runs({"calls": calls, "raw_finish": w}) for w in ("tool_use", "max_tokens", "preempted", "odd")] == [
        1,
        0,
        0,
        0,
    ]
    assert runs({"calls": [{"name": "wipe", "arguments": '{"path": "/a"'}]}) == 0


def test_what_comes_after_the_end_or_an_error_does_not_run() -> None:
    """An error anywhere, a second word that is worse, another choice, calls after `[DONE]`."""
    call, end, error = piece({"tool_calls": [CALL]}), piece({}, "tool_calls"), {"error": {"message": "boom"}}
    assert runs(sse(call, end, error), "openai") == 0
    assert runs(sse(call, error, end), "openai") == 0
    assert runs(sse(call, end, piece({}, "length")), "openai") == 0
    assert runs(sse(call, piece({}, "length"), piece({}, "stop")), "openai") == 0
    assert runs(sse(piece({"content": "a"}, "stop")) + sse(call, end), "openai") == 0
    assert (
        runs(sse(piece({"content": "a"}, "stop"), piece({"tool_calls": [CALL]}, "tool_calls", index=1)), "openai") == 0
    )
    cut = {**CALL, "function": {"name": "wipe", "arguments": '{"path": "/a"'}}
    assert [runs(sse(piece({"tool_calls": [cut]}), piece({}, word)), "openai") for word in ("stop", "tool_calls")] == [
        0,
        0,
    ]
