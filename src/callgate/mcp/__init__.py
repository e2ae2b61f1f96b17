"""An MCP server's tools as a `Toolbox`, over stdio or streamable HTTP.

One law: the server is a stranger. Its schemas never reach out and have size limits, its texts are cut, a tool runs
only under the definition that was shown, and what was sent is never sent again by itself.

    with mcp.connect("uvx some-server") as server:
        agent = Agent("local", tools=[server.tools])
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from callgate.errors import ConfigError
from callgate.mcp._owner import CONNECT, Owner, Target
from callgate.mcp._strangers import MAX_DESCRIPTION, MAX_PAGES, MAX_SCHEMA, MAX_TOOLS
from callgate.tools import Toolbox
from callgate.types import Effect

__all__ = ["MAX_DESCRIPTION", "MAX_PAGES", "MAX_SCHEMA", "MAX_TOOLS", "Server", "connect"]


class Server:
    """One MCP server. A context manager, sync and async; usable from any thread and any event loop."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    @property
    def tools(self) -> Toolbox:
        """Its tools as they are now; a toolbox that was handed out earlier keeps the definitions it was made with."""
        return self._owner.tools

    @property
    def problems(self) -> list[str]:
        """What of the server's list was left out or cut, and why."""
        return list(self._owner.problems)

    @property
    def name(self) -> str:
        """What the server calls itself, or how it was reached."""
        return self._owner.name

    def open(self) -> Self:
        """Connects and lists the tools. Raises `Unreachable` if that fails."""
        self._owner.open()
        return self

    def close(self) -> None:
        """Ends the connection, and the process if there is one."""
        self._owner.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await self._owner.aopen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._owner.aclose()


def connect(
    server: str | Sequence[str] | Mapping[str, Any],
    *,
    prefix: str = "",
    effects: Mapping[str, Effect] | None = None,
    timeout: float | None = None,
    connect_timeout: float = CONNECT,
) -> Server:
    """A server by its command line, its URL, or its settings: {"command", "args", "env"} or {"url", "headers"}.

    Effects come from the server's annotations (nothing said: a write); `effects` overrules them by tool name. `prefix`
    goes before every tool's name. `timeout` is that of one call.
    """
    overruled: dict[str, Effect] = dict(effects or {})
    for name, effect in overruled.items():
        if effect not in ("read", "write"):
            raise ConfigError(f"effects[{name!r}]: {effect!r}: must be 'read' or 'write'")
    return Server(
        Owner(_target(server), prefix=prefix, effects=overruled, timeout=timeout, connect_timeout=connect_timeout)
    )


def _target(server: str | Sequence[str] | Mapping[str, Any]) -> Target:
    if isinstance(server, Mapping):
        if server.get("url"):
            return Target(url=str(server["url"]), headers=dict(server.get("headers") or {}))
        if server.get("command"):
            command = (str(server["command"]), *map(str, server.get("args") or ()))
            return Target(command=command, env=dict(server.get("env") or {}), cwd=server.get("cwd"))
        raise ConfigError('MCP server: settings need "command" or "url"')
    if isinstance(server, str) and server.startswith(("http://", "https://")):
        return Target(url=server)
    command = tuple(shlex.split(server) if isinstance(server, str) else map(str, server))
    if not command:
        raise ConfigError("MCP server: an empty command")
    return Target(command=command)
