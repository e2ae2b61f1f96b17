"""A real server with resources, prompts and questions: `library.py` on stdio, `library.py PORT` over HTTP."""

import sys
from typing import Annotated

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, Resolve
from pydantic import BaseModel

server = MCPServer("library", log_level="ERROR")


class Sure(BaseModel):
    sure: bool


class Address(BaseModel):
    street: str
    floor: int = 0


@server.resource("book://{title}")
def book(title: str) -> str:
    """One book."""
    return f"The text of {title}."


@server.resource("shelf://all", mime_type="application/json")
def shelf() -> str:
    """All books."""
    return '["Emma"]'


@server.resource("cover://emma", mime_type="image/png")
def cover() -> bytes:
    """A cover."""
    return b"\x89PNG\r\n\x1a\n"


@server.prompt()
def review(title: str, words: str = "100") -> str:
    """Asks for a review."""
    return f"Review {title} in {words} words."


def ask_sure(title: str) -> Elicit[Sure]:
    return Elicit(f"Really burn {title}?", Sure)


def ask_address() -> Elicit[Address]:
    return Elicit("Where to?", Address)


@server.tool()
def burn(title: str, answer: Annotated[ElicitationResult[Sure], Resolve(ask_sure)]) -> str:
    """Burns a book, once a person is sure."""
    return f"burnt {title}" if answer.action == "accept" and answer.data.sure else f"{answer.action}: kept {title}"


@server.tool()
def send(title: str, address: Annotated[Address, Resolve(ask_address)]) -> str:
    """Sends a book."""
    return f"sent to {address.street}, {address.floor}"


if len(sys.argv) > 1 and sys.argv[1] == "clash":

    @server.tool()
    def read_resource(uri: str) -> str:
        """A tool that is called like one of ours."""
        return f"mine: {uri}"


if len(sys.argv) > 1 and sys.argv[1].isdigit():
    server.run("streamable-http", port=int(sys.argv[1]))
else:
    server.run("stdio")
