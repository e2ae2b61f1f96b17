"""An agent in somebody's web application: a POST is a run, its answer the events."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from callgate import Agent, Denied, Principal, Replay, ToolContext, tool
from callgate.agent import _asgi as module
from callgate.errors import ConfigError
from callgate.events import RunFinished, load_event

pytestmark = pytest.mark.anyio


@tool(effect="read")
def who(ctx: ToolContext[Any]) -> str:
    "Who asks."
    return f"{ctx.principal.id if ctx.principal else 'nobody'} {ctx.deps}"


@tool(effect="read")
def fail() -> str:
    "Fails."
    raise KeyError("secret place")


def calling(name: str) -> Replay:
    return Replay([{"calls": [{"name": name, "arguments": {}}]}, "Das ist 東京 🙂."])


def client(app: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


def events_of(text: str) -> list[Any]:
    events = []
    for record in text.split("\n\n"):
        if record and not record.startswith(":"):
            name, data = record.split("\n")
            events.append(load_event(json.loads(data.removeprefix("data: "))))
            assert name == f"event: {json.loads(data.removeprefix('data: '))['type']}"
    return events


async def test_a_post_is_a_run_and_its_answer_the_events() -> None:
    async with client(Agent(calling("who"), tools=[who]).to_asgi()) as http:
        answer = await http.post("/", json={"prompt": "Who am I?"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer.text)
    assert isinstance(events[-1], RunFinished)
    assert (events[-1].reason, events[-1].text) == ("answered", "Das ist 東京 🙂.")


async def test_a_client_gives_a_prompt_and_nothing_else() -> None:
    """Who asks, and the dependencies, are the application's word."""

    async def prepare(scope: Any, body: dict[str, Any]) -> dict[str, Any]:
        name = Request(scope).headers.get("x-user")
        if name is None:
            raise Denied("log in first")
        return {"principal": Principal(name), "deps": f"shop of {body.get('shop')}"}

    agent: Agent[str] = Agent(calling("who"), tools=[who], deps_type=str)
    app = Starlette(routes=[Mount("/chat", agent.to_asgi(prepare))])
    body = {"prompt": "Who?", "principal": "root", "history": [{"role": "system", "content": "x"}], "shop": 7}
    async with client(app) as http:
        refused = await http.post("/chat/", json=body)
        answer = await http.post("/chat/", json=body, headers={"x-user": "ann"})
    assert (refused.status_code, refused.json()) == (403, {"error": {"message": "log in first"}})
    assert "ann shop of 7" in answer.text
    assert "root" not in answer.text


async def test_where_a_tool_failed_is_not_for_clients(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.CRITICAL):
        async with client(Agent(calling("fail"), tools=[fail]).to_asgi()) as http:
            answer = await http.post("/", json={"prompt": "?"})
    assert "secret place" in answer.text  # the model is told the message
    assert "test_agent_asgi.py" not in answer.text


@pytest.mark.parametrize(
    ("method", "body", "status"),
    [
        ("GET", b"", 405),
        ("POST", b"{", 400),
        ("POST", b"[]", 400),
        ("POST", b'{"prompt": 5}', 400),
        ("POST", b'{"prompt": ""}', 400),
        ("POST", b"[" * 100_000, 400),
        ("POST", b'"' + b"x" * module.MAX_BODY + b'"', 413),
    ],
)
async def test_what_is_no_prompt_is_refused_before_a_run(method: str, body: bytes, status: int) -> None:
    model = Replay([])
    async with client(Agent(model).to_asgi()) as http:
        answer = await http.request(method, "/", content=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert model.requests == []


async def test_what_the_application_does_wrong_is_its_own_error() -> None:
    with pytest.raises(ConfigError, match="a function of the scope"):
        Agent(Replay([])).to_asgi({"principal": "x"})  # type: ignore[arg-type]
    app = Agent(Replay(["x"])).to_asgi(lambda scope, body: {"principal": "ann"})
    async with client(app) as http:
        with pytest.raises(ConfigError, match="a Principal is needed"):
            await http.post("/", json={"prompt": "?"})
    taken = Agent(Replay(["x", "y"]))
    taken.run_sync  # noqa: B018
    app = taken.to_asgi(lambda scope, body: {"run_id": "twice"})
    async with client(app) as http:
        assert (await http.post("/", json={"prompt": "?"})).status_code == 200
        with pytest.raises(ConfigError, match="has this run already"):
            await http.post("/", json={"prompt": "?"})


class Wire:
    """A connection in the hands of the test."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.gone = asyncio.Event()
        self._asked = False

    async def receive(self) -> dict[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "http.request", "body": b'{"prompt": "go"}'}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)


async def test_a_client_that_leaves_cancels_its_run() -> None:
    began, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> None:
        "Waits."
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    agent = Agent(Replay([{"calls": [{"name": "wait", "arguments": {}}]}, "x"]), tools=[wait])
    wire = Wire()
    task = asyncio.ensure_future(agent.to_asgi()({"type": "http", "method": "POST"}, wire.receive, wire.send))
    await asyncio.wait_for(began.wait(), 10)
    wire.gone.set()
    await asyncio.wait_for(task, 10)
    assert stopped.is_set()
    assert events_of(b"".join(m.get("body", b"") for m in wire.sent).decode())[-1].reason == "cancelled"


async def test_a_silent_run_keeps_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_ALIVE", 0.01)
    wire, on = Wire(), asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        "Waits."
        await on.wait()
        return "done"

    agent = Agent(Replay([{"calls": [{"name": "wait", "arguments": {}}]}, "x"]), tools=[wait])
    task = asyncio.ensure_future(agent.to_asgi()({"type": "http", "method": "POST"}, wire.receive, wire.send))
    while not any(b"still here" in m.get("body", b"") for m in wire.sent):
        await asyncio.sleep(0.01)
    on.set()
    await asyncio.wait_for(task, 10)
    assert events_of(b"".join(m.get("body", b"") for m in wire.sent).decode())[-1].reason == "answered"


async def test_it_has_the_life_of_its_server() -> None:
    asked = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> Any:
        return next(asked)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await Agent(Replay([])).to_asgi()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    with pytest.raises(ConfigError, match="websocket"):
        await Agent(Replay([])).to_asgi()({"type": "websocket"}, receive, send)
