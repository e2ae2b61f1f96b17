"""Errors of the server itself, in the form of the API that was asked.

Law: an official client of each API reads a refusal as the error that it is.
(tests/test_gateway_access.py::test_official_clients_read_a_refusal_as_their_own_error)
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from callgate.errors import CallgateError, LedgerError, ProviderError, RunBusy
from callgate.types import EMPTY

# status -> (OpenAI's type, its code, Anthropic's type); https://platform.openai.com/docs/guides/error-codes and
# https://docs.anthropic.com/en/api/errors
KINDS: dict[int, tuple[str, str | None, str]] = {
    400: ("invalid_request_error", None, "invalid_request_error"),
    401: ("invalid_request_error", "invalid_api_key", "authentication_error"),
    403: ("invalid_request_error", "forbidden", "permission_error"),
    404: ("invalid_request_error", "not_found", "not_found_error"),
    405: ("invalid_request_error", "method_not_allowed", "invalid_request_error"),
    408: ("invalid_request_error", "timeout", "invalid_request_error"),
    409: ("invalid_request_error", "conflict", "invalid_request_error"),
    413: ("invalid_request_error", "request_too_large", "request_too_large"),
    415: ("invalid_request_error", "unsupported_media_type", "invalid_request_error"),
    421: ("invalid_request_error", "unknown_host", "permission_error"),
    422: ("invalid_request_error", None, "invalid_request_error"),
    429: ("rate_limit_error", "rate_limit_exceeded", "rate_limit_error"),
    500: ("server_error", "internal_error", "api_error"),
    503: ("server_error", "unavailable", "overloaded_error"),
}


class Refusal(Exception):
    """A request that is not carried out, and why. `details` are further fields of the error."""

    def __init__(
        self, status: int, message: str, headers: Mapping[str, str] = EMPTY, details: Mapping[str, object] = EMPTY
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers
        self.details = details

    def body(self, path: str, request_id: str = "") -> bytes:
        """The error as JSON, in the form of the API that the path belongs to."""
        kind, code, anthropic = KINDS.get(self.status, KINDS[500])
        error: dict[str, object]
        if path.startswith("/v1/messages"):
            error = {"type": "error", "error": {"type": anthropic, "message": self.message, **self.details}}
            if request_id:
                error["request_id"] = request_id
        elif path.startswith("/api/"):
            error = {"error": self.message, **self.details}
        else:
            error = {"error": {"message": self.message, "type": kind, "param": None, "code": code, **self.details}}
        return json.dumps(error, ensure_ascii=False).encode("utf-8", "replace")


def too_many(message: str, seconds: float) -> Refusal:
    """429, with the time after which it is worth asking again."""
    return Refusal(429, message, {"retry-after": str(max(1, round(seconds + 0.5)))})


def refusal_of(error: BaseException) -> Refusal:
    """What a client is told of an error that came before its run began."""
    match error:
        case Refusal():
            return error
        case RunBusy():
            return Refusal(409, str(error))
        case LedgerError():
            return Refusal(503, str(error))
        case ProviderError():
            return Refusal(502, str(error))
        case CallgateError() if "the ledger has this run already" in str(error):
            return Refusal(409, "id: there is a run with this id already")
        case CallgateError():
            return Refusal(422, str(error))
        case _:
            raise error
