"""Lists of models, in the forms of the APIs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httpx
import pytest
from starlette.routing import Router

from callgate.apps.gateway.backends import Backends
from callgate.apps.gateway.client import Receive, Scope, Send
from callgate.apps.gateway.gate import CALLER, Gate
from callgate.apps.gateway.models import model_routes
from callgate.providers import Provider
from callgate.providers.replay import Replay
from gateway_server import Options


@dataclass
class OnlyM:
    """A key that may use one model."""

    principal: None = None
    rules: tuple[()] = ()

    def may_use(self, model: str) -> bool:
        return model == "m"


def asked(path: str, body: object = None) -> httpx.Response:
    """What such a key is answered."""
    models: list[str | Provider] = [Replay([], model="m"), Replay([], model="n")]
    router = Router(model_routes(Gate(Options(), Backends(models))))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await router({**scope, CALLER: OnlyM()}, receive, send)  # type: ignore[arg-type]

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as web:  # type: ignore[arg-type]
            return await (web.get(path) if body is None else web.post(path, json=body))

    return asyncio.run(ask())


def test_a_model_that_a_key_may_not_use_is_not_there() -> None:
    listed = asked("/v1/models").json()
    assert [m["id"] for m in listed["data"]] == ["m"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("m", "m", False)
    assert [m["name"] for m in asked("/api/tags").json()["models"]] == ["m"]
    assert asked("/v1/models/n").status_code == 404
    assert asked("/v1/models/m").json()["id"] == "m"
    assert asked("/api/show", {"model": "n"}).status_code == 404
    assert asked("/api/show", {"name": "m:latest"}).json()["capabilities"] == ["completion", "thinking", "tools"]


@pytest.mark.parametrize("body", [[], {}, {"model": 5}, {"model": ""}])
def test_a_question_for_no_model_is_refused(body: object) -> None:
    answer = asked("/api/show", body)
    assert (answer.status_code, answer.json()) == (400, {"error": "model: missing"})
