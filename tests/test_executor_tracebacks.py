"""Where a tool failed is told to people and to the ledger, and never to the model."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import process_tools
from callgate import Agent, Replay, tool
from callgate.errors import Denied, NoEffect, NotFound, UpstreamError
from callgate.executor._tracebacks import MAX_TRACEBACK, harmless, traceback_of
from callgate.masking import Masking
from callgate.tools import Tool

pytestmark = pytest.mark.anyio


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


NASTY = st.text() | st.sampled_from(["\x1b[2J", "\u202e", "\n\nERROR root: forged", "\r", "x" * 100_000, "\ud800"])


@settings(max_examples=60, deadline=None)
@given(st.lists(NASTY, min_size=1, max_size=4), st.sampled_from([ValueError, KeyError, RuntimeError, OSError]))
def test_a_traceback_is_bounded_and_harmless_whatever_the_exception_holds(
    texts: list[str], kind: type[Exception]
) -> None:
    error: BaseException = kind(texts[0])
    for text in texts[1:]:
        error.add_note(text.replace("\ud800", "?"))
        try:
            raise kind(text) from error
        except Exception as caught:
            error = caught
    secret = "correct-horse-battery"
    error.add_note(f"with {secret}")
    text = harmless(traceback_of(raised(error)), Masking.of(secrets=[secret]))
    assert secret not in text
    for line in text.split("\n"):
        assert line.startswith("    ")
        assert line.isprintable()
    assert len(text) < MAX_TRACEBACK * 12


def test_an_exception_that_cannot_be_looked_at_is_named() -> None:
    class Bad(Exception):
        @property
        def __notes__(self) -> Any:
            raise RuntimeError

        def __str__(self) -> str:
            raise ValueError

    assert "Bad" in traceback_of(raised(Bad()))


def broken(n: int) -> int:
    """Fails in a way that its author did not foresee."""
    return {"a": 1}["k"] + n


@pytest.mark.parametrize("kind", ["sync", "async", "process"])
@pytest.mark.parametrize("effect", ["read", "write"])
async def test_the_traceback_of_a_tool_is_logged_and_kept_and_the_model_never_sees_it(
    kind: str, effect: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def later(n: int) -> int:
        return broken(n)

    made = {
        "sync": Tool.from_function(broken, effect=effect),
        "async": Tool.from_function(later, effect=effect),
        "process": Tool.from_function(process_tools.fail, effect=effect, process=True),
    }[kind]
    arguments = {"kind": "ValueError", "grouped": False} if kind == "process" else {"n": 1}
    model = Replay([{"calls": [{"name": made.name, "arguments": arguments}]}, "done"])
    agent = Agent(model, tools=[made])
    with caplog.at_level(logging.ERROR, logger="callgate.tools"):
        result = await agent.run("go", run_id="r")
    (record,) = result.calls
    assert record.error is not None
    assert ("KeyError: 'k'" if kind != "process" else "ValueError: why") in record.error
    assert ("in broken" if kind != "process" else "in fail") in record.error
    (logged,) = [r for r in caplog.records if r.name == "callgate.tools"]
    assert logged.levelno == logging.ERROR
    assert record.error in logged.getMessage()
    for request in model.requests:
        assert "line " not in "".join(m.text for m in request.messages)
    assert (await agent.resume("r")).calls[0].error == record.error


@pytest.mark.parametrize("error", [NoEffect, NotFound, Denied, UpstreamError])
async def test_what_a_tool_raises_on_purpose_is_kept_but_not_logged(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    @tool(effect="read")
    def refuse() -> None:
        "Refuses."
        raise error("no")

    result = await Agent(Replay([{"calls": [{"name": "refuse", "arguments": {}}]}, "done"]), tools=[refuse]).run("go")
    assert "in refuse" in str(result.calls[0].error)
    assert [r for r in caplog.records if r.name == "callgate.tools"] == []
