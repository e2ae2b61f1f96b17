"""A server's refusal becomes one of our errors.

Law: the message says what, where and what to do, in the server's own words where it has any, and never holds a key.
(tests/test_providers_http.py::test_refusals_become_our_errors_in_the_servers_words)
"""

from __future__ import annotations

import email.utils
import json
import re
import time
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
    Redirected,
    RefusedKey,
    Unreachable,
)
from callgate.formats import error_text

_AGAIN = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529, 530})
_PARSER = re.compile(r"pars|tool call|unmarshal|invalid character|grammar|template", re.IGNORECASE)
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
_TEMPLATE = re.compile(
    r"no user query|roles must alternate|raise_exception|jinja|(?:chat|prompt) template|template.{0,40}(?:error|fail)",
    re.IGNORECASE,
)
_BROKE = re.compile(r"insufficient_quota|billing|credit", re.IGNORECASE)
_NO_CREDIT = re.compile(r"credit balance is too low", re.IGNORECASE)
"""Anthropic says so with a 400."""


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
    reason = error_text(body) if body not in ("", None) else ""
    return hide(" ".join(reason.split())[:500])


def wait_in(text: str) -> float | None:
    """Seconds that a refusal asks for in words: "try again in 1m2.5s", "retry in 350ms", "retryDelay": "34s"."""
    for found in re.finditer(
        r"(?:again in|again after|retry in|retry after|retrydelay\W+|wait|reset in|retry.after\W+)\s*(?:for |about )?"
        r"((?:\d+(?:\.\d+)?\s?(?:hours?|minutes?|milliseconds?|seconds?|mins?|secs?|ms|h|m|s)\b\s?)+)",
        re.sub(r"(?<=\d)(ms|[hms])(?=\d)", r"\1 ", text),
        re.IGNORECASE,
    ):
        parts = re.findall(r"(\d+(?:\.\d+)?)\s?([a-z]+)", found[1], re.IGNORECASE)
        return sum(float(number) * _unit(word.lower()) for number, word in parts)
    return None


def _unit(word: str) -> float:
    if word.startswith(("ms", "milli")):
        return 0.001
    return {"h": 3600.0, "m": 60.0, "s": 1.0}[word[0]]


def blamed_in(body: bytes | str | Any) -> tuple[str, ...]:
    """The fields of the request that a refusal blames: OpenAI's `param`, FastAPI's `loc`."""
    if isinstance(body, (bytes, str)):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return ()
    out: list[str] = []
    todo: list[Any] = [body]
    while todo and len(out) < 20:
        value = todo.pop()
        if isinstance(value, list):
            todo += value
        elif isinstance(value, Mapping):
            todo += value.values()
            if isinstance(value.get("param"), str):
                out.append(value["param"])
            if isinstance(loc := value.get("loc"), list):
                out.append(".".join(str(part) for part in loc if part != "body"))
    return tuple(out)


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
    if retry_after is None and status in (429, 503):
        retry_after = wait_in(words(body))
    reason = hide(words(body), *secrets)
    return (
        _of_the_key(status, reason, provider, key_hint)
        or _of_the_context(status, reason, provider)
        or _missing(status, reason, provider, model)
        or _of_the_moment(status, reason, provider, retry_after)
        or _of_the_request(status, reason, provider, blamed_in(body))
    )


# Each of these tells one kind of failure from the others, in this order: a key without credit is a 429 in some places,
# a prompt that is too long a 500, and a missing model a 400.


def _of_the_key(status: int, reason: str, provider: str, hint: str) -> ProviderError | None:
    if status in (401, 403):
        text = f"{provider} refused the key ({status}){_quoted(reason)}{hint}"
        return RefusedKey(text, provider=provider, status=status)
    if status == 402 or (status == 429 and _BROKE.search(reason)) or _NO_CREDIT.search(reason):
        text = f"{provider}: this key has no credit left ({status}){_quoted(reason)}"
        return RefusedKey(text, provider=provider, status=status)
    return None


def _of_the_context(status: int, reason: str, provider: str) -> ProviderError | None:
    if status not in (400, 413, 422, 500) or not _CONTEXT.search(reason):
        return None
    text = f"{provider}: the request does not fit the model's context{_quoted(reason)}"
    return ContextTooLong(text, provider=provider, status=status)


def _of_the_moment(status: int, reason: str, provider: str, retry_after: float | None) -> ProviderError | None:
    """What may be gone when it is asked again."""
    if status == 429:
        text = f"{provider}: too many requests (429){_quoted(reason)}"
        return _later(RateLimited(text, provider=provider, status=status), retry_after)
    if status == 500 and _TEMPLATE.search(reason):
        return None
    if status >= 500 or status == 408:
        text = f"{provider}: the server failed ({status}){_quoted(reason)}"
        return _later(Overloaded(text, provider=provider, status=status), retry_after)
    return None


def _of_the_request(status: int, reason: str, provider: str, blamed: tuple[str, ...]) -> ProviderError:
    if status >= 400:
        text = f"{provider} did not accept the request ({status}){_quoted(reason)}"
        if status == 500:
            text += (
                "; the model's chat template refuses this order of messages (it may want a question of the user first)"
            )
            blamed = ()
        return BadRequest(text, named=blamed, provider=provider, status=status)
    kind = Redirected if status >= 300 else ProtocolBroken
    return kind(f"{provider}: unexpected answer ({status}){_quoted(reason)}", provider=provider, status=status)


def _quoted(reason: str) -> str:
    return f": {reason}" if reason else ""


def _missing(status: int, reason: str, provider: str, model: str) -> ProviderError | None:
    """The error for what is not there: the model, or the path where no model was named."""
    if status != 404 and not (status in (400, 422) and _MODEL.search(reason)):
        return None
    if status == 404 and not model:
        text = f"{provider}: this address has no such path (404){_quoted(reason)}; is base_url right?"
        return BadRequest(text, provider=provider, status=status)
    text = f"{provider}: model {model!r} is not there ({status}){_quoted(reason)}"
    return ModelMissing(text, provider=provider, status=status)


def _later(error: RateLimited | Overloaded, retry_after: float | None) -> ProviderError:
    error.retry_after = retry_after
    return error


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from `retry-after-ms` or `Retry-After` (a number or a date)."""
    try:
        if (value := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(value) / 1000)
        if (value := headers.get("Retry-After")) is None:
            return None
        try:
            seconds = float(value)
        except ValueError:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, TypeError):
        return None
    return max(0.0, seconds) if seconds == seconds else None  # noqa: PLR0124 - not NaN


def with_available(error: ModelMissing, available: Sequence[str]) -> ModelMissing:
    """The same error, listing what is there."""
    shown = ", ".join(available[:20]) + (f" and {len(available) - 20} more" if len(available) > 20 else "")
    text = f"{error}; it has: {shown}" if available else str(error)
    out = ModelMissing(text, provider=error.provider, status=error.status)
    out.available = tuple(available)
    return out


def error_of(value: Mapping[str, Any], *, provider: str, model: str = "") -> ProviderError | None:
    """The error in a record, where the engine is called without HTTP."""
    error = value.get("error")
    if not error:
        return None
    code = error.get("code") if isinstance(error, Mapping) else None
    return refusal(code if isinstance(code, int) else 500, value, provider=provider, model=model)


def passing(error: ProviderError) -> bool:
    """Whether the failure may pass by itself."""
    if isinstance(error, Unreachable):
        return not re.search("no such host|TLS failed|in time", str(error))
    if isinstance(error, (RateLimited, Overloaded)):
        return error.status in _AGAIN and not (error.status == 500 and _PARSER.search(str(error)))
    return False
