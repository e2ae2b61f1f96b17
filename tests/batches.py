"""Runs a batch as the agent's driver does: in a task of its own, stopped by `Batch.cancel`, watched by an observer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from callgate.executor import Batch, Caller, Executor
from callgate.keys import idempotency_key
from callgate.tools import ToolContext
from callgate.types import Principal, ToolCall, ToolResult, ToolSpec

Timed = tuple[ToolResult, float | None]


class Watcher:
    """An observer that keeps everything, and does what a test adds."""

    def __init__(
        self,
        run_id: str = "",
        *,
        on_event: Callable[[Any], None] | None = None,
        before_write: Callable[[ToolCall, ToolSpec, str], Awaitable[ToolResult | None]] | None = None,
        after: Callable[[ToolCall, ToolResult, float | None], Awaitable[None]] | None = None,
        on_late: Callable[[ToolCall, ToolResult], None] | None = None,
        obstacle: Callable[[], str | None] | None = None,
    ) -> None:
        self.run_id = run_id
        self.results: dict[str, Timed] = {}
        self.late: list[ToolResult] = []
        self._on_event, self._before_write, self._after = on_event, before_write, after
        self._on_late, self._obstacle = on_late, obstacle

    def key_of(self, call: ToolCall) -> str:
        return idempotency_key(self.run_id, call.id)

    def on_event(self, event: Any) -> None:
        if self._on_event is not None:
            self._on_event(event)

    def admit(self, call: ToolCall, spec: ToolSpec) -> ToolResult | None:
        return None

    async def before_write(self, call: ToolCall, spec: ToolSpec, key: str) -> ToolResult | None:
        return None if self._before_write is None else await self._before_write(call, spec, key)

    def obstacle(self) -> str | None:
        return None if self._obstacle is None else self._obstacle()

    async def after(self, call: ToolCall, result: ToolResult, seconds: float | None) -> None:
        assert call.id not in self.results, "one result a call"
        self.results[call.id] = (result, seconds)
        if self._after is not None:
            await self._after(call, result, seconds)

    def on_late(self, call: ToolCall, result: ToolResult) -> None:
        self.late.append(result)
        if self._on_late is not None:
            self._on_late(call, result)


async def execute(
    executor: Executor,
    calls: Sequence[ToolCall],
    *,
    run_id: str = "",
    principal: Principal | None = None,
    cancel_after: float | None = None,
    watcher: Watcher | None = None,
    **hooks: Any,
) -> list[Timed]:
    """(result, seconds) of each call, in the order of the calls; `cancel_after` seconds the batch is cancelled."""
    watcher = watcher or Watcher(run_id, **hooks)
    batch = Batch(executor, Caller(ToolContext(principal=principal, run_id=run_id)), watcher)
    if cancel_after is not None:
        if cancel_after <= 0:
            batch.cancel()
        else:
            asyncio.get_running_loop().call_later(cancel_after, batch.cancel)
    await batch.carry_out(calls)
    return [watcher.results[call.id] for call in calls]
