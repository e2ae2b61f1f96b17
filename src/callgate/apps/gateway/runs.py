"""The API of agents: runs, their events, their questions, calls and numbers.

Law: a caller sees and decides only what is its principal's own, unless its key says `operator = true`.
(tests/test_gateway_runs.py::test_a_run_belongs_to_the_key_that_began_it)

Whoever has no right to a run is told that there is none. Everything that is told is made from the journal (`views`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from callgate import stats
from callgate.apps import settling
from callgate.apps.gateway import asked, views
from callgate.apps.gateway.feeds import Place
from callgate.apps.gateway.gate import CALLER, ExchangeRecord
from callgate.apps.gateway.operations import EVENTS, JSON, Operation
from callgate.apps.gateway.refusals import Refusal, refusal_of
from callgate.errors import LedgerError
from callgate.events import dump_event

if TYPE_CHECKING:
    from starlette.requests import Request

    from callgate.apps.gateway.agents import Agents
    from callgate.apps.gateway.keyring import Caller
    from callgate.ledger import RunInfo

PAGE = 200
"""Runs that are read at a time where the ledger cannot choose by itself."""
MAX_LOOKED = 20_000
"""Runs that are looked at for one list: a filter that nothing fits must not read for ever."""
MAX_EXCHANGES = 1_000


class Runs:
    """The handlers."""

    def __init__(self, agents: Agents, heartbeat: float) -> None:
        self._agents = agents
        self._heartbeat = heartbeat
        self._exchanges: deque[ExchangeRecord] = deque(maxlen=MAX_EXCHANGES)

    def operations(self) -> list[Operation]:
        """The API, as a table."""
        one, call = "/runs/{id}", "/runs/{id}/calls/{call:path}"
        return [
            Operation("POST", "/runs", "begin_run", "Begins a run, which goes on whoever watches.", self.begin,
                      views.RunLine, body=asked.NewRun, status=201, errors=(400, 404, 409, 422, 502)),
            Operation("GET", "/runs", "list_runs", "Runs, last updated first.", self.list,
                      views.RunList, query=asked.RunsQuery, errors=(422,)),
            Operation("GET", one, "show_run", "A run with its messages and questions.", self.show,
                      views.RunView, errors=(404,)),
            Operation("GET", f"{one}/events", "follow_run", "What happens in a run, as server-sent events: the "
                      "journal's entries, and previews between them. Last-Event-ID goes on after that one.",
                      self.events, media=EVENTS, empty=True, errors=(404,)),
            Operation("POST", f"{one}/cancel", "cancel_run", "Ends a run.", self.cancel,
                      views.RunLine, errors=(404, 409)),
            Operation("POST", f"{one}/answers", "answer", "Decides about calls that wait for a person; the first "
                      "answer counts, and a later one is told so with 409.", self.answer,
                      views.AnswerList, body=asked.Decisions, errors=(400, 404, 409, 422, 502)),
            Operation("POST", f"{one}/resume", "resume_run", "Goes on with a run that was cut off.", self.resume,
                      views.RunLine, errors=(404, 409, 422, 502)),
            Operation("GET", call, "show_call", "A call with its whole result.", self.call,
                      views.CallView, errors=(404,)),
            Operation("POST", f"{call}/settle", "settle_call", "Says what became of a write of unknown outcome; it "
                      "never runs by that.", self.settle,
                      views.CallView, body=asked.Settlement, errors=(400, 404, 409, 422)),
            Operation("GET", "/questions", "list_questions", "What waits for a person, oldest first.", self.questions,
                      views.Questions),
            Operation("GET", "/calls", "list_calls", "Calls, oldest first.", self.calls,
                      views.CallList, query=asked.CallsQuery, errors=(422,)),
            Operation("GET", "/stats", "stats", "The figures of `callgate stats`; for operators.", self.stats,
                      dict, query=asked.StatsQuery, errors=(403, 422)),
            Operation("GET", "/exchanges", "list_exchanges", "Requests that passed through the proxy, last first, "
                      "without contents.", self.exchanges,
                      views.ExchangeList, query=asked.ExchangesQuery, errors=(422,)),
            Operation("GET", "/tools", "list_tools", "The tools of the agents.", self.tools, views.ToolList),
        ]  # fmt: skip

    def exchanged(self, record: ExchangeRecord) -> None:
        """A request to the proxy is over."""
        self._exchanges.append(record)

    # --- runs -------------------------------------------------------------------------------------------------------

    async def begin(self, request: Request) -> Response:
        """`POST /runs`."""
        new = asked.read_body(asked.NewRun, await request.body())
        run_id = await self._agents.start(new, _caller(request))
        line = await self._line(run_id, _caller(request))
        return _json(line, 201, {"location": f"/runs/{run_id}"})

    async def list(self, request: Request) -> Response:
        """`GET /runs`."""
        query = asked.read_query(asked.RunsQuery, request.query_params.multi_items())
        caller = _caller(request)
        of_tool = None
        if query.tool is not None:
            of_tool = {name async for name, entry in self._agents.ledger.scan(kinds=("call_proposed",))
                       if entry.data["call"].get("name") == query.tool}  # fmt: skip
        found: list[views.RunLine] = []
        async for info in self._infos(query, caller):
            if of_tool is None or info.run_id in of_tool:
                found.append(self._line_of(info))
                if len(found) == query.limit:
                    break
        return _json(views.RunList(found))

    async def _infos(self, query: asked.RunsQuery, caller: Caller) -> AsyncIterator[RunInfo]:
        """The runs that the caller may see and the query wants."""
        own = caller.principal.id if caller.principal is not None else None
        if not caller.operator and query.principal not in (None, own):
            return
        principal = query.principal if caller.operator else own
        before = query.before
        for _ in range(MAX_LOOKED // PAGE):
            page = await self._agents.ledger.runs(limit=PAGE, principal=principal, reason=query.reason, before=before)
            for info in page:
                if query.since is not None and info.updated < query.since:
                    return
                if caller.sees(info.principal) and (query.text is None or query.text in info.prompt):
                    yield info
            if len(page) < PAGE:
                return
            before = page[-1].updated

    async def show(self, request: Request) -> Response:
        """`GET /runs/ID`."""
        info, entries = await self._agents.seen(request.path_params["id"], _caller(request))
        return _json(views.view_of(self._line_of(info), entries))

    async def events(self, request: Request) -> Response:
        """`GET /runs/ID/events`."""
        run_id = request.path_params["id"]
        info, _ = await self._agents.seen(run_id, _caller(request))
        last = request.headers.get("last-event-id", "")
        seq = Place.of(last, "").seq
        if seq > info.entries:  # of another ledger: what it names is not here
            last, seq = "", 0
        if seq == info.entries and self._line_of(info).state == "ended":
            return Response(status_code=204)  # a browser asks again and again until it gets this (HTML, 9.2.3)
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        records = self._agents.feeds.follow(run_id, last, self._heartbeat)
        return StreamingResponse(records, media_type=EVENTS, headers=headers)

    async def cancel(self, request: Request) -> Response:
        """`POST /runs/ID/cancel`."""
        run_id, caller = request.path_params["id"], _caller(request)
        try:
            if not await self._agents.cancel(run_id, caller):
                raise Refusal(409, "the run has ended already")
        except LedgerError as error:
            raise refusal_of(error) from error
        return _json(await self._line(run_id, caller))

    async def resume(self, request: Request) -> Response:
        """`POST /runs/ID/resume`."""
        run_id, caller = request.path_params["id"], _caller(request)
        await self._agents.resume(run_id, caller)
        return _json(await self._line(run_id, caller))

    # --- questions and calls ----------------------------------------------------------------------------------------

    async def answer(self, request: Request) -> Response:
        """`POST /runs/ID/answers`."""
        decisions = asked.read_body(asked.Decisions, await request.body())
        found = await self._agents.decide(request.path_params["id"], decisions.answers, _caller(request))
        return _json(views.AnswerList(found))

    async def questions(self, request: Request) -> Response:
        """`GET /questions`."""
        found: list[views.QuestionOf] = []
        async for info in self._infos(asked.RunsQuery(reason="waiting"), _caller(request)):
            entries = await self._agents.ledger.read(info.run_id)
            found += [
                views.QuestionOf(info.run_id, info.principal, info.model, info.prompt[: views.MAX_PROMPT], question)
                for question in views.waiting_in(entries)
            ]
        return _json(views.Questions(sorted(found, key=lambda one: one.question.since)))

    async def calls(self, request: Request) -> Response:
        """`GET /calls`."""
        query = asked.read_query(asked.CallsQuery, request.query_params.multi_items())
        caller = _caller(request)
        found: list[views.CallLine] = []
        async for line in stats.call_log(self._agents.ledger, since=query.since or 0.0, run_id=query.run):
            if not caller.sees(line["principal"]) or query.tool not in (None, line["tool"]):
                continue
            one = await self._call_line(line)
            if one.unknown or not query.unknown:
                found.append(one)
        return _json(views.CallList(found[-query.limit :]))

    async def call(self, request: Request) -> Response:
        """`GET /runs/ID/calls/CALL`."""
        return _json(await self._call(request))

    async def settle(self, request: Request) -> Response:
        """`POST /runs/ID/calls/CALL/settle`."""
        settlement = asked.read_body(asked.Settlement, await request.body())
        if settlement.result is not None and settlement.outcome != "ok":
            raise Refusal(422, 'result: it goes with "outcome": "ok"')
        caller = _caller(request)
        found = await self._call(request)
        run_id, call_id = found.call.run_id, found.call.call_id
        ledger = self._agents.ledger
        write = await ledger.write(run_id, call_id)
        if write is None or not write.unknown or run_id in self._agents.active:
            raise Refusal(409, "the outcome of this call is not unknown")
        result = settling.outcome(write, settlement.outcome, settlement.result, settlement.note)
        try:
            await settling.settle(ledger, write, result, "person" if caller.principal is None else caller.name)
        except LedgerError as error:
            raise refusal_of(error) from error
        return _json(await self._call(request))

    async def _call(self, request: Request) -> views.CallView:
        run_id, call_id = request.path_params["id"], request.path_params["call"]
        await self._agents.seen(run_id, _caller(request))
        ledger = self._agents.ledger
        async for line in stats.call_log(ledger, run_id=run_id):
            if line["call_id"] == call_id:
                result = await ledger.result(run_id, call_id)
                return views.CallView(await self._call_line(line), None if result is None else dump_event(result))
        raise Refusal(404, "the run has no such call")

    async def _call_line(self, line: dict[str, Any]) -> views.CallLine:
        write = await self._agents.ledger.write(line["run_id"], line["call_id"])
        # What runs just now has no outcome yet; that is not the same as one that nobody knows.
        unknown = write is not None and write.unknown and line["run_id"] not in self._agents.active
        return views.call_line(line, unknown=unknown)

    # --- numbers ----------------------------------------------------------------------------------------------------

    async def stats(self, request: Request) -> Response:
        """`GET /stats`."""
        query = asked.read_query(asked.StatsQuery, request.query_params.multi_items())
        if not _caller(request).operator:
            raise Refusal(403, "the figures of all are for operators")
        counted = await stats.collect(self._agents.ledger, since=query.since, by=query.by.split(","))
        return _json(counted.as_json())

    async def exchanges(self, request: Request) -> Response:
        """`GET /exchanges`."""
        query = asked.read_query(asked.ExchangesQuery, request.query_params.multi_items())
        caller = _caller(request)
        own = [record for record in reversed(self._exchanges) if caller.sees(record.principal)]
        return _json(views.ExchangeList(own[: query.limit]))

    async def tools(self, request: Request) -> Response:
        """`GET /tools`."""
        specs = self._agents.tools.specs
        return _json(views.ToolList([views.tool_line(spec) for spec in specs]))

    # --- what several need ------------------------------------------------------------------------------------------

    async def _line(self, run_id: str, caller: Caller) -> views.RunLine:
        info, _ = await self._agents.seen(run_id, caller)
        return self._line_of(info)

    def _line_of(self, info: RunInfo) -> views.RunLine:
        return views.line_of(info, info.run_id in self._agents.active)


def _caller(request: Request) -> Caller:
    found: Caller = request.scope[CALLER]
    return found


def _json(value: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(views.dumped(value), status, {"cache-control": "no-store", **(headers or {})}, JSON)
