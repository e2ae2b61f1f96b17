"""The scripted model and recorded streams."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from callgate import Replay, providers, read
from callgate.apps.cli import cli
from callgate.errors import ConfigError, Unreachable
from callgate.providers import Recording
from callgate.reply import TurnReader
from callgate.types import BadCall, CallDelta, Delta, Finish, Message, Request, TextDelta, ToolCall
from loopback import HELLO, chunk, head, loopback, say, sse, stream

pytestmark = pytest.mark.anyio

ASK = Request((Message("user", "hi"),))


async def play(model: Any, request: Request = ASK) -> tuple[Any, list[Delta]]:
    turn, out = TurnReader(), []
    async with model.stream(request) as deltas:
        async for some in deltas:
            out += turn.feed(some)
    assert turn.finished
    return turn.reply, out


async def test_each_request_gets_the_next_reply() -> None:
    model = Replay(["one", {"content": "two", "reasoning": "hm"}])
    assert (await play(model))[0].content == "one"
    reply, _ = await play(model)
    assert (reply.content, reply.reasoning) == ("two", "hm")
    assert model.requests == [ASK, ASK]
    reply, _ = await play(model)
    assert reply.finish == "error"
    assert "no reply left" in (reply.error or "")


async def test_native_calls() -> None:
    calls = [{"name": "f", "arguments": {"a": 1}}, {"name": "g", "arguments": '{"b":', "id": "x"}, {"name": "h"}]
    reply, out = await play(Replay([{"calls": calls}]))
    assert reply.calls == [ToolCall("call_1", "f", {"a": 1}, 0), ToolCall("call_3", "h", {}, 2)]
    assert reply.incomplete == [BadCall(1, "x", "g", '{"b":', "truncated")]
    assert [d.name for d in out if isinstance(d, CallDelta)] == ["f", "g", "h"]


@pytest.mark.parametrize("cut", [1, 3, [2, 1]])
async def test_a_reply_can_be_cut(cut: Any) -> None:
    script = {"content": "hello", "calls": [{"name": "f", "arguments": {"a": 1}}], "chunks": cut}
    reply, out = await play(Replay([script]))
    assert reply == (await play(Replay([{**script, "chunks": None}])))[0]
    assert len([d for d in out if isinstance(d, TextDelta)]) > 1


@pytest.mark.parametrize("finish", ["length", "error", "interrupted", "content_filter"])
async def test_an_unsound_end_makes_calls_incomplete(finish: str) -> None:
    reply, _ = await play(Replay([{"calls": [{"name": "f"}], "finish": finish}]))
    assert (reply.finish, reply.calls, len(reply.incomplete)) == (finish, [], 1)


async def test_an_error_is_the_finish() -> None:
    reply, _ = await play(Replay([{"content": "a", "error": "boom"}]))
    assert (reply.content, reply.finish, reply.error) == ("a", "error", "boom")


async def test_an_exception_is_raised_before_the_first_byte() -> None:
    with pytest.raises(Unreachable):
        await play(Replay([Unreachable("down")]))


async def test_a_function_sees_the_request() -> None:
    reply, _ = await play(Replay([lambda request: request.messages[-1].text.upper()]))
    assert reply.content == "HI"


async def test_bytes_are_read_by_their_wire() -> None:
    model = Replay([HELLO, [HELLO[:9], HELLO[9:]]], wire="openai")
    assert [(await play(model))[0].content for _ in range(2)] == ["Hello", "Hello"]


async def test_delays_are_kept_and_leaving_stops_them() -> None:
    model = Replay([{"content": "abc", "chunks": 1, "delay": 0.02}, {"content": "abc", "chunks": 1, "delay": 60}])
    before = time.monotonic()
    await play(model)
    assert time.monotonic() - before >= 0.08
    async with asyncio.timeout(5):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):
                await play(model)


@pytest.mark.parametrize(
    ("replies", "words"),
    [
        ("text", "must be a list"),
        ([{"contents": "x"}], "contents"),
        ([{"calls": [{"arguments": {}}]}], "a call has name"),
        ([{"finish": "done"}], "there are stop"),
        ([b"data: x"], "wire="),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_in_words(replies: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Replay(replies)


# --- recordings -------------------------------------------------------------------------------------------------------

KEY = "sk-verysecretkey0123456789"


async def record(path: Path, script: list[Any], **options: Any) -> Any:
    async with loopback(script) as server:
        provider = providers.open(f"{server.url}#m", key=KEY, record=path, **options)
        request = Request((Message("user", f"my key is {KEY}"),))
        reply, _ = await play(provider, request)
        await provider.aclose()
    return reply


async def test_a_recording_is_the_stream_byte_for_byte(tmp_path: Path) -> None:
    body = sse(say("Grüße 🚢"), say(finish="stop"))
    pieces = [body[n : n + 7] for n in range(0, len(body), 7)]
    reply = await record(tmp_path / "r.jsonl", stream(*pieces, delay=0.002))
    recording = Recording.load(tmp_path / "r.jsonl")
    assert b"".join(recording.pieces) == body
    assert (recording.wire, recording.model, recording.end) == ("openai", "m", "eof")
    assert len(recording.times) == len(recording.pieces)
    assert read(recording.pieces, wire=recording.wire) == reply
    again, _ = await play(Replay([recording.pieces], wire="openai"))
    assert again == reply


async def test_no_secret_reaches_the_file(tmp_path: Path) -> None:
    await record(tmp_path / "r.jsonl", stream(sse(say(f"you are {KEY}"), say(finish="stop"))))
    assert KEY not in (tmp_path / "r.jsonl").read_text()


async def test_a_broken_stream_is_recorded_as_broken(tmp_path: Path) -> None:
    reply = await record(tmp_path / "r.jsonl", [head(), chunk(sse(say("a"), done=False)), 0.05, "reset"])
    recording = Recording.load(tmp_path / "r.jsonl")
    assert reply.finish == read(recording.pieces, wire="openai").finish == "interrupted"
    assert "connection broke" in recording.end


async def test_a_folder_gets_a_file_a_request(tmp_path: Path) -> None:
    await record(tmp_path, stream(HELLO))
    await record(tmp_path, stream(HELLO))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_recorder_that_was_killed_leaves_a_file_that_loads(tmp_path: Path) -> None:
    head_ = {"callgate": "recording", "version": 1, "wire": "openai", "model": "m", "request": {}}
    path = tmp_path / "r.jsonl"
    path.write_text(json.dumps(head_) + '\n{"at": 0, "text": "data: x"}\n{"at": 0.1, "te')
    assert (Recording.load(path).pieces, Recording.load(path).end) == ((b"data: x",), "cut")


def test_bare_bytes_are_a_recording_too(tmp_path: Path) -> None:
    path = tmp_path / "raw"
    path.write_bytes(HELLO)
    assert Recording.load(path).wire == "openai"
    path.write_bytes(b'{"message":{"content":"x"},"done":true}\n')
    assert Recording.load(path).wire == "ollama"


@pytest.mark.parametrize("chunks", [[], ["--chunks", "1"], ["--chunks", "1000"]])
async def test_the_command_plays_a_recording_the_same_for_every_cut(tmp_path: Path, chunks: list[str]) -> None:
    path = tmp_path / "r.jsonl"
    call = say(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":1}'}}])
    await record(path, stream(sse(say("Hi"), call, say(finish="tool_calls"))))
    result = CliRunner().invoke(cli, ["replay", str(path), *chunks])
    assert result.exit_code == 0, result.output
    reply = json.loads(result.output)
    assert (reply["content"], reply["finish"]) == ("Hi", "tool_calls")
    assert reply["calls"][0]["arguments"] == {"a": 1}
    result = CliRunner().invoke(cli, ["replay", str(path), "--events", *chunks])
    assert json.loads(result.output.splitlines()[-1])["type"] == "finish"


def test_the_command_names_a_file_that_is_not_there(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["replay", str(tmp_path / "nope")])
    assert isinstance(result.exception, ConfigError)
    assert "nope" in str(result.exception)


def test_the_finish_of_a_recording_left_early_is_interrupted() -> None:
    assert read([HELLO[:40]], wire="openai").finish == "interrupted"
    assert isinstance(Finish("stop"), Finish)
