"""Fixtures of the whole suite, and its limit of time."""

from __future__ import annotations

import pytest
import pytest_timeout

from patience import busy


@pytest.fixture
def anyio_backend() -> str:
    """Async tests run on asyncio."""
    return "asyncio"


@pytest.hookimpl(tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: pytest_timeout.Settings) -> bool:
    """The limit of a test is that of an idle machine: others' load is no fault of its own."""
    scaled = settings._replace(timeout=settings.timeout * busy())
    return bool(pytest_timeout.pytest_timeout_set_timer(item, scaled))
