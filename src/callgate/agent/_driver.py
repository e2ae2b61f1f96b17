"""The driver: carries a run's commands out and brings it what they gave. All that touches the world is here.

One law: what a step records is in the ledger before anything that follows from it is done or shown; and a run that was
begun is brought to its end and recorded, also when the driver itself is cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from callgate.agent._pace import pace
from callgate.agent._people import People
from callgate.agent._shield import to_its_end
from callgate.errors import BadRequest, CallgateError, ConfigError, LedgerError, ModelMissing, RefusedKey
from callgate.events import CallFinished, CallProgress, CallStarted, Event, RunFinished, dump_event
from callgate.executor import Batch, Caller, Executor, Hooks
from callgate.keys import arguments_hash
from callgate.ledger import Hold, Ledger
from callgate.providers import Provider
from callgate.results import unknown_outcome
from callgate.run import (
    Answered,
    AskPerson,
    Began,
    Broke,
    Cancelled,
    Command,
    End,
    Execute,
    Failed,
    Input,
    LookUp,
    Parked,
    Progressed,
    Ran,
    Received,
    Record,
    Run,
    Scored,
    ScoreText,
    Send,
    Step,
    Tick,
)
from callgate.run._batch import WITHOUT_EFFECT
from callgate.types import Entry, Finish, ToolCall, ToolResult, ToolSpec

LOGGER = logging.getLogger("callgate.agent")

Emit = Callable[[Event], None]


@dataclass(slots=True)
class World:
    """What a driver drives with."""

    provider: Provider
    executor: Executor
    ledger: Ledger
    people: People
    waited: Mapping[str, float] = field(default_factory=dict)
    """How long the questions of a resumed run stood."""
    timeout: float | None = None
    hold: Hold | None = None
    """The lease under which this is recorded."""
    started: Callable[[str], None] = lambda tool: None
    """Told of every call that begins, for the rates."""


class Driver:
    """Drives one run to its end."""

    def __init__(self, run: Run, world: World, emit: Emit, room: Callable[[], Awaitable[None]] | None = None) -> None:
        self.run = run
        self._world = world
        self._emit = emit
        self._room = room
        self._began = time.monotonic() - run.now
        self._task: asyncio.Task[Any] | None = None
        self._own: Literal["cancel", "time"] | None = None
        """Why we cancelled the task ourselves."""
        self._expected = False
        """Our own cancel is on its way."""
        self._cancels = 0
        """Cancels that the task had from outside before."""
        self._batch: Batch | None = None
        """The calls that run now."""
        self._pace = pace()
        self._unsaid: list[Step] = []
        """What the run said and nobody has written or seen yet, in order."""
        self._writing = asyncio.Lock()
        self._broken: str | None = None
        """How the ledger failed."""

    @property
    def now(self) -> float:
        """Seconds of the run: the clock without the time that people took."""
        return time.monotonic() - self._began

    def cancel(self) -> None:
        """Stops the run: what has not started never does, what runs is told, and all of it is recorded."""
        self._interrupt("cancel")

    def _interrupt(self, why: Literal["cancel", "time"]) -> None:
        if self.run.ended or self._own is not None or self._task is None:
            return
        self._own, self._expected = why, True
        self._task.cancel()

    def _is_foreign(self) -> bool:
        """Whether the cancel that just came is (also) one from outside, which must go on its way."""
        if not self._expected or self._task is None:
            return True
        self._expected = False
        return self._task.uncancel() > self._cancels

    # --- the loop -------------------------------------------------------------------------------------------------

    async def drive(self, first: Callable[[], Step]) -> None:
        """Begins with the first step and goes on until the run ends or is parked. Raises only if the task itself is
        cancelled."""
        self._task = asyncio.current_task()
        assert self._task is not None
        self._cancels = self._task.cancelling()
        try:
            await self._pace.turn()
            step = first()
            self._unsaid.append(step)
            while (command := await self._follow(step)) is not None:
                await self._pace.turn()
                step = await self._act(command)
            assert self.run.ended or self.run.phase == "parked", "the run neither goes on nor ends"
        except asyncio.CancelledError as error:
            foreign = error if self._is_foreign() else None
            _, again = await to_its_end(self._wind_up())
            if (told := foreign or again) is not None:
                raise told from None
        except Exception as error:
            LOGGER.exception("run %s: the driver failed", self.run.config.run_id)
            _, again = await to_its_end(self._give_up(f"{type(error).__name__}: {error}"))
            if again is not None:
                raise again from None
        finally:
            self._task = None

    def _tell(self, value: Input) -> Step:
        """Brings the run an input. What it says to it is written and shown in this very order."""
        step = self.run.receive(value)
        self._unsaid.append(step)
        return step

    async def _follow(self, step: Step, *, wait: bool = True) -> Command | None:
        """Records, then shows, what was said; the command that is to be carried out."""
        if not self._show_all():
            try:
                await self._write()
            except LedgerError as error:  # nothing can be recorded, so nothing more is done
                step = self.run.receive(Broke(f"the ledger failed: {error}", self.now))
                self._show(step)
        if wait and self._room is not None:
            await self._room()
        command = next((c for c in reversed(step.commands) if not isinstance(c, Record)), None)
        return None if isinstance(command, End) else command

    async def _write(self) -> None:
        """Everything said so far is in the ledger, and then shown. Raises LedgerError, then and ever after."""
        cancelled: asyncio.CancelledError | None = None
        async with self._writing:
            steps, self._unsaid = self._unsaid, []
            records = [c for step in steps for c in step.commands if isinstance(c, Record)]
            if records and self._broken is None:
                try:
                    cancelled = await self._append(records)
                except Exception as error:  # a store of others may raise anything
                    self._broken = _said(error)
                    if self._batch is not None:
                        self._batch.cancel()
            for step in steps:
                self._show(step)
        if self._broken is not None:
            raise LedgerError(self._broken)
        if cancelled is not None:
            raise cancelled

    async def _append(self, records: list[Record]) -> asyncio.CancelledError | None:
        """A cancel that came meanwhile: what was begun to be written is written first."""
        work = self._world.ledger.append(
            self.run.config.run_id,
            [record.entry for record in records],
            durable=any(record.durable for record in records),
            fence=self._world.hold.fence if self._world.hold else None,
        )
        if self._world.ledger.where == "memory":  # it never waits
            await work
            return None
        _, cancelled = await to_its_end(work)
        return cancelled

    def _show_all(self) -> bool:
        """Shows what nobody has seen yet, unless something of it must be written first."""
        if self._writing.locked():
            return False
        for step in self._unsaid:
            if step.commands and any(isinstance(c, Record) for c in step.commands):
                return False
        steps, self._unsaid = self._unsaid, []
        for step in steps:
            self._show(step)
        return True

    def _show(self, step: Step) -> None:
        for event in step.events:
            if self._broken is None or isinstance(event, (CallFinished, RunFinished)):
                self._emit(event)

    async def _wind_up(self) -> None:
        """The task was cancelled, by us or from outside: the run ends in order."""
        for _ in range(2):  # the first may wait for calls in flight, of which there are none here
            if not self.run.ended:
                self._tell(self._stop_word())
        await self._follow(Step(), wait=False)  # also what the cancel kept from being written

    async def _give_up(self, error: str) -> None:
        if not self.run.ended:
            self._tell(Broke(error, self.now))
        await self._follow(Step(), wait=False)

    def _stop_word(self) -> Tick | Cancelled:
        if self._own == "time":  # a timer may fire a moment early
            return Tick(max(self.now, self._world.timeout or 0.0))
        return Cancelled(self.now)

    # --- commands -------------------------------------------------------------------------------------------------

    async def _act(self, command: Command) -> Step:
        if isinstance(command, AskPerson):
            return await self._ask(command)
        loop = asyncio.get_running_loop()
        limit = self._world.timeout
        timer = None if limit is None else loop.call_later(max(0.0, limit - self.now), self._interrupt, "time")
        try:
            match command:
                case Send():
                    return await self._send(command)
                case ScoreText():
                    return await self._score(command)
                case Execute():
                    return await self._execute(command)
                case LookUp():
                    return await self._look_up(command)
                case _:
                    raise AssertionError(f"{command!r} is no act")
        finally:
            if timer is not None:
                timer.cancel()

    async def _send(self, send: Send) -> Step:
        """Asks the model; deltas are shown as they come."""
        if send.delay:
            await asyncio.sleep(send.delay)
        begun = False
        try:
            async with self._world.provider.stream(send.request) as stream:
                async for deltas in stream:
                    begun = begun or bool(deltas)
                    if deltas and isinstance(deltas[-1], Finish):  # what follows is no small step
                        await self._pace.turn()
                    step = self._tell(Received(deltas, self.now))
                    if step.commands:
                        return step
                    self._show_all()
                    if self._room is not None:
                        await self._room()
        except Exception as error:
            if not begun:
                return self._tell(failed(error, self.now))
            return self._tell(Received([Finish("error", error=_said(error))], self.now))
        return self._tell(Received([Finish("interrupted", error="the stream ended without its end")], self.now))

    async def _score(self, command: ScoreText) -> Step:
        try:
            scores = await self._world.provider.score(command.score)
        except Exception as error:
            return self._tell(failed(error, self.now))
        return self._tell(Scored(scores, self.now))

    # --- calls ----------------------------------------------------------------------------------------------------

    async def _execute(self, command: Execute) -> Step:
        """Runs the calls. A cancel or the end of the time stops them in three grades, and their results still come."""
        following: Command | None = None

        async def after(call: ToolCall, result: ToolResult, seconds: float | None) -> None:
            nonlocal following
            await self._pace.turn()
            following = await self._follow(self._tell(Ran(call.id, result, seconds, self.now)), wait=False)

        config = self.run.config
        hooks = Hooks(self._heard, self._before_write, after, self._came_late, self.run.key_of)
        self._batch = batch = Batch(self._world.executor, Caller(config.run_id, config.principal), hooks)
        work = asyncio.ensure_future(batch.carry_out(command.calls))
        cancelled: asyncio.CancelledError | None = None
        while not work.done():
            try:
                await asyncio.wait({work})
            except asyncio.CancelledError as error:
                if self._is_foreign():
                    cancelled = error
                stopping = self._tell(self._stop_word())
                batch.cancel()
                _, again = await to_its_end(self._follow(stopping, wait=False))
                cancelled = cancelled or again
        self._batch = None
        work.result()
        if cancelled is not None:
            raise cancelled
        return Step(commands=[following] if following is not None else [])

    def _heard(self, event: Any) -> None:
        """The executor tells what happens to a call."""
        if isinstance(event, CallProgress):
            self._tell(Progressed(event.call_id, event.value))
        elif isinstance(event, CallStarted):
            if self.run.calls.running(event.call_id):
                return  # a write, which began when it was recorded
            self._tell(Began(event.call_id, self.now))
            self._world.started(event.name)
        self._show_all()

    async def _before_write(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult | None:
        """Records that a write is about to start (X4). Its result, if an identical one must not start again."""
        if not spec.repeatable and (earlier := await self._earlier(call, key)) is not None:
            return earlier
        self._tell(Began(call.id, self.now))
        await self._write()
        self._world.started(call.name)
        return None

    async def _earlier(self, call: ToolCall, key: str) -> ToolResult | None:
        """An identical write of another run of the same principal whose outcome is unknown, as the result of this."""
        config = self.run.config
        write = await self._world.ledger.find_write(
            principal=config.principal.id if config.principal else None,
            tool=call.name,
            arguments_hash=arguments_hash(call.name, call.arguments),
            run_id=config.run_id,
            key=key if config.key else None,
        )
        if write is None or write.run_id == config.run_id:
            return None
        known = await self._world.executor.look_up(
            call, run_id=config.run_id, principal=config.principal, key=write.key
        )
        if known is not None:
            data = {
                "call_id": write.call_id,
                "result": dump_event(replace(known, call_id=write.call_id)),
                "by": "lookup",
            }
            await self._world.ledger.append(write.run_id, [Entry("call_settled", data)])
            if known.status in WITHOUT_EFFECT:
                return None
        return replace(known or write.result or unknown_outcome(call), call_id=call.id, replayed=True)

    def _came_late(self, call: ToolCall, result: ToolResult) -> None:
        """An abandoned write has ended after all: the ledger learns how."""
        data = {"call_id": call.id, "result": dump_event(result), "by": "late"}
        entry = Entry("call_settled", data)
        task = asyncio.ensure_future(self._world.ledger.append(self.run.config.run_id, [entry]))
        LATE.add(task)
        task.add_done_callback(_late_done)

    async def _look_up(self, command: LookUp) -> Step:
        """Asks the tools how started writes ended; what they do not know stays unknown."""
        following: Command | None = None
        config = self.run.config
        for call in command.calls:
            started = replace(call, id=command.started_as.get(call.id, call.id))
            known = await self._world.executor.look_up(
                call, run_id=config.run_id, principal=config.principal, key=self.run.key_of(started)
            )
            result = replace(known or unknown_outcome(call), call_id=call.id)
            following = await self._follow(self._tell(Ran(call.id, result, 0.0, self.now)))
        return Step(commands=[following] if following is not None else [])

    # --- people ---------------------------------------------------------------------------------------------------

    async def _ask(self, command: AskPerson) -> Step:
        """Lets people decide; without anybody to ask, the run waits in the ledger. The run's clock stands still."""
        following: Command | None = None
        unanswered = False
        for pending in command.pending:
            began = time.monotonic()
            answer = await self._world.people.answer(pending)
            waited = time.monotonic() - began
            self._began += waited
            if answer is None:
                unanswered = True
                continue
            waited += self._world.waited.get(pending.id, 0.0)
            following = await self._follow(self._tell(Answered(pending.id, answer, self.now, round(waited, 3))))
        if unanswered:
            following = await self._follow(self._tell(Parked(self.now)))
        return Step(commands=[following] if following is not None else [])


LATE: set[asyncio.Task[Any]] = set()
"""Entries of late results on their way, kept from the garbage collector."""


def _late_done(task: asyncio.Task[Any]) -> None:
    LATE.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        LOGGER.warning("a late result could not be recorded: %s", error)


def failed(error: Exception, now: float) -> Failed:
    """A request that failed before anything of its answer came."""
    tried = getattr(error, "tries", 1) > 1  # by the provider: once more by the run would be too often
    hopeless = tried or isinstance(error, (ConfigError, BadRequest, RefusedKey, ModelMissing))
    after = getattr(error, "retry_after", None)
    status = getattr(error, "status", None)
    return Failed(_said(error), now, type(error).__name__, again=not hopeless, after=after, status=status)


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, CallgateError) else f"{type(error).__name__}: {error}"
