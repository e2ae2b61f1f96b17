"""llama.cpp in this process: the embedded model, or any GGUF file.

Law: leaving the stream stops the engine within a token, and no thread outlives it.
(tests/test_providers_llama.py::test_no_thread_outlives_its_stream)

The engine is xllamacpp, the extra `callgate[local]`. Engines are shared: two agents on one file load it once.

Theory of operation of its memory. A slot keeps what it has read, so the next turn of a conversation reads only what is
new. A request of another kind (the arguments of one tool, say) takes the slot; what stood there goes into the engine's
prompt cache in main memory, and comes back from it when the conversation goes on. By itself that cache grows to 8 GiB;
`cache` bounds it. Of what it holds the oldest is given up first, and the newest is always kept.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from callgate.errors import BadRequest, ConfigError, ProviderError
from callgate.formats import openai as api
from callgate.providers._failures import error_of
from callgate.providers._gguf import metadata
from callgate.providers._recording import Recorder
from callgate.providers._stores import find as find_stored
from callgate.providers._stores import is_stored
from callgate.types import Delta, ModelInfo, Request

ENGINE = "xllamacpp"
_MISSING = "the embedded engine is not installed: pip install 'callgate[local]'"
MAX_TOKENS = 512
"""Tokens of an answer unless `max_tokens` says otherwise: a small model that loops must end."""
MAX_CONTEXT = 8192
"""Tokens of context unless `context` says otherwise; the cache takes 24 KB a token for the embedded model."""
CACHE = 256
"""MiB of prompts that were read, unless `cache` says otherwise: for the embedded model a full context (190 MB) and the
requests for arguments in between. A bound is needed: 170 differing requests took 1.4 GB without one."""
BATCH = 512
"""Tokens that are read in one step. Between two steps the engine tells how far it is and can be stopped; its own 2048
are 15 s of silence on two busy cores."""


def open(name: str, **options: Any) -> LlamaCpp:  # noqa: A001 - the room's verb: providers.open("local")
    """The embedded model, the GGUF file `name`, or one that a store on this machine holds: "ollama/NAME", "hf/REPO"."""
    if is_stored(name) and not Path(name).is_file():
        require_engine()
        found = find_stored(name)
        return LlamaCpp(found.path, label=found.name.partition("/")[2], **options)
    return LlamaCpp(Path(name).expanduser() if name else None, **options)


@dataclass(slots=True, frozen=True)
class _Setup:
    path: str
    context: int
    threads: int
    slots: int
    cache: int


@dataclass(slots=True, frozen=True)
class Speed:
    """How fast the engine was at one answer, in tokens a second."""

    reading: float
    writing: float


class LlamaCpp:
    """The provider behind "local" and "local:FILE.gguf"."""

    def __init__(
        self,
        path: Path | None = None,
        *,
        context: int | None = None,
        threads: int | None = None,
        slots: int = 1,
        cache: int = CACHE,
        label: str | None = None,
        dialect: str | None = None,
        record: str | Path | None = None,
    ) -> None:
        """`slots`: requests that run at once; further ones wait. `cache`: MiB of main memory for prompts that were
        read. `label`: what the model is called; by itself its file's name. `record`: see `_recording`."""
        require_engine()
        if path is None:
            from callgate import weights

            path = weights.path()
        elif not path.is_file():
            raise ConfigError(f"{path}: no such file; give the path of a GGUF file")
        self.name = "local"
        self.model = label or path.stem
        self.path = path
        self.speed: Speed | None = None
        self._state = ""
        self._head = metadata(path)
        architecture = self._head.get("general.architecture", "llama")
        trained = int(self._head.get(f"{architecture}.context_length", MAX_CONTEXT))
        self._context = context or min(trained, MAX_CONTEXT)
        self._setup = _Setup(str(path), self._context * slots, threads or _threads(), slots, cache)
        self._dialect = dialect
        self._record = Path(record) if record is not None else None

    def stream(self, request: Request) -> AbstractAsyncContextManager[AsyncIterator[list[Delta]]]:
        """The deltas of one answer."""
        return self._stream(request)

    @asynccontextmanager
    async def _stream(self, request: Request) -> AsyncIterator[AsyncIterator[list[Delta]]]:
        engine: Any = _ENGINES.get(self._setup) or await self._loaded()
        body = _body(request, self.model)
        job = _Job(lambda callback: engine.handle_chat_completions(body, callback), self._own_record)
        try:
            first = await job.next()
            for value in first:
                if error := error_of(value, provider=self.name, model=self.model):
                    raise error
            recorder = Recorder.start(self._record, wire="openai", model=self.model, body=body)
            deltas = self._deltas(first, job, request, recorder)
            try:
                yield deltas
            finally:
                await deltas.aclose()
                if recorder is not None:
                    recorder.close()
        finally:
            await job.stop()
            self._state = ""

    @property
    def activity(self) -> str:
        """What the engine does before its first token, in words: loading, or how much it has read. "": neither."""
        return self._state

    async def _loaded(self) -> Any:
        self._state = f"loading {self.path.stat().st_size / 1e6:,.0f} MB"
        try:
            return await asyncio.to_thread(_engine, self._setup)
        finally:
            self._state = ""

    def _own_record(self, value: dict[str, Any]) -> bool:
        """Takes what the engine says about its work; true if that was all that the value held."""
        match value:
            case {"prompt_progress": {"total": int(total), "processed": int(done)}}:
                self._state = f"reading, {done:,} of {total:,} tokens" if done < total else ""
                return True
            case {"timings": {"prompt_per_second": float(reading), "predicted_per_second": float(writing)}}:
                self.speed = Speed(reading, writing)
        return False

    async def _deltas(
        self, first: list[dict[str, Any]], job: _Job, request: Request, recorder: Recorder | None
    ) -> AsyncGenerator[list[Delta], None]:
        loader = api.Loader(tools=tuple(tool.name for tool in request.tools))
        values = first
        while values:
            if recorder is not None:
                recorder.piece(b"".join(b"data: %s\n\n" % json.dumps(value).encode() for value in values))
            if deltas := [delta for value in values for delta in loader.take(value)]:
                yield deltas
            try:
                values = await job.next()
            except ProviderError as error:
                yield loader.fail(str(error))
                return
        if recorder is not None:
            recorder.piece(b"")
        yield loader.finish()

    async def info(self) -> ModelInfo:
        """What the file says; tools only if its chat template knows them."""
        template = self._head.get("tokenizer.chat_template")
        template = template if isinstance(template, str) else None
        abilities = {"schema"}
        if template and "tools" in template:
            abilities.add("tools")
        if template and "enable_thinking" in template:
            abilities.add("thinking")
        name = str(self._head.get("general.name") or self.model)
        return ModelInfo(
            self.model,
            self.name,
            frozenset(abilities),
            template,
            self._dialect,
            self._context,
            {"name": name, "vision": False},
        )

    async def catalogue(self) -> list[ModelInfo]:
        """The one model of the file."""
        return [await self.info()]

    async def aclose(self) -> None:
        """Nothing to give back: the engine is shared and stays for the next one."""


class _Job:
    """One call into the engine, on a thread of its own; what it says comes out of `next`, in lists.

    Theory of operation. The engine calls back from its thread with one value at a time; a true answer stops it.
    1. Values go to the loop by `call_soon_threadsafe` and wait in a list; `next` takes all that are there. What
       `own` takes is about the engine's work and no part of the answer: it wakes nobody.
    2. The end of the call wakes `next`, which then gives [] (or raises what the engine raised).
    3. `stop` makes the next callback answer true, and waits for the thread, but never long: an engine that is still
       reading its prompt does not look up.
    """

    def __init__(
        self, call: Callable[[Callable[[Any], bool]], Any], own: Callable[[dict[str, Any]], bool] = lambda _: False
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._values: list[dict[str, Any]] = []
        self._wake = asyncio.Event()
        self._ended = asyncio.Event()
        self._error: Exception | None = None
        self._stopped = False
        self._own = own
        self._thread = threading.Thread(target=self._run, args=(call,), name="callgate-llamacpp")
        self._thread.start()

    def _run(self, call: Callable[[Callable[[Any], bool]], Any]) -> None:
        error: Exception | None = None
        try:
            call(self._callback)
        except Exception as raised:
            error = raised
        with suppress(RuntimeError):  # the loop is closed: nobody listens
            self._loop.call_soon_threadsafe(self._end, error)

    def _callback(self, value: Any) -> bool:
        if self._stopped:
            return True
        try:
            self._loop.call_soon_threadsafe(self._put, value)
        except RuntimeError:
            return True
        return False

    def _put(self, value: Any) -> None:
        new = [each for each in (value if isinstance(value, list) else [value]) if not self._own(each)]
        if new:
            self._values.extend(new)
            self._wake.set()

    def _end(self, error: Exception | None) -> None:
        self._error = error
        self._ended.set()
        self._wake.set()

    async def next(self) -> list[dict[str, Any]]:
        """All values that are there, at least one; [] at the end."""
        if not self._values and not self._ended.is_set():
            await self._wake.wait()
        self._wake.clear()
        values, self._values = self._values, []
        if not values and self._error is not None:
            error, self._error = self._error, None
            if isinstance(error, (ValueError, TypeError, RuntimeError)):
                raise BadRequest(f"local: the engine did not accept the request: {error}", provider="local") from error
            raise error
        return values

    async def stop(self) -> None:
        """Rule 3."""
        self._stopped = True
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), 2.0)


_LOCK = threading.Lock()
_ENGINES: dict[_Setup, Any] = {}


def _engine(setup: _Setup) -> Any:
    """The engine of this file; loaded once (half a second for the embedded model)."""
    with _LOCK:
        if setup not in _ENGINES:
            _ENGINES[setup] = _load(setup)
        return _ENGINES[setup]


def require_engine() -> None:
    """Raises ConfigError, with the command to run, if the engine is not installed; nothing is loaded."""
    if sys.modules.get(ENGINE) is None and find_spec(ENGINE) is None:
        raise ConfigError(_MISSING)


def _load(setup: _Setup) -> Any:
    try:
        engine: Any = import_module(ENGINE)
    except ImportError as error:
        raise ConfigError(_MISSING) from error
    params = engine.CommonParams()
    params.model.path = setup.path
    params.n_ctx = setup.context
    params.n_parallel = setup.slots
    params.n_batch = BATCH
    params.cache_ram_mib = setup.cache
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setup.threads
    params.warmup = False
    params.verbosity = -1
    # The engine always listens on a loopback port too: let nobody in.
    params.api_keys = [secrets.token_urlsafe(32)]
    params.ui = False
    params.endpoint_slots = False
    try:
        return engine.Server(params)
    except Exception as error:
        raise ConfigError(f"{setup.path}: the engine cannot load it: {error}") from error


def _threads() -> int:
    """All cores but one: with all of them the engine collapses as soon as anything else runs."""
    return 1 if os.environ.get("CI") == "true" else max(1, (os.cpu_count() or 1) - 1)


def _body(request: Request, model: str) -> dict[str, Any]:
    body = api.build(request, model)
    if "grammar" in body:  # it says all that the schema says, and more; the engine refuses a request with both
        body.pop("response_format", None)
    body["return_progress"] = bool(body.get("stream"))
    body.setdefault("max_tokens", MAX_TOKENS)
    body.setdefault("temperature", 0.0)  # small models write better calls without dice; options override it
    body.setdefault("dry_multiplier", 0.8)  # ... and then repeat a phrase for ever, which this sampler ends
    return body
