"""A real MCP server, made with the official SDK. `orders.py` serves on stdio, `orders.py PORT` over HTTP."""

import asyncio
import os
import sys
from typing import Any

from mcp.server.mcpserver import Context, Image, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("orders", log_level="ERROR")
READ = ToolAnnotations(read_only_hint=True)


@server.tool(annotations=READ)
def find(number: str) -> dict[str, Any]:
    """Finds one order."""
    return {"number": number, "pid": os.getpid()}


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
def cancel(number: str) -> str:
    """Cancels one order."""
    if number == "die":
        os._exit(1)
    if number == "bad":
        raise ValueError("no such order")
    return "cancelled"


@server.tool(annotations=READ)
async def slow(seconds: float, context: Context) -> str:
    """Sleeps, and says so."""
    await context.report_progress(0.5, 1.0, "half")
    await asyncio.sleep(seconds)
    return "slept"


@server.tool(annotations=READ, structured_output=False)
def label(number: str) -> list[Any]:
    """Draws the label of one order."""
    return [f"label {number}", Image(data=b"\x89PNG\r\n\x1a\n", format="png")]


if len(sys.argv) > 1:
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
