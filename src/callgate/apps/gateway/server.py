"""The process: it listens, says so, answers, and ends in order.

Law: after SIGTERM no new request is taken, those that run have `--grace` seconds, and what then still runs ends with an
error in its client's form. (tests/test_gateway_server.py::test_a_signal_ends_an_idle_server_at_once)

Theory of operation. (1) The sockets are bound before anything else, so that a port that is taken is known at once. (2)
The line on stdout comes when connections are accepted. (3) SIGTERM or SIGINT: the sockets close, idle connections
close, what runs goes on. (4) When nothing runs any more, or the grace is over, or a second signal came, what is left
is told to end; a moment later it is cancelled. (5) SIGHUP reads the keys again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvicorn

from callgate.apps import output
from callgate.apps.gateway.connections import protocol_for
from callgate.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from callgate.apps.gateway.app import App
    from callgate.apps.gateway.settings import Settings

LOGGER = logging.getLogger("callgate.gateway")
BACKLOG = 2048
"""Connections that the kernel holds until they are accepted: bursts come at once."""
MOST_FILES = 65_536
SPARE_FILES = 128
"""For the ledger, logs, tools and connections that are being refused."""
FAREWELL = 2.0
"""Seconds for the last error events to leave."""


def serve(app: App) -> None:
    """Serves until the process is told to end. Raises ConfigError if it cannot begin."""
    # What goes wrong in a request we report ourselves; uvicorn's own lines would let any client fill the log.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    settings = app.settings
    sockets = [_unix(settings.unix_socket)] if settings.unix_socket is not None else _bound(settings)
    try:
        server = _Server(app, settings, sockets)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(server.serve(sockets))
    finally:
        for taken in sockets:
            taken.close()
        if settings.unix_socket is not None:
            Path(settings.unix_socket).unlink(missing_ok=True)
    if server.failure is not None:
        raise server.failure


class _Server(uvicorn.Server):
    """uvicorn with our own beginning and end."""

    def __init__(self, app: App, settings: Settings, sockets: Sequence[socket.socket]) -> None:
        super().__init__(_config(app, settings))
        self.app = app
        self.settings = settings
        self.address = address_of(settings, sockets)
        self.failure: Exception | None = None
        """Why it could not begin."""
        self._hurry = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Rule 2."""
        try:
            await self.app.open()
        except Exception as error:
            self.failure = error
            self.should_exit = True
            return
        await super().startup(sockets)
        output.say(f"callgate {self.address}")
        sys.stdout.flush()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Rules 3 and 5."""
        loop = asyncio.get_running_loop()
        handlers: dict[str, Callable[[], None]] = {"SIGINT": self._end, "SIGTERM": self._end, "SIGHUP": self._reload}
        taken = [(getattr(signal, name), act) for name, act in handlers.items() if hasattr(signal, name)]
        try:
            for number, act in taken:
                loop.add_signal_handler(number, act)
        except NotImplementedError:  # Windows: uvicorn's own way
            with super().capture_signals():
                yield
            return
        try:
            yield
        finally:
            for number, _ in taken:
                loop.remove_signal_handler(number)

    def _end(self) -> None:
        if self.should_exit:
            self._hurry.set()
        self.app.stopping = self.should_exit = True

    def _reload(self) -> None:
        self.app.reload()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Rules 3 and 4."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        if not await self._idle(self.settings.grace):
            await self.app.stop("the server is shutting down")
            if not await self._idle(FAREWELL):
                for task in self.server_state.tasks:
                    task.cancel()
                await self._idle(FAREWELL)
        await self.app.aclose()

    async def _idle(self, seconds: float) -> bool:
        """Whether nothing runs any more, within so many seconds."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        hurry = asyncio.ensure_future(self._hurry.wait())
        while (tasks := self._tasks()) and (left := until - loop.time()) > 0 and not self._hurry.is_set():
            # One round for each that ends: a pipelined request may begin a new one.
            await asyncio.wait({*tasks, hurry}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        return not self._tasks()

    def _tasks(self) -> set[asyncio.Task[Any]]:
        """What still runs: requests, and runs that have nobody to watch them."""
        return {*self.server_state.tasks, *self.app.tasks}


def _config(app: App, settings: Settings) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=protocol_for(settings),
        ws="none",
        lifespan="off",  # opened and closed by us: a failure must be one clear line
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        limit_concurrency=min(settings.max_connections, _most_connections()),
        timeout_keep_alive=int(settings.keep_alive),
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.certificate_key,
    )
    try:
        config.load()
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(f"--certificate {settings.certificate}: it cannot be used: {error}") from error
    return config


def _most_connections() -> int:
    """As many as there are file descriptors for, with one to a backend for each."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 1 << 20
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft < wanted:
        with contextlib.suppress(OSError, ValueError):  # a container may forbid it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max((soft - SPARE_FILES) // 2, 16)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's, where it is installed: half the cost of a chunk."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def address_of(settings: Settings, sockets: Sequence[socket.socket]) -> str:
    """Where it is reached: http://HOST:PORT, https://HOST:PORT, or unix:PATH."""
    if settings.unix_socket is not None:
        return f"unix:{settings.unix_socket}"
    scheme = "https" if settings.certificate is not None else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{sockets[0].getsockname()[1]}"


def _bound(settings: Settings) -> list[socket.socket]:
    """Sockets on every address that the host's name has, all with one port. Rule 1."""
    host, port = settings.host, settings.port
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: the name is not known here: {error}") from error
    sockets: list[socket.socket] = []
    for family, _, _, _, address in dict.fromkeys(found):
        chosen = sockets[0].getsockname()[1] if sockets else port  # the others take the port that the first one got
        try:
            sockets.append(_listening(family, (address[0], chosen, *address[2:])))
        except OSError as error:
            # "localhost" may name an IPv6 address on a machine without IPv6.
            if sockets or (len(found) > 1 and family == socket.AF_INET6):
                continue
            reason = os.strerror(error.errno) if error.errno else str(error)
            raise ConfigError(f"--host {host} --port {port}: {reason}; choose another with --port") from error
    if not sockets:
        raise ConfigError(f"--host {host}: none of its addresses can be used here")
    return sockets


def _listening(family: int, address: tuple[object, ...]) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        if os.name == "posix":  # on Windows this option lets another process take the port over
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind(address)
        made.listen(BACKLOG)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _unix(path: str) -> socket.socket:
    """A Unix socket that only this user can reach. One that nobody listens on any more is replaced."""
    if not hasattr(socket, "AF_UNIX"):
        raise ConfigError("--unix-socket: this system has none")
    place = Path(path)
    if place.exists():
        if not stat.S_ISSOCK(place.stat().st_mode):
            raise ConfigError(f"--unix-socket {path}: there is a file of that name")
        if _answers(path):
            raise ConfigError(f"--unix-socket {path}: another process listens there")
        place.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # from its first moment on: a chmod afterwards would come too late
    try:
        made.bind(path)
        made.listen(BACKLOG)
    except OSError as error:
        made.close()
        raise ConfigError(f"--unix-socket {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    made.setblocking(False)
    return made


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True
