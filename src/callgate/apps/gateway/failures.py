"""What went wrong, as a status and a kind that every client API has words for.

Law: whose fault it is decides the status: 4xx only for what the client can change.
(tests/test_gateway_openai.py::test_a_backends_failure_has_the_right_status)
"""

from __future__ import annotations

from callgate.apps.gateway.shapes import Failure
from callgate.errors import (
    BadRequest,
    CallgateError,
    ConfigError,
    ContextTooLong,
    InvalidRequest,
    LimitExceeded,
    ModelMissing,
    Overloaded,
    ProviderError,
    RateLimited,
    Unreachable,
)

MAX_MESSAGE = 2000


def failure_of(error: BaseException) -> Failure:
    """The failure that an error is."""
    text = " ".join(str(error).split())[:MAX_MESSAGE] or type(error).__name__
    match error:
        case InvalidRequest():
            return Failure(400, "invalid_request", text, param=error.field)
        case ProviderError():
            return _of_backend(error, text)
        case LimitExceeded():  # of an answer: what a client sends is limited elsewhere
            return Failure(502, "upstream", text)
        case ConfigError():
            return Failure(400, "invalid_request", text)
        case CallgateError():
            return Failure(500, "internal", text)
        case _:
            return Failure(500, "internal", "the gateway failed; its log has more")


def _of_backend(error: ProviderError, text: str) -> Failure:
    """What a backend refused, or failed at."""
    match error:
        case ModelMissing():
            known = ", ".join(list(error.available)[:30])
            text = f"{text}; there are: {known}" if known and known not in text else text
            return Failure(404, "not_found", text, code="model_not_found", param="model")
        case ContextTooLong():
            return Failure(400, "invalid_request", text, code="context_length_exceeded")
        case BadRequest():
            status = error.status if error.status in (400, 413, 422) else 400
            return Failure(status, "invalid_request", text, param=error.named[0] if error.named else None)
        case RateLimited():
            return Failure(429, "rate_limit", text, retry_after=error.retry_after)
        case Overloaded():
            # 501 and 505 to 511 say something of the connection between us and the backend, not of ours.
            status = error.status if error.status in (500, 502, 503, 504, 529) else 502
            return Failure(status, "overloaded", text, retry_after=error.retry_after)
        case Unreachable() if "in time" in text:
            return Failure(504, "timeout", text)
        case _:  # also a refused key: ours was, and not the client's
            return Failure(502, "upstream", text)


def passes_on(error: CallgateError) -> bool:
    """Whether another backend may do better."""
    return isinstance(error, ProviderError) and (not isinstance(error, BadRequest) or isinstance(error, ContextTooLong))
