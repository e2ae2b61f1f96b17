"""What is not known to be a sound end is unsound (X1): words of servers, spent budgets, what comes after the end."""

from __future__ import annotations

import json
import random
import string
from typing import Any

import pytest

from callgate import Agent, Replay, Reply, read, tool
from callgate.formats import output_limit
from callgate.formats._ends import reason_of
from callgate.types import EMPTY, SOUND, Request

LENGTH = ["length", "max_tokens", "MAX_TOKENS", "model_length", "model_context_window_exceeded", "context_exceeded",
          "context_length_exceeded", "max_output_tokens", "token_limit", "max_length", "truncated"]  # fmt: skip
INTERRUPTED = ["interrupted", "preempted", "eviction", "evicted", "pause_turn", "not_finished", "time_limit"]
SOUND_WORDS = ["stop", "STOP", "end_turn", "stop_sequence", "eos", "eos_token", "tool_calls", "tool_use",
               "function_call", "complete", "COMPLETED"]  # fmt: skip
CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "post", "arguments": '{"text": "a"}'}}


def strange_words(n: int = 60) -> list[str]:
    """Words that no server has yet, seeded; some are near to known ones."""
    rng = random.Random(20)
    made = ["".join(rng.choices(string.ascii_lowercase + "_", k=rng.randint(2, 14))) for _ in range(n)]
    near = ["stopp", "stop.", "stopped_early", "tool_calls_partial", "endturn?", "none", "null", "unknown", "other"]
    return near + [word for word in made if reason_of(word) == ("interrupted", False)]


def sse(*records: Any, after: tuple[Any, ...] = ()) -> bytes:
    texts = [*map(json.dumps, records), "[DONE]", *map(json.dumps, after)]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "choices": [choice], **more}


def usage(output: int) -> dict[str, Any]:
    return {
        "object": "chat.completion.chunk",
        "choices": [],
        "usage": {"prompt_tokens": 3, "completion_tokens": output},
    }


def openai(delta: dict[str, Any], word: str, output: int | None = None) -> bytes:
    return sse(chunk(delta), chunk({}, word), *([] if output is None else [usage(output)]))


def ollama(message: dict[str, Any], word: str, *after: dict[str, Any]) -> bytes:
    head = {"role": "assistant", "content": "", **message}
    records = [{"message": head, "done": False}, {"message": {"role": "assistant", "content": ""}, "done": True,
               "done_reason": word, "prompt_eval_count": 3, "eval_count": 7}, *after]  # fmt: skip
    return "".join(json.dumps(record) + "\n" for record in records).encode()


OLLAMA_CALL = {"tool_calls": [{"function": {"name": "post", "arguments": {"text": "a"}}}]}


def posted(replies: list[Any], wire: str = "openai", **options: Any) -> tuple[list[str], Any, Replay]:
    """What a write did, the run's result, and the model."""
    ran: list[str] = []

    @tool(effect="write")
    def post(text: str) -> str:
        """Posts."""
        ran.append(text)
        return "posted"

    model = Replay(replies, wire=wire)
    agent = Agent(model, tools=[post], options=options or EMPTY, protocol="native")
    return ran, agent.run_sync("Post it."), model


def both(call: bool, word: str) -> list[Reply]:
    return [
        read(openai({"tool_calls": [CALL]} if call else {"content": "Hi."}, word), wire="openai"),
        read(ollama(OLLAMA_CALL if call else {"content": "Hi."}, word), wire="ollama"),
    ]


@pytest.mark.parametrize("word", [*strange_words(), *INTERRUPTED])
def test_an_unknown_word_is_no_sound_end(word: str) -> None:
    """On both wires: interrupted, the server's word kept, and no call counts."""
    for reply in both(True, word):
        assert (reply.finish, reply.raw_finish, reply.calls) == ("interrupted", word, [])
        assert [bad.reason for bad in reply.incomplete] == ["unsound_end"]
    if word not in INTERRUPTED:
        assert all(repr(word) in " ".join(reply.problems) for reply in both(True, word))


@pytest.mark.parametrize("word", LENGTH)
def test_words_for_length_are_length(word: str) -> None:
    """Then every call is cut off."""
    assert [(reply.finish, reply.calls) for reply in both(True, word)] == [("length", [])] * 2


@pytest.mark.parametrize("word", SOUND_WORDS)
def test_words_for_a_plain_end_are_sound(word: str) -> None:
    """No real server's calls are lost."""
    assert [(reply.finish, len(reply.calls)) for reply in both(True, word)] == [("tool_calls", 1)] * 2
    assert [reply.finish for reply in both(False, word)] == ["stop", "stop"]


def test_every_word_of_whatever_case_has_one_meaning() -> None:
    """Nothing but the listed words is sound."""
    for word in strange_words(400):
        assert reason_of(word)[0] not in SOUND, word
        assert reason_of(word) == reason_of(f" {word.upper()} ")


@pytest.mark.parametrize("word", ["unknown", "preempted", "model_context_window_exceeded", "banana"])
def test_a_write_under_such_an_end_never_runs(word: str) -> None:
    """It is asked for once more, and runs then, once."""
    ran, result, model = posted([openai({"tool_calls": [CALL]}, word), openai({"content": "Done."}, "stop")])
    assert (ran, result.reason, len(model.requests)) == ([], "answered", 2)


@pytest.mark.parametrize("wire", ["openai", "ollama"])
def test_an_answer_in_words_under_an_unknown_word_is_accepted_at_once(wire: str) -> None:
    """With a problem, and without asking again."""
    reply = openai({"content": "Hi."}, "banana") if wire == "openai" else ollama({"content": "Hi."}, "banana")
    ran, result, model = posted([reply], wire)
    assert (ran, result.reason, result.text, len(model.requests)) == ([], "answered", "Hi.", 1)
    assert any("'banana'" in problem for problem in result.problems)


@pytest.mark.parametrize("word", ["stop", "tool_calls"])
@pytest.mark.parametrize(("output", "runs"), [(9, 1), (10, 0), (11, 0), (None, 1)])
def test_calls_of_an_answer_that_used_up_its_tokens_are_cut_off(word: str, output: int | None, runs: int) -> None:
    """Counted against the request's limit, whatever the server calls the end."""
    answer = openai({"content": "Done."}, "stop", 2)
    ran, result, _ = posted([openai({"tool_calls": [CALL]}, word, output), answer], max_tokens=10)
    assert len(ran) == runs
    assert result.reason == "answered"


def test_words_at_the_limit_are_an_answer() -> None:
    """Only calls are in doubt."""
    _, result, model = posted([openai({"content": "Hi."}, "stop", 10)], max_tokens=10)
    assert (result.reason, result.text, len(model.requests)) == ("answered", "Hi.", 1)


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_completion_tokens": 8, "max_tokens": 7}, 7),
        ({"num_predict": -1}, None),
    ],
)
def test_the_limit_is_the_one_that_the_request_sets(options: dict[str, Any], limit: int | None) -> None:
    """By whatever name."""
    assert output_limit(Request((), options=options)) == limit


def test_what_comes_after_done_is_dropped_and_named() -> None:
    """Calls, text and reasoning; usage still counts."""
    late = (chunk({"tool_calls": [{**CALL, "index": 1, "id": "c2"}]}), chunk({"content": "More."}), usage(5))
    reply = read(sse(chunk({"tool_calls": [CALL]}), chunk({}, "tool_calls"), after=late), wire="openai")
    assert ([call.id for call in reply.calls], reply.content, reply.usage) == (["c1"], "", {"input": 3, "output": 5})
    assert any("after [DONE]" in problem for problem in reply.problems)
    alone = read(sse(chunk({}, "stop"), after=(chunk({"tool_calls": [CALL]}, "tool_calls"),)), wire="openai")
    assert (alone.calls, alone.incomplete) == ([], [])


def test_nothing_odd_is_named_after_a_usual_done() -> None:
    """Usage and empty records after it are the habit of some servers."""
    reply = read(sse(chunk({"content": "Hi."}), chunk({}, "stop"), after=(usage(5), chunk({}))), wire="openai")
    assert (reply.content, reply.usage, reply.problems) == ("Hi.", {"input": 3, "output": 5}, [])


def test_what_comes_after_ollamas_last_record_is_dropped_and_named() -> None:
    """Calls and text; counts still count."""
    late = {"message": {"role": "assistant", "content": "More.", **OLLAMA_CALL}, "done": False}
    counted = {"message": {"role": "assistant", "content": ""}, "done": True, "prompt_eval_count": 3, "eval_count": 9}
    reply = read(ollama({"content": "Hi."}, "stop", late, counted), wire="ollama")
    assert (reply.content, reply.calls, reply.usage) == ("Hi.", [], {"input": 3, "output": 9})
    assert any("after the record that is done" in problem for problem in reply.problems)
    plain = b'{"model":"m","created_at":"x","message":{"role":"assistant","content":"More."},"done":false}\n'
    assert read(ollama({"content": "Hi."}, "stop") + plain, wire="ollama").content == "Hi."
