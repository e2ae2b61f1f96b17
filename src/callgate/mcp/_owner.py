"""The one task that owns a server's connection, and the thread that all of them live in.

One law: a session is opened, used and closed by one task; and what may have reached the server is never sent twice.

Theory of operation. The owner is offline until somebody wants it. Then it connects, lists the tools and is online until
the connection is lost or `close` is called. A call that finds it offline waits for one new attempt; a call whose
connection is lost midway fails as an `UpstreamError`, so a write's outcome is unknown; what was certainly not sent is
`NoEffect`. When the server says that its list changed it is read again, and a tool whose definition is not the one that
was handed out is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from callgate.errors import ConfigError, NoEffect, NotFound, Unreachable, UpstreamError
from callgate.mcp._pipes import pipes
from callgate.mcp._strangers import MAX_PAGES, MAX_TEXT, MAX_TOOLS, Rules, fingerprint, tools_of, value_of
from callgate.tools import Toolbox, ToolContext
from callgate.types import Effect

LOGGER = logging.getLogger("callgate.mcp")
CONNECT: Final = 30.0
"""Seconds until a server must have answered with its list; some are installed on first use."""
CALL: Final = 600.0
"""Seconds of a call that sets no timeout: the executor's deadline comes first."""
T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Target:
    """How a server is reached: by a command or a URL."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """For messages: no arguments, no query, no password."""
        if self.url is None:
            return self.command[0]
        return self.url.split("?", 1)[0].split("#", 1)[0].rsplit("@", 1)[-1]


class _Thread:
    """The event loop that all servers of this process share."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="callgate-mcp", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self.loop)


_lock = threading.Lock()
_threads: list[_Thread] = []


def _thread() -> _Thread:
    with _lock:
        if not _threads:
            _threads.append(_Thread())
        return _threads[0]


class Owner:
    """One server's connection. Its public methods may be called from anywhere."""

    def __init__(
        self,
        target: Target,
        *,
        prefix: str,
        effects: Mapping[str, Effect],
        timeout: float | None,
        connect_timeout: float,
    ) -> None:
        self.target = target
        self.name = target.label
        self.tools = Toolbox()
        self.problems: list[str] = []
        self._rules = Rules(prefix, effects, timeout)
        self._patience = connect_timeout
        self._definitions: dict[str, str] = {}
        self._client: Any = None
        self._task: asyncio.Task[None] | None = None
        self._lost: asyncio.Event | None = None
        self._online: asyncio.Future[None] | None = None
        self._closed = False
        self._why = ""
        self._said: tuple[str, ...] = ()
        """The end of its standard error: for the developer, never for the model."""

    # --- from anywhere --------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Connects; raises `Unreachable`."""
        _load_sdk()
        _thread().run(self._ready()).result()

    def close(self) -> None:
        """Disconnects; waits until the process is gone."""
        _thread().run(self._stop()).result()

    async def aopen(self) -> None:
        """`open` without blocking the loop."""
        await asyncio.to_thread(_load_sdk)
        await asyncio.wrap_future(_thread().run(self._ready()))

    async def aclose(self) -> None:
        """`close` without blocking the loop."""
        await asyncio.wrap_future(_thread().run(self._stop()))

    async def call(self, name: str, definition: str, context: ToolContext, arguments: dict[str, Any]) -> Any:
        """The value of one call; cancelling it tells the server."""
        return await asyncio.wrap_future(_thread().run(self._call(name, definition, context, arguments)))

    # --- in the thread --------------------------------------------------------------------------------------------

    async def _ready(self) -> None:
        if self._closed:
            raise Unreachable(f"MCP server {self.name}: its connection was closed", provider="mcp")
        while self._task is not None and self._client is None and self._online is not None and self._online.done():
            await asyncio.wait({self._task})  # the lost connection is still being cleared away
            if self._task.done():
                self._task = None
        if self._task is None:
            self._online = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._own(self._online))
        assert self._online is not None
        await asyncio.shield(self._online)

    async def _stop(self) -> None:
        self._closed = True
        if self._lost is not None:
            self._lost.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    async def _own(self, online: asyncio.Future[None]) -> None:
        """One connection, from its first byte to its last."""
        self._lost, self._why, self._said = asyncio.Event(), "", ()
        try:
            async with asyncio.timeout(self._patience) as patience, self._connected() as client:
                await self._list(client)
                patience.reschedule(None)
                self._client = client
                online.set_result(None)
                watch = asyncio.create_task(self._watch(client))
                try:
                    await self._lost.wait()
                finally:
                    self._client = None
                    watch.cancel()
                    await asyncio.wait({watch})
        except BaseException as error:
            if not online.done():
                online.set_exception(self._unreachable(error))
                online.exception()  # read, even if nobody waits any more
            elif not isinstance(error, Exception):
                raise
        finally:
            self._client = None

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[Any]:
        sdk = _load_sdk()
        async with contextlib.AsyncExitStack() as stack:
            if self.target.url is not None:
                web = await stack.enter_async_context(_http(self.target.headers))
                transport = sdk["http"](self.target.url, http_client=web)
            else:
                where = {"env": self.target.env, "cwd": self.target.cwd}
                transport = pipes(self.target.command, **where, closed=self._disconnected)  # type: ignore[arg-type]
            client = sdk["Client"](transport, message_handler=self._heard, cache=None)
            await stack.enter_async_context(client)
            client.session.validate_tool_result = (
                _unchecked  # its output schema is its own: its patterns, its references
            )
            info = client.server_info
            self.name = f"{info.name[:80]} ({self.target.label})" if info is not None else self.target.label
            yield client

    def _disconnected(self, why: str, errors: Sequence[str] = ()) -> None:
        self._why = why
        self._said = tuple(errors)
        self._client = None
        if self._lost is not None:
            self._lost.set()

    def _unreachable(self, error: BaseException) -> Unreachable:
        said = self._why or (
            f"no answer within {self._patience:g} s" if isinstance(error, TimeoutError) else _words(error)
        )
        last = f"; its last words: {' | '.join(self._said[-3:])}" if self._said else ""
        return Unreachable(f"MCP server {self.name}: {said}{last}", provider="mcp")

    async def _list(self, client: Any) -> None:
        listed: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            listed += page.tools
            cursor = page.next_cursor
            if not cursor or len(listed) > MAX_TOOLS:
                break
        tools, self.problems = tools_of(listed, self._rules, self.call)
        self._definitions = {tool.name: fingerprint(tool) for tool in listed}
        self.tools = Toolbox(tools)

    async def _heard(self, message: Any) -> None:
        """A notification on a connection of the older kind."""
        if type(message).__name__ == "ToolListChangedNotification" and self._client is not None:
            asyncio.create_task(self._again(self._client))  # noqa: RUF006 - ends by itself, at the latest with the client

    async def _watch(self, client: Any) -> None:
        """The newer kind: a stream of changes, as long as the server keeps it."""
        with contextlib.suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    await self._again(client)

    async def _again(self, client: Any) -> None:
        try:
            await self._list(client)
        except Exception as error:
            LOGGER.warning("MCP server %s: its changed list cannot be read: %s", self.name, _words(error))
            self._definitions = {}

    async def _call(self, name: str, definition: str, context: ToolContext, arguments: dict[str, Any]) -> Any:
        if self._client is None:
            try:
                await self._ready()
            except Unreachable as error:
                raise NoEffect(f"MCP server {self.name} cannot be reached") from error
        client = self._client
        if client is None:
            raise NoEffect(f"MCP server {self.name}: the connection was lost before anything was sent")
        if self._definitions.get(name) != definition:
            raise NoEffect(
                f"the server changed the definition of {name!r}; it must be listed and shown anew before it may run"
                if name in self._definitions
                else f"the server does not offer {name!r} any more"
            )

        async def progress(done: float, total: float | None, message: str | None) -> None:
            context.report(message or {"progress": done, "total": total})

        try:
            timeout = self._rules.timeout or CALL
            result = await client.call_tool(name, arguments, timeout, progress)
        except Exception as error:
            raise self._failure(name, error) from error
        return value_of(result)

    def _failure(self, name: str, error: Exception) -> Exception:
        """What a call that was sent came to."""
        codes = _load_sdk()["codes"]
        code = getattr(error, "code", None)
        if code == codes["method_not_found"]:
            return NotFound(f"the server knows no tool {name!r}")
        if code == codes["invalid_params"]:
            return NoEffect(f"the server refused the arguments: {_words(error)}")
        if code in (codes["timeout"],) or isinstance(error, TimeoutError):
            return TimeoutError(f"no answer from MCP server {self.name}")
        if not hasattr(error, "code") or code == codes["closed"]:
            self._disconnected(self._why or _words(error))
        return UpstreamError(f"MCP server {self.name}: {self._why or _words(error)}")


async def _unchecked(name: str, result: Any) -> None:
    """Takes a result as it is."""


def _words(error: BaseException) -> str:
    """The innermost of an exception, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = " ".join(str(getattr(error, "message", "") or error).split()) or type(error).__name__
    return text[:MAX_TEXT]


def _http(headers: Mapping[str, str]) -> Any:
    import httpx2

    return httpx2.AsyncClient(headers=dict(headers), timeout=httpx2.Timeout(30.0, read=300.0))


def _load_sdk() -> dict[str, Any]:
    try:
        import mcp_types
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise ConfigError('MCP needs the extra "mcp": pip install "callgate[mcp]"') from error
    codes = {
        "closed": mcp_types.CONNECTION_CLOSED,
        "timeout": mcp_types.REQUEST_TIMEOUT,
        "invalid_params": mcp_types.INVALID_PARAMS,
        "method_not_found": mcp_types.METHOD_NOT_FOUND,
    }
    return {"Client": Client, "http": streamable_http_client, "codes": codes}
