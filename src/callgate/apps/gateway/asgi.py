"""ASGI's words, and one visit of a client.

Law: that of the room (callgate/apps/gateway/__init__.py).
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import asyncio

    from callgate.apps.gateway.gate import ExchangeRecord
    from callgate.apps.gateway.keyring import Caller

# By their names at https://asgi.readthedocs.io; the values of a scope are of all kinds.
Scope: TypeAlias = "MutableMapping[str, Any]"
Message: TypeAlias = "MutableMapping[str, Any]"
Receive: TypeAlias = "Callable[[], Awaitable[Message]]"
Send: TypeAlias = "Callable[[Message], Awaitable[None]]"
AsgiApp: TypeAlias = "Callable[[Scope, Receive, Send], Awaitable[None]]"

TRANSPORT = "callgate.transport"
"""The key of a scope under which the connection stands, so that one that takes nothing can be cut off."""


@dataclass(slots=True, eq=False)
class Visit:
    """One request, from its head to the end of its answer. It holds no contents."""

    scope: Scope
    began: float
    id: str = field(default_factory=lambda: f"req_{secrets.token_hex(12)}")
    caller: Caller | None = None
    status: int = 0
    """0: nothing was answered yet."""
    sent: int = 0
    """Bytes of the answer's body."""
    stuck_since: float | None = None
    """Since when the client takes nothing."""
    left: bool = False
    """The client was gone before its answer was whole."""
    ended: bool = False
    """The answer is whole."""
    exchange: ExchangeRecord | None = None
    """What the proxy tells of it, if it was one for the proxy."""

    @property
    def client(self) -> str:
        """The address of who asks; "": a Unix socket."""
        found = self.scope.get("client")
        return str(found[0]) if found else ""

    def abort(self) -> None:
        """Breaks the connection, without waiting for what the client has not taken."""
        # Not `isinstance` of asyncio's class: uvloop's transports are none of its kind.
        transport: asyncio.Transport | None = self.scope.get(TRANSPORT)
        if transport is not None:
            transport.abort()
