"""A server's refusal becomes one of our errors.

One law: the message says what, where and what to do, in the server's own words where it has any, and never holds a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from callgate import masking
from callgate.errors import (
    BadRequest,
    ContextTooLong,
    ModelMissing,
    Overloaded,
    ProtocolBroken,
    ProviderError,
    RateLimited,
    RefusedKey,
)
from callgate.formats import error_text

_CONTEXT = re.compile(
    r"context[ _](?:length|size|window)|exceed_context|maximum context|too many (?:input )?tokens"
    r"|(?:prompt|input) is too long|reduce the length|tokens? (?:exceeds?|limit)|string_above_max_length",
    re.IGNORECASE,
)
_MODEL = re.compile(
    r"model.{0,200}(?:not found|not exist|does ?n.t exist|not available|unknown|not loaded)"
    r"|(?:unknown|invalid|no such) model|model_not_found|no models? loaded",
    re.IGNORECASE | re.DOTALL,
)
_BROKE = re.compile(r"insufficient_quota|billing|credit", re.IGNORECASE)


def words(body: bytes | str | Any) -> str:
    """What a body says went wrong, on one line; HTML pages by their title."""
    if isinstance(body, bytes):
        body = body.decode("utf-8", "replace")
    if isinstance(body, str):
        text = body.strip()
        try:
            body = json.loads(text)
        except (ValueError, RecursionError):
            title = re.search(r"<title>(.*?)</title>", text, re.IGNORECASE | re.DOTALL)
            body = title.group(1) if title else re.sub(r"<[^>]*>", " ", text)
    said = error_text(body) if body not in ("", None) else ""
    return hide(" ".join(said.split())[:500])


def hide(text: str, *secrets: str) -> str:
    """The text without keys: those given, and whatever looks like one, for servers quote keys back."""
    for secret in secrets:
        if secret and len(secret) > 3:
            text = text.replace(secret, "***")
    return masking.DEFAULT.text(text)


def refusal(
    status: int,
    body: bytes | str | Any,
    *,
    provider: str,
    model: str = "",
    retry_after: float | None = None,
    key_hint: str = "",
    secrets: Sequence[str] = (),
) -> ProviderError:
    """The error for an HTTP status and what the server said with it."""
    said = hide(words(body), *secrets)
    quoted = f": {said}" if said else ""
    where: dict[str, Any] = {"provider": provider, "status": status}
    if status in (401, 403):
        return RefusedKey(f"{provider} refused the key ({status}){quoted}{key_hint}", **where)
    if status == 402 or (status == 429 and _BROKE.search(said)):
        return RefusedKey(f"{provider}: this key has no credit left ({status}){quoted}", **where)
    if status == 429:
        return _later(RateLimited(f"{provider}: too many requests (429){quoted}", **where), retry_after)
    if _CONTEXT.search(said) and status in (400, 413, 422, 500):
        return ContextTooLong(f"{provider}: the request does not fit the model's context{quoted}", **where)
    if status == 404 and not model:
        return BadRequest(f"{provider}: this address has no such path (404){quoted}; is base_url right?", **where)
    if status == 404 or (status in (400, 422) and _MODEL.search(said)):
        return ModelMissing(f"{provider}: model {model!r} is not there ({status}){quoted}", **where)
    if status >= 500 or status == 408:
        return _later(Overloaded(f"{provider}: the server failed ({status}){quoted}", **where), retry_after)
    if status >= 400:
        return BadRequest(f"{provider} did not accept the request ({status}){quoted}", **where)
    return ProtocolBroken(f"{provider}: unexpected answer ({status}){quoted}", **where)


def _later(error: RateLimited | Overloaded, retry_after: float | None) -> ProviderError:
    error.retry_after = retry_after
    return error


def with_available(error: ModelMissing, available: Sequence[str]) -> ModelMissing:
    """The same error, listing what is there."""
    shown = ", ".join(available[:20]) + (f" and {len(available) - 20} more" if len(available) > 20 else "")
    text = f"{error}; it has: {shown}" if available else str(error)
    out = ModelMissing(text, provider=error.provider, status=error.status, sent=error.sent)
    out.available = tuple(available)
    return out


def error_of(value: Mapping[str, Any], *, provider: str, model: str = "") -> ProviderError | None:
    """The error in a record, where the engine is called without HTTP."""
    error = value.get("error")
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    return refusal(code if isinstance(code, int) else 500, value, provider=provider, model=model)
