"""What can be asked, in the forms of the APIs: lists of models, and what is known of one.

Law: a model that a key may not use is not there for it.
(tests/test_gateway_models.py::test_a_model_that_a_key_may_not_use_is_not_there)
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from pydantic_core import from_json
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Route

from callgate import __version__
from callgate.apps.gateway.backends import alias
from callgate.apps.gateway.gate import CALLER, Caller, Gate
from callgate.apps.gateway.shapes import Failure, openai
from callgate.types import ModelInfo

if TYPE_CHECKING:
    from starlette.requests import Request

EPOCH = "1970-01-01T00:00:00Z"
"""When a model was made: nobody knows, and clients want a date."""
OLLAMA = "0.12.6"
"""The version of Ollama's API that is spoken: clients ask for it before they use what is new in it."""


def model_routes(gate: Gate) -> list[BaseRoute]:
    """The paths under which clients look for models."""
    models = _Models(gate)
    return [
        Route("/v1/models", models.list, methods=["GET"]),
        Route("/v1/models/{model:path}", models.one, methods=["GET"]),
        Route("/api/tags", models.tags, methods=["GET"]),
        Route("/api/ps", models.running, methods=["GET"]),
        Route("/api/show", models.show, methods=["POST"]),
        Route("/api/version", models.version, methods=["GET"]),
    ]


class _Models:
    """What can be asked, with what is known of it."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def _known(self, request: Request) -> list[tuple[str, ModelInfo]]:
        caller: Caller | None = request.scope.get(CALLER)
        found = await self._gate.backends.catalogue()
        return [(b.address, info) for b, info in found if caller is None or caller.may_use(info.name)]

    async def _found(self, request: Request, wanted: str) -> tuple[str, ModelInfo] | None:
        known = await self._known(request)
        names = (wanted, alias(wanted))
        return next((entry for name in names for entry in known if entry[1].name == name), None)

    async def list(self, request: Request) -> JSONResponse:
        """`GET /v1/models`, as OpenAI and Anthropic list them: each client reads its own fields."""
        data = [_entry(backend, info) for backend, info in await self._known(request)]
        ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return JSONResponse({"object": "list", "data": data, "has_more": False, **ends})

    async def one(self, request: Request) -> JSONResponse:
        """`GET /v1/models/ID`."""
        wanted = request.path_params["model"]
        if (found := await self._found(request, wanted)) is not None:
            return JSONResponse(_entry(*found))
        failure = Failure(404, "not_found", _unknown(wanted), code="model_not_found")
        return JSONResponse(openai.failure(failure), 404)

    async def tags(self, request: Request) -> JSONResponse:
        """`GET /api/tags`."""
        return JSONResponse({"models": [_tag(info) for _, info in await self._known(request)]})

    async def running(self, request: Request) -> JSONResponse:
        """`GET /api/ps`: which models are loaded is their servers' business."""
        return JSONResponse({"models": []})

    async def show(self, request: Request) -> JSONResponse:
        """`POST /api/show`. Every model can call tools here, whatever its server can."""
        try:
            body = from_json(await request.body())
        except ValueError:
            return JSONResponse({"error": "the body is no JSON"}, 400)
        wanted = (body.get("model") or body.get("name")) if isinstance(body, dict) else None
        if not isinstance(wanted, str) or not wanted:
            return JSONResponse({"error": "model: missing"}, 400)
        found = await self._found(request, wanted)
        if found is None:
            return JSONResponse({"error": _unknown(wanted)}, 404)
        return JSONResponse(_shown(found[1]))

    async def version(self, request: Request) -> JSONResponse:
        """`GET /api/version`."""
        return JSONResponse({"version": OLLAMA, "callgate": __version__})


def _unknown(wanted: str) -> str:
    return f"no backend has the model {wanted[:200]!r}"


def _entry(backend: str, info: ModelInfo) -> dict[str, object]:
    return {
        "id": info.name,
        "object": "model",
        "created": 0,
        "owned_by": info.provider or backend,
        "type": "model",
        "display_name": info.name,
        "created_at": EPOCH,
        "capabilities": sorted(info.capabilities),
        "context_length": info.context_length,
        "backend": backend,
        "dialect": info.dialect,
    }


def _details() -> dict[str, object]:
    return {
        "parent_model": "",
        "format": "",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    }


def _tag(info: ModelInfo) -> dict[str, object]:
    # Ollama's own client cuts twelve characters out of the digest, so there must be some.
    digest = hashlib.sha256(info.name.encode("utf-8", "surrogatepass")).hexdigest()
    head = {"name": info.name, "model": info.name, "modified_at": EPOCH, "size": 0, "digest": digest}
    return {**head, "details": _details()}


def _shown(info: ModelInfo) -> dict[str, object]:
    facts: dict[str, object] = {"general.architecture": "callgate", "general.basename": info.name}
    if info.context_length is not None:
        facts["callgate.context_length"] = info.context_length
    if isinstance(size := info.extra.get("parameters"), int):
        facts["general.parameter_count"] = size
    return {
        "license": "",
        "modelfile": "",
        "parameters": "",
        "template": info.chat_template or "",
        "modified_at": EPOCH,
        "details": _details(),
        "model_info": facts,
        "capabilities": sorted({"completion", "tools", *(info.capabilities & {"thinking", "vision"})}),
    }
