"""A toolbox as an MCP server: every call goes through the same gate, executor and ledger as a model's of our own.

Law: nothing runs here that an `Agent` would not run.
    (tests/test_mcp_serve.py::test_the_gate_refuses_as_it_would_refuse_a_model)

Each call of a client is one run of an agent whose model is the client: it asks for exactly that call and then ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from callgate import __version__
from callgate.apps.output import shell
from callgate.errors import ConfigError
from callgate.events import CallFinished, CallProgress, CallStarted
from callgate.types import CallDelta, Finish, ModelInfo, Request, Status, ToolCall, ToolResult, ToolSpec

if TYPE_CHECKING:
    from callgate.agent import Agent
    from callgate.types import Principal


STATUS: Final = "callgate/status"
"""Under which name of a result's `_meta` a client of ours finds how the call ended: a refusal is no failure."""


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
        wanted = json.loads(last.text)
        text = json.dumps(wanted["arguments"], ensure_ascii=False)
        call = ToolCall("", wanted["name"], wanted["arguments"])
        yield [CallDelta(0, None, call.name, text), call, Finish("tool_calls")]

    async def info(self) -> ModelInfo:
        """A model that answers with calls."""
        return ModelInfo(self.model, self.name, frozenset({"tools"}))

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
        content = [types.TextContent(type="text", text=_sound(result.content)), *_pictures(types, result)]
        value = result.value if result.ok and isinstance(result.value, dict) and not result.size else None
        return types.CallToolResult(
            content=content, structured_content=_sound(value), is_error=not result.ok, _meta={STATUS: result.status}
        )

    return sdk["Server"](name, version=__version__, on_list_tools=listed, on_call_tool=called)


def _pictures(types: Any, result: ToolResult) -> list[Any]:
    """The images of a result that come as data."""
    urls = [str(part["image_url"].get("url")) for part in result.parts if part.get("type") == "image_url"]
    found = [match for url in urls if (match := re.fullmatch(r"data:(image/[\w.+-]+);base64,(.+)", url))]
    return [types.ImageContent(type="image", mime_type=kind, data=data) for kind, data in (m.groups() for m in found)]


def _sound(value: Any) -> Any:
    """A JSON value without half characters (lone surrogates): one of them would end the whole answer."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


async def _call(
    agent: Agent, name: str, arguments: Mapping[str, Any], principal: Principal | None, context: Any
) -> ToolResult:
    found: ToolResult | None = None
    done, started = 0.0, False
    async with agent.stream(json.dumps({"name": name, "arguments": arguments}), principal=principal) as events:
        async for event in events:
            if isinstance(event, CallProgress):
                done += 1
                text = event.value if isinstance(event.value, str) else json.dumps(event.value, ensure_ascii=False)
                await context.session.report_progress(done, message=_sound(text))
            elif isinstance(event, CallStarted):
                started = True
            elif isinstance(event, CallFinished):
                found = event.result
    if found is not None:
        return found
    result = events.result
    if result.reason == "waiting":
        how = shell("callgate", "runs", "resume", result.run_id, "--yes", "1")
        return ToolResult("", "denied", f"{name} was not run: a person must approve it first ({how}).")
    status: Status = "failed" if started else "not_started"
    return ToolResult("", status, f"{name} has no result: {result.error or result.reason}")


def _described(types: Any, spec: ToolSpec) -> Any:
    reads = spec.effect == "read"
    hints = types.ToolAnnotations(read_only_hint=reads, idempotent_hint=True if spec.repeatable else None)
    schema = _sound(dict(spec.parameters))
    if spec.strict and not (
        {"additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref"} & schema.keys()
    ):
        schema["additionalProperties"] = False  # what the gate refuses, the client should know
    return types.Tool(
        name=spec.name, description=_sound(spec.description) or None, input_schema=schema, annotations=hints
    )


async def serve_stdio(made: Any) -> None:
    """Serves one client on standard input and output until it goes away."""
    sdk = _load_sdk()
    async with sdk["stdio"]() as (incoming, outgoing):
        await made.run(incoming, outgoing, made.create_initialization_options())


def listening(port: int) -> socket.socket:
    """A socket that listens on this port of the loopback interface. Raises ConfigError if the port is taken."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise ConfigError(f"port {port}: {os.strerror(error.errno or 0)}; choose another with --port") from error


def serve_http(made: Any, taken: socket.socket) -> None:
    """Serves many clients at http://127.0.0.1:PORT/mcp, on a socket from `listening`, until it is stopped."""
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
