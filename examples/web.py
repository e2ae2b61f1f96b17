"""An agent behind a web server: each POST is a run, its answer a stream of server-sent events.

Run it: python examples/web.py (it asks itself once), or `uvicorn examples.web:app` with the extra callgate[gateway].
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

from callgate import Agent, Denied, Principal, Replay, ToolContext, tool


@tool(effect="read")
def orders(ctx: ToolContext[Any]) -> str:
    "The orders of whoever asks."
    assert ctx.principal is not None
    return f"{ctx.principal.id} has ordered tea"


def prepare(scope: MutableMapping[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Who asks is read from the request's head, as a login would have set it, and never from the prompt."""
    user = dict(scope["headers"]).get(b"x-user")
    if user is None:
        raise Denied("log in first")
    return {"principal": Principal(user.decode())}


model = Replay([{"calls": [{"name": "orders", "arguments": {}}]}, "You have ordered tea."])
app = Agent(model, tools=[orders]).to_asgi(prepare)


async def post(prompt: str, user: str) -> None:
    """What an ASGI server does with a request."""
    request = [{"type": "http.request", "body": json.dumps({"prompt": prompt}).encode()}]

    async def receive() -> MutableMapping[str, Any]:
        if request:
            return request.pop()
        await asyncio.sleep(3600)  # the client stays
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        print(message.get("body", b"").decode(), end="")

    await app({"type": "http", "method": "POST", "headers": [(b"x-user", user.encode())]}, receive, send)


if __name__ == "__main__":
    asyncio.run(post("What have I ordered?", "ann"))
