"""Every store, opened for a test, and the entries that tests of ledgers are made of."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pg_server
from callgate import ledger as ledgers
from callgate.events import dump_event
from callgate.ledger import Ledger, Write, arguments_hash
from callgate.types import Entry, ToolCall, ToolResult

Opener = Callable[..., Ledger]
_number = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    reason = pg_server.why_not()
    if reason is not None:
        pytest.skip(reason)
    with pg_server.server() as address:
        yield address


@pytest.fixture(params=ledgers.names())
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens the same store again and again; every test has one of its own."""
    opened: list[Ledger] = []
    make = _opener(request, tmp_path)

    def open_one(**options: Any) -> Ledger:
        opened.append(make(**options))
        return opened[-1]

    yield open_one
    for ledger in opened:
        asyncio.run(ledger.aclose())


def _opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    match request.param:
        case "memory":
            kept = ledgers.open("memory")

            def opened(**options: Any) -> Ledger:
                return type(kept)("", **options) if options else kept

            return opened
        case "sqlite":
            where = f"sqlite:{tmp_path}/runs.db"
        case "postgres":
            where = f"{request.getfixturevalue('postgres')}&callgate_schema=test_{next(_number)}"
        case other:
            raise AssertionError(f"no test opens the store {other}")

    def opened(**options: Any) -> Ledger:
        if not options:
            return ledgers.open(where)
        store = type(ledgers.open(where))
        return store(where.removeprefix("sqlite:"), **options)

    return opened


def started(principal: str | None = "u", prompt: str = "hello") -> Entry:
    return Entry("run_started", {"model": "m", "principal": principal, "prompt": prompt})


def ended(call_id: str, status: str = "ok", content: str = "done", **more: Any) -> Entry:
    result = ToolResult(call_id, status, content, **more)  # type: ignore[arg-type]
    return Entry("call_result", {"call_id": call_id, "result": dump_event(result)})


PAY = ToolCall("c1", "pay", {"to": "bob", "cents": 500})
PAY_HASH = arguments_hash("pay", PAY.arguments, key=b"")


async def find(ledger: Ledger, run_id: str, principal: str | None = "u", **more: Any) -> Write | None:
    return await ledger.find_write(principal=principal, tool="pay", arguments_hash=PAY_HASH, run_id=run_id, **more)
