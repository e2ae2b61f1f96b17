"""One run while it is carried out: what it says is recorded, then shown.

Law: what a step records is in the ledger before anything that follows from it is done or shown.
(tests/test_agent.py::test_a_started_run_never_raises)
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

from callgate.agent._approver import Approver
from callgate.agent._checks import Checks
from callgate.agent._clock import Clock
from callgate.agent._starts import Starts
from callgate.agent._stop import StopSignal
from callgate.errors import CallgateError, LedgerError
from callgate.events import CallFinished, Event, ProtocolChanged, RunFinished
from callgate.limits import DEFAULTS, Limits
from callgate.masking import declared
from callgate.run.inputs import Broke, Command, End, Failed, Input, Pending, Record, Step
from callgate.types import EXTERNAL, Entry, ModelInfo

if TYPE_CHECKING:
    from callgate.executor import Executor
    from callgate.ledger import LeaseKeeper, Ledger
    from callgate.providers import Provider
    from callgate.run import Run

T = TypeVar("T")
Emit = Callable[[Event], object]


@dataclass(slots=True, frozen=True)
class Refusal:
    """A protocol that the server refused, and the one that was used instead."""

    refused: str
    protocol: str
    reason: str

    @property
    def note(self) -> str:
        """What the later runs of the agent say about it."""
        return (
            f"an earlier run of this agent found {self.refused!r} refused, so {self.protocol!r} was used: {self.reason}"
        )


@dataclass(slots=True)
class Runtime:
    """What a run is carried out with."""

    providers: Sequence[Provider]
    """The run's model, and those to go on with."""
    executor: Executor
    ledger: Ledger
    approver: Approver
    secrets: Collection[str] = ()
    """Declared secrets that are known before anything happens: the keys that the provider sends."""
    deps: object = None
    """The application's own things, for the tools."""
    checks: Checks = field(default_factory=Checks)
    waited: Mapping[str, float] = field(default_factory=dict)
    """How long the questions of a resumed run stood."""
    limits: Limits = DEFAULTS
    outer: LeaseKeeper | None = None
    """The lease of the run that this one belongs to."""
    timeout: float | None = None
    waits: bool = True
    """Whether the wait for a first token counts as the run's time: not, where the limit is only the default."""
    ledger_timeout: float = DEFAULTS.ledger_timeout
    max_answer: int = DEFAULTS.max_answer
    lease: LeaseKeeper | None = None
    """The lease under which this is recorded."""
    starts: Starts = field(default_factory=Starts)
    """The starts of all runs of the agent."""

    def agent_of(self, pending: Pending) -> Any:
        """The agent that carries this call out, if one does."""
        tool = self.executor.toolbox.get(pending.name) if pending.rule == EXTERNAL else None
        return tool.carried_out_by if tool is not None else None


class Session:
    """A run, its clock, and the one way from what it says to the ledger and to whoever watches."""

    def __init__(
        self,
        run: Run,
        runtime: Runtime,
        stop: StopSignal,
        emit: Emit,
        backpressure: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.run = run
        self.runtime = runtime
        self.stop = stop
        self.clock = Clock(run.now, runtime.timeout, lambda: stop.request("time"))
        self.secrets = set(runtime.secrets)
        """Declared secrets that are known by now: the provider's key, and those in the calls so far."""
        self.broken: str | None = None
        """How the ledger failed; then nothing is written any more."""
        self.inner: dict[str, tuple[Pending, ...]] = {}
        """Call id -> the calls that wait in the run of the agent that carries it out."""
        self.refusal: tuple[ModelInfo, Refusal] | None = None
        """The last step down that a server itself caused, and of which model; one that an answer caused is this run's
        own affair."""
        self._emit = emit
        self._backpressure = backpressure
        self._steps: list[Step] = []
        """What nobody has written or seen yet, in order."""
        self._writing = asyncio.Lock()

    def add(self, step: Step) -> None:
        """Queues a step to be written and shown."""
        self._steps.append(step)

    def tell(self, value: Input) -> Step:
        """Brings the run an input. What follows is written and shown in this very order."""
        step = self.run.receive(value)
        self._steps.append(step)
        # Only what the server itself said is remembered for later runs: a step down that a bad answer caused may be
        # chance.
        if isinstance(value, Failed) and (value.status or 400) < 500:  # a 5xx may be over with the next request
            for event in step.events:
                if isinstance(event, ProtocolChanged):
                    refusal = Refusal(event.before, event.after, event.reason)
                    self.refusal = (self.run.state.config.info, refusal)
        return step

    async def follow(self, step: Step, *, wait: bool = True) -> Command | None:
        """Records, then shows, what is queued; the command of this step that is to be carried out."""
        # Most steps of a stream record nothing and are shown without a wait; a token costs no round through the ledger.
        if not self.show_all():
            try:
                await self.write()
            except LedgerError as error:  # nothing can be recorded, so nothing more is done
                step = self.run.receive(Broke(f"the ledger failed: {error}", self.clock.now))
                self._show(step)
        if wait:
            await self.keep_pace()
        command = next((c for c in reversed(step.commands) if not isinstance(c, Record)), None)
        return None if isinstance(command, End) else command

    async def keep_pace(self) -> None:
        """Waits while whoever watches is too far behind."""
        if self._backpressure is not None:
            await self._backpressure()

    async def write(self) -> None:
        """Everything queued is in the ledger, and then shown. Raises LedgerError, then and ever after."""
        cancelled: asyncio.CancelledError | None = None
        async with self._writing:
            # Under the lock: two tasks may write (the worker and an abandoned call's result), and entries must not
            # change their order.
            steps, self._steps = self._steps, []
            records = [c for step in steps for c in step.commands if isinstance(c, Record)]
            if records and self.broken is None:
                try:
                    cancelled = await self._append(records)
                except Exception as error:  # a store of others may raise anything
                    self.broken = text_of(error)
            for step in steps:
                self._show(step)
        if self.broken is not None:
            raise LedgerError(self.broken)
        if cancelled is not None:
            raise cancelled

    async def _append(self, records: list[Record]) -> asyncio.CancelledError | None:
        """A cancel that came meanwhile: what was begun to be written is written first."""
        lease = self.runtime.lease
        work = self.runtime.ledger.append(
            self.run.config.run_id,
            self._guarded([record.entry for record in records]),
            durable=any(record.durable for record in records),
            fence=lease.fence if lease else None,
        )
        if self.runtime.ledger.where == "memory":  # it never waits
            await work
            return None
        return await _written(work, self.runtime.ledger, self.runtime.ledger_timeout)

    def _guarded(self, entries: list[Entry]) -> list[Entry]:
        """The entries, told which declared secrets they must not show (S1)."""
        for entry in entries:
            for name, arguments in _calls_in(entry):
                tool = self.runtime.executor.toolbox.get(name)
                if tool is not None:
                    self.secrets.update(declared(tool.spec.parameters, arguments))
        # All that are known by now, and not only those of this entry: a result may repeat an argument of an earlier
        # call.
        known = tuple(self.secrets)
        return [replace(entry, secrets=known) for entry in entries] if known else entries

    async def ask(self, work: Coroutine[Any, Any, T]) -> T:
        """What the ledger answers; raises LedgerError when it does not answer in time."""
        return await within(work, self.runtime.ledger, self.runtime.ledger_timeout)

    def show_all(self) -> bool:
        """Shows what nobody has seen yet, unless something of it must be written first."""
        # Somebody writes just now: what is shown must not overtake what is being recorded.
        if self._writing.locked():
            return False
        for step in self._steps:
            if step.commands and any(isinstance(c, Record) for c in step.commands):
                return False
        steps, self._steps = self._steps, []
        for step in steps:
            self._show(step)
        return True

    def _show(self, step: Step) -> None:
        for event in step.events:
            # When the ledger has failed, only ends are shown: whoever watches must not wait for ever, and must not see
            # a step that no record has.
            if self.broken is None or isinstance(event, (CallFinished, RunFinished)):
                self._emit(event)


def _calls_in(entry: Entry) -> Iterator[tuple[str, Any]]:
    """The tools and arguments that an entry names."""
    if entry.kind == "call_intent":
        yield str(entry.data["tool"]), entry.data["arguments"]
    elif entry.kind == "answer" and "edited" in entry.data:
        yield str(entry.data["tool"]), entry.data["edited"]
    elif entry.kind == "call_proposed" and isinstance(entry.data["call"], Mapping):
        yield str(entry.data["call"].get("name")), entry.data["call"].get("arguments")


async def within(work: Coroutine[Any, Any, T], ledger: Ledger, seconds: float) -> T:
    """What the ledger answers. Raises LedgerError when it does not answer in time: a run must be able to end without
    it. What was asked of it may still take effect later, as with a connection that breaks."""
    # Not `wait_for`: that waits until the cancelled work has ended, and a ledger that hangs never does.
    task = asyncio.ensure_future(work)
    try:
        _, timed_out = await asyncio.wait({task}, timeout=seconds)
    finally:
        _let_go(task)
    if not timed_out:
        return task.result()
    raise _silent(ledger, seconds)


async def _written(work: Coroutine[Any, Any, Any], ledger: Ledger, seconds: float) -> asyncio.CancelledError | None:
    """`within` and `to_its_end` in one, and in one task, for every step of every run goes this way: a cancel that came
    meanwhile."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done() and (left := deadline - loop.time()) > 0:
        try:
            await asyncio.wait({task}, timeout=left)
        except asyncio.CancelledError as error:
            cancelled = error
    failure = task.exception() if task.done() else _silent(ledger, seconds)
    _let_go(task)
    if failure is None:
        return cancelled
    if cancelled is not None:
        raise cancelled from failure
    raise failure


def _let_go(task: asyncio.Task[Any]) -> None:
    if not task.done():
        task.add_done_callback(_forget)
        task.cancel()


def _silent(ledger: Ledger, seconds: float) -> LedgerError:
    return LedgerError(
        f"the ledger {ledger.where} did not answer within {seconds:g} s (ledger_timeout); see whether its server or "
        "disk is busy or locked"
    )


def _forget(task: asyncio.Task[object]) -> None:
    if not task.cancelled():
        task.exception()  # nobody waits for it any more


def text_of(error: BaseException) -> str:
    """An error as one line of a result."""
    return str(error) if isinstance(error, CallgateError) else f"{type(error).__name__}: {error}"
