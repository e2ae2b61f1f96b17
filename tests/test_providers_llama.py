"""A real llama.cpp with real weights: in this process, and as an HTTP server. What is tested is validity, never which
words a model of 135M parameters picks."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from callgate import errors, providers, weights
from callgate.apps.cli import cli
from callgate.providers import llamacpp
from callgate.reply import TurnReader
from callgate.types import Delta, Message, Request, TextDelta, ToolSpec

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.model,
    pytest.mark.skipif(weights.find() is None, reason="the embedded weights are not here: callgate model pull"),
]

KEY = "sk-loopback-0123456789"
HI = (Message("user", "Say hi."),)
SCHEMA = {
    "type": "object",
    "properties": {"color": {"enum": ["red", "green"]}},
    "required": ["color"],
    "additionalProperties": False,
}


def ask(messages: tuple[Message, ...] = HI, **more: Any) -> Request:
    return Request(messages, options={"max_tokens": 8, "temperature": 0, **more.pop("options", {})}, **more)


async def answer(provider: Any, request: Request) -> Any:
    turn = TurnReader()
    async with provider.stream(request) as deltas:
        async for some in deltas:
            turn.feed(some)
    return turn.reply


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The address of a llama.cpp server with the embedded weights."""
    from xllamacpp import CommonParams, Server

    params = CommonParams()
    params.model.path = str(weights.path())
    params.n_ctx = 1024
    params.n_parallel = 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = False
    params.ui = False
    params.verbosity = -1
    params.api_keys = [KEY]
    held = Server(params)
    yield f"{held.listening_address}/v1"
    del held


def at(server: str, **options: Any) -> Any:
    return providers.open(f"{server}#smollm2", **{"key": KEY, **options})


@pytest.fixture(params=["local", "http"])
async def provider(request: pytest.FixtureRequest) -> Any:
    """The same model, by both ways; so the same tests."""
    made = providers.open("local") if request.param == "local" else at(request.getfixturevalue("server"))
    yield made
    await made.aclose()


async def test_text_streams(provider: Any) -> None:
    pieces: list[Delta] = []
    async with provider.stream(ask()) as deltas:
        async for some in deltas:
            pieces += some
    texts = [piece for piece in pieces if isinstance(piece, TextDelta)]
    assert len(texts) > 2
    finish = pieces[-1]
    assert finish.reason in ("stop", "length")  # type: ignore[union-attr]
    assert finish.usage["output"] <= 8  # type: ignore[union-attr, index]


async def test_a_whole_answer_is_the_streamed_one(provider: Any) -> None:
    streamed = await answer(provider, ask())
    whole = await answer(provider, ask(stream=False))
    assert whole.content == streamed.content
    assert whole.finish == streamed.finish


async def test_structured_output_fits_its_schema(provider: Any) -> None:
    reply = await answer(provider, ask(schema=SCHEMA, options={"max_tokens": 60}))
    assert json.loads(reply.content)["color"] in ("red", "green")
    assert reply.finish == "stop"


async def test_cancelling_frees_the_engine(provider: Any) -> None:
    async with provider.stream(ask(options={"max_tokens": 400})) as deltas:
        async for _ in deltas:
            break
    reply = await asyncio.wait_for(answer(provider, ask(options={"max_tokens": 2})), 5)
    assert reply.finish == "length"


async def test_a_prompt_that_does_not_fit_is_refused_before_the_first_byte(provider: Any) -> None:
    with pytest.raises(errors.ContextTooLong, match="exceeds the available context"):
        await answer(provider, ask((Message("user", "x " * 9000),)))


async def test_a_schema_that_cannot_be_kept_is_refused(provider: Any) -> None:
    with pytest.raises(errors.BadRequest, match="nonsense"):
        await answer(provider, ask(schema={"type": "nonsense"}))


async def test_native_tools_are_offered_and_the_answer_is_sound(provider: Any) -> None:
    """This model's template ignores tools, so only that the request is accepted and the end is told."""
    reply = await answer(provider, ask(tools=(ToolSpec("f", "", {"type": "object", "properties": {}}),)))
    assert reply.finish in ("stop", "length", "tool_calls")


async def test_what_is_known_of_the_model(provider: Any) -> None:
    info = await provider.info()
    assert "tools" not in info.capabilities, "its chat template does not know tools"
    assert "schema" in info.capabilities
    assert "<|im_start|>" in (info.chat_template or "")
    assert info.context_length in (1024, 8192)


async def test_a_wrong_key_is_refused(server: str) -> None:
    provider = at(server, key="sk-wrong-9876543210")
    with pytest.raises(errors.RefusedKey) as caught:
        await answer(provider, ask())
    assert "sk-wrong" not in str(caught.value)
    await provider.aclose()


async def test_a_server_killed_in_mid_stream_is_an_interruption() -> None:
    """In a process of its own, so that it can be killed."""
    code = (
        "import time\nfrom xllamacpp import CommonParams, Server\np = CommonParams()\n"
        f"p.model.path = {str(weights.path())!r}\np.n_ctx = 512\np.n_parallel = 1\np.warmup = False\n"
        "p.cpuparams.n_threads = p.cpuparams_batch.n_threads = 1\np.ui = False\np.verbosity = -1\n"
        "s = Server(p)\nprint(s.listening_address, flush=True)\ntime.sleep(60)\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    address = (await process.stdout.readline()).decode().strip()
    provider = providers.open(f"{address}/v1#smollm2")
    turn = TurnReader()
    async with provider.stream(ask(options={"max_tokens": 400})) as deltas:
        async for some in deltas:
            turn.feed(some)
            if process.returncode is None and turn.reply.content:
                process.send_signal(signal.SIGKILL)
                await process.wait()
    await provider.aclose()
    assert turn.reply.finish == "interrupted"
    assert turn.reply.error
    assert turn.reply.content


async def test_no_thread_outlives_its_stream() -> None:
    provider = providers.open("local")
    async with provider.stream(ask(options={"max_tokens": 400})) as deltas:
        async for _ in deltas:
            break
    workers = [thread for thread in threading.enumerate() if thread.name == "callgate-llamacpp"]
    for worker in workers:
        worker.join(1.0)
    assert not any(worker.is_alive() for worker in workers)


async def test_the_engine_is_shared() -> None:
    for _ in range(2):
        await answer(providers.open("local"), ask(options={"max_tokens": 1}))
    assert len({setup.path for setup in llamacpp._ENGINES}) == len(llamacpp._ENGINES) == 1


async def test_it_tells_how_far_it_has_read_and_how_fast_it_was() -> None:
    provider = providers.open("local")
    seen: list[str] = []
    words = " ".join(f"word{n}" for n in range(160))  # more than one step of the engine

    async def look() -> None:
        while True:
            seen.append(providers.activity(provider))
            await asyncio.sleep(0.001)  # the engine needs the interpreter too

    looking = asyncio.create_task(look())
    await answer(provider, ask((Message("user", words),), options={"max_tokens": 2}))
    looking.cancel()
    assert any("reading, " in each and each.endswith(" tokens") for each in seen)
    assert providers.activity(provider) == ""
    assert provider.speed is not None  # type: ignore[attr-defined]
    assert provider.speed.reading > 0  # type: ignore[attr-defined]


async def test_a_conversation_goes_on_where_it_was_read_to() -> None:
    """Another request in between takes the slot; the conversation comes back out of the cache."""
    provider = providers.open("local")
    story = (Message("user", " ".join(f"item{n}" for n in range(60))),)
    before = await answer(provider, ask(story, options={"max_tokens": 2}))
    await answer(provider, ask((Message("user", "Colour?"),), schema=SCHEMA, options={"max_tokens": 20}))
    again = await answer(provider, ask((*story, Message("assistant", "Yes."), Message("user", "And?"))))
    assert again.usage["cached"] > before.usage["input"] - 16


def test_its_memory_has_a_bound() -> None:
    """The engine's own default is 8 GiB: differing requests took 2 MB each, for ever. A child, for the peak is a
    process's."""
    script = (
        "import asyncio, resource\n"
        "from callgate import providers\n"
        "from callgate.types import Message, Request\n"
        "async def main():\n"
        "    provider = providers.open('local', cache=4)\n"
        "    peaks = []\n"
        "    for n in range(14):\n"
        "        text = ' '.join(f'{n} item {n * 7919 + k}' for k in range(8))\n"
        "        async with provider.stream(Request((Message('user', text),), options={'max_tokens': 1})) as deltas:\n"
        "            async for _ in deltas: pass\n"
        "        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n"
        "    print(peaks[-1] - peaks[5])\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert float(done.stdout) < 10  # MB over eight requests; without the bound 16 and more


def test_a_file_that_is_no_model_is_refused(tmp_path: Any) -> None:
    path = tmp_path / "x.gguf"
    with pytest.raises(errors.ConfigError, match="no such file"):
        providers.open(f"llamacpp:{path}")
    for data in (b"", b"nope", b"GGUF", b"GGUF" + b"\xff" * 20, b"GGUF\x03" + b"\x00" * 11 + b"\x01" * 50):
        path.write_bytes(data)
        with pytest.raises(errors.ConfigError, match=r"x\.gguf"):
            providers.open(f"llamacpp:{path}")


async def test_llama_cpp_answers_whatever_model_is_named(server: str) -> None:
    """It has one; so a wrong name is no error there (other servers list what they have: test_providers_http.py)."""
    provider = providers.open(f"{server}#no-such-model", key=KEY)
    assert (await answer(provider, ask(options={"max_tokens": 1}))).finish == "length"
    await provider.aclose()


def test_an_answer_is_recorded_and_played_by_the_commands(tmp_path: Any) -> None:
    path = tmp_path / "r.jsonl"
    said = CliRunner().invoke(cli, ["record", "local", "Say hi.", "--output", str(path), "-o", "max_tokens=6"])
    assert said.exit_code == 0, said.output
    played = CliRunner().invoke(cli, ["replay", str(path), "--chunks", "5"])
    reply = json.loads(played.output)
    assert reply["content"]
    assert reply["content"] in said.output
    assert reply["finish"] == "length"
