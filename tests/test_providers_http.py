"""The HTTP client against a server that cuts, stalls, drops, resets and lies."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from typing import Any

import pytest

from callgate import Agent, Reply, errors, providers
from callgate.reply import TurnReader
from callgate.types import Message, Request
from loopback import HELLO, Loopback, chunk, head, loopback, refusal, say, sse, stream
from patience import busy

pytestmark = pytest.mark.anyio

ASK = Request((Message("user", "hi"),))
KEY = "sk-verysecretkey0123456789"
CALL = sse(say(tool_calls=[{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":1}'}}]), done=False)


def model(server: Loopback, **options: Any) -> Any:
    return providers.open(f"{server.url}#m", **{"backoff": 0.01, "key": KEY, **options})


async def answer(provider: Any, request: Request = ASK) -> Reply:
    turn = TurnReader()
    try:
        async with provider.stream(request) as deltas:
            async for some in deltas:
                turn.feed(some)
    finally:
        await provider.aclose()
    assert turn.finished
    return turn.reply


async def failure(provider: Any) -> errors.ProviderError:
    with pytest.raises(errors.ProviderError) as caught:
        await answer(provider)
    assert KEY not in str(caught.value)
    return caught.value


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
async def test_the_cuts_of_the_network_do_not_matter(size: int) -> None:
    pieces = [HELLO[n : n + size] for n in range(0, len(HELLO), size)]
    async with loopback(stream(*pieces)) as server:
        reply = await answer(model(server))
    assert (reply.content, reply.finish, reply.problems) == ("Hello", "stop", [])
    (asked,) = server.asked
    assert (asked.method, asked.path, asked.json["model"]) == ("POST", "/v1/chat/completions", "m")
    assert asked.headers["authorization"] == f"Bearer {KEY}"


async def test_an_address_may_have_a_query() -> None:
    async with loopback(stream(HELLO)) as server:
        provider = providers.open(f"{server.url}/?api-version=1#m")
        await answer(provider)
    assert server.asked[0].path == "/v1/chat/completions?api-version=1"


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://example.org/v1", "http://proxy:3128"),
        ("http://127.0.0.1:1/v1", None),
        ("http://localhost:1/v1", None),
        ("http://inside.example/v1", None),
    ],
)
def test_the_environments_proxy_is_used_but_not_for_this_machine(
    url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://proxy:3128")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "inside.example")
    assert providers.open(f"{url}#m").client._proxy == proxy  # type: ignore[attr-defined]
    assert providers.open(f"{url}#m", proxy="").client._proxy is None  # type: ignore[attr-defined]


async def test_a_proxy_is_asked_in_place_of_the_server() -> None:
    async with loopback(stream(HELLO)) as server:
        provider = providers.open("http://example.invalid/v1#m", proxy=f"http://127.0.0.1:{server.port}")
        assert (await answer(provider)).content == "Hello"
    assert server.asked[0].path == "http://example.invalid/v1/chat/completions"


async def test_connections_are_used_again() -> None:
    async with loopback(stream(HELLO)) as server:
        provider = model(server)
        for _ in range(3):
            async with provider.stream(ASK) as deltas:
                assert [d async for some in deltas for d in some]
        await provider.aclose()
    assert (len(server.asked), server.connections) == (3, 1)


async def test_a_server_that_does_not_close_after_the_end_is_not_waited_for() -> None:
    async with loopback([head(), chunk(HELLO), "hang"]) as server:
        before = time.monotonic()
        reply = await answer(model(server))
        assert time.monotonic() - before < 2 * busy()
        await asyncio.wait_for(server.dropped.wait(), 5)
    assert reply.finish == "stop"


BROKEN: dict[str, tuple[list[Any], str]] = {
    "the connection is reset": ([head(), chunk(CALL), 0.05, "reset"], "connection broke"),
    "the chunked body has no end": ([head(), chunk(CALL), "close"], "connection broke"),
    "fewer bytes than the length says": ([head(Content_Length="9999"), CALL, "close"], "connection broke"),
    "a broken chunk": ([head(), chunk(CALL), 0.1, b"zz\r\n", "hang"], "not HTTP"),
    "silence": ([head(), chunk(CALL), "hang"], "timeout.idle"),
    "drops that never end": ([head(), *([chunk(b": x\n\n"), 0.05] * 60)], "timeout.total"),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_a_stream_that_breaks_is_interrupted_and_its_calls_do_not_count(case: str) -> None:
    script, words = BROKEN[case]
    clocks = {"idle": 0.3, "total": 0.6} if "timeout" in words else None
    async with loopback(script) as server:
        reply = await answer(model(server, timeout=clocks))
    assert reply.finish == "interrupted"
    assert reply.calls == []
    assert words in (reply.error or "")
    assert len(server.asked) == 1, "nothing is asked again once the answer has begun"
    if "never end" not in case:
        assert [bad.text for bad in reply.incomplete] == ['{"a":1}']


async def test_a_body_that_ends_early_without_saying_so_is_interrupted() -> None:
    async with loopback([head(Connection="close"), CALL, "close"]) as server:
        reply = await answer(model(server))
    assert (reply.finish, reply.calls) == ("interrupted", [])


async def test_more_bytes_than_the_length_says_are_not_read() -> None:
    async with loopback([head(Content_Length=str(len(HELLO))), HELLO, 0.1, sse(say("more")), "close"]) as server:
        assert (await answer(model(server))).content == "Hello"


@pytest.mark.parametrize("body", [b"nonsense\r\n\r\n", head(Content_Length="5") + HELLO])
async def test_what_is_not_http_is_told_and_not_asked_again(body: bytes) -> None:
    async with loopback([body, "close"]) as server:
        assert isinstance(await failure(model(server)), errors.ProtocolBroken)
    assert len(server.asked) == 1


async def test_a_break_after_the_sound_end_is_only_a_problem() -> None:
    whole = CALL + sse(say(finish="tool_calls"), done=False)
    async with loopback([head(), chunk(whole), 0.05, "reset"]) as server:
        reply = await answer(model(server))
    assert (reply.finish, len(reply.calls), reply.error) == ("tool_calls", 1, None)
    assert any("after the end" in problem for problem in reply.problems)


async def test_ten_megabytes_of_arguments_arrive_whole() -> None:
    text = json.dumps({"a": "x" * 10_000_000})
    size = 100_000
    records = [
        say(tool_calls=[{"index": 0, "function": {"arguments": text[n : n + size]} | ({} if n else {"name": "f"})}])
        for n in range(0, len(text), size)
    ]
    async with loopback(stream(*(sse(r, done=False) for r in records), sse(say(finish="stop")))) as server:
        (call,) = (await answer(model(server))).calls
    assert len(call.arguments["a"]) == 10_000_000


async def test_a_line_that_never_ends_is_an_error_not_all_the_memory() -> None:
    flood = [chunk(b"data: " + b"x" * 2**20), *([chunk(b"x" * 2**20)] * 40)]
    async with loopback([head(), *flood, "hang"]) as server:
        reply = await answer(model(server))
    assert reply.finish == "error"
    assert "MAX_RECORD" in (reply.error or "")


async def test_leaving_the_stream_closes_the_connection() -> None:
    async with loopback([head(), chunk(sse(say("a"), done=False)), "hang"]) as server:
        provider = model(server)
        async with provider.stream(ASK) as deltas:
            async for _ in deltas:
                break
        await asyncio.wait_for(server.dropped.wait(), 5)
        await provider.aclose()


@pytest.mark.parametrize("script", [["hang"], [head(), "hang"], [head(), chunk(sse(say("a"), done=False)), "hang"]])
async def test_cancelling_closes_the_connection_wherever_it_is(script: list[Any]) -> None:
    async with loopback(script) as server:
        provider = model(server)
        task = asyncio.create_task(answer(provider))
        while not server.asked:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.wait_for(server.dropped.wait(), 5)


# --- before the first byte ------------------------------------------------------------------------------------------

REFUSALS: dict[str, tuple[list[Any], type[errors.ProviderError], str]] = {
    "401": (
        refusal("401 X", {"error": {"message": f"Incorrect API key: {KEY}"}}),
        errors.RefusedKey,
        "Incorrect API key",
    ),
    "403": (refusal("403 X", b""), errors.RefusedKey, "refused the key"),
    "402": (refusal("402 X", {"error": "pay"}), errors.RefusedKey, "no credit"),
    "429 without credit": (refusal("429 X", {"error": {"code": "insufficient_quota"}}), errors.RefusedKey, "no credit"),
    "400": (refusal("400 X", {"error": {"message": "bad tools"}}), errors.BadRequest, "bad tools"),
    "422": (refusal("422 X", {"detail": [{"msg": "field required"}]}), errors.BadRequest, "field required"),
    "413": (
        refusal("413 X", b"<html><title>Too Large</title></html>", kind="text/html"),
        errors.BadRequest,
        "Too Large",
    ),
    "context, OpenAI": (
        refusal("400 X", {"error": {"message": "maximum context length is 8", "code": "context_length_exceeded"}}),
        errors.ContextTooLong,
        "maximum context length is 8",
    ),
    "context, llama.cpp": (
        refusal("400 X", {"error": {"type": "exceed_context_size_error", "message": "exceeds"}}),
        errors.ContextTooLong,
        "exceeds",
    ),
    "a redirect": (
        refusal("307 X", b"", Location="https://elsewhere/v1"),
        errors.Redirected,
        "https://elsewhere/v1",
    ),
    "a page instead of an answer": (
        refusal("200 OK", b"<html><title>Log in</title></html>", kind="text/html"),
        errors.ProtocolBroken,
        "Log in",
    ),
    "500": (refusal("500 X", {"error": "boom"}), errors.Overloaded, "boom"),
    "529": (refusal("529 X", b"overloaded"), errors.Overloaded, "overloaded"),
}


@pytest.mark.parametrize("case", REFUSALS)
async def test_refusals_become_our_errors_in_the_servers_words(case: str) -> None:
    script, kind, words = REFUSALS[case]
    async with loopback(script) as server:
        error = await failure(model(server, retries=0))
    assert type(error) is kind
    assert words in str(error)
    assert error.status == int(script[0].split()[1])


async def test_a_missing_model_lists_what_is_there() -> None:
    missing = refusal("404 X", {"error": {"message": "The model `m` does not exist"}})
    models = refusal("200 OK", {"data": [{"id": "a"}, {"id": "b"}]})
    async with loopback(missing, models) as server:
        error = await failure(model(server))
    assert isinstance(error, errors.ModelMissing)
    assert error.available == ("a", "b")
    assert "it has: a, b" in str(error)


async def test_a_wrong_path_says_what_the_address_should_be() -> None:
    async with loopback(refusal("404 X", b"not found")) as server:
        error = await failure(providers.open(f"http://127.0.0.1:{server.port}#m"))
    assert f"http://127.0.0.1:{server.port}/v1" in str(error)


async def test_nobody_listens() -> None:
    async with loopback(stream(HELLO)) as server:
        url = server.url
    error = await failure(providers.open(f"{url}#m", retries=0))
    assert isinstance(error, errors.Unreachable)
    assert "is the server running?" in str(error)


@pytest.mark.parametrize("script", [["close"], ["reset"], [b"HTTP/1.1 200", "close"]])
async def test_an_answer_that_does_not_begin_is_unreachable(script: list[Any]) -> None:
    async with loopback(script) as server:
        error = await failure(model(server, retries=1))
    assert isinstance(error, errors.Unreachable)
    assert len(server.asked) == 2


async def test_a_server_that_never_answers_is_given_up() -> None:
    async with loopback(["hang"]) as server:
        error = await failure(model(server, timeout={"first": 0.2}))
    assert isinstance(error, errors.Unreachable)
    assert "timeout.first" in str(error)
    assert len(server.asked) == 1


@pytest.mark.parametrize("first", ["429 X", "500 X", "502 X", "503 X", "529 X"])
async def test_a_failure_that_passes_is_asked_again(first: str) -> None:
    async with loopback(refusal(first, b"later"), stream(HELLO)) as server:
        assert (await answer(model(server))).content == "Hello"
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("headers", "low", "high"), [({"Retry_After": "0.3"}, 0.3, 2), ({"retry_after_ms": "200"}, 0.2, 2), ({}, 0.0, 0.2)]
)
async def test_the_servers_wish_to_wait_is_kept(headers: dict[str, str], low: float, high: float) -> None:
    async with loopback(refusal("429 X", b"", **headers), stream(HELLO)) as server:
        before = time.monotonic()
        await answer(model(server))
        assert low <= time.monotonic() - before < high


async def test_a_wait_that_is_too_long_is_told_at_once() -> None:
    async with loopback(refusal("429 X", b"", Retry_After="3600")) as server:
        error = await failure(model(server))
    assert isinstance(error, errors.RateLimited)
    assert error.retry_after == 3600
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "script", [refusal("400 X", b""), refusal("401 X", b""), refusal("500 X", {"error": "error parsing tool call"})]
)
async def test_what_fails_again_is_not_asked_again(script: list[Any]) -> None:
    async with loopback(script) as server:
        await failure(model(server))
    assert len(server.asked) == 1


async def test_retries_have_an_end() -> None:
    async with loopback(refusal("503 X", b"")) as server:
        assert isinstance(await failure(model(server, retries=2)), errors.Overloaded)
    assert len(server.asked) == 3


async def test_a_run_does_not_retry_what_the_provider_has_retried() -> None:
    async with loopback(refusal("503 X", b"")) as server:
        async with Agent(model(server, retries=2), protocol="json") as agent:
            result = await agent.run("hi")
    assert (result.reason, result.requests) == ("provider_error", 1)
    assert len([asked for asked in server.asked if asked.method == "POST"]) == 3


async def test_the_key_is_nowhere() -> None:
    """Not in errors (the server quotes it), not in what objects say of themselves."""
    quoting = refusal("400 X", {"error": {"message": f"you sent Authorization: Bearer {KEY}"}})
    async with loopback(quoting) as server:
        provider = model(server)
        error = await failure(provider)
    assert "***" in str(error) or "[masked]" in str(error)
    assert KEY not in repr(provider.client)
    assert KEY not in repr(provider)


async def test_a_key_that_is_a_function_is_asked_for_each_request() -> None:
    keys = iter(["first-key-123456", "second-key-123456"])
    async with loopback(stream(HELLO), refusal("400 X", b"you sent second-key-123456")) as server:
        provider = model(server, key=lambda: next(keys))
        await answer(provider)
        error = await failure(provider)
    sent = [asked.headers["authorization"] for asked in server.asked]
    assert sent == ["Bearer first-key-123456", "Bearer second-key-123456"]
    assert "second-key" not in str(error)


async def test_a_header_of_yours_is_not_quoted_back() -> None:
    async with loopback(refusal("400 X", b"bad x-token: hunter2-hunter2")) as server:
        error = await failure(model(server, headers={"x-token": "hunter2-hunter2"}))
    assert "hunter2" not in str(error)
    assert server.asked[0].headers["x-token"] == "hunter2-hunter2"


@pytest.mark.parametrize("record", [{"error": f"bad key {KEY}"}, f"no JSON {KEY}"])
async def test_a_key_in_the_stream_is_not_told_on(record: Any) -> None:
    body = f"data: {record if isinstance(record, str) else json.dumps(record)}\n\n"
    async with loopback(stream(body.encode())) as server:
        reply = await answer(model(server))
    assert reply.finish == "error"
    assert KEY not in (reply.error or "") + str(reply.problems)


async def test_a_provider_works_on_one_loop_after_another() -> None:
    async with loopback(stream(HELLO)) as server:
        provider = model(server)
        for _ in range(2):
            assert (await asyncio.to_thread(lambda: asyncio.run(answer(provider)))).content == "Hello"


async def test_a_loop_that_ends_leaves_no_connection_open() -> None:
    """Nobody closes the provider here; warnings of what is left open are errors."""

    async def once(provider: Any) -> None:
        async with provider.stream(ASK) as deltas:
            async for _ in deltas:
                pass

    def twice(provider: Any) -> None:
        asyncio.run(once(provider))
        asyncio.run(once(provider))

    async with loopback(stream(HELLO)) as server:
        await asyncio.to_thread(twice, model(server))
        gc.collect()
