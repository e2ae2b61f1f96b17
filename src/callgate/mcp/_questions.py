"""Questions of a server to the person (elicitation): who answers them, and which are refused.

A form goes to the application's `elicit`, if there is one. Otherwise a question that can be answered by yes or no goes
to the run's `approve`, as one about the call that runs; everything else is refused with words.

Law: nobody's silence answers a question, and a question reaches only the person of the run whose call it belongs to.
(tests/test_mcp_questions.py::test_a_question_that_may_belong_to_several_calls_is_refused)
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from callgate.mcp._definitions import MAX_TEXT
from callgate.tools import ToolContext

RENEW: Final = 0.5
"""Seconds after which a call that waits for a person has its deadline moved; shorter than any sane timeout."""


@dataclass(slots=True, frozen=True)
class Question:
    """What a server asks the person. Its words are a stranger's."""

    server: str
    tool: str
    """The tool whose call asks; "" if several calls run."""
    message: str
    schema: Mapping[str, object] = field(default_factory=dict)
    """The form: an object with plain properties."""
    url: str = ""
    """A page to open instead, where the server asks for one."""


Elicit = Callable[[Question], object]
"""→ a mapping (the filled form; {} for a page that was opened), or None: declined. Sync or async, in any thread."""


@dataclass(slots=True, frozen=True, eq=False)
class Asker:
    """A call that runs, and where its run lives."""

    tool: str
    context: ToolContext
    loop: asyncio.AbstractEventLoop
    limit: float
    refused: list[str] = field(default_factory=list)
    """Why questions of the server were not answered."""


class Refusal(Exception):
    """Why a question is not answered."""


async def answer(question: Question, askers: list[Asker], elicit: Elicit | None) -> Mapping[str, Any] | None:
    """The filled form, or None for no. Raises Refusal with the reason if nobody can answer."""
    keeper = asyncio.create_task(_keep(askers))
    try:
        if elicit is not None:
            return await _form(question, elicit)
        return await _yes_or_no(question, askers)
    finally:
        keeper.cancel()
        await asyncio.wait({keeper})


async def _keep(askers: list[Asker]) -> None:
    """A person may take longer than a tool."""
    while True:
        for asker in askers:
            asker.context.extend(asker.limit)
        await asyncio.sleep(RENEW)


async def _form(question: Question, elicit: Elicit) -> Mapping[str, object] | None:
    filled = (
        await elicit(question) if inspect.iscoroutinefunction(elicit) else await asyncio.to_thread(elicit, question)
    )
    if inspect.isawaitable(filled):
        filled = await filled
    return dict(filled) if isinstance(filled, Mapping) else None


async def _yes_or_no(question: Question, askers: list[Asker]) -> Mapping[str, object] | None:
    if len(askers) != 1:
        raise Refusal("several calls run, so it is not known whose person is asked")
    if question.url:
        raise Refusal("no page is opened for a server; the application must give `elicit` to mcp.connect")
    yes = _yes(question.schema)
    if yes is None:
        raise Refusal("its form needs more than yes or no; the application must give `elicit` to mcp.connect")
    asker = askers[0]
    details = {"server": question.server, "form": dict(question.schema)}
    asked = asker.context.ask(f"MCP server {question.server} asks: {question.message}", details)
    given = await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_awaited(asked), asker.loop))
    if given is None:
        raise Refusal("nobody is there to answer (Agent(approve=…))")
    return yes if given else None


async def _awaited(asked: Any) -> bool | None:
    given: bool | None = await asked
    return given


def _yes(schema: Mapping[str, Any]) -> dict[str, object] | None:
    """The form filled in by a yes; None if it asks for more: it may have one switch, and nothing else that must be."""
    properties = schema.get("properties") or {}
    required = set(schema.get("required") or ())
    switches = [
        name for name, kind in properties.items() if isinstance(kind, Mapping) and kind.get("type") == "boolean"
    ]
    if not properties:
        return {}
    if len(switches) == 1 and required <= set(switches):
        return {switches[0]: True}
    return None


def question_of(params: Any, server: str, askers: list[Asker]) -> Question:
    """The question in a request of the SDK, cut to what a person reads."""
    tool = askers[0].tool if len(askers) == 1 else ""
    message = " ".join(str(params.message).split())[:MAX_TEXT]
    schema = getattr(params, "requested_schema", None) or {}
    return Question(server, tool, message, dict(schema), str(getattr(params, "url", ""))[:MAX_TEXT])
