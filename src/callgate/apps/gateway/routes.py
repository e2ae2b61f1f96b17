"""The routes of the proxy: the APIs of models that clients know.

Law: that of the room (callgate/apps/gateway/__init__.py).
"""

from __future__ import annotations

from typing import cast

from starlette.routing import BaseRoute, Route

from callgate.apps.gateway.client import Receive, Scope, Send
from callgate.apps.gateway.counting import Counting
from callgate.apps.gateway.exchange import Exchange
from callgate.apps.gateway.gate import Gate
from callgate.apps.gateway.models import model_routes
from callgate.apps.gateway.shapes import Shape, anthropic, generate, ollama, openai
from callgate.apps.gateway.shapes.responses import Responses


class _Endpoint:
    """One path of one shape, as an ASGI application: nothing stands between it and the server."""

    def __init__(self, gate: Gate, shape: Shape) -> None:
        self._gate = gate
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Exchange(self._gate, self._shape, scope, receive, send).run()


def proxy_routes(gate: Gate) -> list[BaseRoute]:
    """The client shapes, each streaming and not."""
    return [
        _route("/v1/chat/completions", gate, cast("Shape", openai)),
        _route("/v1/responses", gate, cast("Shape", Responses(gate.settings.kept_responses))),
        _route("/v1/messages", gate, cast("Shape", anthropic)),
        Route("/v1/messages/count_tokens", Counting(gate).count, methods=["POST"]),
        _route("/api/chat", gate, cast("Shape", ollama)),
        _route("/api/generate", gate, cast("Shape", generate)),
        *model_routes(gate),
    ]


def _route(path: str, gate: Gate, shape: Shape) -> Route:
    return Route(path, _Endpoint(gate, shape), methods=["POST"])
