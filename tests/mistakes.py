"""Sixty mistakes that people make with callgate, each as a program, with words of the way out."""

from __future__ import annotations

from typing import NamedTuple


class Mistake(NamedTuple):
    """`code` is wrong in one way; what it raises is a `kind` whose text holds all `words`."""

    code: str
    kind: str
    words: tuple[str, ...]


PRE = """
import asyncio, datetime, json, sys
from callgate import *
from callgate import config, providers, policy
from callgate.types import Message
def tell(city: str) -> str:
    "Tell."
    return city
@tool(effect="read")
def look(city: str) -> str:
    "Look."
    return city
ok = Replay(["Hello."] * 9)
"""

MISTAKES: dict[str, Mistake] = {
    # models and keys
    "model: a name alone": Mistake('Agent("qwen3").run_sync("x")', "ConfigError", ("qwen3", "ollama:NAME")),
    "model: no name after the colon": Mistake('Agent("ollama:").run_sync("x")', "ConfigError", ("ollama:NAME",)),
    "model: a vendor nobody knows": Mistake('Agent("opnai:gpt").run_sync("x")', "ConfigError", ("opnai",)),
    "model: no key": Mistake('providers.open("openai:gpt-5")', "ConfigError", ("OPENAI_API_KEY",)),
    "model: a class": Mistake("Agent(Replay)", "ConfigError", ("model",)),
    "model: None": Mistake("Agent(None)", "ConfigError", ("model",)),
    "model: a client of another library": Mistake("Agent(object())", "ConfigError", ("model",)),
    "provider: an unknown option": Mistake(
        'providers.open("ollama:m", temprature=1)', "ConfigError", ("temprature", "options=")
    ),
    "provider: a file that is no GGUF": Mistake('providers.open("local:/nowhere.gguf")', "ConfigError", ("nowhere",)),
    # tools
    "tools: a number": Mistake("Agent(ok, tools=3)", "ToolError", ("function",)),
    "tools: a name": Mistake('Agent(ok, tools=["look"])', "ToolError", ("function",)),
    "tools: called": Mistake('Agent(ok, tools=[look("x")])', "ToolError", ("function",)),
    "tools: two of one name": Mistake('Agent(ok, tools=[look, tool(name="look")(tell)])', "ToolError", ("look",)),
    "tool: an effect nobody knows": Mistake('tool(effect="reads")(tell)', "ToolError", ("read", "write")),
    "tool: no type": Mistake("tool(lambda x: x)", "ToolError", ("name=",)),
    "tool: a star": Mistake("@tool\ndef f(*a):\n    'F.'", "ToolError", ("list",)),
    "tool: a type no schema can say": Mistake(
        "@tool\ndef f(a: asyncio.Task):\n    'F.'\nAgent(ok, tools=[f])", "ToolError", ("Inject",)
    ),
    "tool: a time limit of zero": Mistake("tool(timeout=0)(tell)", "ToolError", ("timeout",)),
    # runs
    "run: no prompt": Mistake("Agent(ok).run_sync()", "TypeError", ("prompt",)),
    "run: a number as prompt": Mistake("Agent(ok).run_sync(3)", "ConfigError", ("prompt",)),
    "run: an empty list": Mistake("Agent(ok).run_sync([])", "ConfigError", ("prompt",)),
    "run: run_sync in a loop": Mistake(
        'async def main():\n    Agent(ok).run_sync("x")\nasyncio.run(main())', "ConfigError", ("await", "run(")
    ),
    "run: stream without a block": Mistake(
        'async def main():\n    async for event in Agent(ok).stream("x"):\n        pass\nasyncio.run(main())',
        "RuntimeError",
        ("async with",),
    ),
    "run: an option nobody knows": Mistake('Agent(ok).run_sync("x", max_turn=3)', "TypeError", ("limits",)),
    "run: history of strings": Mistake('Agent(ok).run_sync("x", history=["y"])', "ConfigError", ("history",)),
    "run: history without a role": Mistake(
        'Agent(ok).run_sync("x", history=[{"content": "y"}])', "ConfigError", ("role",)
    ),
    "run: history of an unknown role": Mistake(
        'Agent(ok).run_sync("x", history=[{"role": "human", "content": "y"}])', "ConfigError", ("human",)
    ),
    "run: a principal that is a text": Mistake(
        'Agent(ok).run_sync("x", principal="ann")', "ConfigError", ("Principal",)
    ),
    "run: a session without a name": Mistake('Agent(ok).run_sync("x", session="")', "ConfigError", ("session",)),
    "resume: a run that is not there": Mistake(
        'asyncio.run(Agent(ok).resume("nope"))', "LedgerError", ("nope", "give the ledger")
    ),
    "agent: an option nobody knows": Mistake("Agent(ok, tool=[look])", "ConfigError", ("tool",)),
    "agent: a limit that is a text": Mistake('Agent(ok, max_turns="6")', "ConfigError", ("max_turns",)),
    "agent: a negative limit": Mistake("Agent(ok, max_turns=-1)", "ConfigError", ("max_turns",)),
    "agent: a protocol nobody knows": Mistake('Agent(ok, protocol="jsn")', "ConfigError", ("jsn", "json")),
    "agent: a dialect nobody knows": Mistake('Agent(ok, dialect="herms")', "UnknownDialect", ("hermes",)),
    "agent: approve=True": Mistake("Agent(ok, approve=True)", "ConfigError", ("approve",)),
    "agent: a ledger nobody knows": Mistake('Agent(ok, ledger="mysql://x").run_sync("x")', "ConfigError", ("sqlite:",)),
    "agent: a ledger in a folder": Mistake('Agent(ok, ledger="sqlite:.").run_sync("x")', "LedgerError", ("folder",)),
    "agent: instructions that are a list": Mistake("Agent(ok, instructions=3)", "ConfigError", ("instructions",)),
    "agent: options that are a text": Mistake('Agent(ok, options="temperature=1")', "ConfigError", ("options",)),
    "agent: an output that is no type": Mistake('Agent(ok).run_sync("x", output=3)', "ConfigError", ("output",)),
    # rules and people
    "policy: a rule nobody knows": Mistake('Agent(ok, policy={"rates": {}})', "ConfigError", ("rate",)),
    "policy: a rate that is no rate": Mistake(
        'Agent(ok, policy={"rate": {"look": "often"}})', "ConfigError", ("often",)
    ),
    "policy: approval that is a text": Mistake('Agent(ok, policy={"approval": "yes"})', "ConfigError", ("approval",)),
    "principal: no grants": Mistake('Principal("u1", None)', "ConfigError", ("grants",)),
    "principal: no id": Mistake('Principal("")', "ConfigError", ("id",)),
    "principal: grants that are one text": Mistake('Principal("u1", "admin")', "ConfigError", ("grants",)),
    # reading
    "reader: a dialect nobody knows": Mistake('Reader("herms")', "UnknownDialect", ("hermes",)),
    "reader: a wire nobody knows": Mistake('Reader(wire="sse")', "ConfigError", ("openai",)),
    "reader: a dict where text is read": Mistake('Reader("hermes").feed({"a": 1})', "ConfigError", ("wire",)),
    "reader: None": Mistake('Reader("hermes").feed(None)', "ConfigError", ("str or bytes",)),
    "reader: fed after its end": Mistake('r = Reader("hermes")\nr.finish()\nr.feed("x")', "ConfigError", ("finished",)),
    "reader: tools that are names": Mistake('Reader("hermes", tools=["look"])', "ConfigError", ("tools",)),
    "reader: tool_choice required": Mistake('Reader("hermes", tool_choice="required")', "ConfigError", ("auto",)),
    "read: a number": Mistake("read(3)", "ConfigError", ("text",)),
    "tags: an empty one": Mistake(
        'from callgate.dialects import Dialect\nDialect.tagged("", "x")', "ValueError", ("tag",)
    ),
    # settings
    "settings: a name nobody knows": Mistake('config.load({"max_turn": 3})', "ConfigError", ("max_turns",)),
    "settings: a value that does not fit": Mistake('config.load({"max_turns": "six"})', "ConfigError", ("max_turns",)),
    "settings: a variable that is misspelt": Mistake(
        'config.load(environ={"CALLGATE_MAX_TURN": "3"})', "ConfigError", ("CALLGATE_MAX_TURNS",)
    ),
    "replay: a number": Mistake("Replay([3])", "ConfigError", ("a text",)),
    "replay: a call without a name": Mistake('Replay([{"calls": [{"arguments": {}}]}])', "ConfigError", ("name",)),
    "replay: a key nobody knows": Mistake('Replay([{"text": "x"}])', "ConfigError", ("content",)),
}
