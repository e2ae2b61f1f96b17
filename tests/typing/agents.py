"""Tools, agents and results as users' type checkers see them: what a tool takes, what a run gives.

Nothing here runs. Each wrong use has an ignore that both checkers would report as unused if they took it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

from ollama import ChatResponse
from openai.types.chat import ChatCompletionChunk

from callgate import (
    Agent,
    Inject,
    Principal,
    Reader,
    Replay,
    Reply,
    RunResult,
    Tool,
    ToolCall,
    ToolContext,
    ToolResult,
    read,
    tool,
)
from callgate.agent import AgentApp, Approve, RunOptions, Stream, SyncStream
from callgate.checks import AskAgain, Change, Decision, Refuse
from callgate.dialects import Calls, Dialect, JsonArgs, Region
from callgate.errors import ToolRetry
from callgate.events import Event
from callgate.messages import dump_messages, load_messages
from callgate.policy import Answer
from callgate.run import Pending
from callgate.types import Delta, Message


@dataclass
class City:
    name: str


class Town(TypedDict):
    name: str


@dataclass
class Shop:
    stock: dict[str, int]


def invoice(city: str, amount: int) -> City:
    return City(f"{city}{amount}")


# --- tools --------------------------------------------------------------------------------------------------------


@tool
def plain(city: str, days: int = 1) -> list[str]:
    return [city] * days


@tool(effect="read", timeout=5, unknown="same")
async def asynchronous(city: str) -> City:
    return City(city)


@tool(effect="read")
def in_stock(item: str, ctx: ToolContext[Shop], shop: Inject[Shop]) -> int:
    assert_type(ctx.deps, Shop)
    assert_type(shop, Shop)
    return ctx.deps.stock[item]


class Desk:
    @tool
    def open(self, name: str) -> bool:
        return bool(name)


async def tools_are_their_functions() -> None:
    assert_type(plain("Oslo", days=2), list[str])
    assert_type(await asynchronous("Oslo"), City)
    assert_type(Desk().open("a"), bool)
    declared: Tool = plain
    assert_type(declared.name, str)
    assert_type(declared.with_spec(effect="read"), Tool)
    assert_type(plain.with_spec(effect="read")("Oslo"), list[str])
    plain("Oslo", nope=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    plain(5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    made = Tool.from_function(invoice)
    assert_type(made("Oslo", 5), City)


# --- outputs ------------------------------------------------------------------------------------------------------


async def results_have_their_type() -> None:
    agent = Agent(Replay(["x"]), tools=[plain, asynchronous])
    assert_type((await agent.run("?", output=City)).output, City | None)
    assert_type((await agent.run("?", output=Town)).output, Town | None)
    assert_type((await agent.run("?", output=list[City])).output, list[City] | None)
    assert_type((await agent.run("?", output=int)).output, int | None)
    assert_type((await agent.run("?", output=invoice)).output, City | None)
    assert_type(await agent.run("?"), RunResult[Any])
    assert_type(await agent.run("?", output={"type": "object"}), RunResult[Any])
    assert_type(await agent.run("?", output=City | Town), RunResult[Any])
    assert_type(agent.run_sync("?", output=City), RunResult[City])
    assert_type(agent.stream("?", output=City), Stream[City])
    assert_type(agent.stream_sync("?", output=City), SyncStream[City])
    assert_type(agent.resume_sync("r", {"c": True}, output=City), RunResult[City])
    assert_type(agent.stream_resume("r", output=City).result.output, City | None)
    own = Agent(Replay(["x"]), output=City)
    assert_type((await own.run("?")).output, City | None)
    assert_type((await own.resume("r", {"c": True})).output, City | None)
    assert_type((await own.run("?", output=int)).output, int | None)
    for event in own.stream_sync("?"):
        assert_type(event, Event)
    for piece in own.stream_sync("?").text_stream(final_only=True):
        assert_type(piece, str)
    union: Agent[None, City | Town] = Agent(Replay(["x"]), output=City | Town)
    assert_type((await union.run("?")).output, City | Town | None)


# --- dependencies and instructions --------------------------------------------------------------------------------


def brief(ctx: ToolContext[Shop]) -> str:
    return ", ".join(ctx.deps.stock)


async def longer(ctx: ToolContext[Shop]) -> str:
    return brief(ctx)


async def runs_have_their_dependencies() -> None:
    agent = Agent(Replay(["x"]), tools=[in_stock], deps_type=Shop, instructions=["Be brief.", brief, longer])
    await agent.run("?", deps=Shop({}))
    await agent.run("?", deps=Shop({}), instructions=brief, options={"seed": 1}, tools=["in_*", plain])
    await agent.run("?", deps=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    typed: Agent[Shop, City] = Agent(Replay(["x"]), deps_type=Shop, output=City)
    assert_type(await typed.run("?", deps=Shop({})), RunResult[City])


# --- from clients, to the web -------------------------------------------------------------------------------------


def prepare(scope: MutableMapping[str, Any], body: dict[str, Any]) -> RunOptions[None]:
    return {"principal": Principal(str(body["user"]))}


async def prepare_later(scope: MutableMapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    return {"deps": scope["path"]}


def clients_and_the_web(chunk: ChatCompletionChunk, part: ChatResponse) -> None:
    assert_type(Reader(wire="openai").feed(chunk), list[Delta])
    assert_type(read([part], wire="ollama"), Reply)
    assert_type(read([{"choices": []}], wire="openai"), Reply)
    assert_type(Agent(Replay([])).to_asgi(prepare), AgentApp)
    assert_type(Agent(Replay([])).to_asgi(prepare_later), AgentApp)


# --- dialects of one's own ----------------------------------------------------------------------------------------


def own_dialects() -> None:
    shape = Calls(JsonArgs(), open=("<a>",), close=("</a>",), header={"name": {":": ""}})
    made = Dialect("mine", calls=(shape,), regions=(Region(("<t>",), ("</t>",)),))
    Agent(Replay([]), dialect=made, protocol=Dialect.tagged("[[", "]]"))
    Agent(Replay([]), dialect="hermes", protocol="native")
    Agent(Replay([]), dialect=5)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert_type(Reader(made).feed("x"), list[Delta])


# --- calls outside ------------------------------------------------------------------------------------------------


async def calls_outside() -> None:
    agent = Agent(Replay([]), stop_after=["plain"], tools=[plain])
    await agent.resume("r", {"c": Answer(True, by="ann", arguments={"city": "Oslo"})}, results={"d": ["x"]})
    await agent.resume("r", results={"d": ToolRetry("name the city")}, output=City)
    await agent.run("?", results={})  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


# --- conversations ------------------------------------------------------------------------------------------------


def shorter(messages: tuple[Message, ...]) -> list[Message]:
    return list(messages[-5:])


async def conversations() -> None:
    agent = Agent(Replay([]), history_processor=shorter)
    await agent.run("?", session="chat", principal=Principal("ann"))
    assert_type(await agent.history("chat", principal=Principal("ann")), list[Message])
    assert_type(load_messages(dump_messages(await agent.history("chat"))), list[Message])
    assert_type(Message.from_dict(Message("user", "x").to_dict()), Message)


# --- approvers ----------------------------------------------------------------------------------------------------


def ask(call: ToolCall) -> bool:
    return call.name == "x"


async def ask_later(call: ToolCall, pending: Pending) -> Answer:
    return Answer(pending.rule == "approval", by=call.name)


def check(text: str) -> Decision:
    return Change(text)


async def check_later(text: str, context: ToolContext[Any]) -> Decision:
    return Refuse(text) if context.run_id else AskAgain(text)


def transform(call: ToolCall, result: ToolResult) -> ToolResult | None:
    return result if call.name == "x" else None


def approvers() -> None:
    Agent(Replay([]), approve=ask)
    Agent(Replay([]), approve=ask_later)
    Agent(Replay([]), approve=lambda call: call.name == "x")
    Agent(Replay([]), check_prompt=check, check_answer=check_later, on_result=transform)
    Agent(Replay([]), tools=[Agent(Replay([])).as_tool("other", "Helps.", timeout=5)])
    assert_type(Agent(Replay([])).as_tool("other"), Tool[..., Any])
    approve: Approve = ask
    Agent(Replay([]), approve=approve)
    Agent([Replay([]), "ollama:qwen3"], on_event=print)
    watch: Callable[[Event], Awaitable[None] | None] = print
    Agent(Replay([]), on_event=watch)
