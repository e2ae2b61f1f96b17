"""The one task that owns a server's connection, and the thread that all of them live in.

Law: what may have reached the server is never sent twice, and only what certainly did not is `NoEffect`.
(tests/test_mcp_trust.py::test_an_error_after_a_call_was_sent_is_no_proof_that_nothing_happened)

Theory of operation. A session is opened, used and closed by one task. The owner is offline until somebody wants
it. Then it connects, lists the tools and is online until the connection is lost or `close` is called. A call that
finds it offline waits for one new attempt; a call whose connection is lost midway fails as an `UpstreamError`, so a
write's outcome is unknown; what was certainly not sent is `NoEffect`. A server that has forgotten the session (404)
has not begun the call: a new session is opened, a read is sent again, a write is told as not started, and calls that
still run on the old session may end there. When the server tells that its list changed it is read again, and a tool
whose definition is not the one that was handed out is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from callgate.errors import NoEffect, NotStarted, Unreachable, UpstreamError
from callgate.mcp._connection import Connection, Target, load_sdk, message_of
from callgate.mcp._definitions import MAX_PAGES, MAX_TOOLS, Rules, Shown, fingerprint, tools_of
from callgate.mcp._encoding import is_sound
from callgate.mcp._offers import OFFERS, WORK, offers_of
from callgate.mcp._questions import Asker
from callgate.mcp._results import value_of
from callgate.tools import Toolbox, ToolContext

LOGGER = logging.getLogger("callgate.mcp")
CONNECT: Final = 30.0
"""Seconds until a server must have answered with its list; some are installed on first use."""
T = TypeVar("T")


class _Thread:
    """The event loop that all servers of this process share."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="callgate-mcp", daemon=True).start()

    def run(self, work: Coroutine[object, object, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)


_lock = threading.Lock()
_threads: list[_Thread] = []


def _thread() -> _Thread:
    with _lock:
        if not _threads:
            _threads.append(_Thread())
        return _threads[0]


BACKSTOP = 5.0
"""Seconds that the client waits beyond the limit of a call, lest two clocks for one limit race."""


class Owner:
    """One server's connection. Its public methods may be called from anywhere."""

    def __init__(
        self,
        target: Target,
        *,
        rules: Rules,
        connect_timeout: float,
    ) -> None:
        self.target = target
        self.name = target.label
        self.tools = Toolbox()
        self._left_out: list[str] = []
        self._rules = rules
        self._connect_timeout = connect_timeout
        self._definitions: dict[str, str] = {}
        self._connection: Connection | None = None
        """The one that new calls use."""
        self._task: asyncio.Task[None] | None = None
        self._retired: set[asyncio.Task[None]] = set()
        """Tasks of sessions that have ended for new calls."""
        self._online: asyncio.Future[None] | None = None
        self._closing: asyncio.Event | None = None

    @property
    def problems(self) -> list[str]:
        """What of the server's lists was left out or cut, and what it asked for in vain."""
        return [*self._left_out, *(self._connection.asked if self._connection is not None else [])]

    # --- from anywhere --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connects; raises `Unreachable`."""
        load_sdk()
        _thread().run(self._ready()).result()

    def close(self) -> None:
        """Disconnects; waits until the process is gone."""
        _thread().run(self._stop()).result()

    async def aopen(self) -> None:
        """`open` without blocking the loop."""
        await asyncio.to_thread(load_sdk)
        await asyncio.wrap_future(_thread().run(self._ready()))

    async def aclose(self) -> None:
        """`close` without blocking the loop."""
        await asyncio.wrap_future(_thread().run(self._stop()))

    async def call(self, shown: Shown, context: ToolContext, arguments: dict[str, object]) -> object:
        """The value of one call; cancelling it tells the server."""
        asker = Asker(shown.name, context, asyncio.get_running_loop(), self._rules.max_timeout)
        return await asyncio.wrap_future(_thread().run(self._call(shown, asker, arguments)))

    # --- in the thread: connecting --------------------------------------------------------------------------------

    async def _ready(self) -> None:
        self._closing = self._closing or asyncio.Event()
        if self._closing.is_set():
            raise Unreachable(f"MCP server {self.name}: its connection was closed", provider="mcp")
        while self._task is not None and not self._usable() and self._online is not None and self._online.done():
            await asyncio.wait({self._task})  # the lost connection is still being cleared away
            if self._task.done():
                self._task = None
        if self._task is None:
            self._online = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._own(self._online, self._closing))
        assert self._online is not None
        await asyncio.shield(self._online)

    def _usable(self) -> bool:
        return self._connection is not None and self._connection.client is not None

    async def _stop(self) -> None:
        self._closing = self._closing or asyncio.Event()
        self._closing.set()
        if tasks := {*self._retired, *([self._task] if self._task else [])}:
            await asyncio.wait(tasks)

    async def _own(self, online: asyncio.Future[None], closing: asyncio.Event) -> None:
        """One connection, from its first byte to its last."""
        connection = Connection(self.target)
        opened = connection.open(
            message_handler=lambda message: self._notified(connection, message),
            elicitation_callback=lambda _, params: connection.elicited(self._rules.elicit, params),
        )
        try:
            async with asyncio.timeout(self._connect_timeout) as patience, opened as client:
                self.name = connection.name
                await self._list(connection, client)
                patience.reschedule(None)
                connection.client, self._connection = client, connection
                online.set_result(None)
                watch = asyncio.create_task(self._watch(connection, client))
                try:
                    await connection.ended(closing)
                finally:
                    connection.client = None
                    watch.cancel()
                    await asyncio.wait({watch})
        except BaseException as error:
            if not online.done():
                online.set_exception(self._unreachable(connection, error))
                online.exception()  # read, even if nobody waits any more
            elif not isinstance(error, Exception):
                raise
        finally:
            connection.client = None

    def _retire(self, connection: Connection) -> None:
        """The server has forgotten this session: the next call opens another one."""
        if connection is self._connection and self._task is not None:
            self._retired.add(self._task)
            self._task.add_done_callback(self._retired.discard)
            self._task = self._connection = None
        connection.retire()

    def _unreachable(self, connection: Connection, error: BaseException) -> Unreachable:
        reason = connection.reason or (
            f"no answer within {self._connect_timeout:g} s" if isinstance(error, TimeoutError) else message_of(error)
        )
        last = f"; it wrote: {' | '.join(connection.stderr[-3:])}" if connection.stderr else ""
        return Unreachable(f"MCP server {self.name}: {reason}{last}", provider="mcp")

    # --- in the thread: lists -------------------------------------------------------------------------------------

    async def _list(self, connection: Connection, client: Any) -> None:
        listed: list[Any] = []
        cursor: str | None = None
        connection.problems.clear()
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if not cursor or len(listed) > MAX_TOOLS:
                break
        tools, problems = tools_of(listed, self._rules, self.call)
        taken = frozenset(tool.name for tool in tools)
        more, missing = offers_of(client.server_capabilities, self._rules, taken, self.call)
        self._left_out = [*connection.problems, *problems, *missing]
        self._definitions = {tool.name: fingerprint(tool) for tool in listed}
        self._definitions |= {offer.shown.name: offer.shown.fingerprint for offer in OFFERS}
        self.tools = Toolbox([*tools, *more])

    async def _notified(self, connection: Connection, message: object) -> None:
        """A notification on a connection of the older kind."""
        if type(message).__name__ == "ToolListChangedNotification" and connection.client is not None:
            asyncio.create_task(self._list_again(connection))  # noqa: RUF006 - ends by itself, at the latest with the client

    async def _watch(self, connection: Connection, client: Any) -> None:
        """The newer kind: a stream of changes, as long as the server keeps it."""
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    await self._list_again(connection)

    async def _list_again(self, connection: Connection) -> None:
        client = connection.client
        if client is None or connection is not self._connection:
            return
        try:
            await self._list(connection, client)
        except Exception as error:
            if connection.has_expired(error):
                self._retire(connection)
            if connection.client is None:
                return
            LOGGER.warning("MCP server %s: its changed list cannot be read: %s", self.name, message_of(error))
            self._definitions = {}

    # --- in the thread: calls -------------------------------------------------------------------------------------

    async def _call(self, shown: Shown, asker: Asker, arguments: dict[str, Any]) -> object:
        connection = await self._found(shown)
        try:
            return await self._send(connection, shown, asker, arguments)
        except _Expired as error:
            if not shown.reads:
                raise NotStarted(f"{error}; the next call opens a new one") from error
        connection = await self._found(shown)  # a read is sent again: the server has not begun it
        try:
            return await self._send(connection, shown, asker, arguments)
        except _Expired as error:
            raise NotStarted(f"{error}, for the second time") from error

    async def _found(self, shown: Shown) -> Connection:
        """The connection to send a call on. Raises NoEffect if there is none, or the tool is not the one shown."""
        if not self._usable():
            try:
                await self._ready()
            except Unreachable as error:
                raise NoEffect(f"MCP server {self.name} cannot be reached") from error
        connection = self._connection
        if connection is None or connection.client is None:
            raise NoEffect(f"MCP server {self.name}: the connection was lost before anything was sent")
        if self._definitions.get(shown.name) != shown.fingerprint:
            raise NoEffect(
                f"the server changed the definition of {shown.name!r}; it must be listed and shown anew before it"
                " may run"
                if shown.name in self._definitions
                else f"the server does not offer {shown.name!r} any more"
            )
        return connection

    async def _send(self, connection: Connection, shown: Shown, asker: Asker, arguments: Any) -> Any:
        limit, context = asker.limit, asker.context
        if not is_sound(json.dumps(arguments, ensure_ascii=False)):
            raise NotStarted("its arguments hold half a character (a lone surrogate), which JSON cannot carry")

        async def progress(done: float, total: float | None, message: str | None) -> None:
            context.extend(limit)
            context.report(message or {"progress": done, "total": total})

        try:
            with connection.calling(asker) as client:
                if (work := WORK.get(shown.name)) is not None:
                    async with asyncio.timeout(limit + BACKSTOP):
                        return await work(client, arguments)
                # The executor ends the call at `limit`, and says so; the client's own clock only stands behind it.
                result = await client.call_tool(shown.name, arguments, limit + BACKSTOP, progress)
        except Exception as error:
            raise self._failure(connection, error) from error
        believed = self._rules.hints or self.target.is_callgate
        return value_of(result, believed=believed, refused="; ".join(asker.refused))

    def _failure(self, connection: Connection, error: Exception) -> Exception:
        """The error of a call that was sent. None of its codes proves that nothing happened: the server decides when
        to give "invalid params", and it may do so after half the work. What was certainly not sent never gets here;
        only a 404 to the session says by the specification that the call was not looked at."""
        codes = load_sdk()["codes"]
        code = getattr(error, "code", None)
        if connection.has_expired(error):
            self._retire(connection)
            return _Expired(f"MCP server {self.name} had forgotten the session, so it did not begin the call")
        if (code == codes["timeout"] and not connection.reason) or isinstance(error, TimeoutError):
            return TimeoutError(f"no answer from MCP server {self.name}")
        if isinstance(error, ValueError):  # pydantic's: an answer came, but not one of MCP
            return UpstreamError(f"MCP server {self.name}: its answer is not what MCP says: {message_of(error)}")
        if not hasattr(error, "code") or code == codes["closed"]:
            connection.lose(connection.reason or message_of(error), connection.stderr)
        return UpstreamError(f"MCP server {self.name}: {connection.reason or message_of(error)}")


class _Expired(Exception):
    """The server did not look at a call, because it knows the session no more."""
