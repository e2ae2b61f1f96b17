"""One connection of a server, from its first byte to its last.

Law: nothing of a server reaches the SDK before its size and shape are known to be sound.
(tests/test_mcp_field.py::test_one_odd_definition_costs_only_itself)
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from callgate.errors import ConfigError
from callgate.mcp._definitions import MAX_TEXT
from callgate.mcp._http import limited_client
from callgate.mcp._oauth import Login
from callgate.mcp._pipes import pipes
from callgate.mcp._questions import Asker, Elicit, Refusal, answer, question_of
from callgate.mcp._tolerance import Reading, Tolerance, Writing

LOGGER = logging.getLogger("callgate.mcp")
DRAIN: Final = 600.0
"""Seconds that calls of a session which has ended for others may still take to end."""


@dataclass(slots=True, frozen=True)
class Target:
    """How a server is reached: by a command or a URL."""

    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    login: Login | None = None
    """How a person logs in to it, where that is wanted."""

    @property
    def label(self) -> str:
        """For messages: no arguments, no query, no password."""
        if self.url is None:
            return self.command[0]
        return self.url.split("?", 1)[0].split("#", 1)[0].rsplit("@", 1)[-1]

    @property
    def is_callgate(self) -> bool:
        """Whether it is our own `mcp serve`, started by the application as its own child."""
        words = [word.replace("\\", "/").rsplit("/", 1)[-1].removesuffix(".exe") for word in self.command]
        return any(words[at : at + 3] == ["callgate", "mcp", "serve"] for at in range(len(words)))


class Connection:
    """The session with a server and what is known of it. Used in the thread of the servers only."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.name = target.label
        self.client: object = None
        """The SDK's client while it can be used."""
        self.reason = ""
        self.stderr: tuple[str, ...] = ()
        """The end of its standard error: for the developer, never for the model."""
        self.problems: list[str] = []
        """What of its lists did not fit the specification."""
        self.asked: list[str] = []
        """What it asked for in vain."""
        self._expired = secrets.token_hex(16)
        self._lost = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.askers: list[Asker] = []
        """The calls that run on it."""

    @contextlib.asynccontextmanager
    async def open(self, **callbacks: object) -> AsyncIterator[object]:
        """The SDK's client, connected; `callbacks` are its own."""
        sdk = load_sdk()
        async with contextlib.AsyncExitStack() as stack:
            transport = await self._transport(stack, sdk)
            client = sdk["Client"](
                _tolerant(transport, Tolerance(self._problem, self._in_vain)), cache=None, **callbacks
            )
            await stack.enter_async_context(client)
            client.session.validate_tool_result = (
                _unchecked  # its output schema is its own: its patterns, its references
            )
            info = client.server_info
            self.name = f"{info.name[:80]} ({self.target.label})" if info is not None else self.target.label
            yield client

    async def _transport(self, stack: contextlib.AsyncExitStack, sdk: Mapping[str, Any]) -> object:
        if self.target.url is None:
            return pipes(self.target.command, env=self.target.env, cwd=self.target.cwd, closed=self.lose)
        auth = None
        if (login := self.target.login) is not None:
            auth = login.auth()
            stack.callback(login.close)
        web = limited_client(self.target.headers, expired=self._expired, auth=auth)
        return sdk["http"](self.target.url, http_client=await stack.enter_async_context(web))

    def _problem(self, text: str) -> None:
        if text not in self.problems and len(self.problems) < 1000:
            self.problems.append(text)

    def _in_vain(self, text: str) -> None:
        if text not in self.asked:
            self.asked.append(text)

    def lose(self, reason: str, errors: Sequence[str] = ()) -> None:
        """It cannot be used any more."""
        self.reason, self.stderr, self.client = reason, tuple(errors), None
        self._lost.set()

    def retire(self) -> None:
        """No new call begins on it; those that run may end."""
        self.client = None
        self._lost.set()

    def has_expired(self, error: Exception) -> bool:
        """Whether a call failed because the server does not know the session any more: it was never begun."""
        return getattr(getattr(error, "error", None), "data", None) == self._expired

    @contextlib.contextmanager
    def calling(self, asker: Asker) -> Any:
        """A call is running on it."""
        self.askers.append(asker)
        self._idle.clear()
        try:
            yield self.client
        finally:
            self.askers.remove(asker)
            if not self.askers:
                self._idle.set()

    async def elicited(self, elicit: Elicit | None, params: object) -> object:
        """The SDK's answer to a question of the server."""
        import mcp_types

        askers = list(self.askers)
        question = question_of(params, self.name, askers)
        for asker in askers:
            asker.context.report(f"the server asks: {question.message}")
        try:
            filled = await answer(question, askers, elicit)
        except Exception as error:
            if not isinstance(error, Refusal):
                LOGGER.exception("MCP server %s: asking a person failed", self.name)
            reason = str(error) if isinstance(error, Refusal) else f"asking failed ({type(error).__name__})"
            self._in_vain(f"it asked a person ({question.message[:80]!r}): {reason}")
            for asker in askers:
                asker.refused.append(reason)
                asker.context.report(f"not answered: {reason}")
            # not an error: as the answer to a question inside a result, one would end the call without an outcome
            return mcp_types.ElicitResult(action="cancel")
        if filled is None:
            return mcp_types.ElicitResult(action="decline")
        return mcp_types.ElicitResult(action="accept", content=None if question.url else dict(filled))

    async def ended(self, closing: asyncio.Event) -> None:
        """Returns when it was lost, or was retired and its last call has ended, or everything is being closed."""
        await self._first(self._lost, closing)
        if not self.reason and not closing.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._first(self._idle, closing), DRAIN)

    async def _first(self, *events: asyncio.Event) -> None:
        tasks = [asyncio.create_task(event.wait()) for event in events]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


@contextlib.asynccontextmanager
async def _tolerant(transport: Any, tolerance: Tolerance) -> AsyncIterator[tuple[object, object]]:
    async with transport as (incoming, outgoing):
        yield Reading(incoming, tolerance), Writing(outgoing, tolerance)


async def _unchecked(name: str, result: object) -> None:
    """Takes a result as it is."""


def message_of(error: BaseException) -> str:
    """The innermost of an exception, in one line."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    text = " ".join(str(getattr(error, "message", "") or error).split()) or type(error).__name__
    return text[:MAX_TEXT]


def load_sdk() -> dict[str, Any]:
    """What is used of the official SDK. Raises ConfigError if it is not installed."""
    try:
        import mcp_types
        from mcp import Client
        from mcp.client.streamable_http import streamable_http_client
    except ImportError as error:
        raise ConfigError('MCP needs the extra "mcp": pip install "callgate[mcp]"') from error
    codes = {
        "closed": mcp_types.CONNECTION_CLOSED,
        "timeout": mcp_types.REQUEST_TIMEOUT,
    }
    return {"Client": Client, "http": streamable_http_client, "codes": codes}
