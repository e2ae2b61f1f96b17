"""Whatever a server or a file holds, its cost is bounded and everybody else on the event loop gets their turn."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import struct
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from callgate import Agent, Replay, providers, tool
from callgate.errors import BadRequest, ConfigError, EndedEarly, LimitExceeded, ProtocolBroken, ProviderError
from callgate.events import Retrying
from callgate.providers import _body, _gguf
from callgate.providers._served import MAX_RECORD
from callgate.reply import AnswerSize, TurnReader
from callgate.types import CallDelta, Finish, Message, ReasoningDelta, Reply, Request, TextDelta
from loopback import HELLO, Loopback, head, loopback, refusal, say, sse

pytestmark = pytest.mark.anyio

ASK = Request((Message("user", "hi"),))


def model(server: Loopback, **options: Any) -> Any:
    return providers.open(f"{server.url}#m", **{"backoff": 0.01, **options})


async def answer(provider: Any) -> Reply:
    turn = TurnReader()
    try:
        async with provider.stream(ASK) as deltas:
            async for some in deltas:
                turn.feed(some)
    finally:
        await provider.aclose()
    return turn.reply


class Turns:
    """Counts the turns that somebody else on the loop gets."""

    def __init__(self) -> None:
        self.count = 0

    @asynccontextmanager
    async def counted(self) -> AsyncIterator[Turns]:
        async def count() -> None:
            while True:
                self.count += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(count())
        try:
            yield self
        finally:
            task.cancel()


def body(data: bytes, **headers: str) -> list[bytes]:
    return [head(Content_Length=str(len(data)), **headers), data]


# --- the length of an answer --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["content", "reasoning", "calls"])
async def test_an_endless_answer_ends_at_max_answer(kind: str) -> None:
    part: Any = "x" * 1000 if kind != "calls" else [{"name": "f", "arguments": {"text": "x" * 1000}}]
    replies = [{kind: part, "chunks": 50}] * 3
    result = await Agent(Replay(replies), tools=[f], max_answer=400).run("hi")
    assert result.reason == "provider_error"
    assert "max_answer = 400" in str(result.error)
    assert len(result.text) <= 450
    assert ran == []
    fits = await Agent(Replay([{"content": "x" * 400}]), max_answer=400).run("hi")
    assert fits.reason == "answered"


ran: list[str] = []


@tool(effect="write")
def f(text: str) -> str:
    """Writes."""
    ran.append(text)
    return "done"


def test_the_size_of_an_answer_is_that_of_everything_in_it() -> None:
    size = AnswerSize(6)
    parts = [TextDelta("ab"), ReasoningDelta("cd"), CallDelta(0, "c", "f", "ef")]
    assert size.take(parts) is parts
    (end,) = size.take([TextDelta("g"), Finish("stop")])
    assert isinstance(end, Finish)
    assert end.reason == "error"
    assert size.take([]) != [], "and nothing comes after it"


# --- what comes over the wire -------------------------------------------------------------------------------------


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate"])
async def test_a_compressed_answer_is_read(coding: str) -> None:
    data = zlib.compress(HELLO) if coding == "deflate" else gzip.compress(HELLO[:20]) + gzip.compress(HELLO[20:])
    async with loopback(body(data, Content_Encoding=coding)) as server:
        reply = await answer(model(server))
    assert (reply.content, reply.finish) == ("Hello", "stop")
    assert server.asked[0].headers["accept-encoding"] == "identity"


async def test_a_coding_that_nobody_asked_for_is_refused() -> None:
    async with loopback(body(b"???", Content_Encoding="br")) as server:
        with pytest.raises(ProtocolBroken, match="Content-Encoding 'br'"):
            await answer(model(server, retries=0))
    async with loopback(body(b"this is no gzip", Content_Encoding="gzip")) as server:
        assert (await answer(model(server, retries=0))).finish == "interrupted"


async def test_a_compressed_bomb_is_given_up_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some kilobytes that become 40 MB: read in small pieces, with turns for others between, up to the limit."""
    monkeypatch.setattr(_body.Body.__init__, "__defaults__", (8_000_000,))
    bomb = gzip.compress(sse(say(content=""), done=False) * 200_000, 1)
    assert len(bomb) < 500_000
    pieces: list[tuple[int, int]] = []
    read = _body.Body.read
    async with Turns().counted() as turns, loopback(body(bomb, Content_Encoding="gzip")) as server:

        async def noted(self: _body.Body) -> bytes:
            piece = await read(self)
            pieces.append((turns.count, len(piece)))
            return piece

        monkeypatch.setattr(_body.Body, "read", noted)
        reply = await answer(model(server, retries=0))
    assert reply.finish == "error"
    assert "larger than 8000000 bytes" in str(reply.error)
    assert max(size for _, size in pieces) <= _body.MAX_PIECE
    assert sum(size for _, size in pieces) <= 8_000_000
    turn_sizes: dict[int, int] = {}
    for count, size in pieces:
        turn_sizes[count] = turn_sizes.get(count, 0) + size
    assert max(turn_sizes.values()) < 2_000_000, "others get their turn"


@pytest.mark.parametrize("data", [b"data: " + b"x" * (MAX_RECORD + 10), b'{"a": "' + b"x" * (MAX_RECORD + 10)])
@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_one_record_has_a_limit_however_it_is_sent(data: bytes, coding: str) -> None:
    sent = gzip.compress(data, 1) if coding == "gzip" else data
    async with loopback(body(sent, Content_Encoding=coding)) as server:
        reply = await answer(model(server, retries=0))
    assert reply.finish == "error"
    assert f"MAX_RECORD = {MAX_RECORD}" in str(reply.error)


async def test_a_record_of_any_depth_is_an_error_and_no_crash() -> None:
    for opened in (b"[", b'{"a":'):
        for depth in (500, 5_000, 200_000):
            async with loopback(body(b"data: " + opened * depth + b"\n\n")) as server:
                reply = await answer(model(server, retries=0))
            assert reply.finish in ("error", "interrupted")


async def test_a_long_list_of_models_is_given_up() -> None:
    from callgate.providers import _http

    data = json.dumps({"data": [{"id": "x" * 1000}] * 9000}).encode()
    assert len(data) > _http.MAX_BODY
    for coding in ("identity", "gzip"):
        sent = gzip.compress(data, 1) if coding == "gzip" else data
        async with loopback(
            [head(kind="application/json", Content_Length=str(len(sent)), Content_Encoding=coding), sent]
        ) as server:
            provider = model(server, retries=0)
            with pytest.raises(ProviderError, match="MAX_BODY"):
                await provider.catalogue()
            await provider.aclose()


async def test_a_long_page_of_an_error_is_read_in_part() -> None:
    async with loopback(refusal("400 X", b'{"error": "boom"' + b" " * 200_000 + b"}")) as server:
        with pytest.raises(BadRequest):
            await answer(model(server, retries=0))


async def test_a_redirect_is_asked_once_and_told_clearly() -> None:
    """Neither the provider, nor the run, nor another protocol asks again: the address is wrong, not the request."""
    async with loopback(refusal("307 X", b"", Location="https://elsewhere/v1")) as server:
        async with Agent(model(server), tools=[f]) as agent:
            result = await agent.run("hi")
    assert [asked.method for asked in server.asked].count("POST") == 1
    assert result.reason == "provider_error"
    assert "https://elsewhere/v1" in str(result.error)
    assert "base_url" in str(result.error)


async def test_an_answer_that_broke_off_is_asked_for_again_by_the_run_only() -> None:
    """The provider asks once. The run asks again after `Retrying`, and the text before that is void for every view."""
    broken = body(sse(say(content="A half "), done=False))
    async with loopback(broken, body(HELLO)) as server:
        assert (await answer(model(server))).finish == "interrupted"
        assert len(server.asked) == 1
    async with loopback(lambda asked: refusal("404 X", b"") if asked.method == "GET" else next(answers)) as server:
        answers = iter([broken, body(HELLO)])
        shown, void = "", []
        async with Agent(model(server)) as agent, agent.stream("hi") as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    shown += event.text
                elif isinstance(event, Retrying):
                    void, shown = [*void, shown], ""
            result = events.result
    assert void == ["A half "]
    assert shown == result.text == "Hello"
    assert [message.text for message in result.messages if message.role == "assistant"] == ["Hello"]


async def test_the_cost_of_an_answer_is_linear_in_its_length() -> None:
    def seconds(records: int) -> float:
        data = sse(*[say(content="word ")] * records)

        async def once() -> float:
            async with loopback(body(data)) as server:
                begun = time.process_time()
                reply = await answer(model(server))
                assert len(reply.content) == 5 * records
                return time.process_time() - begun

        return asyncio.run(once())

    small = min([await asyncio.to_thread(seconds, 2_000) for _ in range(3)])
    large = min([await asyncio.to_thread(seconds, 16_000) for _ in range(2)])
    assert large < 24 * small + 0.05


# --- GGUF ---------------------------------------------------------------------------------------------------------


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def gguf(*pairs: bytes, count: int | None = None) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs) if count is None else count) + b"".join(pairs)


SOUND = gguf(
    string("general.name") + struct.pack("<I", 8) + string("tiny"),
    string("llama.context_length") + struct.pack("<II", 4, 2048),
    string("tokenizer.ggml.tokens") + struct.pack("<IIQ", 9, 8, 3) + string("a") + string("b") + string("é"),
    string("tokenizer.ggml.scores") + struct.pack("<IIQfff", 9, 6, 3, 0, 1, 2),
    string("tokenizer.chat_template") + struct.pack("<I", 8) + string("{{ messages }}"),
)


def test_the_head_of_a_gguf_is_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(SOUND)
    assert _gguf.metadata(path) == {
        "general.name": "tiny",
        "llama.context_length": 2048,
        "tokenizer.chat_template": "{{ messages }}",
    }


def test_a_damaged_gguf_is_a_config_error(tmp_path: Path) -> None:
    """2,000 mutants: bytes changed, cut, repeated; each is read or refused, and quickly."""
    chance = random.Random(7)
    path = tmp_path / "m.gguf"
    begun = time.process_time()
    for _ in range(2000):
        data = bytearray(SOUND)
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(4, len(data))
            match chance.randrange(3):
                case 0:
                    data[at] = chance.choice([0, 1, 8, 9, 0x7F, 0x80, 0xFF, chance.randrange(256)])
                case 1:
                    del data[at : at + chance.randint(1, 40)]
                case _:
                    data[at:at] = bytes([chance.choice([0, 0xFF])]) * 8
        path.write_bytes(data)
        with suppress(ConfigError):  # and nothing else
            _gguf.metadata(path)
    assert time.process_time() - begun < 10


@pytest.mark.parametrize("count", [2**62, 2**63, 2**64 - 1, 10**9])
@pytest.mark.parametrize("inner", [8, 4, 12, 0])
def test_an_endless_array_in_a_sparse_file_is_refused_at_once(tmp_path: Path, count: int, inner: int) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(string("a") + struct.pack("<IIQ", 9, inner, count), string("b") + struct.pack("<I", 8)))
    with path.open("r+b") as file:
        file.truncate(8 * 1024**3)
    begun = time.process_time()
    with pytest.raises(ConfigError, match=r"m\.gguf"):
        _gguf.metadata(path)
    assert time.process_time() - begun < 1


def test_a_limit_of_a_body_is_an_error_that_names_it() -> None:
    assert issubclass(LimitExceeded, ValueError)
    assert not issubclass(EndedEarly, ValueError)
