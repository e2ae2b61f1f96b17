"""A toolbox as an MCP server: every call goes through the same gate, executor and ledger as a model's of our own.

One law: nothing runs here that an `Agent` would not run. Each call of a client is one run of an agent whose model is
the client: it asks for exactly that call and then ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from callgate import __version__
from callgate.errors import ConfigError
from callgate.events import CallFinished, CallProgress
from callgate.types import CallDelta, Finish, ModelInfo, Request, ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.types import Principal


class Client:
    """A client as a model: the prompt names the call, the call is the answer, and its result is the end."""

    name = "mcp"
    model = "mcp client"

    def stream(self, request: Request) -> Any:
        """The call that the prompt names; nothing more once its result is there."""
        return self._open(request)

    @asynccontextmanager
    async def _open(self, request: Request) -> AsyncIterator[AsyncIterator[Any]]:
        yield self._deltas(request)

    async def _deltas(self, request: Request) -> AsyncIterator[Any]:
        last = request.messages[-1]
        if last.role != "user":
            yield [Finish("stop")]
            return
        asked = json.loads(last.text)
        text = json.dumps(asked["arguments"], ensure_ascii=False)
        call = ToolCall("", asked["name"], asked["arguments"])
        yield [CallDelta(0, None, call.name, text), call, Finish("tool_calls")]

    async def info(self) -> ModelInfo:
        """It speaks in calls."""
        return ModelInfo(self.model, self.name, frozenset({"tools"}))

    async def score(self, request: Any) -> Any:
        """It has no probabilities."""
        raise ConfigError("an MCP client gives no probabilities")

    async def catalogue(self) -> list[ModelInfo]:
        """Only itself."""
        return [await self.info()]

    async def aclose(self) -> None:
        """Nothing is held."""


def server(agent: Agent, *, principal: Principal | None = None, name: str = "callgate") -> Any:
    """The SDK's server over an agent whose provider is `Client`."""
    sdk = _load_sdk()
    types = sdk["types"]

    async def listed(context: Any, params: Any) -> Any:
        return types.ListToolsResult(tools=[_described(types, spec) for spec in agent.toolbox.specs if not spec.hidden])

    async def called(context: Any, params: Any) -> Any:
        result = await _call(agent, params.name, params.arguments or {}, principal, context)
        content = [types.TextContent(type="text", text=result.content), *_pictures(types, result)]
        value = result.value if result.ok and isinstance(result.value, dict) and not result.size else None
        return types.CallToolResult(content=content, structured_content=value, is_error=not result.ok)

    return sdk["Server"](name, version=__version__, on_list_tools=listed, on_call_tool=called)


def _pictures(types: Any, result: ToolResult) -> list[Any]:
    """The images of a result that come as data."""
    urls = [str(part["image_url"].get("url")) for part in result.parts if part.get("type") == "image_url"]
    found = [match for url in urls if (match := re.fullmatch(r"data:(image/[\w.+-]+);base64,(.+)", url))]
    return [types.ImageContent(type="image", mime_type=kind, data=data) for kind, data in (m.groups() for m in found)]


async def _call(
    agent: Agent, name: str, arguments: Mapping[str, Any], principal: Principal | None, context: Any
) -> ToolResult:
    found: ToolResult | None = None
    done = 0.0
    async with agent.stream(json.dumps({"name": name, "arguments": arguments}), principal=principal) as events:
        async for event in events:
            if isinstance(event, CallProgress):
                done += 1
                said = event.value if isinstance(event.value, str) else json.dumps(event.value, ensure_ascii=False)
                await context.session.report_progress(done, message=said)
            elif isinstance(event, CallFinished):
                found = event.result
    if found is not None:
        return found
    result = events.result
    if result.reason == "waiting":
        how = f"callgate runs resume {result.run_id} --yes {result.pending[0].id}"
        return ToolResult("", "denied", f"{name} was not run: a person must approve it first ({how}).")
    return ToolResult("", "failed", f"{name} was not run: {result.error or result.reason}")


def _described(types: Any, spec: ToolSpec) -> Any:
    reads = spec.effect == "read"
    hints = types.ToolAnnotations(read_only_hint=reads, idempotent_hint=True if spec.repeatable else None)
    schema = dict(spec.parameters)
    if spec.strict and not (
        {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"} & schema.keys()
    ):
        schema["additionalProperties"] = False  # what the gate refuses, the client should know
    return types.Tool(name=spec.name, description=spec.description or None, input_schema=schema, annotations=hints)


async def serve_stdio(made: Any) -> None:
    """Serves one client on standard input and output until it goes away."""
    sdk = _load_sdk()
    async with sdk["stdio"]() as (heard, said):
        await made.run(heard, said, made.create_initialization_options())


def listening(port: int) -> socket.socket:
    """The port of this machine, taken for us."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port}: {os.strerror(error.errno or 0)}; choose another with --port") from error


def serve_http(made: Any, taken: socket.socket) -> None:
    """Serves many clients at http://127.0.0.1:PORT/mcp, at a port that is `listening`, until it is stopped."""
    import uvicorn

    config = uvicorn.Config(made.streamable_http_app(), log_level="warning", timeout_graceful_shutdown=5)
    asyncio.run(uvicorn.Server(config).serve(sockets=[taken]))


def _load_sdk() -> dict[str, Any]:
    try:
        import mcp_types
        from mcp.server.lowlevel import Server
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise ConfigError('MCP needs the extra "mcp": pip install "callgate[mcp]"') from error
    return {"types": mcp_types, "Server": Server, "stdio": stdio_server}
