"""What a tool raises or is asked with may be a stranger's text: its cost must not grow beyond what is looked at."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from batches import execute
from callgate.executor import Executor
from callgate.executor._outcomes import MAX_MESSAGE, MAX_READ, message_of
from callgate.tools import Tool, Toolbox
from callgate.types import ToolCall

SECONDS = 1.0
"""Of CPU, for one text however long: hundreds of times what it takes; one that is read whole takes minutes."""
HOSTILE: dict[str, Callable[[int], str]] = {
    "newlines": lambda n: "<html>" + "\n" * n + "</html>",
    "blanks": lambda n: "x" + " " * n + "x",
    "blank lines": lambda n: "    \n" * n,
    "tabs and lines": lambda n: "\t\n " * n,
    "file heads": lambda n: '  File "' * n,
    "open quotes": lambda n: '\n  File "' * n,
    "numbers": lambda n: '  File "a", line ' + "1" * n,
    "tracebacks": lambda n: "Traceback (most recent call last" * n,
    "secrets": lambda n: "password=" * n,
    "urls": lambda n: "https://" * n,
    "headers": lambda n: "Authorization: " * n,
    "pem": lambda n: "-----BEGIN PRIVATE KEY-----" * n,
    "dots": lambda n: "eyJ." * n,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("error", [ValueError, KeyError], ids=["ValueError", "KeyError"])
def test_the_message_of_a_hostile_exception_costs_a_bounded_number_of_steps(kind: str, error: type[Exception]) -> None:
    for size in (100, 3_000, 30_000, 1_000_000):
        raised = error(HOSTILE[kind](size))
        began = time.process_time()
        text = message_of(raised)
        assert time.process_time() - began < SECONDS, (kind, size)
        assert len(text) <= MAX_MESSAGE


def test_of_an_endless_text_only_the_head_is_looked_at() -> None:
    for size in (MAX_READ, MAX_READ * 10, 50_000_000):
        assert message_of(ValueError("a" * size)) == "a" * (MAX_MESSAGE - 1) + "…"


def test_a_traceback_is_cut_out_wherever_it_begins() -> None:
    for text in (
        'it failed\nTraceback (most recent call last):\n  File "/srv/a.py", line 3, in f',
        'it failed\n  File "/srv/a.py", line 3, in f\n    secret()',
        'it failed\n\n\n\tFile "/srv/a.py", line 12',
    ):
        assert message_of(ValueError(text)) == "it failed"
    assert message_of(ValueError('see File "a", line 3')) == 'see File "a", line 3'


@pytest.mark.parametrize("kind", ["newlines", "file heads"])
def test_the_loop_goes_on_while_a_tool_fails_with_a_hostile_text(kind: str) -> None:
    def fail() -> None:
        raise ConnectionError(HOSTILE[kind](3_000))

    async def main() -> float:
        box = Toolbox([Tool.from_function(fail, effect="read")])
        began = time.process_time()
        await execute(Executor(box), [ToolCall("c1", "fail", {})])
        return time.process_time() - began

    assert asyncio.run(main()) < SECONDS
