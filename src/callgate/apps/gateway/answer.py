"""One answer, from asking to its end: asked, read, checked, asked again where calls do not fit.

Law: what is let through fits, and what does not is asked for again before its client sees anything of it.
(tests/test_gateway_mend.py::test_calls_that_do_not_fit_are_asked_for_again)

Theory of operation.
1. A backend of the client's own API is sent the client's own body, and its records are edited (`_edited`). Any other
   backend, and any protocol but the server's own tools, is sent a `Request`, and the answer is written (`_written`).
2. Every answer (every choice of it) ends in `_settle`: its calls are judged; those that do not fit are asked for again,
   at most `retries` times, held to a schema where the server can do that. Of those answers the client sees only calls.
3. What still does not fit is withheld, and the finish says so.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from pydantic_core import from_json

from callgate import dialects, formats, protocols
from callgate.apps.gateway.ask import Ask
from callgate.apps.gateway.client import Client
from callgate.apps.gateway.crossing import alone, another, answers, cross, forces
from callgate.apps.gateway.gate import Caller, ProxySettings, Seen
from callgate.apps.gateway.judge import Judged
from callgate.apps.gateway.lane import Lane, Outcome, Reading
from callgate.apps.gateway.mentions import InPlace
from callgate.apps.gateway.settle import Settling, wanted
from callgate.apps.gateway.shapes import Editor, Head, Shape, Value, Writer
from callgate.errors import BadRequest, CallgateError, EndedEarly, LimitExceeded, Overloaded, ProviderError
from callgate.formats import error_text, output_limit
from callgate.protocols import Machine, Query, Turn
from callgate.providers import MAX_RECORD, Provider, Served, Stream
from callgate.reply import TurnReader
from callgate.types import SOUND, Message, ModelInfo, Reply, Request, ToolCall, Usage

if TYPE_CHECKING:
    from callgate.apps.gateway.backends import Backend
    from callgate.dialects import Dialect, Reader
    from callgate.types import ToolSpec

FORCED = ("auto", "none")


def warm() -> None:
    """Makes ready what the first request with tools needs: more than half a second of patterns to compile."""
    dialects.reader("auto")


def machine(dialect: str | Dialect, tools: tuple[ToolSpec, ...]) -> Reader | InPlace:
    """What reads a text in this dialect; without tools there is no call to be found, only reasoning."""
    if not tools:
        found = dialects.get(dialect) if isinstance(dialect, str) else dialect
        return dialects.reader(found.but(calls=()))
    return InPlace(dialects.reader(dialect, tools=tools))


class Broken(ProviderError):
    """The answer broke off after its first byte; `value` is the backend's own error, in its API."""

    def __init__(self, message: str, value: Value | None = None) -> None:
        super().__init__(message)
        self.value = value


class Answer:
    """Carries one request out, at one backend."""

    def __init__(self, shape: Shape, ask: Ask, client: Client, settings: ProxySettings, seen: Seen) -> None:
        self.shape = shape
        self.ask = ask
        self.client = client
        self.settings = settings
        self.seen = seen
        self.caller: Caller | None = None
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self.head = Head(secrets.token_hex(12), ask.model, int(time.time()))
        self._info = ModelInfo("")
        self._lost: list[Usage] = []
        self._refused_schema = False
        self._asked = ask.request
        """The request as this backend's API can say it."""

    async def at(self, backend: Backend) -> None:
        """Asks this backend, and sends its answer. Raises what went wrong."""
        provider = backend.provider(self.ask.model)
        self.seen.backend = backend.address
        self._info = await provider.info()
        served = provider if isinstance(provider, Served) else None
        wire = self.seen.wire = served.wire if served is not None else ""
        if served is not None and wire == self.shape.wire and self.ask.headers:
            provider = served = served.sending(self.ask.headers)
        protocol = self._protocol(wire)
        self.seen.protocol = protocol
        self.client.headers["x-callgate-backend"] = backend.address
        self.client.headers["x-callgate-protocol"] = protocol
        if self.ask.notes:
            self.client.headers["x-callgate-mended"] = f"history={len(self.ask.notes)}"
        if served is not None and wire == self.shape.wire and protocol == "native":
            self._asked = alone(self.ask.request)
            await self._edited(provider, served)
        elif self.ask.idle:
            await self._send(self.shape.writer(self.ask, self.head), Outcome("stop"), Reply(raw_finish="load"))
        else:
            self._cross(wire)
            await self._written(provider, protocol)

    def _cross(self, wire: str) -> None:
        request = self.ask.request
        options = {**self.settings.options, **request.options}
        crossed = cross(replace(request, options=options), self.shape.wire, wire)
        self._asked = crossed.request
        lost = (*crossed.dropped, *self.ask.headers) if wire != self.shape.wire else crossed.dropped
        if lost:
            self.client.headers["x-callgate-dropped"] = ", ".join(lost)

    def _body(self, provider: Provider) -> Value:
        """The client's own body, with the server's options where it names none."""
        body = {**self.ask.body, "model": provider.model or self.ask.model}
        if not self.settings.options:
            return body
        if self.shape.wire != "ollama":
            return {**self.settings.options, **body}
        given = body.get("options")
        return {**body, "options": {**self.settings.options, **(given if isinstance(given, dict) else {})}}

    def _protocol(self, wire: str) -> str:
        """How the model is asked: its server's own tools where it has them, unless the settings say otherwise."""
        wanted, tools = self.settings.protocol, self.ask.request.tools
        if self.settings.observe or not tools:
            return "native"
        forced = self.ask.request.tool_choice not in FORCED
        if wanted == "auto" and "tools" in self._info.capabilities:
            # Held to a schema, a model that cannot be told that it must call has no other way.
            return "constrained" if forced and not forces(wire) and "schema" in self._info.capabilities else "native"
        chosen = protocols.choose(self._info, tools, wanted)
        return "constrained" if forced and chosen == "routed" and "schema" in self._info.capabilities else chosen

    def _reading(self, make: Callable[[], Machine] | None, *, rescue: bool) -> Reading:
        request = self.ask.request
        whole = self.settings.calls == "whole" and not self.settings.observe
        return Reading(
            make,
            rescue=rescue,
            live=not whole,
            hold_text=whole and request.schema is not None,
            limit=output_limit(request),
            ids=f"call_{self.head.id}_",
            numbered=rescue and self.seen.wire != "ollama",
        )

    def _machine(self) -> Machine:
        tools = () if self.ask.request.tool_choice == "none" else self.ask.request.tools
        return machine(self._info.dialect or "auto", tools)

    # --- records of the client's own API, edited ------------------------------------------------------------------

    async def _edited(self, provider: Provider, served: Served) -> None:
        reading = self._reading(self._machine, rescue=bool(self.ask.request.tools))
        editor = self.shape.editor(self.ask, lambda: Lane(reading), observe=self.settings.observe)
        async with served.raw(self._body(provider), path=self.shape.path) as stream:
            error = await (self._pass_on if self.ask.stream else self._collect)(stream, editor, served)
        editor.finish(error)
        if editor.failed is not None or error is not None or (self.ask.stream and _ended_in_silence(editor)):
            self._broken(editor.failed, error)
        outcomes = {n: await self._settle(lane, provider, lane.reply) for n, lane in editor.lanes.items()}
        if self.ask.stream:
            last = editor.end(outcomes)
            self._record(outcomes.values())
            if last:
                await self.client.write(last)
            await self.client.end()
        else:
            value = editor.whole(outcomes)
            self._record(outcomes.values())
            self._headers()
            await self.client.answer(200, value)

    async def _pass_on(self, stream: Stream, editor: Editor, provider: Served) -> str | None:
        """Sends the records as they come; why they broke off, or None."""
        framing = formats.get(provider.wire).framing(limit=MAX_RECORD)
        write, read, feed, edit, same = self.client.write, stream.read, framing.feed, editor.feed, editor.same
        between = False
        try:
            while not editor.over and (piece := await read()):
                if between and (out := same(piece)) is not None:  # as nearly always
                    stream.progress(begun=True, records=1)
                else:
                    records = feed(piece)
                    between = framing.between
                    out = edit(records)
                    if editor.begun:
                        self._begins()
                    stream.progress(begun=editor.begun, records=len(records))
                if out:
                    await write(out)
            if out := edit(framing.finish()):
                await write(out)
        except (EndedEarly, LimitExceeded) as error:
            return str(error)
        if editor.begun:
            self._begins()
        if editor.over:
            await stream.drain()
        return None

    async def _collect(self, stream: Stream, editor: Editor, provider: Served) -> str | None:
        """Reads an answer in one piece; records, where a server streams unasked."""
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := await stream.read():
                pieces.append(piece)
                size += len(piece)
                if size > MAX_RECORD:
                    raise LimitExceeded(f"{provider.name}: the answer is larger than {MAX_RECORD} bytes")
        except EndedEarly as error:
            return str(error)
        data = b"".join(pieces)
        try:
            value = from_json(data)
        except ValueError:
            framing = formats.get(provider.wire).framing(limit=MAX_RECORD)
            editor.feed([*framing.feed(data), *framing.finish()])
            return None if editor.begun or editor.failed else f"{provider.name}: what it sent is no JSON"
        if not isinstance(value, dict):
            return f"{provider.name}: its answer is no JSON object"
        editor.take(value)
        self._begins()
        return None

    def _begins(self) -> None:
        if not self.seen.begun:
            self.seen.begun = True
            self.seen.first_token = self._loop.time() - self._began

    def _broken(self, failed: Value | None, error: str | None) -> None:
        """The backend failed, or went away."""
        text = error_text(failed) if failed is not None else error or "the stream ended before the answer did"
        if self.seen.begun:
            raise Broken(text, failed)
        code = failed.get("error") if failed is not None else None
        status = code.get("code") if isinstance(code, Mapping) else None
        raise Overloaded(text, status=status if isinstance(status, int) else 502)

    # --- any other backend, or another way of asking --------------------------------------------------------------

    async def _written(self, provider: Provider, protocol: str) -> None:
        number, several, asked = answers(self.ask.request), self.shape.several, self._asked
        if several is None or number == 1:
            writer = self.shape.writer(self.ask, self.head)
            outcome, reply = await self._one(provider, protocol, writer)
            self._record([outcome])
            await self._send(writer, outcome, reply)
            return
        values: list[Value] = []
        for n in range(number):
            writer = several.writer(self.ask, self.head, choice=n, of=number)
            self._asked = another(asked, n)
            outcome, reply = await self._one(provider, protocol, writer)
            self._record([outcome])
            self._lost.append(reply.usage or {})
            if self.ask.stream:
                await self.client.write(writer.end(outcome, reply.raw_finish))
            else:
                values.append(self.shape.whole(self.ask, self.head, outcome, reply))
            self.seen.usage = outcome.usage
        if self.ask.stream:
            await self.client.end()
        else:
            self._headers()
            await self.client.answer(200, several.joined(values))

    async def _one(self, provider: Provider, protocol: str, writer: Writer) -> tuple[Outcome, Reply]:
        """One answer, but for its end."""
        first = _Written(self, self._reading(None, rescue=protocol == "native"), writer)
        reply = await self._turn(self._asking(protocol, self.ask.request.messages), provider, first)
        if reply.finish == "error" or (reply.finish == "interrupted" and reply.raw_finish is None):
            raise Broken(reply.error or "the stream ended before the answer did")
        if first.lane is None:  # a turn may need no request: nothing was streamed
            await first.show(reply)
        reply = self._tried(protocol, reply)
        lane = first.lane
        assert lane is not None
        outcome = await self._settle(lane, provider, reply)
        if lane.holds_text and outcome.content is None:
            outcome.content = reply.content
        return outcome, reply

    async def _send(self, writer: Writer, outcome: Outcome, reply: Reply) -> None:
        if self.ask.stream:
            await self.client.write(writer.end(outcome, reply.raw_finish))
            await self.client.end()
        else:
            self._headers()
            await self.client.answer(200, self.shape.whole(self.ask, self.head, outcome, reply))

    def _asking(self, protocol: str, history: Sequence[Message], tool_choice: str = "") -> Turn:
        request = self._asked
        choice, parallel = tool_choice or request.tool_choice, request.parallel
        if protocol == "native" and not forces(self.seen.wire):  # what comes is checked all the same
            choice, parallel = choice if choice in FORCED else "auto", None
        instructions, rest = "", tuple(history)
        if protocol != "native" and rest and rest[0].role == "system":
            # The client's own words come first, then the tools: one system message, as chat templates want it.
            instructions, rest = rest[0].text, rest[1:]
        return protocols.turn(
            protocol,
            history=rest,
            tools=request.tools,
            instructions=instructions,
            info=self._info,
            options=request.options,
            output=request.schema,
            tool_choice=choice,
            parallel=parallel,
            refused=[m.call_id for m in rest[len(request.messages) :] if m.call_id],
        )

    def _tried(self, protocol: str, reply: Reply) -> Reply:
        """An answer that tries to be a call in the form that was asked for (B1)."""
        if reply.calls or reply.incomplete or reply.finish not in SOUND or reply.source is not None:
            return reply
        found = protocols.attempt(protocol, reply.content, self.ask.request.tools)
        if found is None:
            return reply
        if isinstance(found.call, ToolCall):
            return replace(reply, content=found.before, calls=[found.call], finish="tool_calls")
        return replace(reply, content=found.before, incomplete=[found.call], finish="tool_calls")

    async def _turn(self, turn: Turn, provider: Provider, first: _Written | None = None) -> Reply:
        """Carries out the steps of a turn; what it says is shown only by `first`."""
        reply: Reply | None = None
        while True:
            try:
                step = turn.send(reply)
            except StopIteration as stop:
                return cast("Reply", stop.value)
            reply = await self._query(step, provider, first) if isinstance(step, Query) else None

    async def _query(self, query: Query, provider: Provider, first: _Written | None) -> Reply:
        request = self._request(query.request, provider)
        make = self._make(query)
        if first is None or not query.visible:
            reader = TurnReader(make() if make else None, rescue=query.rescue, limit=output_limit(request))
            async with provider.stream(request) as deltas:
                async for some in deltas:
                    reader.feed(some)
            self._lost.append(reader.reply.usage or {})
            return reader.reply
        lane = first.begin(make)
        async with provider.stream(request) as deltas:
            await first.start()
            async for some in deltas:
                self._begins()
                visible = lane.feed(some)
                if visible and self.ask.stream:
                    await self.client.write(first.writer.feed(visible))
        return lane.reply

    def _request(self, request: Request, provider: Provider) -> Request:
        """The request with what the client says and no protocol knows."""
        extra = dict(self._asked.extra)
        extra.pop("tools", None)
        return replace(request, extra={**extra, **request.extra}, stream=True)

    def _make(self, query: Query) -> Callable[[], Machine] | None:
        make = query.machine
        if not self.ask.request.tools:
            return self._machine
        if make is None:
            return None

        def mentioned() -> Machine:
            found = make()
            return InPlace(found) if isinstance(found, dialects.Reader) else found

        return mentioned

    # --- the end --------------------------------------------------------------------------------------------------

    async def _settle(self, lane: Lane, provider: Provider, reply: Reply) -> Outcome:
        """What goes out of an answer (rules 2 and 3)."""

        async def again(judged: Judged, scratch: Sequence[Message], last: bool) -> Reply | None:
            return await self._again(self._ways(judged, last=last), scratch, provider)

        settling = Settling(self.ask, self.head.id, self.caller)
        if self.settings.observe:
            outcome = settling.observed(reply)
        else:
            outcome = await settling.settle(reply, lane, self.settings.retries, again)
        outcome.usage = _sum(reply.usage, self._lost)
        outcome.first, outcome.seconds = self.seen.first_token or 0.0, self._loop.time() - self._began
        self.seen.calls += settling.seen
        return outcome

    def _ways(self, judged: Judged, *, last: bool) -> list[tuple[str, str]]:
        """(protocol, tool_choice) by which it is asked again, the best first; a server that refuses one is asked by the
        next. A call that is forced with the server's own tools leaves the client's prompt as it is, for the server's
        cache; the last time the answer is held to a schema, which is another prompt."""
        request, protocol = self.ask.request, self.seen.protocol
        if not request.tools:
            return [("answer", "auto"), (protocol, request.tool_choice)]
        plain = (protocol, request.tool_choice)
        forced = wanted(judged, request)
        if not last and protocol == "native" and forces(self.seen.wire):
            return list(dict.fromkeys([(protocol, forced), plain]))
        can = "schema" in self._info.capabilities and not self._refused_schema
        return [("constrained", forced), plain] if can else [plain]

    async def _again(
        self, ways: Sequence[tuple[str, str]], scratch: Sequence[Message], provider: Provider
    ) -> Reply | None:
        """The answer to the same question, with what was wrong; None: the backend does not answer any more."""
        history = (*self.ask.request.messages, *scratch)
        for protocol, choice in ways:
            try:
                reply = await self._turn(self._asking(protocol, history, choice), provider)
            except BadRequest:
                self._refused_schema = self._refused_schema or protocol == "constrained"
                continue
            except CallgateError:
                return None
            if protocol == "constrained" and protocols.symptom(protocol, reply) == "ignored":
                self._refused_schema = True
            return self._tried(protocol, reply) if reply.finish not in ("error", "interrupted") else None
        return None

    def _record(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.seen.finish = self.seen.finish or outcome.finish
            self.seen.usage = self.seen.usage or outcome.usage
            self.seen.retries += outcome.retries
            self.seen.mended.update(outcome.mended)

    def _headers(self) -> None:
        """What was mended, where it is known before the first byte."""
        seen, headers = self.seen, self.client.headers
        if mended := Counter({"history": len(self.ask.notes)} if self.ask.notes else {}) + seen.mended:
            headers["x-callgate-mended"] = ", ".join(f"{kind}={count}" for kind, count in mended.items())
        if seen.retries:
            headers["x-callgate-retries"] = str(seen.retries)
        if withheld := sum(call.outcome in ("withheld", "denied") for call in seen.calls):
            headers["x-callgate-withheld"] = str(withheld)


class _Written:
    """The first answer to a request, as it is written for the client."""

    def __init__(self, answer: Answer, reading: Reading, writer: Writer) -> None:
        self._answer = answer
        self._reading = reading
        self.writer = writer
        self.lane: Lane | None = None
        self._started = False

    def begin(self, make: Callable[[], Machine] | None) -> Lane:
        """A lane for the answer to this query."""
        self.lane = Lane(replace(self._reading, machine=make))
        return self.lane

    async def start(self) -> None:
        """What can be said at once."""
        if not self._started and self._answer.ask.stream:
            self._started = True
            await self._answer.client.write(self.writer.start())

    async def show(self, reply: Reply) -> None:
        """A reply for which no request was needed."""
        lane = self.begin(None)
        await self.start()
        visible = lane.feed(formats.deltas_of(reply))
        if visible and self._answer.ask.stream:
            await self._answer.client.write(self.writer.feed(visible))


def _ended_in_silence(editor: Editor) -> bool:
    """Whether the backend stopped without a word: what came before may not be all."""
    replies = [lane.reply for lane in editor.lanes.values()]
    return any(reply.finish == "interrupted" and reply.raw_finish is None for reply in replies)


def _sum(usage: Usage | None, more: Sequence[Usage]) -> Usage:
    total: Counter[str] = Counter(usage or {})
    for other in more:
        total.update(other)
    return dict(total)
