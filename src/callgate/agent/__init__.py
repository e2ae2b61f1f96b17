"""The agent: a model, tools, rules and a ledger, ready to carry out runs.

One law: a started run never raises, except on cancellation; its result says how it ended and why. One agent may serve
any number of runs at once: nothing of a run is kept in it but the rates of calls and the protocol that worked.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import InitVar, dataclass, field, replace
from typing import Any, TypeAlias

from callgate import dialects, protocols, providers
from callgate import ledger as ledgers
from callgate import policy as gate
from callgate.agent._driver import Driver, World
from callgate.agent._pace import pace
from callgate.agent._people import Approve, People
from callgate.agent._result import Form, RunResult, result_of
from callgate.agent._shield import in_thread
from callgate.agent._stream import Stream, Work
from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.events import Event
from callgate.executor import Executor
from callgate.history import History, Loose
from callgate.ledger import Hold, Ledger
from callgate.policy import RuleLike, approval, budget, permission, rate, repetition
from callgate.providers import Provider
from callgate.run import Pending, Resumed, Run, RunConfig, Step
from callgate.run import _journal as journal
from callgate.schema import CompiledSchema
from callgate.tools import Toolbox, ToolLike, as_toolbox
from callgate.types import Entry, Message, ModelInfo, Part, Principal, ToolSpec

__all__ = ["Agent", "Pending", "RunResult", "Stream"]

Prompt: TypeAlias = "str | Loose | Sequence[Part]"
MAX_RECENT = 10_000
"""Starts of one tool for one principal that are remembered for its rate."""


class Agent:
    """Runs a model with tools.

    `model` is "local", "ollama:NAME", "openai:NAME", "http://host/v1#NAME" or a provider; `tools` are functions,
    `Tool`s, toolboxes or JSON descriptions. Rules of `policy` come on top of those that are always there. `ledger`
    is "memory", "sqlite:PATH" or "postgresql://…"; None keeps the journal in memory. `approve(call)` answers questions
    about calls; without it a run that has to ask ends as `waiting`.
    """

    _loaded = False
    """Whether a run has loaded what all need."""

    def __init__(
        self,
        model: str | Provider,
        tools: Iterable[ToolLike] | ToolLike | None = (),
        *,
        instructions: str = "",
        options: Mapping[str, Any] | None = None,
        policy: Iterable[RuleLike] | Mapping[str, Any] = (),
        ledger: str | Ledger | None = None,
        approve: Approve | None = None,
        protocol: str = "auto",
        dialect: str | None = None,
        max_turns: int | None = 6,
        max_requests: int | None = 24,
        max_calls_per_turn: int | None = 16,
        max_calls: int | None = None,
        max_tokens: int | None = 200_000,
        tool_timeout: float = 30.0,
        run_timeout: float | None = 120.0,
        retries: int = 2,
        max_result: int = 8000,
        max_parallel: int = 8,
        grace: float = 2.0,
        repeat_warn: int = 3,
        repeat_stop: int = 4,
        max_context: int | None = None,
        summarize: bool = False,
        approval_expires: float | None = None,
    ) -> None:
        self.provider = providers.open(model)
        self.toolbox = as_toolbox(tools)
        self.instructions = instructions or ""
        self.options = dict(options or {})
        self.ledger = ledgers.open(ledger)
        self._private = ledger in (None, "memory")
        self.approve = _asked(approve)
        protocols.choose(ModelInfo(""), (), protocol)  # raises for a name that nobody knows
        self.protocol = protocol
        self.dialect = _known(dialect)
        self.executor = Executor(
            self.toolbox, timeout=tool_timeout, max_parallel=max_parallel, grace=grace, max_result=max_result
        )
        limits = budget.Rule(max_turns, max_requests, max_calls_per_turn, max_calls, run_timeout, max_tokens)
        own: tuple[gate.Rule, ...] = (
            permission.Rule(),
            rate.Rule(),
            approval.Rule(),
            repetition.Rule(repeat_warn, repeat_stop),
            limits,
        )
        self.rules = (*own, *gate.combine(policy))
        self._run_timeout = run_timeout
        self._retries = retries
        self._max_context = max_context
        self._summarize = summarize
        self._approval_expires = approval_expires
        self._worked: dict[str, str] = {}
        self._recent: dict[tuple[str | None, str], deque[float]] = {}
        self._drivers: dict[str, Driver] = {}
        self._busy: set[str] = set()

    # --- runs -----------------------------------------------------------------------------------------------------

    async def run(
        self,
        prompt: Prompt,
        *,
        history: Iterable[Loose] = (),
        principal: Principal | None = None,
        tools: Iterable[str] | None = None,
        output: Any = None,
        run_id: str | None = None,
        key: str = "",
    ) -> RunResult:
        """One run to its end. `history` is that of an earlier result, or of another program; `tools` are the names
        (with globs) of those that it may use, None: all; `output` is a JSON Schema or a pydantic model that the final
        answer must fit (`result.output`); `key` makes the idempotency keys of its writes, so that the same work may be
        asked for by another run."""
        order = Order(_messages(prompt, history), principal, self._names(tools), Form.of(output), run_id, key)
        return await self._begin(order)(None)

    def run_sync(self, prompt: Prompt, **named: Any) -> RunResult:
        """The same for programs without an event loop; takes what `run` takes."""
        return _sync(self.run, prompt, **named)

    def stream(
        self,
        prompt: Prompt,
        *,
        history: Iterable[Loose] = (),
        principal: Principal | None = None,
        tools: Iterable[str] | None = None,
        output: Any = None,
        run_id: str | None = None,
        key: str = "",
    ) -> Stream:
        """The run as events: `async with agent.stream(…) as events`. Leaving the block cancels the run."""
        order = Order(_messages(prompt, history), principal, self._names(tools), Form.of(output), run_id, key)
        unbegun = RunResult("", list(order.history.messages), [], "cancelled", {}, run_id or "")
        return Stream(self._begin(order), unbegun)

    async def resume(
        self,
        run_id: str,
        answers: Mapping[str, Any] | None = None,
        *,
        principal: Principal | None = None,
        approve: Approve | None = None,
    ) -> RunResult:
        """Goes on with a run of the ledger: one that waits for answers (`{call_id: True}`), or one that was cut off.

        Finished calls are not run again, started writes are looked up, an unfinished answer is asked for again. A run
        that has ended gives its result. `principal` is the one of the run unless given afresh. Raises `LedgerError` if
        there is no such run, `RunBusy` if somebody else carries it out.
        """
        return await self._again(run_id, answers or {}, principal, approve)(None)

    def resume_sync(self, run_id: str, answers: Mapping[str, Any] | None = None, **named: Any) -> RunResult:
        """`resume` for programs without an event loop."""
        return _sync(self.resume, run_id, answers, **named)

    def stream_resume(
        self,
        run_id: str,
        answers: Mapping[str, Any] | None = None,
        *,
        principal: Principal | None = None,
        approve: Approve | None = None,
    ) -> Stream:
        """`resume` as events."""
        return Stream(self._again(run_id, answers or {}, principal, approve))

    async def cancel(self, run_id: str) -> bool:
        """Cancels a run of this agent, or of any process that shares the ledger; one that waits
        or was cut off is ended. False: it has ended already, or there is no such run."""
        driver = self._drivers.get(run_id)
        if driver is not None:
            driver.cancel()
            return True
        if await self.ledger.cancel(run_id):
            return True
        try:
            return run_id not in self._busy and await ledgers.close(self.ledger, run_id)
        except RunBusy:  # taken up this very moment
            return await self.ledger.cancel(run_id)

    async def aclose(self) -> None:
        """Gives back connections and files. The agent may not be used after it."""
        await self.provider.aclose()
        await self.ledger.aclose()

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- how --------------------------------------------------------------------------------------------------------

    def _begin(self, order: Order) -> Work:
        """Everything of the caller is checked before anything starts."""

        async def work(stream: Stream | None) -> RunResult:
            await pace().turn()
            run_id = order.run_id or new_id()
            if order.run_id is not None and await self.ledger.run(run_id) is not None:
                raise ConfigError(f"run_id {run_id!r}: the ledger has this run already; resume it, or give another id")
            config = self._config(run_id, await self._info(), order.principal, order.tools)
            if order.form.schema is not None or order.key:
                config = replace(config, output=order.form.schema, key=order.key)
            run = Run(await self._ready(config))
            async with self._held(run_id) as hold:
                result = await self._drive(run, lambda: run.start(order.history), stream, self._world(hold))
                return order.form.fill(result)

        return work

    def _names(self, tools: Iterable[str] | None) -> tuple[str, ...]:
        return self.toolbox.names if tools is None else self.toolbox.only(*tools).names

    def _again(
        self, run_id: str, answers: Mapping[str, Any], principal: Principal | None, approve: Approve | None
    ) -> Work:
        async def work(stream: Stream | None) -> RunResult:
            async with self._held(run_id) as hold:
                entries = await self.ledger.read(run_id)
                if not entries:
                    raise LedgerError(f"run {run_id!r}: the ledger {self.ledger.where} has no such run")
                run = await self._folded(run_id, entries, principal)
                people = People(self.executor.threads, approve or self.approve, answers)
                idle = run.phase == "parked" and not any(people.may_answer(p) for p in run.pending)
                if run.ended or idle:
                    return result_of(run)
                now = time.time()
                waited = {e.data["call_id"]: max(0.0, now - e.at) for e in entries if e.kind == "ask"}
                world = replace(self._world(hold, people), waited=waited)
                return await self._drive(run, lambda: run.receive(Resumed(run.now)), stream, world)

        return work

    async def _folded(self, run_id: str, entries: Sequence[Entry], principal: Principal | None) -> Run:
        """The run as its journal left it."""
        start = entries[0].data
        known = None if start.get("principal") is None else Principal(start["principal"], start.get("grants", ()))
        if principal is not None and (known is None or principal.id != known.id):
            raise ConfigError(f"run {run_id!r} belongs to {known.id if known else 'nobody'}, not to {principal.id}")
        config = await self._ready(self._config(run_id, await self._info(), principal or known, start["tools"]))
        config = replace(
            config,
            key=start.get("key", ""),
            protocol=start["protocol"],
            dialect=start.get("dialect"),
            output=start.get("output"),
            verdicts=journal.verdicts_of(entries),
        )
        run = Run(config)
        journal.fold(run, entries)
        return run

    async def _drive(self, run: Run, first: Callable[[], Step], stream: Stream | None, world: World) -> RunResult:
        config = run.config
        world.started = lambda tool: self._starts(config.principal, tool).append(time.monotonic())
        driver = Driver(run, world, stream.emit if stream else _unheard, stream.room if stream else None)
        if stream is not None:
            stream.driver = driver
        self._drivers[config.run_id] = driver
        watch = asyncio.ensure_future(_watch(world.hold, driver)) if world.hold else None
        try:
            await driver.drive(first)
        finally:
            del self._drivers[config.run_id]
            if watch is not None:
                watch.cancel()
            if stream is not None:
                stream.finished(result_of(run))
        if run.protocol not in (config.protocol, "answer") and any(r.result.ok for r in run.records):
            self._worked[config.info.name] = run.protocol
        return result_of(run)

    def _world(self, hold: Hold | None, people: People | None = None) -> World:
        people = people or People(self.executor.threads, self.approve)
        return World(self.provider, self.executor, self.ledger, people, timeout=self._run_timeout, hold=hold)

    @asynccontextmanager
    async def _held(self, run_id: str) -> AsyncIterator[Hold | None]:
        """The sole right to carry out the run; of a private ledger nobody else could, so there is nothing to hold."""
        if run_id in self._busy:
            raise RunBusy(f"run {run_id}: this agent carries it out already")
        self._busy.add(run_id)
        try:
            if self._private:
                yield None
            else:
                async with ledgers.hold(self.ledger, run_id) as held:
                    yield held
        finally:
            self._busy.discard(run_id)

    async def _info(self) -> ModelInfo:
        """What the provider tells of the model. If it fails now, the request that follows will say so."""
        try:
            async with asyncio.timeout(self._run_timeout):
                return await self.provider.info()
        except Exception:
            return ModelInfo(self.provider.model, self.provider.name)

    def _config(self, run_id: str, info: ModelInfo, principal: Principal | None, tools: Collection[str]) -> RunConfig:
        specs = tuple(spec for spec in self.toolbox.specs if spec.name in tools)
        wanted = self._worked.get(info.name, "auto") if self.protocol == "auto" else self.protocol
        return RunConfig(
            run_id=run_id,
            info=info,
            protocol=protocols.choose(info, specs, wanted),
            tools=specs,
            instructions=self.instructions,
            options=self.options,
            dialect=self.dialect or info.dialect,
            rules=self.rules,
            principal=principal,
            retries=self._retries,
            max_result=self.executor.max_result,
            adapt=self.protocol == "auto",
            context=self._max_context or _room_of(info, self.options),
            summarize=self._summarize,
            approval_expires=self._approval_expires,
            compile=lambda spec: self.toolbox[spec.name].compiled if spec.name in self.toolbox else _compiled(spec),
            recent=lambda tool, seconds: _count(self._starts(principal, tool), seconds),
            resolve=os.path.realpath,
        )

    async def _ready(self, config: RunConfig) -> RunConfig:
        """Loads what the first run of an agent needs, aside: schemas and readers take long enough to be noticed."""
        if not self._loaded:
            self._loaded = True
            with suppress(Exception):  # what is wrong, the run says where it is wrong
                await in_thread(self.executor.threads, lambda: _load(self.toolbox, config))
        return config

    def _starts(self, principal: Principal | None, tool: str) -> deque[float]:
        who = principal.id if principal else None
        return self._recent.setdefault((who, tool), deque(maxlen=MAX_RECENT))


@dataclass(frozen=True)
class Order:
    """What the caller of a run wants. Raises ConfigError for what cannot be."""

    messages: InitVar[list[Loose]]
    principal: Principal | None
    tools: tuple[str, ...]
    form: Form
    run_id: str | None
    key: str
    history: History = field(init=False)

    def __post_init__(self, messages: list[Loose]) -> None:
        if self.principal is not None and not isinstance(self.principal, Principal):
            raise ConfigError(f"principal: a Principal is needed, not {type(self.principal).__name__}")
        object.__setattr__(self, "history", History.adopt(messages))


def _load(toolbox: Toolbox, config: RunConfig) -> None:
    for tool in toolbox:
        _ = tool.compiled
    query = next(protocols.turn(config.protocol, history=(Message("user", ""),), tools=config.tools, info=config.info))
    if isinstance(query, protocols.Query) and query.machine is not None:
        query.machine().feed(" ")


def _known(dialect: str | None) -> str | None:
    """The dialect, if there is one of that name. Raises UnknownDialect."""
    if dialect is not None and dialect != "auto":
        dialects.get(dialect)
    return dialect


def _asked(approve: Approve | None) -> Approve | None:
    if approve is not None and not callable(approve):
        raise ConfigError(f"approve: a function of the call is needed, not {approve!r}")
    return approve


def new_id() -> str:
    """A run id: sorts by time, and cannot be guessed."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(6)}"


def _messages(prompt: Prompt, history: Iterable[Loose]) -> list[Loose]:
    if isinstance(prompt, str):
        prompt = Message("user", prompt)
    elif not isinstance(prompt, (Message, Mapping)):
        if not isinstance(prompt, (list, tuple)) or not all(isinstance(part, Mapping) for part in prompt):
            raise ConfigError(f"prompt: a text, a message or a list of content parts is needed, not {prompt!r}")
        prompt = Message("user", tuple(prompt))
    return [*(history or ()), prompt]


def _sync(work: Callable[..., Coroutine[Any, Any, RunResult]], *given: Any, **named: Any) -> RunResult:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work(*given, **named))
    name = getattr(work, "__name__", "run")
    raise ConfigError(f"{name}_sync would block the event loop that is running: write `await agent.{name}(…)`")


def _unheard(event: Event) -> None:
    """Nobody listens."""


async def _watch(held: Hold, driver: Driver) -> None:
    """Cancels the run when somebody asked for it through the ledger, or when another owner took it over."""
    waits = [asyncio.ensure_future(held.cancelled.wait()), asyncio.ensure_future(held.lost.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        driver.cancel()
    finally:
        for wait in waits:
            wait.cancel()


def _count(starts: deque[float], seconds: float) -> int:
    since = time.monotonic() - seconds
    return sum(at > since for at in starts)


def _room_of(info: ModelInfo, options: Mapping[str, Any]) -> int | None:
    """Tokens for the history in a known context: what an answer, the tools and the instructions leave."""
    if not info.context_length:
        return None
    answer = int(options.get("max_tokens") or min(info.context_length // 4, 4096))
    return max(info.context_length - answer - info.context_length // 8, info.context_length // 4)


def _compiled(spec: ToolSpec) -> CompiledSchema:
    return CompiledSchema(spec.parameters, closed=spec.strict)
