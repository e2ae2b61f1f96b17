"""Mistakes that people make in their first hour: each is one line that says what, where and what to do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from callgate import Agent, Principal, Reader, Replay, Tool, Toolbox, mend, read, separate, tool
from callgate.errors import CallgateError


@tool(effect="read")
def double(number: int) -> int:
    "Twice the number."
    return 2 * number


def plain(number: int) -> int:
    "Twice the number."
    return 2 * number


def keywords(**options: int) -> None:
    "Takes anything."


def agent(**options: Any) -> Agent:
    """An agent with a scripted model."""
    return Agent(Replay(["hi"]), **options)


def run(prompt: Any = "hello", *, tools: Any = (), **named: Any) -> Any:
    """One run of a scripted model."""
    return agent(tools=tools).run_sync(prompt, **named)


async def inside_a_loop() -> None:
    run()


MISTAKES: dict[str, tuple[Callable[[], Any], str]] = {
    "no model": (lambda: Agent(None), 'write "local", "ollama:NAME"'),
    "an empty model": (lambda: Agent(""), 'write "local", "ollama:NAME"'),
    "a misspelt vendor": (lambda: Agent("olama:qwen3"), "no vendor 'olama'; there are"),
    "a vendor without a model": (lambda: Agent("ollama:"), "a model's name must follow"),
    "tools by name": (lambda: agent(tools="get_weather"), "'get_weather' is no tool: give a function"),
    "a tool that is a number": (lambda: agent(tools=[3]), "3 is no tool: give a function"),
    "a tool that was called": (lambda: agent(tools=[double(2)]), "4 is no tool: give a function"),
    "a description without a name": (lambda: agent(tools=[{"parameters": {}}]), "a tool without a name"),
    "tools as a dict": (lambda: Toolbox({"double": double}), "'double' is no tool"),
    "turns as a text": (lambda: agent(max_turns="6"), "max_turns: a whole number from 0 is needed, not '6'"),
    "turns below zero": (lambda: agent(max_turns=-1), "max_turns: a whole number from 0 is needed"),
    "a misspelt limit": (lambda: agent(max_turn=3), "did you mean max_turns?"),
    "limits as a dict": (lambda: agent(limits={"max_turns": 3}), "callgate.limits.Limits(…) is needed"),
    "a misspelt rule": (lambda: agent(policy={"rates": {}}), "there is no rule 'rates'; there are"),
    "a rate in words": (lambda: agent(tools=[double], policy={"rate": {"double": "often"}}), 'write "5/s"'),
    "a rule for a misspelt tool": (lambda: agent(tools=[double], policy={"rate": {"dubble": "5/s"}}), "double"),
    "a ledger without its kind": (lambda: agent(ledger="runs.db"), 'write "memory", "sqlite:PATH"'),
    "a ledger that is none": (lambda: agent(ledger=object()), "object is no store"),
    "a misspelt protocol": (lambda: agent(protocol="jsn"), "did you mean json"),
    "a misspelt dialect": (lambda: agent(dialect="hermez"), "did you mean hermes?"),
    "approve that is a switch": (lambda: agent(approve=True), "a function of the call is needed"),
    "instructions with a number": (lambda: agent(instructions=["brief", 3]), "instructions: texts and functions are"),
    "options as a list": (lambda: agent(options=[1]), "options: a dict is needed, not list"),
    "options as a text": (lambda: agent(options="temperature=0"), "options: a dict is needed, not str"),
    "no prompt": (lambda: run(None), "prompt: a text, a message, messages or content parts are needed"),
    "a prompt that is a number": (lambda: run(3), "prompt: a text, a message, messages or content parts"),
    "a history that is a text": (lambda: run(history="earlier"), "give Message objects or OpenAI-style dicts"),
    "a message without a role": (lambda: run(history=[{"content": "a"}]), "none of system, user, assistant, tool"),
    "a role that is none": (lambda: run(history=[{"role": "robot", "content": "a"}]), "role 'robot' is none of"),
    "a principal by name": (lambda: run(principal="ann"), "principal: a Principal is needed, not str"),
    "a principal without a name": (lambda: Principal(None), "Principal.id: a text that names somebody"),  # type: ignore[arg-type]
    "no grants": (lambda: Principal("u", None), "Principal.grants: a collection of texts"),  # type: ignore[arg-type]
    "grants that are one text": (lambda: Principal("u", "a"), "Principal.grants: a collection of texts"),
    "a tool the agent has not": (lambda: run(tools=[double], output=None) and agent(tools=[double]).run_sync(
        "x", tools=["dubble"]), "no tool is called 'dubble'; there are: double"),
    "an output that is a text": (lambda: run(output="City"), "output: a type that pydantic can describe"),
    "a run id that is a number": (lambda: run(run_id=3), "run_id: a text is needed, not int"),
    "a key that is a number": (lambda: run(key=3), "key: a text is needed, not int"),
    "a run that does not exist": (lambda: agent().resume_sync("nope"), "run 'nope': the ledger memory has no such run"),
    "run_sync inside a loop": (lambda: asyncio.run(inside_a_loop()), "write `await agent.run(…)`"),
    "a reader that gets a dict": (lambda: Reader("hermes").feed({"a": 1}), "a chunk is str or bytes, not dict"),  # type: ignore[arg-type]
    "a reader that gets nothing": (lambda: Reader("hermes").feed(None), "a chunk is str or bytes"),  # type: ignore[arg-type]
    "a reader of a misspelt dialect": (lambda: Reader("hermez"), "did you mean hermes?"),
    "a misspelt wire": (lambda: Reader(wire="opena"), "wire 'opena': unknown; there are anthropic, ollama, openai"),
    "a reader that is finished": (lambda: [(r := Reader()).finish(), r.feed("x")], "make a new one for the next"),
    "reading a number": (lambda: read(3), "read: a text, bytes or an iterable of them is needed, not int"),  # type: ignore[arg-type]
    "a schema that is a text": (lambda: mend("{}", "object"), "schema: expected an object, got str"),  # type: ignore[arg-type]
    "an empty tag": (lambda: separate("x", start_tag="", end_tag="</a>"), "must not be empty"),
    "a misspelt effect": (lambda: tool(effect="reads")(plain), "reads"),  # type: ignore[call-overload]
    "a tool without a name": (lambda: tool(effect="read")(lambda number: number), "it may be given as name="),
    "a time limit as a text": (lambda: tool(effect="read", timeout="10")(plain), "timeout '10': must be seconds"),  # type: ignore[call-overload]
    "any keywords": (lambda: tool(effect="read")(keywords), "name the parameters, or take one dict"),
    "a misspelt option of a tool": (lambda: tool(efect="read")(plain), "unexpected keyword argument 'efect'"),  # type: ignore[call-overload]
    "a reply that is a number": (lambda: Replay([3]), "Replay: int"),  # type: ignore[list-item]
    "a reply of odd keys": (lambda: Replay([{"text": "x"}]), "unknown keys ['text']; a reply has"),
    "a function that is none": (lambda: Tool.from_function(3), "3"),  # type: ignore[arg-type]
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(name: str) -> None:
    work, words = MISTAKES[name]
    with pytest.raises((CallgateError, TypeError)) as caught:
        work()
    text = str(caught.value)
    assert words in text
    assert "\n" not in text
    assert len(text) < 600
    hidden = caught.value.__context__ is None or caught.value.__suppress_context__
    assert hidden, "a second traceback above it would hide the line"
    assert re.match(r"[^\s]", text)
