"""The agents of the gateway: runs that go on whoever watches, and stop only when somebody says so.

Law: a run goes on when its client goes away. (tests/test_gateway_runs.py::test_a_run_goes_on_when_its_client_leaves)
Law: of several people who decide about a call the first counts, and the others are told.
(tests/test_gateway_runs.py::test_of_two_who_decide_at_once_the_first_counts)

Theory of operation. A run is a task of its own. (1) A question to a person ends the task: the run waits in the journal,
holds nothing here, and survives a restart. (2) An answer takes the run up again; answers to one run come one after
another, and each is checked against the journal, where the first one stands. (3) The end of the server gives the runs
its grace; then the journal is closed before them and they are cut off, as if the process had died: they can be resumed,
which a run that was cancelled cannot. (4) Whose run it is, and by which rules, the key says: of a run that is taken up
again that is what its principal's key allows now, whoever takes it up.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from callgate import config, ledger
from callgate.agent import Agent
from callgate.apps import toolfile
from callgate.apps.gateway import feeds, views
from callgate.apps.gateway.refusals import Refusal, refusal_of
from callgate.errors import CallgateError, ModelMissing, ProviderError
from callgate.ledger import RunInfo
from callgate.policy import Answer
from callgate.types import Entry

if TYPE_CHECKING:
    from callgate.agent import RunResult
    from callgate.apps.gateway.asked import Decision, NewRun
    from callgate.apps.gateway.backends import Backends
    from callgate.apps.gateway.keyring import Caller, Keyring
    from callgate.apps.gateway.metrics import Metrics
    from callgate.apps.gateway.settings import Settings
    from callgate.providers import Provider

LOGGER = logging.getLogger("callgate.gateway")
MAX_AGENTS = 100
"""Agents that are kept: one for each model and protocol that somebody asked for."""
PARKING = 10.0
"""Seconds for a run that has just asked to be recorded as waiting."""


@dataclass(slots=True, eq=False)
class Active:
    """A run that is carried out here."""

    agent: Agent
    task: asyncio.Task[RunResult[Any]]


class Agents:
    """All runs of the server."""

    def __init__(self, settings: Settings, backends: Backends, keys: Callable[[], Keyring], metrics: Metrics) -> None:
        self._backends = backends
        self._keys = keys
        self._metrics = metrics
        self._config = config.load({"instructions": settings.instructions or None, "ledger": settings.ledger})
        self._options = {**self._config.options, **settings.options}
        self.tools = toolfile.load(settings.tools)
        where = self._config.where if settings.ledger is not None else "memory"
        store = ledger.open(where, masking=self._config.masking, hold_secrets=self._config.hold_secrets)
        self._journal, self.feeds = feeds.watched(store)
        self.ledger = feeds.as_ledger(self._journal)
        self._agents: dict[tuple[int, str], Agent] = {}
        self.active: dict[str, Active] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """One for each run that somebody decides about just now."""

    # --- what may be done with a run --------------------------------------------------------------------------------

    async def start(self, new: NewRun, caller: Caller) -> str:
        """Begins a run; its id. Raises Refusal."""
        if new.after is not None and new.history:
            raise Refusal(422, "history: give it or after, not both")
        if new.model and not caller.may_use(new.model):
            raise Refusal(403, "model: this key may not use it")
        history: list[Any] = list(new.history)
        if new.after is not None:
            history = views.history_of(await self._ended(new.after, caller))
        agent = self._agent(await self._provider(new.model, caller), new.protocol)
        run_id = new.id or new_id()
        given: dict[str, Any] = {"history": history, "run_id": run_id, "policy": list(caller.rules)}
        named = {"tools": new.tools, "instructions": new.instructions, "output": new.output}
        given |= {name: value for name, value in named.items() if value is not None}
        given |= {"options": new.options, "principal": caller.principal}
        prompt: Any = new.prompt
        await self._carry(run_id, agent, agent.run(prompt, **given), caller, _begins)
        return run_id

    async def decide(self, run_id: str, decisions: Mapping[str, Decision], caller: Caller) -> list[views.Decided]:
        """Answers questions of a run, which goes on when all are answered. Raises Refusal, with what was decided
        before, if somebody was faster (rule 2)."""
        info, _ = await self.seen(run_id, caller)
        lock = self._locks.setdefault(run_id, asyncio.Lock())
        async with lock:
            return await self._decided(info, decisions, caller)

    async def _decided(self, info: RunInfo, decisions: Mapping[str, Decision], caller: Caller) -> list[views.Decided]:
        run_id = info.run_id
        entries = await self.ledger.read(run_id)
        _check_waiting(entries, decisions)
        if run_id in self.active:
            await self._parked(run_id)
            entries = await self.ledger.read(run_id)
            _check_waiting(entries, decisions)
        answers = {call: Answer(one.allow, one.scope, caller.name) for call, one in decisions.items()}
        left = set(answers)

        def answered(new: Sequence[Entry]) -> bool:
            left.difference_update(e.data["call_id"] for e in new if e.kind == "answer")
            return not left

        await self._resume(entries, run_id, answers, answered)
        entries = await self.ledger.read(run_id)
        if views.waiting_in(entries):  # others still wait, and so will the run, in a moment
            await self._parked(run_id)
        found = views.decided_in(entries)
        return [found[call] for call in decisions if call in found]

    async def _parked(self, run_id: str) -> None:
        """Waits until a run that has asked is recorded as waiting: what is asked is in the journal a little earlier."""
        if (running := self.active.get(run_id)) is not None:
            await asyncio.wait({running.task}, timeout=PARKING)

    async def resume(self, run_id: str, caller: Caller) -> None:
        """Goes on with a run that was cut off. Raises Refusal for one that waits or has ended."""
        info, entries = await self.seen(run_id, caller)
        if run_id in self.active:
            return
        if info.reason == "waiting" and views.waiting_in(entries):
            raise Refusal(409, "the run waits for answers: POST them to /runs/ID/answers")
        if info.reason not in (None, "waiting"):
            raise Refusal(409, f"the run has ended ({info.reason})")
        await self._resume(entries, run_id, {}, _begins)

    async def cancel(self, run_id: str, caller: Caller) -> bool:
        """Ends a run, wherever it is carried out. False: it has ended already. Raises Refusal."""
        await self.seen(run_id, caller)
        if (running := self.active.get(run_id)) is not None:
            found = await running.agent.cancel(run_id)
            await asyncio.wait({running.task}, timeout=PARKING)
            return found
        if await self.ledger.cancel(run_id):
            return True
        return await ledger.close(self.ledger, run_id)

    # --- what is known of them --------------------------------------------------------------------------------------

    async def seen(self, run_id: str, caller: Caller) -> tuple[RunInfo, list[Entry]]:
        """A run that the caller may see. Raises Refusal: one of somebody else is as if it were not there."""
        info = await self.ledger.run(run_id)
        if info is None or not caller.sees(info.principal):
            raise Refusal(404, "there is no such run")
        return info, await self.ledger.read(run_id)

    async def _ended(self, run_id: str, caller: Caller) -> list[Entry]:
        info, entries = await self.seen(run_id, caller)
        if info.reason in (None, "waiting") or run_id in self.active:
            raise Refusal(409, "after: that run has not ended yet")
        return entries

    # --- the tasks --------------------------------------------------------------------------------------------------

    async def _resume(
        self,
        entries: Sequence[Entry],
        run_id: str,
        answers: Mapping[str, Answer],
        until: Callable[[Sequence[Entry]], bool],
    ) -> None:
        begun = entries[0].data
        owner = self._owner(begun.get("principal"))
        agent = self._agent(await self._provider(str(begun.get("model", "")), owner), "auto")
        work = agent.resume(run_id, answers, principal=owner.principal, policy=list(owner.rules))
        await self._carry(run_id, agent, work, owner, until)

    def _owner(self, principal: str | None) -> Caller:
        """Rule 4. Raises Refusal if there is no key of that principal any more."""
        keys = self._keys()
        if keys.anybody is not None:
            return keys.anybody
        for caller in keys.callers.values():
            if caller.principal is not None and caller.principal.id == principal:
                return caller
        raise Refusal(409, "no key acts for the principal of this run any more")

    async def _carry(
        self,
        run_id: str,
        agent: Agent,
        work: Coroutine[Any, Any, RunResult[Any]],
        caller: Caller,
        until: Callable[[Sequence[Entry]], bool],
    ) -> None:
        """Carries the run out in a task of its own, and comes back when it has begun. Raises Refusal if it did not."""
        if run_id in self.active:
            work.close()
            raise Refusal(409, "the run is being carried out")
        self.feeds.of(run_id)
        before = await self._usage(run_id)
        task = asyncio.create_task(work, name=f"callgate run {run_id}")
        self.active[run_id] = Active(agent, task)
        self._metrics.runs += 1
        task.add_done_callback(lambda done: self._over(run_id, done, caller, before))
        # Shielded from the client's leaving by being another task; only its beginning is waited for.
        if await self.feeds.expect(run_id, until, task) or task.cancelled():
            return
        if (error := task.exception()) is not None:
            raise refusal_of(error) from error

    async def _usage(self, run_id: str) -> int:
        """The tokens that a run had used when it was taken up."""
        if await self.ledger.run(run_id) is None:
            return 0
        ends = [e.data for e in await self.ledger.read(run_id) if e.kind == "run_finished"]
        return _tokens(ends[-1].get("usage") or {}) if ends else 0

    def _over(self, run_id: str, task: asyncio.Task[RunResult[Any]], caller: Caller, before: int) -> None:
        del self.active[run_id]
        self.feeds.release(run_id)
        self._metrics.runs -= 1
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            if not isinstance(error, CallgateError):
                LOGGER.error("run %s failed", run_id, exc_info=error)
            return
        result = task.result()
        caller.charge(_tokens(result.usage) - before)
        self._metrics.run_ended(result.reason)

    # --- what they are made of --------------------------------------------------------------------------------------

    async def _provider(self, model: str, caller: Caller) -> Provider:
        try:
            backend = (await self._backends.having(model))[0]
            name = model or backend.only or next((m for m in await backend.models() if caller.may_use(m)), "")
        except ModelMissing as error:
            raise Refusal(404, str(error)) from error
        except ProviderError as error:
            raise Refusal(502, str(error)) from error
        if not caller.may_use(name):
            raise Refusal(403, "model: this key may not use it")
        return backend.provider(name)

    def _agent(self, provider: Provider, protocol: str) -> Agent:
        key = (id(provider), protocol)
        found = self._agents.get(key)
        if found is None:
            if len(self._agents) >= MAX_AGENTS:
                self._agents.pop(next(iter(self._agents)))
            named = {**self._config.agent_options(), "protocol": protocol, "options": self._options}
            try:
                found = Agent(provider, tools=self.tools, ledger=self.ledger, on_event=self.feeds.shown, **named)
            except CallgateError as error:
                raise refusal_of(error) from error
            self._agents[key] = found
        return found

    # --- the end ----------------------------------------------------------------------------------------------------

    @property
    def tasks(self) -> set[asyncio.Task[Any]]:
        """What is being carried out."""
        return {active.task for active in self.active.values()}

    async def stop(self) -> None:
        """Rule 3: the grace is over."""
        self._journal.frozen = True
        self.feeds.closed.set()
        tasks = self.tasks
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PARKING)

    async def aclose(self) -> None:
        """Gives the ledger back."""
        self.feeds.closed.set()
        await self.ledger.aclose()


def _begins(entries: Sequence[Entry]) -> bool:
    return any(entry.kind == "run_started" for entry in entries)


def _check_waiting(entries: Sequence[Entry], decisions: Mapping[str, Decision]) -> None:
    """Raises Refusal for an answer to a call that does not wait, and tells who was faster."""
    waiting = [question.call_id for question in views.waiting_in(entries)]
    decided = views.decided_in(entries)
    for call in decisions:
        if call in waiting:
            continue
        if (first := decided.get(call)) is not None:
            word = "allowed" if first.allow else "declined"
            by = f" by {first.by}" if first.by else ""
            raise Refusal(409, f"{call[:100]}: it was {word}{by} already", details={"decided": _fields(first)})
        raise Refusal(409, f"{call[:100]}: it does not wait for an answer", details={"waiting": waiting})


def _fields(decided: views.Decided) -> dict[str, object]:
    return {"call_id": decided.call_id, "allow": decided.allow, "by": decided.by, "at": decided.at}


def _tokens(usage: Mapping[str, Any]) -> int:
    return sum(value for name, value in usage.items() if name in ("input", "output") and isinstance(value, int))


def new_id() -> str:
    """A run id that sorts by time and cannot be guessed."""
    return f"{time.time_ns() // 1_000_000:011x}{secrets.token_hex(6)}"
