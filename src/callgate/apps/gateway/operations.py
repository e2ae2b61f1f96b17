"""One operation of the API: what its route is made of, and what the OpenAPI document says of it.

Law: that of `openapi`: what is answered is what the document says.
(tests/test_gateway_openapi.py::test_the_server_does_what_its_document_says)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.responses import Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

Handler: TypeAlias = "Callable[[Request], Awaitable[Response]]"
JSON = "application/json"
EVENTS = "text/event-stream"
PLAIN = "text/plain"


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    """As Starlette writes it; "{id:path}" is "{id}" in the document."""
    name: str
    about: str
    """What it does, in a sentence."""
    handler: Handler
    answer: Any = None
    """The class of a JSON answer; None: no body, or another kind of one."""
    query: Any = None
    body: Any = None
    status: int = 200
    errors: Sequence[int] = ()
    media: str = JSON
    empty: bool = False
    """Whether it may also answer 204."""
    free: bool = False
    """Whether it needs no key."""


def routes_of(operations: Sequence[Operation]) -> list[Route]:
    """A route for each path, so that a method that it has not is a 405 that names those that it has."""
    paths: dict[str, dict[str, Handler]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method] = one.handler
    return [Route(path, _by_method(handlers), methods=list(handlers)) for path, handlers in paths.items()]


def _by_method(handlers: dict[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        # Starlette answers HEAD wherever it answers GET.
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle
