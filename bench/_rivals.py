"""A run of two turns, as callgate does it and as people do it: a bare loop on the same HTTP library, a loop on the
openai package, pydantic-ai and LangChain. All ask the same server, which has a process of its own.

Each rival is a class: made with the address, called for one whole run, closed at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from _streams import openai_call, openai_text, sse

QUESTION = "When does the ferry leave?"
ANSWER = "12 degrees"
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "units": {"type": "string"},
                "note": {"type": "string"},
            },
            "required": ["city", "days", "units", "note"],
            "additionalProperties": False,
        },
    },
}


async def get_weather(city: str, days: int, units: str, note: str) -> str:
    """The weather of a city; async, so that nobody pays for a thread."""
    return ANSWER


# --- the server -----------------------------------------------------------------------------------------------------


def _answer(records: list[dict[str, Any]]) -> bytes:
    events = [event + b"\n\n" for event in sse(records).split(b"\n\n") if event]
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"


async def _serve() -> None:
    first, second = _answer(openai_call(20)), _answer(openai_text(50))

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        size = int(line.split(b":")[1])
                body = await reader.readexactly(size)
                if size == 0:
                    writer.write(
                        b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{"data":[]}'
                    )
                else:
                    writer.write(second if b'"tool_call_id"' in body else first)
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


@contextlib.contextmanager
def serve() -> Iterator[str]:
    """The server's address, while the block runs."""
    process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}/v1"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


# --- the rivals -----------------------------------------------------------------------------------------------------


class Callgate:
    def __init__(self, url: str) -> None:
        from callgate import Agent, providers, tool

        self.provider = providers.open(f"{url}#m", key="x")
        self.agent = Agent(self.provider, tools=[tool(effect="read")(get_weather)])

    async def __call__(self) -> str:
        result = await self.agent.run(QUESTION)
        assert [call.result.content for call in result.calls] == [ANSWER], result
        return result.text

    async def close(self) -> None:
        await self.provider.aclose()


class Bare:
    """What one writes by hand: no checks, no limits, one kind of server."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/chat/completions"
        self.session: Any = None

    async def _turn(self, messages: list[Any]) -> tuple[str, list[dict[str, Any]]]:
        text, calls = "", []
        body = {"model": "m", "messages": messages, "tools": [TOOL], "stream": True}
        async with self.session.post(self.url, json=body) as response:
            async for line in response.content:
                if not line.startswith(b"data: ") or line.startswith(b"data: [DONE]"):
                    continue
                choices = json.loads(line[6:])["choices"]
                delta = choices[0]["delta"] if choices else {}
                text += delta.get("content") or ""
                for part in delta.get("tool_calls") or ():
                    if part.get("id"):
                        calls.append({"id": part["id"], "name": part["function"]["name"], "arguments": ""})
                    calls[-1]["arguments"] += part["function"]["arguments"]
        return text, calls

    async def __call__(self) -> str:
        import aiohttp

        if self.session is None:
            self.session = aiohttp.ClientSession()
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            text, calls = await self._turn(messages)
            if not calls:
                return text
            await _answered(messages, text, calls)

    async def close(self) -> None:
        await self.session.close()


async def _answered(messages: list[Any], text: str, calls: list[dict[str, Any]]) -> None:
    asked = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}} for c in calls
    ]
    messages.append({"role": "assistant", "content": text or None, "tool_calls": asked})
    for call in calls:
        content = await get_weather(**json.loads(call["arguments"]))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})


class OpenAIPackage:
    def __init__(self, url: str) -> None:
        import openai

        self.client = openai.AsyncOpenAI(base_url=url, api_key="x")

    async def __call__(self) -> str:
        messages: list[Any] = [{"role": "user", "content": QUESTION}]
        while True:
            text, calls = "", []
            stream = await self.client.chat.completions.create(
                model="m",
                messages=messages,
                tools=[TOOL],
                stream=True,  # type: ignore[list-item]
            )
            async for chunk in stream:
                if not chunk.choices:
                    continue
                delta = chunk.choices[0].delta
                text += delta.content or ""
                for part in delta.tool_calls or ():
                    assert part.function is not None
                    if part.id:
                        calls.append({"id": part.id, "name": part.function.name, "arguments": ""})
                    calls[-1]["arguments"] += part.function.arguments or ""
            if not calls:
                return text
            await _answered(messages, text, calls)

    async def close(self) -> None:
        await self.client.close()


class PydanticAI:
    def __init__(self, url: str) -> None:
        from pydantic_ai import Agent
        from pydantic_ai.models.openai import OpenAIChatModel
        from pydantic_ai.providers.openai import OpenAIProvider

        self.agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(base_url=url, api_key="x")))
        self.agent.tool_plain(get_weather)

    async def __call__(self) -> str:
        async with self.agent.iter(QUESTION) as run:
            async for node in run:
                if self.agent.is_model_request_node(node):
                    async with node.stream(run.ctx) as stream:
                        async for _ in stream:
                            pass
        assert run.result is not None
        return run.result.output

    async def close(self) -> None:
        pass


class LangChain:
    def __init__(self, url: str) -> None:
        from langchain_core.tools import tool
        from langchain_openai import ChatOpenAI

        self.tool = tool(get_weather)
        self.model = ChatOpenAI(model="m", base_url=url, api_key="x").bind_tools([self.tool])  # type: ignore[arg-type]

    async def __call__(self) -> str:
        from langchain_core.messages import HumanMessage

        messages: list[Any] = [HumanMessage(QUESTION)]
        while True:
            whole: Any = None
            async for chunk in self.model.astream(messages):
                whole = chunk if whole is None else whole + chunk
            if not whole.tool_calls:
                return str(whole.text)
            messages.append(whole)
            for call in whole.tool_calls:
                messages.append(await self.tool.ainvoke(call))

    async def close(self) -> None:
        pass


RIVALS = {
    "callgate": Callgate,
    "a bare loop": Bare,
    "the openai package by hand": OpenAIPackage,
    "pydantic-ai": PydanticAI,
    "LangChain": LangChain,
}

if __name__ == "__main__":
    asyncio.run(_serve())
