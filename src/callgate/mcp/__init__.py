"""An MCP server's tools as a `Toolbox`, over stdio or streamable HTTP.

The server is not trusted. Its schemas never reach out and have size limits, its texts are cut, a tool runs only under
the definition that was shown, and what was sent is never sent again by itself.

Law: what the server declares loosens nothing, unless the application trusts it.
(tests/test_mcp_trust.py::test_hints_of_an_untrusted_server_change_nothing)

    with mcp.connect("uvx some-server") as server:
        agent = Agent("local", tools=[server.tools])
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Literal, Self

from callgate.errors import ConfigError
from callgate.mcp._connection import Target
from callgate.mcp._definitions import MAX_CALL, MAX_DESCRIPTION, MAX_PAGES, MAX_SCHEMA, MAX_TOOLS, Rules
from callgate.mcp._oauth import LOGIN, Login, OpenPage
from callgate.mcp._owner import CONNECT, Owner
from callgate.mcp._pipes import MAX_DEPTH, MAX_MESSAGE
from callgate.mcp._questions import Elicit, Question
from callgate.mcp._results import ServerError
from callgate.tools import Toolbox
from callgate.types import Effect

__all__ = [
    "MAX_CALL",
    "MAX_DEPTH",
    "MAX_DESCRIPTION",
    "MAX_MESSAGE",
    "MAX_PAGES",
    "MAX_SCHEMA",
    "MAX_TOOLS",
    "Question",
    "Server",
    "ServerError",
    "connect",
]


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
        """What of the server's lists was left out or cut, and why, and what it asked for in vain."""
        return self._owner.problems

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
    server: str | Sequence[str] | Mapping[str, object],
    *,
    prefix: str = "",
    effects: Mapping[str, Effect] | None = None,
    trust: Literal["nothing", "hints"] = "nothing",
    untrusted: bool = True,
    outgoing: Iterable[str] = (),
    timeout: float | None = None,
    max_timeout: float = MAX_CALL,
    connect_timeout: float = CONNECT,
    resources: bool = False,
    prompts: bool = False,
    elicit: Elicit | None = None,
    oauth: bool | OpenPage = False,
) -> Server:
    """A server by its command line, its URL, or its settings: {"command", "args", "env"} or {"url", "headers"}.

    Every tool is a write, and never repeated, unless `effects` says otherwise by name or glob, as the server calls it.
    With `trust="hints"` its `readOnlyHint` and `idempotentHint` count too; the specification says: "clients MUST
    consider tool annotations to be untrusted unless they come from trusted servers". Results are untrusted text unless
    `untrusted=False`, and `outgoing` names the tools (globs) that send data away: see `policy.taint`. `prefix` goes
    before every tool's name. `timeout` is that of one call, in seconds; each report of progress begins it anew, until
    `max_timeout` seconds after the call's start. With `resources` and `prompts` there are tools to list and read these:
    `list_resources`, `read_resource`, `list_prompts` and `get_prompt`, which are reads. `elicit`
    answers its questions to the person; without it the run's `approve` answers those of yes or no, and others are
    refused. With `oauth` a person logs in to a remote server in the browser (or a callable that shows the page);
    the login is kept in the user's state folder. Raises ConfigError for what cannot be.
    """
    declared: dict[str, Effect] = dict(effects or {})
    for name, effect in declared.items():
        if effect not in ("read", "write"):
            raise ConfigError(f"effects[{name!r}]: {effect!r}: must be 'read' or 'write'")
    if trust not in ("nothing", "hints"):
        raise ConfigError(f"trust: {trust!r}: must be 'nothing' or 'hints'")
    if isinstance(max_timeout, bool) or not isinstance(max_timeout, (int, float)) or not max_timeout > 0:
        raise ConfigError(f"max_timeout: {max_timeout!r}: must be a number of seconds, more than 0")
    away = (outgoing,) if isinstance(outgoing, str) else tuple(outgoing)
    rules = Rules(
        prefix=prefix,
        effects=declared,
        hints=trust == "hints",
        untrusted=untrusted,
        outgoing=away,
        timeout=timeout,
        max_timeout=max_timeout,
        resources=resources,
        prompts=prompts,
        elicit=elicit,
    )
    target = _target(server)
    if oauth:
        if target.url is None:
            raise ConfigError("oauth: only a server with a URL asks for a login")
        target = replace(target, login=Login(target.url, None if oauth is True else oauth))
        connect_timeout = max(connect_timeout, LOGIN + CONNECT)
    return Server(Owner(target, rules=rules, connect_timeout=connect_timeout))


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
