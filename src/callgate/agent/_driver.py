"""The driver: carries a run's commands out and brings it what they gave.

Law: a run that was begun is brought to its end and recorded, also when the driver's own task is cancelled.
(tests/test_agent.py::test_a_cancel_at_any_await_leaves_a_valid_history_and_a_whole_journal)

Theory of operation. A run is carried out by two tasks. The *worker* goes round: follow a step (record it, show it),
carry out its command, follow what that gave. The *supervisor* is the task that called `drive`; it only waits, for the
worker or for a stop. So a cancel from outside never meets the middle of a step, and our own stop cancels nobody's
task but ours.

A stop is one of: `cancel()`; the end of the run's time; a cancel of the supervisor from outside (a *foreign* one: a
cancelled task, a cancel scope), which besides has to go on its way when the run has ended in order.

    state      | stop requested              | foreign cancel                   | worker done
    -----------+-----------------------------+----------------------------------+---------------------------------
    not begun  | begin, then as in stopping  | nothing is begun; raised (4)     |
    running    | halt (1), stopping          | halt (1), stopping; kept (4)     | over, or parked
    stopping   | no change: the first reason | kept (4); no second halt (2)     | wind up (3), then over
               | counts                      |                                  |
    over       | no change                   | kept, raised (4)                 |

(1) Halting. If a batch of calls runs, the run gets the stop, and the batch is stopped in its three grades: what has
not started never does, what runs gets to know, and every call still brings its result. Otherwise the worker is
cancelled: it waits for the model, for a person, a lookup or a slow reader, and nothing that is begun can be lost.
(2) Halting is done once. A second cancel changes nothing, since calls in flight already have their deadline: the grace.
(3) Winding up. The run is told the stop, and what it says to that is recorded, without any command being carried out.
(4) A foreign cancel is raised again when all is recorded, and it is the very same exception: cancel scopes know theirs
by it. (5) An end of the program that a tool raised (KeyboardInterrupt, SystemExit) goes the same way.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from callgate.agent._scheduler import scheduler
from callgate.agent._session import Session, text_of
from callgate.agent._shield import to_its_end
from callgate.errors import BadRequest, ConfigError, ModelMissing, Redirected, RefusedKey
from callgate.reply import AnswerSize
from callgate.run.inputs import (
    Answered,
    AskPerson,
    Broke,
    Cancelled,
    CheckText,
    Command,
    Decided,
    Execute,
    Failed,
    LookUp,
    Parked,
    Received,
    Send,
    Step,
    Supplied,
    Tick,
)
from callgate.tools import ToolContext
from callgate.types import Finish

if TYPE_CHECKING:
    from callgate.agent._calls import CallSide

LOGGER = logging.getLogger("callgate.agent")


class Driver:
    """Drives one run to its end."""

    def __init__(self, session: Session, calls: CallSide) -> None:
        self.run = session.run
        self._session = session
        self._stop = session.stop
        self._clock = session.clock
        self._calls = calls
        self._fatal: BaseException | None = None
        """An end of the program that a tool raised."""

    async def drive(self, first: Callable[[], Step]) -> None:
        """Begins with the first step and goes on until the run ends or is parked. Raises only if the task itself is
        cancelled, or if a tool ends the program."""
        # A task of its own: a cancel of the caller's task is raised at the `await` below, never between a write and its
        # record.
        worker = asyncio.ensure_future(self._work(first))
        foreign: asyncio.CancelledError | None = None
        halted = False
        while not worker.done():
            waits: set[asyncio.Future[Any]] = {worker} if halted else {worker, self._stop.future}  # rule 2
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError as error:
                foreign = error
                self._stop.request()
            if self._stop.requested and not halted and not worker.done():
                halted = True
                foreign = await self._halt(worker) or foreign
        # Also after a failure of ours: whoever waits for the run must not find it half recorded.
        foreign = await self._settle(worker, first, foreign) or foreign
        if foreign is not None:
            # `asyncio.timeout`, anyio's scopes and task groups compare what comes out with what they sent.
            raise foreign from None  # rule 4
        if self._fatal is not None:
            raise self._fatal  # rule 5

    async def _halt(self, worker: asyncio.Task[None]) -> asyncio.CancelledError | None:
        """Rule 1. A cancel that came meanwhile."""
        if not self._calls.running:
            worker.cancel()
            return None
        stopping = self._session.tell(self._stop_input())
        self._calls.cancel()
        # Recorded before the calls hear of it, so that the journal has the stop and then the results that it caused.
        _, foreign = await to_its_end(self._session.follow(stopping, wait=False))
        return foreign

    async def _settle(
        self, worker: asyncio.Task[None], first: Callable[[], Step], foreign: asyncio.CancelledError | None
    ) -> asyncio.CancelledError | None:
        """Brings the run to its end, whatever became of the worker. A cancel that came meanwhile."""
        self._clock.stop()
        # To ask for the exception also keeps asyncio from logging "exception was never retrieved".
        failure = None if worker.cancelled() else worker.exception()
        if self.run.phase == "new":
            if foreign is not None and failure is None:
                return None
            self._session.add(first())
        if failure is not None:
            LOGGER.error("run %s: the driver failed", self.run.config.run_id, exc_info=failure)
        # It waits in the ledger for a person: a stop that comes in this moment finds nothing to stop.
        if self.run.phase == "parked" and failure is None:
            return None
        for _ in range(2):  # the first may wait for calls in flight, of which there are none here
            if not self.run.ended:
                now = self._clock.now
                error = None if failure is None else f"{type(failure).__name__}: {failure}"
                self._session.tell(self._stop_input() if error is None else Broke(error, now))
        _, again = await to_its_end(self._session.follow(Step(), wait=False))
        return again

    def _stop_input(self) -> Tick | Cancelled:
        limit = self._session.runtime.timeout
        if limit is not None and self._stop.requested and self._stop.future.result() == "time":
            return Tick(max(self._clock.now, limit))  # a timer may fire a moment early
        return Cancelled(self._clock.now)

    # --- the worker -----------------------------------------------------------------------------------------------

    async def _work(self, first: Callable[[], Step]) -> None:
        await scheduler().turn()
        step = first()
        self._session.add(step)
        self._clock.start()
        try:
            while not self._stop.requested and (command := await self._session.follow(step)) is not None:
                await scheduler().turn()
                if self._stop.requested:
                    return
                del step  # written and shown: a run that waits long need not keep it
                step = await self._carry_out(command)
        except (KeyboardInterrupt, SystemExit) as error:
            self._fatal = error
            self._stop.request()

    async def _carry_out(self, command: Command) -> Step:
        match command:
            case Send():
                return await self._send(command)
            case CheckText():
                return await self._check(command)
            case Execute():
                return await self._calls.execute(command)
            case LookUp():
                return await self._calls.look_up(command)
            case AskPerson():
                return await self._ask(command)
            case _:
                raise AssertionError(f"{command!r} is no act")

    async def _send(self, send: Send) -> Step:
        """Asks the model; deltas are shown as they come."""
        session, clock = self._session, self._clock
        if send.delay:
            await asyncio.sleep(send.delay)
        begun, size = False, AnswerSize(session.runtime.max_answer)
        try:
            with clock.paused() as go_on:  # a model that is being loaded, or a queue, is nobody's fault
                if session.runtime.waits:  # but whoever gave the run a time meant all of it
                    go_on()
                async with session.runtime.providers[send.model].stream(send.request) as stream:
                    async for given in stream:
                        deltas = size.take(given)
                        if deltas and not begun:
                            begun = True
                            go_on()
                        if deltas and isinstance(deltas[-1], Finish):  # what follows is no small step
                            await scheduler().turn()
                        step = session.tell(Received(deltas, clock.now))
                        if step.commands:
                            return step
                        session.show_all()
                        await session.keep_pace()
        except (Exception, asyncio.CancelledError) as error:
            # Ours. A CancelledError without a stop came from a provider's own task or time-out, and is a failure like
            # any other.
            if isinstance(error, asyncio.CancelledError) and self._stop.requested:
                raise
            if not begun:
                return session.tell(failed(error, clock.now))
            return session.tell(Received([Finish("error", error=text_of(error))], clock.now))
        return session.tell(Received([Finish("interrupted", error="the stream ended without its end")], clock.now))

    async def _check(self, command: CheckText) -> Step:
        """Has the application look at a text."""
        session, config = self._session, self.run.config
        context: ToolContext[Any] = ToolContext(config.principal, config.run_id, deps=session.runtime.deps)
        runtime = session.runtime
        decision = await runtime.checks.decide(command.what, command.text, context, runtime.executor)
        return session.tell(Decided(command.what, decision, self._clock.now))

    async def _ask(self, command: AskPerson) -> Step:
        """Lets people decide; without anybody to ask, the run waits in the ledger. The run's clock stands still."""
        session, runtime = self._session, self._session.runtime
        following: Command | None = None
        unanswered = False
        # One after another: a person who says yes "for all of this tool" answers the later ones with it.
        for pending in command.pending:
            if pending.id not in {waiting.id for waiting in self.run.pending}:
                continue  # an answer to another one covered it
            if pending.id in runtime.approver.results:
                given = await self._calls.given(pending.call, runtime.approver.results[pending.id])
                following = await session.follow(session.tell(Supplied(pending.id, given, self._clock.now)))
                continue
            agent = runtime.agent_of(pending)
            if agent is not None and pending.id not in runtime.approver.answers:
                made = await self._calls.delegated(pending.call, agent)
                if made.result is None:
                    unanswered = True
                    session.inner[pending.id] = made.pending
                    continue
                supplied = Supplied(pending.id, made.result, self._clock.now, made.usage, made.requests, made.spent)
                following = await session.follow(session.tell(supplied))
                continue
            began = monotonic()
            with self._clock.paused():
                answer = await runtime.approver.answer(pending)
            if answer is None:
                unanswered = True
                continue
            waited = round(monotonic() - began + runtime.waited.get(pending.id, 0.0), 3)
            step = session.tell(Answered(pending.id, answer, self._clock.now, waited))
            following = await session.follow(step)
        if unanswered and self.run.pending:
            following = await session.follow(session.tell(Parked(self._clock.now)))
        return Step(commands=[following] if following is not None else [])


def failed(error: BaseException, now: float) -> Failed:
    """A request that failed before anything of its answer came."""
    tried = getattr(error, "tries", 1) > 1  # by the provider: once more by the run would be too often
    hopeless = tried or isinstance(error, (ConfigError, BadRequest, RefusedKey, ModelMissing, Redirected))
    after = getattr(error, "retry_after", None)
    status = getattr(error, "status", None)
    return Failed(text_of(error), now, type(error).__name__, again=not hopeless, after=after, status=status)
