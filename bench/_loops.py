"""The same run on the same scripted model, as callgate does it and as people do it: `turns` answers with one call of a
tool each, then one of text.

Each rival is a function `make(turns, folder)` that gives a function for one whole run. With a folder, the run is
persisted there as far as the rival can: callgate journals every step durably, LangGraph writes its checkpoints.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

QUESTION = "How much is it?"

Run = Callable[[], object]
Make = Callable[[int, "Path | None"], Run]


def price(item: int) -> str:
    """The price of an item."""
    return f"item {item} costs {item * 3} cents"


def bare(turns: int, folder: Path | None) -> Run:
    """A hand-written while loop without any check, the floor."""
    tools = {"price": price}

    def run() -> None:
        script = iter([*({"name": "price", "arguments": {"item": n}} for n in range(turns)), "done"])
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            answer = next(script)
            if isinstance(answer, str):
                messages.append({"role": "assistant", "content": answer})
                return
            call_id = f"call_{len(messages)}"
            messages.append({"role": "assistant", "calls": [{"id": call_id, **answer}]})
            result = tools[answer["name"]](**answer["arguments"])
            messages.append({"role": "tool", "call_id": call_id, "content": result})

    return run


def callgate(turns: int, folder: Path | None) -> Run:
    """callgate, with an async tool so that no thread is started."""
    from callgate import Agent, Replay, tool

    @tool(effect="read")
    async def price(item: int) -> str:
        """The price of an item."""
        return f"item {item} costs {item * 3} cents"

    ledger = f"sqlite:{folder}/callgate.db" if folder else "memory"
    agent = Agent(Replay([]), tools=[price], ledger=ledger, max_turns=turns + 2, max_requests=turns + 2)
    loop = asyncio.new_event_loop()

    def run() -> None:
        calls = [{"calls": [{"name": "price", "arguments": {"item": n}}]} for n in range(turns)]
        result = loop.run_until_complete(agent.run(QUESTION, model=Replay([*calls, "done"])))
        assert (result.reason, len(result.calls)) == ("answered", turns), result

    return run


def pydantic_ai(turns: int, folder: Path | None) -> Run:
    """pydantic-ai with a FunctionModel; it persists nothing by itself."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel
    from pydantic_ai.usage import UsageLimits

    numbers = itertools.count()

    async def answer(messages: Any, info: Any) -> ModelResponse:
        n = next(numbers) % (turns + 1)
        return ModelResponse(parts=[TextPart("done")] if n == turns else [ToolCallPart("price", {"item": n})])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    async def price(item: int) -> str:
        """The price of an item."""
        return f"item {item} costs {item * 3} cents"

    loop = asyncio.new_event_loop()
    limits = UsageLimits(request_limit=turns + 2)

    def run() -> None:
        assert loop.run_until_complete(agent.run(QUESTION, usage_limits=limits)).output == "done"

    return run


def langgraph(turns: int, folder: Path | None) -> Run:
    """LangGraph's prebuilt agent; with a folder its SQLite checkpointer, at its own settings."""
    import sqlite3
    import warnings

    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    numbers = itertools.count()

    class Scripted(BaseChatModel):
        """Answers by the script."""

        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
            return self

        def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
            n = next(numbers) % (turns + 1)
            calls = [] if n == turns else [{"name": "price", "args": {"item": n}, "id": f"call_{n}"}]
            message = AIMessage(content="" if calls else "done", tool_calls=calls)
            return ChatResult(generations=[ChatGeneration(message=message)])

    made = tool(price)
    saver = None
    if folder:
        from langgraph.checkpoint.sqlite import SqliteSaver

        saver = SqliteSaver(sqlite3.connect(folder / "langgraph.db", check_same_thread=False))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from langgraph.prebuilt import create_react_agent

        graph = create_react_agent(Scripted(), [made], checkpointer=saver)
    threads = itertools.count()

    def run() -> None:
        config = {"recursion_limit": 4 * turns + 10, "configurable": {"thread_id": str(next(threads))}}
        out = graph.invoke({"messages": [("user", QUESTION)]}, config)
        assert out["messages"][-1].content == "done"

    return run


def openai_agents(turns: int, folder: Path | None) -> Run:
    """OpenAI Agents with a model of our own, tracing off; with a folder its SQLite session."""
    from agents import Agent, ModelResponse, Runner, SQLiteSession, Usage, function_tool, set_tracing_disabled
    from agents.models.interface import Model
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    numbers = itertools.count()

    class Scripted(Model):
        """Answers by the script."""

        async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
            n = next(numbers) % (turns + 1)
            if n == turns:
                text = ResponseOutputText(text="done", type="output_text", annotations=[])
                item: Any = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            else:
                item = ResponseFunctionToolCall(
                    call_id=f"call_{n}", name="price", arguments=f'{{"item": {n}}}', type="function_call"
                )
            return ModelResponse(output=[item], usage=Usage(), response_id=None)

        def stream_response(self, *args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError

    @function_tool
    async def price(item: int) -> str:
        """The price of an item."""
        return f"item {item} costs {item * 3} cents"

    agent = Agent(name="bench", model=Scripted(), tools=[price])
    loop = asyncio.new_event_loop()
    sessions = itertools.count()

    def run() -> None:
        session = SQLiteSession(str(next(sessions)), folder / "agents.db") if folder else None
        work = Runner.run(agent, QUESTION, max_turns=turns + 2, session=session)
        assert loop.run_until_complete(work).final_output == "done"

    return run


RIVALS: dict[str, Make] = {
    "callgate": callgate,
    "pydantic-ai": pydantic_ai,
    "LangGraph": langgraph,
    "OpenAI Agents": openai_agents,
}


def installed(turns: int, folder: Path | None = None) -> dict[str, Run]:
    """The rivals that are there, ready to run."""
    found: dict[str, Run] = {}
    for name, make in RIVALS.items():
        try:
            found[name] = make(turns, folder)
        except ImportError as error:
            print(f"(without {name}: {error})")
    return found
