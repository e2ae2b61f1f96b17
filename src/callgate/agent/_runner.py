"""What an agent's runs share, and how one is begun, taken up again and brought to its end.

Law: runs keep to themselves. Nothing of one is kept for another but the rates of calls, and which protocol the server
refused. (tests/test_agent_refusals.py::test_only_a_refusal_of_the_server_is_remembered)
"""

from __future__ import annotations

import asyncio
import copy
import functools
import logging
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any, TypeVar, cast

from callgate import ledger as ledgers
from callgate import providers
from callgate.agent._approver import Approve, Approver, takes_two
from callgate.agent._calls import CallSide
from callgate.agent._config import Known, config_of, load, refusal_of
from callgate.agent._driver import Driver
from callgate.agent._form import Form
from callgate.agent._instructions import joined
from callgate.agent._once import Once
from callgate.agent._request import OnEvent, ResumeRequest, RunRequest, check_answers, checked_session, new_id
from callgate.agent._result import RunResult, result_of
from callgate.agent._scheduler import scheduler
from callgate.agent._session import Refusal, Runtime, Session, within
from callgate.agent._sessions import conversation_of, going_on, last_run
from callgate.agent._setup import Setup
from callgate.agent._shield import in_thread
from callgate.agent._starts import Starts
from callgate.agent._stop import StopSignal
from callgate.agent._stream import Stream, Work
from callgate.errors import ConfigError, LedgerError, RunBusy
from callgate.events import Event
from callgate.history import History
from callgate.ledger import LeaseKeeper, Ledger
from callgate.providers import Provider
from callgate.run import Beginning, Conversation, Resumed, Run, RunConfig, Step, restore
from callgate.tools import ToolContext
from callgate.types import Entry, ModelInfo, Principal

T = TypeVar("T")
LOGGER = logging.getLogger("callgate.agent")
MAX_FORMS = 10_000
"""Runs whose output type is remembered for `resume`; a ledger cannot keep a type."""


class Runner:
    """Carries out the runs of one agent."""

    def __init__(self, ledger: Ledger, approve: Approve | None, *, private: bool, on_event: OnEvent | None) -> None:
        self.ledger = ledger
        self.approve = approve
        self._private = private
        self._outer: LeaseKeeper | None = None
        """The lease of the run that the runs belong to."""
        self._on_event = on_event
        self._opened: dict[str, Provider] = {}
        """Providers that runs named, kept for the next run that names them."""
        self._load = Once()
        """What all runs need, which is loaded by the first."""
        self._warm: set[type] = set()
        """The kinds of providers that have loaded what a first request needs."""
        self._refusals: dict[tuple[str, str], Refusal] = {}
        """(provider, model) -> the protocol that the server refused, and what was used instead."""
        self._starts = Starts()
        self._active: dict[str, StopSignal] = {}
        """The runs that are being prepared or carried out, and how each is ended."""
        self._forms: OrderedDict[str, Form] = OrderedDict()

    def lent(self, ledger: Ledger, approve: Approve | None, outer: LeaseKeeper | None) -> Runner:
        """The same for one run inside that of another agent: in its ledger, under its lease."""
        made = copy.copy(self)  # what it learned of models, and the starts, are those of the agent
        made.ledger, made.approve, made._outer, made._private = ledger, approve, outer, True
        return made

    def open(self, model: str | Provider) -> Provider:
        """The provider that a run names."""
        if not isinstance(model, str):
            return providers.open(model)
        if model not in self._opened:
            self._opened[model] = providers.open(model)
        return self._opened[model]

    async def cancel(self, run_id: str) -> bool:
        """Ends a run of this or any other process, or one that waits. False: it has ended, or there is none."""
        stop = self._active.get(run_id)
        if stop is not None:
            stop.request()
            return True
        if await self.ledger.cancel(run_id):
            return True
        try:
            return await ledgers.close(self.ledger, run_id)
        except RunBusy:  # taken up this very moment
            return await self.ledger.cancel(run_id)

    async def aclose(self) -> None:
        """Gives back the ledger and the providers that runs named."""
        for provider in self._opened.values():
            await provider.aclose()
        await self.ledger.aclose()

    # --- a run and its resumption -----------------------------------------------------------------------------------

    def begin(self, request: RunRequest) -> Work[Any]:
        """A new run."""

        async def work(stream: Stream[Any] | None) -> RunResult[Any]:
            await scheduler().turn()
            return await self._begun(await self._in_session(request), stream)

        return work

    async def _begun(self, request: RunRequest, stream: Stream[Any] | None) -> RunResult[Any]:
        run_id = request.run_id or new_id()
        async with self._held(run_id, request.setup.limits.ledger_timeout) as (stop, lease):
            # under the lease: of several that are given one id, exactly one finds it unused
            if request.run_id is not None and await self._in_time(self.ledger.run(run_id), request) is not None:
                if request.session is not None:
                    raise RunBusy(f"session {request.session!r}: another run of it began at the same time")
                raise ConfigError(f"run_id {run_id!r}: the ledger has this run already; resume it, or give another id")
            config = await self._config(run_id, request, stop)
            config = replace(config, output=request.form.schema, accept=request.form.accept, key=request.key)
            config = replace(config, summary=request.summary)
            run = Run(await self._ready(config, request, stop))
            self._remember(run_id, request.form)
            session = self._session(run, self._runtime(request, lease), stop, stream)
            return request.form.fill(await self._drive(session, lambda: run.start(request.history), stream))

    async def _in_session(self, request: RunRequest) -> RunRequest:
        """The request as the next run of its session."""
        if request.session is None:
            return request
        work = going_on(self.ledger, request.session, request.principal)
        run_id, known = await self._in_time(work, request)
        if not known.messages:
            return replace(request, run_id=run_id)
        if request.continues:
            raise ConfigError(f"session {request.session!r}: it has messages already; history= is for its first run")
        history = History.adopt([*known.messages, *request.history.messages])
        return replace(request, run_id=run_id, history=history, summary=known.summary)

    async def conversation(self, session: str, principal: Principal | None) -> Conversation:
        """What a session of the ledger holds."""
        number = await last_run(self.ledger, checked_session(session), principal)
        return await conversation_of(self.ledger, session, number, principal) if number else Conversation()

    def again(self, run_id: str, request: ResumeRequest) -> Work[Any]:
        """A run of the ledger goes on."""

        async def work(stream: Stream[Any] | None) -> RunResult[Any]:
            async with self._held(run_id, request.setup.limits.ledger_timeout) as (stop, lease):
                entries = await self._in_time(self.ledger.read(run_id), request)
                if not entries:
                    where = f"the ledger {self.ledger.where} has no such run; give the ledger that it was recorded in"
                    raise LedgerError(f"run {run_id!r}: {where}")
                form = request.form or self._forms.get(run_id) or Form()
                run = await self._folded(run_id, entries, request, form, stop)
                check_answers(request, run, entries)
                threads = request.setup.executor.threads
                approver = Approver(threads, request.approve or self.approve, request.answers, request.results)
                now = time.time()
                waited = {e.data["call_id"]: max(0.0, now - e.at) for e in entries if e.kind == "ask"}
                runtime = replace(self._runtime(request, lease, approver), waited=waited)
                # What waits in the run of an agent that carries a call out is only known to that one.
                idle = run.phase == "parked" and not any(
                    approver.may_answer(p) or runtime.agent_of(p) is not None for p in run.pending
                )
                if run.ended or idle:
                    return form.fill(result_of(run))
                session = self._session(run, runtime, stop, stream)
                return form.fill(await self._drive(session, lambda: run.receive(Resumed(run.now)), stream))

        return work

    async def _folded(
        self, run_id: str, entries: Sequence[Entry], request: ResumeRequest, form: Form, stop: StopSignal
    ) -> Run:
        """The run as its journal left it."""
        start, principal = Beginning.of(entries, request.setup.own_dialects), request.principal
        known = start.principal
        if principal is not None and (known is None or principal.id != known.id):
            raise ConfigError(f"run {run_id!r} belongs to {known.id if known else 'nobody'}, not to {principal.id}")
        wanted = replace(request, principal=principal or known)
        config = await self._ready(await self._config(run_id, wanted, stop, start), wanted, stop)
        config = replace(config, key=start.key, protocol=start.protocol, dialect=start.dialect)
        config = replace(config, output=start.output, accept=form.accept)
        return restore(config, entries, await self._in_time(self.ledger.held(run_id), request))

    async def _drive(self, session: Session, first: Callable[[], Step], stream: Stream[Any] | None) -> RunResult[Any]:
        config = session.run.config
        known = refusal_of(config.info, self._refusals)
        notes = [known.note] if known is not None and known.protocol == config.protocol else []
        try:
            await Driver(session, CallSide(session)).drive(first)
        finally:
            result = result_of(session.run, notes, session.inner)
            if stream is not None:
                stream.finished(result)
        if session.refusal is not None and result.ok:  # the server's word, and what came instead did work
            info, refusal = session.refusal
            self._refusals[info.provider, info.name] = refusal
        return result

    def _remember(self, run_id: str, form: Form) -> None:
        """Keeps the type of a run's output for its resumption."""
        if (form.wanted and form.schema is None) or form.make is not None:
            self._forms[run_id] = form
            if len(self._forms) > MAX_FORMS:
                self._forms.popitem(last=False)

    # --- what a run is made of --------------------------------------------------------------------------------------

    async def _in_time(self, work: Coroutine[Any, Any, T], request: RunRequest | ResumeRequest) -> T:
        return await within(work, self.ledger, request.setup.limits.ledger_timeout)

    async def _config(
        self, run_id: str, request: RunRequest | ResumeRequest, stop: StopSignal, start: Beginning | None = None
    ) -> RunConfig:
        """The configuration of a run, with its instructions made for it."""
        setup, principal = request.setup, request.principal
        info, *others = await asyncio.gather(
            *(self._info(provider, setup, stop) for provider in (setup.provider, *setup.others))
        )
        context: ToolContext[Any] = ToolContext(principal, run_id, deps=request.deps)
        text = await joined(setup.instructions, context, setup.executor.threads)
        return config_of(
            setup,
            Known(
                run_id,
                providers.loaded(info, setup.options),
                principal,
                text,
                self._refusals,
                functools.partial(self._starts.recent, principal.id if principal else None),
                tuple(providers.loaded(other, setup.options) for other in others),
            ),
            setup.toolbox.names if start is None else start.tools,
        )

    def _runtime(
        self, request: RunRequest | ResumeRequest, lease: LeaseKeeper | None, approver: Approver | None = None
    ) -> Runtime:
        setup = request.setup
        asked = (setup.provider, *setup.others)
        return Runtime(
            asked,
            setup.executor,
            self.ledger,
            approver or Approver(setup.executor.threads, self.approve),
            secrets=[secret for provider in asked for secret in providers.secrets_of(provider)],
            deps=request.deps,
            checks=setup.checks,
            limits=setup.limits,
            outer=self._outer,
            timeout=setup.limits.run_timeout,
            waits=setup.waits,
            ledger_timeout=setup.limits.ledger_timeout,
            max_answer=setup.limits.max_answer,
            lease=lease,
            starts=self._starts,
        )

    def _session(self, run: Run, runtime: Runtime, stop: StopSignal, stream: Stream[Any] | None) -> Session:
        shows: list[Callable[[Event], object]] = [] if stream is None else [stream.emit]
        if self._on_event is not None:
            shows.append(watching(self._on_event, run.config.run_id))
        if stream is not None:
            stream.stop = stop
        emit = _ignored if not shows else shows[0] if len(shows) == 1 else lambda event: [show(event) for show in shows]
        return Session(run, runtime, stop, emit, stream.backpressure if stream is not None else None)

    @asynccontextmanager
    async def _held(self, run_id: str, seconds: float) -> AsyncIterator[tuple[StopSignal, LeaseKeeper | None]]:
        """The sole right to carry out the run, and what ends it; of a private ledger nobody else could have it, so
        there is no lease."""
        if run_id in self._active:
            raise RunBusy(f"run {run_id}: this agent carries it out already")
        stop = self._active[run_id] = StopSignal()
        try:
            if self._private:
                yield stop, None
                return
            held = ledgers.hold(self.ledger, run_id)
            lease = await within(held.__aenter__(), self.ledger, seconds)
            watch = asyncio.ensure_future(_watch(lease, stop))
            try:
                yield stop, lease
            finally:
                watch.cancel()
                with suppress(LedgerError):  # a lease that cannot be given back runs out by itself
                    await within(held.__aexit__(None, None, None), self.ledger, seconds)
        finally:
            del self._active[run_id]

    async def _info(self, provider: Provider, setup: Setup, stop: StopSignal) -> ModelInfo:
        """What the provider tells of the model. If it fails now, the request that follows will say so."""
        try:
            if type(provider) not in self._warm:  # an import on the loop would make every run deaf for a quarter second
                await stop.unless(in_thread(setup.executor.threads, lambda: providers.warm(provider)))
                if not stop.requested:
                    self._warm.add(type(provider))
            # A server that never tells of its model must not hold a run that has not even begun.
            async with asyncio.timeout(setup.limits.run_timeout):
                info = await stop.unless(provider.info())
        except Exception:
            info = None
        return info or ModelInfo(provider.model, provider.name)

    async def _ready(self, config: RunConfig, request: RunRequest | ResumeRequest, stop: StopSignal) -> RunConfig:
        """Loads in a thread what the first run of an agent needs: schemas and readers take long enough to be
        noticed."""
        setup = request.setup
        if not self._load.over and not stop.requested:
            threads, toolbox = setup.executor.threads, setup.toolbox
            with suppress(Exception):  # what is wrong, the run says where it is wrong
                await stop.unless(self._load.run(lambda: in_thread(threads, lambda: load(toolbox, config))))
        return replace(config, hash_key=await self._in_time(self.ledger.hash_key(), request))


def watching(on_event: OnEvent, run_id: str) -> Callable[[Event], None]:
    """Calls the application's watcher; what it raises never reaches the run."""
    two = takes_two(on_event)

    def show(event: Event) -> None:
        try:
            if two:
                cast("Callable[[Event, str], object]", on_event)(event, run_id)
            else:
                cast("Callable[[Event], object]", on_event)(event)
        except Exception:
            LOGGER.exception("on_event failed at %s of run %s", type(event).__name__, run_id)

    return show


def _ignored(event: Event) -> None:
    """Nobody listens."""


async def _watch(lease: LeaseKeeper, stop: StopSignal) -> None:
    """Ends the run when somebody asked for it through the ledger, or when another owner took it over."""
    waits = [asyncio.ensure_future(lease.cancelled.wait()), asyncio.ensure_future(lease.lost.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        stop.request()
    finally:
        for wait in waits:
            wait.cancel()
