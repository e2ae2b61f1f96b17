"""Real servers, one suite: `python scripts/real_servers.py [NAME …]` starts each that can be had and asks it the same.

Law: what was not tried is said, with the reason. (tests/test_real_servers.py::test_what_was_not_tried_is_said_and_why)

engine        the HTTP server of the engine's package (`pip install 'callgate[local]'`)
llama-server  the program of that name in the path, or at LLAMA_SERVER
ollama        the program of that name in the path; else it is built by Go's modules, where Go and a C++ compiler are
              there (about ten minutes). Go leaves folders named `vendor` out of a module, so three headers come from
              elsewhere: two from Debian (`apt-get install nlohmann-json3-dev libstb-dev`), one from another module
All of them serve the embedded weights (`callgate model pull`). Exit status 1 if a check of a server that ran failed.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from callgate import Agent, providers, read, tool, weights
from callgate.errors import CallgateError, ModelMissing
from callgate.providers import Provider, Recording
from callgate.tools import Tool
from callgate.types import Finish, Message, Request, TextDelta

OLLAMA = "github.com/ollama/ollama@latest"
HEADERS = {"nlohmann/json.hpp": "nlohmann-json3-dev", "stb/stb_image.h": "libstb-dev"}
"""What Ollama's C++ includes from its `vendor` folder, and the Debian package that has it."""
MINIAUDIO = "github.com/gen2brain/malgo@v0.11.24"
"""A module that carries miniaudio.h, which no Debian package has."""
CONTEXT = 2048
"""Tokens that each server is started with."""
START = 120.0
"""Seconds for a server to be ready, its model loaded."""
BUILD = 1800
"""Seconds for Go to fetch and build Ollama."""
LIMITS = (1999, 2000, 2001)
"""Lengths around the one that llama.cpp's grammar refuses (src/llama-grammar.cpp)."""
TEMPLATE = (
    "{{ if .Tools }}<|im_start|>system\nTools, one JSON object a line:{{ range .Tools }}\n{{ . }}{{ end }}\n"
    'To call one, write <tool_call>{"name": …, "arguments": {…}}</tool_call>.<|im_end|>\n{{ end }}'
    "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}"
    '{{ range .ToolCalls }}<tool_call>{"name": "{{ .Function.Name }}", '
    '"arguments": {{ .Function.Arguments }}}</tool_call>'
    "{{ end }}<|im_end|>\n{{ end }}<|im_start|>assistant\n"
)
"""A template of Ollama's with a place for tools."""
ASK = Request((Message("user", "Say hi."),), options={"max_tokens": 8, "temperature": 0})


class Skipped(Exception):
    """A server cannot be had here; the text says why."""


# --- the servers --------------------------------------------------------------------------------------------------


@contextmanager
def engine(model: Path) -> Iterator[str]:
    """The HTTP server of the engine's package, in this process."""
    try:
        from xllamacpp import CommonParams, Server
    except ImportError as error:
        raise Skipped(f"the engine's package is not installed ({error})") from error
    params = CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.warmup, params.ui, params.verbosity = CONTEXT, 1, False, False, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    held = Server(params)
    yield f"{held.listening_address}/v1"
    del held


@contextmanager
def llama_server(model: Path) -> Iterator[str]:
    """llama.cpp's own server."""
    program = os.environ.get("LLAMA_SERVER") or shutil.which("llama-server")
    if program is None:
        raise Skipped("no llama-server in the path, and LLAMA_SERVER is not set")
    port = free_port()
    command = [program, "-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-c", str(CONTEXT), "-t", "1"]
    with started(command, f"http://127.0.0.1:{port}/health"):
        yield f"http://127.0.0.1:{port}/v1#any"


@contextmanager
def ollama(model: Path) -> Iterator[str]:
    """Ollama, with the weights as a model of its own."""
    program = shutil.which("ollama") or built()
    with tempfile.TemporaryDirectory() as folder:
        host = f"127.0.0.1:{free_port()}"
        environment = {"OLLAMA_HOST": host, "OLLAMA_MODELS": f"{folder}/models", "OLLAMA_CONTEXT_LENGTH": str(CONTEXT)}
        with started([program, "serve"], f"http://{host}/api/version", **environment):
            for name, text in {"smollm2": "", "smollm2-tools": f'TEMPLATE """{TEMPLATE}"""\n'}.items():
                (Path(folder) / "Modelfile").write_text(f"FROM {model}\n{text}", encoding="utf-8")
                made = subprocess.run(
                    [program, "create", name, "-f", f"{folder}/Modelfile"],
                    env={**os.environ, **environment},
                    capture_output=True,
                    text=True,
                    timeout=START,
                    check=False,
                )
                if made.returncode:
                    raise Skipped(f"ollama create failed: {last_line(made.stderr)}")
            os.environ["OLLAMA_HOST"] = host
            yield "ollama:smollm2"


def built() -> str:
    """Ollama by Go's modules, into the folder where Go puts programs."""
    if (go := shutil.which("go")) is None:
        raise Skipped("no ollama in the path, and no Go to build it with")
    folder = Path(tempfile.gettempdir()) / "callgate-real-servers"
    environment = {**os.environ, "GOBIN": str(folder), "CGO_CPPFLAGS": f"-I{headers(go, folder)}"}
    try:
        done = subprocess.run(
            [go, "install", OLLAMA], env=environment, capture_output=True, text=True, timeout=BUILD, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise Skipped(f"Go did not build {OLLAMA} within {BUILD} s") from error
    if done.returncode:
        raise Skipped(f"Go could not build {OLLAMA}: {last_line(done.stderr)}")
    return str(folder / "ollama")


def headers(go: str, folder: Path) -> Path:
    """A folder with the headers that the module lacks."""
    lacking = [package for header, package in HEADERS.items() if not (Path("/usr/include") / header).exists()]
    if lacking:
        raise Skipped(f"building Ollama needs headers that are not here: apt-get install {' '.join(lacking)}")
    command = [go, "mod", "download", "-json", MINIAUDIO]
    with tempfile.TemporaryDirectory() as nowhere:  # outside of any module
        done = subprocess.run(command, cwd=nowhere, capture_output=True, text=True, timeout=BUILD, check=False)
    if done.returncode:
        raise Skipped(f"Go could not fetch {MINIAUDIO}: {last_line(done.stderr or done.stdout)}")
    place = folder / "include" / "miniaudio"
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(json.loads(done.stdout)["Dir"]) / "miniaudio.h", place / "miniaudio.h")
    return folder / "include"


@contextmanager
def started(command: list[str], ready: str, **environment: str) -> Iterator[None]:
    """A program while it serves."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
        try:
            end = time.monotonic() + START
            while not answers(ready):
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise Skipped(f"{Path(command[0]).name} did not start: {last_line(log.read())}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            process.wait(30)


def answers(url: str) -> bool:
    """Whether a server says that it is ready."""
    try:
        with urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def last_line(text: str) -> str:
    """The last words of a program that gave up."""
    return (text.strip().splitlines() or ["it said nothing"])[-1][:300]


SERVERS = {"engine": engine, "llama-server": llama_server, "ollama": ollama}

# --- the suite ----------------------------------------------------------------------------------------------------


async def text(model: str) -> None:
    """A text ends soundly."""
    async with opened(model) as provider, provider.stream(ASK) as deltas:
        found = [delta async for some in deltas for delta in some]
    assert any(isinstance(delta, TextDelta) for delta in found)
    assert isinstance(found[-1], Finish), found[-1]
    assert found[-1].reason in ("stop", "length"), found[-1]


async def schemas(model: str) -> None:
    """A tool with each length around the one that a grammar refuses is asked for, and its call fits."""
    for limit in LIMITS:
        agent = Agent(model, tools=[writer(limit)], protocol="constrained", max_turns=2)
        result = await agent.run("Write down: hello.")
        assert not [p for p in result.problems if "refused" in p or "did not accept" in p], result.problems
        assert result.reason != "provider_error", result.error


def written(text: str) -> str:
    """What was written down."""
    return text


def writer(limit: int) -> Tool[..., object]:
    """A tool whose text has this limit."""
    schema = {"type": "object", "properties": {"text": {"type": "string", "maxLength": limit}}, "required": ["text"]}
    return Tool.from_schema("write_down", "Write a text down.", schema, written, effect="read")


async def leaving(model: str) -> None:
    """Leaving a stream frees the server: the next question is answered."""
    long = Request((Message("user", "Count to a thousand."),), options={"max_tokens": 1000})
    async with opened(model) as provider:
        async with provider.stream(long) as deltas:
            await anext(deltas)
        began = time.monotonic()
        async with provider.stream(ASK) as deltas:
            assert [delta async for some in deltas for delta in some]
        assert time.monotonic() - began < 30


async def cuts(model: str) -> None:
    """The stream as it came is read the same byte by byte."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "stream.jsonl"
        async with opened(model, record=str(path)) as provider, provider.stream(ASK) as deltas:
            assert [delta async for some in deltas for delta in some]
        kept = Recording.load(path)
    body = b"".join(kept.pieces)
    whole = read(body, wire=kept.wire)
    assert read([body[n : n + 1] for n in range(len(body))], wire=kept.wire) == whole


async def missing(model: str) -> None:
    """A model that is not there is told with those that are; llama-server takes any name for its one model."""
    kind = model.partition("#")[0] if "#" in model or model.startswith("http") else "ollama:"
    wrong = f"{kind}#no-such-model" if kind.startswith("http") else "ollama:no-such-model"
    found: Sequence[str] = ("any name",)
    try:
        async with opened(wrong) as provider, provider.stream(ASK) as deltas:
            assert [delta async for some in deltas for delta in some]
    except ModelMissing as error:
        found = error.available
    assert found


async def told(model: str) -> None:
    """The context that the server has for the model is known once it is loaded; Ollama's own says more than it has."""
    async with opened(model) as provider:
        async with provider.stream(ASK) as deltas:
            assert [delta async for some in deltas for delta in some]
        found = (await provider.info()).context_length
    assert found == CONTEXT, f"a context of {found}"


async def calls(model: str) -> None:
    """A run asks for a call in the way that suits this server, runs it and answers."""
    ran: list[str] = []

    def get_weather(city: str) -> str:
        """The weather of a city."""
        ran.append(city)
        return "sunny, 21 degrees"

    result = await Agent(model, tools=[tool(effect="read")(get_weather)]).run("What is the weather in Paris?")
    assert ran == ["Paris"], result
    assert result.reason == "answered", result


async def native(model: str) -> None:
    """The server's own field for tools is taken, where the model's template has a place for them."""
    name = f"{model}-tools" if model.startswith("ollama:") else model
    result = await Agent(name, tools=[writer(100)], protocol="native", max_turns=2).run("Write down: hello.")
    assert result.reason != "provider_error", result.error
    assert not [p for p in result.problems if "refused" in p], result.problems


async def too_long(model: str) -> None:
    """A prompt that does not fit is refused or told to have been cut; it is never answered as if it had been read."""
    long = Request((Message("user", "Remember this. " + "word " * 3 * CONTEXT),), options={"max_tokens": 8})
    told = ""
    try:
        async with opened(model) as provider, provider.stream(long) as deltas:
            found = [delta async for some in deltas for delta in some]
        assert isinstance(found[-1], Finish)
        told = found[-1].error or " ".join(found[-1].problems)
    except CallgateError as error:
        told = str(error)
    assert "context" in told, told


class opened:  # noqa: N801 - a block, used like a function
    """A provider while the block runs."""

    def __init__(self, model: str, **options: object) -> None:
        self._provider = providers.open(model, **options)

    async def __aenter__(self) -> Provider:
        return self._provider

    async def __aexit__(self, *_: object) -> None:
        await self._provider.aclose()


SUITE: tuple[Callable[[str], Coroutine[None, None, None]], ...] = (
    text,
    schemas,
    leaving,
    cuts,
    missing,
    told,
    calls,
    native,
    too_long,
)


def tried(name: str, model: Path) -> int:
    """How many checks of one server failed; each is printed."""
    failed = 0
    try:
        with SERVERS[name](model) as spec:
            for check in SUITE:
                try:
                    asyncio.run(asyncio.wait_for(check(spec), 300))
                    print(f"{name}: {check.__name__}: right")
                except (AssertionError, CallgateError, TimeoutError) as error:
                    failed += 1
                    print(f"{name}: {check.__name__}: WRONG: {str(error)[:500] or type(error).__name__}")
    except Skipped as why:
        print(f"{name}: skipped: {why}")
    return failed


def main(names: list[str]) -> int:
    """The exit status."""
    if unknown := set(names) - SERVERS.keys():
        print(f"no server {', '.join(sorted(unknown))}; there are {', '.join(SERVERS)}")
        return 2
    if (model := weights.find()) is None:
        print(f"{', '.join(names or SERVERS)}: skipped: the embedded weights are not here: callgate model pull")
        return 0
    return 1 if sum(tried(name, model) for name in names or SERVERS) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
