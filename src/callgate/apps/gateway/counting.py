"""`POST /v1/messages/count_tokens`: how many tokens a request would have.

Law: a count that is an estimate says that it is one.
(tests/test_gateway_anthropic.py::test_tokens_are_counted_or_estimated)
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

from pydantic_core import from_json
from starlette.responses import JSONResponse

from callgate.apps.gateway.ask import Ask
from callgate.apps.gateway.failures import failure_of
from callgate.apps.gateway.gate import CALLER, Caller, Gate
from callgate.apps.gateway.shapes import Failure, anthropic
from callgate.errors import CallgateError, InvalidRequest
from callgate.providers import Served
from callgate.types import Message

if TYPE_CHECKING:
    from starlette.requests import Request

PATH = "/v1/messages/count_tokens"
ASCII = 3.8
"""Characters of English and of code in one token, in the mean of the tokenizers of today."""
OTHER = 1.2
"""Characters of Chinese, Japanese, Cyrillic or emoji in one."""
AROUND = 4
"""Tokens that a template puts around each message."""
PICTURE = 1500
"""Tokens of an image of a megapixel."""


class Counting:
    """Counts, as the backend does where it can, else by the lengths of the texts."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def count(self, request: Request) -> JSONResponse:
        """The answer, or the API's error."""
        caller: Caller | None = request.scope.get(CALLER)
        try:
            ask = _asked(await request.body())
            if caller is not None and not caller.may_use(ask.model):
                failure = Failure(403, "permission", f"this key may not use the model {ask.model[:200]!r}")
                return JSONResponse(anthropic.failure(failure), 403)
            return JSONResponse(await self._counted(ask))
        except CallgateError as error:
            failure = failure_of(error)
            return JSONResponse(anthropic.failure(failure), failure.status)

    async def _counted(self, ask: Ask) -> dict[str, object]:
        having = await self._gate.backends.having(ask.model)
        provider = having[0].provider(ask.model)
        if isinstance(provider, Served) and provider.wire == "anthropic":
            answer = await provider.client.ask("POST", f"/{PATH}", {**ask.body, "model": provider.model})
            return dict(answer) if isinstance(answer, dict) else {}
        return {"input_tokens": estimate(ask), "callgate": {"estimated": True}}


def _asked(data: bytes) -> Ask:
    try:
        value = from_json(data)
    except ValueError as error:
        raise InvalidRequest("body", f"it is no JSON: {str(error)[:200]}") from error
    if not isinstance(value, dict):
        raise InvalidRequest("body", "an object is needed")
    return anthropic.load(value)


def estimate(ask: Ask) -> int:
    """About how many tokens the request has."""
    tools = [json.dumps(dict(tool.parameters), ensure_ascii=False, default=str) for tool in ask.request.tools]
    around = AROUND * (len(ask.request.messages) + len(tools))
    names = sum(_tokens(f"{tool.name} {tool.description}") for tool in ask.request.tools)
    return math.ceil(around + names + sum(map(_tokens, tools)) + sum(map(_of_message, ask.request.messages)))


def _of_message(message: Message) -> float:
    calls = [f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}" for call in message.calls]
    parts = () if isinstance(message.content, str) else message.content
    pictures: int = PICTURE * sum(part.get("type") != "text" for part in parts)
    texts = [message.text, message.reasoning, *calls]
    return pictures + sum((_tokens(text) for text in texts), 0.0)


def _tokens(text: str) -> float:
    plain = sum(map(str.isascii, text))
    return plain / ASCII + (len(text) - plain) / OTHER
