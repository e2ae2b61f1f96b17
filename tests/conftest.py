"""Fixtures of the whole suite, and its limit of time."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable

import pytest
import pytest_timeout

from patience import busy


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Function, settings: pytest_timeout.Settings) -> bool:
    """The limit of a test is that of an idle machine: others' load is no fault of its own."""
    seconds = settings.timeout * busy()
    if inspect.iscoroutinefunction(item.obj) and not hasattr(item.obj, "hypothesis"):
        # An exception that a signal raises inside a step of the event loop loses that step: its task is never woken
        # again, and the loop waits for it for ever when it closes. So the loop itself ends the test, and the signal is
        # left for a loop that stands still.
        item.obj = _limited(item.obj, seconds)
        seconds *= 2
    return bool(pytest_timeout.pytest_timeout_set_timer(item, settings._replace(timeout=seconds)))


def _limited(test: Callable[..., Awaitable[None]], seconds: float) -> Callable[..., Awaitable[None]]:
    @functools.wraps(test)
    async def limited(*args: object, **named: object) -> None:
        async with asyncio.timeout(seconds):
            await test(*args, **named)

    return limited
